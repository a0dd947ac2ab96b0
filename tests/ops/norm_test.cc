// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/norm.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/dropout.h"
#include "tensor/error.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/play.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

struct Reference { std::vector<double> y, dx, dweight, dbias; };

// Layer norm (or RMS norm) and its gradient by the formulas, in long double
Reference by_formulas(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy, double eps, bool centred) {
  const auto v = doubles(x), w = weight.defined() ? doubles(weight) : std::vector<double>(std::size_t(x.size(-1)), 1.0);
  const auto b = bias.defined() ? doubles(bias) : std::vector<double>(w.size(), 0.0), up = doubles(dy);
  const std::size_t d = w.size();
  Reference out{std::vector<double>(v.size()), std::vector<double>(v.size()), std::vector<double>(d), std::vector<double>(d)};
  for (std::size_t row = 0; row < v.size(); row += d) {
    long double mean = 0, variance = 0, g_mean = 0, gx_mean = 0;
    for (std::size_t i = 0; i < d; ++i) mean += v[row + i] / (long double)d;
    if (!centred) mean = 0;
    for (std::size_t i = 0; i < d; ++i) variance += (v[row + i] - mean) * (v[row + i] - mean) / d;
    const long double r = std::sqrt(variance + eps);
    for (std::size_t i = 0; i < d; ++i) {
      const long double normal = (v[row + i] - mean) / r, g = up[row + i] * w[i];
      out.y[row + i] = double(normal * w[i] + b[i]);
      if (centred) g_mean += g / d;
      gx_mean += g * normal / d;
      out.dweight[i] += double(up[row + i] * normal);
      out.dbias[i] += up[row + i];
    }
    for (std::size_t i = 0; i < d; ++i)
      out.dx[row + i] = double((up[row + i] * w[i] - g_mean - (v[row + i] - mean) / r * gx_mean) / r);
  }
  return out;
}

}  // namespace

TEST_CASE("layer_norm and rms_norm: value and gradient by the formulas, all widths, targets and dtypes") {
  for (Index d : {2, 7, 15, 16, 17, 33, 100, 256, 300})
    for (DType dtype : {DType::f32, DType::f64}) {
      const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
      const Tensor x = normal(Key(1, d), {37, d}, 3, 2, dtype), w = normal(Key(2), {d}, 1, 0.5, dtype),
                   b = normal(Key(3), {d}, 0, 1, dtype);
      const Tensor dy = normal(Key(4), {37, d}, 0, 1, dtype);
      for (bool centred : {true, false}) {
        const Reference want = by_formulas(x, w, b, dy, 1e-5, centred), rms = by_formulas(x, w, {}, dy, 1e-5, centred);
        for_every_target([&] {
          CAPTURE(d);
          CAPTURE(centred);
          const Tensor dx = empty(x.shape(), dtype), dw = empty({d}, dtype), db = empty({d}, dtype);
          const Into to_x{dx}, to_w{dw}, to_b{db};
          if (centred) {
            const LayerNormed out = layer_norm(x, w, b);
            CHECK(worst_absolute(out.y, want.y) < 60 * eps);        // |x^| <= 10, |γ| <= 3: a few roundings of numbers up to 30
            layer_norm_grad(x, out.mean, out.rstd, w, dy, &to_x, &to_w, &to_b);
            CHECK(worst_absolute(db, want.dbias) < 200 * eps);      // 37 additions of numbers up to 20
          } else {
            const RmsNormed out = rms_norm(x, w);
            CHECK(worst_absolute(out.y, rms.y) < 60 * eps);
            rms_norm_grad(x, out.rstd, w, dy, &to_x, &to_w);
          }
          CHECK(worst_absolute(dx, want.dx) < (d == 2 ? 1e4 : 200) * eps);   // d = 2: the gradient is a difference of equal numbers over σ
          CHECK(worst_absolute(dw, want.dweight) < (d == 2 ? 1e4 : 500) * eps);
        });
      }
    }
}

