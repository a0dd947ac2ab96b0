// SPDX-License-Identifier: Apache-2.0
// Element-wise losses: of each element, in x's shape, or their mean or sum, added in double. f32 and f64. ShapeError where shapes do not
// fit, DTypeError for mixed dtypes.
#pragma once
#include "tensor/into.h"

namespace heed {

enum class Reduction { none, mean, sum };

// (x - y)², its mean or sum.   dx = 2 (x - y) dloss, dy = -dx
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
void mse_loss_grad(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& dloss, const Into* dx, const Into* dtarget);

// -w (p y log σ(x) + (1 - y) log(1 - σ(x))) = w ((1 - y) x + (1 + (p - 1) y) log(1 + e^-x)); weight w and pos_weight p, if
// defined, broadcast to x.   dx = w ((1 - y) - (1 + (p - 1) y) σ(-x)) dloss
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::mean);
void binary_cross_entropy_with_logits_grad(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight, Reduction reduction,
                                           const Tensor& dloss, Into dx);

}  // namespace heed
