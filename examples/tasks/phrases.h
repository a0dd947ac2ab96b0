// SPDX-License-Identifier: Apache-2.0
// The grammar of the phrases task (rules: phrases.cc): a phrase is built as a tree and said in two languages.
#pragma once
#include <optional>

#include "examples/tasks/generate.h"
#include "examples/tasks/lexicon.h"

namespace heed {

enum class Determiner { the, a, some, this_one, these };      // a and this_one: singular; some and these: plural
enum class Tense { present, past, future };
enum class Target { french, spanish };
enum class Conjunction { conjoined, opposed };                // and, but

struct NounPhrase {
  Determiner determiner = Determiner::the;
  bool plural = false;
  std::vector<const Adjective*> adjectives;                   // at most two, in English order
  const Noun* noun = nullptr;
  const Noun* modifier = nullptr;                             // compound: the car door; then without adjectives
};

struct Phrase {
  NounPhrase subject;
  const Verb* verb = nullptr;                                 // without a verb and a predicate: the noun phrase alone
  const Adjective* predicate = nullptr;                       // subject BE predicate
  std::optional<NounPhrase> object{};                         // exactly where the verb is transitive
  Tense tense = Tense::present;
  bool negated = false, question = false;
};

// English source, translation and gold links.
TaskPair say(const Phrase& phrase, Target target);

// A sentence of two: "the dog sleeps" and, but "the cat does not sleep"; the links go with their words.
TaskPair join(const TaskPair& first, Conjunction conjunction, const TaskPair& second, Target target);

// The adjective-noun pairs a generator with this seed keeps out of train, dev and test.
bool is_held_out(std::uint64_t seed, const Adjective& adjective, const Noun& noun);

}  // namespace heed