TEST_CASE("layer_norm: without weight or bias, strides, any rank, adding, empty") {
  const Tensor x = normal(Key(5), {4, 6, 24}, 0, 1, DType::f64), w = normal(Key(6), {24}, 0, 1, DType::f64),
               b = normal(Key(7), {24}, 0, 1, DType::f64);
  const Tensor dy = normal(Key(8), x.shape(), 0, 1, DType::f64);
  CHECK(worst_absolute(layer_norm(x, {}, {}).y, by_formulas(x, {}, {}, dy, 1e-5, true).y) < 1e-14);
  CHECK(worst_absolute(layer_norm(x, w, {}).y, by_formulas(x, w, {}, dy, 1e-5, true).y) < 1e-14);
  CHECK(worst_absolute(layer_norm(x, {}, b).y, by_formulas(x, {}, b, dy, 1e-5, true).y) < 1e-14);
  const LayerNormed out = layer_norm(x, w, b);
  CHECK(out.mean.shape() == Shape{4, 6});
  CHECK(layer_norm(x[0][0], w, b).mean.shape() == Shape{});
  CHECK(equal_bits(layer_norm(x[1][2], w, b).y, out.y[1][2]));
  const Tensor turned = transpose(transpose(x).clone());
  CHECK(equal_bits(layer_norm(turned, w, b).y, out.y));

  const Tensor dx = empty(x.shape(), DType::f64), dw = empty({24}, DType::f64), again = transpose(ones({4, 24, 6}, DType::f64)),
               dw2 = ones({24}, DType::f64);
  const Into first[] = {{dx}, {dw}}, second[] = {{again, true}, {dw2, true}};
  layer_norm_grad(x, out.mean, out.rstd, w, dy, first, first + 1, nullptr);
  layer_norm_grad(turned, out.mean, out.rstd, w, transpose(transpose(dy).clone()), second, second + 1, nullptr);
  std::vector<double> plus_one = doubles(dx), w_plus_one = doubles(dw);
  for (double& v : plus_one) ++v;
  for (double& v : w_plus_one) ++v;
  CHECK(worst_absolute(again, plus_one) < 1e-15);
  CHECK(worst_absolute(dw2, w_plus_one) < 1e-14);

  CHECK(layer_norm(empty({0, 24}, DType::f64), w, b).y.shape() == Shape{0, 24});
  const LayerNormed widthless = layer_norm(empty({3, 0}), {}, {});
  CHECK(widthless.y.shape() == Shape{3, 0});
  CHECK((all_nan(widthless.mean) && all_nan(widthless.rstd)));
  const Tensor none = empty({0, 24}, DType::f64);
  fill_(dw, 7);
  layer_norm_grad(none, empty({0}, DType::f64), empty({0}, DType::f64), w, none, nullptr, first + 1, nullptr);
  CHECK(doubles(dw) == std::vector<double>(24, 0.0));
}

TEST_CASE("layer_norm: width 1, constant rows, NaN") {
  const Tensor w = tensor({2}), b = tensor({0.25}), x = tensor({{5}, {1e30}, {0}}), dx = empty({3, 1});
  const Into to_x{dx};
  for_every_target([&] {
    const LayerNormed out = layer_norm(x, w, b);
    CHECK(doubles(out.y) == std::vector<double>(3, 0.25));
    layer_norm_grad(x, out.mean, out.rstd, w, ones({3, 1}), &to_x, nullptr, nullptr);
    CHECK(doubles(dx) == std::vector<double>(3, 0.0));
    for (Index d : {2, 5, 16, 48, 100}) {                       // β, and (g - mean g) / √eps with g = dy ⊙ γ
      const Tensor rows = full({2, d}, 0.1), gamma = normal(Key(1), {d}), beta = normal(Key(2), {d}), dy = normal(Key(3), {2, d}),
                   g = empty({2, d});
      const LayerNormed constant = layer_norm(rows, gamma, beta);
      CHECK(equal_bits(constant.y[0], beta));
      const Into to_g{g};
      layer_norm_grad(rows, constant.mean, constant.rstd, gamma, dy, &to_g, nullptr, nullptr);
      CHECK(worst_absolute(g, by_formulas(rows, gamma, beta, dy, 1e-5, true).dx) < 316 * 20 * 1.2e-7);
    }
    Tensor nan = normal(Key(4), {3, 20});
    nan.mutable_data<float>()[25] = std::nanf("");
    const Tensor y = layer_norm(nan, {}, {}).y;
    CHECK(all_nan(y[1]));
    CHECK(!std::isnan(y[0][0].item()));
    CHECK(!std::isnan(y[2][19].item()));
    CHECK(all_nan(rms_norm(nan, {}).y[1]));
  });
}

