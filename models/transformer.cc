// SPDX-License-Identifier: Apache-2.0
#include "models/transformer.h"

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/index.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

MultiHeadAttention::Options attention_options(const TransformerOptions& o, Index layer, RelativePositions positions = {},
                                              Index key_value_heads = 0) {
  return {.width = o.width,
          .heads = o.heads,
          .dropout = o.attention_dropout,
          .bias = o.bias,
          .init = xavier_uniform(),
          .packed_init = o.packed_qkv_init,
          .scale = o.positions == Positions::t5 ? 1.0 : 0.0,      // of cross-attention too
          .positions = std::move(positions),
          .key_value_heads = key_value_heads,
          .query_key = o.query_key,
          .normalise = o.normalise,
          .talking_heads = o.talking_heads,
          .differential = o.differential,
          .layer = layer,
          .linear_attention = o.linear_attention,
          .random_features = o.random_features,
          .sliding_window = o.sliding_window,
          .dilation = o.dilation};
}

// Global tokens are the encoder's, as in the authors' encoder-decoder: in a decoder they could see but what stands before them.
MultiHeadAttention::Options encoder_attention_options(const TransformerOptions& o, Index layer, RelativePositions positions) {
  MultiHeadAttention::Options options = attention_options(o, layer, std::move(positions));
  options.global_tokens = o.global_tokens;
  return options;
}

RelativePositions relative_positions(Scope scope, const TransformerOptions& o, bool causal) {
  if (!inside_attention(o.positions) || o.heads < 1 || o.width % o.heads != 0) return {};   // the attention refuses such sizes
  return RelativePositions(
      scope, {.kind = o.positions, .heads = o.heads, .head_width = o.width / o.heads, .causal = causal, .length = o.max_positions});
}
// Shaw's tables are each layer's, the rest is the stack's.
RelativePositions stack_positions(Scope scope, const TransformerOptions& o, bool causal) {
  return o.positions == Positions::shaw ? RelativePositions() : relative_positions(scope, o, causal);
}
RelativePositions layer_positions(Scope scope, const TransformerOptions& o, bool causal, const RelativePositions* stack) {
  return stack && stack->kind() == o.positions ? stack->share() : relative_positions(scope, o, causal);
}

FeedForward::Options feed_forward_options(const TransformerOptions& o) {
  return {.width = o.width,
          .inner = o.feed_forward,
          .activation = o.activation,
          .gated = o.gated,
          .dropout = o.activation_dropout,
          .bias = o.bias,
          .init = xavier_uniform()};
}

Residual::Options residual_options(const TransformerOptions& o) {
  return {.width = o.width, .dropout = o.dropout, .norm_at = o.norm, .eps = o.eps, .bias = o.bias, .rms = o.rms_norm};
}

std::optional<Norm> final_norm(const Scope& scope, const TransformerOptions& o) {
  if (o.final_norm == FinalNorm::automatic && o.norm == NormAt::after) return {};
  return Norm(scope / "norm", {.width = o.width, .rms = o.rms_norm, .eps = o.eps, .bias = o.bias});
}

void check_layers(const Scope& scope, Index layers) {
  const Inside inside(scope.path());
  check<ShapeError>(layers >= 1, "transformer: layers must be at least 1: {}", layers);
}

void check_memory(const TransformerDecoderLayer& layer, const Memory* memory) {
  check<Error>(memory || !layer.multihead_attn, "transformer decoder: a layer with cross-attention needs a memory");
}

// A memory for each layer with cross-attention, none without.
void check_memories(const std::vector<TransformerDecoderLayer>& layers, std::span<const Memory> memories) {
  check_not_moved_from(!layers.empty(), "transformer decoder");
  const Index needed = std::ranges::count_if(layers, [](const TransformerDecoderLayer& layer) { return layer.multihead_attn.has_value(); });
  check<Error>(Index(memories.size()) == needed, "transformer decoder: needs {} memories, got {}; prepare(states, mask) makes them", needed,
               memories.size());
}

Want want(const Variable* weights) { return weights ? Want::weights : Want::context; }

// The context of an attention, its weights put aside when they are wanted.
Variable context(Attended attended, Variable* weights) {
  if (weights) *weights = std::move(attended.weights);
  return std::move(attended.context);
}

}  // namespace

// ---- layers ---------------------------------------------------------------------------------------------------------

