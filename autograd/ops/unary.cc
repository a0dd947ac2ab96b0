// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/unary.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {
namespace {

Variable apply(Unary op, const Variable& x, double a = 0, double b = 0) {
  Tensor y = unary(op, x.value(), a, b);
  const Saves reads = saves(op);
  Saved value = saved(reads == Saves::output ? y : reads == Saves::input ? x.value() : Tensor());
  return record(name(op), y, {x}, [dx = x.slot(), value = std::move(value), op, a, b](const Tensor& dy) {
    dx.gradient([&](Into out) { unary_grad(op, value, dy, out, a, b); });
  });
}

}  // namespace

Variable negative(const Variable& x) { return apply(Unary::negative, x); }
Variable abs(const Variable& x) { return apply(Unary::abs, x); }
Variable exp(const Variable& x) { return apply(Unary::exp, x); }
Variable expm1(const Variable& x) { return apply(Unary::expm1, x); }
Variable log(const Variable& x) { return apply(Unary::log, x); }
Variable log1p(const Variable& x) { return apply(Unary::log1p, x); }
Variable sqrt(const Variable& x) { return apply(Unary::sqrt, x); }
Variable square(const Variable& x) { return apply(Unary::square, x); }
Variable reciprocal(const Variable& x) { return apply(Unary::reciprocal, x); }
Variable sin(const Variable& x) { return apply(Unary::sin, x); }
Variable cos(const Variable& x) { return apply(Unary::cos, x); }
Variable tanh(const Variable& x) { return apply(Unary::tanh, x); }
Variable sigmoid(const Variable& x) { return apply(Unary::sigmoid, x); }
Variable logsigmoid(const Variable& x) { return apply(Unary::logsigmoid, x); }
Variable relu(const Variable& x) { return apply(Unary::relu, x); }
Variable gelu(const Variable& x) { return apply(Unary::gelu, x); }
Variable gelu_tanh(const Variable& x) { return apply(Unary::gelu_tanh, x); }
Variable silu(const Variable& x) { return apply(Unary::silu, x); }
Variable softplus(const Variable& x) { return apply(Unary::softplus, x); }
Variable erf(const Variable& x) { return apply(Unary::erf, x); }
Variable floor(const Variable& x) { return apply(Unary::floor, x); }
Variable ceil(const Variable& x) { return apply(Unary::ceil, x); }
Variable round(const Variable& x) { return apply(Unary::round, x); }
Variable sign(const Variable& x) { return apply(Unary::sign, x); }
Variable operator-(const Variable& x) { return apply(Unary::negative, x); }
Variable elu(const Variable& x, double alpha) { return apply(Unary::elu, x, alpha); }
Variable leaky_relu(const Variable& x, double slope) { return apply(Unary::leaky_relu, x, slope); }
Variable clamp(const Variable& x, double low, double high) { return apply(Unary::clamp, x, low, high); }
Variable pow(const Variable& x, double exponent) { return apply(Unary::pow, x, exponent); }

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void unary_samples(SampleTable& table) {
  table.each("negative", [](auto& x) { return negative(x); }, -2, 2);
  table.each("operator-", [](auto& x) { return -x; }, -2, 2);
  table.each("abs", [](auto& x) { return abs(x); }, -2, 2, {0});
  table.each("exp", [](auto& x) { return exp(x); }, -3, 3);
  table.each("expm1", [](auto& x) { return expm1(x); }, -3, 3);
  table.each("log", [](auto& x) { return log(x); }, 0.1, 4);
  table.each("log1p", [](auto& x) { return log1p(x); }, -0.8, 3);
  table.each("sqrt", [](auto& x) { return sqrt(x); }, 0.1, 4);
  table.each("square", [](auto& x) { return square(x); }, -2, 2);
  table.each("reciprocal", [](auto& x) { return reciprocal(x); }, 0.5, 2);
  table.each("sin", [](auto& x) { return sin(x); }, -10, 10);
  table.each("cos", [](auto& x) { return cos(x); }, -10, 10);
  table.each("tanh", [](auto& x) { return tanh(x); }, -4, 4);
  table.each("sigmoid", [](auto& x) { return sigmoid(x); }, -6, 6);
  table.each("logsigmoid", [](auto& x) { return logsigmoid(x); }, -4, 4);
  table.each("relu", [](auto& x) { return relu(x); }, -2, 2, {0});
  table.each("gelu", [](auto& x) { return gelu(x); }, -4, 4);
  table.each("gelu_tanh", [](auto& x) { return gelu_tanh(x); }, -4, 4);
  table.each("silu", [](auto& x) { return silu(x); }, -6, 6);
  table.each("softplus", [](auto& x) { return softplus(x); }, -6, 6);
  table.each("erf", [](auto& x) { return erf(x); }, -3, 3);
  table.each("floor", [](auto& x) { return floor(x); }, -2, 2, {-2, -1, 0, 1, 2});
  table.each("ceil", [](auto& x) { return ceil(x); }, -2, 2, {-2, -1, 0, 1, 2});
  table.each("round", [](auto& x) { return round(x); }, -2, 2, {-1.5, -0.5, 0.5, 1.5});
  table.each("sign", [](auto& x) { return sign(x); }, -2, 2, {0});
  table.each("elu", [](auto& x) { return elu(x, 0.7); }, -3, 2, {0});
  table.each("leaky_relu", [](auto& x) { return leaky_relu(x, 0.1); }, -2, 2, {0});
  table.each("clamp", [](auto& x) { return clamp(x, -1, 0.5); }, -2, 2, {-1, 0.5});
  table.each("pow to 2.5", [](auto& x) { return pow(x, 2.5); }, 0.2, 2);
  table.each("pow to -1", [](auto& x) { return pow(x, -1); }, 0.5, 2);
  table.each("pow to 3", [](auto& x) { return pow(x, 3); }, -2, 2);
}

}  // namespace heed
