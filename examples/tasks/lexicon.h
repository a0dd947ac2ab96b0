// SPDX-License-Identifier: Apache-2.0
// The words of the phrases task: English, French and Spanish, with every form the grammar uses.
#pragma once
#include <span>
#include <string_view>

namespace heed {

// What a noun is, what an adjective can describe, what a verb can be done by and to: sets of kinds.
enum Kind : unsigned {
  kPerson = 1, kAnimal = 2, kThing = 4, kPlace = 8, kRegion = 16, kFood = 32, kText = 64, kThought = 128,
  kOpens = 256, kColoured = 512, kLong = 1024, kBuilt = 2048, kHeavy = 4096, kEconomy = 8192, kPlant = 16384, kWritten = 32768,
  kOnlyModifier = 65536,                                   // in compounds only
  kAlive = kPerson | kAnimal,
};

enum class Gender { masculine, feminine };

struct Noun {
  std::string_view english, english_plural;
  unsigned kinds;
  struct { std::string_view singular, plural; Gender gender; bool vowel; } french;  // vowel: begins with one or a mute h
  struct { std::string_view singular, plural; Gender gender; } spanish;              // no feminine one begins with a stressed a
};

struct Adjective {
  std::string_view english;
  int rank;                                                // of two adjectives the lower comes first in English
  unsigned kinds;
  bool before;                                             // French: before the noun
  struct {
    std::string_view masculine, feminine, masculine_plural, feminine_plural;
    bool vowel;
    std::string_view before_vowel;                         // masculine singular: bel; empty where it is the same
  } french;
  struct { std::string_view masculine, feminine, masculine_plural, feminine_plural; } spanish;
};

struct Verb {
  std::string_view english, singular, past;                // see, sees, saw
  unsigned subjects, objects;                              // kinds; no objects: intransitive
  struct { std::string_view singular, plural, participle, future, future_plural; } french;     // with avoir
  struct { std::string_view singular, plural, past, past_plural, future, future_plural; } spanish;
};

struct Compound { std::string_view modifier, head; };

std::span<const Noun> nouns();
std::span<const Adjective> adjectives();
std::span<const Verb> verbs();
std::span<const Compound> compounds();

// By their English singular.  Error
const Noun& noun(std::string_view english);
const Adjective& adjective(std::string_view english);
const Verb& verb(std::string_view english);

}  // namespace heed
