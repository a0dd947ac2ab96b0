// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/matmul.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/gemm.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tensor/random.h"
#include "tensor/test_hooks.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

Tensor draw(const Shape& shape, DType dtype, int name) { return uniform(Key(Seed{5}) / name, shape, -1, 1, dtype); }

// c[i, j] = start[i, j] + Σ_k a[i, k] b[k, j] in double
std::vector<double> product(const Tensor& a, const Tensor& b, const Tensor& start = {}) {
  std::vector<double> c;
  for (Index i = 0; i < a.size(0); ++i)
    for (Index j = 0; j < b.size(1); ++j) {
      double sum = start.defined() ? start(i, j).item() : 0;
      for (Index k = 0; k < a.size(1); ++k) sum += a(i, k).item() * b(k, j).item();
      c.push_back(sum);
    }
  return c;
}

// A chain of k terms below 1 is off by at most about k ε Σ|terms|.
double tolerance(DType dtype, Index k) { return double(k + 1) * double(k + 1) * (dtype == DType::f32 ? 0x1p-24 : 0x1p-53); }

// x [m, n] in one of several layouts: as it is, by columns, every second element of a larger one, rows backwards.
constexpr int kLayouts = 4;
Tensor laid_out(const Tensor& x, int layout) {
  if (layout == 1) return transpose(transpose(x).clone());
  if (layout == 2) {
    const Tensor room = full({2 * x.size(0) + 1, 2 * x.size(1) + 1}, NAN, x.dtype());
    const Tensor view = room(Slice{1, Slice::kToEnd, 2}, Slice{1, Slice::kToEnd, 2});
    copy_into(view, x);
    return view;
  }
  if (layout == 3) return flip(flip(x, {0}).clone(), {0});
  return x.clone();
}

// One element of matmul_over_rows: rows [half, N) before [0, half) where `late`.
template <class T> T chain_over_rows(const Tensor& a, const Tensor& b, Index i, Index j, T sum, bool late, Index half) {
  const T* const x = a.data<T>() + i * a.strides()[1];
  const T* const y = b.data<T>() + j * b.strides()[1];
  const Index N = a.size(0);
  for (Index r = late ? half : 0, left = N; left > 0; --left, r = (r + 1) % N) {
    const T left_value = x[r * a.strides()[0]], right_value = y[r * b.strides()[0]];
    sum = has_fma() ? std::fma(left_value, right_value, sum) : sum + left_value * right_value;
  }
  return sum;
}

}  // namespace

TEST_CASE("matmul: equals naive loops for every layout, size, start and target") {
  for (DType dtype : {DType::f32, DType::f64})
    for (const auto [m_, n_, k_] : {std::array<Index, 3>{1, 1, 1},
                                    {1, 70, 33},
                                    {2, 64, 20},
                                    {5, 17, 9},
                                    {7, 3, 40},
                                    {14, 32, 64},
                                    {15, 33, 65},
                                    {29, 100, 130},
                                    {40, 1, 50},
                                    {130, 49, 21},
                                    {200, 64, 33}}) {
      const Index m = m_, n = n_, k = k_;  // clang 14 captures no structured binding
      const Tensor a = draw({m, k}, dtype, 1), b = draw({k, n}, dtype, 2), start = draw({m, n}, dtype, 3);
      const auto plain = product(a, b), added = product(a, b, start);
      INFO("m ", m, " n ", n, " k ", k);
      for_every_target([&] {
        for (int i = 0; i < kLayouts * kLayouts * kLayouts; ++i) {
          const Tensor x = laid_out(a, i % kLayouts), y = laid_out(b, i / kLayouts % kLayouts);
          const Tensor c = laid_out(full({m, n}, NAN, dtype), i / kLayouts / kLayouts),
                       d = laid_out(start, i / kLayouts / kLayouts);
          matmul(x, y, {c});
          matmul(x, y, {d, true});
          CHECK(worst_absolute(c, plain) <= tolerance(dtype, k));
          CHECK(worst_absolute(d, added) <= tolerance(dtype, k));
        }
      });
    }
}

