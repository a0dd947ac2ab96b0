// SPDX-License-Identifier: Apache-2.0
// Several models that write the same words, as one: trained from other seeds, of other kinds, or checkpoints of one training.
#pragma once
#include <string_view>
#include <vector>

#include "models/seq2seq.h"

namespace heed {

// mean: log (1/n Σ_i P_i), the usual one (Sutskever et al. 2014, arXiv 1409.3215, section 3.6; fairseq);
// log_mean: 1/n Σ_i log P_i, normalised.
enum class EnsembleMean { mean, log_mean };
EnsembleMean ensemble_mean_named(std::string_view name);   // Error lists the names

// Every step asks all models. Attention: the mean of what the last cross-attentions of those that look at the source look at.
class Ensemble : public Translator {
 public:
  // Error: no model. ShapeError in a step: they write different numbers of words.
  explicit Ensemble(std::vector<const Translator*> models, EnsembleMean mean = EnsembleMean::mean);
  std::unique_ptr<DecodingState> start(const Sequences& source) const override;
  Step step(const Tensor& tokens, DecodingState& state, Want want = Want::context) const override;

 private:
  std::vector<const Translator*> models_;
  EnsembleMean mean_;
};

}  // namespace heed
