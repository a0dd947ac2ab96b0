// SPDX-License-Identifier: Apache-2.0
#include "tensor/utf8.h"

#include <cstdint>

namespace heed {

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? std::uint8_t(text[at + i]) : std::uint8_t(0); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0) return {0xFFFD, 1, false};
  // Range of the second byte: no overlong forms, no surrogates, nothing beyond U+10FFFF.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return {0xFFFD, 1, false};
  char32_t code = char32_t(lead & (0x7F >> size)) << 6 | (byte(1) & 0x3F);
  for (std::size_t i = 2; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, i, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, size, true};
}

}  // namespace heed
