// SPDX-License-Identifier: Apache-2.0
// Element-wise losses: of each element, in x's shape, or their mean or sum, added in double; at the end one of labels, of each row. f32 and
// f64. ShapeError where shapes do not fit, DTypeError for mixed dtypes.
#pragma once
#include "tensor/into.h"

namespace heed {

enum class Reduction { none, mean, sum };

// Losses of x and a target y of its shape. Formulas and derivatives stand beside the kernels in loss.cc.
enum class PairLoss { mse_loss, l1_loss, smooth_l1_loss, huber_loss, kl_div };
const char* name(PairLoss op);   // "mse_loss"
// Error: a parameter that the loss cannot have
Tensor pair_loss(PairLoss op, const Tensor& x, const Tensor& target, Reduction reduction, double parameter = 0);
void pair_loss_grad(PairLoss op, const Tensor& x, const Tensor& target, Reduction reduction, double parameter, const Tensor& dloss,
                    const Into* dx, const Into* dtarget);

// (x - y)²
inline Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean) {
  return pair_loss(PairLoss::mse_loss, x, target, reduction);
}
// |x - y|, dx = 0 where they are equal
inline Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean) {
  return pair_loss(PairLoss::l1_loss, x, target, reduction);
}
// |x - y| < β ? (x - y)²/2β : |x - y| - β/2;  β = 0: l1_loss                                    Girshick 2015, arXiv 1504.08083, Eq. 3
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double beta = 1) {
  return pair_loss(PairLoss::smooth_l1_loss, x, target, reduction, beta);
}
// |x - y| < δ ? (x - y)²/2 : δ (|x - y| - δ/2);  δ > 0                                          Huber 1964
inline Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double delta = 1) {
  return pair_loss(PairLoss::huber_loss, x, target, reduction, delta);
}
// y (log y - x) of log-probabilities x and probabilities y, 0 where y is: their sum over a row is KL(y ‖ e^x).
// The mean is that of all elements; PyTorch's batchmean is the sum divided by the rows.     Kullback and Leibler 1951
inline Tensor kl_div(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean) {
  return pair_loss(PairLoss::kl_div, x, target, reduction);
}

// -w (p y log σ(x) + (1 - y) log(1 - σ(x))) = w ((1 - y) x + (1 + (p - 1) y) log(1 + e^-x)); weight w and pos_weight p, if
// defined, broadcast to x.   dx = w ((1 - y) - (1 + (p - 1) y) σ(-x)) dloss
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::mean);
void binary_cross_entropy_with_logits_grad(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight,
                                           Reduction reduction, const Tensor& dloss, Into dx);

// -w_y x_y of each row of log-probabilities x [.., V] at its target y, i32 or i64 [..], 0 where y is ignore_index; weight w [V] of classes,
// if defined. Mean: Σ / Σ w_y over the rows that are not ignored, 0 where none is left: cross_entropy(z) = nll_loss(log_softmax(z)).
// IndexError for a target outside [0, V).   dx_y = -w_y dloss
Tensor nll_loss(const Tensor& x, const Tensor& targets, const Tensor& weight = {}, Index ignore_index = -100,
                Reduction reduction = Reduction::mean);
void nll_loss_grad(const Tensor& targets, const Tensor& weight, Index ignore_index, Reduction reduction, const Tensor& dloss, Into dx);

}  // namespace heed
