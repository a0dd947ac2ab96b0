// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/dropout.h"
#include "tensor/error.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

TEST_CASE("dropout: factors equal their definition on every target, at every offset") {
  const Key key = Key(Seed{3}) / "layer";
  for (double p : {0.1, 0.5, 0.9, 1.0}) {
    const DropoutKey rule("dropout", p, key);
    for (Index n : {0, 1, 5, 16, 127, 128, 129, 300, 1000, 70001})
      for_every_target([&] {
        const Tensor y = dropout(ones({n}), p, key), z = dropout(ones({n}, DType::f64), p, key);
        REQUIRE(y.shape() == Shape{n});
        Index wrong = 0;
        for (Index i = 0; i < n; ++i)
          wrong += y.span<float>()[std::size_t(i)] != float(dropout_factor(rule, i)) ||
                   z.span<double>()[std::size_t(i)] != dropout_factor(rule, i);
        CHECK(wrong == 0);
      });
  }
}

TEST_CASE("dropout: rate, expectation, independence of neighbours and of keys") {
  const Index n = 1 << 18;
  const Tensor a = dropout(ones({n}), 0.1, Key(1, 2)), b = dropout(ones({n}), 0.1, Key(1, 3));
  double sum = 0, kept = 0, both = 0, next = 0;
  const auto x = a.span<float>(), y = b.span<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += x[i] / double(n), kept += (x[i] > 0) / double(n), both += (x[i] > 0 && y[i] > 0) / double(n);
    next += (x[i] > 0 && x[(i + 16) % x.size()] > 0) / double(n);
  }
  const double q = 1 - std::lround(65536 * 0.1) / 65536.0, error = 5 * std::sqrt(0.1 * 0.9 / double(n));
  CHECK(std::abs(kept - q) < error);
  CHECK(std::abs(sum - 1) < error / q);
  CHECK(std::abs(both - q * q) < 2 * error);
  CHECK(std::abs(next - q * q) < 2 * error);
  CHECK(x[std::size_t(std::max_element(x.begin(), x.end()) - x.begin())] == float(65536.0 / (65536 - 6554)));
}

TEST_CASE("dropout: edges, strides, gradient") {
  const Key key(7);
  const Tensor x = uniform(key, {6, 50}, -1, 1, DType::f64), turned = transpose(transpose(x).clone());
  CHECK(dropout(x, 0, key).storage() == x.storage());
  CHECK(std::ranges::count(dropout(x, 1, key).span<double>(), 0.0) == 300);
  CHECK(std::ranges::equal(dropout(turned, 0.3, key).span<double>(), dropout(x, 0.3, key).span<double>()));
  CHECK_THROWS_WITH_AS(dropout(x, 1.5, key), "dropout: dropout must be in [0, 1]: dropout 1.5", Error);
  CHECK_THROWS_AS(dropout(x, -0.1, key), Error);
  CHECK_THROWS_AS(dropout(x, std::nan(""), key), Error);
  CHECK_THROWS_AS(dropout(arange(0, 3), 0.1, key), DTypeError);

  const Tensor y = dropout(x, 0.3, key), dx = empty({6, 50}, DType::f64), strided = transpose(empty({50, 6}, DType::f64));
  dropout_grad(x, 0.3, key, {dx});
  CHECK(std::ranges::equal(dx.span<double>(), y.span<double>()));
  dropout_grad(x, 0.3, key, {dx, true});
  for (std::size_t i = 0; i < 300; ++i) CHECK(dx.span<double>()[i] == 2 * y.span<double>()[i]);
  fill_(strided, 1);
  dropout_grad(turned, 0.3, key, {strided, true});
  for (Index i = 0; i < 300; ++i) CHECK(strided[i / 50][i % 50].item() == 1 + y[i / 50][i % 50].item());
  CHECK_THROWS_AS(dropout_grad(x, 0.3, key, {empty({50, 6}, DType::f64)}), ShapeError);
  CHECK_THROWS_AS(dropout_grad(x, 0.3, key, {empty({6, 50})}), DTypeError);
}

