// SPDX-License-Identifier: Apache-2.0
#include "tensor/gemm_bfloat16.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tensor/ops/linear.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/bfloat16.h"
#include "tests/close.h"
#include "tests/every_target.h"

using namespace heed;
using namespace heed::test;

namespace {

// x [rows, columns] by rows, by columns or spread out, in a buffer that is NaN elsewhere.
struct Matrix {
  Index row, column;
  std::vector<float> buffer;

  Matrix(Index rows, Index columns, Index layout, Random& random)
      : row(layout == 0 ? columns + random.below(9) : layout == 1 ? 1 : 3 * columns),
        column(layout == 0 ? 1 : layout == 1 ? rows + random.below(9) : 3),
        buffer(std::size_t(rows * row + columns * column + 1), NAN) {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) at(i, j) = float(random.uniform() - 0.5) * (random.below(50) == 0 ? 1e4f : 1.0f);
  }
  float& at(Index i, Index j) { return buffer[std::size_t(i * row + j * column)]; }
};

struct Witness {
  const Matrix& c;
  Index n;
  std::vector<int> calls;
  std::vector<float> seen;

  static void see(const void* self, Index row, Index rows, Index column, Index columns) {
    auto& w = *static_cast<Witness*>(const_cast<void*>(self));
    for (Index i = row; i < row + rows; ++i)
      for (Index j = column; j < column + columns; ++j) {
        ++w.calls[std::size_t(i * w.n + j)];
        w.seen[std::size_t(i * w.n + j)] = w.c.buffer[std::size_t(i * w.c.row + j * w.c.column)];
      }
  }
};

// The definition: operands rounded by BFloat16, sums in double. Each product is exact in f32 and each of the k additions rounds
// once, by half an ulp of a partial sum at most; twice that is allowed: |error| <= (k + 1) 2^-23 (|c| + Σ |a b|).
void compare_once(Index m, Index n, Index k, Random& random) {
  const bool add = random.below(2), finish = random.below(2), with_bias = random.below(2);
  Matrix a(m, k, random.below(3), random), b(k, n, random.below(3), random);
  const Matrix start(m, n, finish || with_bias ? 0 : random.below(3), random);
  Matrix bias(1, n, 0, random);
  INFO("m ", m, " n ", n, " k ", k, " a ", a.row, " ", a.column, " b ", b.row, " ", b.column, " c ", start.row, " ", start.column,
       add ? " add" : "", finish ? " finish" : "");
  std::vector<float> first;
  for_threads([&] {
    Matrix c = start;
    Witness witness{c, n, std::vector<int>(std::size_t(m * n)), std::vector<float>(std::size_t(m * n))};
    multiply_bfloat16({m, n, k, a.buffer.data(), a.row, a.column, b.buffer.data(), b.row, b.column, c.buffer.data(), c.row, c.column, add},
                      {finish ? &Witness::see : nullptr, &witness, with_bias ? bias.buffer.data() : nullptr});
    if (first.empty()) {
      first = c.buffer;
      Index wrong = 0;
      std::vector<char> written(c.buffer.size());
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
          const float before = start.buffer[std::size_t(i * c.row + j * c.column)];
          double sum = add ? double(before) : 0, size = std::abs(sum);
          for (Index l = 0; l < k; ++l) {
            const double term = double(float(BFloat16(a.at(i, l)))) * double(float(BFloat16(b.at(l, j))));
            sum += term;
            size += std::abs(term);
          }
          if (with_bias) sum += double(bias.at(0, j)), size += std::abs(double(bias.at(0, j)));
          wrong += !(std::abs(double(c.at(i, j)) - sum) <= double(k + 1) * 0x1p-23 * size);
          written[std::size_t(i * c.row + j * c.column)] = 1;
        }
      for (std::size_t i = 0; i < c.buffer.size(); ++i) wrong += !written[i] && !std::isnan(c.buffer[i]);   // neighbours untouched
      CHECK(wrong == 0);
    }
    Index differ = 0;
    for (std::size_t i = 0; i < first.size(); ++i)
      differ += std::bit_cast<std::uint32_t>(first[i]) != std::bit_cast<std::uint32_t>(c.buffer[i]);
    CHECK(differ == 0);
    Index unseen = 0;
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j)
        unseen += finish ? witness.calls[std::size_t(i * n + j)] != 1 || witness.seen[std::size_t(i * n + j)] != c.at(i, j) : 0;
    CHECK(unseen == 0);
  }, {1, 2, 3, 16});
}

void compare(Index m, Index n, Index k, Random& random) {
  with_and_without_amx([&] { compare_once(m, n, k, random); });
}

