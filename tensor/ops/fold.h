// SPDX-License-Identifier: Apache-2.0
// The loop under every reduction. Each element of `out` gets the fold of a sequence: the elements of x at one position of the kept axes,
// row-major over the reduced ones. x's strides choose the way: along sequences, or across sequences that lie side by side.
#pragma once
#include "tensor/into.h"
#include "tensor/ops/axes.h"

namespace heed {

enum class Folding { sum, squares, product, max, min, any, all };

// y = fold / divisor, or its root
struct FoldEnding {
  double divisor = 1;
  bool root = false;
};

// out (=|+=) y; f32 and f64; any and all excluded. out has x's rank with 1 at the reduced axes. Order of additions: tensor/ops/reduce.h.
void fold(Folding folding, const Tensor& x, const Axes& axes, const Into& out, FoldEnding ending = {});

// out (=|+=) Σ a[i] b[i] of two vectors of one length: the additions of fold(Folding::sum) of their products.
void fold_products(const Tensor& a, const Tensor& b, const Into& out);

// What is exact in any order: sum of i32, i64, u8 to i64 (wraps); any and all of every dtype to u8.
void fold_exact(Folding folding, const Tensor& x, const Axes& axes, const Tensor& out);

}  // namespace heed