TEST_CASE("random tensors: element i is draw i of the key's stream, for any number of threads") {
  const Key key = Key(Seed{1}) / "weight";
  for_threads([&] {
    const Tensor u = uniform(key, {71, 71}, -2, 3, DType::f64), n = normal(key, {71, 71}, 1, 2, DType::f64);
    const Tensor u32 = uniform(key, {71, 71}, -2, 3), n32 = normal(key, {71, 71}, 1, 2);
    Random a(key), b(key), c(key);
    Index wrong = 0;
    for (std::size_t i = 0; i < 71 * 71; ++i) {
      const std::uint32_t bits = c.next_u32();
      wrong += u.span<double>()[i] != -2 + 5 * a.uniform() || n.span<double>()[i] != 1 + 2 * b.normal();
      wrong += u32.span<float>()[i] != float(-2 + 5 * unit_interval32(bits)) || n32.span<float>()[i] != 1 + 2 * normal_quantile32(bits);
    }
    CHECK(wrong == 0);
  });
  const Tensor u = uniform(key, {71, 71}, -2, 3), n = normal(key, {71, 71}, 1, 2), coins = bernoulli(key, {71, 71}, 0.4);
  for_every_target([&] {
    CAPTURE(instruction_set());
    const Tensor strided = transpose(empty({71, 71}));
    uniform_(strided, key, -2, 3);
    CHECK(std::ranges::equal(strided.contiguous().span<float>(), u.span<float>()));
    normal_(strided, key, 1, 2);
    CHECK(std::ranges::equal(strided.contiguous().span<float>(), n.span<float>()));
    CHECK(std::ranges::equal(bernoulli(key, {71, 71}, 0.4).span<std::uint8_t>(), coins.span<std::uint8_t>()));
  });
  Random random(key);
  for (const std::uint8_t coin : coins.span<std::uint8_t>()) CHECK(coin == (random.uniform() < 0.4));
  CHECK(uniform(key, {0, 3}).numel() == 0);
  CHECK(uniform(key, {}, 5, 5).item() == 5);
  CHECK(normal(key, {1}, 2, 0).item<float>() == 2);
}

TEST_CASE("random tensors: bernoulli, randint, permutation") {
  const Key key(11);
  const Tensor b = bernoulli(key, {10000}, 0.3);
  CHECK(std::abs(double(std::ranges::count(b.span<std::uint8_t>(), 1)) - 3000) < 5 * std::sqrt(2100));
  CHECK(std::ranges::count(bernoulli(key, {100}, 0).span<std::uint8_t>(), 1) == 0);
  CHECK(std::ranges::count(bernoulli(key, {100}, 1).span<std::uint8_t>(), 1) == 100);
  const Tensor r = randint(key, {7, 1000}, -3, 4);
  for (Index v = -3; v < 4; ++v) CHECK(std::abs(double(std::ranges::count(r.span<Index>(), v)) - 1000) < 5 * std::sqrt(6000.0 / 7));
  constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();
  const Tensor wide = randint(key, {10000}, least, most), half = randint(key, {10000}, -2, most);
  CHECK(std::abs(double(std::ranges::count_if(wide.span<Index>(), [](Index v) { return v < 0; })) - 5000) < 5 * 50);
  CHECK(std::ranges::all_of(half.span<Index>(), [](Index v) { return v >= -2 && v < most; }));
  CHECK(std::abs(double(std::ranges::count_if(half.span<Index>(), [](Index v) { return v < most / 2; })) - 5000) < 5 * 50);
  auto p = permutation(key, 100).to_vector<Index>();
  CHECK(!std::ranges::is_sorted(p));
  std::ranges::sort(p);
  for (Index i = 0; i < 100; ++i) CHECK(p[std::size_t(i)] == i);
  CHECK(permutation(key, 0).numel() == 0);
}

TEST_CASE("randint and permutation are the key's draws one after another, refused ones left out, for any number of threads") {
  for_every_target([] {
    for_threads([] {
      for (const Index range : {Index(1), Index(2), Index(7), Index(1000), Index(1) << 40, (Index(1) << 62) + 1, Index(INT64_MAX)})
        for (const Index n : {1, 31, 33, 10000}) {
          const Key key(n, int(range % 1000));
          const Tensor x = randint(key, {n}, -5, range - 5);
          Random random(key);
          Index wrong = 0;
          for (Index i = 0; i < n; ++i) wrong += x.data<Index>()[i] != random.below(range) - 5;
          CHECK(wrong == 0);
        }
      for (const Index n : {0, 1, 2, 33, 10000}) {
        std::vector<Index> order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), Index{0});
        Random(Key(n)).shuffle(std::span(order));
        CHECK(permutation(Key(n), n).to_vector<Index>() == order);
      }
    });
  });
}

TEST_CASE("multinomial: draw j of a row is where the key's number falls among the weights that are left, for any number of threads") {
  const Key key(5);
  for (const bool replacement : {true, false})
    for (const Index V : {1, 2, 3, 16, 17, 1000}) {
      const Index rows = 37, n = replacement ? 50 : std::min<Index>(V, 50);
      // sums of whole numbers are exact
      const Tensor whole = randint(key, {rows, V}, 1, 10), w = transpose(transpose(to(whole, DType::f64)).clone());
      const auto weights = doubles(w);
      Random random(key);
      std::vector<Index> drawn;
      for (Index r = 0; r < rows; ++r) {
        std::vector<double> left(weights.begin() + r * V, weights.begin() + (r + 1) * V);
        for (Index j = 0; j < n; ++j) {
          double u = random.uniform() * std::accumulate(left.begin(), left.end(), 0.0);
          std::size_t i = 0;
          while (u >= left[i]) u -= left[i++];
          drawn.push_back(Index(i));
          if (!replacement) left[i] = 0;
        }
      }
      for_threads([&] {
        CHECK(multinomial(key, w, n, replacement).to_vector<Index>() == drawn);
        CHECK(multinomial(key, to(w, DType::f32), n, replacement).to_vector<Index>() == drawn);
      });
      CHECK(multinomial(key, reshape(w, {1, rows, V}), n, replacement).shape() == Shape{1, rows, n});
    }
}

