// SPDX-License-Identifier: Apache-2.0
#include "tensor/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "tensor/error.h"

using namespace heed;
using Words = std::array<std::uint32_t, 4>;

TEST_CASE("philox: known answers of Random123 (kat_vectors, philox4x32 10)") {
  CHECK(philox(Key::from_bits(0), 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(Key::from_bits(~0ull), ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(Key::from_bits(0x299f31d0a4093822), 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  static_assert(philox(Key::from_bits(0), 0)[0] == 0x6627e8d5);
}

TEST_CASE("key: children differ by parent, name, number, order and kind") {
  const Key root(Seed{1});
  const std::vector<Key> keys = {root,
                                 Key(Seed{2}),
                                 root / 0 / 0,
                                 root / 0,
                                 root / 1,
                                 root / -1,
                                 root / "",
                                 root / "0",
                                 root / "a",
                                 root / "b",
                                 root / "ab",
                                 root / "a" / "b",
                                 root / "b" / "a",
                                 root / 0 / 1,
                                 root / 1 / 0,
                                 root / std::string_view("a\0", 2),
                                 root / "encoder.1",
                                 root / "encoder.11",
                                 root / "encoder.layers.0",
                                 root / "encoder.layers.1",
                                 Key(1, 1, 1)};
  std::set<std::uint64_t> bits;
  for (const Key& key : keys) bits.insert(key.bits());
  CHECK(bits.size() == keys.size());
  CHECK(Key(1, 2, 3) == root / 2 / 3);
  CHECK(Key(7) == Key(7, 0, 0));
  const std::int64_t step = 5;
  CHECK(Key{1, step} == Key(1, 5));
  CHECK(Key{Seed{1}, step} == Key(1, 5));
}

TEST_CASE("key: one flipped bit of a number flips half of the child's bits") {
  const Key root(Seed{3});
  double flipped = 0;
  int count = 0;
  for (std::uint64_t n = 0; n < 200; ++n)
    for (int bit = 0; bit < 64; ++bit, ++count)
      flipped += std::popcount((root / n).bits() ^ (root / (n ^ (1ull << bit))).bits());
  // Binomial(64, 1/2): standard deviation of the mean 4/√12800 = 0.035
  CHECK(flipped / count == doctest::Approx(32).epsilon(0.006));
}

TEST_CASE("key and random: the numbers are part of the format") {     // a change here changes every seed's results
  CHECK((Key(Seed{1}) / "encoder.layers.0.linear1.weight").bits() == 0x7c32d4eadc0a8a53);
  Random random(Key(Seed{1}));
  CHECK(random.next_u32() == 0xf0309ac7);
  CHECK(random.next_u64() == 0x15959ae8f58e8fa7);
  CHECK(random.uniform() == 0x1.39fd3650d00dp-5);
  CHECK(random.normal() == 0x1.5765a9969849ep+0);
  CHECK(random.below(1000) == 581);
}

TEST_CASE("random: block i is philox(key, i), word by word") {
  const Key key(Seed{9});
  Random random(key), wide(key);
  std::vector<std::uint32_t> words;
  for (std::uint64_t i = 0; i < 5; ++i) for (std::uint32_t w : philox(key, i)) words.push_back(w);
  for (std::uint32_t w : words) CHECK(random.next_u32() == w);
  for (std::size_t i = 0; i < words.size(); i += 2) CHECK(wide.next_u64() == (words[i] | std::uint64_t(words[i + 1]) << 32));
}

TEST_CASE("random: uniform covers [0, 1) evenly") {
  CHECK(unit_interval(0) == 0.0);
  CHECK(unit_interval(~0ull) == 1.0 - 0x1p-53);
  CHECK(unit_interval32(0) == 0.0);
  CHECK(unit_interval32(~0u) == 1.0 - 0x1p-32);
  Random random(Key(Seed{2}));
  const int n = 100000, bins = 20;
  std::vector<int> count(bins);
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform();
    REQUIRE((u >= 0 && u < 1));
    sum += u, squares += u * u, ++count[std::size_t(u * bins)];
  }
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
  double chi2 = 0;
  for (int c : count) chi2 += (c - n / bins) * double(c - n / bins) / (n / bins);
  CHECK(chi2 < 19 + 5 * std::sqrt(2 * 19.0));
}

TEST_CASE("random: below is unbiased and stays in range") {
  Random random(Key(Seed{4}));
  std::vector<int> count(7);
  for (int i = 0; i < 70000; ++i) ++count[std::size_t(random.below(7))];
  for (int c : count) CHECK(std::abs(c - 10000) < 5 * std::sqrt(70000 * (1 / 7.0) * (6 / 7.0)));
  for (int i = 0; i < 100; ++i) CHECK(random.below(1) == 0);
  const Index large = (Index(1) << 62) + 12345;           // a quarter of the draws is refused
  double mean = 0;
  for (int i = 0; i < 10000; ++i) {
    const Index x = random.below(large);
    REQUIRE((x >= 0 && x < large));
    mean += double(x) / double(large) / 10000;
  }
  CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(1.0 / 12 / 10000));
  CHECK_THROWS_WITH_AS(random.below(0), "random below: n must be positive: n 0", Error);
  CHECK_THROWS_AS(random.below(-3), Error);
}

TEST_CASE("normal_quantile: inverse of Φ") {
  for (double p : {1e-300, 1e-100, 1e-20, 1e-12, 1e-9, 1e-6, 1e-3, 0.02, 0.07, 0.0749999, 0.0750001, 0.2, 0.4, 0.499999}) {
    CAPTURE(p);
    const double x = normal_quantile(p);                   // relative error of Φ(x) ≈ |x|² times that of x
    CHECK(std::abs(0.5 * std::erfc(-x / std::sqrt(2.0)) / p - 1) < 8e-16 * (2 + x * x));
    if (p > 1e-3) CHECK(normal_quantile(1 - p) == doctest::Approx(-x).epsilon(1e-12));
  }
  CHECK(normal_quantile(0.5) == 0.0);
  CHECK(normal_quantile(0.975) == doctest::Approx(1.959963984540054).epsilon(1e-15));
  for (double p : {0.0, 1.0, -1.0, std::nan("")}) CHECK_THROWS_AS(normal_quantile(p), Error);
}

TEST_CASE("normal_quantile32: near normal_quantile, finite at both ends") {
  double most = 0;
  for (std::uint64_t k = 0; k < 1ull << 32; k += k < 10000 ? 1 : 4099)
    for (const auto bits : {std::uint32_t(k), ~std::uint32_t(k)}) {
      const double error = std::abs(double(normal_quantile32(bits)) / normal_quantile((bits + 0.5) * 0x1p-32) - 1);
      most = std::isnan(error) ? HUGE_VAL : std::max(most, error);
    }
  CHECK(most < 1e-6);
  CHECK(normal_quantile32(0) == doctest::Approx(-6.33795).epsilon(1e-5));   // 2⁻³³ lies below
  CHECK(normal_quantile32(~0u) == doctest::Approx(6.33795).epsilon(1e-5));
  CHECK(normal_quantile32(1u << 31) > 0);
}

TEST_CASE("random: normal has the moments of N(0, 1)") {
  Random random(Key(Seed{5}));
  const int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    m1 += x / n, m2 += x * x / n, m3 += x * x * x / n, m4 += x * x * x * x / n;
  }
  CHECK(std::abs(m1) < 5 * std::sqrt(1.0 / n));            // Var x = 1, x² = 2, x³ = 15, x⁴ = 96
  CHECK(std::abs(m2 - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(m3) < 5 * std::sqrt(15.0 / n));
  CHECK(std::abs(m4 - 3) < 5 * std::sqrt(96.0 / n));
}

TEST_CASE("random: shuffle makes every order equally often") {
  Random random(Key(Seed{6}));
  std::vector<int> count(24);
  for (int i = 0; i < 24000; ++i) {
    std::vector<int> items = {0, 1, 2, 3};
    random.shuffle(std::span(items));
    int rank = 0;
    for (int a = 0, weight = 6; a < 3; weight /= 3 - a, ++a)
      for (int b = a + 1; b < 4; ++b) rank += weight * (items[std::size_t(b)] < items[std::size_t(a)]);
    ++count[std::size_t(rank)];
  }
  for (int c : count) CHECK(std::abs(c - 1000) < 5 * std::sqrt(1000 * 23 / 24.0));
  std::vector<int> one = {1}, none;
  random.shuffle(std::span(one));
  random.shuffle(std::span(none));
  std::vector<int> a(1000), b;
  std::iota(a.begin(), a.end(), 0);
  b = a;
  Random(Key(Seed{7})).shuffle(std::span(a));
  CHECK(a != b);
  CHECK(std::is_permutation(a.begin(), a.end(), b.begin()));
}
