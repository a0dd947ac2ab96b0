// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/tasks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/tasks/numbers.h"
#include "examples/tasks/phrases.h"
#include "tensor/error.h"
#include "tensor/file.h"
#include "tests/temporary_folder.h"

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

std::string spoken(const char* language, Index number, bool spoken_and = false) {
  return join_words(say_number(language, number, spoken_and).words);
}
std::string links(const char* language, Index number) {
  const SpokenNumber said = say_number(language, number);
  return to_string(said.alignment.sure) + (said.alignment.possible.empty() ? "" : " / ") +
         to_string(said.alignment.possible, '?');
}

Index characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

const std::vector<TaskPair>& part(const Task& task, std::string_view name) {
  return std::find_if(task.parts.begin(), task.parts.end(), [&](const TaskPart& part) { return part.name == name; })->pairs;
}

// Fowler-Noll-Vo 1a
std::uint64_t hash(const Task& task) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const TaskPart& part : task.parts) {
    for (const char c : to_tsv(part)) h = (h ^ std::uint8_t(c)) * 0x100000001b3u;
  }
  return h;
}

TaskOptions small(const char* from = "", const char* to = "") {
  return {.train = 600, .dev = 100, .test = 100, .from = from, .to = to};
}

}  // namespace

TEST_CASE("phrases: the table of the definitions") {
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
  const Phrase sees{.subject = np(the, false, {}, "dog"), .verb = &verb("see"), .object = np(a, false, {}, "house"), .tense = future, .negated = true};
  const Phrase old{.subject = np(the, false, {}, "house"), .predicate = &adjective("old"), .question = true};
  const auto check = [&](Target target, Conjunction conjunction, const char* english, const char* foreign, const char* sure, const char* possible) {
    const TaskPair pair = join(say(sees, target), conjunction, say(old, target), target);
    CHECK(pair.source == english);
    CHECK(pair.target == foreign);
    CHECK(to_string(pair.alignment.sure) == sure);
    CHECK(to_string(pair.alignment.possible, '?') == possible);
  };
  check(Target::french, Conjunction::conjoined, "the dog will not see a house and is the house old ?", "le chien ne verra pas de maison et est-ce que la maison est vieille ?",
        "0-0 1-1 3-2 3-4 4-3 5-5 6-6 7-7 8-12 9-10 10-11 11-13 12-14", "2?3 8?8 8?9");
  check(Target::spanish, Conjunction::opposed, "the dog will not see a house but is the house old ?", "el perro no verá una casa pero ¿ es la casa vieja ?",
        "0-0 1-1 3-2 4-3 5-4 6-5 7-6 8-8 9-9 10-10 11-11 12-7 12-12", "2?3");

  TaskOptions options = small();
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

TEST_CASE("numbers in words") {
  const std::pair<Index, const char*> english[] = {{0, "zero"},
                                                   {7, "seven"},
                                                   {10, "ten"},
                                                   {12, "twelve"},
                                                   {17, "seventeen"},
                                                   {20, "twenty"},
                                                   {21, "twenty one"},
                                                   {100, "one hundred"},
                                                   {205, "two hundred five"},
                                                   {2005, "two thousand five"},
                                                   {1000, "one thousand"},
                                                   {45040, "forty five thousand forty"},
                                                   {999999, "nine hundred ninety nine thousand nine hundred ninety nine"}};
  for (const auto& [number, words] : english) CHECK(spoken("en", number) == words);
  CHECK(spoken("en", 205, true) == "two hundred and five");
  CHECK(spoken("en", 2005, true) == "two thousand and five");
  CHECK(spoken("en", 20, true) == "twenty");
  CHECK(spoken("en", 205100, true) == "two hundred and five thousand one hundred");
  const std::pair<Index, const char*> french[] = {{0, "zéro"},
                                                  {16, "seize"},
                                                  {17, "dix sept"},
                                                  {19, "dix neuf"},
                                                  {20, "vingt"},
                                                  {21, "vingt et un"},
                                                  {22, "vingt deux"},
                                                  {61, "soixante et un"},
                                                  {70, "soixante dix"},
                                                  {71, "soixante et onze"},
                                                  {72, "soixante douze"},
                                                  {77, "soixante dix sept"},
                                                  {80, "quatre vingts"},
                                                  {81, "quatre vingt un"},
                                                  {90, "quatre vingt dix"},
                                                  {91, "quatre vingt onze"},
                                                  {99, "quatre vingt dix neuf"},
                                                  {100, "cent"},
                                                  {101, "cent un"},
                                                  {180, "cent quatre vingts"},
                                                  {200, "deux cents"},
                                                  {201, "deux cent un"},
                                                  {1000, "mille"},
                                                  {1001, "mille un"},
                                                  {2000, "deux mille"},
                                                  {21000, "vingt et un mille"},
                                                  {80000, "quatre vingt mille"},
                                                  {200000, "deux cent mille"},
                                                  {280080, "deux cent quatre vingt mille quatre vingts"},
                                                  {100100, "cent mille cent"},
                                                  {1200, "mille deux cents"}};
  for (const auto& [number, words] : french) CHECK(spoken("fr", number) == words);
  const std::pair<Index, const char*> spanish[] = {{0, "cero"},
                                                   {1, "uno"},
                                                   {16, "dieciséis"},
                                                   {21, "veintiuno"},
                                                   {22, "veintidós"},
                                                   {30, "treinta"},
                                                   {31, "treinta y uno"},
                                                   {100, "cien"},
                                                   {101, "ciento uno"},
                                                   {500, "quinientos"},
                                                   {700, "setecientos"},
                                                   {900, "novecientos"},
                                                   {1000, "mil"},
                                                   {1001, "mil uno"},
                                                   {21000, "veintiún mil"},
                                                   {31000, "treinta y un mil"},
                                                   {100000, "cien mil"},
                                                   {101000, "ciento un mil"},
                                                   {121121, "ciento veintiún mil ciento veintiuno"},
                                                   {201000, "doscientos un mil"},
                                                   {100100, "cien mil cien"}};
  for (const auto& [number, words] : spanish) CHECK(spoken("es", number) == words);
  const std::pair<Index, const char*> german[] = {{0, "null"},
                                                  {1, "eins"},
                                                  {11, "elf"},
                                                  {16, "sechzehn"},
                                                  {17, "siebzehn"},
                                                  {21, "ein und zwanzig"},
                                                  {30, "dreißig"},
                                                  {76, "sechs und siebzig"},
                                                  {100, "ein hundert"},
                                                  {101, "ein hundert eins"},
                                                  {200, "zwei hundert"},
                                                  {1000, "ein tausend"},
                                                  {1001, "ein tausend eins"},
                                                  {21000, "ein und zwanzig tausend"},
                                                  {101000, "ein hundert ein tausend"},
                                                  {121021, "ein hundert ein und zwanzig tausend ein und zwanzig"}};
  for (const auto& [number, words] : german) CHECK(spoken("de", number) == words);
  CHECK_THROWS_WITH_AS(say_number("en", 1000000), "numbers: 1000000 is not in 0 .. 999999", Error);
  CHECK_THROWS_AS(say_number("it", 1), Error);
}

TEST_CASE("numbers: links") {
  CHECK(links("fr", 17) == "0-0 1-1");          // dix-sept
  CHECK(links("en", 17) == "0-0 0-1");          // seventeen: both digits
  CHECK(links("fr", 72) == "0-0 1-0 1-1");      // soixante-douze: 7 to both, 2 to douze
  CHECK(links("fr", 71) == "0-0 2-0 2-1");      // soixante et onze
  CHECK(links("fr", 98) == "0-0 1-0 2-0 3-1");  // quatre-vingt-dix-huit
  CHECK(links("fr", 80) == "0-0 1-0");
  CHECK(links("en", 0) == " / 0?0");  // a zero has no sure link
  CHECK(links("en", 10) == "0-0");
  CHECK(links("en", 205) == "0-0 2-2 / 1?0");  // two hundred five
  CHECK(links("fr", 100) == "0-0");            // nothing else says the 1: cent, mille, cien, ciento, mil
  CHECK(links("fr", 1100) == "0-0 1-1");
  CHECK(links("es", 100000) == "0-0 / 1?0");  // cien mil
  CHECK(links("es", 1101) == "0-0 1-1 2-3");
  CHECK(links("es", 555) == "0-0 1-1 3-2");  // quinientos cincuenta y cinco
  CHECK(links("es", 26) == "0-0 0-1");
  CHECK(links("de", 21) == "0-1 2-0");                                    // ein und zwanzig: the swap
  CHECK(links("de", 213045) == "0-0 2-1 2-2 4-5 6-4 / 1?0 3?0 3?1 3?2");  // zwei hundert dreizehn tausend fünf und vierzig
  for (const char* language : {"en", "fr", "es", "de"}) {
    std::set<std::string> seen;
    for (Index number = 0; number < 1000000; number += number < 12000 ? 1 : 997) {
      const SpokenNumber said = say_number(language, number);
      bool right = seen.insert(join_words(said.words)).second;  // no two numbers sound alike
      std::set<Index> linked;
      for (const Link& link : said.alignment.sure) linked.insert(link.target);
      const std::string digits = std::to_string(number);
      for (std::size_t i = 0; i < digits.size(); ++i) right &= linked.contains(Index(i)) == (digits[i] != '0');
      if (!right) FAIL_CHECK(language, " ", number, " ", join_words(said.words));
    }
  }
  const Task task = make_task("numbers", small("digits", "fr"));
  const TaskPair& pair = part(task, "train").front();
  CHECK(pair.source.find_first_not_of("0123456789 ") == std::string::npos);
  CHECK(pair.target.find_first_of("0123456789") == std::string::npos);
}

TEST_CASE("dates") {
  const Task task = make_task("dates", {.train = 4000});
  std::map<std::string, int> forms;
  for (const TaskPair& pair : part(task, "train")) {
    INFO(pair.source, " -> ", pair.target);
    std::string form = date_form(pair.source);
    ++forms[form];
    REQUIRE(pair.target.size() == 10);
    const int year = std::stoi(pair.target.substr(0, 4)), month = std::stoi(pair.target.substr(5, 2)),
              day = std::stoi(pair.target.substr(8, 2));
    CHECK((year >= 1900 && year <= 2099 && month >= 1 && month <= 12 && day >= 1 && day <= 31));
    if (form.starts_with("2/1/16")) {
      CHECK((year >= 1950 && year <= 2049));
      CHECK(pair.source == std::to_string(day) + "/" + std::to_string(month) + "/" + pair.target.substr(2, 2));
    }
    if (form.starts_with("2016-01-02")) CHECK(pair.source == pair.target);
    if (form.starts_with("02.01.2016"))
      CHECK(pair.source == pair.target.substr(8, 2) + "." + pair.target.substr(5, 2) + "." + pair.target.substr(0, 4));
    if (form.find("ambiguous") != form.npos) CHECK((day <= 12 && month <= 12));
    std::set<Index> linked;  // every digit of the target has a source
    for (const Link& link : pair.alignment.sure) {
      CHECK(link.source < characters(pair.source));
      linked.insert(link.target);
    }
    CHECK(linked == std::set<Index>{0, 1, 2, 3, 5, 6, 8, 9});
  }
  CHECK(forms.size() == 10);  // seven, three of them ambiguous at times
  for (const auto& [form, count] : forms) CHECK(count > 4000 / 7 / 10);
  CHECK(date_form("3 Februar 1999") == "2 January 2016");
  CHECK(date_form("3 MÄR 1999") == "2 Jan 2016");
  CHECK(date_form("déCembre 3, 1999") == "January 2, 2016");
  CHECK(date_form("Miércoles 3 febrero 1999") == "Saturday 2 January 2016");
  CHECK(date_form("03.12.1999") == "02.01.2016, ambiguous");
  CHECK(date_form("13/12/99") == "2/1/16");
  CHECK(date_form("1999-12-13") == "2016-01-02");
}

TEST_CASE("copy, reverse, sort") {
  for (const char* name : {"copy", "reverse", "sort"}) {
    const Task task = make_task(name, small());
    for (const TaskPart& part : task.parts) {
      for (const TaskPair& pair : part.pairs) {
        const auto x = split_words(pair.source), y = split_words(pair.target);
        const Index n = Index(x.size());
        CHECK((part.name == "test-long" ? n >= 26 && n <= 50 : n >= 1 && n <= 25));
        REQUIRE(y.size() == x.size());
        REQUIRE(pair.alignment.sure.size() == x.size());
        for (const Link& link : pair.alignment.sure) {
          CHECK(x[std::size_t(link.source)] == y[std::size_t(link.target)]);
          if (task.name == "copy") CHECK(link.source == link.target);
          if (task.name == "reverse") CHECK(link.source == n - 1 - link.target);
        }
        if (task.name != "sort") continue;
        std::vector<Index> from(x.size());
        for (const Link& link : pair.alignment.sure) from[std::size_t(link.target)] = link.source;
        for (std::size_t i = 1; i < y.size(); ++i) {
          CHECK(std::stoi(y[i - 1]) <= std::stoi(y[i]));
          if (y[i - 1] == y[i]) CHECK(from[i - 1] < from[i]);  // stable
        }
      }
    }
  }
  const Task binary = make_task("copy", {.train = 4, .dev = 1, .test = 1, .symbols = 2, .max_length = 2});  // all six there are
  CHECK(part(binary, "train").size() == 4);
  CHECK(part(make_task("copy", {.train = 2, .dev = 1, .test = 9, .symbols = 1, .max_length = 12}), "test-long").size() == 9);
}

TEST_CASE("tasks: every source once, links inside, splits of the sizes asked for") {
  for (const std::string_view name : task_names()) {
    const Task task = make_task(name, small());
    CHECK(task.parts.size() == (name == "numbers" || name == "dates" ? 3 : 4));
    std::set<std::string> seen;
    for (const TaskPart& part : task.parts) {
      CHECK(part.pairs.size() == (part.name == "train" ? 600 : 100));
      for (const TaskPair& pair : part.pairs) {
        CHECK_MESSAGE(seen.insert(pair.source).second, pair.source);
        const bool words = task.tokenizer == "space";
        const Index source = words ? Index(split_words(pair.source).size()) : characters(pair.source);
        const Index target = words ? Index(split_words(pair.target).size()) : characters(pair.target);
        for (const auto& links : {pair.alignment.sure, pair.alignment.possible}) {
          CHECK(std::is_sorted(links.begin(), links.end()));
          CHECK(std::all_of(links.begin(), links.end(), [&](const Link& link) {
            return link.source >= 0 && link.source < source && link.target >= 0 && link.target < target;
          }));
        }
      }
    }
  }
}

TEST_CASE("tasks: the same bytes on every machine") {
  const std::map<std::string_view, std::uint64_t> expected{{"copy", 11225238084981931674u},  {"reverse", 7525724175267912427u},
                                                           {"sort", 8213842538906808243u},   {"numbers", 17313895724063569946u},
                                                           {"dates", 15608808600377502550u}, {"phrases", 6525667956595377020u}};
  for (const std::string_view name : task_names()) {
    INFO(std::string(name));
    CHECK(hash(make_task(name, small())) == expected.at(name));
    TaskOptions other = small();
    other.seed = 2;
    CHECK(hash(make_task(name, other)) != expected.at(name));
  }
}

TEST_CASE("tasks: files") {
  const TemporaryFolder folder;
  const Task task = make_task("phrases", small("", "es"));
  const std::string directory = folder / "new/data";
  write_task(task, directory);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.insert(entry.path().filename());
  CHECK(files == std::set<std::string>{"train.tsv", "dev.tsv", "test.tsv", "test-pairs.tsv", "task.json"});
  CHECK(read_file(directory + "/dev.tsv") == to_tsv(task.parts[1]));
  CHECK(to_tsv({"x", {{"a b", "c", {{{0, 0}}, {}}}, {"d", "e", {{}, {{0, 0}}}}}}) == "a b\tc\t0-0\nd\te\t\t0?0\n");
  const auto about = nlohmann::json::parse(read_file(directory + "/task.json"));
  CHECK(about == nlohmann::json{{"task", "phrases"},
                                {"tokenizer", "space"},
                                {"train", 600},
                                {"dev", 100},
                                {"test", 100},
                                {"seed", 1},
                                {"from", "en"},
                                {"to", "es"}});
  CHECK_THROWS_AS(write_task(task, directory + "/dev.tsv"), FileError);
}

TEST_CASE("tasks: what cannot be made") {
  CHECK_THROWS_WITH_AS(make_task("translate"), "tasks: \"translate\" is none of copy, reverse, sort, numbers, dates, phrases",
                       Error);
  CHECK_THROWS_WITH_AS(
      make_task("copy", {.max_length = 1}),
      "copy: more distinct sources asked for than exist: train, dev and test 52000, existing 32 (32 symbols, lengths 1 to 1)",
      Error);
  CHECK_THROWS_WITH_AS(
      make_task("numbers", {.train = 999000}),
      "numbers: more distinct sources asked for than exist: train, dev and test 1001000, existing 1000000 (0 to 999999)",
      Error);
  CHECK_THROWS_WITH_AS(
      make_task("dates", {.train = 80000}),
      "dates: more distinct sources asked for than exist: train, dev and test 82000, existing 73049 (one a day, 1900-01-01 to "
      "2099-12-31)",
      Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.train = 0}), "sort: --train 0 is not in 1 .. 10000000", Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.symbols = -1}), "sort: --symbols -1 is not in 1 .. 1000000", Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.max_length = 0}), "sort: --max-length 0 is not in 1 .. 10000", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "en", .to = "fr"}),
                       "numbers: one of --from and --to must be digits: from en, to fr", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "digits", .to = "digits"}),
                       "numbers: one of --from and --to must be digits: from digits, to digits", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "it"}), "numbers: --from \"it\" is none of digits, en, fr, es, de", Error);
  CHECK_THROWS_WITH_AS(make_task("phrases", {.to = "de"}),
                       "phrases: --from must be en and --to fr or es: from \"en\", to \"de\"", Error);
  CHECK_THROWS_WITH_AS(make_task("dates", {.from = "en"}), "dates: has no languages: from \"en\", to \"\"", Error);
}
