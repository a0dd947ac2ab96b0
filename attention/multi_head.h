// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attention/cache.h"
#include "attention/differential.h"
#include "attention/memory.h"
#include "attention/normalise.h"
#include "attention/query_key_norm.h"
#include "attention/random_features.h"
#include "attention/relative.h"
#include "attention/talking_heads.h"
#include "autograd/ops.h"
#include "autograd/trace.h"
#include "nn/linear.h"

namespace heed {

// Multi-head attention (Vaswani et al. 2017, arXiv 1706.03762, 3.2.2):
//   out = [head_1 .. head_H] W_O,  head_i = softmax(Q_i K_iᵀ / √(d/H)) V_i,  Q_i, K_i, V_i = X W_iQ, M W_iK, M W_iV
// Parameters are those of PyTorch's nn.MultiheadAttention: the three projections packed as in_proj_weight [3d, d].
// Differs: biases, which the paper does not print, so that weights exchange; bias = false gives the paper's formula.
// With fewer heads of keys and values, each serves a group of queries' heads: multi-query attention (one; Shazeer 2019, arXiv 1911.02150),
// grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245). Then there are q_proj, k_proj and v_proj, Linears, as in Llama's files.
struct MultiHeadAttention {
  struct Options {
    Index width;
    Index heads = 8;
    double dropout = 0;            // on the weights: none in the paper
    bool bias = true;
    Index key_width = 0;           // of the memory, when it is not `width`
    Initializer init = {};         // of every d x d projection; default PyTorch's: Xavier over the packed matrix, U(±1/√d) for the output's
    bool packed_init = false;      // `init` over the packed [3d, d] matrix instead of over each of the three
    double scale = 0;              // of q·k; 0: 1/√(d/H). With another one W_Q starts smaller, so that the products start as large
    RelativePositions positions = {};   // of self and next
    Index key_value_heads = 0;     // 0: heads
    QueryKey query_key = QueryKey::none;   // how queries and keys are normalised, before their positions turn them
    Index long_sentence = 50;      // QueryKeyNorm::Options::length
    std::string_view normalise = "softmax";   // how scores become weights, by make_normalise; others than softmax run in small steps,
    bool talking_heads = false;    // as do these two
    bool differential = false;     // heads 1 and 2, 3 and 4, .. are pairs; the weights are those of pairs
    Index layer = 1;               // of its stack, from 1: differential; the draw of random_features
    bool linear_attention = false;   // without scores: no dropout, positions, normalise, talking_heads, differential, sliding_window
    Index random_features = 0;     // of linear_attention: so many, which estimate softmax, instead of elu(x) + 1
    bool orthogonal_features = true;
    // of self and next: positions to each side that are seen (Beltagy et al. 2020, arXiv 2004.05150, 3.1)
    std::optional<Index> sliding_window = {};
    // of sliding_window, for each head or one for all: the gap g between those positions; they reach g sliding_window far
    std::vector<Index> dilation = {};
    Index global_tokens = 0;       // of sliding_window, in self: so many first positions see all and are seen by all
  };
  // ShapeError unless width is a multiple of heads, and heads of key_value_heads; differential: unless both are even; where positions
  // were made for other heads. Error: a negative window, gaps below 1 or not for all heads, dilation or global_tokens without
  // sliding_window, global_tokens with another key_width, differential with Shaw's positions, linear_attention with what it does not have,
  // random_features without it
  MultiHeadAttention(Scope scope, Options options);

  // Keys and values of a memory [B, S, key_width], once per sentence: [B, key_value_heads, S, d/H]; values of differential
  // [B, key_value_heads/2, S, 2 d/H].
  Memory prepare(const Variable& states, Mask mask) const;
  // query [B, T, d] -> context [B, T, d], weights [B, H, T, S] on request, differential [B, H/2, T, S].
  // All rows of one sentence see the same memory.
  Attended operator()(const Variable& query, const Memory& memory, Want want = Want::context) const;
  // Queries, keys and values from x [B, T, d] in one product. Rows of global tokens see all positions by projections of their own; to other
  // rows global tokens are positions like any (as in the authors' code). Under a causal mask they see those before, all after see them.
  // `among` says what the positions are, to a Trace.
  Attended self(const Variable& x, const Mask& mask, Want want = Want::context, Along among = Along::source) const;
  // For next: takes memory for `capacity` positions of `rows` rows.
  KeyValueCache cache(Index rows, Index capacity) const;
  // The same for the next positions x [R, n, d] after those in the cache, each seeing all before it; cache.length() grows by n.
  // The work of linear_attention does not: it reads the sums, and the cache's keys only where weights are wanted.
  // Error where keys and values want a gradient: the cache keeps none; linear_attention: where it keeps no sums;
  // global_tokens: they see what comes.
  Attended next(const Variable& x, KeyValueCache& cache, Want want = Want::context) const;

