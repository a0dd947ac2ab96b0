// SPDX-License-Identifier: Apache-2.0
#include "attention/scores/gaussian.h"

#include "autograd/trace.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// e^x, of x beyond 20 e^20: places that no source has, whose squares a float still holds
Variable bounded_exp(const Variable& x) { return exp(minimum(x, 20)); }

}  // namespace

Gaussian::Gaussian(Scope scope, const ScoreOptions& options)
    : steps(scope / "steps", {.in = options.query_width, .out = kWindows}),
      shapes(scope / "shapes", {.in = options.query_width, .out = 2 * kWindows}) {}

Variable Gaussian::carry(const Variable& query, const AttentionState& state) const {
  const Variable step = bounded_exp(steps(query));
  const Trace::Axes rows{.rows = Along::target};
  constexpr std::string_view before = "κ of the step before, 0 at the first";
  if (!state.carried.defined()) trace("previous", before, [&] { return zeros(step.shape(), step.dtype()); }, rows);
  return trace("middles", "κ = κ of the step before + exp(W q + b), a middle for each window",
               state.carried.defined() ? trace("previous", before, state.carried, rows) + step : step, rows);
}

Variable Gaussian::operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
  // [B, T, K] each
  const Variable shape = shapes(query), log_a = slice(shape, -1, 0, kWindows), b = bounded_exp(slice(shape, -1, kWindows, 2 * kWindows));
  const Tensor s = arange(1, double(memory.values.size(1)) + 1, 1, query.dtype());                                                  // [S]
  // [B, T, K, S]
  const Variable away = square(unsqueeze(state.carried, -1) - constant(s));
  return logsumexp(unsqueeze(log_a, -1) - unsqueeze(b, -1) * away, {2});
}

}  // namespace heed
