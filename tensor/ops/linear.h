// SPDX-License-Identifier: Apache-2.0
// The product of every layer with what follows it: bias, activation, dropout and residual are applied to each block of the
// result while it is in cache.
#pragma once
#include "tensor/into.h"
#include "tensor/random.h"

namespace heed {

enum class Activation { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid };

struct LinearFusion {
  Activation activation = Activation::none;
  double dropout = 0;
  Key key = Key::from_bits(0);     // of the dropout mask
  Tensor residual = {};            // [..., out]
};

struct LinearResult {
  Tensor y;
  Tensor saved;                    // what linear_grad needs of the result: z = x Wᵀ + b, or y for ReLU, or nothing
};

// y = residual + dropout(activation(x Wᵀ + b)):  x [..., in], weight [out, in], bias [out] or undefined -> [..., out]
// The mask of element i (row-major in y) is that of dropout(x, p, key). ShapeError, DTypeError with both sides.
// Error: dropout outside [0, 1].
LinearResult linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion = {});
// The same by small ops: the definition.
Tensor linear_by_definition(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion = {});

// dz = dy ⊙ mask/(1-p) ⊙ activation'(z);  dy itself where neither is there.   [..., out]
Tensor linear_grad(const Tensor& saved, const Tensor& dy, const LinearFusion& fusion);
// dx = dz W,  dW = dzᵀ x over all rows,  db = Σ rows dz: with dW at little cost, alone with the same bits
void linear_grad_x(const Tensor& dz, const Tensor& weight, Into dx);
void linear_grad_weight(const Tensor& dz, const Tensor& x, Into dweight, const Into* dbias = nullptr);
void linear_grad_bias(const Tensor& dz, Index in, Into dbias);   // x [..., in]: how dW's product is cut decides the order of the sum

}  // namespace heed
