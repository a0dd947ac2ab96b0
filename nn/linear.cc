// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "autograd/trace.h"
#include "nn/init.h"

namespace heed {

namespace {

std::string_view formula(bool bias, const LinearOptions& fused) {
  if (fused.residual.defined() && fused.activation != Activation::none)
    return bias ? "y = residual + activation(x Wᵀ + b)" : "y = residual + activation(x Wᵀ)";
  if (fused.residual.defined()) return bias ? "y = residual + x Wᵀ + b" : "y = residual + x Wᵀ";
  switch (fused.activation) {
    case Activation::none: return bias ? "y = x Wᵀ + b" : "y = x Wᵀ";
    case Activation::relu: return bias ? "y = relu(x Wᵀ + b)" : "y = relu(x Wᵀ)";
    case Activation::tanh: return bias ? "y = tanh(x Wᵀ + b)" : "y = tanh(x Wᵀ)";
    case Activation::sigmoid: return bias ? "y = σ(x Wᵀ + b)" : "y = σ(x Wᵀ)";
    case Activation::silu: return bias ? "y = silu(x Wᵀ + b)" : "y = silu(x Wᵀ)";
    case Activation::gelu_tanh: return bias ? "y = gelu_tanh(x Wᵀ + b)" : "y = gelu_tanh(x Wᵀ)";
    case Activation::gelu: break;
  }
  return bias ? "y = gelu(x Wᵀ + b)" : "y = gelu(x Wᵀ)";
}

}  // namespace

Linear::Linear(Scope scope, Options options)
    : weight(options.weight.defined()
                 ? scope.alias("weight", std::move(options.weight), {options.out, options.in})
                 : scope.parameter("weight", {options.out, options.in}, options.init ? options.init : linear_uniform(options.in))),
      bias(options.bias ? scope.parameter("bias", {options.out}, options.init ? constant_init(0) : linear_uniform(options.in))
                        : Parameter()),
      path(scope.path()) {
  weight.data().multiplied = true;
}

Variable Linear::operator()(const Variable& x, const LinearOptions& fused) const {
  const Inside inside(path);
  return trace("", formula(bias.defined(), fused), linear(x, weight, bias, fused));
}

}  // namespace heed
