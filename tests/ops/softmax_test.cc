// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/softmax.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/error.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Row by row in long double; allowed: u8 of x's shape
std::vector<double> reference_softmax(const Tensor& x, const Tensor& allowed, bool log) {
  const auto v = doubles(x);
  const auto a = allowed.contiguous().to_vector<std::uint8_t>();
  std::vector<double> y(v.size());
  const auto n = std::size_t(x.size(-1));
  for (std::size_t row = 0; row < v.size(); row += n) {
    double m = -kInf;
    long double sum = 0;
    bool any = false;
    for (std::size_t i = row; i < row + n; ++i) if (a[i]) m = std::max(m, v[i]), any = true;
    for (std::size_t i = row; i < row + n; ++i) if (a[i]) sum += std::exp((long double)(v[i] - m));
    for (std::size_t i = row; any && i < row + n; ++i)
      y[i] = log ? (a[i] ? double(v[i] - m - std::log(sum)) : -kInf) : (a[i] ? double(std::exp((long double)(v[i] - m)) / sum) : 0);
  }
  return y;
}

Tensor all_allowed(const Shape& shape) { return ones(shape, DType::u8); }

}  // namespace

TEST_CASE("softmax and log_softmax: the definition, all widths, targets and dtypes") {
  for (Index n : {1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 1000})
    for (DType dtype : {DType::f32, DType::f64}) {
      const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
      const Tensor x = uniform(Key(3, n), {5, n}, -8, 8, dtype);
      const auto p = reference_softmax(x, all_allowed(x.shape()), false), l = reference_softmax(x, all_allowed(x.shape()), true);
      for_every_target([&] {
        CAPTURE(n);
        CHECK(worst_relative(softmax(x), p) < 20 * eps);        // x - m rounded: |x| / 2 ulp, then e^x, the sum, the quotient
        CHECK(worst_absolute(log_softmax(x), l) < 20 * eps);
        const Tensor y = x.clone();
        log_softmax_(y);
        CHECK(equal_bits(y, log_softmax(x)));
      });
    }
}

