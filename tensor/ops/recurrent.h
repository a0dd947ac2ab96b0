// SPDX-License-Identifier: Apache-2.0
// Recurrent units. x [B, E] input, h [B, n] state, c [B, n] the LSTM's second state; gates are stacked along the first axis of
// the weights: [n] Elman, [4n] i, f, g, o, [3n] r, z, g.   a = x W_ihᵀ + b_ih,  u = h W_hhᵀ + b_hh, blocks a_i, u_i, ...
//   tanh, relu     h' = f(a + u)                                                                        Elman 1990
//   lstm           i, f, o = σ(a + u);  g = tanh(a_g + u_g);  c' = f ⊙ c + i ⊙ g;  h' = o ⊙ tanh(c')       Zaremba et al. 2014
//   gru_cudnn      r, z = σ(a + u);  g = tanh(a_g + r ⊙ u_g);  h' = (1-z) ⊙ g + z ⊙ h                      PyTorch's nn.GRU
//   gru_bahdanau   r, z = σ(a + u);  g = tanh(a_g + U_g (r ⊙ h));  h' = (1-z) ⊙ h + z ⊙ g                  1409.0473 A.1.1
//   gru_cho        the same with  h' = z ⊙ h + (1-z) ⊙ g                                                 1406.1078 Eq. 5-8
// The paper forms have no b_hh. Any bias may be undefined.
#pragma once
#include "tensor/into.h"

namespace heed {

enum class RecurrentUnit { tanh, relu, lstm, gru_bahdanau, gru_cho, gru_cudnn };
constexpr Index gate_count(RecurrentUnit unit) {
  return unit <= RecurrentUnit::relu ? 1 : unit == RecurrentUnit::lstm ? 4 : 3;
}
constexpr bool resets_before(RecurrentUnit unit) { return unit == RecurrentUnit::gru_bahdanau || unit == RecurrentUnit::gru_cho; }

// ShapeError, DTypeError unless the operands of one step fit: gates [B, gates n], h and c [B, n] or undefined, weight_hh
// [gates n, n], bias_hh [gates n] or undefined.
void check_recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh, const Tensor& bias_hh);
// The same of a layer: x [B, S, E], lengths i32 [B] in [0, S] or undefined, weight_ih [gates n, E], bias_ih [gates n] or undefined.
void check_recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c, const Tensor& weight_ih,
                           const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh);

}  // namespace heed
