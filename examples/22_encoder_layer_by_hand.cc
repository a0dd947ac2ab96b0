// SPDX-License-Identifier: Apache-2.0
// Lesson 22: the box of lesson 7 opened. A layer of a Transformer's encoder, step by step from its weights, and the layer itself:
//   x' = norm1(x + [head_1 .. head_H] W_O + b_O),   head_h = softmax(Q_h K_hᵀ / √(d/H)) V_h
//   y = norm2(x' + W_2 relu(W_1 x' + b_1) + b_2)                                                   Vaswani et al. 2017, 3.1 to 3.3
#include <cmath>
#include <vector>

#include "models/transformer.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"

using namespace heed;

constexpr Index kWords = 4, kWidth = 8, kHeads = 2, kHead = kWidth / kHeads;

Tensor weight(const Parameters& parameters, const std::string& path) { return parameters.at(path).variable.value(); }

// x Wᵀ + b
Tensor project(const Parameters& p, const Tensor& x, const std::string& name) {
  return matmul(x, transpose(weight(p, name + "weight"))) + weight(p, name + "bias");
}

// The vector of each word to mean 0 and variance 1, then times γ, plus β
Tensor normed(const Parameters& p, const Tensor& x, const std::string& name) {
  return layer_norm(x, weight(p, name + "weight"), weight(p, name + "bias")).y;
}

Tensor by_hand(const Parameters& p, const Tensor& x, const Mask& mask) {
  // One matrix makes queries, keys and values of all heads, side by side.
  const Tensor qkv = project(p, x, "self_attn.in_proj_");                                                      // [S, 3d]
  std::vector<Tensor> heads;
  for (Index h = 0; h < kHeads; ++h) {
    const auto part = [&](Index third) { return slice(qkv, 1, third * kWidth + h * kHead, third * kWidth + (h + 1) * kHead); };
    const Tensor q = part(0), k = part(1), v = part(2);                                                 // [S, d/H] each
    const Tensor scores = matmul(q, transpose(k)) / std::sqrt(double(kHead));                           // [S, S]
    const Tensor weights = softmax(unsqueeze(scores, 0), -1, mask)[0];                                  // of each word over all
    fmt::print("head {}, where each word looks:\n{:.2f}\n", h + 1, weights);
    heads.push_back(matmul(weights, v));                                                                // [S, d/H]
  }
  const Tensor found = project(p, concat(heads, 1), "self_attn.out_proj.");                             // [S, d]
  // What was found is added to what was there: a layer that finds nothing changes nothing.
  const Tensor seen = normed(p, x + found, "norm1.");
  return normed(p, seen + project(p, relu(project(p, seen, "linear1.")), "linear2."), "norm2.");
}

int main() {
  Parameters parameters(Seed{1});
  const TransformerEncoderLayer layer(parameters.root(), {.width = kWidth, .heads = kHeads, .feed_forward = 16});
  const Tensor x = normal(Key(Seed{2}), {kWords, kWidth});                                              // a vector a word
  const auto of_layer = [&](const Tensor& words, const Mask& mask) { return layer(constant(unsqueeze(words, 0)), mask).value()[0]; };
  const auto equal = [](const Tensor& a, const Tensor& b) { return max(abs(a - b)).item() < 1e-5; };

  const Tensor y = by_hand(parameters, x, {});
  fmt::print("the layer makes the same of them: {}\n", equal(y, of_layer(x, {})));

  // Nothing in it knows the order of words: backwards they become the same vectors, backwards. So positions are added before, lesson 16.
  fmt::print("backwards the same, backwards: {}\n\n", equal(flip(of_layer(flip(x, 0), {}), 0), y));

  // A decoder must not look ahead. Under a causal mask words do not depend on those behind them.
  const Tensor causal = by_hand(parameters, x, Mask::causal());
  fmt::print("the layer makes the same of them: {}\n", equal(causal, of_layer(x, Mask::causal())));
  fmt::print("of the first two alone as well: {}\n", equal(of_layer(slice(x, 0, 0, 2), Mask::causal()), slice(causal, 0, 0, 2)));
}

/* Output:
head 1, where each word looks:
[[0.11 0.35 0.29 0.26]
 [0.01 0.22 0.12 0.64]
 [0.27 0.24 0.16 0.33]
 [0.23 0.17 0.36 0.24]]
head 2, where each word looks:
[[0.07 0.30 0.18 0.45]
 [0.84 0.02 0.11 0.03]
 [0.24 0.13 0.39 0.24]
 [0.58 0.09 0.07 0.25]]
the layer makes the same of them: true
backwards the same, backwards: true

head 1, where each word looks:
[[1.00 0.00 0.00 0.00]
 [0.06 0.94 0.00 0.00]
 [0.40 0.35 0.24 0.00]
 [0.23 0.17 0.36 0.24]]
head 2, where each word looks:
[[1.00 0.00 0.00 0.00]
 [0.98 0.02 0.00 0.00]
 [0.32 0.17 0.51 0.00]
 [0.58 0.09 0.07 0.25]]
the layer makes the same of them: true
of the first two alone as well: true
*/
