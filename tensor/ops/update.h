// SPDX-License-Identifier: Apache-2.0
// One pass over parameters, gradients and optimiser state: everything of one element is read once and written once.
// All tensors of an item are contiguous, of one shape and dtype (f32 or f64). g stands for gradient_scale · gradient.
#pragma once
#include <array>
#include <span>

#include "tensor/tensor.h"

namespace heed {

enum class Update {
  sgd,        // g += wd θ;  θ -= rate g
  momentum,   // g += wd θ;  b = momentum b + keep g;  θ -= rate b                              s0 = b; keep = 1 - dampening, 1 at first
  nesterov,   // the same, but θ -= rate (g + momentum b)
  adam,       // g += wd θ;  m = β1 m + (1-β1) g;  v = β2 v + (1-β2) g²;  θ -= rate m / (√v root + eps)     s0 = m, s1 = v
  adamw,      // θ *= 1 - decay;  then adam with wd = 0
  adagrad,    // g += wd θ;  v += g²;  θ -= rate g / (√v + eps)                                 s0 = v
  adadelta,   // g += wd θ;  v = ρ v + (1-ρ) g²;  d = g √(u+eps)/√(v+eps);  u = ρ u + (1-ρ) d²;  θ -= rate d   s0 = v, s1 = u
  rmsprop,    // g += wd θ;  v = α v + (1-α) g²;  θ -= rate g / (√v + eps)                      s0 = v
  rmsprop_momentum,   // ...;  b = momentum b + g / (√v + eps);  θ -= rate b                    s0 = v, s1 = b
  average,    // θ += (1-β1) (gradient - θ): an exponential average of `gradient`, itself where all are one; gradient_scale and wd ignored
};

// Constants of an update; `rate` holds all factors of one step, such as Adam's 1/(1-β1^t), and `root` 1/√(1-β2^t).
struct UpdateConstants {
  double rate = 0, gradient_scale = 1, weight_decay = 0, momentum = 0, keep = 1, beta1 = 0, beta2 = 0, root = 1, eps = 0, decay = 0;
  double start = 0;                  // s0 before the first update
};

struct UpdateItem {
  Update kind;
  Tensor value, gradient;
  std::array<Tensor, 2> state;       // as many as the update has
  UpdateConstants constants;
  bool first = false;                // the states hold nothing yet: s0 = start, s1 = 0
};

// Updates all items in one parallel region, in chunks of 4096 elements. ShapeError, DTypeError before anything is written.
void update(std::span<const UpdateItem> items);

// Σ x² in double, chunks of 4096; √(Σ x²) over all tensors
double sum_of_squares(const Tensor& x);
double norm_of_all(std::span<const Tensor> tensors);

}  // namespace heed
