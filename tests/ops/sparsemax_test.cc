// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sparsemax.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tests/close.h"
#include "tests/op_table.h"

using namespace heed;

TEST_CASE("sparsemax: by hand") {
  // (1, 0.5, -1): k = 2, as 1 + 2·0.5 > 1.5 and 1 - 3 < 0.5; τ = (1.5 - 1) / 2 = 0.25; p = (0.75, 0.25, 0)
  CHECK(worst_absolute(sparsemax(tensor({1, 0.5, -1}, DType::f64)), std::vector<double>{0.75, 0.25, 0}) < 1e-15);
  // s = (1, 1, 0), dp = (1, 0, 5): mean over the support 0.5; dx = (0.5, -0.5, 0)
  const Tensor dx = empty({3}, DType::f64);
  sparsemax_grad(tensor({0.75, 0.25, 0}, DType::f64), tensor({1, 0, 5}, DType::f64), {dx});
  CHECK(worst_absolute(dx, std::vector<double>{0.5, -0.5, 0}) < 1e-15);
}

TEST_CASE("entmax: by hand") {
  // (2, 0): u = (1, 0), mean 0.5, Σ (u - mean)² = 0.5, τ = 0.5 - √(0.5 / 2) = 0; p = (1, 0)
  CHECK(worst_absolute(entmax(tensor({2, 0}, DType::f64)), std::vector<double>{1, 0}) < 1e-15);
  // (0.4, 0): u = (0.2, 0), mean 0.1, spread 0.02, τ = 0.1 - √0.49 = -0.6; p = (0.64, 0.36)
  CHECK(worst_absolute(entmax(tensor({0.4, 0}, DType::f64)), std::vector<double>{0.64, 0.36}) < 1e-15);
}

TEST_CASE("sparsemax, entmax: what dp holds where p = 0 reaches nothing") {
  for (double bad : {double(NAN), double(INFINITY)}) {
    const Tensor p = tensor({{0.5, 0.5, 0}, {0, 0, 0}}, DType::f64), dp = tensor({{1, 2, bad}, {bad, bad, bad}}, DType::f64);
    for (void (*grad)(const Tensor&, const Tensor&, Into) : {sparsemax_grad, entmax_grad}) {
      const Tensor dx = empty({2, 3}, DType::f64), clean = empty({2, 3}, DType::f64);
      grad(p, dp, {dx});
      grad(p, tensor({{1, 2, 0}, {0, 0, 0}}, DType::f64), {clean});
      CHECK(doubles(dx) == doubles(clean));
    }
  }
}

TEST_CASE("sparsemax, entmax: a NaN is not hidden by the gradient") {
  const Tensor x = tensor({NAN, 1}), dp = ones({2}), dx = empty({2});
  sparsemax_grad(sparsemax(x), dp, {dx});
  CHECK(sum(isnan(dx)).item() == 2);
  entmax_grad(entmax(x), dp, {dx});
  CHECK(sum(isnan(dx)).item() == 2);
}

TEST_CASE("sparsemax, entmax: sums, order, edges") {
  const Tensor x = normal(Key(1), {50, 31}, 0, 2, DType::f64);
  for (Tensor (*f)(const Tensor&, const Mask&) :
       {+[](const Tensor&z, const Mask&m) { return sparsemax(z, m); }, +[](const Tensor&z, const Mask&m) { return entmax(z, m); }}) {
    for (Tensor row : f(x, {})) {
      double total = 0;
      for (double value : doubles(row)) {
        CHECK(value >= 0);
        total += value;
      }
      CHECK(total == doctest::Approx(1).epsilon(1e-13));
    }
    CHECK(worst_absolute(f(tensor({3, 3, 3, 3}, DType::f64), {}), std::vector<double>(4, 0.25)) < 1e-15);
    CHECK(worst_absolute(f(tensor({1e300, -1e300}, DType::f64), {}), std::vector<double>{1, 0}) == 0);
    CHECK(worst_absolute(f(tensor({1, -INFINITY}, DType::f64), {}), std::vector<double>{1, 0}) == 0);
    CHECK(all_nan(f(tensor({INFINITY, 0}, DType::f64), {})));
    CHECK(all_nan(f(tensor({-INFINITY, -INFINITY}, DType::f64), {})));
    const Mask mask = Mask::lengths(tensor({2, 0}, DType::i32));
    const Tensor masked = f(tensor({{0, 0, NAN}, {1, 2, 3}}, DType::f64), mask);
    CHECK(worst_absolute(masked, std::vector<double>{0.5, 0.5, 0, 0, 0, 0}) < 1e-15);
    CHECK_THROWS_AS(f(tensor({1, 2}, DType::i32), {}), DTypeError);
    CHECK_THROWS_AS(f(full({}, 1), {}), ShapeError);
    CHECK_THROWS_AS(f(x, Mask::lengths(tensor({1}, DType::i32))), ShapeError);
  }
}

