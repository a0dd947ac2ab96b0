// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention (Vaswani et al. 2017, arXiv 1706.03762, 3.2.1, Eq. 1) in one pass that never stores [T, S]:
//   Z = scale Q Kᵀ + bias    P = softmax(Z, mask)    O = dropout(P) V          q [B, H, T, dk], k [B, H, S, dk], v [B, H, S, dv]
// k and v may have H/g heads, each of which serves g neighbouring ones of q (Ainslie et al. 2023, arXiv 2305.13245;
// one for all: Shazeer 2019).
// bias, or none, broadcasts to [B, H, T, S]; -inf in it forbids, as in a float attn_mask of PyTorch.
// For finite numbers a row's result depends on that row, k, v and bias alone: one query at a time gives the bits of all at once, masked
// keys change none. Positions outside lengths are skipped, whatever they hold; what else is excluded must be finite. A row with nothing
// allowed gives zeros and zero gradient, one whose every score is -inf too, by overflow as well, as PyTorch's does. f32 and f64; any
// strides (slices of one packed projection are read in place where the last is 1).
// ShapeError: not rank 4, sizes differ, the mask or the bias does not fit [B, H, T, S]. DTypeError: mixed.
// IndexError: a place that is not there. Error: dropout outside [0, 1], a gradient with places or turned.
#pragma once
#include "tensor/into.h"
#include "tensor/mask.h"
#include "tensor/random.h"

namespace heed {

struct AttentionOptions {
  double scale = 0;                    // 0: 1/√dk
  double dropout = 0;                  // on P: attention_dropout
  Key key = Key::from_bits(0);
  bool weights = false;                // also return P, before dropout; the output has the same bits either way
  Tensor places = {};                  // [B, S] i64: k and v of row b, position s stand at [places[b, s], :, s] of k and v, whose first
                                       // axis may have any size (hypotheses that share their past). No gradient
  Index turned = 0;                    // keys before this position stand as turn_keys_ leaves them. No gradient
};

struct AttentionOutput {
  Tensor output;                       // [B, H, T, dv], a view of [B, T, H, dv]: transpose(1, 2) and reshape join the heads for free
  Tensor log_sum_exp;                  // [B, H, T]: log Σ_s exp(Z_ts), -inf where nothing is allowed; what the gradient needs of P
  Tensor weights;                      // [B, H, T, S] or undefined
};

AttentionOutput scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {},
                                             const AttentionOptions& options = {}, const Tensor& bias = {});
// P is computed anew from log_sum_exp, to a relative error of one rounding of Z;
// with the dropout factors M and the gradient G of the weights:
//   dV = (P ⊙ M)ᵀ dO    δ = rowsum(dO ⊙ O) + rowsum(P ⊙ G)    dZ = P ⊙ (M ⊙ (dO Vᵀ) + G - δ)    dQ = scale dZ K    dK = scale dZᵀ Q
//   dbias = dZ summed over the axes that were broadcast; dZ [B, H, T, S] is stored where it is wanted
// dO or G undefined: zeros. Gradients that are not wanted are null.
void scaled_dot_product_attention_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options,
                                       const AttentionOutput& forward, const Tensor& doutput, const Tensor& dweights, const Into* dq,
                                       const Into* dk, const Into* dv, const Tensor& bias = {}, const Into* dbias = nullptr);

// Turns the keys [first, last) of k [P, H, S, d], multiples of kTurnedKeys, where they lie:
// what held [16, d] of each block of 16 holds [d, 16].
// A kernel of few queries reads them as they stand. ShapeError: first or last is no such multiple or beyond S, or k's rows
// are not side by side. turn_keys_back_ undoes it.
constexpr Index kTurnedKeys = 16;
void turn_keys_(const Tensor& k, Index first, Index last);
void turn_keys_back_(const Tensor& k, Index first, Index last);
Tensor keys_in_rows(const Tensor& k, Index turned);   // a copy with those before `turned` turned back; k itself where that is 0

// y[b, h, s] = x[places[b, s], h, s]   x [P, H, S, d], places [B, S] i64: what places stand for, copied
Tensor gather_places(const Tensor& x, const Tensor& places);

// The factors M of dropout on P [B, H, T, S], 0 or 1/(1 - p): those of tensor/dropout.h, of 16 queries side by side, since kernels meet
// them so; that of P[b, h, t, s] at ((b H + h) 16⌈T/16⌉ + 16⌊t/16⌋) 8⌈S/8⌉ + 16 s + t mod 16. ShapeError: not rank 4.
Tensor attention_dropout(const Shape& weights, DType dtype, double p, Key key);
// The same as matmul, softmax, dropout and matmul, each [B, H, T, S] stored.
AttentionOutput scaled_dot_product_attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {},
                                                           const AttentionOptions& options = {}, const Tensor& bias = {});
// k or v [B, H/g, S, d] repeated for each of the H heads of q: [B, H, S, d]. ShapeError: not rank 4, or they do not divide H.
Tensor with_heads(const Tensor& x, Index heads);
void with_heads_grad(const Tensor& dy, Into dx);   // dx [B, H/g, S, d] = Σ dy over each group
// The mask and what bias forbids by -inf.
Mask allowed_by(const Mask& mask, const Tensor& bias);

}  // namespace heed
