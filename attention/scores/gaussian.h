// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/score.h"
#include "nn/linear.h"

namespace heed {

// e_ts = log Σ_k a_k exp(-b_k (κ_tk - s)²),  κ_t = κ_{t-1} + exp(W_κ q_t + b_κ),  (a, b) = exp(W_ab q_t + b_ab)
//                                                                                            Graves 2013, arXiv 1308.0850, Eq. 46-51
// `kWindows` windows that only move forward, s from 1, κ_0 = 0. The query alone says where to look. Exponents beyond 20, but for those of a,
// count as 20.
// The paper's weights are exp(e): those of gaussian-exp. Of gaussian they are normalised, as those of every score.
struct Gaussian {
  static constexpr std::string_view formula = "e_j = log Σ_k a_k exp(-b_k (κ_k - j)²), ln a and ln b = W q + b, j from 1";
  static constexpr bool looks_back = true;
  static constexpr Index kWindows = 3;
  Gaussian(Scope scope, const ScoreOptions& options);
  Variable carry(const Variable& query, const AttentionState& state) const;    // κ [B, T, K]
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const;
  Linear steps, shapes;             // W_κ [K, n], W_ab [2K, n], and b
};
static_assert(Score<Gaussian>);

}  // namespace heed
