// SPDX-License-Identifier: Apache-2.0
// Element types. f32 is what models compute in, f64 is for checks, bf16 for storage; i32 and i64 are ids, u8 masks and bytes.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace heed {

using Index = std::int64_t;
template <class T> constexpr T divide_up(T a, std::type_identity_t<T> b) { return (a + b - 1) / b; }
template <class T> constexpr T round_up(T a, std::type_identity_t<T> b) { return divide_up(a, b) * b; }

enum class DType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    bits = (u & 0x7fffffffu) > 0x7f800000u ? std::uint16_t((u >> 16) | 0x40u) : std::uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
  friend bool operator==(BFloat16 a, BFloat16 b) { return float(a) == float(b); }
};

// The unsigned integer of T's size.
template <class T>
using BitsOf =
    std::conditional_t<sizeof(T) == 8, std::uint64_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

// condition ? a : b without a branch, which would be guessed wrong half of the time where nothing foretells the condition.
template <class T> T choose(bool condition, T a, T b) {
  using Bits = BitsOf<T>;
  const auto mask = Bits(-Bits(condition));
  return std::bit_cast<T>(Bits((std::bit_cast<Bits>(a) & mask) | (std::bit_cast<Bits>(b) & Bits(~mask))));
}

constexpr std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::f64: case DType::i64: return 8;
    case DType::f32: case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "i32", "i64", "u8"};
  return names[std::size_t(dtype)];
}

constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

template <class T>
constexpr bool is_element = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, BFloat16> ||
                            std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint8_t>;

template <class T> constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, BFloat16>) return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  else {
    static_assert(is_element<T>, "not an element type: float, double, BFloat16, std::int32_t, std::int64_t or std::uint8_t");
    return DType::u8;
  }
}();

[[noreturn]] void throw_not_float(std::string_view op, DType dtype);

// Whether a number can become an element: an integer type takes what it holds exactly, the others take any.
bool fits(double value, DType dtype);
void check_fits(std::string_view op, double value, DType dtype);   // DTypeError unless it does

// Calls f.template operator()<T>() with the element type:  visit_float(x.dtype(), "tanh", [&]<class T>() { ... })
template <class F> decltype(auto) visit_float(DType dtype, std::string_view op, F&& f) {
  if (dtype == DType::f32) return f.template operator()<float>();
  if (dtype == DType::f64) return f.template operator()<double>();
  throw_not_float(op, dtype);
}

template <class F> decltype(auto) visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::bf16: return f.template operator()<BFloat16>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::u8: return f.template operator()<std::uint8_t>();
    case DType::f32: break;
  }
  return f.template operator()<float>();
}

}  // namespace heed
