// SPDX-License-Identifier: Apache-2.0
// Random tensors. Every element is a function of (key, position): the same bits on every machine and for any number of threads.
// Element i takes the i-th 64-bit draw of Random(key), in f32 tensors the i-th 32-bit draw.
#pragma once
#include "tensor/into.h"
#include "tensor/random.h"

namespace heed {

// x = lo + (hi - lo) u, u uniform in [0, 1); below hi also after rounding, lo where hi = lo.
// Error: lo > hi, hi - lo infinite, lo rounds to hi or above.
Tensor uniform(Key key, const Shape& shape, double lo = 0, double hi = 1, DType dtype = DType::f32);
// x = mean + std Φ⁻¹(u). Error unless std >= 0.
Tensor normal(Key key, const Shape& shape, double mean = 0, double std = 1, DType dtype = DType::f32);
// The same in place; strided tensors by row-major positions.
void uniform_(const Tensor& into, Key key, double lo, double hi);
void normal_(const Tensor& into, Key key, double mean, double std);
// u8: 1 with probability p, else 0. Error unless 0 <= p <= 1.
Tensor bernoulli(Key key, const Shape& shape, double p);
// i64: every integer of [lo, hi) equally likely. Error unless lo < hi.
Tensor randint(Key key, const Shape& shape, Index lo, Index hi);
// i64 [n]: 0 .. n-1 in an order drawn by Fisher-Yates. ShapeError unless n >= 0.
Tensor permutation(Key key, Index n);
// i64 [.., n]: of each row of weights [.., V] n draws, i with probability w_i / Σ w; without replacement one after another of those that
// are left. Draw j of row r takes the draw r n + j of the key.
// Error: a weight that is negative or not finite, none above 0, too few for n draws.
Tensor multinomial(Key key, const Tensor& weights, Index n, bool replacement = false);

// y_i = x_i m_i,  m_i = 0 or 1/(1-p), p rounded to 1/65536: a function of (key, i) alone (tensor/dropout.h), i the row-major position.
// p = 0 gives x itself, p = 1 zeros of finite numbers. Error unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p, Key key);
// dx_i = dy_i m_i
void dropout_grad(const Tensor& dy, double p, Key key, Into dx);

}  // namespace heed
