// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/scores/additive.h"

namespace heed {

// vᵀ tanh(W q_t + U h_s + f_ts) with f [B, T, S, A] added for every pair
Variable additive_score_with(const Additive& score, const Variable& query, const Memory& memory, const Variable& f);

// e_ts = vᵀ tanh(W q_t + U h_s + w_c c_ts),  c_t = Σ_{t' < t} α_t'        See et al. 2017, arXiv 1704.04368, Eq. 10-11
// What was looked at already counts. Their loss adds λ Σ_s min(α_ts, c_ts).
struct Coverage : Additive {
  static constexpr std::string_view formula = "e_j = vᵀ tanh(W q + U h_j + w Σ_t α_tj)";
  static constexpr bool looks_back = true;
  Coverage(Scope scope, const ScoreOptions& options) : Additive(scope, options), coverage(scope / "coverage", {.in = 1, .out = options.hidden(), .bias = false}) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
    if (!state.sum.defined()) return Additive::operator()(query, memory, state);
    return additive_score_with(*this, query, memory, coverage(unsqueeze(state.sum, -1)));
  }
  Linear coverage;                  // w_c [A, 1]
};
static_assert(Score<Coverage>);

}  // namespace heed
