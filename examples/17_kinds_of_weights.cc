// SPDX-License-Identifier: Apache-2.0
// Lesson 17: softmax gives every word some weight. What else becomes of the same scores e:
//   top-K         softmax over the K largest
//   sparsemax     max(e - τ, 0), entmax max(e/2 - τ, 0)², τ so that they sum to 1: scores far below the largest get exactly 0
//   talking       heads mix their scores before, and their weights after
//   differential  the weights of one head less λ times those of another: what both see is noise, and may become negative
//   linear        no scores at all: features of query and key, multiplied. Then Σ_j φ(k_j)ᵀ v_j and Σ_j φ(k_j) are all that a decoder reads of words
//                 before, however many they are
//   random        the same with random features (Performer), whose products are softmax's exp(e) on average: the more of them, the nearer
#include "attention/cache.h"
#include "attention/multi_head.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"

using namespace heed;

constexpr Index d = 16, T = 6;

int main() {
  const Variable scores = constant(tensor({{2, 1, 1.5, -1, 0, 0.5}}));
  for (const std::string_view name : {"softmax", "top-2", "sparsemax", "entmax"})
    fmt::print("{:<10} {:.3f}\n", name, normalise_named(name)(scores, {}).value()(0));

  // One layer of two heads, random weights; what query 3 of head 1 sees.
  const Variable x = constant(normal(Key(Seed{3}), {1, T, d}));
  const auto show = [&](std::string_view name, MultiHeadAttention::Options options) {
    Parameters parameters(Seed{1});
    const MultiHeadAttention attention(parameters.root(), std::move(options));
    if (attention.talking) copy_into(attention.talking->weight_mix.value(), tensor({{0.7, 0.3}, {0.3, 0.7}}));
    fmt::print("{:<13} {:.3f}\n", name, attention.self(x, {}, Want::weights).weights.value()(0, 0, 2));
  };
  show("plain", {.width = d, .heads = 2});
  show("talking", {.width = d, .heads = 2, .talking_heads = true});
  show("differential", {.width = d, .heads = 2, .differential = true});
  show("linear", {.width = d, .heads = 2, .linear_attention = true});
  for (const Index features : {16, 256, 4096})
    show(fmt::format("random {}", features), {.width = d, .heads = 2, .linear_attention = true, .random_features = features});

  // A decoder of linear attention, word by word: the sums stay as large as they are.
  Parameters parameters(Seed{1});
  const MultiHeadAttention linear(parameters.root(), {.width = d, .heads = 2, .linear_attention = true});
  KeyValueCache cache = linear.cache(1, T);
  for (Index t = 0; t < T; ++t) {
    linear.next(constant(slice(x.value(), 1, t, t + 1)), cache);
    if (t % 5 == 0)
      fmt::print("after word {}: keys {}, sums {}, of which Σ φ(k) of head 1 {:.2f}\n", t + 1, cache.keys().shape(), cache.sums().shape(),
                 cache.sums()(0, 0, all, d / 2));
  }
}

/* Output:
softmax    [0.420 0.154 0.255 0.021 0.057 0.094]
top-2      [0.622 0.000 0.378 0.000 0.000 0.000]
sparsemax  [0.750 0.000 0.250 0.000 0.000 0.000]
entmax     [0.623 0.084 0.291 0.000 0.000 0.002]
plain         [0.161 0.160 0.129 0.233 0.166 0.151]
talking       [0.143 0.153 0.183 0.223 0.163 0.135]
differential  [0.139 0.130 0.060 0.189 0.132 0.129]
linear        [0.119 0.124 0.230 0.217 0.170 0.140]
random 16     [0.097 0.157 0.091 0.322 0.182 0.151]
random 256    [0.147 0.174 0.141 0.232 0.160 0.146]
random 4096   [0.165 0.163 0.126 0.225 0.168 0.152]
after word 1: keys [1, 2, 1, 8], sums [1, 2, 8, 9], of which Σ φ(k) of head 1 [0.63 0.90 0.55 1.31 0.41 1.89 0.49 0.31]
after word 6: keys [1, 2, 6, 8], sums [1, 2, 8, 9], of which Σ φ(k) of head 1 [7.08 6.36 5.60 6.30 6.31 5.12 8.76 6.84]
*/
