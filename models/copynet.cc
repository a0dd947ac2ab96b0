// SPDX-License-Identifier: Apache-2.0
#include "models/copynet.h"

#include <cmath>

#include "autograd/trace.h"
#include "tensor/ops/binary.h"

namespace heed {

CopyNet::CopyNet(Scope scope, std::unique_ptr<Seq2Seq> model, Options options)
    : CopyingModel(std::move(model), std::move(options), false),
      key_proj(scope / "copy" / "key_proj", {.in = encoder_width(), .out = output_layer().weight.shape()[1], .bias = false}) {}

Variable CopyNet::keys(const Variable& states) const { return key_proj(states, {.activation = Activation::tanh}); }   // [B, S, d]

CopyingModel::Choice CopyNet::choose(const Variable& features, std::span<const AttentionMap>, const Variable& keys,
                                     const Mask& mask) const {
  const Variable psi = trace("copy", "ψ_j = tanh(W_c h_j)·f, a number for each place of the source", matmul(features, transpose(keys)),
                             {.columns = Along::source});
  const Variable rest = logsumexp(masked_fill(psi, logical_not(mask.dense(psi.shape())), -HUGE_VAL), -1, true);   // [B, T, 1]
  return {softmax(psi, -1, mask), constant(zeros(rest.shape(), rest.dtype())), rest,
          "P(w) = (e^z_w + Σ e^ψ_j over the places j of w in the source) / (Σ e^z + Σ e^ψ)"};
}

}  // namespace heed
