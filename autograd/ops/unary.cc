// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/unary.h"

#include "autograd/ops.h"
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
Variable log(const Variable& x) { return apply(Unary::log, x); }
Variable log1p(const Variable& x) { return apply(Unary::log1p, x); }
Variable sqrt(const Variable& x) { return apply(Unary::sqrt, x); }
Variable square(const Variable& x) { return apply(Unary::square, x); }
Variable reciprocal(const Variable& x) { return apply(Unary::reciprocal, x); }
Variable sin(const Variable& x) { return apply(Unary::sin, x); }
Variable cos(const Variable& x) { return apply(Unary::cos, x); }
Variable tanh(const Variable& x) { return apply(Unary::tanh, x); }
Variable sigmoid(const Variable& x) { return apply(Unary::sigmoid, x); }
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

}  // namespace heed
