// SPDX-License-Identifier: Apache-2.0
// S  -> NP V NP | NP V | NP BE ADJ | NP (one line in ten)      three tenses, negated or not, as a question or not
// NP -> DET (ADJ (ADJ)) NOUN | DET NOUN-NOUN                   DET in the, a, some, this, these; `some` never in a negated object
// Sentences of several clauses: S and S but S, of which only the last may be a question and none is an NP alone.
#include "examples/tasks/phrases.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tensor/format.h"

namespace heed {
namespace {

// ---- English: words in order, and where each part of the tree stands ----

struct Place {
  Index determiner = -1, modifier = -1, noun = -1;
  std::vector<Index> adjectives;
};

struct English {
  std::vector<std::string> words;
  Place subject, object;
  Index auxiliary = -1, negation = -1, verb = -1, predicate = -1, mark = -1;  // verb: of BE sentences the form of be
  bool question_auxiliary = false;                                            // the auxiliary is does or do, in front

  Index add(std::string_view word) {
    words.emplace_back(word);
    return Index(words.size()) - 1;
  }
};

// a or an: by sound, so "a european", "a useful"
bool sounds_like_vowel(std::string_view word) {
  return std::string_view("aeiou").find(word.front()) != word.npos && !word.starts_with("eu") && !word.starts_with("us");
}

Place add_english(English& out, const NounPhrase& np) {
  Place place;
  const std::string_view noun = np.plural ? np.noun->english_plural : np.noun->english;
  const std::string_view first = !np.adjectives.empty() ? np.adjectives[0]->english : np.modifier ? np.modifier->english : noun;
  switch (np.determiner) {
    case Determiner::the:
      place.determiner = out.add("the");
      break;
    case Determiner::a:
      place.determiner = out.add(sounds_like_vowel(first) ? "an" : "a");
      break;
    case Determiner::some:
      place.determiner = out.add("some");
      break;
    case Determiner::this_one:
      place.determiner = out.add("this");
      break;
    case Determiner::these:
      place.determiner = out.add("these");
      break;
  }
  for (const Adjective* adjective : np.adjectives) place.adjectives.push_back(out.add(adjective->english));
  if (np.modifier) place.modifier = out.add(np.modifier->english);
  place.noun = out.add(noun);
  return place;
}

English say_english(const Phrase& phrase) {
  English out;
  if (!phrase.verb && !phrase.predicate) {
    out.subject = add_english(out, phrase.subject);
    return out;
  }
  const bool plural = phrase.subject.plural, future = phrase.tense == Tense::future, past = phrase.tense == Tense::past;
  const std::string_view be = past ? (plural ? "were" : "was") : plural ? "are" : "is";
  const bool with_do = phrase.verb && !future && (phrase.negated || phrase.question);
  const std::string_view auxiliary = future ? "will" : with_do ? (past ? "did" : plural ? "do" : "does") : "";
  // what a question moves in front: the auxiliary, or a form of be
  const auto add_front = [&] {
    if (!auxiliary.empty()) out.auxiliary = out.add(auxiliary);
    else if (phrase.predicate) out.verb = out.add(be);
  };
  if (phrase.question) add_front();
  out.subject = add_english(out, phrase.subject);
  if (!phrase.question) add_front();
  if (phrase.negated) out.negation = out.add("not");
  if (phrase.verb) {
    const Verb& verb = *phrase.verb;
    out.verb = out.add(!auxiliary.empty() ? verb.english : past ? verb.past : plural ? verb.english : verb.singular);
    if (phrase.object) out.object = add_english(out, *phrase.object);
  } else {
    if (future) out.verb = out.add("be");
    out.predicate = out.add(phrase.predicate->english);
  }
  if (phrase.question) out.mark = out.add("?");
  out.question_auxiliary = phrase.question && with_do && !past;
  return out;
}

// ---- the other language: words that know their source words ----

struct Word {
  std::string_view text, before_vowel;  // before_vowel: empty where it is the same
  bool vowel = false;                   // begins with a vowel or mute h
  std::vector<Index> sure, possible;    // source words; -1 for one that is not there
};
using Words = std::vector<Word>;

template <class Forms>
std::string_view agree(const Forms& forms, Gender gender, bool plural) {
  if (gender == Gender::masculine) return plural ? forms.masculine_plural : forms.masculine;
  return plural ? forms.feminine_plural : forms.feminine;
}

bool begins_with_vowel(std::string_view word) {
  return std::string_view("aeiou").find(word.front()) != word.npos || word.starts_with("é") || word.starts_with("ê");
}

// ---- French ----

Word french_adjective(const Adjective& adjective, Gender gender, bool plural, Index source) {
  Word word{agree(adjective.french, gender, plural), {}, adjective.french.vowel, {source}, {}};
  if (gender == Gender::masculine && !plural) word.before_vowel = adjective.french.before_vowel;
  return word;
}

// `negated`: as the object of a negated verb, where un and une become de.
void add_french(Words& out, const NounPhrase& np, const Place& place, bool negated) {
  const auto& noun = np.noun->french;
  const bool feminine = noun.gender == Gender::feminine;
  const bool adjective_first =
      std::any_of(np.adjectives.begin(), np.adjectives.end(), [](const Adjective* a) { return a->before; });
  const std::vector<Index> source{place.determiner};
  switch (np.determiner) {
    case Determiner::the:
      if (np.plural) out.push_back({"les", {}, false, source, {}});
      else out.push_back({feminine ? "la" : "le", "l'", false, source, {}});
      break;
    case Determiner::a:
      if (negated) out.push_back({"de", "d'", false, source, {}});
      else out.push_back({feminine ? "une" : "un", {}, true, source, {}});
      break;
    case Determiner::some:
      if (adjective_first) out.push_back({"de", "d'", false, source, {}});
      else out.push_back({"des", {}, false, source, {}});
      break;
    case Determiner::this_one:
      out.push_back({feminine ? "cette" : "ce", feminine ? "" : "cet", false, source, {}});
      break;
    case Determiner::these:
      out.push_back({"ces", {}, false, source, {}});
      break;
  }
  for (std::size_t i = 0; i < np.adjectives.size(); ++i) {
    if (np.adjectives[i]->before)
      out.push_back(french_adjective(*np.adjectives[i], noun.gender, np.plural, place.adjectives[i]));
  }
  out.push_back({np.plural ? noun.plural : noun.singular, {}, noun.vowel, {place.noun}, {}});
  if (np.modifier) {
    out.push_back({"de", "d'", false, {}, {place.modifier}});
    out.push_back({np.modifier->french.singular, {}, np.modifier->french.vowel, {place.modifier}, {}});
  }
  for (std::size_t i = np.adjectives.size(); i-- > 0;) {
    if (!np.adjectives[i]->before)
      out.push_back(french_adjective(*np.adjectives[i], noun.gender, np.plural, place.adjectives[i]));
  }
}

Words say_french(const Phrase& phrase, const English& english) {
  Words out;
  const bool plural = phrase.subject.plural, past = phrase.tense == Tense::past, future = phrase.tense == Tense::future;
  if (phrase.question) {
    // does and do say no more than that this is a question; other words moved in front say something else as well
    const Index front = english.auxiliary >= 0 ? english.auxiliary : english.verb;
    const std::vector<Index> sure{english.question_auxiliary ? front : -1}, possible{english.question_auxiliary ? -1 : front};
    out.push_back({"est-ce", {}, true, sure, possible});
    out.push_back({"que", "qu'", false, sure, possible});
  }
  add_french(out, phrase.subject, english.subject, false);
  if (phrase.verb || phrase.predicate) {
    const bool compound = phrase.verb && past;  // avoir + participle, around which the negation stands
    std::string_view text;
    if (compound) text = plural ? "ont" : "a";
    else if (phrase.verb) {
      const auto& verb = phrase.verb->french;
      text = future ? (plural ? verb.future_plural : verb.future) : plural ? verb.plural : verb.singular;
    } else text = future ? (plural ? "seront" : "sera") : past ? (plural ? "étaient" : "était") : plural ? "sont" : "est";
    Word verb{text, {}, begins_with_vowel(text), {english.verb}, {english.auxiliary}};
    if (compound && english.auxiliary >= 0) verb.sure = {english.auxiliary}, verb.possible = {};  // did see: a vu
    if (phrase.negated) out.push_back({"ne", "n'", false, {english.negation}, {}});
    out.push_back(std::move(verb));
    if (phrase.negated) out.push_back({"pas", {}, false, {english.negation}, {}});
    if (compound) out.push_back({phrase.verb->french.participle, {}, false, {english.verb}, {}});
  }
  if (phrase.object) add_french(out, *phrase.object, english.object, phrase.negated);
  if (phrase.predicate)
    out.push_back(french_adjective(*phrase.predicate, phrase.subject.noun->french.gender, plural, english.predicate));
  if (phrase.question) out.push_back({"?", {}, false, {english.mark}, {}});
  return out;
}

// ---- Spanish ----

void add_spanish(Words& out, const NounPhrase& np, const Place& place) {
  const auto& noun = np.noun->spanish;
  struct Forms {
    std::string_view masculine, feminine, masculine_plural, feminine_plural;
  };
  Forms determiner;
  switch (np.determiner) {
    case Determiner::the:
      determiner = {"el", "la", "los", "las"};
      break;
    case Determiner::a:
    case Determiner::some:
      determiner = {"un", "una", "unos", "unas"};
      break;
    case Determiner::this_one:
    case Determiner::these:
      determiner = {"este", "esta", "estos", "estas"};
      break;
  }
  out.push_back({agree(determiner, noun.gender, np.plural), {}, false, {place.determiner}, {}});
  out.push_back({np.plural ? noun.plural : noun.singular, {}, false, {place.noun}, {}});
  if (np.modifier) {
    out.push_back({"de", {}, false, {}, {place.modifier}});
    out.push_back({np.modifier->spanish.singular, {}, false, {place.modifier}, {}});
  }
  for (std::size_t i = np.adjectives.size(); i-- > 0;) {
    out.push_back({agree(np.adjectives[i]->spanish, noun.gender, np.plural), {}, false, {place.adjectives[i]}, {}});
  }
}

Words say_spanish(const Phrase& phrase, const English& english) {
  Words out;
  const bool plural = phrase.subject.plural, past = phrase.tense == Tense::past, future = phrase.tense == Tense::future;
  if (phrase.question) out.push_back({"¿", {}, false, {english.mark}, {}});
  else add_spanish(out, phrase.subject, english.subject);
  if (phrase.verb || phrase.predicate) {
    std::string_view text;
    if (phrase.verb) {
      const auto& verb = phrase.verb->spanish;
      text = future ? (plural ? verb.future_plural : verb.future)
             : past ? (plural ? verb.past_plural : verb.past)
                    : (plural ? verb.plural : verb.singular);
    } else text = future ? (plural ? "serán" : "será") : past ? (plural ? "eran" : "era") : plural ? "son" : "es";
    if (phrase.negated) out.push_back({"no", {}, false, {english.negation}, {}});
    out.push_back({text, {}, false, {english.verb}, {english.auxiliary}});
  }
  if (phrase.question) add_spanish(out, phrase.subject, english.subject);
  if (phrase.object) add_spanish(out, *phrase.object, english.object);
  if (phrase.predicate) {
    out.push_back(
        {agree(phrase.predicate->spanish, phrase.subject.noun->spanish.gender, plural), {}, false, {english.predicate}, {}});
  }
  if (phrase.question) out.push_back({"?", {}, false, {english.mark}, {}});
  return out;
}

// ---- drawing phrases ----

template <class T>
const T& pick(Random& random, const std::vector<const T*>& from) {
  return *from[std::size_t(random.below(Index(from.size())))];
}

// All words with `test`.
template <class T, class Test>
std::vector<const T*> those(std::span<const T> words, Test test) {
  std::vector<const T*> found;
  for (const T& word : words) {
    if (test(word)) found.push_back(&word);
  }
  return found;
}

std::vector<const Noun*> nouns_of(unsigned kinds) {
  return those(nouns(), [&](const Noun& noun) { return (noun.kinds & kinds) != 0; });
}
std::vector<const Adjective*> adjectives_of(const Noun& noun) {
  return those(adjectives(), [&](const Adjective& adjective) { return (adjective.kinds & noun.kinds) != 0; });
}

NounPhrase draw_noun_phrase(Random& random, unsigned kinds, bool negated_object) {
  NounPhrase np;
  // the 35 %, a 25 %, some 12 %, this 14 %, these 14 %
  Index determiner = random.below(100);
  while (negated_object && determiner >= 60 && determiner < 72) determiner = random.below(100);
  np.determiner = determiner < 35   ? Determiner::the
                  : determiner < 60 ? Determiner::a
                  : determiner < 72 ? Determiner::some
                  : determiner < 86 ? Determiner::this_one
                                    : Determiner::these;
  np.plural = np.determiner == Determiner::some || np.determiner == Determiner::these ||
              (np.determiner == Determiner::the && random.below(5) < 2);
  // one adjective 35 %, two 25 %, a compound 15 % where the kinds have one
  const Index shape = random.below(100);
  if (shape < 15) {
    const auto fitting = those(compounds(), [&](const Compound& compound) { return (noun(compound.head).kinds & kinds) != 0; });
    if (!fitting.empty()) {
      const Compound& compound = pick(random, fitting);
      np.noun = &noun(compound.head);
      np.modifier = &noun(compound.modifier);
      return np;
    }
  }
  np.noun = &pick(random, nouns_of(kinds));
  const auto fitting = adjectives_of(*np.noun);
  if (shape >= 15 && shape < 75) np.adjectives.push_back(&pick(random, fitting));
  if (shape >= 50 && shape < 75) {
    const Adjective& other = pick(random, fitting);
    const Adjective& first = *np.adjectives.front();
    if (other.rank != first.rank) np.adjectives.insert(np.adjectives.begin() + (other.rank > first.rank), &other);
  }
  return np;
}

Phrase draw_phrase(Random& random) {
  constexpr unsigned kAll = ~unsigned{kOnlyModifier};
  static const auto transitive = those(verbs(), [](const Verb& verb) { return verb.objects != 0; });
  static const auto intransitive = those(verbs(), [](const Verb& verb) { return verb.objects == 0; });
  Phrase phrase;
  // noun phrase 10 %, NP V NP 50 %, NP V 12 %, NP BE ADJ 28 %
  const Index shape = random.below(100);
  if (shape < 10) {
    phrase.subject = draw_noun_phrase(random, kAll, false);
    return phrase;
  }
  phrase.tense = Tense(random.below(3));
  phrase.negated = random.below(3) == 0;
  phrase.question = random.below(3) == 0;
  if (shape < 72) {
    phrase.verb = &pick(random, shape < 60 ? transitive : intransitive);
    phrase.subject = draw_noun_phrase(random, phrase.verb->subjects, false);
    if (phrase.verb->objects) phrase.object = draw_noun_phrase(random, phrase.verb->objects, phrase.negated);
  } else {
    phrase.subject = draw_noun_phrase(random, kAll, false);
    // no "the blue flower is red": the predicate is of another class than the adjectives in front
    const auto fitting = adjectives_of(*phrase.subject.noun);
    const auto clashes = [&](const Adjective* adjective) { return adjective->rank == phrase.predicate->rank; };
    const auto& used = phrase.subject.adjectives;
    do phrase.predicate = &pick(random, fitting);
    while (std::any_of(used.begin(), used.end(), clashes));
  }
  return phrase;
}

bool has_held_out_pair(std::uint64_t seed, const Phrase& phrase) {
  const auto in = [&](const NounPhrase& np) {
    return std::any_of(np.adjectives.begin(), np.adjectives.end(),
                       [&](const Adjective* a) { return is_held_out(seed, *a, *np.noun); });
  };
  return in(phrase.subject) || (phrase.object && in(*phrase.object)) ||
         (phrase.predicate && is_held_out(seed, *phrase.predicate, *phrase.subject.noun));
}

}  // namespace

TaskPair say(const Phrase& phrase, Target target) {
  const English english = say_english(phrase);
  const Words words = target == Target::french ? say_french(phrase, english) : say_spanish(phrase, english);
  TaskPair pair{join_words(english.words), {}, {}};
  for (std::size_t j = 0; j < words.size(); ++j) {
    const Word& word = words[j];
    const bool before_vowel = j + 1 < words.size() && words[j + 1].vowel && !word.before_vowel.empty();
    pair.target.append(j > 0 ? " " : "").append(before_vowel ? word.before_vowel : word.text);
    for (const Index i : word.sure) {
      if (i >= 0) pair.alignment.sure.push_back({i, Index(j)});
    }
    for (const Index i : word.possible) {
      if (i >= 0) pair.alignment.possible.push_back({i, Index(j)});
    }
  }
  std::sort(pair.alignment.sure.begin(), pair.alignment.sure.end());
  std::sort(pair.alignment.possible.begin(), pair.alignment.possible.end());
  return pair;
}

TaskPair join(const TaskPair& first, Conjunction conjunction, const TaskPair& second, Target target) {
  constexpr std::string_view words[][3] = {{"and", "et", "y"}, {"but", "mais", "pero"}};   // Spanish y stays y: no clause begins with an i
  const auto& said = words[std::size_t(conjunction)];
  const Index i = Index(split_words(first.source).size()), j = Index(split_words(first.target).size());
  TaskPair pair{fmt::format("{} {} {}", first.source, said[0], second.source),
                fmt::format("{} {} {}", first.target, said[target == Target::french ? 1 : 2], second.target), first.alignment};
  pair.alignment.sure.push_back({i, j});
  for (const Link link : second.alignment.sure) pair.alignment.sure.push_back({i + 1 + link.source, j + 1 + link.target});
  for (const Link link : second.alignment.possible) pair.alignment.possible.push_back({i + 1 + link.source, j + 1 + link.target});
  return pair;
}

bool is_held_out(std::uint64_t seed, const Adjective& adjective, const Noun& noun) {
  // the pairs of sentences that help texts and tests show stay in
  constexpr std::pair<std::string_view, std::string_view> kept[] = {
      {"beautiful", "dog"}, {"big", "house"}, {"black", "house"}, {"european", "area"}, {"economic", "area"}};
  if (std::find(std::begin(kept), std::end(kept), std::pair(adjective.english, noun.english)) != std::end(kept)) return false;
  return Random(Key(Seed{seed}) / "held out" / adjective.english / noun.english).below(12) == 0;
}

std::vector<TaskPair> make_phrases(TaskOptions& options, Random random, Index count, bool held_out) {
  if (options.from.empty()) options.from = "en";
  if (options.to.empty()) options.to = "fr";
  check<Error>(options.from == "en" && is_one_of(options.to, {"fr", "es"}),
               "phrases: --from must be en and --to fr or es: from \"{}\", to \"{}\"", options.from, options.to);
  const Target target = options.to == "fr" ? Target::french : Target::spanish;
  std::unordered_set<std::string> seen;
  std::vector<TaskPair> pairs;
  while (Index(pairs.size()) < count) {
    const Index clauses = options.clauses > 1 ? 1 + random.below(options.clauses) : 1;
    TaskPair pair;
    bool any_held_out = false;
    for (Index said = 0; said < clauses;) {
      const Phrase phrase = draw_phrase(random);
      const bool held = has_held_out_pair(options.seed, phrase), clause = phrase.verb || phrase.predicate;
      if ((held && !held_out) || (clauses > 1 && (!clause || (phrase.question && said + 1 < clauses)))) continue;
      any_held_out |= held;
      pair = said == 0 ? say(phrase, target) : join(pair, Conjunction(random.below(2)), say(phrase, target), target);
      ++said;
    }
    if (any_held_out != held_out) continue;
    if (seen.insert(pair.source).second) pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace heed
