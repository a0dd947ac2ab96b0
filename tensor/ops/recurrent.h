// SPDX-License-Identifier: Apache-2.0
// Recurrent units. x [B, E] input, h [B, n] state, c [B, n] the LSTM's second state; gates are stacked along the first axis of
// the weights: [n] Elman, [4n] i, f, g, o, [3n] r, z, g.   a = x W_ihᵀ + b_ih,  u = h W_hhᵀ + b_hh, blocks a_i, u_i, ...
//   tanh, relu     h' = f(a + u)                                                                        Elman 1990
//   lstm           i, f, o = σ(a + u);  g = tanh(a_g + u_g);  c' = f ⊙ c + i ⊙ g;  h' = o ⊙ tanh(c')       Zaremba et al. 2014
//   gru_cudnn      r, z = σ(a + u);  g = tanh(a_g + r ⊙ u_g);  h' = (1-z) ⊙ g + z ⊙ h                      PyTorch's nn.GRU
//   gru_bahdanau   r, z = σ(a + u);  g = tanh(a_g + U_g (r ⊙ h));  h' = (1-z) ⊙ h + z ⊙ g                  1409.0473 A.1.1
//   gru_cho        the same with  h' = z ⊙ h + (1-z) ⊙ g                                                 1406.1078 Eq. 5-8
// The paper forms have no b_hh. Any bias may be undefined; b_hh of one step may be of each row, [B, gates n].
#pragma once
#include "tensor/into.h"

namespace heed {

enum class RecurrentUnit { tanh, relu, lstm, gru_bahdanau, gru_cho, gru_cudnn };
constexpr Index gate_count(RecurrentUnit unit) {
  return unit <= RecurrentUnit::relu ? 1 : unit == RecurrentUnit::lstm ? 4 : 3;
}
constexpr bool resets_before(RecurrentUnit unit) { return unit == RecurrentUnit::gru_bahdanau || unit == RecurrentUnit::gru_cho; }

// ShapeError, DTypeError unless the operands of one step fit: gates [B, gates n], h and c [B, n] or undefined, weight_hh
// [gates n, n], bias_hh [gates n], [B, gates n] or undefined.
void check_recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh,
                          const Tensor& bias_hh);
// The same of a layer: x [B, S, E], lengths i32 [B] in [0, S] or undefined, weight_ih [gates n, E], biases [gates n] or undefined.
// IndexError: other lengths
void check_recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c,
                           const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh);

// What a step or a layer gives, and what its gradient needs. A layer keeps only rows that count, sentence after sentence: N of them.
struct RecurrentResult {
  Tensor outputs;                      // of a layer [B, S, n], 0 at s >= lengths[b]
  Tensor h, c;                         // after the last step [B, n]
  Tensor gates;                        // after their activation, [B | N, gates n]; da once the gradient was computed
  Tensor kept;                         // gru_cudnn: u_g, then du_g; other GRUs: r ⊙ h   [B | N, n]
  Tensor x, previous_h, previous_c;    // of a layer: the rows of x [N, E], the states before each step [N, n]
};
struct RecurrentGrads { Tensor h, c; };   // of the initial state [B, n]

// One step from gates = x W_ihᵀ + b_ih [B, gates n]: one product and one pass over the gates.
RecurrentResult recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh,
                               const Tensor& bias_hh);
// LSTM         dc += dh' ⊙ o ⊙ (1 - tanh²c');  da_o = dh' ⊙ tanh c' ⊙ o(1-o);  da_i = dc ⊙ g ⊙ i(1-i);  da_f = dc ⊙ c ⊙ f(1-f)
//              da_g = dc ⊙ i ⊙ (1-g²);  dc = dc ⊙ f;  dh = da W_hh
// bahdanau     dz = dh' ⊙ (g - h);  da_g = dh' ⊙ z ⊙ (1-g²);  dq = da_g U_g;  da_r = dq ⊙ h ⊙ r(1-r);  da_z = dz ⊙ z(1-z)
// and cho      dh = dh' ⊙ (1-z) + dq ⊙ r + da_r U_r + da_z U_z;  cho: z and 1-z change places, dz = dh' ⊙ (h - g)
// cudnn        dz = dh' ⊙ (h - g);  da_g = dh' ⊙ (1-z) ⊙ (1-g²);  du_g = da_g ⊙ r;  da_r = da_g ⊙ u_g ⊙ r(1-r);  da_z = dz ⊙ z(1-z)
//              dh = dh' ⊙ z + da_r U_r + da_z U_z + du_g U_g
// next_dh, next_dc: dLoss/dh', dLoss/dc', undefined: zero. Overwrites result.gates with da, gru_cudnn also result.kept.
RecurrentGrads recurrent_cell_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& h, const Tensor& c,
                                   const Tensor& weight_hh, const Tensor& next_dh, const Tensor& next_dc);

// All steps of x [B, S, E] in one direction: one product for the inputs of all steps, then blocks of sentences go through time,
// each on its own. remember: keep what the gradient needs.
RecurrentResult recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c,
                                const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh,
                                bool reverse = false, bool remember = false);
// The steps backwards. doutputs [B, S, n], last_dh, last_dc [B, n]: undefined: zero. Overwrites as that of the cell.
RecurrentGrads recurrent_layer_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_hh,
                                    bool reverse, const Tensor& doutputs, const Tensor& last_dh, const Tensor& last_dc);

// After either, from all rows at once:  dW_hh = Σ daᵀ h (U_g: da_gᵀ (r ⊙ h), cudnn du_gᵀ h),  db_hh = Σ da (cudnn: its last block Σ du_g),
// of a bias for each row without Σ
void recurrent_grad_weight_hh(RecurrentUnit unit, const RecurrentResult& result, const Tensor& previous_h, Into dweight_hh);
Tensor recurrent_grad_bias_hh(RecurrentUnit unit, const RecurrentResult& result, bool each_row = false);
// dx = da W_ih [B, S, E], 0 at s >= lengths[b];  dW_ih = Σ daᵀ x and db_ih = Σ da are those of linear
void recurrent_grad_x(const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_ih, Into dx);

}  // namespace heed