TEST_CASE("softmax: any dim, strides, empty and 0-d") {
  const Tensor x = uniform(Key(4), {3, 5, 4, 2}, -3, 3, DType::f64);
  for (int dim = 0; dim < 4; ++dim) {
    const Tensor last = transpose(softmax(transpose(x, dim, -1).clone()), dim, -1);
    CHECK(equal_bits(softmax(x, dim), last));
    CHECK(equal_bits(softmax(transpose(x, 0, 2), dim), softmax(transpose(x, 0, 2).clone(), dim)));
    CHECK(equal_bits(log_softmax(x, dim), transpose(log_softmax(transpose(x, dim, -1).clone()), dim, -1)));
  }
  const Tensor whole = x.clone(), part = transpose(whole, 1, 3)(all, all, Slice{1, 3}), before = part.clone();
  log_softmax_(part);
  CHECK(equal_bits(part, log_softmax(before)));
  CHECK(equal_bits(whole(all, all, Slice{3, 4}), x(all, all, Slice{3, 4})));
  log_softmax_(zeros({3, 0}));
  CHECK(softmax(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(softmax(zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(softmax(full({}, 3)).item() == 1);
  CHECK(log_softmax(full({}, 3)).item() == 0);
  for (const bool log : {false, true}) {
    const Variable scalar = variable(full({}, 3));
    Tape tape;
    tape.backward(log ? log_softmax(scalar) : softmax(scalar));
    CHECK(scalar.grad().item() == 0);
  }
  CHECK_THROWS_AS(softmax(x, 4), IndexError);
  CHECK_THROWS_AS(softmax(arange(0, 3)), DTypeError);
  CHECK_THROWS_AS(log_softmax_(arange(0, 3)), DTypeError);
}

TEST_CASE("softmax: sequences side by side, tiles of 64 and less, and short rows turned to lie so, to the bit as rows, on every target") {
  for (const Shape& shape : {Shape{3, 40, 70}, Shape{2, 5, 8}, Shape{1, 17, 130}, Shape{3, 16, 9}})
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = uniform(Key(13), shape, -5, 5, dtype), rows = transpose(x, 1, 2).clone(), dy = uniform(Key(14), shape, -1, 1, dtype);
      const Tensor dy_rows = transpose(dy, 1, 2).clone(), dx = empty(shape, dtype), dx_rows = empty(rows.shape(), dtype);
      for_every_target([&] {
        const Tensor y = softmax(x, 1), log_y = log_softmax(x, 1), sums = logsumexp(x, 1), ups = select(dy, 1, 0);
        CHECK(equal_bits(y, transpose(softmax(rows), 1, 2)));
        CHECK(equal_bits(log_y, transpose(log_softmax(rows), 1, 2)));
        CHECK(equal_bits(sums, logsumexp(rows, -1)));
        const auto same = [&](auto&& gradient, auto&& of_rows) {
          for (bool add : {false, true}) {
            fill_(dx, 0.5);
            fill_(dx_rows, 0.5);
            gradient(Into{dx, add});
            of_rows(Into{dx_rows, add});
            CHECK(equal_bits(dx, transpose(dx_rows, 1, 2)));
          }
        };
        same([&](Into out) { softmax_grad(y, dy, 1, out); }, [&](Into out) { softmax_grad(transpose(y, 1, 2), dy_rows, -1, out); });
        same([&](Into out) { log_softmax_grad(log_y, dy, 1, Mask(), out); },
             [&](Into out) { log_softmax_grad(transpose(log_y, 1, 2), dy_rows, -1, Mask(), out); });
        same([&](Into out) { logsumexp_grad(x, sums, ups, 1, out); }, [&](Into out) { logsumexp_grad(rows, sums, ups, -1, out); });
      });
    }
  for (Index n : {1, 3, 7, 16})                     // many short rows, against few
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = uniform(Key(16), {150, n}, -5, 5, dtype), dy = uniform(Key(17), {150, n}, -1, 1, dtype), ups = select(dy, 1, 0);
      for_every_target([&] {
        const auto in_parts = [&](auto&& f) {
          std::vector<Tensor> parts;
          for (Index i = 0; i < 150; i += 10) parts.push_back(f(i, i + 10));
          return concat(parts, 0);
        };
        const Tensor y = softmax(x), log_y = log_softmax(x), sums = logsumexp(x, -1);
        CHECK(equal_bits(y, in_parts([&](Index a, Index b) { return softmax(slice(x, 0, a, b)); })));
        CHECK(equal_bits(log_y, in_parts([&](Index a, Index b) { return log_softmax(slice(x, 0, a, b)); })));
        CHECK(equal_bits(sums, in_parts([&](Index a, Index b) { return logsumexp(slice(x, 0, a, b), -1); })));
        for (bool add : {false, true}) {
          const auto gradient = [&](Index a, Index b, int which) {
            const Tensor dx = full({b - a, n}, 0.5, dtype), up = slice(dy, 0, a, b);
            if (which == 0) softmax_grad(slice(y, 0, a, b), up, -1, {dx, add});
            if (which == 1) log_softmax_grad(slice(log_y, 0, a, b), up, -1, Mask(), {dx, add});
            if (which == 2) logsumexp_grad(slice(x, 0, a, b), slice(sums, 0, a, b), slice(ups, 0, a, b), -1, {dx, add});
            return dx;
          };
          for (int which : {0, 1, 2})
            CHECK(equal_bits(gradient(0, 150, which), in_parts([&](Index a, Index b) { return gradient(a, b, which); })));
        }
      });
    }
  Tensor edges = uniform(Key(15), {6, 20});
  fill_(select(edges, 1, 3), -kInf);
  fill_(edges(2, 4), kInf);
  fill_(edges(2, 5), std::nan(""));
  for_every_target([&] {
    const Tensor turned = transpose(edges).clone(), y = logsumexp(edges, 0), dy = ones({20}), dx = empty({6, 20}), dt = empty({20, 6});
    CHECK(y[3].item() == -kInf);
    CHECK(y[4].item() == kInf);
    CHECK(std::isnan(y[5].item()));
    CHECK(worst_absolute(slice(y, 0, 6, 20), slice(logsumexp(turned, 1), 0, 6, 20)) == 0);
    logsumexp_grad(edges, y, dy, 0, {dx});
    logsumexp_grad(turned, y, dy, 1, {dt});
    CHECK(worst_absolute(slice(dx, 1, 0, 5), slice(transpose(dt), 1, 0, 5)) == 0);
    CHECK(all_nan(select(dx, 1, 5)));
    CHECK(std::isnan(softmax(edges, 0)(0, 3).item()));
    CHECK(all_nan(select(softmax(edges, 0), 1, 5)));
  });
}

TEST_CASE("softmax: edge values") {
  const Tensor none = full({2, 20}, -kInf, DType::f64);
  for_every_target([&] {
    CHECK(all_nan(softmax(none)));
    CHECK(all_nan(log_softmax(none)));
    CHECK(all_nan(softmax(full({40}, kInf))));
    Tensor nan = uniform(Key(1), {3, 37}, -1, 1);
    nan.mutable_data<float>()[37 + 30] = std::nanf("");
    const Tensor y = softmax(nan);
    CHECK(all_nan(y[1]));
    CHECK(!std::isnan(y[0][0].item()));
    const Tensor far = log_softmax(tensor({1e4, -1e4}));
    CHECK(far[0].item() == 0);
    CHECK(far[1].item() == -2e4);
    CHECK(softmax(tensor({-kInf, 0}))[0].item() == 0);
  });
}

TEST_CASE("softmax with a mask: lengths, causal, window, explicit; empty rows give zeros and zero gradient") {
  const Index B = 3, T = 9, S = 21;
  Tensor x = normal(Key(7), {B, 2, T, S}, 0, 2, DType::f64);
  const Tensor dy = normal(Key(8), x.shape(), 0, 1, DType::f64);
  const Mask lengths = Mask::lengths(tensor({21, 5, 0}, DType::i32)), causal = Mask::causal(2), window = Mask::window(4, 1, 3);
  const Mask chosen = Mask::allowed(bernoulli(Key(9), {B, 1, T, S}, 0.3)), narrow = Mask::allowed(bernoulli(Key(10), {T, 1}, 0.5));
  for (const Mask& mask : {lengths, causal, window, chosen, narrow, lengths & causal, lengths & chosen & window}) {
    const Tensor allowed = mask.dense(x.shape());
    const auto p = reference_softmax(x, allowed, false), l = reference_softmax(x, allowed, true);
    Tensor poisoned = x.clone(), poisoned_dy = dy.clone();
    for (std::size_t i = 0; i < p.size(); ++i)
      if (!allowed.data<std::uint8_t>()[i])
        poisoned.mutable_data<double>()[i] = poisoned_dy.mutable_data<double>()[i] = i % 2 ? kInf : std::nan("");
    for_every_target([&] {
      CHECK(worst_absolute(softmax(poisoned, -1, mask), p) < 1e-14);
      CHECK(worst_absolute(log_softmax(poisoned, -1, mask), l) < 1e-14);
      const Tensor turned = transpose(x, 1, 3).clone(), turned_allowed = transpose(allowed, 1, 3);
      CHECK(equal_bits(softmax(turned, 1, Mask::allowed(turned_allowed)), transpose(softmax(x, -1, mask), 1, 3)));
      // dx = y (dy - Σ y dy)
      const Tensor y = softmax(x, -1, mask), dx = empty(x.shape(), DType::f64), dl = empty(x.shape(), DType::f64);
      softmax_grad(y, poisoned_dy, -1, {dx});
      const Tensor log_y = log_softmax(x, -1, mask);
      log_softmax_grad(log_y, poisoned_dy, -1, mask, {dl});
      CHECK(all_finite(dx));
      CHECK(all_finite(dl));
      double worst = 0;
      for (Index row = 0; row < B * 2 * T; ++row) {
        double dot = 0, sum = 0;
        for (Index s = row * S; s < row * S + S; ++s) {
          dot += y.data<double>()[s] * dy.data<double>()[s];
          if (allowed.data<std::uint8_t>()[s]) sum += dy.data<double>()[s];
        }
        for (Index s = row * S; s < row * S + S; ++s) {
          const double ys = y.data<double>()[s], dys = dy.data<double>()[s];
          worst = std::max(worst, std::abs(dx.data<double>()[s] - ys * (dys - dot)));
          worst = std::max(worst, std::abs(dl.data<double>()[s] - (allowed.data<std::uint8_t>()[s] ? dys - ys * sum : 0)));
        }
      }
      CHECK(worst < 1e-14);
    });
  }
  CHECK_THROWS_AS(softmax(x, -1, Mask::lengths(tensor({1, 2}, DType::i32))), ShapeError);
  CHECK_THROWS_AS(softmax(x, -1, Mask::allowed(ones({5}, DType::u8))), ShapeError);
}

TEST_CASE("softmax_grad: adding, strides, threads, wrong shapes") {
  const Tensor x = normal(Key(5), {300, 70}), dy = normal(Key(6), {300, 70});
  std::vector<Tensor> results;
  for_threads([&] {
    const Tensor y = softmax(x), dx = ones({300, 70});
    softmax_grad(y, dy, -1, {dx, true});
    results.push_back(dx);
    const Tensor turned = transpose(ones({70, 300}));
    softmax_grad(y, dy, -1, {turned, true});
    CHECK(equal_bits(turned, dx));
    const Tensor first = transpose(ones({300, 70}));
    softmax_grad(transpose(y), transpose(dy), 0, {first, true});
    CHECK(equal_bits(transpose(first), dx));
  });
  CHECK(equal_bits(results[0], results[1]));
  CHECK(equal_bits(results[0], results[2]));
  CHECK_THROWS_AS(softmax_grad(x, normal(Key(1), {300}), -1, {empty({300, 70})}), ShapeError);
  CHECK_THROWS_AS(softmax_grad(x, dy, -1, {empty({70, 300})}), ShapeError);
  CHECK_THROWS_AS(softmax_grad(x, to(dy, DType::f64), -1, {empty({300, 70})}), DTypeError);
}

TEST_CASE("logsumexp: any dims, edge values, gradient") {
  const Tensor x = uniform(Key(12), {4, 5, 6}, -30, 30, DType::f64), v = tensor({1, 2, 3}, DType::f64);
  for_every_target([&] {
    CHECK(logsumexp(v).item() == doctest::Approx(3.40760596444438).epsilon(1e-14));
    const Tensor y = logsumexp(x, {0, -1});
    REQUIRE(y.shape() == Shape{5});
    CHECK(logsumexp(x, {0, -1}, true).shape() == Shape{1, 5, 1});
    CHECK(logsumexp(x, Dims{}, true).shape() == Shape{1, 1, 1});
    const Tensor dx = ones(x.shape(), DType::f64), dy = tensor({1, 2, 3, 4, 5}, DType::f64);
    logsumexp_grad(x, y, dy, {0, -1}, {dx, true});
    for (Index j = 0; j < 5; ++j) {
      long double sum = 0;
      for (Index i = 0; i < 4; ++i) for (Index k = 0; k < 6; ++k) sum += std::exp((long double)x[i][j][k].item());
      CHECK(y[j].item() == doctest::Approx(double(std::log(sum))).epsilon(1e-14));
      for (Index i = 0; i < 4; ++i)
        for (Index k = 0; k < 6; ++k)
          CHECK(dx[i][j][k].item() ==
                doctest::Approx(1 + dy[j].item() * double(std::exp((long double)x[i][j][k].item()) / sum)).epsilon(1e-13));
    }
    const auto of = [](const Tensor& t) { return logsumexp(t).item(); };
    const auto gradient = [](const Tensor& t) {
      const Tensor g = empty(t.shape(), DType::f64);
      logsumexp_grad(t, logsumexp(t), ones({}, DType::f64), Dims{}, {g});
      return g.to_vector<double>();
    };
    const Tensor low = tensor({-kInf, -kInf}, DType::f64), high = tensor({kInf, 1}, DType::f64), two = tensor({kInf, 1, kInf}, DType::f64);
    CHECK(of(low) == -kInf);
    CHECK(gradient(low) == std::vector<double>{0, 0});
    CHECK(of(high) == kInf);
    CHECK(gradient(high) == std::vector<double>{1, 0});
    CHECK(gradient(two) == std::vector<double>{0.5, 0, 0.5});
    CHECK(std::isnan(of(tensor({kInf, std::nan("")}, DType::f64))));
    CHECK(std::isnan(of(tensor({std::nan(""), -kInf}, DType::f64))));
    CHECK(std::isnan(of(tensor({std::nan(""), 1}, DType::f64))));
    CHECK(of(zeros({0}, DType::f64)) == -kInf);
    CHECK(of(tensor({1000, 1000}, DType::f64)) == doctest::Approx(1000.6931471805599).epsilon(1e-15));
  });
  CHECK_THROWS_AS(logsumexp(x, {0, 0}), IndexError);
  CHECK_THROWS_AS(logsumexp(x, 3), IndexError);
  CHECK_THROWS_AS(logsumexp_grad(x, v, v, 1, {empty(x.shape(), DType::f64)}), ShapeError);
}

TEST_CASE("softmax, log_softmax, logsumexp: rules against central differences") {
  const Tensor x = normal(Key(1), {2, 3, 4, 5}, 0, 1, DType::f64);
  const Mask mask = Mask::lengths(tensor({5, 0}, DType::i32)) & Mask::causal(1);
  const Tensor forbidden = mask.dense(x.shape());
  for (std::uint8_t& f : forbidden.mutable_span<std::uint8_t>()) f = !f;
  for (int dim : {-1, 1}) {
    CHECK(check_gradient([&](std::span<const Variable> v) { return softmax(v[0], dim); }, {x}).holds(1e-8));
    CHECK(check_gradient([&](std::span<const Variable> v) { return log_softmax(v[0], dim); }, {x}).holds(1e-8));
    CHECK(check_gradient([&](std::span<const Variable> v) { return logsumexp(v[0], {dim, 0}); }, {x}).holds(1e-8));
  }
  CHECK(check_gradient([&](std::span<const Variable> v) { return softmax(v[0], -1, mask); }, {x}).holds(1e-8));
  CHECK(
      check_gradient([&](std::span<const Variable> v) { return masked_fill(log_softmax(v[0], -1, mask), forbidden, 0); }, {x}).holds(1e-8));
}

namespace {

reference::Values log_of(reference::Values v) {
  for (double& value : v) value = std::log(value);
  return v;
}

}  // namespace

static const InTable rows{
    {"softmax", reference::along(-1, reference::softmax)},
    {"softmax dim 1", reference::along(1, reference::softmax)},
    {"softmax masked", [](const reference::Arrays& x) {   // row t sees s <= t
       return reference::make(x[0].shape, [&](reference::Position p) {
         const Index t = p[1], s = p[2];
         double total = 0;
         for (p[2] = 0; p[2] < std::min(t + 1, x[0].shape[2]); ++p[2]) total += std::exp(x[0](p));
         return s <= t ? (p[2] = s, std::exp(x[0](p)) / total) : 0;
       });
     }},
    {"log_softmax", reference::along(-1, [](reference::Values v) { return log_of(reference::softmax(std::move(v))); })},
    {"log_softmax dim 0", reference::along(0, [](reference::Values v) { return log_of(reference::softmax(std::move(v))); })},
    {"logsumexp", reference::over({}, false, reference::logsumexp)},
    {"logsumexp outer", reference::over({0, 2}, true, reference::logsumexp)},
};
