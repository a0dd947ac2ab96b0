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

}  // namespace heed
