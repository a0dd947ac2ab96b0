// SPDX-License-Identifier: Apache-2.0
#include "tensor/low_precision.h"

#include <doctest/doctest.h>

#include <cmath>
#include <thread>

#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tensor/packed.h"
#include "tests/bfloat16.h"
#include "tests/every_target.h"

using namespace heed;
using namespace heed::test;

namespace {

Tensor product(const Tensor& x, const Tensor& weight, Precision precision, const Tensor& bias = {}, const LinearFusion& fusion = {}) {
  PackedWeights weights(precision);
  const PackedWeights::Use use(weights);
  full({x.size(0), weight.size(0)}, 7);   // what the result's memory held before
  return linear(x, weight, bias, fusion).y;
}

// y[r, o] = (Σ_i u q) t s_o by the formulas of low_precision.h, one number after another.
Tensor int8_product(const Tensor& x, const Tensor& weight) {
  const Index rows = x.size(0), in = x.size(1), count = weight.size(0);
  const Tensor y = empty({rows, count});
  const auto quantised = [in](const float* row, std::vector<int>& q) {
    float most = 0;
    for (Index i = 0; i < in; ++i) most = std::max(most, std::abs(row[i]));
    q.assign(std::size_t(in), 0);
    for (Index i = 0; i < in && most > 0; ++i) q[std::size_t(i)] = int(std::nearbyint(row[i] * (127 / most)));
    return most / 127;
  };
  std::vector<int> u, q;
  for (Index r = 0; r < rows; ++r) {
    const float t = quantised(x.data<float>() + r * in, u);
    for (Index o = 0; o < count; ++o) {
      const float s = quantised(weight.data<float>() + o * in, q);
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < std::size_t(in); ++i) sum += std::int64_t(u[i]) * q[i];
      y.mutable_data<float>()[r * count + o] = float(sum) * t * s;
    }
  }
  return y;
}

struct Sizes {
  Index rows, out, in;
};
const Sizes kSizes[] = {{1, 1, 1},      {2, 3, 5},      {3, 64, 8},    {5, 65, 31},    {6, 130, 33},
                        {7, 66, 34},    {13, 48, 35},   {33, 300, 64}, {129, 260, 40}, {4, 500, 700},
                        {300, 257, 96}, {8, 4000, 256}, {3, 7, 0},     {3, 70, 0},     {0, 7, 3}};

}  // namespace

TEST_CASE("low precision: int8 is the integer product, on every target, with any number of threads") {
  for (const Sizes& s : kSizes) {
    INFO("rows, out, in ", s.rows, " ", s.out, " ", s.in);
    const Tensor x = normal(Key(Seed{1}), {s.rows, s.in}), w = normal(Key(Seed{2}), {s.out, s.in}), bias = normal(Key(Seed{3}), {s.out});
    const Tensor expected = int8_product(x, w);
    for_every_target([&] {
      CAPTURE(instruction_set());
      with_and_without_amx([&] {
        for_threads([&] {
          CHECK(equal_bits(product(x, w, Precision::int8), expected));
          CHECK(equal_bits(product(x, w, Precision::int8, bias), expected + bias));
        }, {1, 2, 3, 16});
      });
      CHECK(equal_bits(product(transpose(transpose(x).clone()), transpose(transpose(w).clone()), Precision::int8), expected));
    });
  }
}

TEST_CASE("low precision: the integer kernels agree where numbers are largest") {
  const Index in = LowPrecisionWeight::kMostInputs;
  for (const float sign : {1.0f, -1.0f}) {
    const Tensor x = full({2, in}, sign), w = full({3, in}, -2);
    for (Index i = 0; i < in; ++i) w.mutable_data<float>()[2 * in + i] = 2;
    for_every_target([&] {
      CAPTURE(instruction_set());
      with_and_without_amx([&] {
        const Tensor y = product(x, w, Precision::int8);
        for (Index i = 0; i < 6; ++i) CHECK(std::abs(y.data<float>()[i] - (i % 3 == 2 ? 2 : -2) * sign * float(in)) < 0.1f);
      });
    });
  }
  CHECK_THROWS_WITH_AS(LowPrecisionWeight(zeros({1, in + 1}), Precision::int8),
                       doctest::Contains("int8 takes at most 65536 inputs: weight [1, 65537]"), ShapeError);
}

