// SPDX-License-Identifier: Apache-2.0
// Lesson 16: attention alone does not know where words stand: in another order they would get the same weights. Positions are added to
// the words (sinusoids, a learned table), or they enter the scores of a query at i and a key at j by the distance r = j - i, which means
// the same at any place of a sentence, also where none as long was trained:
//   rope    turns q_i and k_j by i θ_p and j θ_p, pair p of their columns: what is left of it in q_i·k_j is r θ_p
//   alibi   e_ij - m |r|, with another m for each head
//   t5      e_ij + b[bucket(r)], learned; near distances have a bucket each, far ones share it with others
//   shaw    e_ij + q_i·a_r / √dk, and a vector more to what is read, learned for |r| <= R
#include "attention/multi_head.h"
#include "attention/relative.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

using namespace heed;

constexpr Index d = 16, heads = 4, T = 6;

int main() {
  // The same word six times, and each query looks at all: without positions it cannot tell them apart.
  const Tensor word = normal(Key(Seed{3}), {1, 1, d});
  const Variable same = constant(expand(word, {1, T, d}));
  for (const Positions kind : {Positions::none, Positions::rope, Positions::alibi, Positions::t5, Positions::shaw}) {
    Parameters parameters(Seed{1});
    RelativePositions positions(parameters.root(), {.kind = kind, .heads = heads, .head_width = d / heads});
    const MultiHeadAttention attention(parameters.root(), {.width = d, .heads = heads, .positions = std::move(positions)});
    const Tensor weights = attention.self(same, {}, Want::weights).weights.value();          // [1, H, T, T]
    fmt::print("{:<6} weights of head 1, query 3: {:.3f}\n", name(kind), weights(0, 0, 2));
  }

  // rope: the product depends on j - i alone.
  const Tensor q = normal(Key(Seed{1}), {1, 4}), k = normal(Key(Seed{2}), {1, 4});
  const Rotations angles = rotations(100, 4);
  fmt::print("q·k of rope at (i, j)");
  for (const auto& [i, j] : {std::pair{0, 0}, {3, 5}, {63, 65}, {5, 3}})
    fmt::print("  ({}, {}) {:.4f}", i, j, sum(rotary(q, angles.rows(i, i + 1)) * rotary(k, angles.rows(j, j + 1))).item());
  fmt::print("\n");

  // alibi: a number a diagonal, so that all of [T, T] are T + T - 1 of them in memory.
  fmt::print("m of alibi's 8 heads {:.4f}\n", alibi_slopes(8));
  fmt::print("alibi, head 1\n{:.1f}\n", toeplitz(tensor({-1.5, -1, -0.5, 0, -0.5, -1, -1.5}), 4));

  fmt::print("buckets of t5\n{:>8}{:>10}{:>8}\n", "r", "two-sided", "causal");
  for (const Index r : {3, 0, -1, -7, -8, -16, -32, -64, -128, -1000})
    fmt::print("{:>8}{:>10}{:>8}\n", r, t5_bucket(r, false), t5_bucket(r, true));
}

/* Output:
none   weights of head 1, query 3: [0.167 0.167 0.167 0.167 0.167 0.167]
rope   weights of head 1, query 3: [0.143 0.162 0.185 0.190 0.171 0.149]
alibi  weights of head 1, query 3: [0.143 0.184 0.236 0.184 0.143 0.111]
t5     weights of head 1, query 3: [0.187 0.175 0.131 0.179 0.181 0.147]
shaw   weights of head 1, query 3: [0.114 0.180 0.176 0.217 0.126 0.187]
q·k of rope at (i, j)  (0, 0) -1.6807  (3, 5) 4.5578  (63, 65) 4.5578  (5, 3) 1.2722
m of alibi's 8 heads [0.5000 0.2500 0.1250 0.0625 0.0312 0.0156 0.0078 0.0039]
alibi, head 1
[[ 0.0 -0.5 -1.0 -1.5]
 [-0.5  0.0 -0.5 -1.0]
 [-1.0 -0.5  0.0 -0.5]
 [-1.5 -1.0 -0.5  0.0]]
buckets of t5
       r two-sided  causal
       3        19       0
       0         0       0
      -1         1       1
      -7         7       7
      -8         8       8
     -16        10      16
     -32        12      21
     -64        14      26
    -128        15      31
   -1000        15      31
*/
