// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/numbers.h"

#include <doctest/doctest.h>

#include <set>

#include "tensor/error.h"

using namespace heed;

namespace {

std::string spoken(const char* language, Index number, bool spoken_and = false) {
  return join_words(say_number(language, number, spoken_and).words);
}
std::string links(const char* language, Index number) {
  const SpokenNumber said = say_number(language, number);
  return to_string(said.alignment.sure) + (said.alignment.possible.empty() ? "" : " / ") +
         to_string(said.alignment.possible, '?');
}

}  // namespace

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
  for (const std::string language : {"en", "fr", "es", "de"}) {
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
  const Task task = make_task("numbers", {.train = 600, .dev = 100, .test = 100, .from = "digits", .to = "fr"});
  const TaskPair& pair = task.parts[0].pairs.front();
  CHECK(pair.source.find_first_not_of("0123456789 ") == std::string::npos);
  CHECK(pair.target.find_first_of("0123456789") == std::string::npos);
}
