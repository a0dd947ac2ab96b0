// SPDX-License-Identifier: Apache-2.0
// Attention against PyTorch's scaled_dot_product_attention and nn.MultiheadAttention.
#include "tests/golden.h"

#include <doctest/doctest.h>

#include "attention/multi_head.h"
#include "autograd/ops.h"
#include "models/seq2seq.h"
#include "tensor/ops/view.h"

using namespace heed;

namespace {
// What the case allows: causal, lengths, an explicit mask [B, T, S] for all heads.
Mask mask(const golden::Case& c) {
  Mask m;
  if (c.options().value("is_causal", false)) m = m & Mask::causal();
  if (c.has("lengths")) m = m & c.lengths();
  if (c.has("mask")) m = m & Mask::allowed(unsqueeze(c.tensor("mask"), 1));
  return m;
}
}  // namespace

TEST_CASE("golden: scaled dot-product attention, fused and by definition") {
  golden::each("scaled_dot_product_attention", [](golden::Case& c) {
    const auto& scale = c.options().value("scale", Json());
    const double factor = scale.is_number() ? scale.get<double>() : 0;
    Tape tape;
    const Variable q = c.input("q"), k = c.input("k"), v = c.input("v"), bias = c.has("bias") ? c.input("bias") : Variable();
    const AttentionOptions options{.scale = factor, .weights = true};
    const AttentionVariable y = scaled_dot_product_attention(q, k, v, mask(c), options, bias),
                            slow = scaled_dot_product_attention_by_definition(q, k, v, mask(c), options, bias);
    c.check_value("weights", y.weights.value());
    c.check_value("weights", slow.weights.value());
    c.check_value("context", slow.output.value());
    c.check(tape, {{"context", y.output}});
  });
}

TEST_CASE("golden: MultiHeadAttention") {
  golden::each("multi_head_attention", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const MultiHeadAttention layer(parameters.root(), {.width = 12,
                                                       .heads = 3,
                                                       .bias = c.options().value("bias", true),
                                                       .key_width = c.options().value("key_width", Index{0})});
    c.fill(parameters);
    Tape tape;
    const bool self = !c.has("memory");
    const std::string rows = self && c.has("lengths") ? "lengths" : "";
    const Variable query = c.input("query");
    const Attended y = self ? layer.self(query, mask(c), Want::weights)
                            : layer(query, layer.prepare(c.input("memory"), mask(c)), Want::weights);
    if (rows.empty()) {
      c.check_value("weights", y.weights.value());
      c.check_value("weights_average", mean_over_heads({AttentionMap::Kind::cross, 0, y.weights}).value());
    }
    c.check(tape, {{"context", y.context}}, &parameters, rows);
  });
}

TEST_CASE("golden: self-attention with relative positions, normalised queries and keys, windows") {
  const auto check = [](golden::Case& c) {
    const Json& o = c.options();
    Parameters parameters(Seed{1}, c.dtype());
    RelativePositions positions(parameters.root(), {.kind = positions_named(o["kind"].get<std::string>()),
                                                    .heads = 3,
                                                    .head_width = 4,
                                                    .causal = o.value("is_causal", false),
                                                    .farthest = o.value("farthest", Index{128}),
                                                    .clip = 2,
                                                    .shared = o.value("shared", false)});
    const MultiHeadAttention layer(parameters.root(),
                                   {.width = 12,
                                    .heads = 3,
                                    .positions = std::move(positions),
                                    .query_key = query_key_named(o.value("norm", "none")),
                                    .sliding_window = o.contains("window") ? std::optional(o["window"].get<Index>()) : std::nullopt});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", layer.self(c.input("x"), mask(c)).context}}, &parameters, c.has("lengths") ? "lengths" : "");
  };
  golden::each("relative_positions", check);
  golden::each("query_key_norm", check);
}

TEST_CASE("golden: sliding windows with gaps and global tokens") {
  golden::each("sliding_window", [](golden::Case& c) {
    const Json& o = c.options();
    Parameters parameters(Seed{1}, c.dtype());
    const MultiHeadAttention layer(parameters.root(), {.width = 16,
                                                       .heads = 4,
                                                       .bias = false,
                                                       .key_value_heads = o.value("key_value_heads", Index{4}),
                                                       .sliding_window = o["window"].get<Index>(),
                                                       .dilation = o.value("dilation", std::vector<Index>{}),
                                                       .global_tokens = o.value("global_tokens", Index{0})});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", layer.self(c.input("x"), mask(c)).context}}, &parameters, c.has("lengths") ? "lengths" : "");
  });
}

TEST_CASE("golden: linear attention") {
  golden::each("linear_attention", [](golden::Case& c) {
    const Json& o = c.options();
    Parameters parameters(Seed{1}, c.dtype());
    const MultiHeadAttention layer(parameters.root(), {.width = 12,
                                                       .heads = 3,
                                                       .bias = false,
                                                       .key_value_heads = o.value("key_value_heads", Index{3}),
                                                       .query_key = query_key_named(o.value("norm", "none")),
                                                       .linear_attention = true});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", layer.self(c.input("x"), mask(c)).context}}, &parameters, c.has("lengths") ? "lengths" : "");
  });
}

TEST_CASE("golden: talking heads, differential attention") {
  golden::each("between_heads", [](golden::Case& c) {
    const Json& o = c.options();
    const bool talking = o["kind"] == "talking";
    Parameters parameters(Seed{1}, c.dtype());
    const MultiHeadAttention layer(parameters.root(), {.width = 16,
                                                       .heads = 4,
                                                       .bias = o.value("bias", true),
                                                       .key_value_heads = o.value("key_value_heads", Index{4}),
                                                       .talking_heads = talking,
                                                       .differential = !talking,
                                                       .layer = o.value("layer", Index{1})});
    c.fill(parameters);
    Tape tape;
    const Attended y = layer.self(c.input("x"), mask(c), Want::weights);
    if (!c.has("lengths")) c.check_value("weights", y.weights.value());
    c.check(tape, {{"y", y.context}}, &parameters, c.has("lengths") ? "lengths" : "");
  });
}
