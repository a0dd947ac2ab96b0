// SPDX-License-Identifier: Apache-2.0
// Lesson 12: local attention looks at at most 2w + 1 words around a position p, not at all S of them.      Luong et al. 2015, 3.2
//   local-m   p_t = t: as far as the target has come         local-p   p_t = S σ(v_pᵀ tanh(W_p h_t)) - 1: learned, real
//   p and s count from 0, the paper's from 1, without the - 1.
//   local-p multiplies its weights by exp(-(s - p_t)² / (2 (w/2)²)), and so p_t has a gradient.
#include "attention/attend.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"

using namespace heed;

constexpr Index n = 8, S = 9, T = 4;

int main() {
  Parameters parameters(Seed{5});
  const ScoreOptions options{.query_width = n, .memory_width = n, .window = 2};
  const Attention everywhere = make_attention("dot", parameters.root() / "global", options);
  const Attention monotonic = make_attention("local-m-dot", parameters.root() / "m", options);
  const Attention predictive = make_attention("local-p-dot", parameters.root() / "p", options);

  const Variable states = constant(normal(Key(Seed{1}), {1, S, n}, 0, 0.5)), queries = constant(normal(Key(Seed{2}), {1, T, n}));
  const auto show = [&](const char* name, const Attention& attention) {
    const Attended seen = attention(queries, attention.prepare(states, {}), Want::weights);
    fmt::print("{}: weights of {} target words over {} source words\n", name, T, S);
    for (Index t = 0; t < T; ++t) {
      fmt::print("  {:.2f}  sum {:.2f}", seen.weights.value()(0, t), sum(seen.weights.value()(0, t)).item());
      if (seen.position.defined()) fmt::print("  p {:.2f}", seen.position(0, t).item());
      fmt::print("\n");
    }
  };
  show("global", everywhere);
  show("local-m", monotonic);
  show("local-p", predictive);

  // Through the window's place the loss teaches where to look.
  Tape tape;
  const Attended seen = predictive(queries, predictive.prepare(states, {}));
  tape.backward(sum(square(seen.context)));
  fmt::print("norm of the gradient of v_p: {:.4f}\n", norm(parameters.at("p.position_v").gradient->value()).item());

  // The price of a target word: S scores and S products with a state of n numbers, or at most 2w + 1 of them.
  fmt::print("multiply-adds a target word, n = 512, w = 10\n{:>8}{:>12}{:>12}\n", "S", "global", "local");
  for (const Index length : {10, 20, 50, 100, 1000, 10000})
    fmt::print("{:>8}{:>12}{:>12}\n", length, 2 * length * 512, 2 * std::min<Index>(length, 21) * 512);
}

/* Output:
global: weights of 4 target words over 9 source words
  [0.02 0.01 0.00 0.13 0.26 0.00 0.01 0.51 0.06]  sum 1.00
  [0.52 0.06 0.13 0.01 0.08 0.01 0.08 0.02 0.10]  sum 1.00
  [0.82 0.03 0.02 0.03 0.02 0.00 0.02 0.05 0.01]  sum 1.00
  [0.02 0.02 0.19 0.01 0.04 0.55 0.16 0.01 0.01]  sum 1.00
local-m: weights of 4 target words over 9 source words
  [0.64 0.24 0.13 0.00 0.00 0.00 0.00 0.00 0.00]  sum 1.00  p 0.00
  [0.72 0.08 0.18 0.02 0.00 0.00 0.00 0.00 0.00]  sum 1.00  p 1.00
  [0.90 0.03 0.02 0.04 0.02 0.00 0.00 0.00 0.00]  sum 1.00  p 2.00
  [0.00 0.02 0.23 0.02 0.04 0.68 0.00 0.00 0.00]  sum 1.00  p 3.00
local-p: weights of 4 target words over 9 source words
  [0.00 0.00 0.00 0.29 0.55 0.00 0.00 0.00 0.00]  sum 0.85  p 3.40
  [0.00 0.00 0.23 0.06 0.29 0.01 0.00 0.00 0.00]  sum 0.58  p 3.33
  [0.00 0.00 0.00 0.22 0.26 0.03 0.05 0.00 0.00]  sum 0.56  p 4.20
  [0.00 0.00 0.06 0.01 0.04 0.28 0.00 0.00 0.00]  sum 0.40  p 3.64
norm of the gradient of v_p: 1.5689
multiply-adds a target word, n = 512, w = 10
       S      global       local
      10       10240       10240
      20       20480       20480
      50       51200       21504
     100      102400       21504
    1000     1024000       21504
   10000    10240000       21504
*/