TEST_CASE("alpha_entmax: from softmax to sparsemax; edges") {
  const auto order = [](double a) { return full({}, a, DType::f64); };
  for (const double size : {0.1, 1.0, 30.0}) {
    const Tensor x = normal(Key(1), {50, 31}, 0, size, DType::f64);
    CHECK(worst_absolute(alpha_entmax(x, order(1)), doubles(softmax(x))) < 2e-4 * std::max(1.0, size * size));
    CHECK(worst_absolute(alpha_entmax(x, order(1.5)), doubles(entmax(x))) < 1e-13);
    CHECK(worst_absolute(alpha_entmax(x, order(2)), doubles(sparsemax(x))) < 1e-13);
    for (const double a : {1.0, 1.0001, 1.01, 1.3, 1.7, 1.999, 2.0})
      for (Tensor row : alpha_entmax(x, order(a))) CHECK(sum(row).item<double>() == doctest::Approx(1).epsilon(1e-13));
    // the gradients of entmax and sparsemax
    const Tensor dp = normal(Key(2), {50, 31}, 0, 1, DType::f64), dx = empty({50, 31}, DType::f64), same = empty({50, 31}, DType::f64);
    const Into into{dx};
    alpha_entmax_grad(entmax(x), order(1.5), dp, &into, nullptr);
    entmax_grad(entmax(x), dp, {same});
    CHECK(worst_absolute(dx, doubles(same)) < 1e-13);
  }
  const Tensor two = full({}, 1.6, DType::f64);
  CHECK(worst_absolute(alpha_entmax(tensor({3, 3, 3, 3}, DType::f64), two), std::vector<double>(4, 0.25)) < 1e-15);
  CHECK(worst_absolute(alpha_entmax(tensor({1e300, -1e300}, DType::f64), two), std::vector<double>{1, 0}) == 0);
  CHECK(worst_absolute(alpha_entmax(tensor({1, -INFINITY}, DType::f64), two), std::vector<double>{1, 0}) == 0);
  CHECK(all_nan(alpha_entmax(tensor({INFINITY, 0}, DType::f64), two)));
  CHECK(worst_absolute(alpha_entmax(tensor({{0, 0, NAN}, {1, 2, 3}}, DType::f64), two, Mask::lengths(tensor({2, 0}, DType::i32))),
                       std::vector<double>{0.5, 0.5, 0, 0, 0, 0}) < 1e-15);
  CHECK_THROWS_WITH_AS(alpha_entmax(zeros({2, 3}), full({}, 2.5)), "alpha_entmax: alpha must be in [1, 2]: 2.5", Error);
  CHECK_THROWS_WITH_AS(alpha_entmax(zeros({2, 3}), full({}, 0.5)), "alpha_entmax: alpha must be in [1, 2]: 0.5", Error);
  CHECK(all_nan(alpha_entmax(zeros({2, 3}), full({}, NAN))));
  CHECK_THROWS_WITH_AS(alpha_entmax(zeros({2, 3}), two), "alpha_entmax: dtypes differ: x f32, alpha f64", DTypeError);
}

namespace {

// τ by bisection: Σ max(scale x - τ, 0)^power falls with τ
reference::Values by_bisection(const reference::Values& x, double scale, double power) {
  if (x.empty()) return {};
  const double most = scale * *std::max_element(x.begin(), x.end());
  double low = most - 1, high = most;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    double total = 0;
    for (double value : x) total += std::pow(std::max(0.0, scale * value - middle), power);
    (total > 1 ? low : high) = middle;
  }
  reference::Values p;
  for (double value : x) p.push_back(std::pow(std::max(0.0, scale * value - low), power));
  return p;
}
// The weight at p of its row, of which a causal mask leaves the first p[1] + 1.
double weight_at(const reference::Array& x, reference::Position p, double scale, double power, bool causal) {
  const Index n = x.shape[2], last = causal ? std::min(p[1] + 1, n) : n, at = p[2];
  reference::Values row;
  for (p[2] = 0; p[2] < last; ++p[2]) row.push_back(x(p));
  return at < last ? by_bisection(row, scale, power)[std::size_t(at)] : 0;
}
reference::Function relative(double scale, double power, bool causal) {
  return [=](const reference::Arrays& x) {
    return reference::make(x[0].shape, [&](const reference::Position& p) { return weight_at(x[0], p, scale, power, causal); });
  };
}

// α of input 1, one a row of three or one for all
reference::Function of_order(bool causal) {
  return [=](const reference::Arrays& x) {
    return reference::make(x[0].shape, [&](const reference::Position& p) {
      const double a = x[1].shape.rank() ? x[1]({p[1]}) : x[1]({});
      return weight_at(x[0], p, a - 1, 1 / (a - 1), causal);
    });
  };
}

}  // namespace

static const InTable rows{
    {"sparsemax", relative(1, 1, false)},
    {"sparsemax masked", relative(1, 1, true)},
    {"entmax", relative(0.5, 2, false)},
    {"entmax masked", relative(0.5, 2, true)},
    {.name = "alpha_entmax", .reference = of_order(false), .wrong = {{{{2, 3}, {3}}}}, .ulp = 400},
    {.name = "alpha_entmax masked", .reference = of_order(true), .ulp = 400},
};
