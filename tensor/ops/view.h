// SPDX-License-Identifier: Apache-2.0
// Views: another shape, strides and offset over the same elements. Only reshape and flatten (when strides force it), concat, stack,
// pad, repeat, roll, tril and triu copy. Sizes and dims that do not fit throw ShapeError or IndexError with both sides.
#pragma once
#include "tensor/into.h"
#include "tensor/list.h"
#include "tensor/tensor.h"

namespace heed {

Tensor reshape(const Tensor& x, const Shape& shape);              // same elements in row-major order; one size may be -1
Tensor flatten(const Tensor& x, int first = 0, int last = -1);    // axes first..last become one
Tensor transpose(const Tensor& x, int a = -2, int b = -1);        // swaps two axes
Tensor permute(const Tensor& x, const Dims& dims);                // y's axis i is x's axis dims[i]
Tensor squeeze(const Tensor& x, int dim);                         // drops an axis of size 1
Tensor unsqueeze(const Tensor& x, int dim);                       // adds an axis of size 1 at dim of the result
Tensor expand(const Tensor& x, const Shape& shape);               // NumPy's broadcasting by stride 0; -1 keeps a size
Tensor flip(const Tensor& x, const Dims& dims);                   // backwards along dims

// y[.., t, s] = x[.., rows - 1 - t + s]: a Toeplitz matrix of its last row and, upwards, its first column.   [.., n] -> [.., rows, n - rows + 1]
// Its elements share memory, as those of expand. ShapeError unless 1 <= rows <= n + 1.
Tensor toeplitz(const Tensor& x, Index rows);
void toeplitz_grad(const Tensor& dy, Into dx);                    // dx_i = Σ dy_ts over t - s = rows - 1 - i

// x[start:stop:step] along dim by Python's rule (see Slice in tensor/tensor.h); a negative step walks backwards.
Tensor slice(const Tensor& x, int dim, Index start, Index stop = Slice::kToEnd, Index step = 1);
Tensor select(const Tensor& x, int dim, Index index);             // one position; the axis goes

List<Tensor> split(const Tensor& x, Index count, int dim = 0);                   // equal parts, as NumPy
List<Tensor> split(const Tensor& x, std::span<const Index> sizes, int dim = 0);  // parts of these sizes
inline List<Tensor> split(const Tensor& x, std::initializer_list<Index> sizes, int dim = 0) {
  return split(x, std::span(sizes.begin(), sizes.size()), dim);
}
List<Tensor> unbind(const Tensor& x, int dim = 0);                // select(x, dim, 0), select(x, dim, 1), ...

// ---- copies -----------------------------------------------------------------------------------------------------------
Tensor concat(std::span<const Tensor> tensors, int dim = 0);      // along an axis; other sizes and dtypes equal
Tensor stack(std::span<const Tensor> tensors, int dim = 0);       // along a new axis; shapes and dtypes equal
inline Tensor concat(std::initializer_list<Tensor> tensors, int dim = 0) { return concat(std::span(tensors.begin(), tensors.size()), dim); }
inline Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0) { return stack(std::span(tensors.begin(), tensors.size()), dim); }
Tensor pad(const Tensor& x, int dim, Index before, Index after, double value = 0);
// All of x counts[i] times along axis i; more counts than axes make new ones in front (NumPy's tile)     y[.., i, ..] = x[.., i % n, ..]
Tensor repeat(const Tensor& x, const Shape& counts);
void repeat_grad(const Tensor& dy, const Shape& counts, Into dx); // sums over the copies
Tensor roll(const Tensor& x, Index shift, int dim);               // y_i = x_(i - shift) along dim, around the end; shift may be negative
Tensor tril(const Tensor& x, Index diagonal = 0);                 // of the last two axes: columns <= row + diagonal stay, else 0
Tensor triu(const Tensor& x, Index diagonal = 0);                 // columns >= row + diagonal stay, else 0

}  // namespace heed
