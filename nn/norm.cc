// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include "autograd/ops.h"
#include "autograd/trace.h"
#include "nn/dropout.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

double checked_eps(const Path& path, std::string_view op, double eps) {
  const Inside inside(path);
  check<Error>(eps >= 0, "{}: eps must be 0 or more: {}", op, eps);
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
  check_not_moved_from(weight.defined(), "layer_norm");
  return trace("", bias.defined() ? "y = γ ⊙ (x - μ)/√(var + ε) + β" : "y = γ ⊙ (x - μ)/√(var + ε)", layer_norm(x, weight, bias, eps));
}

RMSNorm::RMSNorm(Scope scope, Options options)
    : weight(scope.parameter("weight", {options.width}, constant_init(1))),
      eps(checked_eps(scope.path(), "rms_norm", options.eps)),
      path(scope.path()) {}

Variable RMSNorm::operator()(const Variable& x) const {
  const Inside inside(path);
  check_not_moved_from(weight.defined(), "rms_norm");
  return trace("", "y = γ ⊙ x/√(mean x² + ε)", rms_norm(x, weight, eps));
}

Norm::Norm(Scope scope, Options o)
    : form(o.rms ? decltype(form)(RMSNorm(scope, {.width = o.width, .eps = o.eps}))
                 : decltype(form)(LayerNorm(scope, {.width = o.width, .eps = o.eps, .bias = o.bias}))) {}

Variable Norm::operator()(const Variable& x) const {
  return std::visit([&](const auto& norm) { return norm(x); }, form);
}

Variable Norm::after_sum(const Variable& x, const Variable& residual, double dropout) const {
  const Inside inside(path());
  check_not_moved_from(std::visit([](const auto& norm) { return norm.weight.defined(); }, form), "norm");
  if (const auto* norm = std::get_if<LayerNorm>(&form))
    return add_dropout_norm(x, residual, norm->weight, norm->bias, dropout, norm->eps).y;
  const RMSNorm& norm = std::get<RMSNorm>(form);
  check<ShapeError>(x.shape() == residual.shape(), "norm: shapes differ: residual {}, x {}", residual.shape(), x.shape());
  return rms_norm(residual + heed::dropout(x, dropout), norm.weight, norm.eps);
}

const Path& Norm::path() const {
  return std::visit([](const auto& norm) -> const Path& { return norm.path; }, form);
}

}  // namespace heed
