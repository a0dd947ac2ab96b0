// SPDX-License-Identifier: Apache-2.0
// Dates as people write them -> YYYY-MM-DD, character by character, 1900-01-01 .. 2099-12-31.
#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "examples/tasks/generate.h"
#include "tensor/format.h"

namespace heed {
namespace {

using namespace std::chrono;
constexpr sys_days kFirst = year{1900} / 1 / 1, kLast = year{2099} / 12 / 31;

struct Names {
  std::array<std::string_view, 12> months, short_months;
  std::array<std::string_view, 7> weekdays;  // from Sunday
};
constexpr Names kNames[] = {
    {{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"},
     {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
     {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}},
    {{"janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre", "décembre"},
     {"janv", "févr", "mars", "avr", "mai", "juin", "juil", "août", "sept", "oct", "nov", "déc"},
     {"dimanche", "lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi"}},
    {{"enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre", "noviembre",
      "diciembre"},
     {"ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"},
     {"domingo", "lunes", "martes", "miércoles", "jueves", "viernes", "sábado"}},
    {{"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember"},
     {"Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"},
     {"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"}}};

// B month, b short month, A weekday, D, M two digits, d, m one or two, Y four. y two: the last form, for 1950 .. 2049 only.
constexpr std::string_view kForms[] = {"d B Y", "d b Y", "B d, Y", "A d B Y", "D.M.Y", "Y-M-D", "d/m/y"};

// Case of the letters that occur in these names: ASCII, and those of Latin-1, whose UTF-8 is 0xC3 and a byte that differs by
// 0x20.
bool is_lead(char c) { return c == '\xC3'; }
void flip_case(std::string& text, std::size_t i, bool upper) {
  const bool latin = i > 0 && is_lead(text[i - 1]);
  const char low = char(text[i] | 0x20);
  if (latin || (low >= 'a' && low <= 'z')) text[i] = upper ? char(text[i] & ~0x20) : low;
}

enum Field { kNone, kYear, kMonth, kDay };

// A date being written, with the field of each character.
struct Written {
  std::string text;
  std::vector<Field> fields;
  void add(std::string_view piece, Field field = kNone) {
    text += piece;
    fields.insert(fields.end(),
                  std::size_t(std::count_if(piece.begin(), piece.end(), [](char c) { return (c & 0xC0) != 0x80; })), field);
  }
};

Written write_date(year_month_day date, Random& random) {
  const Names& names = kNames[random.below(std::size(kNames))];
  const int year = int(date.year()), month = int(unsigned(date.month())), day = int(unsigned(date.day()));
  const Index forms = Index(std::size(kForms)) - (year < 1950 || year > 2049);
  Written w;
  for (const char c : kForms[random.below(forms)]) {
    switch (c) {
      case 'A': w.add(names.weekdays[weekday(sys_days(date)).c_encoding()]); break;
      case 'B': w.add(names.months[std::size_t(month) - 1], kMonth); break;
      case 'b': w.add(names.short_months[std::size_t(month) - 1], kMonth); break;
      case 'D': w.add(fmt::format("{:02}", day), kDay); break;
      case 'd': w.add(fmt::format("{}", day), kDay); break;
      case 'M': w.add(fmt::format("{:02}", month), kMonth); break;
      case 'm': w.add(fmt::format("{}", month), kMonth); break;
      case 'Y': w.add(fmt::format("{}", year), kYear); break;
      case 'y': w.add(fmt::format("{:02}", year % 100), kYear); break;
      default: w.add(std::string_view(&c, 1));
    }
  }
  // a quarter each: as usual, all lower, all upper, every letter by chance
  const Index letters = random.below(4);
  for (std::size_t i = 0; i < w.text.size(); ++i) {
    if (letters > 0 && !is_lead(w.text[i])) flip_case(w.text, i, letters == 2 || (letters == 3 && random.below(2) == 1));
  }
  return w;
}

}  // namespace

std::vector<TaskPair> make_dates(TaskOptions&, Random random, Index count) {
  const Index exist = (kLast - kFirst).count() + 1;
  check_enough("dates", count, exist, "one a day, 1900-01-01 to 2099-12-31");
  std::vector<Index> chosen(static_cast<std::size_t>(exist));  // days after the first
  std::iota(chosen.begin(), chosen.end(), Index{0});
  random.shuffle(std::span(chosen));
  chosen.resize(std::size_t(count));

  std::vector<TaskPair> pairs;
  for (const Index day : chosen) {
    const year_month_day date = kFirst + days(day);
    Written w = write_date(date, random);
    TaskPair pair{
        std::move(w.text), fmt::format("{}-{:02}-{:02}", int(date.year()), unsigned(date.month()), unsigned(date.day())), {}};
    constexpr Field target[] = {kYear, kYear, kYear, kYear, kNone, kMonth, kMonth, kNone, kDay, kDay};
    for (std::size_t i = 0; i < w.fields.size(); ++i) {
      for (std::size_t j = 0; j < std::size(target); ++j) {
        if (w.fields[i] != kNone && w.fields[i] == target[j]) pair.alignment.sure.push_back({Index(i), Index(j)});
      }
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace heed
