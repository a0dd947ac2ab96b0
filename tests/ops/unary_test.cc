// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/unary.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Edge { Unary op; double x, y, dx; double a = 0, b = 0; };

}  // namespace

TEST_CASE("unary: a number that stands for a row gives the bits of a row of it, forwards and backwards, every target") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor numbers = expand(uniform(Key(Seed{1}), {5, 1}, 0.5, 2, dtype), {5, 203}), rows = numbers.contiguous();
    for_every_target([&] {
      for (Unary op : {Unary::exp, Unary::relu, Unary::sqrt, Unary::gelu}) {
        const Tensor y = unary(op, numbers), dx = empty_like(rows), dx_rows = empty_like(rows);
        CHECK(equal_bits(y, unary(op, rows)));
        const Tensor& kept = saves(op) == Saves::output ? y : numbers;
        unary_grad(op, kept, numbers, {dx, false});
        unary_grad(op, kept.contiguous(), rows, {dx_rows, false});
        CHECK(equal_bits(dx, dx_rows));
      }
    });
  }
}

TEST_CASE("unary: values and derivatives at the edges of the domain, every target, f32 and f64") {
  const Edge edges[] = {
      {Unary::abs, 0, 0, 0}, {Unary::abs, -kInf, kInf, -1}, {Unary::abs, kNaN, kNaN, kNaN},
      {Unary::relu, 0, 0, 0}, {Unary::relu, -kInf, 0, 0},
      {Unary::relu, kInf, kInf, 1}, {Unary::exp, 0, 1, 1}, {Unary::exp, -kInf, 0, 0}, {Unary::exp, kInf, kInf, kInf},
      {Unary::exp, 1000, kInf, kInf}, {Unary::exp, -1000, 0, 0},
      {Unary::log, 0, -kInf, kInf}, {Unary::log, 1, 0, 1}, {Unary::log, kInf, kInf, 0}, {Unary::log, -1, kNaN, -1},
      {Unary::log1p, -1, -kInf, kInf}, {Unary::log1p, 0, 0, 1}, {Unary::log1p, kInf, kInf, 0}, {Unary::log1p, -2, kNaN, -1},
      {Unary::sqrt, 0, 0, kInf}, {Unary::sqrt, 4, 2, 0.25}, {Unary::sqrt, kInf, kInf, 0}, {Unary::sqrt, -1, kNaN, kNaN},
      {Unary::reciprocal, 0, kInf, -kInf}, {Unary::reciprocal, -kInf, 0, 0}, {Unary::square, -kInf, kInf, -kInf},
      {Unary::sin, 0, 0, 1}, {Unary::sin, kInf, kNaN, kNaN}, {Unary::cos, 0, 1, 0}, {Unary::cos, -kInf, kNaN, kNaN},
      {Unary::tanh, kInf, 1, 0}, {Unary::tanh, -kInf, -1, 0}, {Unary::tanh, 0, 0, 1}, {Unary::tanh, 50, 1, 0},
      {Unary::sigmoid, kInf, 1, 0}, {Unary::sigmoid, -kInf, 0, 0}, {Unary::sigmoid, 0, 0.5, 0.25}, {Unary::sigmoid, -1000, 0, 0},
      {Unary::gelu, 0, 0, 0.5}, {Unary::gelu, kInf, kInf, 1}, {Unary::gelu, -kInf, 0, 0}, {Unary::gelu_tanh, 0, 0, 0.5},
      {Unary::gelu_tanh, kInf, kInf, 1}, {Unary::gelu_tanh, -kInf, 0, 0}, {Unary::silu, 0, 0, 0.5}, {Unary::silu, kInf, kInf, 1},
      {Unary::silu, -kInf, 0, 0}, {Unary::softplus, -kInf, 0, 0}, {Unary::softplus, kInf, kInf, 1}, {Unary::softplus, 1000, 1000, 1},
      {Unary::erf, kInf, 1, 0}, {Unary::erf, -kInf, -1, 0}, {Unary::floor, -0.5, -1, 0}, {Unary::ceil, 1.25, 2, 0},
      {Unary::round, 2.5, 2, 0}, {Unary::round, -1.5, -2, 0}, {Unary::round, 0.5, 0, 0}, {Unary::sign, -3, -1, 0}, {Unary::sign, 0, 0, 0},
      {Unary::elu, -kInf, -2, 0, 2}, {Unary::elu, kInf, kInf, 1, 2}, {Unary::leaky_relu, -kInf, -kInf, 0.01, 0.01},
      {Unary::clamp, -1, -1, 1, -1, 1}, {Unary::clamp, 1, 1, 1, -1, 1}, {Unary::clamp, 2, 1, 0, -1, 1}, {Unary::clamp, -kInf, -1, 0, -1, 1},
      {Unary::clamp, 0, 1, 0, 2, 1}, {Unary::clamp, 1.5, 1, 0, 2, 1}, {Unary::clamp, 3, 1, 0, 2, 1},   // low above high
      {Unary::expm1, -kInf, -1, 0}, {Unary::expm1, kInf, kInf, kInf}, {Unary::expm1, 1e-20, 1e-20, 1}, {Unary::logsigmoid, kInf, 0, 0},
      {Unary::logsigmoid, -800, -800, 1}, {Unary::logsigmoid, -kInf, -kInf, 1},
      {Unary::pow, 0, 1, 0, 0}, {Unary::pow, kNaN, 1, 0, 0}, {Unary::pow, -1, kNaN, kNaN, 0.5}, {Unary::pow, 0, 0, kInf, 0.5},
      {Unary::pow, -2, -8, 12, 3}, {Unary::pow, 0, kInf, -kInf, -1}, {Unary::pow, -2, 0.25, 0.25, -2}, {Unary::pow, kInf, kInf, kInf, 1.5}};
  for (const Edge& edge : edges)
    for (DType dtype : {DType::f32, DType::f64})
      for_every_target([&] {
        CAPTURE(std::string(name(edge.op)));
        CAPTURE(edge.x);
        // a full vector and a tail: both paths
        const Tensor x = full({19}, edge.x, dtype), y = unary(edge.op, x, edge.a, edge.b), dx = empty_like(x);
        const double eps = dtype == DType::f32 ? 3e-7 : 1e-15;
        CHECK(worst_absolute(y, std::vector<double>(19, edge.y)) <= eps * 10);
        const Saves reads = saves(edge.op);
        const Tensor saved = reads == Saves::output ? y : reads == Saves::input ? x : Tensor();
        unary_grad(edge.op, saved, ones({19}, dtype), {dx}, edge.a, edge.b);
        CHECK(worst_absolute(dx, std::vector<double>(19, edge.dx)) <= eps * 12);
        for (const Unary selects : {Unary::relu, Unary::clamp, Unary::floor, Unary::ceil, Unary::round, Unary::sign})
          if (edge.op == selects) {   // an infinite gradient too is taken or left
            unary_grad(edge.op, saved, full({19}, kInf, dtype), {dx}, edge.a, edge.b);
            CHECK(doubles(dx) == std::vector<double>(19, edge.dx == 1 ? kInf : 0));
          }
        if (edge.op == Unary::pow && edge.a == 0)
          for (const double dy : {kInf, kNaN}) {
            unary_grad(edge.op, saved, full({19}, dy, dtype), {dx}, edge.a, edge.b);
            CHECK(doubles(dx) == std::vector<double>(19, 0));
          }
      });
}

