// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter: a number is a function of (key, counter), there is no generator state to share, save or restore.
// Everything here is exact integer arithmetic or IEEE double arithmetic in a fixed order: the same bits on every machine.
#pragma once
#include <array>
#include <concepts>
#include <span>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

namespace heed {

struct Seed { std::uint64_t value; };

// Name of a stream of random numbers. Children of different names, and the children of different keys, have unrelated streams:
//   Key(Seed{1}) / "encoder.layers.0.dropout" / call
class Key {
 public:
  explicit Key(Seed seed);
  // Key{seed, step, micro_batch} = Key(Seed{seed}) / step / micro_batch
  template <std::integral B, std::integral C = int>
  explicit Key(Seed seed, B step, C micro_batch = 0) : Key(Key(seed) / step / micro_batch) {}
  template <std::integral A, std::integral B = int, std::integral C = int>
  explicit Key(A seed, B step = 0, C micro_batch = 0) : Key(Seed{std::uint64_t(seed)}, step, micro_batch) {}
  static constexpr Key from_bits(std::uint64_t bits) { return Key(bits, Exact()); }

  Key operator/(std::string_view name) const;
  template <std::integral T> Key operator/(T number) const { return child(std::uint64_t(number)); }
  constexpr std::uint64_t bits() const { return bits_; }
  friend constexpr bool operator==(Key, Key) = default;

 private:
  struct Exact {};
  constexpr Key(std::uint64_t bits, Exact) : bits_(bits) {}
  Key child(std::uint64_t number) const;
  std::uint64_t bits_;
};

// Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", 4.3), with Random123's constants.
// A round on the counter c with the key k:
//   c' = (high(M1 c2) ⊕ c1 ⊕ k0, low(M1 c2), high(M0 c0) ⊕ c3 ⊕ k1, low(M0 c0)),  k' = k + W
// Words: k = (low, high half of key), c = (low, high half of counter_low, low, high half of counter_high).
constexpr std::array<std::uint32_t, 4> philox(Key key, std::uint64_t counter_low, std::uint64_t counter_high = 0) {
  auto k0 = std::uint32_t(key.bits()), k1 = std::uint32_t(key.bits() >> 32);
  std::array<std::uint32_t, 4> c{std::uint32_t(counter_low), std::uint32_t(counter_low >> 32), std::uint32_t(counter_high),
                                 std::uint32_t(counter_high >> 32)};
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c[0], p1 = std::uint64_t(0xCD9E8D57u) * c[2];
    c = {std::uint32_t(p1 >> 32) ^ c[1] ^ k0, std::uint32_t(p1), std::uint32_t(p0 >> 32) ^ c[3] ^ k1, std::uint32_t(p0)};
  }
  return c;
}

// 53, or 32, random bits as a multiple of 2⁻⁵³, or 2⁻³², in [0, 1).
constexpr double unit_interval(std::uint64_t bits) { return double(bits >> 11) * 0x1p-53; }
constexpr double unit_interval32(std::uint32_t bits) { return bits * 0x1p-32; }

namespace detail {
constexpr Index kDraws = 64;                                       // of 64 bits, that a kernel makes at once
template <class T> constexpr Index kElements = sizeof(T) == 4 ? 2 * kDraws : kDraws;   // that they give
// Wichura 1988, algorithm AS 241, PPND16 and PPND7: Φ⁻¹ as quotients of polynomials c_0 rⁿ + .. + c_n.
template <class T, int kTerms> struct QuantileQuotient {
  T num[kTerms], den[kTerms];
};
template <class T> constexpr T kQuantileCentral = T(0.425);
template <class T> constexpr T kQuantileMiddle = T(5);
template <class T> struct Quantile;
template <> struct Quantile<double> {
  // Φ⁻¹(1/2 + q) = q num(r) / den(r),  r = 0.180625 - q²,  for |q| <= kQuantileCentral
  static constexpr QuantileQuotient<double, 8> kCentral{
      {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4, 1.3731693765509461125e+4,
       1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0},
      {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4, 5.3941960214247511077e+3,
       6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0}};
  // |Φ⁻¹(p)| = num(r - 1.6) / den(r - 1.6),  r = √(-ln p),  for smaller p and r <= kQuantileMiddle
  static constexpr QuantileQuotient<double, 8> kMiddle{
      {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
       3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0},
      {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
       6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0}};
  // num(r - 5) / den(r - 5) beyond
  static constexpr QuantileQuotient<double, 8> kTail{
      {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
       2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0},
      {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
       1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0}};
};
template <> struct Quantile<float> {
  static constexpr QuantileQuotient<float, 4> kCentral{{59.109374720f, 159.29113202f, 50.434271938f, 3.3871327179f},
                                                       {67.187563600f, 78.757757664f, 17.895169469f, 1}};
  static constexpr QuantileQuotient<float, 4> kMiddle{{0.17023821103f, 1.3067284816f, 2.7568153900f, 1.4234372777f},
                                                      {0, 0.12021132975f, 0.73700164250f, 1}};
};
}  // namespace detail

// Φ⁻¹(p) for 0 < p < 1, else Error; relative error about 1e-16. No libm but the exact sqrt.
double normal_quantile(double p);
// Φ⁻¹((bits + 1/2) 2⁻³²) in float arithmetic, relative error below 1e-6.
float normal_quantile32(std::uint32_t bits);

// Draws one after another from the stream of a key: block i is philox(key, i).
class Random {
 public:
  explicit Random(Key key) : key_(key) {}

  std::uint32_t next_u32();
  std::uint64_t next_u64();                  // first word low, second word high
  double uniform() { return unit_interval(next_u64()); }    // [0, 1)
  double normal();                           // N(0, 1) = Φ⁻¹ of a uniform number in (0, 1)
  Index below(Index n);                      // uniform over 0 .. n-1, unbiased; Error unless n > 0

  // Fisher-Yates (Knuth 3.4.2 P): every order equally likely.
  template <class T> void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[std::size_t(below(Index(i)))]);
  }

 private:
  Key key_;
  std::uint64_t counter_ = 0;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace heed
