// SPDX-License-Identifier: Apache-2.0
// Text as Python's str sees it, for sacreBLEU's numbers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace heed::python {

std::u32string code_points(std::string_view text);                   // a byte that is no UTF-8 counts as one
std::string utf8(std::u32string_view text);                          // and back
std::vector<std::u32string_view> split(std::u32string_view text);    // str.split, at is_space of models/text.h
// str.lower: the simple mapping but for İ, and Σ at the end of a word (Unicode 3.13, Final_Sigma).
std::u32string lower(const std::u32string& text);

}  // namespace heed::python
