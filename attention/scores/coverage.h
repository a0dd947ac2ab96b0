// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/scores/additive.h"

namespace heed {

// vᵀ tanh(W q_t + U h_s + f_ts) with f [B, T, S, A] added for every pair
Variable additive_score_with(const Additive& score, const Variable& query, const Memory& memory, const Variable& f);
// What a score looks back on [B, T, S], for a Trace: zeros at the first step, where it is undefined.
Variable traced_past(std::string_view name, std::string_view formula, const Variable& past, const Variable& query, const Memory& memory);

// e_ts = vᵀ tanh(W q_t + U h_s + w_c c_ts),  c_t = Σ_{t' < t} α_t'        See et al. 2017, arXiv 1704.04368, Eq. 10-11
// What was looked at already counts. Their loss on it: coverage_loss in models/seq2seq.h.
// Differs: the b inside of the tanh is there with options.bias alone.
struct Coverage : Additive {
  static constexpr bool looks_back = true;
  Coverage(Scope scope, const ScoreOptions& options)
      : Additive(scope, options, " + w Σ_t α_tj"), coverage(scope / "coverage", {.in = 1, .out = options.hidden(), .bias = false}) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
    const Variable sum = traced_past("sum", "Σ_t α_tj, the final weights (of local-p a_tj) added over the steps before; 0 at the first",
                                     state.sum, query, memory);
    if (!sum.defined()) return Additive::operator()(query, memory, state);
    return additive_score_with(*this, query, memory, coverage(unsqueeze(sum, -1)));
  }
  Linear coverage;                  // w_c [A, 1]
};
static_assert(Score<Coverage>);

}  // namespace heed