void check_rounding() {
  const auto product = [](float x, float y) {
    const Tensor a = zeros({16, 3}), b = zeros({3, 16}), c = empty({16, 16});
    a.mutable_data<float>()[7] = x;   // row 2, k 1
    b.mutable_data<float>()[16 + 5] = y;
    multiply_bfloat16({16, 16, 3, a.data<float>(), 3, 1, b.data<float>(), 16, 1, c.mutable_data<float>(), 16, 1, false});
    return c(2, 5).item();
  };
  CHECK(product(1 + 0x1p-8f, 1) == 1);                       // ties: to the even neighbour below
  CHECK(product(1 + 3 * 0x1p-8f, 1) == 1 + 0x1p-6);          // and above
  CHECK(product(1 + 0x1p-8f + 0x1p-20f, 1) == 1 + 0x1p-7);
  CHECK(product(-3.4028234e38f, 1) == -HUGE_VAL);            // beyond the largest
  CHECK(product(HUGE_VALF, -2) == -HUGE_VAL);
  CHECK(std::isnan(product(NAN, 1)));
  CHECK(std::isnan(product(1, std::bit_cast<float>(0x7f800001u))));   // its upper half alone would be infinity
  CHECK(product(0x1p-130f, 0x1p100f) == 0);                  // below 2^-126
  CHECK(product(0x1p-126f, 0x1p100f) == 0x1p-26);
  Random random(Key(Seed{3}));
  for (const float value : {NAN, HUGE_VALF}) {               // as far as it reaches, no further
    Matrix a(50, 70, 0, random), b(70, 90, 0, random), c(50, 90, 0, random);
    a.at(20, 69) = value;
    multiply_bfloat16({50, 90, 70, a.buffer.data(), a.row, 1, b.buffer.data(), b.row, 1, c.buffer.data(), c.row, 1, false});
    Index wrong = 0;
    for (Index i = 0; i < 50; ++i)
      for (Index j = 0; j < 90; ++j) wrong += std::isfinite(c.at(i, j)) == (i == 20);
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE(
    "bfloat16 products: random sizes, strides, starts and finishes within the bound of the sums; the same bits for any number of threads") {
  if (!bfloat16_there()) return;
  Random random(Key(Seed{12}));
  for (int i = 0; i < 150; ++i) {
    const Index most[] = {1, 8, 40, 150, 300};
    const Index m = 1 + random.below(most[random.below(5)]), n = 1 + random.below(most[random.below(5)]),
                k = random.below(most[random.below(5)]);
    compare(m, n, k, random);
  }
  for (const auto& [m, n, k] :
       {std::array<Index, 3>{1, 300, 513}, {300, 1, 700}, {14, 32, 512}, {15, 33, 1025}, {60, 700, 31}, {300, 520, 64}, {17, 16, 3000}})
    for (int i = 0; i < 4; ++i) compare(m, n, k, random);
}

TEST_CASE("bfloat16 products: large operands in parts of k, one chain") {
  if (!bfloat16_there()) return;
  const Index m = 40, n = 12000, k = 1500;   // more than is packed at a time
  const Tensor a = normal(Key(Seed{1}), {m, k}), b = normal(Key(Seed{2}), {n, k}), whole = empty({m, n}), parts = empty({m, n});
  const auto product = [&](const Tensor& c, Index first, Index some, bool add) {
    multiply_bfloat16({m, n, some, a.data<float>() + first, k, 1, b.data<float>() + first, 1, k, c.mutable_data<float>(), n, 1, add});
  };
  with_and_without_amx([&] {
    product(whole, 0, k, false);
    for (Index first = 0; first < k; first += 96) product(parts, first, std::min<Index>(96, k - first), first > 0);   // whole steps of AMX
    CHECK(std::ranges::equal(whole.span<float>(), parts.span<float>()));
  });
}

TEST_CASE("bfloat16 products: operands are rounded to nearest even; NaN, infinity and tiny numbers") {
  if (bfloat16_there()) with_and_without_amx(check_rounding);
}

TEST_CASE("product precision: reaches linear and matmul of this thread, forward and backward, while it lives") {
  if (!bfloat16_there()) return;
  const auto rounded = [](const Tensor& x) { return to(to(x, DType::bf16), DType::f32); };
  const auto near = [](const Tensor& a, const Tensor& b, double tolerance) { return worst_absolute(a, b) <= tolerance; };
  const Tensor x = normal(Key(Seed{1}), {3, 20, 48}), w = normal(Key(Seed{2}), {32, 48}), bias = normal(Key(Seed{3}), {32}),
               dy = normal(Key(Seed{4}), {3, 20, 32});
  const Tensor many = normal(Key(Seed{5}), {640, 16, 24}), others = normal(Key(Seed{6}), {640, 24, 16});
  const LinearFusion relu{.activation = Activation::relu};
  const auto all = [&] {
    Tensor dx = empty(x.shape()), dw = empty(w.shape());
    linear_grad_x(dy, w, {dx});
    const Tensor db = empty({32}), alone = empty({32});
    const Into into{db};
    linear_grad_weight(dy, x, {dw}, &into);
    linear_grad_bias(dy, 48, {alone});
    CHECK(equal_bits(db, alone));
    return std::vector<Tensor>{linear(x, w, bias, relu).y, dx, dw, matmul(many, others)};
  };
  const std::vector<Tensor> plain = all();
  Tensor dx = empty(x.shape()), dw = empty(w.shape());
  linear_grad_x(rounded(dy), rounded(w), {dx});
  linear_grad_weight(rounded(dy), rounded(x), {dw});
  const std::vector<Tensor> expected{linear(rounded(x), rounded(w), bias, relu).y, dx, dw, matmul(rounded(many), rounded(others))};
  {
    const ProductPrecision precision(Precision::bfloat16);
    CHECK(product_precision() == Precision::bfloat16);
    for_threads([&] {
      const std::vector<Tensor> low = all();
      for (std::size_t i = 0; i < low.size(); ++i) {
        INFO(i);
        CHECK(near(low[i], expected[i], 1e-4));
        CHECK_FALSE(near(low[i], plain[i], 1e-3));
      }
    });
    const ProductPrecision inner(Precision::float32);
    CHECK(near(all()[0], plain[0], 0));
  }
  CHECK(product_precision() == Precision::float32);
  CHECK(near(all()[3], plain[3], 0));
}

TEST_CASE("product precision: a processor without the instructions") {
  const WithoutBFloat16 elsewhere;
  CHECK(!has_bfloat16_products());
  CHECK_THROWS_WITH_AS((void)ProductPrecision{Precision::bfloat16},
                       "product precision: bfloat16 needs AVX512-BF16, which this processor lacks; float32", Error);
  CHECK_THROWS_WITH_AS(multiply_bfloat16({}), "bfloat16 products: this processor has no AVX512-BF16; Precision::float32", Error);
  CHECK(product_precision() == Precision::float32);
}
