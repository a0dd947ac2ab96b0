// SPDX-License-Identifier: Apache-2.0
// Reductions over any set of dims; {} = all of them. keepdim leaves them with size 1. f32 and f64.
// Order of additions, from the shape alone: the sequence of a result, row-major over the reduced axes, is one chunk of up to 512
// elements, beyond that c = 2 ⌈n/1024⌉ chunks of ⌈n/c⌉, rounded up to 16s; in a chunk 16 virtual lanes, element i in lane i % 16,
// folded in halves; the chunks' results in order, in double.
#pragma once
#include <span>

#include "tensor/into.h"

namespace heed {

Tensor sum(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);     // of nothing: 0; of i32, i64, u8: i64
Tensor mean(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);    // of nothing: NaN
Tensor prod(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);    // of nothing: 1
Tensor max(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);     // NaN wins; of nothing: ShapeError
Tensor min(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);
// Σ (x - mean)² / (n - 1), unbiased = false: / n.  One element, unbiased: NaN.  stddev: its root, PyTorch's std, of squares in x's dtype:
// of f32 that are 2e19 from the mean it is infinite, of 1e-23 zero
Tensor var(const Tensor& x, const Dims& dims = {}, Flag unbiased = true, Flag keepdim = false);
Tensor stddev(const Tensor& x, const Dims& dims = {}, Flag unbiased = true, Flag keepdim = false);
Tensor norm(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);    // √Σ x²

// dx = dy, dx = dy / n
void sum_grad(const Tensor& dy, const Dims& dims, const Into& dx);
void mean_grad(const Tensor& dy, const Dims& dims, const Into& dx);
// dx_i = dy Π_{j≠i} x_j by products from both ends: exact with zeros
void prod_grad(const Tensor& x, const Tensor& dy, const Dims& dims, const Into& dx);
// dy shared evenly among the elements equal to y, of max and of min
void max_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx);
// dx = dy 2 (x - mean) / (n - 1 or n)
void var_grad(const Tensor& x, const Tensor& dy, const Dims& dims, bool unbiased, const Into& dx);
// dx = dy (x - mean) / ((n - 1 or n) y), 0 where y = 0
void stddev_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, bool unbiased, const Into& dx);
// dx = dy x / y, 0 where y = 0
void norm_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx);

// y_i = x_0 + ... + x_i along dim, one after another in double, of i32, i64, u8: i64; dx_i = dy_i + ... + dy_last
Tensor cumsum(const Tensor& x, int dim);
void cumsum_grad(const Tensor& dy, int dim, const Into& dx);

// Inverse of broadcasting: adds up the axes that x has beyond `shape` or where `shape` has 1. ShapeError unless shape broadcasts to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);
void sum_to(const Tensor& x, const Into& out);
void sum_to_grad(const Tensor& dy, const Into& dx);   // dx = dy, broadcast

// Position of the largest / smallest along dim -> i64; ties: the lowest index; NaN: the first NaN. Any dtype but bf16.
Tensor argmax(const Tensor& x, int dim = -1, Flag keepdim = false);
Tensor argmin(const Tensor& x, int dim = -1, Flag keepdim = false);
// First position in [from, n] with x > threshold, from <= n = x.size(); n if there is none.
Index first_above(std::span<const float> x, Index from, float threshold);
Index first_above(std::span<const double> x, Index from, double threshold);
// A threshold below the `count` >= 1 largest of x and mostly few others: just below the count-th of the different numbers among the maxima
// of elements with one remainder by 64 each, largest first; -infinity where those are fewer. NaN counts as -infinity.
float below_largest(std::span<const float> x, Index count);
double below_largest(std::span<const double> x, Index count);

// Is some / every element not 0? Any dtype; -> u8
Tensor any_true(const Tensor& x, const Dims& dims, Flag keepdim = false);
Tensor all_true(const Tensor& x, const Dims& dims, Flag keepdim = false);
bool any_true(const Tensor& x);
bool all_true(const Tensor& x);

}  // namespace heed
