// SPDX-License-Identifier: Apache-2.0
// Differential attention (Ye et al. 2024, arXiv 2410.05258, 2.1, Eq. 1 to 3): heads in pairs, whose weights are subtracted
// and read values twice as wide:
//   c = (α_1 - λ α_2) v,   λ = exp(λ_q1·λ_k1) - exp(λ_q2·λ_k2) + λ_init,   λ_init = 0.8 - 0.6 exp(-0.3 (layer - 1))
//   c' = (1 - λ_init) γ ⊙ c/√(mean c² + eps)
#pragma once
#include "nn/scope.h"

namespace heed {

class DifferentialHeads {
 public:
  struct Options {
    Index heads, head_width;                       // H, even, and dk: of a pair 2 dk
    Index layer = 1;                               // of its stack, from 1
  };
  // `lambda_q1`, `lambda_k1`, `lambda_q2`, `lambda_k2` [dk], N(0, 0.1²);  `norm.weight` γ [2 dk], of all pairs.   ShapeError: an odd H
  DifferentialHeads(Scope scope, Options options);

  double start() const;                            // λ_init
  Variable lambda() const;                         // λ []
  Variable weights(const Variable& p) const;       // α [B, H, T, S] -> α_1 - λ α_2 [B, H/2, T, S]
  Variable context(const Variable& c) const;       // c -> c'   [B, H/2, T, 2 dk]

  Parameter lambda_q1, lambda_k1, lambda_q2, lambda_k2, norm_weight;

 private:
  static constexpr double kEps = 1e-5;
  Options options_;
};

}  // namespace heed
