// SPDX-License-Identifier: Apache-2.0
// Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236, 3.2 to 3.4) of features of queries and keys, φ(x) = elu(x) + 1 or those of
// random_features.h, whose work grows with the length of a sentence, not with its square:
//   α_ij = φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j),   c_i = Σ_j α_ij v_j = φ(q_i) KV / (φ(q_i)·z),   KV = Σ_j φ(k_j)ᵀ v_j,  z = Σ_j φ(k_j)
// over the positions that may be seen; in causal attention KV and z are those of the positions up to i. Denominators are at least `least`;
// where nothing may be seen c is 0. ShapeError, DTypeError: as matmul's and causal_product's.
// Below q [B, H, T, dk] and k [B, H, S, dk] are features, v [B, H, S, dv].
#pragma once
#include "autograd/variable.h"
#include "tensor/mask.h"

namespace heed {

inline constexpr double kLeastDenominator = 1e-6;

Variable linear_features(const Variable& x);                                              // elu(x) + 1
Variable without_padding(const Variable& k, const Mask& mask, double value = 0);          // value beyond the mask's lengths
Variable linear_sums(const Variable& k, const Variable& v);                               // [KV, z]  [B, H, dk, dv + 1]
Variable linear_context(const Variable& q, const Variable& sums, double least = kLeastDenominator);    // c  [B, H, T, dv]
// of all positions from the first
Variable causal_linear_context(const Variable& q, const Variable& k, const Variable& v, double least = kLeastDenominator);
// The same of the positions after those in sums, which move on in place; no gradient.
Tensor causal_linear_context_next(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, double least = kLeastDenominator);
// α of scores q kᵀ, by definition  [B, H, T, S]
Variable linear_weights(const Variable& scores, const Mask& mask, double least = kLeastDenominator);

}  // namespace heed
