// SPDX-License-Identifier: Apache-2.0
// What causal linear attention sums (Katharopoulos et al. 2020, arXiv 2006.16236, Eq. 9 to 12), in work that grows with T, not with T²:
//   y_i = q_i S_i,   S_i = S_(i-1) + k_iᵀ v_i         q, k [B, H, T, m], v [B, H, T, n], S [B, H, m, n] -> y [B, H, T, n]
// A row depends on itself, the rows before and its 16 columns of v alone: one at a time gives the bits of all at once.
// f32 and f64; any strides.
// ShapeError: not rank 4, sizes differ. DTypeError: mixed.
#pragma once
#include "tensor/into.h"

namespace heed {

Tensor causal_product(const Tensor& q, const Tensor& k, const Tensor& v);                            // S_0 = 0
// S_0 = state, contiguous, which becomes S_T
Tensor causal_product_next(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state);
Tensor causal_product_by_definition(const Tensor& q, const Tensor& k, const Tensor& v);              // tril(q kᵀ) v
// dq = causal_product(dy, v, k);  dk, dv: those of (v, dy, q) and (k, q, dy) from the last row to the first. Null: not wanted
void causal_product_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy, const Into* dq, const Into* dk,
                         const Into* dv);

}  // namespace heed
