// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm along one axis. With a mask, entries that are not allowed take no part, whatever they hold, and a
// row with nothing allowed gives zeros and zero gradient; the mask's last axis is x's last axis. Without a mask a row of -inf
// gives NaN. f32 and f64; ShapeError where the mask does not fit, IndexError for dim.
#pragma once
#include "tensor/into.h"
#include "tensor/mask.h"

namespace heed {

// y_i = exp(x_i - m) / Σ_j exp(x_j - m),  m = max_j x_j;  0 where masked
Tensor softmax(const Tensor& x, int dim = -1, const Mask& mask = {});
// dx = y ⊙ (dy - Σ_j y_j dy_j)          needs the output only; where y = 0 dy may hold anything
void softmax_grad(const Tensor& y, const Tensor& dy, int dim, Into dx);

// y_i = x_i - m - log Σ_j exp(x_j - m);  -inf where masked; 0 in rows with nothing allowed
Tensor log_softmax(const Tensor& x, int dim = -1, const Mask& mask = {});
void log_softmax_(const Tensor& x);                             // in place, along the last axis
// dx = dy - exp(y) Σ_j dy_j over allowed j;  0 where masked
void log_softmax_grad(const Tensor& y, const Tensor& dy, int dim, const Mask& mask, Into dx);

// y = m + log Σ exp(x_i - m) over the dims (none given: all);  -inf for nothing or all -inf, +inf where an entry is +inf
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);
// dx_i = dy exp(x_i - y);  0 where y = -inf, and where y = +inf dy shared by the entries that are +inf
// y and dy have the kept dims or not.
void logsumexp_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, Into dx);

}  // namespace heed
