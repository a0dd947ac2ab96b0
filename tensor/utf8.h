// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string_view>

namespace heed {

// The character at `at` and its length in bytes. Where the bytes are no UTF-8 (overlong, surrogate, cut, beyond U+10FFFF):
// U+FFFD and the length of the maximal subpart (Unicode 15.0, 3.9), at least 1.
struct Character { char32_t code; std::size_t size; bool valid; };
Character character_at(std::string_view text, std::size_t at);

}  // namespace heed
