// SPDX-License-Identifier: Apache-2.0
// Sorting along one axis, of any dtype. Ties: lowest index first. NaN counts as the largest value, as in PyTorch. The derivative is
// gather_grad of tensor/ops/index.h with the indices. IndexError: no such dim, k not in [0, n].
#pragma once
#include "tensor/tensor.h"

namespace heed {

struct Sorted { Tensor values, indices; };                      // indices i64
Sorted sort(const Tensor& x, int dim = -1, bool descending = false);   // stable
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
Sorted topk(const Tensor& x, Index k, int dim = -1);            // the k largest, falling    [.., n, ..] -> [.., k, ..]

}  // namespace heed
