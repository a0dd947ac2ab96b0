// SPDX-License-Identifier: Apache-2.0
// Softmax's sparse relatives over the last axis: weights that sum to 1 and are exactly 0 far from the largest score. Masked entries
// take no part; a row with nothing allowed gives zeros and zero gradient. A row with a NaN or an infinite largest entry gives NaN.
// f32 and f64. ShapeError: rank 0, the mask does not fit.
#pragma once
#include "tensor/into.h"
#include "tensor/mask.h"

namespace heed {

// p = max(x - τ, 0), τ so that Σ p = 1: the nearest point of the simplex        Martins and Astudillo 2016, arXiv 1602.02068, Alg. 1
Tensor sparsemax(const Tensor& x, const Mask& mask = {});
// dx = s ⊙ (dp - Σ s dp / Σ s),  s = [p > 0]; where p = 0 dp may hold anything, here and below
void sparsemax_grad(const Tensor& p, const Tensor& dp, Into dx);

// p = max(x/2 - τ, 0)², τ so that Σ p = 1: α-entmax with α = 1.5                Peters et al. 2019, arXiv 1905.05702, Alg. 2
Tensor entmax(const Tensor& x, const Mask& mask = {});
// dx = s ⊙ (dp - Σ s dp / Σ s),  s = √p
void entmax_grad(const Tensor& p, const Tensor& dp, Into dx);

// p = max((α - 1) x - τ, 0)^(1/(α - 1)),  τ so that Σ p = 1: from softmax (α = 1) to sparsemax (2)             ibid., Eq. 4
// alpha broadcasts to the axes of x before the last; what is below 1.0001 counts as that. Error: below 1 or above 2; of NaN: NaN.
// ShapeError, DTypeError: it does not fit, differs.
Tensor alpha_entmax(const Tensor& x, const Tensor& alpha, const Mask& mask = {});
// dx as above with s = p^(2-α);  dα = Σ dp ((p - p')/(α - 1)² + (h - p' Σ h)/(α - 1)),  p' = s/Σ s,  h = -p ln p
// over the rows that an α belongs to; null: not wanted                                 Correia et al. 2019, arXiv 1909.00015, Prop. 1
void alpha_entmax_grad(const Tensor& p, const Tensor& alpha, const Tensor& dp, const Into* dx, const Into* dalpha);

}  // namespace heed
