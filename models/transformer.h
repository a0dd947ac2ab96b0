// SPDX-License-Identifier: Apache-2.0
// The Transformer (Vaswani et al. 2017, arXiv 1706.03762): layers, the core with exactly the keys of PyTorch's nn.Transformer,
// and the translation model around it.
#pragma once
#include <optional>
#include <vector>

#include "attention/multi_head.h"
#include "attention/position.h"
#include "models/seq2seq.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"
#include "nn/residual.h"

namespace heed {

enum class FinalNorm { automatic, always };   // after the last layer of each stack: only with pre-norm; always (nn.Transformer)

struct TransformerOptions {
  Index width = 512, heads = 8, feed_forward = 2048, encoder_layers = 6, decoder_layers = 6;
  double dropout = 0.1, attention_dropout = 0, activation_dropout = 0;
  Activation activation = Activation::relu;
  bool gated = false;
  NormAt norm = NormAt::after;
  FinalNorm final_norm = FinalNorm::automatic;
  bool rms_norm = false;                      // RMSNorm instead of LayerNorm
  double eps = 1e-5;
  bool bias = true;                           // of projections, feed-forward layers and norms, as in PyTorch
  bool packed_qkv_init = false;               // Xavier over the packed [3d, d] projection, as PyTorch, instead of over each
  Index key_value_heads = 0;                  // of the decoder's attentions; 0: heads
  Positions positions = Positions::none;      // inside self-attention; those added to the words are not the core's
  Index max_positions = 1024;                 // rope: whose angles are kept
  QueryKey query_key = QueryKey::none;        // of all attentions: MultiHeadAttention::Options
  std::string_view normalise = "softmax";     // of all attentions, by make_normalise
  std::optional<Index> sliding_window = {};   // of self-attention
  std::vector<Index> dilation = {};           // of sliding_window: MultiHeadAttention::Options
  Index global_tokens = 0;                    // of sliding_window in the encoder: MultiHeadAttention::Options
  bool talking_heads = false;                 // of all attentions, as are those below: MultiHeadAttention::Options
  bool differential = false;
  bool linear_attention = false;
  Index random_features = 0;                  // of linear_attention, else elu(x) + 1
};

// x = norm1(x + self_attn(x));  x = norm2(x + linear2(act(linear1(x))))                                    [B, S, d]
struct TransformerEncoderLayer {
  // positions: those that the layers of a stack share; null: the layer's own.  layer: its number in the stack, from 1
  TransformerEncoderLayer(Scope scope, const TransformerOptions& options, const RelativePositions* positions = nullptr, Index layer = 1);
  Variable operator()(const Variable& x, const Mask& mask, Variable* weights = nullptr) const;

  MultiHeadAttention self_attn;
  FeedForward feed_forward;
  Residual residual1, residual2;
};

// x = norm1(x + self_attn(x));  x = norm2(x + multihead_attn(x, memory));  x = norm3(x + linear2(act(linear1(x))))   [B, T, d]
// Without a memory (decoder-only stacks) the middle part is left out.
struct TransformerDecoderLayer {
  TransformerDecoderLayer(Scope scope, const TransformerOptions& options, bool cross = true, const RelativePositions* positions = nullptr,
                          Index layer = 1);
  Variable operator()(const Variable& x, const Memory* memory, const Mask& mask, Variable* self_weights = nullptr,
                      Variable* cross_weights = nullptr) const;
  // One position [R, 1, d] after those in the cache; R rows in groups of R/B per sentence of the memory.
  Variable next(const Variable& x, const Memory* memory, KeyValueCache& cache, Variable* self_weights = nullptr,
                Variable* cross_weights = nullptr) const;

  MultiHeadAttention self_attn;
  std::optional<MultiHeadAttention> multihead_attn;
  FeedForward feed_forward;
  Residual residual1;
  std::optional<Residual> residual2;
  Residual residual3;                 // norm2 when there is no cross-attention
};

// encoder_layers of them, at least 1, else ShapeError.
struct TransformerEncoder {
  TransformerEncoder(Scope scope, const TransformerOptions& options);
  Variable operator()(const Variable& x, const Mask& mask, List<AttentionMap>* maps = nullptr) const;   // [B, S, d]

  RelativePositions positions;         // what the layers share of them
  std::vector<TransformerEncoderLayer> layers;
  std::optional<Norm> norm;
};

// decoder_layers of them, at least 1, else ShapeError. Error unless there are as many memories, and caches, as layers that need one.
struct TransformerDecoder {
  TransformerDecoder(Scope scope, const TransformerOptions& options, bool cross = true);
  // Keys and values of every layer's cross-attention, once per sentence. Error where there is none.
  List<Memory> prepare(const Variable& states, const Mask& mask) const;
  // [B, T, d]
  Variable operator()(const Variable& x, std::span<const Memory> memories, const Mask& mask = Mask::causal(),
                      List<AttentionMap>* maps = nullptr) const;
  // [R, 1, d]
  Variable next(const Variable& x, std::span<const Memory> memories, std::span<KeyValueCache> caches,
                List<AttentionMap>* maps = nullptr) const;

  RelativePositions positions;
  std::vector<TransformerDecoderLayer> layers;
  std::optional<Norm> norm;
};

// Encoder and decoder without embeddings: `encoder.layers.0.self_attn.in_proj_weight`, ...
struct Transformer {
  Transformer(Scope scope, const TransformerOptions& options) : encoder(scope / "encoder", options), decoder(scope / "decoder", options) {}
  // source [B, S, d], target [B, T, d] -> [B, T, d]; target positions see themselves and those before.
  Variable operator()(const Variable& source, const Variable& target, const Mask& source_mask) const {
    return decoder(target, decoder.prepare(encoder(source, source_mask), source_mask));
  }

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

enum class Tie { none, output, all };   // share: nothing; target embedding and output; these and the source embedding (the paper)

// Embeddings √d E[y] + PE with dropout, the core, and the output layer.
class TranslationModel : public Seq2Seq {
 public:
  struct Options {
    Index source_vocabulary, target_vocabulary;
    TransformerOptions core = {};
    Tie tie = Tie::none;
    Positions positions = Positions::sinusoidal;      // added to the words or inside self-attention; the core takes both from here
    Index max_positions = 1024;
    std::int32_t pad = 0;

    // 63M with 37k shared words (the paper: 65M)
    static TransformerOptions base() { return {}; }
    static TransformerOptions big() { return {.width = 1024, .heads = 16, .feed_forward = 4096, .dropout = 0.3}; }   // 214M
  };
  TranslationModel(Scope scope, Options options);

  Encoding encode(const Sequences& source) const override;
  Index encoder_width() const override { return width_; }
  Variable features(const Batch& batch, List<AttentionMap>* maps = nullptr, Variable* states = nullptr) const override;
  const Linear& output_layer() const override { return output; }
  Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps = nullptr) const override;
  Variable next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps = nullptr) const override;

  Embedding source_embedding, target_embedding;
  PositionTable source_positions, target_positions;
  Transformer core;
  Linear output;

 private:
  Variable embed(const Embedding& embedding, const PositionTable& positions, const Tensor& ids, Index offset = 0) const;
  Variable encoded(const Sequences& source, const Mask& mask, List<AttentionMap>* maps) const;   // the encoder's states [B, S, d]
  Index width_;
  double dropout_;
};

}  // namespace heed
