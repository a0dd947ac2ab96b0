// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autograd/ops.h"
#include "nn/scope.h"

namespace heed {

// y = x Wᵀ + b:  x [..., in], weight [out, in], bias [out], y [..., out]. Starts as PyTorch's: U(±1/√in).
struct Linear {
  struct Options {
    Index in, out;
    bool bias = true;
    Initializer init = {};        // of the weight; given, the bias starts at 0
    Parameter weight = {};        // shared: {.weight = embedding.weight.share()}
  };
  Linear(Scope scope, Options options);
  // With activation, dropout and residual fused into the product: y = residual + dropout(activation(x Wᵀ + b)).
  Variable operator()(const Variable& x, const LinearOptions& fused = {}) const;

  Parameter weight, bias;
  Path path;
};

}  // namespace heed
