// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>

#include "nn/linear.h"

namespace heed {

// FFN(x) = act(x W1ᵀ + b1) W2ᵀ + b2, [..., d] -> [..., F] -> [..., d], with ReLU as in Vaswani et al. 2017, Eq. 2.
// gated: (act(x W1ᵀ + b1) ⊙ (x W3ᵀ + b3)) W2ᵀ + b2; Shazeer 2020, arXiv 2002.05202, has no biases.
struct FeedForward {
  struct Options {
    Index width, inner;
    Activation activation = Activation::relu;
    bool gated = false;
    double dropout = 0;           // after the activation: none in the paper
    bool bias = true;
    Initializer init = {};
  };
  // Declares linear1 [F, d], linear2 [d, F] and, when gated, linear3 [F, d] directly in the scope, as PyTorch's layers do.
  FeedForward(Scope scope, Options options);
  Variable operator()(const Variable& x) const;

  Linear linear1, linear2;
  std::optional<Linear> linear3;
  Activation activation;
  double dropout;
};

}  // namespace heed
