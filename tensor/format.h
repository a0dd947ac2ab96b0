// SPDX-License-Identifier: Apache-2.0
// fmt formatters of Heed's types, and `check`, for .cc files that report errors and users who print.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <concepts>

#include "tensor/error.h"
#include "tensor/inside.h"
#include "tensor/shape.h"

template <> struct fmt::is_range<heed::Shape, char> : std::false_type {};
// These formats are defined in format.cc: in every file that reports an error they would take long to compile.
template <> struct fmt::formatter<heed::Shape> : formatter<std::string_view> {
  auto format(const heed::Shape& shape, format_context& ctx) const -> format_context::iterator;
};
template <> struct fmt::is_range<heed::Dims, char> : std::false_type {};
template <> struct fmt::formatter<heed::Dims> : formatter<std::string_view> {
  auto format(const heed::Dims& dims, format_context& ctx) const -> format_context::iterator;
};
template <> struct fmt::formatter<heed::DType> : formatter<std::string_view> {
  auto format(heed::DType dtype, format_context& ctx) const -> format_context::iterator;
};

namespace heed { class Tensor; }
template <> struct fmt::is_range<heed::Tensor, char> : std::false_type {};
// {}: as NumPy prints;  {:.3f}: so many digits after the point;  {:s}: shape and dtype only
template <> struct fmt::formatter<heed::Tensor> {
  int precision = -1;
  bool shape_only = false;
  constexpr auto parse(format_parse_context& ctx) {
    auto at = ctx.begin();
    const auto is = [&](char c) { return at != ctx.end() && *at == c; };
    if (is('.')) {
      precision = 0;
      if (++at == ctx.end() || *at < '0' || *at > '9') throw format_error("digits expected after the point");
      for (; at != ctx.end() && *at >= '0' && *at <= '9' && precision < 100; ++at) precision = 10 * precision + (*at - '0');
      if (is('f')) ++at;
    } else if (is('s')) {
      shape_only = true;
      ++at;
    }
    if (at != ctx.end() && *at != '}') throw format_error("a tensor takes {}, {:.3f} or {:s}");
    return at;
  }
  auto format(const heed::Tensor& x, format_context& ctx) const -> format_context::iterator;
};

// What holds a tensor, as a Variable and a Parameter do: its value
template <class T>
  requires requires(const T& x) { { x.value() } -> std::same_as<const heed::Tensor&>; x.shape(); }
struct fmt::formatter<T> : formatter<heed::Tensor> {
  auto format(const T& x, format_context& ctx) const -> format_context::iterator { return formatter<heed::Tensor>::format(x.value(), ctx); }
};

namespace heed {

// A name or file content for a message: in quotes, cut at 80 bytes, control characters and what is no UTF-8 escaped.
std::string quote(std::string_view text);

// The same of a name that is mostly plain: without quotes where nothing is cut or escaped.
std::string shown(std::string_view name);

// The first ten of a list for a message, with the separator between them: "a, b and 120 more".
std::string first_ten(std::span<const std::string> list, std::string_view separator);

// "24 or 27": the multiples of a number that are nearest to n.
std::string nearest_multiples(Index n, Index of);

// "12345.6" -> "12,345.6"
std::string with_commas(std::string_view digits);

// "950 B", "3.9 KiB", up to TiB.
std::string size_text(double bytes);

// Where a name stands among those of an enum; Error lists them.
std::size_t place_of(std::string_view what, std::span<const std::string_view> names, std::string_view name);

// "[in <module path>: ]" and the text.
std::string error_text(fmt::string_view format, fmt::format_args args);

// Throws E with that text.
template <class E, class... Args> [[noreturn, gnu::cold, gnu::noinline]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(error_text(format, fmt::make_format_args(args...)));
}

// One rule on one line:  check<ShapeError>(a == b, "matmul: inner sizes differ: a {}, b {}", a.shape(), b.shape());
// The text is built only when the check fails.
template <class E, class... Args> void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) [[unlikely]] fail<E>(format, std::forward<Args>(args)...);
}

}  // namespace heed