TEST_CASE("multinomial: shares of draws, of pairs without replacement; a weight of 0 is never drawn") {
  const Index n = 40000;
  const std::vector<double> w{0, 3, 0, 0.5, 1.5, 0, 0};                                 // of 5
  const Tensor row = tensor(w, {7}), rows = expand(unsqueeze(row, 0), {n, 7});
  const Tensor again = multinomial(Key(1), row, n, true), pairs = multinomial(Key(2), rows, 2), all_three = multinomial(Key(3), rows, 3);
  // four deviations
  const auto near = [](Index found, double p) { return std::abs(double(found) - double(n) * p) <= 4 * std::sqrt(double(n) * p * (1 - p)); };
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(near(std::ranges::count(again.span<Index>(), Index(i)), w[i] / 5));
    for (std::size_t k = 0; k < 7; ++k) {
      Index found = 0;
      for (Index r = 0; r < n; ++r) found += pairs.data<Index>()[2 * r] == Index(i) && pairs.data<Index>()[2 * r + 1] == Index(k);
      CHECK(near(found, i == k ? 0 : w[i] / 5 * w[k] / (5 - w[i])));
    }
  }
  for (Index r = 0; r < n; ++r) {
    auto three = all_three[r].to_vector<Index>();
    std::ranges::sort(three);
    REQUIRE(three == std::vector<Index>{1, 3, 4});
  }
  // sums that rounding makes: 0 beside what is small, all of a row however different
  const Tensor steep = tensor({1e-30, 0, 1e30, 0, 1e-300, 0}, DType::f64);
  auto all = multinomial(Key(4), steep, 3).to_vector<Index>();
  CHECK(all == std::vector<Index>{2, 0, 4});
  CHECK(multinomial(Key(4), ones({0, 5}), 3).shape() == Shape{0, 3});
  CHECK(multinomial(Key(4), ones({2, 5}), 0).shape() == Shape{2, 0});
}

TEST_CASE("random tensors: wrong arguments") {
  const Key key(1);
  CHECK_THROWS_WITH_AS(uniform(key, {2}, 1, 0), "uniform: lo must not exceed hi: lo 1, hi 0", Error);
  CHECK_THROWS_WITH_AS(uniform(key, {2}, 1 - 1e-12, 1), "uniform: no f32 lies between: lo 0.999999999999, hi 1", Error);
  CHECK(uniform(key, {2}, 1, 1 + 1e-12).to_vector<float>() == std::vector<float>{1, 1});
  CHECK(uniform(key, {2}, 1 - 1e-12, 1, DType::f64)[0].item() < 1);
  CHECK_THROWS_WITH_AS(uniform(key, {2}, -1.5e308, 1.5e308, DType::f64), "uniform: hi - lo must be finite: lo -1.5e+308, hi 1.5e+308",
                       Error);
  CHECK_THROWS_AS(uniform(key, {2}, 0, INFINITY), Error);
  CHECK_THROWS_AS(uniform(key, {2}, 0, 1, DType::i32), DTypeError);
  CHECK_THROWS_AS(normal(key, {2}, 0, -1), Error);
  CHECK_THROWS_AS(bernoulli(key, {2}, 1.5), Error);
  CHECK_THROWS_AS(randint(key, {2}, 3, 3), Error);
  CHECK_THROWS_AS(permutation(key, -1), Error);
  // of several wrong rows the first one is named, for any number of threads
  const Tensor few = ones({1000, 40});
  for (const Index r : {300, 301, 999}) copy_into(few(r, Slice{3, 40}), zeros({37}));
  for_threads([&] {
    CHECK_THROWS_WITH_AS(multinomial(key, few, 4),
                         "multinomial: without replacement a row has a draw for each weight above 0: row [300] has 3, needs 4", Error);
    CHECK(multinomial(key, few, 4, true).shape() == Shape{1000, 4});
  });
  CHECK_THROWS_WITH_AS(multinomial(key, full({2, 3}, 1e308, DType::f64), 1),
                       "multinomial: a row needs a finite sum of weights above 0: row [0] has inf", Error);
  for (const double wrong : {-1.0, double(NAN), double(INFINITY)}) CHECK_THROWS_AS(multinomial(key, tensor({1, wrong}), 1, true), Error);
}

TEST_CASE("random tensors: what f32 would round up to the bound stays below it") {
  for (const float x : uniform(Key(1), {1000}, 0.9999999, 1).to_vector<float>()) CHECK(x < 1);
}

static const InTable rows{{"dropout", reference::each([](double x) { return x; })}};   // where nothing trains
