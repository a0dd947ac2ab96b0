// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "autograd/trace.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {

namespace {

// "y = residual + relu(x Wᵀ + b)", for a Trace
std::string formula(bool bias, const LinearOptions& fused) {
  if (!Trace::current()) return {};
  const std::string_view product = bias ? "x Wᵀ + b" : "x Wᵀ", residual = fused.residual.defined() ? "residual + " : "";
  if (fused.activation == Activation::none) return fmt::format("y = {}{}", residual, product);
  constexpr std::string_view kNames[] = {"", "relu", "gelu", "gelu_tanh", "silu", "tanh", "σ"};
  return fmt::format("y = {}{}({})", residual, kNames[std::size_t(fused.activation)], product);
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
