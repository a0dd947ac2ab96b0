// SPDX-License-Identifier: Apache-2.0
// Words of its own or of the source: any model, with a choice between its vocabulary and the places of its source.
//   P(w) = p softmax(z)_w + (1 - p) Σ_j α_j [x_j = w]
// over the target vocabulary and the source words outside of it, whose ids are those of models/copied_words.h: [R, V + S] a step. p and α
// are those of PointerGenerator or CopyNet. To the model beneath, words beyond its vocabularies are <unk>.
#pragma once
#include <memory>

#include "models/seq2seq.h"

namespace heed {

class CopyingModel : public Seq2Seq {
 public:
  struct Options {
    Index source_vocabulary, target_vocabulary;
    Tensor shared = {};                  // i32 [U]: shared_words of both vocabularies, else ShapeError; undefined: they share no word
    std::int32_t pad = 0, source_unk = 1, target_unk = 1;
  };

  Encoding encode(const Sequences& source) const override;
  Index encoder_width() const override { return model_->encoder_width(); }
  Variable features(const Batch& batch, List<AttentionMap>* maps = nullptr, Variable* states = nullptr) const override;
  Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps = nullptr) const override;
  Tensor token_losses(const Batch& batch, Index pad) const override;
  Variable next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps = nullptr) const override;
  Step step(const Tensor& tokens, DecodingState& state, Want want = Want::context) const override;
  const Linear& output_layer() const override { return model_->output_layer(); }

  const Seq2Seq& model() const { return *model_; }

 protected:
  CopyingModel(std::unique_ptr<Seq2Seq> model, Options options, bool by_attention);

  // Of each row of features [B, T, d]. Without a rest log_share is log p [B, T, 1], weights (1 - p) α [B, T, S]. With one, log Σ_j e^ψ_j
  // [B, T, 1] of scores of the places, these are of one softmax with the words, p = Σ e^z / (Σ e^z + e^rest): log_share is 0, weights α.
  struct Choice {
    Variable weights, log_share, rest;
    std::string_view formula;            // of P
  };
  // What the places of the source are compared by, once a sentence; undefined where that is the model's own attention.
  virtual Variable keys(const Variable& states) const = 0;
  // maps: of these rows, by_attention. mask: lengths.
  virtual Choice choose(const Variable& features, std::span<const AttentionMap> maps, const Variable& keys, const Mask& mask) const = 0;

 private:
  struct Labels;
  Labels labels(const Batch& batch, List<AttentionMap>* maps) const;
  Batch known(const Batch& batch) const;
  Sequences known(const Sequences& source) const;
  Tensor words(const Sequences& source) const;     // i32 [B, S]: the target word of each source word, of padding any: it has no weight
  std::unique_ptr<Seq2Seq> model_;
  Options options_;
  bool by_attention_;
};

}  // namespace heed
