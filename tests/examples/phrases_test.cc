// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/phrases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tensor/error.h"

using namespace heed;

namespace {

NounPhrase np(Determiner determiner, bool plural, std::initializer_list<const char*> adjectives, const char* head,
              const char* modifier = nullptr) {
  NounPhrase result{determiner, plural, {}, &noun(head), modifier ? &noun(modifier) : nullptr};
  for (const char* word : adjectives) result.adjectives.push_back(&adjective(word));
  return result;
}
constexpr Determiner the = Determiner::the, a = Determiner::a, some = Determiner::some, this_one = Determiner::this_one,
                     these = Determiner::these;
constexpr Tense past = Tense::past, future = Tense::future;

void check_said(const Phrase& phrase, Target target, const char* english, const char* foreign, const char* sure,
                const char* possible = "") {
  const TaskPair pair = say(phrase, target);
  CHECK(pair.source == english);
  CHECK(pair.target == foreign);
  CHECK(to_string(pair.alignment.sure) == sure);
  CHECK(to_string(pair.alignment.possible, '?') == possible);
}

}  // namespace

TEST_CASE("phrases: the classic examples") {
  const Phrase dog{np(a, false, {"beautiful"}, "dog")};
  check_said(dog, Target::spanish, "a beautiful dog", "un perro bonito", "0-0 1-2 2-1");
  check_said(dog, Target::french, "a beautiful dog", "un beau chien", "0-0 1-1 2-2");
  check_said({np(the, false, {"european", "economic"}, "area")}, Target::french, "the european economic area",
             "la zone économique européenne", "0-0 1-3 2-2 3-1");
  const Phrase sees{.subject = np(the, false, {}, "dog"),
                    .verb = &verb("see"),
                    .object = np(the, false, {"big", "black"}, "house"),
                    .negated = true};
  check_said(sees, Target::french, "the dog does not see the big black house", "le chien ne voit pas la grande maison noire",
             "0-0 1-1 3-2 3-4 4-3 5-5 6-6 7-8 8-7", "2?3");
  check_said(sees, Target::spanish, "the dog does not see the big black house", "el perro no ve la casa negra grande",
             "0-0 1-1 3-2 4-3 5-4 6-7 7-6 8-5", "2?3");
  check_said({np(the, false, {}, "door", "car")}, Target::french, "the car door", "la porte de voiture", "0-0 1-3 2-1", "1?2");
}

