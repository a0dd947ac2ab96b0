// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include "autograd/ops.h"
#include "autograd/trace.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

double checked_eps(const Path& path, std::string_view op, double eps) {
  const Inside inside(path);
  check<Error>(eps >= 0, "{}: eps must not be negative: {}", op, eps);
  return eps;
}

}  // namespace

LayerNorm::LayerNorm(Scope scope, Options options)
    : weight(scope.parameter("weight", {options.width}, constant_init(1))),
      bias(options.bias ? scope.parameter("bias", {options.width}, constant_init(0)) : Parameter()),
      eps(checked_eps(scope.path(), "layer_norm", options.eps)),
      path(scope.path()) {}

Variable LayerNorm::operator()(const Variable& x) const {
  const Inside inside(path);
  return trace("", bias.defined() ? "y = γ ⊙ (x - μ)/√(var + ε) + β" : "y = γ ⊙ (x - μ)/√(var + ε)", layer_norm(x, weight, bias, eps));
}

RMSNorm::RMSNorm(Scope scope, Options options)
    : weight(scope.parameter("weight", {options.width}, constant_init(1))), eps(checked_eps(scope.path(), "rms_norm", options.eps)), path(scope.path()) {}

Variable RMSNorm::operator()(const Variable& x) const {
  const Inside inside(path);
  return trace("", "y = γ ⊙ x/√(mean x² + ε)", rms_norm(x, weight, eps));
}

}  // namespace heed
