// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent_encoder.h"

#include "autograd/trace.h"
#include "tensor/ops/index.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// For each position of a batch the one it changes places with: s and len_b - 1 - s; padding stays.    i32 [B S], of the rows of [B S, ·]
Tensor mirrored(const Mask& mask, Index B, Index S) {
  Tensor rows = empty({B * S}, DType::i32);
  auto* to = rows.mutable_data<std::int32_t>();
  for (Index b = 0; b < B; ++b) {
    const Index length = mask.range(b, 0, S).last;
    for (Index s = 0; s < S; ++s) *to++ = std::int32_t(b * S + (s < length ? length - 1 - s : s));
  }
  return rows;
}

}  // namespace

RecurrentEncoder::RecurrentEncoder(Scope scope, Options o)
    : layers(scope, {.unit = o.unit, .in = o.embedding, .width = o.width, .layers = o.layers, .bidirectional = o.bidirectional,
                     .dropout = o.dropout}),
      options(o) {}

Encoded RecurrentEncoder::operator()(const Embedding& embedding, double p, const Sequences& source) const {
  Mask mask;
  {
    const Inside inside(layers.path);
    mask = source_mask("recurrent encoder", source);
  }
  const Index B = source.ids.size(0), S = source.ids.size(1);
  const Tensor order = options.reverse_source ? mirrored(mask, B, S) : Tensor();
  const Tensor ids = order.defined() ? reshape(index_select(reshape(source.ids, {B * S}), 0, order), {B, S}) : source.ids;
  Variable x = embedding(ids);                                                    // [B, S, E]
  {
    const Inside inside(embedding.path);
    x = dropout(x, p);
  }
  RecurrentLayers::Output read = layers(x, source.lengths);
  Encoded out{.states = read.outputs, .mask = std::move(mask), .last = {}, .backward = {}};
  const Index directions = layers.directions(), M = directions * options.width;
  if (order.defined()) out.states = reshape(index_select(reshape(out.states, {B * S, M}), 0, order), {B, S, M});
  out.states = trace("memory", "h_j, the encoder's states", out.states, {.rows = Along::source});
  for (Index i = 0; i < Index(read.states.size()); ++i) (i % directions ? out.backward : out.last).push_back(read.states[std::size_t(i)]);
  return out;
}

}  // namespace heed