TransformerEncoderLayer::TransformerEncoderLayer(Scope scope, const TransformerOptions& o, const RelativePositions* positions, Index layer)
    : self_attn(scope / "self_attn", encoder_attention_options(o, layer, layer_positions(scope / "self_attn", o, false, positions))),
      feed_forward(scope, feed_forward_options(o)),
      residual1(scope / "norm1", residual_options(o)),
      residual2(scope / "norm2", residual_options(o)) {}

Variable TransformerEncoderLayer::operator()(const Variable& x, const Mask& mask, Variable* weights) const {
  const Variable y = residual1(x, [&](const Variable& v) { return context(self_attn.self(v, mask, want(weights)), weights); });
  return residual2(y, feed_forward);
}

TransformerDecoderLayer::TransformerDecoderLayer(Scope scope, const TransformerOptions& o, bool cross, const RelativePositions* positions,
                                                 Index layer)
    : self_attn(scope / "self_attn",
                attention_options(o, layer, layer_positions(scope / "self_attn", o, true, positions), o.key_value_heads)),
      feed_forward(scope, feed_forward_options(o)),
      residual1(scope / "norm1", residual_options(o)),
      residual3(scope / (cross ? "norm3" : "norm2"), residual_options(o)) {
  if (!cross) return;
  multihead_attn.emplace(scope / "multihead_attn", attention_options(o, layer, {}, o.key_value_heads));
  residual2.emplace(scope / "norm2", residual_options(o));
}

Variable TransformerDecoderLayer::operator()(const Variable& x, const Memory* memory, const Mask& mask, Variable* self_weights,
                                             Variable* cross_weights) const {
  check_memory(*this, memory);
  Variable y =
      residual1(x, [&](const Variable& v) { return context(self_attn.self(v, mask, want(self_weights), Along::target), self_weights); });
  if (multihead_attn)
    y = (*residual2)(y, [&](const Variable& v) { return context((*multihead_attn)(v, *memory, want(cross_weights)), cross_weights); });
  return residual3(y, feed_forward);
}

Variable TransformerDecoderLayer::next(const Variable& x, const Memory* memory, KeyValueCache& cache, Variable* self_weights,
                                       Variable* cross_weights) const {
  check_memory(*this, memory);
  const Appending appending(cache);
  Variable y = residual1(x, [&](const Variable& v) { return context(self_attn.next(v, cache, want(self_weights)), self_weights); });
  if (multihead_attn)
    y = (*residual2)(y, [&](const Variable& v) {
      // The rows of one sentence are queries of one memory: [R, 1, d] as [B, R/B, d].
      const Index B = memory->keys.size(0), R = v.size(0);
      check<ShapeError>(v.size(1) == 1 && R % std::max<Index>(B, 1) == 0,
                        "transformer decoder: next takes one position of rows in groups of like size, one a sentence: x {}, sentences {}",
                        v.shape(), B);
      const Variable rows = reshape(v, {B, R / std::max<Index>(B, 1), v.size(2)});
      Attended attended = (*multihead_attn)(rows, *memory, want(cross_weights));
      if (cross_weights) {                                                                        // [B, H, R/B, S] -> [R, H, 1, S]
        const Variable& w = attended.weights;
        *cross_weights = reshape(permute(w, {0, 2, 1, 3}), {R, w.size(1), 1, w.size(3)});
      }
      return reshape(attended.context, v.shape());
    });
  return residual3(y, feed_forward);
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

TransformerEncoder::TransformerEncoder(Scope scope, const TransformerOptions& o) : positions(stack_positions(scope, o, false)) {
  check_layers(scope, o.encoder_layers);
  for (Index k = 0; k < o.encoder_layers; ++k) layers.emplace_back(scope / "layers" / k, o, &positions, k + 1);
  norm = final_norm(scope, o);
}

Variable TransformerEncoder::operator()(const Variable& x, const Mask& mask, List<AttentionMap>* maps) const {
  check_not_moved_from(!layers.empty(), "transformer encoder");
  Variable y = x;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    Variable weights;
    y = layers[k](y, mask, maps ? &weights : nullptr);
    if (maps) maps->push_back({AttentionMap::Kind::encoder, Index(k), weights});
  }
  return norm ? (*norm)(y) : y;
}

