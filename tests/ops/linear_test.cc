// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/linear.h"

#include <doctest/doctest.h>

#include <limits>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

namespace {

const Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,   Activation::gelu_tanh,
                                   Activation::silu, Activation::tanh, Activation::sigmoid};

Variable activated(Activation activation, const Variable& x) {
  switch (activation) {
    case Activation::none: break;
    case Activation::relu: return relu(x);
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::silu: return silu(x);
    case Activation::tanh: return tanh(x);
    case Activation::sigmoid: return sigmoid(x);
  }
  return x;
}

}  // namespace

TEST_CASE("linear: fused equals its definition for every activation, dropout, residual, size and target") {
  for_every_target([] {
    for (Activation activation : kActivations)
      for (Index out : {1, 17, 300})
        for (bool more : {false, true}) {
          const Key key(Seed{std::uint64_t(out)});
          const Tensor x = normal(key / 0, {2, 3, 5}, 0, 1, DType::f64), w = normal(key / 1, {out, 5}, 0, 1, DType::f64),
                       b = normal(key / 2, {out}, 0, 1, DType::f64);
          const LinearFusion fusion{.activation = activation,
                                    .dropout = more ? 0.3 : 0,
                                    .key = key / 9,
                                    .residual = more ? normal(key / 3, {2, 3, out}, 0, 1, DType::f64) : Tensor()};
          const Tensor bias = more ? Tensor() : b;
          CHECK(worst_absolute(linear(x, w, bias, fusion).y, linear_by_definition(x, w, bias, fusion)) < 1e-13);
          LinearFusion single = fusion;
          if (more) single.residual = to(fusion.residual, DType::f32);
          const Tensor y = linear(to(x, DType::f32), to(w, DType::f32), to(b, DType::f32), single).y;
          CHECK(worst_absolute(to(y, DType::f64), linear_by_definition(x, w, b, fusion)) < 1e-5);
          // A transposed weight and a strided input are read where they lie.
          const Tensor xt = transpose(transpose(x, 0, 2).clone(), 0, 2), wt = transpose(transpose(w).clone());
          CHECK(worst_absolute(linear(xt, wt, b, fusion).y, linear(x, w, b, fusion).y) == 0);
        }
  });
}

TEST_CASE("linear: a narrow weight gives columns of a wide one, bit for bit") {
  for_every_target([] {
    for (DType dtype : {DType::f32, DType::f64}) {
      const Key key(Seed{4});
      const Tensor x = normal(key / 0, {70, 40}, 0, 1, dtype), w = normal(key / 1, {33, 40}, 0, 1, dtype),
                   b = normal(key / 2, {33}, 0, 1, dtype), r = normal(key / 3, {70, 33}, 0, 1, dtype);
      const Tensor whole = linear(x, w, b, {.activation = Activation::relu, .residual = r}).y;
      for (Index out : {1, 2, 5, 8, 9}) {
        const Tensor y =
            linear(x, slice(w, 0, 0, out), slice(b, 0, 0, out), {.activation = Activation::relu, .residual = slice(r, 1, 0, out)}).y;
        CHECK(worst_absolute(y, slice(whole, 1, 0, out)) == 0);
      }
    }
  });
}

TEST_CASE("linear: gradients of every input agree with differences, those under dropout with its definition") {
  for (Activation activation : kActivations) {
    const Key key(Seed{3});
    const Tensor x = normal(key / 0, {2, 3, 4}, 0, 1, DType::f64), w = normal(key / 1, {5, 4}, 0, 1, DType::f64),
                 b = normal(key / 2, {5}, 0, 1, DType::f64), r = normal(key / 3, {2, 3, 5}, 0, 1, DType::f64);
    CHECK(check_gradient(
              [&](std::span<const Variable> in) { return linear(in[0], in[1], in[2], {.activation = activation, .residual = in[3]}); },
              {x, w, b, r})
              .holds(1e-8));
    CHECK(check_gradient([&](std::span<const Variable> in) { return linear(in[0], in[1], Variable(), {.activation = activation}); }, {x, w})
              .holds(1e-8));
    const Played fused = play(
        [&](auto in) {
          return linear(in[0], in[1], in[2], {.activation = activation, .dropout = 0.3, .residual = in[3]});
        },
        {x, w, b, r});
    const Played plain = play(
        [&](auto in) { return in[3] + dropout(activated(activation, matmul(in[0], transpose(in[1])) + in[2]), 0.3); }, {x, w, b, r});
    CHECK(worst_absolute(fused.value, plain.value) < 1e-13);
    for (std::size_t i = 0; i < 4; ++i) CHECK(worst_absolute(fused.gradients[i], plain.gradients[i]) < 1e-13);
  }
}

