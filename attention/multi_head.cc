// SPDX-License-Identifier: Apache-2.0
#include "attention/multi_head.h"

#include <cmath>
#include <exception>

#include "autograd/tape.h"
#include "nn/dropout.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// "24, 25, 27": what the width could be instead, or the heads.
std::string nearest_multiples(Index width, Index heads) {
  const Index below = width / heads * heads;
  return below > 0 ? fmt::format("{} or {}", below, below + heads) : fmt::format("{}", heads);
}

const MultiHeadAttention::Options& checked(const Scope& scope, const MultiHeadAttention::Options& options) {
  const Inside inside(scope.path());
  check<ShapeError>(options.heads >= 1 && options.width >= 1, "multi-head attention: width {} and heads {} must be at least 1", options.width, options.heads);
  check<ShapeError>(options.width % options.heads == 0, "multi-head attention: width {} is not a multiple of heads {}; use a width of {}", options.width,
                    options.heads, nearest_multiples(options.width, options.heads));
  return options;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(Scope scope, Options options)
    : out_proj(scope / "out_proj", {.in = checked(scope, options).width,
                                    .out = options.width,
                                    .bias = options.bias,
                                    .init = options.init ? options.init : linear_uniform(options.width)}),
      width(options.width),
      heads(options.heads),
      dropout(checked_dropout(scope.path(), options.dropout)),
      path(scope.path()) {
  const Index d = options.width, key_width = options.key_width ? options.key_width : d;
  if (key_width == d) {
    in_proj_weight = scope.parameter("in_proj_weight", {3 * d, d}, !options.init ? xavier_uniform() : options.packed_init ? options.init : stacked(3, options.init));
  } else {
    const Initializer init = options.init ? options.init : xavier_uniform();
    q_proj_weight = scope.parameter("q_proj_weight", {d, d}, init);
    k_proj_weight = scope.parameter("k_proj_weight", {d, key_width}, init);
    v_proj_weight = scope.parameter("v_proj_weight", {d, key_width}, init);
  }
  if (options.bias) in_proj_bias = scope.parameter("in_proj_bias", {3 * d}, constant_init(0));
}

Variable MultiHeadAttention::split_heads(const Variable& x) const {
  check<ShapeError>(x.rank() == 3, "multi-head attention: needs 3 dimensions [B, T, d]: {}", x.shape());
  return permute(reshape(x, {x.size(0), x.size(1), heads, width / heads}), {0, 2, 1, 3});   // [B, H, T, d/H]
}

// The fused output, for a Trace: by its definition, whose steps are noted and whose gradients are those of the scores.
Variable MultiHeadAttention::in_small_steps(const Variable& q, const Variable& k, const Variable& v, const Mask& mask, const Variable& output, Along memory) const {
  const Trace::Axes over{.columns = memory, .heads = true};
  const Variable query = trace("query", in_proj_bias.defined() ? "q = x W_Q + b_Q, one a head" : "q = x W_Q, one a head", q, {.heads = true});   // [B, H, T, d/H]
  const Variable scores = trace("scores", "e_j = q·k_j / √(d/H)", matmul(query, transpose(k)) * (1 / std::sqrt(double(width / heads))), over);   // [B, H, T, S]
  const Variable weights = trace("weights", "α = softmax(e) over the words that may be seen", softmax(scores, -1, mask), over);
  const Variable weighted = trace("weighted", "α_j v_j", unsqueeze(weights, -1) * unsqueeze(v, 2), {.rows = memory, .heads = true});               // [B, H, T, S, d/H]
  const Variable context = trace("context", "c = Σ_j α_j v_j", with_value(sum(weighted, {3}), matmul(weights, v).value()), {.heads = true});   // [B, H, T, d/H]
  return dropout_acts(dropout) ? output : with_value(context, output.value());
}

Attended MultiHeadAttention::attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask, Want want, Along memory,
                                    const Tensor& places) const {
  const auto [fused, weights] = scaled_dot_product_attention(q, k, v, mask, {.dropout = dropout, .weights = want == Want::weights, .places = places});
  const Variable output = Trace::current() ? in_small_steps(q, k, v, mask, fused, memory) : fused;
  const Variable joined = reshape(permute(output, {0, 2, 1, 3}), {q.size(0), q.size(2), width});   // [B, T, d]
  return {trace("", out_proj.bias.defined() ? "y = [c of head 1; ..; c of head H] W_O + b_O" : "y = [c of head 1; ..; c of head H] W_O", out_proj(joined)), weights};
}

