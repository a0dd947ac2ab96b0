// SPDX-License-Identifier: Apache-2.0
// Indexing by tensors of ids (i32 or i64). An id is never wrapped around: a negative one throws IndexError with its position,
// as one beyond the end does; shapes and dtypes that do not fit throw ShapeError and DTypeError. Derivatives add in the order of positions:
// the same bits for any number of threads.
#pragma once
#include "tensor/into.h"

namespace heed {

// y[..., t, :] = scale table[ids[..., t], :] + positions[t, :]
// table [V, d], ids [..., T], positions [T, d] or none -> [..., T, d]
Tensor embedding(const Tensor& table, const Tensor& ids, double scale = 1, const Tensor& positions = {});
// dtable[v, :] = scale Σ_{p: ids[p] = v} dy[p, :], in rising p; the row padding_idx gets none (-1: no such row)
void embedding_grad(const Tensor& ids, const Tensor& dy, double scale, Index padding_idx, Into dtable);

// y[.., i, ..] = x[.., ids[i], ..] along dim                          ids [n]
Tensor index_select(const Tensor& x, int dim, const Tensor& ids);
void index_select_grad(const Tensor& ids, const Tensor& dy, int dim, Into dx);

// y[i, j, k] = x[i, index[i, j, k], k] for dim 1: index has x's rank, and the other sizes at most x's    -> index's shape
Tensor gather(const Tensor& x, int dim, const Tensor& index);
void gather_grad(const Tensor& index, const Tensor& dy, int dim, Into dx);    // also of sort and topk, with their indices

// y = x, then y[i, index[i, j, k], k] += src[i, j, k] for dim 1, in rising j.   dx = dy, dsrc = gather(dy, dim, index)
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);

// y = value where mask (u8, broadcast to x) is not 0, else x.         dx = masked_fill(dy, mask, 0)
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
void masked_fill_grad(const Tensor& mask, const Tensor& dy, Into dx);

Tensor masked_select(const Tensor& x, const Tensor& mask);      // x's elements where mask (u8, x's shape) is not 0    -> [n]
Tensor nonzero(const Tensor& x);                                // positions of what is not 0, row-major    -> i64 [n, rank]
Tensor one_hot(const Tensor& ids, Index classes, DType dtype = DType::f32);   // [...] -> [..., classes]

}  // namespace heed