  Parameter in_proj_weight, in_proj_bias;              // [3d, d], [3d]
  Parameter q_proj_weight, k_proj_weight, v_proj_weight;   // instead of in_proj_weight when key_width differs
  std::optional<Linear> q_proj, k_proj, v_proj;        // instead of all these when key_value_heads differs
  std::optional<Linear> query_global, key_global, value_global;   // of global_tokens (paper, 3.1): start as copies of W_Q, W_K, W_V
  Linear out_proj;
  Index width, heads, key_value_heads;
  double dropout, scale;
  RelativePositions positions;
  QueryKeyNorm norm;
  Normalise normalise;
  std::optional<TalkingHeads> talking;
  std::optional<DifferentialHeads> differential;
  std::optional<Index> sliding_window;
  Tensor dilation;                                     // i32 [heads], undefined: 1
  Index global_tokens;
  bool linear_attention;
  std::optional<RandomFeatures> features;
  Path path, global_path;                              // the second one for what a Trace notes of global tokens

 private:
  double factor() const;                               // scale, or 1/√(d/H)
  double least() const;                                // denominator of linear_attention
  Index value_heads() const { return differential ? heads / 2 : heads; }   // that read values of their own
  bool biased() const { return in_proj_bias.defined() || (q_proj && q_proj->bias.defined()); }
  void project_inputs(Scope scope, const Options& options);   // the parameters of queries, keys and values
  void project_globally(Scope scope, bool bias);       // query_global, key_global, value_global
  List<Variable> projected(const Variable& x) const;   // queries, keys and values of x [B, T, d], [B, T, ..] each
  Variable in_bias(Index first, Index end) const;      // of queries 0, keys 1, values 2
  Variable split_heads(const Variable& x, Index of) const;   // [B, T, H' of] -> [B, H', T, of], a view
  Variable queries(const Variable& x) const;           // the same with d/H, normalised
  Variable keys(const Variable& x, const Mask& mask) const;   // the mask they are read under
  Variable values(const Variable& x) const;            // as they are; differential: 2 d/H
  // Keys and values; in self-attention q stands at the positions first, first + 1, ..
  struct Reads {
    Variable k, v;
    Along along;
    Index first = -1;                                  // -1: a memory's
    Tensor places = {};                                // AttentionOptions::places, turned
    Index turned = 0;
    Variable context = {};                             // linear_attention: what q reads, undefined where by_weights must find it
    bool global = false;                               // q sees beyond the window
  };
  std::string formula(std::string_view begins, std::string_view which, bool own) const;   // of a projection, for a Trace
  // Contexts of the heads [B, T, d], joined, weights [B, H, T, S]
  Attended heads_of(const Variable& q, const Reads& reads, const Mask& mask, Want want) const;
  Attended joined(Attended read) const;                // through W_O
  Attended attend(const Variable& q, const Reads& reads, const Mask& mask, Want want) const {
    return joined(heads_of(q, reads, mask, want));
  }
  Attended global_rows(const Variable& x, const Mask& mask, Want want, Along among) const;   // heads_of the global tokens
  bool fused(bool biased) const;                       // softmax over the values themselves: one kernel
  // The same in small steps, which a Trace notes; weights are dropped with probability p.
  AttentionVariable by_weights(const Variable& q, const Reads& reads, const Variable& bias, const Mask& mask, double p) const;
};

// Of weights, by path, of a layer without global tokens at `prefix` ("encoder.layers.0.self_attn."): adds the projections of global tokens
// as copies (paper, 3.1: a model that was trained without begins with windows). Those that are there stay.
void add_global_projections(std::map<std::string, Tensor>& weights, const std::string& prefix);

}  // namespace heed