TEST_CASE("phrases: tenses, negation, questions and their links") {
  Phrase p{.subject = np(the, false, {}, "bird"), .verb = &verb("see"), .object = np(a, false, {}, "tree")};
  const auto both = [&](const char* english, const char* french, const char* sure_french, const char* possible_french,
                        const char* spanish, const char* sure_spanish, const char* possible_spanish) {
    check_said(p, Target::french, english, french, sure_french, possible_french);
    check_said(p, Target::spanish, english, spanish, sure_spanish, possible_spanish);
  };
  both("the bird sees a tree", "l' oiseau voit un arbre", "0-0 1-1 2-2 3-3 4-4", "", "el pájaro ve un árbol",
       "0-0 1-1 2-2 3-3 4-4", "");
  p.question = true;
  both("does the bird see a tree ?", "est-ce que l' oiseau voit un arbre ?", "0-0 0-1 1-2 2-3 3-4 4-5 5-6 6-7", "0?4",
       "¿ ve el pájaro un árbol ?", "1-2 2-3 3-1 4-4 5-5 6-0 6-6", "0?1");
  p.negated = true;
  both("does the bird not see a tree ?", "est-ce que l' oiseau ne voit pas d' arbre ?",
       "0-0 0-1 1-2 2-3 3-4 3-6 4-5 5-7 6-8 7-9", "0?5", "¿ no ve el pájaro un árbol ?", "1-3 2-4 3-1 4-2 5-5 6-6 7-0 7-7",
       "0?2");
  p.tense = past;
  both("did the bird not see a tree ?", "est-ce que l' oiseau n' a pas vu d' arbre ?", "0-5 1-2 2-3 3-4 3-6 4-7 5-8 6-9 7-10",
       "0?0 0?1", "¿ no vio el pájaro un árbol ?", "1-3 2-4 3-1 4-2 5-5 6-6 7-0 7-7", "0?2");
  p.question = false;
  both("the bird did not see a tree", "l' oiseau n' a pas vu d' arbre", "0-0 1-1 2-3 3-2 3-4 4-5 5-6 6-7", "",
       "el pájaro no vio un árbol", "0-0 1-1 3-2 4-3 5-4 6-5", "2?3");
  p.negated = false;
  both("the bird saw a tree", "l' oiseau a vu un arbre", "0-0 1-1 2-2 2-3 3-4 4-5", "", "el pájaro vio un árbol",
       "0-0 1-1 2-2 3-3 4-4", "");
  p.tense = future;
  both("the bird will see a tree", "l' oiseau verra un arbre", "0-0 1-1 3-2 4-3 5-4", "2?2", "el pájaro verá un árbol",
       "0-0 1-1 3-2 4-3 5-4", "2?2");
  p.question = p.negated = true;
  both("will the bird not see a tree ?", "est-ce que l' oiseau ne verra pas d' arbre ?", "1-2 2-3 3-4 3-6 4-5 5-7 6-8 7-9",
       "0?0 0?1 0?5", "¿ no verá el pájaro un árbol ?", "1-3 2-4 3-1 4-2 5-5 6-6 7-0 7-7", "0?2");

  Phrase be{.subject = np(these, true, {}, "story"), .predicate = &adjective("old")};
  check_said(be, Target::french, "these stories are old", "ces histoires sont vieilles", "0-0 1-1 2-2 3-3");
  be.tense = past, be.negated = true;
  check_said(be, Target::french, "these stories were not old", "ces histoires n' étaient pas vieilles",
             "0-0 1-1 2-3 3-2 3-4 4-5");
  be.question = true;
  check_said(be, Target::french, "were these stories not old ?", "est-ce que ces histoires n' étaient pas vieilles ?",
             "0-5 1-2 2-3 3-4 3-6 4-7 5-8", "0?0 0?1");
  check_said(be, Target::spanish, "were these stories not old ?", "¿ no eran estas historias viejas ?",
             "0-2 1-3 2-4 3-1 4-5 5-0 5-6");
  be.tense = future;
  check_said(be, Target::spanish, "will these stories not be old ?", "¿ no serán estas historias viejas ?",
             "1-3 2-4 3-1 4-2 5-5 6-0 6-6", "0?2");
  be.negated = be.question = false;
  check_said(be, Target::french, "these stories will be old", "ces histoires seront vieilles", "0-0 1-1 3-2 4-3", "2?2");
}

TEST_CASE("phrases: clauses") {
  const Phrase sees{
      .subject = np(the, false, {}, "dog"), .verb = &verb("see"), .object = np(a, false, {}, "house"), .tense = future, .negated = true};
  const Phrase old{.subject = np(the, false, {}, "house"), .predicate = &adjective("old"), .question = true};
  const auto check = [&](Target target, Conjunction conjunction, const char* english, const char* foreign, const char* sure,
                         const char* possible) {
    const TaskPair pair = join(say(sees, target), conjunction, say(old, target), target);
    CHECK(pair.source == english);
    CHECK(pair.target == foreign);
    CHECK(to_string(pair.alignment.sure) == sure);
    CHECK(to_string(pair.alignment.possible, '?') == possible);
  };
  check(Target::french, Conjunction::conjoined, "the dog will not see a house and is the house old ?",
        "le chien ne verra pas de maison et est-ce que la maison est vieille ?",
        "0-0 1-1 3-2 3-4 4-3 5-5 6-6 7-7 8-12 9-10 10-11 11-13 12-14", "2?3 8?8 8?9");
  check(Target::spanish, Conjunction::opposed, "the dog will not see a house but is the house old ?",
        "el perro no verá una casa pero ¿ es la casa vieja ?", "0-0 1-1 3-2 4-3 5-4 6-5 7-6 8-8 9-9 10-10 11-11 12-7 12-12", "2?3");

  TaskOptions options{.train = 600, .dev = 100, .test = 100};
  options.clauses = 4;
  const Task task = make_task("phrases", options);
  std::map<Index, Index> sentences;                                   // by number of clauses
  for (const TaskPart& part : task.parts)
    for (const TaskPair& pair : part.pairs) {
      const std::vector<std::string> words = split_words(pair.source), foreign = split_words(pair.target);
      Index clauses = 1;
      for (const Link& link : pair.alignment.sure)
        if (is_one_of(words[std::size_t(link.source)], {"and", "but"})) {
          CHECK(foreign[std::size_t(link.target)] == (words[std::size_t(link.source)] == "and" ? "et" : "mais"));
          ++clauses;
        }
      ++sentences[clauses];
      CHECK(clauses == 1 + std::ranges::count_if(words, [](const std::string& word) { return word == "and" || word == "but"; }));
      const auto mark = std::ranges::find(words, "?");
      CHECK((mark == words.end() || mark + 1 == words.end()));
    }
  for (Index clauses = 1; clauses <= 4; ++clauses) CHECK(sentences[clauses] > 150);
  CHECK(sentences.size() == 4);
  options.clauses = 0;
  CHECK_THROWS_WITH_AS(make_task("phrases", options), "phrases: --clauses 0 is not in 1 .. 100", Error);
}

