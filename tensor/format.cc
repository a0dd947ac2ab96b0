// SPDX-License-Identifier: Apache-2.0
#include "tensor/format.h"

namespace heed {

std::string error_text(fmt::string_view format, fmt::format_args args) {
  std::string text = fmt::vformat(format, args);
  return current_path().empty() ? text : fmt::format("in {}: {}", current_path(), text);
}

std::string first_ten(std::span<const std::string> list, std::string_view separator) {
  constexpr std::size_t kLimit = 10;
  if (list.size() <= kLimit) return fmt::format("{}", fmt::join(list, separator));
  return fmt::format("{} and {} more", fmt::join(list.first(kLimit), separator), list.size() - kLimit);
}

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

auto fmt::formatter<heed::Shape>::format(const heed::Shape& shape, format_context& ctx) const -> format_context::iterator {
  return formatter<std::string_view>::format(heed::to_string(shape), ctx);
}
auto fmt::formatter<heed::Dims>::format(const heed::Dims& dims, format_context& ctx) const -> format_context::iterator {
  return formatter<std::string_view>::format(heed::to_string(dims), ctx);
}
auto fmt::formatter<heed::DType>::format(heed::DType dtype, format_context& ctx) const -> format_context::iterator {
  return formatter<std::string_view>::format(heed::name(dtype), ctx);
}