TEST_CASE("add_dropout_norm: equals its definition, value and gradient") {
  const Index rows = 70, d = 48;
  for (double p : {0.0, 0.3, 1.0}) {
    const AddDropoutNormOptions options{.eps = 1e-6, .dropout = p, .key = Key(9)};
    const Tensor x = normal(Key(1), {rows, d}, 0, 1, DType::f64), residual = normal(Key(2), {rows, d}, 0, 1, DType::f64);
    const Tensor w = normal(Key(3), {d}, 1, 1, DType::f64), b = normal(Key(4), {d}, 0, 1, DType::f64);
    const Tensor dy = normal(Key(5), {rows, d}, 0, 1, DType::f64), dsum = normal(Key(6), {rows, d}, 0, 1, DType::f64);
    const Tensor dropped = dropout(x, p, options.key);
    std::vector<double> sum = doubles(residual);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dropped.contiguous().data<double>()[i];
    const Tensor sums = tensor(sum, {rows, d});
    const Reference want = by_formulas(sums, w, b, dy, 1e-6, true);
    std::vector<double> dresidual = want.dx, dx(want.dx.size());
    for (std::size_t i = 0; i < dx.size(); ++i) {
      dresidual[i] += dsum.data<double>()[i];
      dx[i] = dresidual[i] * dropout_factor(DropoutKey("test", p, options.key), Index(i));
    }
    for_every_target([&] {
      const AddDropoutNormed out = add_dropout_norm(x, residual, w, b, options);
      CHECK(worst_absolute(out.sum, sum) < 1e-15);
      CHECK(worst_absolute(out.y, want.y) < 1e-13);
      const Tensor gx = empty({rows, d}, DType::f64), gr = empty({rows, d}, DType::f64), gw = empty({d}, DType::f64),
                   gb = empty({d}, DType::f64);
      const Into to_x{gx}, to_r{gr}, to_w{gw}, to_b{gb};
      add_dropout_norm_grad(out.sum, out.mean, out.rstd, w, dy, dsum, options, &to_x, &to_r, &to_w, &to_b);
      CHECK(worst_absolute(gr, dresidual) < 1e-13);
      CHECK(worst_absolute(gx, dx) < 1e-13);
      CHECK(worst_absolute(gw, want.dweight) < 1e-12);
      CHECK(worst_absolute(gb, want.dbias) < 1e-13);
      const Tensor both = empty({rows, d}, DType::f64);       // x is the residual: one buffer, written and then added to
      const Into once{both}, more{both, true};
      add_dropout_norm_grad(out.sum, out.mean, out.rstd, w, dy, dsum, options, &once, &more, nullptr, nullptr);
      std::vector<double> together = dx;
      for (std::size_t i = 0; i < dx.size(); ++i) together[i] += dresidual[i];
      CHECK(worst_absolute(both, together) < 1e-13);
    });
  }
}

TEST_CASE("add_dropout_norm: the same bits for any number of threads and on all targets with FMA") {
  const Tensor x = normal(Key(1), {1000, 200}), residual = normal(Key(2), {1000, 200}), w = normal(Key(3), {200}),
               b = normal(Key(4), {200});
  const AddDropoutNormOptions options{.dropout = 0.1, .key = Key(9)};
  std::vector<Tensor> results;
  const auto run = [&] {
    const AddDropoutNormed out = add_dropout_norm(x, residual, w, b, options);
    const Tensor dx = empty(x.shape()), dr = empty(x.shape()), dw = empty({200}), db = empty({200});
    const Into to_x{dx}, to_r{dr}, to_w{dw}, to_b{db};
    add_dropout_norm_grad(out.sum, out.mean, out.rstd, w, residual, {}, options, &to_x, &to_r, &to_w, &to_b);
    if (results.empty()) results = {out.y, dx, dr, dw, db};
    CHECK(equal_bits(results[0], out.y));
    CHECK(equal_bits(results[1], dx));
    CHECK(equal_bits(results[2], dr));
    CHECK(equal_bits(results[3], dw));
    CHECK(equal_bits(results[4], db));
  };
  for_threads(run);
  for_every_fma_target(run);
}

TEST_CASE("norm: wrong shapes and dtypes") {
  const Tensor x = zeros({3, 4});
  CHECK_THROWS_WITH_AS(layer_norm(x, zeros({3}), {}), "layer_norm: weight is not [d]: weight [3], x [3, 4]", ShapeError);
  CHECK_THROWS_AS(layer_norm(x, {}, zeros({4, 1})), ShapeError);
  CHECK_THROWS_AS(layer_norm(x, zeros({4}, DType::f64), {}), DTypeError);
  CHECK_THROWS_AS(layer_norm(zeros({}), {}, {}), ShapeError);
  CHECK_THROWS_AS(layer_norm(arange(0, 4), {}, {}), DTypeError);
  CHECK_THROWS_AS(add_dropout_norm(x, zeros({4, 3}), {}, {}), ShapeError);
  CHECK_THROWS_AS(add_dropout_norm(x, x, {}, {}, {.dropout = 2}), Error);
  const Into wrong{zeros({4, 3})};
  CHECK_THROWS_AS(rms_norm_grad(x, zeros({3}), {}, x, &wrong, nullptr), ShapeError);
  CHECK_THROWS_AS(rms_norm_grad(x, zeros({4}), {}, x, nullptr, nullptr), ShapeError);
}