TEST_CASE("phrases: forms before a vowel, des and de, agreement") {
  const auto french = [](const NounPhrase& x) { return say({x}, Target::french).target; };
  const auto spanish = [](const NounPhrase& x) { return say({x}, Target::spanish).target; };
  CHECK(french(np(the, false, {}, "man")) == "l' homme");
  CHECK(french(np(the, false, {}, "hero")) == "le héros");  // h aspiré
  CHECK(french(np(this_one, false, {}, "owl")) == "ce hibou");
  CHECK(french(np(this_one, false, {}, "hotel")) == "cet hôtel");
  CHECK(french(np(this_one, false, {"good"}, "hotel")) == "ce bon hôtel");
  CHECK(french(np(this_one, false, {}, "school")) == "cette école");
  CHECK(french(np(a, false, {"beautiful"}, "tree")) == "un bel arbre");
  CHECK(french(np(a, false, {"beautiful"}, "hero")) == "un beau héros");
  CHECK(french(np(a, false, {"beautiful", "old"}, "tree")) == "un beau vieil arbre");
  CHECK(french(np(a, false, {"new"}, "friend")) == "un nouvel ami");
  CHECK(french(np(a, false, {"old"}, "bird")) == "un vieil oiseau");
  CHECK(french(np(some, true, {"old"}, "bird")) == "de vieux oiseaux");
  CHECK(french(np(some, true, {"black"}, "bird")) == "des oiseaux noirs");
  CHECK(french(np(some, true, {"big", "black"}, "horse")) == "de grands chevaux noirs");
  CHECK(french(np(some, true, {}, "teacher", "history")) == "des professeurs d' histoire");
  CHECK(french(np(the, true, {"long", "white"}, "flower")) == "les longues fleurs blanches");
  CHECK(french(np(the, false, {"interesting", "spanish"}, "island")) == "l' île espagnole intéressante");
  CHECK(spanish(np(some, true, {"happy", "young"}, "woman")) == "unas mujeres jóvenes felices");
  CHECK(spanish(np(these, true, {"blue", "french"}, "clock")) == "estos relojes franceses azules");
  CHECK(spanish(np(this_one, false, {"useful"}, "song")) == "esta canción útil");
  CHECK(spanish(np(the, false, {"big"}, "problem")) == "el problema grande");
  CHECK(say({np(a, false, {}, "orange")}, Target::french).source == "an orange");
  CHECK(say({np(a, false, {"european"}, "engineer")}, Target::french).source == "a european engineer");
  CHECK(say({np(a, false, {"useful"}, "idea")}, Target::french).source == "a useful idea");
  CHECK(say({np(a, false, {}, "door", "office")}, Target::french).source == "an office door");
  Phrase p{.subject = np(a, false, {}, "actress"),
           .verb = &verb("open"),
           .object = np(a, false, {"beautiful"}, "box"),
           .negated = true,
           .question = true};
  CHECK(say(p, Target::french).target == "est-ce qu' une actrice n' ouvre pas de belle boîte ?");
  p.object = np(a, false, {"strange"}, "story");
  CHECK(say(p, Target::french).target == "est-ce qu' une actrice n' ouvre pas d' histoire étrange ?");
}

