// SPDX-License-Identifier: Apache-2.0
// Translation with recurrent encoder and decoder: embeddings, RecurrentEncoder, BahdanauDecoder or LuongDecoder, output layer.
#pragma once
#include <variant>

#include "models/recurrent_decoder.h"

namespace heed {

class RecurrentModel : public Seq2Seq {
 public:
  // Widths that follow from others (embeddings, encoder states) are set by the model.
  struct Options {
    Index source_vocabulary, target_vocabulary;
    Index embedding = 0;                 // E; 0: the decoder's width
    RecurrentEncoder::Options encoder;
    std::variant<BahdanauDecoder::Options, LuongDecoder::Options> decoder;
    double dropout = 0;                  // of embeddings and of what the output layer reads
    bool output_bias = true;
    std::int32_t pad = 0;
  };
  RecurrentModel(Scope scope, Options options);

  Encoding encode(const Sequences& source) const override;
  Index encoder_width() const override { return encoder.options.width * (encoder.options.bidirectional ? 2 : 1); }
  Variable features(const Batch& batch, List<AttentionMap>* maps = nullptr, Variable* states = nullptr) const override;
  const Linear& output_layer() const override { return out; }
  Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps = nullptr) const override;
  Variable next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps = nullptr) const override;

  Embedding source_embedding, target_embedding;
  RecurrentEncoder encoder;
  std::variant<BahdanauDecoder, LuongDecoder> decoder;
  Linear out;                            // W_o, W_s

 private:
  struct Settled {};
  RecurrentModel(Scope scope, const Options& options, Settled);
  Variable embed(const Tensor& ids) const;
  DecoderState first_state(const Sequences& source, Variable* states) const;
  Variable decode(const Variable& inputs, DecoderState& state, Variable* weights) const;   // [T, R, E] -> [T, R, d]
  Variable time_first(const Batch& batch, List<AttentionMap>* maps, Variable* states = nullptr) const;   // features [T, B, d]
  double dropout_;
};

}  // namespace heed
