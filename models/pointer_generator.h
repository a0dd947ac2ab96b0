// SPDX-License-Identifier: Apache-2.0
// Words of its own or of the source: any model that attends, with a gate between its vocabulary and the words it looks at.
// See, Liu and Manning 2017, arXiv 1704.04368, section 2.2; Gu et al. 2016, arXiv 1603.06393, for words outside of the vocabulary.
#pragma once
#include <memory>

#include "models/seq2seq.h"
#include "nn/linear.h"

namespace heed {

// P(w) = p softmax(z)_w + (1 - p) Σ_j α_j [x_j = w],  p = σ(w·f + b) of what the output layer reads     Eq. 8-9
// over the target vocabulary and the source words outside of it, whose ids are those of models/copied_words.h: [R, V + S] a step. α: of the last
// cross-attention its first head, so that others stay free (as OpenNMT-py). The paper's gate reads context, state and input, which f is made
// of. To the model beneath, words beyond its vocabularies are <unk>. The weights must sum to 1.
class PointerGenerator : public Seq2Seq {
 public:
  struct Options {
    Index source_vocabulary, target_vocabulary;
    Tensor shared = {};                  // i32 [U]: shared_words of both vocabularies; undefined: they share no word
    std::int32_t pad = 0, source_unk = 1, target_unk = 1;
  };
  // The gate is `gate.weight` [1, d] and `gate.bias` in `scope`. Error: the model looks at no source word when it is used.
  PointerGenerator(Scope scope, std::unique_ptr<Seq2Seq> model, Options options);

  Variable features(const Batch& batch, List<AttentionMap>* maps = nullptr) const override;
  Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps = nullptr) const override;
  Tensor token_losses(const Batch& batch, Index pad) const override;
  std::unique_ptr<DecodingState> start(const Sequences& source) const override;
  Variable next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps = nullptr) const override;
  Step step(const Tensor& tokens, DecodingState& state, Want want = Want::context) const override;
  const Linear& output_layer() const override { return model_->output_layer(); }

  const Seq2Seq& model() const { return *model_; }
  Linear gate;

 private:
  struct Labels;
  Labels labels(const Batch& batch, List<AttentionMap>* maps) const;
  Batch known(const Batch& batch) const;
  Sequences known(const Sequences& source) const;
  Tensor words(const Sequences& source) const;     // i32 [B, S]: the target word of each source word, of padding any: it has no weight
  std::unique_ptr<Seq2Seq> model_;
  Options options_;
};

}  // namespace heed
