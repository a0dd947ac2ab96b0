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
  static constexpr double middle_num[8] = {
      7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
      3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0};
  static constexpr double middle_den[8] = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
  static constexpr double tail_num[8] = {
      2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
      2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0};
  static constexpr double tail_den[8] = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
      1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0};
  check<Error>(p > 0 && p < 1, "normal_quantile: p {} is not in (0, 1)", p);
  using detail::polynomial;
  const double q = p - 0.5;
  if (std::abs(q) <= detail::kCentral) return detail::central_quantile(q);
  const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? polynomial(middle_num, r - 1.6) / polynomial(middle_den, r - 1.6)
                          : polynomial(tail_num, r - 5) / polynomial(tail_den, r - 5);
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
  const auto range = std::uint64_t(n), rest = (0 - range) % range;     // rest = 2⁶⁴ mod n: the lowest draws, refused
  std::uint64_t x = next_u64();
  while (x < rest) x = next_u64();
  return Index(x % range);
}

}  // namespace heed