Memory MultiHeadAttention::prepare(const Variable& states, Mask mask) const {
  const Inside inside(path);
  const Index d = width;
  const Trace::Axes rows{.rows = Along::source, .heads = true};
  const bool biased = in_proj_bias.defined();
  const auto keys = [&](const Variable& x) { return trace("keys", biased ? "k_j = h_j W_K + b_K, one a head" : "k_j = h_j W_K, one a head", split_heads(x), rows); };
  const auto values = [&](const Variable& x) { return trace("values", biased ? "v_j = h_j W_V + b_V, one a head" : "v_j = h_j W_V, one a head", split_heads(x), rows); };
  if (in_proj_weight.defined()) {
    const Variable bias = in_proj_bias.defined() ? slice(in_proj_bias, 0, d, 3 * d) : Variable();
    const auto kv = split(linear(states, slice(in_proj_weight, 0, d, 3 * d), bias), 2, -1);   // [B, S, d] twice
    return {keys(kv[0]), values(kv[1]), std::move(mask)};
  }
  const auto bias = [&](Index block) { return in_proj_bias.defined() ? slice(in_proj_bias, 0, block * d, (block + 1) * d) : Variable(); };
  return {keys(linear(states, k_proj_weight, bias(1))), values(linear(states, v_proj_weight, bias(2))), std::move(mask)};
}

Attended MultiHeadAttention::operator()(const Variable& query, const Memory& memory, Want want) const {
  const Inside inside(path);
  const Index d = width;
  const Variable bias = in_proj_bias.defined() ? slice(in_proj_bias, 0, 0, d) : Variable();
  const Variable q = linear(query, in_proj_weight.defined() ? slice(in_proj_weight, 0, 0, d) : q_proj_weight.variable(), bias);   // [B, T, d]
  return attend(split_heads(q), memory.keys, memory.values, memory.mask, want, Along::source);
}

Variable MultiHeadAttention::projected(const Variable& x) const {
  check<Error>(in_proj_weight.defined(), "multi-head attention: self-attention needs key_width = width: {}", width);
  return linear(x, in_proj_weight, in_proj_bias);
}

Attended MultiHeadAttention::self(const Variable& x, const Mask& mask, Want want, Along among) const {
  const Inside inside(path);
  const auto qkv = split(projected(x), 3, -1);   // [B, T, d] three times
  return attend(split_heads(qkv[0]), split_heads(qkv[1]), split_heads(qkv[2]), mask, want, among);
}

Attended MultiHeadAttention::next(const Variable& x, KeyValueCache& cache, Want want) const {
  const Inside inside(path);
  const auto qkv = split(projected(x), 3, -1);   // [R, n, d] three times
  check<Error>(Trace::current() || !qkv[1].wants_gradient(), "multi-head attention: next keeps keys and values without their gradients: x {} under a tape; self(x, Mask::causal()) has them", x.shape());
  struct Appended {                              // taken back where something throws
    KeyValueCache& cache;
    Index before = cache.length();
    int thrown = std::uncaught_exceptions();
    ~Appended() { if (std::uncaught_exceptions() > thrown) cache.truncate(before); }
  } const appended{cache};
  const Index before = appended.before;
  cache.append(split_heads(qkv[1]).value(), split_heads(qkv[2]).value());
  const Variable q = split_heads(qkv[0]);
  if (Trace::current()) {
    // The new positions' own keys and values go on with their graphs, those before are constants.
    const auto all_of = [&](const Tensor& cached, const Variable& own) { return with_value(concat({constant(slice(cached, 2, 0, before)), split_heads(own)}, 2), cached); };
    const bool biased = in_proj_bias.defined();
    const Trace::Axes rows{.rows = Along::target, .heads = true};
    const Variable k = trace("keys", biased ? "k_j = x_j W_K + b_K, one a head" : "k_j = x_j W_K, one a head", all_of(cache.keys(), qkv[1]), rows);
    const Variable v = trace("values", biased ? "v_j = x_j W_V + b_V, one a head" : "v_j = x_j W_V, one a head", all_of(cache.values(), qkv[2]), rows);
    return attend(q, k, v, Mask::causal(before), want, Along::target);
  }
  return attend(q, constant(cache.stored_keys()), constant(cache.stored_values()), Mask::causal(before), want, Along::target, cache.places());
}

}  // namespace heed
