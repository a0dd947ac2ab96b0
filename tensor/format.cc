// SPDX-License-Identifier: Apache-2.0
#include "tensor/format.h"

namespace heed {

std::string quote(std::string_view text) {
  constexpr std::size_t kLimit = 80;
  std::string out = "\"";
  std::size_t size = std::min(text.size(), kLimit);
  while (size < text.size() && size > 0 && (text[size] & 0xC0) == 0x80) --size;   // not within a character
  for (const char c : text.substr(0, size)) {
    if (c == '"' || c == '\\') out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else out += c;
  }
  return out + (size < text.size() ? "...\"" : "\"");
}

}  // namespace heed
