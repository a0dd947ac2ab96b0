// SPDX-License-Identifier: Apache-2.0
// The additive score of attention (Bahdanau et al. 2015, arXiv 1409.0473, A.1.2) without storing its hidden layer [B, T, S, A].
// A score depends on its own query and key alone: one query at a time gives the bits of all at once, padding changes none.
// Positions that the mask forbids are skipped, whatever they hold: score 0, no gradient. f32 and f64, any strides.
// ShapeError: ranks, sizes, the mask does not fit [B, T, S]. DTypeError: mixed.
#pragma once
#include "tensor/into.h"
#include "tensor/mask.h"

namespace heed {

// e_ts = Σ_a v_a tanh(q_ta + k_sa)        q [B, T, A], k [B, S, A], v [A] -> e [B, T, S]
Tensor additive_score(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {});
// u = tanh(q + k) is computed anew;  g_tsa = de_ts v_a (1 - u_tsa²):
//   dq_t = Σ_s g_ts    dk_s = Σ_t g_ts    dv = Σ_ts de_ts u_ts;  gradients that are not wanted are null
void additive_score_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const Tensor& de, const Into* dq,
                         const Into* dk, const Into* dv);

// The same with every tanh stored.
Tensor additive_score_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {});

}  // namespace heed
