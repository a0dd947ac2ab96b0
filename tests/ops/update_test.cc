// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/update.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tensor/test_hooks.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

constexpr UpdateConstants kConstants{.rate = 0.1, .gradient_scale = 0.5, .weight_decay = 0.01, .momentum = 0.9, .keep = 0.8, .beta1 = 0.9,
                                     .beta2 = 0.99, .root = 3, .eps = 1e-3, .decay = 0.02};

// The formulas of update.h on one element.
void naive(Update kind, const UpdateConstants& c, double& w, double g, double& s0, double& s1) {
  if (kind == Update::average) { w = c.beta1 * w + (1 - c.beta1) * g; return; }
  g *= c.gradient_scale;
  if (kind == Update::adamw) w *= 1 - c.decay;
  else g += c.weight_decay * w;
  switch (kind) {
    case Update::sgd: w -= c.rate * g; break;
    case Update::momentum: s0 = c.momentum * s0 + c.keep * g; w -= c.rate * s0; break;
    case Update::nesterov: s0 = c.momentum * s0 + c.keep * g; w -= c.rate * (g + c.momentum * s0); break;
    case Update::adam: case Update::adamw:
      s0 = c.beta1 * s0 + (1 - c.beta1) * g;
      s1 = c.beta2 * s1 + (1 - c.beta2) * g * g;
      w -= c.rate * s0 / (std::sqrt(s1) * c.root + c.eps);
      break;
    case Update::adagrad: s0 += g * g; w -= c.rate * g / (std::sqrt(s0) + c.eps); break;
    case Update::adadelta: {
      s0 = c.beta2 * s0 + (1 - c.beta2) * g * g;
      const double d = g * std::sqrt(s1 + c.eps) / std::sqrt(s0 + c.eps);
      s1 = c.beta2 * s1 + (1 - c.beta2) * d * d;
      w -= c.rate * d;
      break;
    }
    case Update::rmsprop: s0 = c.beta2 * s0 + (1 - c.beta2) * g * g; w -= c.rate * g / (std::sqrt(s0) + c.eps); break;
    case Update::rmsprop_momentum:
      s0 = c.beta2 * s0 + (1 - c.beta2) * g * g;
      s1 = c.momentum * s1 + g / (std::sqrt(s0) + c.eps);
      w -= c.rate * s1;
      break;
    case Update::average: break;
  }
}

const Update kAll[] = {Update::sgd,      Update::momentum, Update::nesterov,         Update::adam,   Update::adamw, Update::adagrad,
                       Update::adadelta, Update::rmsprop,  Update::rmsprop_momentum, Update::average};

}  // namespace

TEST_CASE("update: every rule equals its formula on every target, with odd sizes") {
  for_every_target([] {
    for (Update kind : kAll)
      for (Index n : {0, 1, 15, 33, 4096, 9001}) {
        const Key key(Seed{std::uint64_t(n)});
        const Tensor w = normal(key / 0, {n}, 0, 1, DType::f64), g = normal(key / 1, {n}, 0, 1, DType::f64);
        const Tensor s0 = uniform(key / 2, {n}, 0.1, 1, DType::f64), s1 = uniform(key / 3, {n}, 0.1, 1, DType::f64);
        auto ew = w.to_vector<double>(), e0 = s0.to_vector<double>(), e1 = s1.to_vector<double>();
        const auto eg = g.to_vector<double>();
        const Tensor w32 = to(w, DType::f32), g32 = to(g, DType::f32), s32 = to(s0, DType::f32), t32 = to(s1, DType::f32);
        const UpdateItem items[] = {{kind, w, g, {s0, s1}, kConstants}};
        const UpdateItem items32[] = {{kind, w32, g32, {s32, t32}, kConstants}};
        update(items);
        update(items32);
        for (std::size_t i = 0; i < std::size_t(n); ++i) {
          naive(kind, kConstants, ew[i], eg[i], e0[i], e1[i]);
          REQUIRE(w.span<double>()[i] == doctest::Approx(ew[i]).epsilon(1e-13));
          REQUIRE(s0.span<double>()[i] == doctest::Approx(e0[i]).epsilon(1e-13));
          REQUIRE(s1.span<double>()[i] == doctest::Approx(e1[i]).epsilon(1e-13));
          REQUIRE(std::abs(w32.span<float>()[i] - ew[i]) <= 2e-6 * std::max(1.0, std::abs(ew[i])));
          REQUIRE(std::abs(s32.span<float>()[i] - e0[i]) <= 2e-6 * std::max(1.0, std::abs(e0[i])));
          REQUIRE(std::abs(t32.span<float>()[i] - e1[i]) <= 2e-6 * std::max(1.0, std::abs(e1[i])));
        }
      }
  });
}

