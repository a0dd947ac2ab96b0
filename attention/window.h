// SPDX-License-Identifier: Apache-2.0
// Local attention (Luong et al. 2015, arXiv 1508.04025, 3.2): only positions p_t - w <= s <= p_t + w are looked at. Positions count
// from 0 here, from 1 in the paper. S, the length of a sentence, is that of Mask::lengths or else the memory's: an explicit mask says what
// may be seen, not where a sentence ends.
#pragma once
#include "attention/score.h"

namespace heed {

// Where the rows look.
struct Focus {
  Mask mask;              // the window
  Variable factor;        // of the weights, [B, T, S]; undefined: 1
  Tensor position;        // p [B, T], f64
  std::string_view formula = "p, the word looked at, from 0";   // what explanations print of position; empty: it was traced; outlives this
};
using Window = std::function<Focus(const Variable& query, const Memory& memory, const AttentionState& state)>;

// local-m: p_t = t. Beyond the sentence by more than w nothing is allowed: weights and context are zeros;
// clamp_position: p_t = min(t, S - 1).
// w = 0: the position itself.
Window local_m(const ScoreOptions& options);

// local-p: p_t = S σ(v_pᵀ tanh(W_p q_t)) - 1, real; the weights are multiplied by
// exp(-(s - p_t)² / (2 (w/2)²)) and not normalised again; p_t gets its gradient through this factor.
// w = 0: the nearest position, factor 1, no gradient to p_t.       Parameters: position_proj.weight [A, n], position_v [A]
Window local_p(Scope scope, const ScoreOptions& options);

}  // namespace heed