TEST_CASE("layer_norm, rms_norm, add_dropout_norm: rules against central differences") {
  const Tensor x = normal(Key(1), {3, 2, 6}, 0, 1, DType::f64), r = normal(Key(2), {3, 2, 6}, 0, 1, DType::f64);
  const Tensor w = normal(Key(3), {6}, 1, 1, DType::f64), b = normal(Key(4), {6}, 0, 1, DType::f64);
  CHECK(check_gradient([](std::span<const Variable> v) { return layer_norm(v[0], v[1], v[2]); }, {x, w, b}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return layer_norm(v[0], {}, {}); }, {x}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return rms_norm(v[0], v[1]); }, {x, w}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return rms_norm(v[0], {}); }, {x}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return add_dropout_norm(v[0], v[1], v[2], v[3]).y; }, {x, r, w, b}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return add_dropout_norm(v[0], v[1], v[2], v[3]).sum; }, {x, r, w, b}).holds(1e-8));
  CHECK(check_gradient([](std::span<const Variable> v) { return add_dropout_norm(v[0], v[0], v[1], v[2]).y; }, {x, w, b}).holds(1e-8));
  // gradients through both results: sum and y feed a product
  const auto both = [](std::span<const Variable> v) {
    const AddedNorm out = add_dropout_norm(v[0], v[1], v[2], v[3]);
    return matmul(out.y, transpose(out.sum));
  };
  CHECK(check_gradient(both, {x, r, w, b}).holds(1e-7));
}

TEST_CASE("dropout and add_dropout_norm: one mask on a tape for value and gradient, the identity elsewhere") {
  const Tensor x = ones({40, 8}, DType::f64);
  const Variable leaf = variable(x), zero = constant(zeros({40, 8}, DType::f64));
  CHECK(dropout(leaf, 0.5).value().storage() == x.storage());
  CHECK(equal_bits(add_dropout_norm(leaf, zero, {}, {}, 0.5).sum.value(), x));
  Tape tape(Key(1, 2));
  const Variable y = dropout(leaf, 0.5), sum = add_dropout_norm(leaf, zero, {}, {}, 0.5).sum;
  CHECK(!equal_bits(y.value(), sum.value()));
  const std::array outputs{y, sum};
  const std::array dys{ones({40, 8}, DType::f64), zeros({40, 8}, DType::f64)};
  tape.backward(outputs, dys);
  CHECK(equal_bits(leaf.grad(), y.value()));
}

TEST_CASE("add_dropout_norm: fused = definition in value and gradient, dropout included") {
  const Tensor x = normal(Key(1), {5, 7, 40}, 0, 1, DType::f64), r = normal(Key(2), {5, 7, 40}, 0, 1, DType::f64);
  const Tensor w = normal(Key(3), {40}, 1, 1, DType::f64), b = normal(Key(4), {40}, 0, 1, DType::f64);
  const auto both = [](const AddedNorm& out) { return out.y + 3 * out.sum; };
  const Played fused = play([&](auto v) { return both(add_dropout_norm(v[0], v[1], v[2], v[3], 0.3)); }, {x, r, w, b});
  const Played plain = play([&](auto v) { return both(add_dropout_norm_by_definition(v[0], v[1], v[2], v[3], 0.3)); }, {x, r, w, b});
  CHECK(worst_absolute(fused.value, plain.value) < 1e-14);
  for (std::size_t i = 0; i < 4; ++i) CHECK(worst_absolute(fused.gradients[i], plain.gradients[i]) < 1e-13);
}

namespace {

reference::Array added(const reference::Arrays& x) { return reference::two([](double a, double b) { return a + b; })(x); }

}  // namespace

// A row of two nearly equal numbers is stretched by up to 1 / √eps.

static const InTable rows{
    {.name = "layer_norm", .reference = reference::normalised(true), .wrong = {{{{2, 3}, {4}, {3}}}}, .ulp = 2000},
    {.name = "rms_norm", .reference = reference::normalised(false), .wrong = {{{{2, 3}, {4}}}}, .ulp = 2000},
    {.name = "add_dropout_norm",
     .reference = [](const reference::Arrays& x) { return reference::normalised(true)({added(x), x[2], x[3]}); },
     .definition = [](std::span<const Variable> x) { return add_dropout_norm_by_definition(x[0], x[1], x[2], x[3]).y; },
     .wrong = {{{{2, 3}, {2, 4}, {3}, {3}}}}, .ulp = 2000},
    {.name = "add_dropout_norm both", .reference = [](const reference::Arrays& x) {
       const auto sum = added(x), y = reference::normalised(true)({sum, x[2], x[3]});
       return reference::two([](double a, double b) { return a * b; })({y, sum});
     }, .definition = [](std::span<const Variable> x) { return layer_norm(x[0] + x[1], x[2], x[3]) * (x[0] + x[1]); }, .ulp = 4000},
};