TEST_CASE("unary: -0 stays -0 where the function goes through 0, and in roots and steps") {
  for_every_target([&] {
    for (const Unary op : {Unary::expm1, Unary::log1p, Unary::sqrt, Unary::sin, Unary::tanh, Unary::elu, Unary::erf, Unary::floor,
                           Unary::ceil, Unary::round})
      for (DType dtype : {DType::f32, DType::f64})
        for (const double y : doubles(unary(op, full({19}, -0.0, dtype), 1, 2))) {
          CAPTURE(std::string(name(op)));
          CHECK((y == 0 && std::signbit(y)));
        }
  });
}

TEST_CASE("unary: NaN gives NaN in every op on every target") {
  for_every_target([&] {
    for (int op = 0; op <= int(Unary::pow); ++op)
      for (DType dtype : {DType::f32, DType::f64}) {
        CAPTURE(std::string(name(Unary(op))));
        CHECK(all_nan(unary(Unary(op), full({21}, kNaN, dtype), 0.5, 2)));
      }
  });
}

TEST_CASE("unary: isnan, isfinite, all_finite") {
  const Tensor x = tensor({{1, kNaN, kInf}, {-kInf, 0, 2}}, DType::f64);
  CHECK(doubles(isnan(x)) == std::vector<double>{0, 1, 0, 0, 0, 0});
  CHECK(doubles(isfinite(x)) == std::vector<double>{1, 0, 0, 0, 1, 1});
  CHECK_FALSE(all_finite(x));
  CHECK(all_finite(x(all, Slice{.start = 0, .stop = 1})(Slice{.start = 0, .stop = 1})));
  CHECK(all_finite(arange(0, 5)));
  CHECK(doubles(isfinite(arange(0, 3))) == std::vector<double>{1, 1, 1});
  CHECK(all_finite(empty({0})));
  Tensor big = zeros({100000});
  CHECK(all_finite(big));
  fill_(big(Slice{.start = 77777, .stop = 77778}), kNaN);
  CHECK_FALSE(all_finite(big));
}

