// SPDX-License-Identifier: Apache-2.0
#include "models/python_text.h"

#include <utf8proc.h>

#include <cstdint>

#include "models/text.h"

namespace heed::python {
namespace {

// Of characters that are not case-ignorable: Lu, Ll, Lt, Other_Uppercase and Other_Lowercase.
bool is_cased(char32_t c) {
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT || c == U'ª' ||
         c == U'º' || within(0x2160, 0x217F) || within(0x24B6, 0x24E9) || within(0x1F130, 0x1F149) || within(0x1F150, 0x1F169) ||
         within(0x1F170, 0x1F189);
}

bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_SK: return true;
    default:  // Word_Break = MidLetter, MidNumLet, Single_Quote
      return std::u32string_view(U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
  }
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    points += c.valid ? c.code : char32_t(0xDC00u + std::uint8_t(text[i]));
    i += c.valid ? c.size : 1;
  }
  return points;
}

std::u32string lower(const std::u32string& text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'İ') out += U"i\u0307";
    else if (text[i] == U'Σ') {
      std::size_t before = i, after = i + 1;
      while (before > 0 && is_case_ignorable(text[before - 1])) --before;
      while (after < text.size() && is_case_ignorable(text[after])) ++after;
      out += before > 0 && is_cased(text[before - 1]) && !(after < text.size() && is_cased(text[after])) ? U'ς' : U'σ';
    } else out += char32_t(utf8proc_tolower(utf8proc_int32_t(text[i])));
  }
  return out;
}

std::vector<std::u32string_view> split(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && !is_space(text[end])) ++end;
    if (end > i) words.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    if (c >= 0xDC00 && c <= 0xDCFF) out += char(c - 0xDC00);  // a byte that was no UTF-8
    else append(out, c);
  }
  return out;
}

}  // namespace heed::python
