// SPDX-License-Identifier: Apache-2.0
#include "tensor/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tensor/format.h"

namespace heed {
namespace {

// Finaliser of SplitMix64 (Stafford's variant 13): a bijection; every input bit flips each output bit half of the time.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Children by number, by name, and seeds live in three unrelated families.
constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15u, kNumber = 0xD1B54A32D192ED03u, kName = 0x8CB92BA72F3D8DD7u;

constexpr std::uint64_t absorb(std::uint64_t state, std::uint64_t word) { return mix(mix(state) + word); }

// log x for normal x > 0 by x = m 2ᵉ, m in [1/√2, √2):  log m = 2 artanh s = 2 Σ s^(2k+1)/(2k+1), s = (m-1)/(m+1), |s| < 0.172.
template <class T> T portable_log(T x) {
  constexpr bool wide = sizeof(T) == 8;
  using Bits = std::conditional_t<wide, std::uint64_t, std::uint32_t>;
  constexpr int digits = std::numeric_limits<T>::digits - 1;
  const auto bits = std::bit_cast<Bits>(x);
  int e = int(bits >> digits) - (std::numeric_limits<T>::max_exponent - 1);
  T m = std::bit_cast<T>((bits & ((Bits(1) << digits) - 1)) | std::bit_cast<Bits>(T(1)));
  if (m > T(1.4142135623730951)) m *= T(0.5), ++e;
  const T s = (m - 1) / (m + 1), s2 = s * s;
  T sum = 0;
  for (int k = wide ? 21 : 9; k >= 1; k -= 2) sum = sum * s2 + T(1.0 / k);
  return T(e) * T(0.6931471805599453) + 2 * s * sum;
}

template <class T, std::size_t n> T polynomial(const T (&c)[n], T r) {
  T sum = c[0];
  for (std::size_t i = 1; i < n; ++i) sum = sum * r + c[i];
  return sum;
}

// Φ⁻¹(1/2 + q), p = min(1/2 + q, 1/2 - q) > 0; f32: > 1e-11
template <class T> T quantile(T q, T p) {
  using Quotients = detail::Quantile<T>;
  const auto divided = [](const auto& quotient, T r) { return polynomial(quotient.num, r) / polynomial(quotient.den, r); };
  if (std::abs(q) <= detail::kQuantileCentral<T>) {
    const T r = T(0.180625) - q * q;
    return q * polynomial(Quotients::kCentral.num, r) / polynomial(Quotients::kCentral.den, r);
  }
  const T r = std::sqrt(-portable_log(p));
  if constexpr (sizeof(T) == 8)
    if (r > detail::kQuantileMiddle<T>) return std::copysign(divided(Quotients::kTail, r - 5), q);
  return std::copysign(divided(Quotients::kMiddle, r - T(1.6)), q);
}

}  // namespace

Key::Key(Seed seed) : bits_(absorb(kSeed, seed.value)) {}
Key Key::child(std::uint64_t number) const { return Key(absorb(bits_ ^ kNumber, number), Exact()); }

Key Key::operator/(std::string_view name) const {
  std::uint64_t state = absorb(bits_ ^ kName, name.size());
  for (std::size_t i = 0; i < name.size(); i += 8) {
    std::uint64_t word = 0;
    for (std::size_t j = i; j < std::min(i + 8, name.size()); ++j)
      word |= std::uint64_t(std::uint8_t(name[j])) << (8 * (j - i));
    state = absorb(state, word);
  }
  return Key(state, Exact());
}

double normal_quantile(double p) {
  check<Error>(p > 0 && p < 1, "normal_quantile: p {} is not in (0, 1)", p);
  const double q = p - 0.5;
  return quantile(q, q < 0 ? p : 1 - p);
}

float normal_quantile32(std::uint32_t bits) {
  const float q = (float(std::int32_t(bits ^ 0x80000000u)) + 0.5f) * 0x1p-32f,
              p = (float(std::int32_t(std::min(bits, ~bits))) + 0.5f) * 0x1p-32f;
  return quantile(q, p);
}

std::uint32_t Random::next_u32() {
  if (used_ == 4) block_ = philox(key_, counter_++), used_ = 0;
  return block_[std::size_t(used_++)];
}

std::uint64_t Random::next_u64() {
  const std::uint64_t low = next_u32();
  return low | std::uint64_t(next_u32()) << 32;
}

double Random::normal() { return normal_quantile((double(next_u64() >> 12) + 0.5) * 0x1p-52); }

Index Random::below(Index n) {
  check<Error>(n > 0, "random below: n must be positive: n {}", n);
  const auto range = std::uint64_t(n);
  std::uint64_t x = next_u64();
  while (x < range && x < (0 - range) % range) x = next_u64();         // the lowest 2⁶⁴ mod n draws are refused
  return Index(x % range);
}

}  // namespace heed