TEST_CASE("matmul: one chain in rising k, whatever the blocks") {
  const Index m = 150, n = 90, k = 700;
  const Tensor a = draw({m, k}, DType::f32, 1), b = draw({k, n}, DType::f32, 2), c = draw({m, n}, DType::f32, 3), d = c.clone();
  matmul(a, b, {d, true});
  const bool fma = has_fma();
  Index wrong = 0;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      float sum = c(i, j).item<float>();
      for (Index l = 0; l < k; ++l) {
        const float x = a.span<float>()[std::size_t(i * k + l)], y = b.span<float>()[std::size_t(l * n + j)];
        sum = fma ? std::fma(x, y, sum) : sum + x * y;
      }
      wrong += sum != d(i, j).item<float>();
    }
  CHECK(wrong == 0);
}

TEST_CASE("matmul: a long k, made in parts, is one chain") {
  const Index m = 150, k = 7300, n = 610;
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = draw({m, k}, dtype, 0), b = draw({k, n}, dtype, 1), bias = draw({n}, dtype, 2), sum = draw({m, n}, dtype, 3),
                 start = sum.clone();
    const Tensor c = matmul(a, b);
    matmul(a, b, {sum, true});
    const Tensor biased = linear(a, transpose(b), bias).y;
    for (Index i : {0, 77, 149}) {
      const Tensor row = slice(a, 0, i, i + 1);
      CHECK(equal_bits(matmul(row, b), slice(c, 0, i, i + 1)));
      const Tensor added = slice(start, 0, i, i + 1).clone();
      matmul(row, b, {added, true});
      CHECK(equal_bits(added, slice(sum, 0, i, i + 1)));
      CHECK(equal_bits(linear(row, transpose(b), bias).y, slice(biased, 0, i, i + 1)));
    }
  }
}

TEST_CASE("matmul: same bits for threads, targets with FMA, and a row alone") {
  for (DType dtype : {DType::f32, DType::f64})
    for (const auto [m_, n_, k_] :
         {std::array<Index, 3>{64, 768, 256}, {301, 200, 333}, {4, 1000, 300}, {1, 4000, 64}, {70, 5000, 40}, {3000, 3, 70}}) {
      const Index m = m_, n = n_, k = k_;  // clang 14 captures no structured binding
      const Tensor a = draw({m, k}, dtype, 1), b = draw({n, k}, dtype, 2), c = matmul(a, transpose(b));
      INFO("m ", m, " n ", n, " k ", k);
      for_threads([&] { CHECK(equal_bits(matmul(a, transpose(b)), c)); });
      for_every_fma_target([&] { CHECK(equal_bits(matmul(a, transpose(b)), c)); });
      for (Index i : {Index{0}, m / 2, m - 1}) CHECK(equal_bits(matmul(a[i], transpose(b)), c[i]));
      CHECK(equal_bits(matmul(a, b[n - 1]), c(all, -1)));
      CHECK(equal_bits(matmul(slice(a, 0, m / 3), transpose(b)), slice(c, 0, m / 3)));
      CHECK(equal_bits(matmul(a, transpose(slice(b, 0, n / 3))), slice(c, 1, n / 3)));
    }
}

