// SPDX-License-Identifier: Apache-2.0
// Number words of four languages <-> digits, 0 .. 999,999.
#include "examples/tasks/numbers.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "tensor/format.h"

namespace heed {
namespace {

constexpr Index kNumbers = 1'000'000;

using Table = std::array<std::string_view, 10>;
constexpr std::array<std::string_view, 20> kEnglish{
    "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
    "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr Table kEnglishTens{"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};

constexpr std::array<std::string_view, 17> kFrench{"zéro",  "un",     "deux",     "trois",  "quatre", "cinq",
                                                   "six",   "sept",   "huit",     "neuf",   "dix",    "onze",
                                                   "douze", "treize", "quatorze", "quinze", "seize"};
constexpr Table kFrenchTens{"", "", "vingt", "trente", "quarante", "cinquante", "soixante", "soixante", "quatre", "quatre"};

constexpr std::array<std::string_view, 30> kSpanish{
    "cero",         "uno",         "dos",        "tres",        "cuatro",     "cinco",      "seis",      "siete",
    "ocho",         "nueve",       "diez",       "once",        "doce",       "trece",      "catorce",   "quince",
    "dieciséis",    "diecisiete",  "dieciocho",  "diecinueve",  "veinte",     "veintiuno",  "veintidós", "veintitrés",
    "veinticuatro", "veinticinco", "veintiséis", "veintisiete", "veintiocho", "veintinueve"};
constexpr Table kSpanishTens{"", "", "", "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"};
constexpr Table kSpanishHundreds{
    "",           "", "doscientos", "trescientos", "cuatrocientos", "quinientos", "seiscientos", "setecientos", "ochocientos",
    "novecientos"};

constexpr std::array<std::string_view, 20> kGerman{
    "null", "eins", "zwei",  "drei",     "vier",     "fünf",     "sechs",    "sieben",   "acht",     "neun",
    "zehn", "elf",  "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
constexpr Table kGermanTens{"", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};

// Words are linked to digits by decimal place, 0 being the units.
class Speaker {
 public:
  explicit Speaker(Index number) : digits_(fmt::format("{}", number)) {}

  // A word that states the digits at `places`, zeros among them left out.
  void say(std::string_view word, std::initializer_list<Index> places = {}) {
    for (const Index place : places) {
      if (digit(place) != '0') spoken_.alignment.sure.push_back({Index(spoken_.words.size()), position(place)});
    }
    spoken_.words.emplace_back(word);
  }
  // A word for 10ⁿ that scales the digits at first .. last.
  void scale(std::string_view word, Index first, Index last) {
    for (Index place = first; place <= last; ++place) {
      if (digit(place) != '0') spoken_.alignment.possible.push_back({Index(spoken_.words.size()), position(place)});
    }
    spoken_.words.emplace_back(word);
  }
  SpokenNumber zero(std::string_view word) && {
    spoken_.words.emplace_back(word);
    spoken_.alignment.possible.push_back({0, 0});
    return std::move(spoken_);
  }
  SpokenNumber spoken() && {
    std::sort(spoken_.alignment.sure.begin(), spoken_.alignment.sure.end());
    std::sort(spoken_.alignment.possible.begin(), spoken_.alignment.possible.end());
    return std::move(spoken_);
  }

 private:
  Index position(Index place) const { return Index(digits_.size()) - 1 - place; }
  char digit(Index place) const { return position(place) < 0 ? '0' : digits_[std::size_t(position(place))]; }
  std::string digits_;
  SpokenNumber spoken_;
};

// Each function below says r, 1 .. 999, whose units stand at decimal place `unit`: 0, or 3 for the thousands.

void say_english(Speaker& s, Index r, Index unit, bool spoken_and, bool first) {
  const Index hundreds = r / 100, rest = r % 100;
  if (hundreds > 0) {
    s.say(kEnglish[std::size_t(hundreds)], {unit + 2});
    s.scale("hundred", unit + 2, unit + 2);
  }
  if (spoken_and && rest > 0 && (hundreds > 0 || !first)) s.say("and");
  if (rest >= 20) {
    s.say(kEnglishTens[std::size_t(rest / 10)], {unit + 1});
    if (rest % 10 > 0) s.say(kEnglish[std::size_t(rest % 10)], {unit});
  } else if (rest > 0) {
    s.say(kEnglish[std::size_t(rest)], {unit + 1, unit});
  }
}

// `plural`: cent and vingt take an s when they are multiplied and end the number, which they do not before mille.
void say_french(Speaker& s, Index r, Index unit, bool plural) {
  const Index hundreds = r / 100, rest = r % 100, tens = rest / 10;
  if (hundreds == 1) s.say("cent", {unit + 2});
  if (hundreds > 1) {
    s.say(kFrench[std::size_t(hundreds)], {unit + 2});
    s.scale(plural && rest == 0 ? "cents" : "cent", unit + 2, unit + 2);
  }
  Index small = rest;  // 1 .. 19 to be said last
  if (tens >= 2) {
    s.say(kFrenchTens[std::size_t(tens)], {unit + 1});
    if (tens >= 8) s.say(plural && rest == 80 ? "vingts" : "vingt", {unit + 1});
    small = tens == 7 || tens == 9 ? 10 + rest % 10 : rest % 10;
    if (tens < 8 && rest % 10 == 1) s.say("et");
  }
  if (small > 16) {
    s.say("dix", {unit + 1});
    s.say(kFrench[std::size_t(small - 10)], {unit});
  } else if (small >= 10) {
    s.say(kFrench[std::size_t(small)], {unit + 1, unit});
  } else if (small > 0) {
    s.say(kFrench[std::size_t(small)], {unit});
  }
}

// Before mil, uno becomes un.
void say_spanish(Speaker& s, Index r, Index unit, bool before_mil) {
  const Index hundreds = r / 100, rest = r % 100;
  if (hundreds == 1) s.say(rest == 0 ? "cien" : "ciento", {unit + 2});
  if (hundreds > 1) s.say(kSpanishHundreds[std::size_t(hundreds)], {unit + 2});
  if (before_mil && rest == 21) s.say("veintiún", {unit + 1, unit});
  else if (rest >= 30) {
    s.say(kSpanishTens[std::size_t(rest / 10)], {unit + 1});
    if (rest % 10 > 0) {
      s.say("y");
      s.say(before_mil && rest % 10 == 1 ? "un" : kSpanish[std::size_t(rest % 10)], {unit});
    }
  } else if (rest > 0) {
    s.say(before_mil && rest == 1 ? "un" : kSpanish[std::size_t(rest)], {unit + 1, unit});
  }
}

// 1 is eins at the very end, ein elsewhere.
void say_german(Speaker& s, Index r, Index unit) {
  const Index hundreds = r / 100, rest = r % 100;
  const auto word = [](Index n) { return n == 1 ? "ein" : kGerman[std::size_t(n)]; };
  if (hundreds > 0) {
    s.say(word(hundreds), {unit + 2});
    s.scale("hundert", unit + 2, unit + 2);
  }
  if (rest >= 20) {
    if (rest % 10 > 0) {
      s.say(word(rest % 10), {unit});
      s.say("und");
    }
    s.say(kGermanTens[std::size_t(rest / 10)], {unit + 1});
  } else if (rest > 0) {
    s.say(unit == 0 ? kGerman[std::size_t(rest)] : word(rest), {unit + 1, unit});
  }
}

}  // namespace

SpokenNumber say_number(std::string_view language, Index number, bool spoken_and) {
  check<Error>(number >= 0 && number < kNumbers, "numbers: {} is not in 0 .. 999999", number);
  check<Error>(is_one_of(language, {"en", "fr", "es", "de"}), "numbers: language \"{}\" is none of en, fr, es, de", language);
  const Index q = number / 1000, r = number % 1000;
  Speaker s(number);
  if (language == "en") {
    if (number == 0) return std::move(s).zero(kEnglish[0]);
    if (q > 0) say_english(s, q, 3, spoken_and, true), s.scale("thousand", 3, 5);
    if (r > 0) say_english(s, r, 0, spoken_and, q == 0);
  } else if (language == "fr") {
    if (number == 0) return std::move(s).zero(kFrench[0]);
    if (q == 1) s.say("mille", {3});
    if (q > 1) say_french(s, q, 3, false), s.scale("mille", 3, 5);
    if (r > 0) say_french(s, r, 0, true);
  } else if (language == "es") {
    if (number == 0) return std::move(s).zero(kSpanish[0]);
    if (q == 1) s.say("mil", {3});
    if (q > 1) say_spanish(s, q, 3, true), s.scale("mil", 3, 5);
    if (r > 0) say_spanish(s, r, 0, false);
  } else {
    if (number == 0) return std::move(s).zero(kGerman[0]);
    if (q > 0) say_german(s, q, 3), s.scale("tausend", 3, 5);
    if (r > 0) say_german(s, r, 0);
  }
  return std::move(s).spoken();
}

std::vector<TaskPair> make_numbers(TaskOptions& options, Random random, Index count) {
  if (options.from.empty()) options.from = options.to.empty() || options.to == "digits" ? "en" : "digits";
  if (options.to.empty()) options.to = options.from == "digits" ? "en" : "digits";
  check<Error>((options.from == "digits") != (options.to == "digits"),
               "numbers: one of --from and --to must be digits: from {}, to {}", options.from, options.to);
  const bool to_digits = options.to == "digits";
  const std::string& language = to_digits ? options.from : options.to;
  check<Error>(is_one_of(language, {"en", "fr", "es", "de"}), "numbers: --{} \"{}\" is none of digits, en, fr, es, de",
               to_digits ? "from" : "to", language);
  check<Error>(!options.spoken_and || language == "en", "numbers: --spoken-and is for en: {}", language);
  check_enough("numbers", count, kNumbers, "0 to 999999");

  // A quarter from 0 .. 5000, the rest evenly over the number of digits, both as far as unused numbers last.
  struct Range {
    Index first, size, left;
  };
  constexpr Index kSmall = 5001;
  Index small_left = kSmall;
  std::vector<Range> ranges{{0, 10, 10}};
  for (Index first = 10; first < kNumbers; first *= 10) ranges.push_back({first, 9 * first, 9 * first});
  std::vector<bool> used(kNumbers);
  std::vector<TaskPair> pairs;
  while (Index(pairs.size()) < count) {
    Index number = 0;
    if (small_left > 0 && random.below(4) == 0) number = random.below(kSmall);
    else {
      const Range* range = nullptr;
      do range = &ranges[std::size_t(random.below(Index(ranges.size())))];
      while (range->left == 0);
      number = range->first + random.below(range->size);
    }
    if (used[std::size_t(number)]) continue;
    used[std::size_t(number)] = true;
    if (number < kSmall) --small_left;
    --std::find_if(ranges.begin(), ranges.end(), [&](const Range& range) { return number < range.first + range.size; })->left;

    SpokenNumber spoken = say_number(language, number, options.spoken_and);
    std::string words = join_words(spoken.words), digits = fmt::format("{}", fmt::join(fmt::format("{}", number), " "));
    if (!to_digits) {
      std::swap(words, digits);
      for (std::vector<Link>* links : {&spoken.alignment.sure, &spoken.alignment.possible}) {
        for (Link& link : *links) std::swap(link.source, link.target);
      }
    }
    pairs.push_back({std::move(words), std::move(digits), std::move(spoken.alignment)});
  }
  return pairs;
}

}  // namespace heed