TEST_CASE("linear: the activation of a huge or infinite z has the value and gradient of the small op, every target") {
  const double infinity = std::numeric_limits<double>::infinity();
  for_every_target([&] {
    for (DType dtype : {DType::f32, DType::f64})
      for (Activation activation : kActivations)
        for (double z : {1e19, -1e19, 1e20, -1e20, 3e38, -3e38, infinity, -infinity}) {
          CAPTURE(int(activation));
          CAPTURE(z);
          const Variable x = variable(tensor({{z}}, dtype)), plain = variable(tensor({{z}}, dtype)), w = constant(ones({1, 1}, dtype));
          Tape tape;
          const Variable fused = linear(x, w, {}, {.activation = activation}),
                         y = activation == Activation::none ? plain * 1.0 : activated(activation, plain);
          tape.backward(sum(fused) + sum(y));
          CHECK(fused.value().item() == y.value().item());
          CHECK(x.grad().item() == plain.grad().item());
        }
  });
}

TEST_CASE("linear: what ReLU closes takes no gradient, not even an infinite one") {
  for_every_target([] {
    const Variable x = variable(tensor({{-1, 4}}, DType::f64));
    Tape tape;
    tape.backward(sum(sqrt(linear(x, constant(eye(2, DType::f64)), {}, {.activation = Activation::relu}))));
    CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0.25});
  });
}

TEST_CASE("linear: same bits for 1, 2 and 3 threads, empty sizes, errors with both sides") {
  std::vector<float> first;
  const Tensor x = normal(Key(Seed{1}), {257, 65}), w = normal(Key(Seed{2}), {130, 65}), b = normal(Key(Seed{3}), {130});
  for_threads([&] {
    const auto y = linear(x, w, b, {.activation = Activation::gelu, .dropout = 0.1, .key = Key(Seed{4})}).y.to_vector<float>();
    if (first.empty()) first = y;
    CHECK(y == first);
  });
  CHECK(linear(zeros({0, 65}), w, b).y.shape() == Shape{0, 130});
  CHECK(linear(zeros({2, 0}), zeros({3, 0}), tensor({1, 2, 3})).y.to_vector<float>() == std::vector<float>{1, 2, 3, 1, 2, 3});
  CHECK_THROWS_WITH_AS(linear(x, zeros({3, 4}), {}), doctest::Contains("linear: inner sizes differ: x [257, 65], weight [3, 4] (65 and 4)"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(linear(x, w, zeros({3})), doctest::Contains("bias must be [130]: bias [3]"), ShapeError);
  CHECK_THROWS_AS(linear(x, to(w, DType::f64), {}), DTypeError);
}

namespace {

// x Wᵀ + b
reference::Array product(const reference::Arrays& x) {
  reference::Array turned = reference::make({x[1].shape[1], x[1].shape[0]}, [&](const reference::Position& p) {
    return x[1]({p[1], p[0]});
  });
  const reference::Array z = reference::matmul({x[0], turned});
  return reference::make(z.shape, [&](const reference::Position& p) { return z(p) + x[2](p); });
}
reference::Array with_gelu(const reference::Arrays& x) {
  const reference::Array z = product(x);
  return reference::make(z.shape, [&](const reference::Position& p) { return x[3](p) + z(p) * 0.5 * std::erfc(-z(p) / std::sqrt(2)); });
}

}  // namespace

// Up to 211 products of numbers up to 2.
static const InTable rows{
    {.name = "linear",
     .reference = product,
     .definition = [](std::span<const Variable> x) { return matmul(x[0], transpose(x[1])) + x[2]; },
     .wrong = {{{{2, 3}, {5, 4}, {5}}}},
     .ulp = 100},
    {.name = "linear gelu",
     .reference = with_gelu,
     .definition = [](std::span<const Variable> x) { return gelu(matmul(x[0], transpose(x[1])) + x[2]) + x[3]; },
     .wrong = {{{{2, 3}, {5, 4}, {5}, {2, 5}}}},
     .ulp = 100},
    {.name = "linear gelu wide",
     .reference = with_gelu,
     .definition = [](std::span<const Variable> x) { return gelu(matmul(x[0], transpose(x[1])) + x[2]) + x[3]; },
     .ulp = 100},
};
