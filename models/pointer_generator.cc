// SPDX-License-Identifier: Apache-2.0
#include "models/pointer_generator.h"

#include "autograd/trace.h"
#include "tensor/format.h"

namespace heed {

PointerGenerator::PointerGenerator(Scope scope, std::unique_ptr<Seq2Seq> model, Options options)
    : CopyingModel(std::move(model), std::move(options), true), gate(scope / "gate", {.in = output_layer().weight.shape()[1], .out = 1}) {}

CopyingModel::Choice PointerGenerator::choose(const Variable& features, std::span<const AttentionMap> maps, const Variable&,
                                              const Mask&) const {
  const AttentionMap* const last = last_cross_attention(maps);
  check<Error>(last, "pointer generator: the model looks at no source word");
  const Variable weights = last->weights.rank() == 4 ? select(last->weights, 1, 0) : last->weights;
  const Variable g = trace("gate", "g = w·f + b, the vocabulary's share is p = σ(g)", gate(features));            // [B, T, 1]
  return {reshape(weights, {features.size(0), features.size(1), weights.size(-1)}) * sigmoid(-g), logsigmoid(g), {},
          "P(w) = p softmax(z)_w + (1 - p) Σ α_j over the places j of w in the source"};
}

}  // namespace heed
