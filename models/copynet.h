// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/copying_model.h"

namespace heed {

// Scores the places of the source beside the words, in one softmax:  ψ_j = tanh(W_c h_j)·f,  P(w) ∝ e^z_w + Σ_j e^ψ_j [x_j = w]
// for the encoder's states h and what the output layer reads f. Gu et al. 2016, arXiv 1603.06393, Eq. 5-8, without its selective read.
class CopyNet : public CopyingModel {
 public:
  // W_c is `copy.key_proj.weight` [d, M] in `scope`.
  CopyNet(Scope scope, std::unique_ptr<Seq2Seq> model, Options options);
  Linear key_proj;

 protected:
  Variable keys(const Variable& states) const override;
  Choice choose(const Variable& features, std::span<const AttentionMap> maps, const Variable& keys, const Mask& mask) const override;
};

}  // namespace heed
