// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tensor/into.h"

namespace heed {

// c[..., m, n] = Σ_k a[..., m, k] b[..., k, n];  a [..., M, K], b [..., K, N], the axes before are broadcast (NumPy).
// A vector a [K] acts as one row, b [K] as one column, and its axis of size 1 is dropped from the result. K = 0 gives zeros.
// Each element is one chain of multiply-adds in rising k: a row has the same bits alone and inside any batch. Two vectors: sum(a ⊙ b).
// ShapeError: inner sizes differ, axes do not broadcast, a 0-d operand. DTypeError: not f32 or f64, or mixed.
Tensor matmul(const Tensor& a, const Tensor& b);
// The same into c (=|+=), of the result's shape, any strides, no overlap with a or b. When adding, the chain starts at c.
void matmul(const Tensor& a, const Tensor& b, Into c);

// c (=|+=) aᵀ b = Σ_r a[r, :]ᵀ b[r, :]:  a [N, m], b [N, n] -> c [m, n], the sum of a weight's gradient over rows. Where N is large the
// chains of c's upper half begin in the middle of the rows (multiply_by_halves, tensor/gemm.h). Errors as above.
// sums [m] (=|+=) Σ_r a[r, :] on the way, by the same chains: the gradient of a bias.
void matmul_over_rows(const Tensor& a, const Tensor& b, Into c, const Into* sums = nullptr);
// The sums alone, with the bits that they have beside a b of n columns. ShapeError: a is no matrix, or sums are not [m].
// DTypeError: others.
void sum_over_rows(const Tensor& a, Index n, Into sums);

// da = dc bᵀ, db = aᵀ dc, summed over the axes that were broadcast: these continue the chain, so nothing of the batch's size
// is stored.
void matmul_grad_a(const Tensor& b, const Tensor& dc, Into da);
void matmul_grad_b(const Tensor& a, const Tensor& dc, Into db);

}  // namespace heed
