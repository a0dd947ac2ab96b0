// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tensor/ops/cross_entropy.h"

namespace heed {

// Cross entropy of any masses q in place of a label, probabilities [..., V]: loss = -Σ_k q_k log softmax(z)_k, where q_k = 0 nothing. With
// q of a teacher it distils (Hinton et al. 2015, arXiv 1503.02531); w q for weights w of classes, (1 - ε) q + ε/V for label smoothing.
struct SoftCrossEntropy {
  Tensor losses;        // [...]
  LogSumExp log_sum_exp;
  double total;         // Σ losses
};
SoftCrossEntropy soft_cross_entropy(const Tensor& logits, const Tensor& probabilities);
// dz = dloss (softmax(z) Σ_k q_k - q),  dq = -dloss log softmax(z),  dlosses [...];  nullptr: not wanted
void soft_cross_entropy_grad(const Tensor& logits, const Tensor& probabilities, const LogSumExp& log_sum_exp, const Tensor& dlosses,
                             const Into* dlogits, const Into* dprobabilities);

}  // namespace heed