TransformerDecoder::TransformerDecoder(Scope scope, const TransformerOptions& o, bool cross) : positions(stack_positions(scope, o, true)) {
  check_layers(scope, o.decoder_layers);
  for (Index k = 0; k < o.decoder_layers; ++k) layers.emplace_back(scope / "layers" / k, o, cross, &positions, k + 1);
  norm = final_norm(scope, o);
}

List<Memory> TransformerDecoder::prepare(const Variable& states, const Mask& mask) const {
  List<Memory> memories;
  for (const TransformerDecoderLayer& layer : layers) {
    check<Error>(layer.multihead_attn.has_value(), "transformer decoder: prepare: its layers look at no memory");
    memories.push_back(layer.multihead_attn->prepare(states, mask));
  }
  return memories;
}

Variable TransformerDecoder::operator()(const Variable& x, std::span<const Memory> memories, const Mask& mask,
                                        List<AttentionMap>* maps) const {
  check_memories(layers, memories);
  Variable y = x;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    Variable self_weights, cross_weights;
    y = layers[k](y, memories.empty() ? nullptr : &memories[k], mask, maps ? &self_weights : nullptr, maps ? &cross_weights : nullptr);
    if (maps) maps->push_back({AttentionMap::Kind::decoder, Index(k), self_weights});
    if (maps && cross_weights.defined()) maps->push_back({AttentionMap::Kind::cross, Index(k), cross_weights});
  }
  return norm ? (*norm)(y) : y;
}

Variable TransformerDecoder::next(const Variable& x, std::span<const Memory> memories, std::span<KeyValueCache> caches,
                                  List<AttentionMap>* maps) const {
  check_memories(layers, memories);
  check<Error>(caches.size() == layers.size(), "transformer decoder: needs {} caches, one a layer, got {}", layers.size(), caches.size());
  check<Error>(std::ranges::all_of(caches, [&](const KeyValueCache& cache) { return cache.length() == caches[0].length(); }),
               "transformer decoder: the caches of its layers hold different numbers of positions: {} and others", caches[0].length());
  const Appending appending(caches);
  Variable y = x;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    Variable self_weights, cross_weights;
    y = layers[k].next(y, memories.empty() ? nullptr : &memories[k], caches[k], maps ? &self_weights : nullptr,
                       maps ? &cross_weights : nullptr);
    if (maps) maps->push_back({AttentionMap::Kind::decoder, Index(k), self_weights});
    if (maps && cross_weights.defined()) maps->push_back({AttentionMap::Kind::cross, Index(k), cross_weights});
  }
  return norm ? (*norm)(y) : y;
}

// ---- translation model ----------------------------------------------------------------------------------------------

namespace {

// Standard deviation 1/√d, so that √d E[y] has variance 1 beside the position signal.
Embedding::Options embedding_options(Index vocabulary, const TranslationModel::Options& o, Parameter shared = {}) {
  const double d = double(o.core.width);
  return {.vocabulary = vocabulary,
          .width = o.core.width,
          .padding = o.pad,
          .scale = std::sqrt(d),
          .init = normal_init(0, 1 / std::sqrt(d)),
          .weight = std::move(shared)};
}

TransformerOptions core_options(const TranslationModel::Options& o) {
  TransformerOptions core = o.core;
  core.positions = inside_attention(o.positions) ? o.positions : Positions::none;
  core.max_positions = o.max_positions;
  return core;
}

constexpr std::string_view kMemory = "h_1 .. h_S = encoder(x_1 .. x_S), what the decoder looks at";

// Keys [B, H, S, d/H] laid out by columns: what attention of a few queries turns at every step is turned once.
Tensor by_columns(const Tensor& keys) { return transpose(transpose(keys).contiguous()); }

struct TransformerState : DecodingState {
  List<Memory> memories;               // one a layer, rows = sentences
  std::vector<KeyValueCache> caches;   // one a layer, rows = hypotheses
  Index position = 0, rows = 0, group = 1;   // rows of a sentence

  void reorder(std::span<const Index> order, Index per_sentence) override {
    const Tensor ids = reordered_sentences(order, per_sentence, rows, group);
    for (KeyValueCache& cache : caches) cache.reorder(order);
    rows = Index(order.size()), group = per_sentence;
    if (!ids.defined()) return;
    for (Memory& memory : memories) {
      memory.keys = constant(transpose(index_select(transpose(memory.keys.value()), 0, ids)));
      memory.values = constant(index_select(memory.values.value(), 0, ids));
      if (memory.sums.defined()) memory.sums = constant(index_select(memory.sums.value(), 0, ids));
      memory.mask = memory.mask.of_sentences(ids, 4);   // of e [B, H, T, S]
    }
  }
};

}  // namespace

