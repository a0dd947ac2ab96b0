// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/copying_model.h"

namespace heed {

// Copies from where it looks: p = σ(w·f + b) of what the output layer reads, α of the last cross-attention its first head, so that others
// stay free (as OpenNMT-py). The weights must sum to 1. See, Liu and Manning 2017, arXiv 1704.04368, Eq. 8-9; their gate reads context,
// state and input, which f is made of.
class PointerGenerator : public CopyingModel {
 public:
  // The gate is `gate.weight` [1, d] and `gate.bias` in `scope`. Error: the model looks at no source word when it is used.
  PointerGenerator(Scope scope, std::unique_ptr<Seq2Seq> model, Options options);
  Linear gate;

 protected:
  Variable keys(const Variable&) const override { return {}; }
  Choice choose(const Variable& features, std::span<const AttentionMap> maps, const Variable& keys, const Mask& mask) const override;
};

}  // namespace heed