TEST_CASE("update: the first of an item does not read its states, on every target") {
  for_every_target([] {
    for (Update kind : kAll)
      for (DType dtype : {DType::f32, DType::f64})
        for (double start : {0.0, 0.3}) {
          const Index n = 5003;
          std::vector<Tensor> results;
          for (const bool first : {false, true}) {
            UpdateConstants constants = kConstants;
            constants.start = start;
            const Tensor w = normal(Key(Seed{1}), {n}, 0, 1, dtype), g = normal(Key(Seed{2}), {n}, 0, 1, dtype);
            fill_(g(Slice{0, 3}), -0.0);           // 0 β + (-0) is 0
            const Tensor s0 = full({n}, first ? -1 : start, dtype), s1 = full({n}, first ? -1 : 0, dtype);
            const UpdateItem items[] = {{kind, w, g, {s0, s1}, constants, first}};
            update(items);
            const std::array<bool, 2> written{!equal_bits(s0, full({n}, first ? -1 : start, dtype)),
                                              !equal_bits(s1, full({n}, first ? -1 : 0, dtype))};
            results.push_back(w);
            if (written[0]) results.push_back(s0);
            if (written[1]) results.push_back(s1);
          }
          REQUIRE(results.size() % 2 == 0);
          const std::size_t half = results.size() / 2;
          for (std::size_t i = 0; i < half; ++i) CHECK(equal_bits(results[i], results[half + i]));
        }
  });
}

TEST_CASE("update: values that are stored past the caches have the same bits, at any address, on every target") {
  for_every_target([] {
    for (Update kind : kAll)
      for (DType dtype : {DType::f32, DType::f64})
        for (Index start : {0, 1, 16}) {
          const Index n = 5003;
          std::vector<Tensor> results;
          for (const bool apart : {false, true}) {
            part_caches(apart);
            const auto draw = [&](std::uint64_t key, double low) {
              return slice(uniform(Key(Seed{key}), {n + 40}, low, 1, dtype), 0, start, start + n);
            };
            const Tensor w = draw(1, -1), g = draw(2, -1), s0 = draw(3, 0.1), s1 = draw(4, 0.1);
            const UpdateItem items[] = {{kind, w, g, {s0, s1}, kConstants}};
            update(items);
            part_caches(false);
            results.push_back(stack({w, s0, s1}));
          }
          CHECK(equal_bits(results[0], results[1]));
        }
  });
}

TEST_CASE("update and norm_of_all: tensors of all sizes at once as one after the other") {
  const Index sizes[] = {0, 128, 4096, 1, 50'001, 4097, 0, 8192, 12'289, 3, 70'000, 64};
  for_threads([&] {
    std::vector<Tensor> together, alone;
    std::vector<UpdateItem> items;
    double squares = 0;
    for (const Index n : sizes) {
      const Tensor w = normal(Key(Seed{std::uint64_t(n)}), {n}), g = normal(Key(Seed{std::uint64_t(n + 1)}), {n});
      together.push_back(w.clone()), alone.push_back(w.clone());
      items.push_back({Update::momentum, together.back(), g, {zeros({n})}, kConstants});
      const UpdateItem one[] = {{Update::momentum, alone.back(), g, {zeros({n})}, kConstants}};
      update(one);
      squares += sum_of_squares(alone.back());
    }
    update(items);
    for (std::size_t i = 0; i < together.size(); ++i) CHECK(equal_bits(together[i], alone[i]));
    CHECK(norm_of_all(together) == doctest::Approx(std::sqrt(squares)).epsilon(1e-14));
  });
}

TEST_CASE("update and norm_of_all: same bits for 1, 2 and 3 threads; wrong items change nothing") {
  std::vector<float> first;
  double norm = -1;
  for_threads([&] {
    const Tensor w = normal(Key(Seed{1}), {100'003}), g = normal(Key(Seed{2}), {100'003}), m = zeros({100'003}), v = zeros({100'003});
    const UpdateItem items[] = {{Update::adam, w, g, {m, v}, kConstants}};
    update(items);
    const double n = norm_of_all(std::vector{w, g(Slice{0, 5})});
    if (norm < 0) { first = w.to_vector<float>(); norm = n; }
    CHECK(w.to_vector<float>() == first);
    CHECK(n == norm);
  });
  CHECK(norm_of_all(std::vector{heed::tensor({3, 0}), heed::tensor(std::vector<double>{4}, {1})}) == 5);
  const Tensor w = ones({3}), g = ones({3}), bad = ones({4});
  const UpdateItem items[] = {{Update::sgd, w, g, {}, kConstants}, {Update::sgd, w, bad, {}, kConstants}};
  CHECK_THROWS_WITH_AS(update(items), doctest::Contains("gradient [4], value [3]"), ShapeError);
  const UpdateItem mixed[] = {{Update::sgd, w, ones({3}, DType::f64), {}, kConstants}};
  CHECK_THROWS_AS(update(mixed), DTypeError);
  CHECK(w.to_vector<float>() == std::vector<float>{1, 1, 1});
}
