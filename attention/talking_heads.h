// SPDX-License-Identifier: Apache-2.0
// Talking-heads attention (Shazeer et al. 2020, arXiv 2003.02436, 4): the heads of a layer mix their scores before these become weights,
// and the weights before they read:
//   e'_a = Σ_b L_ab e_b,   α = normalise(e'),   α'_a = Σ_b W_ab α_b
#pragma once
#include "nn/scope.h"

namespace heed {

struct TalkingHeads {
  // `logit_mix` L, `weight_mix` W [H, H]. They start as the identity, with which the heads are those of plain attention.
  TalkingHeads(Scope scope, Index heads);
  Variable scores(const Variable& e) const;        // [B, H, T, S] -> [B, H, T, S]
  Variable weights(const Variable& p) const;

  Parameter logit_mix, weight_mix;
};

}  // namespace heed