TranslationModel::TranslationModel(Scope scope, Options options)
    : source_embedding(scope / "source_embedding", embedding_options(options.source_vocabulary, options)),
      target_embedding(
          scope / "target_embedding",
          embedding_options(options.target_vocabulary, options, options.tie == Tie::all ? source_embedding.weight.share() : Parameter())),
      source_positions(scope / "source_positions",
                       {.kind = options.positions, .width = options.core.width, .length = options.max_positions}),
      target_positions(scope / "target_positions",
                       {.kind = options.positions, .width = options.core.width, .length = options.max_positions}),
      core(scope / "core", core_options(options)),
      output(scope / "output", {.in = options.core.width,
                                .out = options.target_vocabulary,
                                .bias = options.tie == Tie::none,
                                .init = xavier_uniform(),
                                .weight = options.tie == Tie::none ? Parameter() : target_embedding.weight.share()}),
      width_(options.core.width),
      dropout_(options.core.dropout) {}

Variable TranslationModel::embed(const Embedding& embedding, const PositionTable& positions, const Tensor& ids, Index offset) const {
  const Variable rows = positions.rows(offset, ids.size(1));
  const Inside inside(embedding.path);
  const Tensor fixed = rows.defined() && !positions.trained() ? rows.value() : Tensor();
  Variable x = heed::embedding(embedding.weight, ids, embedding.scale, embedding.padding, fixed);   // [B, T, d]
  if (positions.trained()) x = x + rows;
  return trace("", rows.defined() ? "x = √d E[word] + PE" : "x = √d E[word]", dropout(x, dropout_),
               {.rows = &embedding == &source_embedding ? Along::source : Along::target});
}

Variable TranslationModel::encoded(const Sequences& source, const Mask& mask, List<AttentionMap>* maps) const {
  return trace("memory", kMemory, core.encoder(embed(source_embedding, source_positions, source.ids), mask, maps), {.rows = Along::source});
}

Variable TranslationModel::features(const Batch& batch, List<AttentionMap>* maps, Variable* states) const {
  const Mask source = source_mask("transformer", batch.source);
  const Variable memory = encoded(batch.source, source, maps);
  if (states) *states = memory;
  return core.decoder(embed(target_embedding, target_positions, batch.inputs), core.decoder.prepare(memory, source), Mask::causal(), maps);
}

Loss TranslationModel::loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const {
  check_targets(batch);
  const Variable x = features(batch, maps);
  const Inside inside(output.path);
  const Variable rows = reshape(x, {-1, width_});                                      // [B T, d]
  return {linear_cross_entropy(rows, output.weight, output.bias, reshape(batch.targets, {-1}),
                               with_padding(options, target_embedding.padding)),
          target_tokens(batch)};
}

Seq2Seq::Encoding TranslationModel::encode(const Sequences& source) const {
  auto state = std::make_unique<TransformerState>();
  const Mask mask = source_mask("transformer", source);
  const Variable states = encoded(source, mask, nullptr);
  state->memories = core.decoder.prepare(states, mask);
  for (Memory& memory : state->memories)
    memory = {with_value(memory.keys, by_columns(memory.keys.value())), with_value(memory.values, memory.values.value().contiguous()),
              memory.mask, memory.sums};
  state->rows = source.size();
  for (const TransformerDecoderLayer& layer : core.decoder.layers)
    state->caches.push_back(layer.self_attn.cache(state->rows, source.ids.size(1) + 50));
  return {std::move(state), states};
}

Variable TranslationModel::next_features(const Tensor& tokens, DecodingState& base, List<AttentionMap>* maps) const {
  auto& state = state_as<TransformerState>(base);
  check<ShapeError>(tokens.shape() == Shape{state.rows}, "step: needs one token a row: tokens {}, rows {}", tokens.shape(), state.rows);
  const Variable x = embed(target_embedding, target_positions, reshape(tokens, {-1, 1}), state.position);   // [R, 1, d]
  const Variable y = core.decoder.next(x, state.memories, state.caches, maps);
  ++state.position;
  return reshape(y, {state.rows, width_});
}

}  // namespace heed
