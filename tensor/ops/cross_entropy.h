// SPDX-License-Identifier: Apache-2.0
// Cross entropy. Each row's loss has the dtype of the logits; totals are added in double in row order. f32 and f64.
// ShapeError where shapes do not fit, DTypeError for mixed dtypes, IndexError for a target outside [0, V) or a pad
// beyond it, Error for label_smoothing outside [0, 1] and for weight with subtract_entropy.
#pragma once
#include "tensor/into.h"

namespace heed {

// Where the mass ε of label smoothing goes. K labels exist: V, without `pad` where it is given.
enum class Smoothing {
  uniform,          // 1-ε+ε/K on the true label, ε/K on each other     Szegedy et al. 2016, 7; PyTorch with smooth_pad
  others,           // 1-ε, ε/(V-1) on each other, pad too              tensor2tensor, fairseq
  others_not_pad,   // 1-ε, ε/(V-2) on each other but pad               The Annotated Transformer
};

struct CrossEntropyOptions {
  double label_smoothing = 0;                   // ε in [0, 1]
  Smoothing smoothing = Smoothing::uniform;
  Index ignore_index = -100;                    // rows with this target contribute nothing
  Index pad = -1;                               // id of padding, -1: none. Rows with this target contribute nothing
  bool smooth_pad = false;                      // uniform: pad counts as a label
  // minus the entropy of q: a perfect model scores 0. No effect on gradients; none with weight
  bool subtract_entropy = false;
  Tensor weight = {};                           // [V], of the logits' dtype: of each class w; undefined: 1. No gradient
  enum class Empty { zero, nan } empty = Empty::zero;   // mean over no rows at all
};

// log Σ_k exp(z_k) = max + log_sum, [...] each. Their sum would keep no more of log_sum than a large max leaves.
struct LogSumExp { Tensor max, log_sum; };
struct CrossEntropy {
  Tensor losses;        // [...], 0 where ignored
  LogSumExp log_sum_exp;
  Index count;          // rows not ignored
  double total;         // Σ losses
  double weight;        // Σ w_y over the rows not ignored, y their targets: what the mean divides by
};

// loss = -Σ_k w_k q_k log softmax(z)_k for each row z of logits [..., V], targets i32 or i64 [...]; q: see Smoothing
CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});
// dz = dloss (softmax(z) Σ_k w_k q_k - w q),  dlosses [...];  0 where ignored
void cross_entropy_grad(const Tensor& logits, const Tensor& targets, const LogSumExp& log_sum_exp, const Tensor& dlosses,
                        const CrossEntropyOptions& options, Into dlogits);

// ShapeError, DTypeError unless log_sum_exp and dlosses have a number of the logits' dtype for each of their rows
void check_row_numbers(const char* op, const Tensor& logits, const LogSumExp& log_sum_exp, const Tensor& dlosses);

struct LinearCrossEntropy {
  Tensor losses;                 // [...], 0 where ignored
  Index count;
  double total;
  Tensor dx, dweight, dbias;     // of the total, where wanted
  Tensor dlog_share, dother, drest;   // with a mixture
};
struct LinearCrossEntropyWants { bool dx = false, dweight = false, dbias = false; };
// The label's probability where words have a share of it and it gets another part from elsewhere, such as from the source it may be copied
// from: P = e^log_share softmax(z)_y + other.
// Then the loss of a row has -log P for -log softmax(z)_y; label smoothing's other labels, and as much of the label as each of them has,
// stay softmax's.
// With a rest, log Σ e^s of further scores s, both are parts of one softmax:
// P = (e^(log_share + z_y) + other e^rest) / (Σ_k e^z_k + e^rest).
struct Mixture { Tensor log_share, other, rest{}; };   // [...] each, a number a row

// cross_entropy(x Wᵀ + b, targets) for x [..., d], W [V, d], b [V] or undefined, without ever holding all logits: a few rows at
// a time, and their gradient at once while they are there (dz as above, dx = dz W, dW += dzᵀ x, db += Σ dz). Ignored
// rows take no part in any product. The gradients are those of the total.
LinearCrossEntropy linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                                        const CrossEntropyOptions& options = {}, const LinearCrossEntropyWants& wants = {},
                                        const Mixture& mixture = {});

}  // namespace heed