TEST_CASE("phrases: the lexicon") {
  std::set<std::string_view> english;  // a word has one meaning, so a source has one translation
  const auto add = [&](std::string_view word) { CHECK_MESSAGE(english.insert(word).second, std::string(word)); };
  const auto spelled_with_vowel = [](std::string_view word) {
    for (const char* letter : {"a", "e", "i", "o", "u", "é", "ê", "î", "œ"}) {
      if (word.starts_with(letter)) return true;
    }
    return false;
  };
  for (const Noun& noun : nouns()) {
    INFO(std::string(noun.english));
    add(noun.english);
    if (noun.french.singular[0] != 'h') CHECK(noun.french.vowel == spelled_with_vowel(noun.french.singular));
    if (noun.kinds == kOnlyModifier) continue;
    add(noun.english_plural);
    CHECK(!noun.french.plural.empty());
    CHECK(!noun.spanish.plural.empty());
    std::set<int> ranks;  // two in front and a third as a predicate
    for (const Adjective& adjective : adjectives()) {
      if (adjective.kinds & noun.kinds) ranks.insert(adjective.rank);
    }
    CHECK(ranks.size() >= 3);
  }
  for (const Adjective& adjective : adjectives()) {
    INFO(std::string(adjective.english));
    add(adjective.english);
    if (adjective.french.masculine[0] != 'h') CHECK(adjective.french.vowel == spelled_with_vowel(adjective.french.masculine));
    for (const std::string_view form :
         {adjective.french.masculine, adjective.french.feminine, adjective.french.masculine_plural,
          adjective.french.feminine_plural, adjective.spanish.masculine, adjective.spanish.feminine,
          adjective.spanish.masculine_plural, adjective.spanish.feminine_plural}) {
      CHECK(!form.empty());
    }
  }
  for (const Verb& verb : verbs()) {
    INFO(std::string(verb.english));
    for (const std::string_view form : {verb.english, verb.singular, verb.past}) add(form);
    for (const std::string_view form :
         {verb.french.singular, verb.french.plural, verb.french.participle, verb.french.future, verb.french.future_plural,
          verb.spanish.singular, verb.spanish.plural, verb.spanish.past, verb.spanish.past_plural, verb.spanish.future,
          verb.spanish.future_plural}) {
      CHECK(!form.empty());
    }
  }
  for (const Compound& compound : compounds()) {
    CHECK(noun(compound.head).kinds != kOnlyModifier);
    CHECK(noun(compound.modifier).english == compound.modifier);
  }
  CHECK_THROWS_WITH_AS(noun("unicorn"), "phrases: no noun \"unicorn\" in the lexicon", Error);
}

TEST_CASE("phrases: pairs held out are in test-pairs only") {
  for (const char* to : {"fr", "es"}) {
    const Task task = make_task("phrases", {.train = 5000, .dev = 300, .test = 300, .to = to});
    // adjectives run up to their noun; a predicate follows a form of be, its subject is the noun before that or, in a question,
    // the last one
    const auto held_out_pairs = [&](const std::string& source) {
      Index held_out = 0;
      std::vector<const Adjective*> run;
      const Noun* last = nullptr;
      for (const std::string& word : split_words(source + " .")) {
        const auto is_noun = [&](const Noun& x) {
          return x.english == word || (!x.english_plural.empty() && x.english_plural == word);
        };
        const auto found = std::find_if(nouns().begin(), nouns().end(), is_noun);
        const auto found_adjective =
            std::find_if(adjectives().begin(), adjectives().end(), [&](const Adjective& x) { return x.english == word; });
        if (found_adjective != adjectives().end()) run.push_back(&*found_adjective);
        else if (found != nouns().end()) {
          for (const Adjective* adjective : run) held_out += is_held_out(task.options.seed, *adjective, *found);
          run.clear();
          last = &*found;
        } else if (word == "?" || word == ".") {
          for (const Adjective* adjective : run) held_out += last && is_held_out(task.options.seed, *adjective, *last);
          run.clear();
        }
      }
      return held_out;
    };
    for (const TaskPart& part : task.parts) {
      for (const TaskPair& pair : part.pairs) {
        INFO(pair.source);
        CHECK((held_out_pairs(pair.source) > 0) == (part.name == "test-pairs"));
      }
    }
  }
}
