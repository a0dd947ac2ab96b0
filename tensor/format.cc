// SPDX-License-Identifier: Apache-2.0
#include "tensor/format.h"

#include <algorithm>

#include "tensor/utf8.h"

namespace heed {

std::string error_text(fmt::string_view format, fmt::format_args args) {
  std::string text = fmt::vformat(format, args);
  return current_path().empty() ? text : fmt::format("in {}: {}", current_path(), text);
}

std::string nearest_multiples(Index n, Index of) {
  const Index below = n / of * of;
  return below > 0 ? fmt::format("{} or {}", below, below + of) : fmt::format("{}", of);
}

std::string with_commas(std::string_view digits) {
  const std::size_t sign = digits.starts_with('-'), whole = std::min(digits.find('.'), digits.size());
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && i < whole && (whole - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string size_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    bytes /= 1024;
    if (bytes < 1024) return fmt::format("{:.1f} {}", bytes, unit);
  }
  return fmt::format("{:.1f} TiB", bytes / 1024);
}

std::size_t place_of(std::string_view what, std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  check<Error>(at != names.end(), "{}: unknown name {}; one of {}", what, quote(name), fmt::join(names, ", "));
  return std::size_t(at - names.begin());
}

std::string first_ten(std::span<const std::string> list, std::string_view separator) {
  constexpr std::size_t kLimit = 10;
  if (list.size() <= kLimit) return fmt::format("{}", fmt::join(list, separator));
  return fmt::format("{} and {} more", fmt::join(list.first(kLimit), separator), list.size() - kLimit);
}

std::string quote(std::string_view text) {
  const auto is_control = [](char32_t code) {   // and line separators
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
  };
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (i + c.size > 80) return out + "...\"";
    if (!c.valid) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    else if (c.code == '"' || c.code == '\\') out += {'\\', char(c.code)};
    else if (is_control(c.code)) out += fmt::format("\\u{:04x}", std::uint32_t(c.code));
    else out.append(text, i, c.size);
    i += c.valid ? c.size : 1;
  }
  return out + "\"";
}

std::string shown(std::string_view name) {
  std::string quoted = quote(name);
  return quoted.size() == name.size() + 2 ? std::string(name) : quoted;
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
