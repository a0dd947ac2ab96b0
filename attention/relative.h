// SPDX-License-Identifier: Apache-2.0
// Positions inside self-attention: what a query at i makes of a key at j depends on their distance r = j - i.
//   rope, rope_half   q_i and k_j are turned by the angles i θ_p and j θ_p         Su et al. 2021, arXiv 2104.09864, 3.2.2
//   alibi             e_ij - m_a |r|,  head a = 1 .. H                             Press et al. 2022, arXiv 2108.12409, 3; |r|: keys behind too
//   t5                e_ij + b[bucket(r), a], without 1/√dk                        Raffel et al. 2020, arXiv 1910.10683, 2.1
//   shaw              e_ij + scale q_i·a^K_r,  c_i + Σ_j α_ij a^V_r,  |r| <= R     Shaw et al. 2018, arXiv 1803.02155, Eq. 3, 4
#pragma once
#include "attention/position.h"
#include "tensor/ops/rotary.h"

namespace heed {

class RelativePositions {
 public:
  struct Options {
    Positions kind = Positions::none;
    Index heads, head_width;                       // H, dk
    bool causal = false;                           // t5: no buckets for keys behind the query
    Index length = 1024;                           // rope: positions whose angles are kept; those beyond are computed anew
    double base = 10000;                           // rope: θ_p = base^(-2p/dk)
    Index buckets = 32, farthest = 128;            // t5: all from the farthest on share the last bucket
    Index clip = 16;                               // shaw: R; the paper's base model, which has tables for each head
    bool shared = false;                           // shaw: one table for all heads, as its big model
  };
  RelativePositions() = default;                   // none
  // t5: `relative_attention_bias.weight` [buckets, H], N(0, 1/(H dk)); shaw: `rel_k.weight`, `rel_v.weight` [H, 2R+1, dk] or [2R+1, dk],
  // N(0, 1/dk). Other kinds have no parameters. ShapeError: rope where dk is odd. Error: sizes below 1; kinds of a PositionTable.
  RelativePositions(Scope scope, Options options);
  RelativePositions share() const;                 // the same, of the same parameters, for another layer

  // ShapeError unless they were made for so many heads and such a width, as far as the kind depends on them.
  void check_fits(Index heads, Index head_width) const;

  Positions kind() const { return options_.kind; }
  double scale() const { return kind() == Positions::t5 ? 1 : 0; }              // of q·k, 0: 1/√dk
  bool turns() const { return kind() == Positions::rope || kind() == Positions::rope_half; }
  bool reads_values() const { return kind() == Positions::shaw; }               // besides those of the memory

  // rope: queries or keys x [B, H, n, dk] of the positions first, first + 1, ..; of other kinds x itself
  Variable turned(const Variable& x, Index first) const;
  // What is added to the scores scale q·k of queries q [B, H, n, dk] at first, first + 1, .. with keys 0 .. keys - 1:  [H, n, keys], of
  // shaw [B, H, n, keys], undefined where it is nothing.
  Variable bias(const Variable& q, Index first, Index keys, double scale) const;
  std::string_view formula(double scale) const;                                  // of that bias, for a Trace
  // shaw: a^V_r of every pair  [H, n, keys, dk] or [n, keys, dk];  Σ_j α_ij a^V_r of weights [B, H, n, keys]  [B, H, n, dk]
  Variable value_offsets(Index first, Index n, Index keys) const;
  Variable value_sum(const Variable& weights, Index first) const;

  Parameter weight, rel_k, rel_v;

 private:
  Tensor distances(Index first, Index n, Index keys) const;                     // row of the table of shaw: clip(r) + R   [n, keys]
  Options options_{.heads = 1, .head_width = 1};
  Rotations rotations_;
};

// m_a = 2^(-8 a / H). Where H is no power of two: those of the next lower one p, then the first, third, .. of 2p.   [H] f64. Error: H < 1
Tensor alibi_slopes(Index heads);
// Bucket of a distance: up to a half exactly, then by logarithms until `farthest`. Both ways: half of them for r > 0. Error: odd or fewer
// than 4 buckets, or farthest <= buckets / 2
Index t5_bucket(Index r, bool causal, Index buckets = 32, Index farthest = 128);

}  // namespace heed