TEST_CASE(
    "matmul_over_rows: the upper half of the result begins in the middle of the rows, in every layout, for threads, chunks in any order "
    "and targets") {
  const auto check = [](auto zero, Index N, Index m, Index n, bool halves) {
    using T = decltype(zero);
    const DType dtype = sizeof(T) == 4 ? DType::f32 : DType::f64;
    for (int layout = 0; layout < 3; ++layout) {
      const Tensor a = layout == 0   ? draw({N, m}, dtype, 1)
                       : layout == 1 ? slice(draw({N, m + 9}, dtype, 1), 1, 5, m + 5)
                                     : transpose(draw({m, N}, dtype, 1));
      const Tensor b = layout == 0   ? draw({N, n}, dtype, 2)
                       : layout == 1 ? transpose(draw({n, N}, dtype, 2))
                                     : slice(draw({N, n + 7}, dtype, 2), 1, 0, n);
      const Tensor start = draw({m, n}, dtype, 3), c = layout == 2 ? transpose(empty({n, m}, dtype)) : empty({m, n}, dtype);
      INFO("N ", N, " m ", m, " n ", n, " layout ", layout);
      for_every_target([&] {
        const Tensor expected = start.clone();
        for (Index i = 0; i < m; i += 1 + m / 40)
          for (Index j = 0; j < n; j += 1 + n / 20)
            copy_into(expected(i, j),
                      full({}, chain_over_rows(a, b, i, j, start(i, j).item<T>(), halves && i < half_of(m), half_of(N)), dtype));
        const auto differences = [&] {
          copy_into(c, start);
          matmul_over_rows(a, b, {c, true});
          Index wrong = 0;
          for (Index i = 0; i < m; i += 1 + m / 40)
            for (Index j = 0; j < n; j += 1 + n / 20) wrong += c(i, j).item<T>() != expected(i, j).item<T>();
          return wrong;
        };
        for_threads([&] { CHECK(differences() == 0); });
        shuffle_chunks(5);
        CHECK(differences() == 0);
        shuffle_chunks(0);
        copy_into(c, full({m, n}, NAN, dtype));
        matmul_over_rows(a, b, {c});
        const Tensor from_zero = zeros({m, n}, dtype);
        matmul_over_rows(a, b, {from_zero, true});
        CHECK(equal_bits(c.clone(), from_zero));
        const Tensor ones_column = ones({N, 1}, dtype), every_other = draw({m, 2}, dtype, 4)(all, 1), before = every_other.clone(),
                     sums = empty({m}, dtype), alone = empty({m}, dtype);
        for_threads([&] {
          for (const bool add : {false, true}) {
            copy_into(sums, before), copy_into(alone, before);
            const Into into{sums, add};
            matmul_over_rows(a, b, {c}, &into);
            CHECK(equal_bits(c.clone(), from_zero));
            sum_over_rows(a, n, {alone, add});
            CHECK(equal_bits(sums, alone));
            Index wrong = 0;
            for (Index i = 0; i < m; ++i)
              wrong += sums(i).item<T>() !=
                       chain_over_rows(a, ones_column, i, 0, add ? before(i).item<T>() : T(0), halves && i < half_of(m), half_of(N));
            CHECK(wrong == 0);
          }
        }, {1, 2, 5});
        const Into strided{every_other, true};
        matmul_over_rows(a, b, {c}, &strided);
        CHECK(worst_absolute(every_other, doubles(sums)) < (sizeof(T) == 4 ? 1e-4 : 1e-12));
      });
    }
  };
  check(0.0f, 1000, 130, 70, true);
  check(0.0f, 301, 411, 48, true);
  check(0.0f, 301, 64, 411, true);
  check(0.0f, 256, 33, 512, true);   // fewer rows in the lower half than chunks
  check(0.0, 301, 211, 101, true);
  check(0.0f, 255, 411, 70, false);
  check(0.0f, 999, 31, 200, false);
}

TEST_CASE("matmul_over_rows: many rows are summed in parts, many columns are made in parts") {
  const Index most = 2048, n = 2000;   // most * n: less than 16 MiB
  for (const Index N : {2049, 2053, 2070, 2400}) {
    const Tensor a = draw({N, 40}, DType::f32, 1), b = draw({N, n}, DType::f32, 2), c = empty({40, n}, DType::f32),
                 parts = empty({40, n}, DType::f32);
    const Tensor sums = empty({40}), alone = empty({40});
    const Into into{sums};
    matmul_over_rows(a, b, {c}, &into);
    sum_over_rows(a, n, {alone});
    matmul_over_rows(slice(a, 0, 0, most), slice(b, 0, 0, most), {parts});
    const Tensor rest_a = slice(a, 0, most), rest_b = slice(b, 0, most);
    const Index half = half_of(N - most), lower = half_of(40);
    const auto add = [&](Index row, Index rows, Index begin, Index end) {
      matmul(transpose(slice(slice(rest_a, 0, begin, end), 1, row, row + rows)), slice(rest_b, 0, begin, end),
             {slice(parts, 0, row, row + rows), true});
    };
    add(0, lower, half, N - most);
    add(0, lower, 0, half);
    add(lower, 40 - lower, 0, half);
    add(lower, 40 - lower, half, N - most);
    INFO("N ", N);
    CHECK(equal_bits(c, parts));
    CHECK(equal_bits(sums, alone));
    CHECK(worst_absolute(sums, doubles(sum(a, 0))) < 1e-4);   // chains of up to 2,400 sums of about 40
  }
  const Tensor wide_sums = empty({40}), expected = empty({40});
  const Tensor wide = draw({400, 11000}, DType::f32, 3), rows = draw({400, 40}, DType::f32, 4),
               all_columns = empty({40, 11000}, DType::f32), some = empty({40, 1000}, DType::f32);
  const Into into{wide_sums};
  matmul_over_rows(rows, wide, {all_columns}, &into);
  sum_over_rows(rows, 1000, {expected});
  CHECK(equal_bits(wide_sums, expected));
  matmul_over_rows(rows, slice(wide, 1, 10000), {some});
  CHECK(equal_bits(slice(all_columns, 1, 10000).clone(), some));
}

