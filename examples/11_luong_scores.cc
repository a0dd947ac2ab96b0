// SPDX-License-Identifier: Apache-2.0
// Lesson 11: Luong's four scores on the same sentence: where each looks, and what it costs in parameters.       Luong et al. 2015, 3.1
//   dot       q·h_s                    the states must speak the decoder's language already
//   general   qᵀ W_a h_s               a matrix translates between them
//   concat    vᵀ tanh(W_a [q; h_s])    a small network compares them
//   location  (W_a q)_s                the query alone says where to look, whatever stands there
#include "attention/attend.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/optimizer.h"
#include "tensor/format.h"
#include "tensor/ops/index.h"
#include "tensor/ops/random.h"

using namespace heed;

int main() {
  constexpr Index S = 5, n = 4;
  // Untrained: encoder states of one sentence and three decoder states that ask for the words 0, 1 and 4.
  const Tensor states = normal(Key(1), {1, S, n}), asked = tensor({0, 1, 4}, DType::i64);
  const Tensor queries = index_select(states, 1, asked);                             // each query equals the state it asks for  [1, 3, n]
  for (const char* name : {"dot", "general", "concat", "location"}) {
    Parameters parameters(Seed{1});
    const Attention attention = make_attention(name, parameters.root(), {.query_width = n, .memory_width = n, .longest = 10});
    const Memory memory = attention.prepare(constant(states), {});
    // All three queries in one product: no score of Luong's needs the weights of the step before.
    const auto weights = [&] { return attention(constant(queries), memory, Want::weights).weights.value()[0]; };
    fmt::print("{}: {} parameters\n{:.2f}\n", name, parameters.count(), weights());
  }

  // A change of basis, q = R h_s, that `dot` cannot see through and `general` learns to undo.
  const Tensor turn = tensor({{0, 1, 0, 0}, {-1, 0, 0, 0}, {0, 0, 0, -1}, {0, 0, 1, 0}});
  const auto error = [&](const Attention& attention, int step) {
    const Variable h = constant(normal(Key(2) / step, {8, S, n}, 0, 2));             // eight new sentences
    return mse_loss(attention(matmul(h, constant(turn)), attention.prepare(h, {})).context, h);   // each query should find its own state
  };
  Parameters parameters(Seed{1});
  const ScoreOptions options{.query_width = n, .memory_width = n};
  const Attention dot = make_attention("dot", parameters.root(), options), general = make_attention("general", parameters.root(), options);
  Adam adam(parameters, {.learning_rate = 0.05});
  fmt::print("error before: dot {:.1f}, general {:.1f}\n", error(dot, 0).value().item(), error(general, 0).value().item());
  for (int step = 1; step <= 200; ++step) {
    Tape tape(Key{1, step});
    tape.backward(error(general, step));
    adam.step();
  }
  fmt::print("after:        dot {:.1f}, general {:.1f}\n", error(dot, 0).value().item(), error(general, 0).value().item());
}

/* Output:
dot: 0 parameters
[[0.73 0.08 0.01 0.03 0.15]
 [0.00 0.99 0.00 0.01 0.00]
 [0.11 0.04 0.23 0.20 0.42]]
general: 16 parameters
[[0.31 0.16 0.12 0.17 0.24]
 [0.00 0.01 0.63 0.34 0.01]
 [0.13 0.34 0.23 0.20 0.10]]
concat: 36 parameters
[[0.21 0.18 0.21 0.20 0.21]
 [0.21 0.18 0.20 0.19 0.22]
 [0.21 0.18 0.21 0.19 0.21]]
location: 40 parameters
[[0.20 0.24 0.14 0.25 0.16]
 [0.48 0.07 0.18 0.17 0.10]
 [0.18 0.21 0.16 0.23 0.22]]
error before: dot 6.9, general 7.5
after:        dot 6.9, general 0.4
*/
