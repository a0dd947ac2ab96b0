// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/scores/coverage.h"

namespace heed {

// e_ts = vᵀ tanh(W q_t + U h_s + V f_ts),  f_t = F * α_{t-1}        Chorowski et al. 2015, arXiv 1506.07503, Eq. 8-9
// F: `kFilters` filters over the 2 kReach + 1 weights around s of the step before; zeros at the first step.
// Differs: the b inside of the tanh is there with options.bias alone.
struct LocationAware : Additive {
  static constexpr bool looks_back = true;
  static constexpr Index kFilters = 8, kReach = 3;
  LocationAware(Scope scope, const ScoreOptions& options)
      : Additive(scope, options, " + V (F * α)_j"),
        filters(scope / "filters", {.in = 2 * kReach + 1, .out = kFilters, .bias = false}),
        filter_proj(scope / "filter_proj", {.in = kFilters, .out = options.hidden(), .bias = false}) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
    const Variable previous =
        traced_past("previous", "α, the final weights (of local-p a) of the step before; 0 at the first", state.previous, query, memory);
    if (!previous.defined()) return Additive::operator()(query, memory, state);
    const Index S = previous.size(2);
    const Variable padded = pad(previous, -1, kReach, kReach);
    List<Variable> shifted;
    for (Index i = 0; i <= 2 * kReach; ++i) shifted.push_back(slice(padded, -1, i, i + S));
    return additive_score_with(*this, query, memory, filter_proj(filters(stack(shifted, -1))));   // [B, T, S, A]
  }
  Linear filters, filter_proj;      // F [C, 2r + 1], V [A, C]
};
static_assert(Score<LocationAware>);

}  // namespace heed