TEST_CASE("matmul_over_rows: errors") {
  CHECK_THROWS_WITH_AS(matmul_over_rows(ones({3, 4}), ones({2, 5}), {ones({4, 5})}),
                       "matmul_over_rows: needs as many rows of both: a [3, 4], b [2, 5]", ShapeError);
  CHECK_THROWS_WITH_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}), {ones({5, 4})}),
                       "matmul_over_rows: the result has another shape: result [4, 5], into [5, 4]", ShapeError);
  CHECK_THROWS_WITH_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}, DType::f64), {ones({4, 5})}),
                       "matmul_over_rows: dtypes differ: a f32, b f64, into f32", DTypeError);
  CHECK_THROWS_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}), {expand(ones({1, 5}), {4, 5})}), Error);
  const Into short_sums{ones({3})}, others{ones({4}, DType::f64)}, shared{expand(ones({1}), {4})};
  CHECK_THROWS_WITH_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}), {ones({4, 5})}, &short_sums),
                       "matmul_over_rows: sums are of another number of columns: a [3, 4], sums [3]", ShapeError);
  CHECK_THROWS_WITH_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}), {ones({4, 5})}, &others),
                       "matmul_over_rows: dtypes differ: a f32, sums f64", DTypeError);
  CHECK_THROWS_AS(matmul_over_rows(ones({3, 4}), ones({3, 5}), {ones({4, 5})}, &shared), Error);
  CHECK_THROWS_WITH_AS(sum_over_rows(ones({3, 4}), 5, short_sums),
                       "sum_over_rows: sums are of another number of columns: a [3, 4], sums [3]", ShapeError);
  CHECK_THROWS_WITH_AS(sum_over_rows(ones({3}), 5, short_sums), "sum_over_rows: needs 2 dimensions: [3]", ShapeError);
}