TEST_CASE(
    "low precision: bfloat16 is the product with rounded weights, or of what is rounded, on every target, with any number of threads") {
  for (const Sizes& s : kSizes) {
    INFO("rows, out, in ", s.rows, " ", s.out, " ", s.in);
    const Tensor x = normal(Key(Seed{1}), {s.rows, s.in}), w = normal(Key(Seed{2}), {s.out, s.in}), bias = normal(Key(Seed{3}), {s.out});
    const Tensor rounded = to(to(w, DType::bf16), DType::f32);
    const LinearFusion fusion{.activation = Activation::gelu, .residual = normal(Key(Seed{4}), {s.rows, s.out})};
    const auto check_all = [&](const Tensor& plain, const Tensor& fused) {
      for_threads([&] {
        CHECK(equal_bits(product(x, w, Precision::bfloat16), plain));
        CHECK(equal_bits(product(x, w, Precision::bfloat16, bias, fusion), fused));
      }, {1, 2, 3, 16});
    };
    for_every_target([&] {
      const WithoutBFloat16 elsewhere;
      CAPTURE(instruction_set());
      CHECK(equal_bits(LowPrecisionWeight(w, Precision::bfloat16).values(), rounded));
      check_all(linear(x, rounded, {}).y, linear(x, rounded, bias, fusion).y);
    });
    if (!has_bfloat16_products()) continue;
    with_and_without_amx([&] {
      const Tensor plain = empty({s.rows, s.out});
      multiply_bfloat16(
          {s.rows, s.out, s.in, x.data<float>(), s.in, 1, w.data<float>(), 1, s.in, plain.mutable_data<float>(), s.out, 1, false});
      check_all(plain, fusion.residual + gelu(plain + bias));
    });
  }
}

TEST_CASE("low precision: rows of zeros, of tiny numbers, and rows that are not finite") {
  const Tensor w = normal(Key(Seed{1}), {70, 9}), x = zeros({5, 9});
  float* const p = x.mutable_data<float>();
  p[9] = 1e-40f;
  p[18 + 3] = NAN;
  p[27 + 4] = INFINITY;
  p[36] = 1;
  for_every_target([&] {
    const Tensor y = product(x, w, Precision::int8, full({70}, 3));
    for (Index o = 0; o < 70; ++o) {
      CHECK(y.data<float>()[o] == 3);
      CHECK(y.data<float>()[70 + o] == 3);
      CHECK(std::isnan(y.data<float>()[140 + o]));
      CHECK(std::isnan(y.data<float>()[210 + o]));
      CHECK(y.data<float>()[280 + o] == doctest::Approx(3 + w.data<float>()[o * 9]).epsilon(0.02));
    }
  });
  w.mutable_data<float>()[9 * 2 + 1] = NAN;
  const Tensor y = product(x, w, Precision::int8);
  CHECK(std::isnan(y.data<float>()[280 + 2]));
  CHECK(std::isfinite(y.data<float>()[280 + 3]));
}

TEST_CASE("low precision: values are within half a step") {
  const Tensor w = normal(Key(Seed{1}), {70, 33});
  const Tensor int8 = LowPrecisionWeight(w, Precision::int8).values(), bfloat16 = LowPrecisionWeight(w, Precision::bfloat16).values();
  for (Index o = 0; o < 70; ++o) {
    float most = 0;
    for (Index i = 0; i < 33; ++i) most = std::max(most, std::abs(w.data<float>()[o * 33 + i]));
    for (Index i = 0; i < 33; ++i) {
      const float v = w.data<float>()[o * 33 + i];
      CHECK(std::abs(int8.data<float>()[o * 33 + i] - v) <= most / 127 * 0.5001f);
      CHECK(std::abs(bfloat16.data<float>()[o * 33 + i] - v) <= std::abs(v) / 256);
    }
  }
}

TEST_CASE("low precision: errors") {
  CHECK_THROWS_WITH_AS(precision_named("int4"), "precision: unknown name \"int4\"; one of float32, bfloat16, int8", Error);
  CHECK_THROWS_WITH_AS(LowPrecisionWeight(zeros({2, 3}), Precision::float32), doctest::Contains("float32 is not lower"), Error);
  CHECK_THROWS_WITH_AS(LowPrecisionWeight(zeros({2, 3, 4}), Precision::int8), doctest::Contains("weight [2, 3, 4]"), ShapeError);
  CHECK_THROWS_WITH_AS(LowPrecisionWeight(zeros({2, 3}, DType::f64), Precision::int8), doctest::Contains("must be f32: weight f64"),
                       DTypeError);
  CHECK_THROWS_WITH_AS(product(zeros({1, 4}), zeros({2, 3}), Precision::int8),
                       doctest::Contains("inner sizes differ: x [1, 4], weight [2, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(product(zeros({1, 3}, DType::f64), zeros({2, 3}, DType::f64), Precision::int8),
                       doctest::Contains("must be f32: weight f64"), DTypeError);
}

TEST_CASE("low precision: a weight that was written is packed anew; another thread's products stay as they are") {
  const Tensor x = normal(Key(Seed{1}), {4, 20}), w = normal(Key(Seed{2}), {30, 20}), whole = linear(x, w, {}).y;
  PackedWeights weights(Precision::int8);
  {
    const PackedWeights::Use use(weights);
    const Tensor first = linear(x, w, {}).y;
    CHECK(!equal_bits(first, whole));
    CHECK(equal_bits(linear(x, w, {}).y, first));
    std::thread([&] { CHECK(equal_bits(linear(x, w, {}).y, whole)); }).join();
    fill_(w, 0.5);
    CHECK(equal_bits(linear(x, w, {}).y, int8_product(x, w)));
  }
  CHECK(PackedWeights::current() == nullptr);
}
