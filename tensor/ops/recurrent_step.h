// SPDX-License-Identifier: Apache-2.0
// The element-wise part of a recurrent step, of one sentence: for tensor/ops/recurrent.cc and recurrent_block.cc.
#pragma once
#include <cstddef>

#include "tensor/ops/recurrent.h"

namespace heed {

// Some units of one sentence in one step. The gates of a unit lie `block` apart, those of h `u_block`.
template <class T> struct StepRow {
  std::size_t n;
  Index block, u_block;
  const T *a, *u, *bias;               // x W_ihᵀ + b_ih, h W_hhᵀ, b_hh or null
  const T *h, *c;
  T *gates, *kept;                     // kept may be null
  T *next_h, *next_c, *output;         // output: next_h again, or null
};

// The same backwards: gates becomes da. dh and dc are changed from dLoss/d(next) to the part of dLoss/d(previous) without W_hh.
template <class T> struct StepRowGrad {
  std::size_t n;
  Index block;
  T *gates, *kept;
  T* da;                               // what meets W_hh, blocks as in gates; null: not wanted
  const T *h, *c, *dy;                 // dy: gradient of the output, or null
  T *dh, *dc;
  const T* dq;                         // da_g U_g
};

// Of one unit. second: after the product with r ⊙ h, null for units without it.
template <class T> struct RecurrentKernels {
  void (*first)(const StepRow<T>& row);
  void (*second)(const StepRow<T>& row);
  void (*first_grad)(const StepRowGrad<T>& row);
  void (*second_grad)(const StepRowGrad<T>& row);
};
template <class T> RecurrentKernels<T> recurrent_kernels(RecurrentUnit unit);   // float, double

}  // namespace heed