TEST_CASE("matmul: batches and vectors as NumPy") {
  const auto check = [](const Shape& left, const Shape& right, const Shape& result) {
    INFO(to_string(left), " ", to_string(right));
    const Tensor a = draw(left, DType::f64, 1), b = draw(right, DType::f64, 2), c = matmul(a, b);
    REQUIRE(c.shape() == result);
    Tensor x = left.rank() == 1 ? unsqueeze(a, 0) : a, y = right.rank() == 1 ? unsqueeze(b, 1) : b;
    Shape batch(std::span(result.begin(), result.size() - (left.rank() > 1) - (right.rank() > 1)));
    const auto widened = [&](const Tensor& t) {
      Shape shape = batch;
      shape.push_back(t.size(-2));
      shape.push_back(t.size(-1));
      return reshape(expand(t, shape), {batch.numel(), t.size(-2), t.size(-1)});
    };
    x = widened(x), y = widened(y);
    std::vector<double> expected;
    for (Index i = 0; i < batch.numel(); ++i) {
      const auto one = product(x[i], y[i]);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    CHECK(worst_absolute(c, expected) <= tolerance(DType::f64, x.size(-1)));
  };
  check({3}, {3}, {});
  check({3}, {3, 4}, {4});
  check({2, 3}, {3}, {2});
  check({5, 2, 3}, {3}, {5, 2});
  check({3}, {5, 3, 4}, {5, 4});
  check({5, 2, 3}, {3, 4}, {5, 2, 4});
  check({2, 3}, {5, 3, 4}, {5, 2, 4});
  check({2, 1, 2, 3}, {7, 3, 4}, {2, 7, 2, 4});
  check({6, 1, 1, 5}, {1, 3, 5, 9}, {6, 3, 1, 9});
  check({2, 3, 4, 16, 8}, {2, 3, 4, 8, 17}, {2, 3, 4, 16, 17});
  check({1, 2, 3}, {1, 3, 2}, {1, 2, 2});
  check({200, 3, 2}, {200, 2, 5}, {200, 3, 5});
}

TEST_CASE("matmul: two vectors are added up as sum(a ⊙ b), forwards, backwards and apart, for every target and thread count") {
  for_every_target([] {
    for_threads([] {
      for (const DType dtype : {DType::f32, DType::f64})
        for (const Index n : {1, 7, 16, 17, 511, 512, 513, 1025, 5000, 70001}) {
          INFO(n, " ", instruction_set(), " ", threads());
          const Tensor a = draw({n}, dtype, 1), b = draw({n}, dtype, 2), apart = draw({n, 2}, dtype, 3);
          const auto check = [](const Tensor& x, const Tensor& y) {
            const double expected = sum(multiply(x, y)).item();
            CHECK(matmul(x, y).item() == expected);
            const Tensor c = ones({}, x.dtype());
            matmul(x, y, {c, true});
            CHECK(c.item() == (sum(multiply(x, y)) + 1).item());
          };
          check(a, b);
          check(flip(a, {0}), b);
          check(a, select(apart, 1, 1));
          check(expand(ones({1}, dtype), {n}), b);
        }
    });
  });
}

TEST_CASE("matmul: sizes 0") {
  CHECK(matmul(empty({0, 3}), empty({3, 4})).shape() == Shape{0, 4});
  CHECK(matmul(empty({2, 3}), empty({3, 0})).shape() == Shape{2, 0});
  CHECK(matmul(empty({0, 2, 3}), empty({3, 4})).shape() == Shape{0, 2, 4});
  CHECK(doubles(matmul(empty({2, 0}), empty({0, 3}))) == std::vector<double>(6, 0));
  CHECK(doubles(matmul(empty({0}), empty({0}))) == std::vector<double>{0});
  const Tensor c = ones({2, 3});
  matmul(empty({2, 0}), empty({0, 3}), {c, true});
  CHECK(doubles(c) == std::vector<double>(6, 1));
  const Tensor da = full({2, 3}, 7), b = ones({0, 3, 4}), dc = empty({0, 2, 4});
  matmul_grad_a(b, dc, {da});
  CHECK(doubles(da) == std::vector<double>(6, 0));
}

TEST_CASE("matmul: NaN and infinity reach their row and column only") {
  Tensor a = draw({20, 30}, DType::f32, 1), b = draw({30, 40}, DType::f32, 2);
  const Tensor clean = matmul(a, b);
  fill_(a(3, 7), NAN);
  fill_(b(2, 39), INFINITY);
  const Tensor c = matmul(a, b);
  for (Index i = 0; i < 20; ++i)
    for (Index j = 0; j < 40; ++j) {
      if (i == 3) CHECK(std::isnan(c(i, j).item()));
      else if (j == 39) CHECK(std::isinf(c(i, j).item()));
      else CHECK(c(i, j).item() == clean(i, j).item());
    }
}

TEST_CASE("matmul_grad_a, matmul_grad_b: da = dc bᵀ, db = aᵀ dc, broadcast axes summed in order") {
  for (const auto& [left_, right_] : {std::pair<Shape, Shape>{{4, 5}, {5, 6}},
                                      {{3, 4, 5}, {5, 6}},
                                      {{4, 5}, {3, 5, 6}},
                                      {{2, 1, 4, 5}, {3, 5, 6}},
                                      {{5}, {5}},
                                      {{5}, {2, 5, 6}},
                                      {{2, 4, 5}, {5}}}) {
    const Shape left = left_, right = right_;
    INFO(to_string(left), " ", to_string(right));
    const Tensor a = draw(left, DType::f64, 1), b = draw(right, DType::f64, 2), c = matmul(a, b),
                 dc = draw(c.shape(), DType::f64, 3);
    const Tensor da = full(left, 0.5, DType::f64), db = full(right, NAN, DType::f64);
    matmul_grad_a(b, dc, {da, true});
    matmul_grad_b(a, dc, {db});
    // c is linear in each operand: the derivative along one element is the product with its unit tensor
    const auto derivative = [&](const Tensor& x, auto&& f) {
      std::vector<double> out;
      for (Index i = 0; i < x.numel(); ++i) {
        const Tensor unit = zeros(x.shape(), DType::f64);
        unit.mutable_span<double>()[std::size_t(i)] = 1;
        const auto y = doubles(f(unit)), weight = doubles(dc);
        double sum = 0;
        for (std::size_t j = 0; j < y.size(); ++j) sum += y[j] * weight[j];
        out.push_back(sum);
      }
      return out;
    };
    auto expected = derivative(a, [&](const Tensor& unit) { return matmul(unit, b); });
    for (double& x : expected) x += 0.5;
    CHECK(worst_absolute(da, expected) < 1e-13);
    CHECK(worst_absolute(db, derivative(b, [&](const Tensor& unit) { return matmul(a, unit); })) < 1e-13);
  }
}

TEST_CASE("matmul: a gradient summed over the batch has the bits of the flattened product") {
  const Tensor x = draw({6, 30, 40}, DType::f32, 1), dy = draw({6, 30, 50}, DType::f32, 2), dw = empty({40, 50});
  matmul_grad_b(x, dy, {dw});
  CHECK(equal_bits(dw, matmul(transpose(reshape(x, {180, 40})), reshape(dy, {180, 50}))));
  const Tensor turned = transpose(transpose(dy, 0, 1).clone(), 0, 1);
  matmul_grad_b(x, turned, {dw});
  CHECK(equal_bits(dw, matmul(transpose(reshape(x, {180, 40})), reshape(dy, {180, 50}))));
}

TEST_CASE("matmul: errors") {
  CHECK_THROWS_WITH_AS(matmul(ones({32, 7, 512}), ones({256, 64})),
                       "matmul: inner sizes differ: a [32, 7, 512], b [256, 64] (512 and 256)", ShapeError);
  CHECK_THROWS_WITH_AS(matmul(ones({2, 3, 4}), ones({5, 4, 3})),
                       "matmul: batch axes do not broadcast: a [2, 3, 4], b [5, 4, 3] (2 and 5)", ShapeError);
  CHECK_THROWS_WITH_AS(matmul(ones({}), ones({3})), "matmul: operands need at least 1 axis: a [], b [3]", ShapeError);
  CHECK_THROWS_WITH_AS(matmul(ones({2, 3}), ones({3, 4}, DType::f64)), "matmul: dtypes differ: a f32, b f64", DTypeError);
  CHECK_THROWS_WITH_AS(matmul(ones({2, 3}, DType::i32), ones({3, 4}, DType::i32)), "matmul: takes f32 or f64: i32", DTypeError);
  CHECK_THROWS_AS(matmul(ones({2, 3}), ones({3, 4}), {ones({4, 2})}), ShapeError);
  CHECK_THROWS_AS(matmul(ones({2, 3}), ones({3, 4}), {ones({2, 4}, DType::f64)}), DTypeError);
  CHECK_THROWS_AS(matmul(ones({2, 3}), ones({3, 4}), {expand(ones({1, 4}), {2, 4})}), Error);
  CHECK_THROWS_WITH_AS(matmul_grad_a(ones({3, 4}), ones({2, 3}), {ones({2, 3})}),
                       "matmul_grad_a: dc has another shape than the result: a [2, 3], b [3, 4], dc [2, 3]", ShapeError);
}

TEST_CASE("matmul: gradients on the tape") {
  for (const auto& [left, right] : {std::pair<Shape, Shape>{{4, 5}, {5, 6}},
                                    {{3, 4, 5}, {5, 6}},
                                    {{4, 5}, {3, 5, 6}},
                                    {{2, 1, 4, 5}, {3, 5, 6}},
                                    {{5}, {5}}}) {
    const auto report = check_gradient([](std::span<const Variable> x) { return matmul(x[0], x[1]); },
                                       {draw(left, DType::f64, 1), draw(right, DType::f64, 2)});
    CHECK_MESSAGE(report.holds(1e-8), report.worst);
  }
}

// Up to 211 products of numbers up to 2.
static const InTable rows{
    {.name = "matmul", .reference = reference::matmul, .wrong = {{{{2, 3}, {4, 5}}, {"3 and 4"}}}, .ulp = 100},
    {.name = "matmul vector", .reference = [](const reference::Arrays& x) {
       auto y = reference::matmul({{{1, x[0].shape[0]}, x[0].values}, x[1]});
       y.shape = {y.shape[1]};
       return y;
     }, .ulp = 100},
    {.name = "matmul dot", .reference = [](const reference::Arrays& x) {
       auto y = reference::matmul({{{1, x[0].shape[0]}, x[0].values}, {{x[1].shape[0], 1}, x[1].values}});
       y.shape = Shape();
       return y;
     }, .ulp = 100},
};
