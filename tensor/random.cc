// SPDX-License-Identifier: Apache-2.0
#include "tensor/random.h"

#include <cmath>

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
double portable_log(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  int e = int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) m *= 0.5, ++e;
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return e * 0.6931471805599453 + 2 * s * sum;
}

double polynomial(const double (&c)[8], double r) {
  double sum = c[0];
  for (int i = 1; i < 8; ++i) sum = sum * r + c[i];
  return sum;
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
  using namespace detail;
  const double q = p - 0.5;
  if (std::abs(q) <= kCentral) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kCentralQuantile.num, r) / polynomial(kCentralQuantile.den, r);
  }
  const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const auto& [num, den] = r <= kMiddle ? kMiddleQuantile : kTailQuantile;
  const double from = r <= kMiddle ? r - 1.6 : r - 5;
  const double x = polynomial(num, from) / polynomial(den, from);
  return q < 0 ? -x : x;
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