TEST_CASE("unary: integers and undefined tensors are refused") {
  CHECK_THROWS_WITH_AS(exp(arange(0, 3)), doctest::Contains("exp: takes f32 or f64: i64"), DTypeError);
  CHECK_THROWS_AS(tanh(Tensor()), Error);
  CHECK_THROWS_WITH_AS(unary_grad(Unary::tanh, zeros({2}), zeros({3}), {zeros({3})}), doctest::Contains("[2]"), ShapeError);
}

TEST_CASE("unary: where(x > 0, sqrt(x), 0) has gradient NaN at 0, as the chain rule says") {
  const Variable x = variable(tensor({0, 4}, DType::f64));
  Tape tape;
  tape.backward(sum(where(greater(x.value(), 0.0), sqrt(x), constant(zeros({2}, DType::f64)))));
  CHECK(std::isnan(doubles(x.grad())[0]));
  CHECK(doubles(x.grad())[1] == 0.25);
}

static const InTable rows{
    {"negative", reference::each([](double x) { return -x; })},
    {"abs", reference::each([](double x) { return std::abs(x); })},
    {"exp", reference::each([](double x) { return std::exp(x); })},
    {"log", reference::each([](double x) { return std::log(x); })},
    {"expm1", reference::each([](double x) { return std::expm1(x); })},
    {"log1p", reference::each([](double x) { return std::log1p(x); })},
    {"sqrt", reference::each([](double x) { return std::sqrt(x); })},
    {"square", reference::each([](double x) { return x * x; })},
    {"reciprocal", reference::each([](double x) { return 1 / x; })},
    {"sin", reference::each([](double x) { return std::sin(x); })},
    {"cos", reference::each([](double x) { return std::cos(x); })},
    {"tanh", reference::each([](double x) { return std::tanh(x); })},
    {"logsigmoid", reference::each([](double x) { return -std::log1p(std::exp(-x)); })},
    {"sigmoid", reference::each([](double x) { return 1 / (1 + std::exp(-x)); })},
    {"relu", reference::each([](double x) { return std::max(x, 0.0); })},
    {"gelu", reference::each([](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2)); })},
    {"gelu_tanh", reference::each([](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); })},
    {"silu", reference::each([](double x) { return x / (1 + std::exp(-x)); })},
    {"softplus", reference::each([](double x) { return std::log1p(std::exp(x)); })},
    {"erf", reference::each([](double x) { return std::erf(x); })},
    {"floor", reference::each([](double x) { return std::floor(x); })},
    {"ceil", reference::each([](double x) { return std::ceil(x); })},
    {"round", reference::each([](double x) { return std::nearbyint(x); })},
    {"sign", reference::each([](double x) { return double(x > 0) - double(x < 0); })},
    {"elu", reference::each([](double x) { return x > 0 ? x : 0.7 * std::expm1(x); })},
    {"leaky_relu", reference::each([](double x) { return x > 0 ? x : 0.1 * x; })},
    {"clamp", reference::each([](double x) { return std::clamp(x, -1.0, 0.5); })},
    {"pow to 2.5", reference::each([](double x) { return std::pow(x, 2.5); })},
    {"pow to -1", reference::each([](double x) { return 1 / x; })},
    {"pow to 3", reference::each([](double x) { return x * x * x; })},
};

TEST_CASE("clamp: NaN as a bound gives NaN without a gradient, as PyTorch's; infinite bounds are none") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [low, high] : {std::pair<double, double>(NAN, 1.0), {0.0, NAN}, {NAN, NAN}}) {
      const Variable x = variable(tensor({-1, 0.5, 2, NAN}, dtype));
      Tape tape;
      const Variable y = clamp(x, low, high);
      for (const double value : to(y.value(), DType::f64).to_vector<double>()) CHECK(std::isnan(value));
      tape.backward(sum(y));
      for (const double value : to(x.grad(), DType::f64).to_vector<double>()) CHECK(value == 0);
    }
  CHECK(clamp(tensor({-1, 2}), -INFINITY, INFINITY).to_vector<float>() == std::vector<float>{-1, 2});
}

TEST_CASE("clamp_: in place, of views too") {
  const Tensor x = uniform(Key(1), {37, 5}, -2, 2), before = x.clone(), column = select(x, 1, 2), rows = slice(x, 0, 3, 20);
  clamp_(column, -0.5, 0.25);
  CHECK(equal_bits(column, clamp(select(before, 1, 2), -0.5, 0.25)));
  CHECK(equal_bits(select(x, 1, 1), select(before, 1, 1)));
  clamp_(transpose(rows), -1, 1);
  CHECK(equal_bits(select(rows, 1, 4), clamp(select(slice(before, 0, 3, 20), 1, 4), -1, 1)));
  CHECK(equal_bits(select(slice(x, 0, 20, 37), 1, 0), select(slice(before, 0, 20, 37), 1, 0)));
}
