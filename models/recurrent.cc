// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent.h"

#include "autograd/trace.h"
#include "nn/dropout.h"
#include "tensor/format.h"
#include "tensor/ops/view.h"
#include "tensor/packed.h"

namespace heed {
namespace {

Variable dropped(const Variable& x, double p, const Path& path) {
  const Inside inside(path);
  return dropout(x, p);
}

struct RecurrentDecoding : DecodingState {
  explicit RecurrentDecoding(DecoderState first) : state(std::move(first)) {}
  void reorder(std::span<const Index> rows, Index per_sentence) override { state.reorder(rows, per_sentence); }
  DecoderState state;
};

RecurrentModel::Options settled(RecurrentModel::Options o) {
  if (o.embedding == 0) o.embedding = std::visit([](const auto& decoder) { return decoder.width; }, o.decoder);
  o.encoder.embedding = o.embedding;
  std::visit([&]<class D>(D& decoder) {
    decoder.embedding = o.embedding;
    decoder.encoder_width = o.encoder.width;
    decoder.memory_width = o.encoder.width * (o.encoder.bidirectional ? 2 : 1);
    if constexpr (std::is_same_v<D, LuongDecoder::Options>)
      decoder.encoder_unit = o.encoder.unit, decoder.encoder_layers = o.encoder.layers,
      decoder.encoder_bidirectional = o.encoder.bidirectional;
  }, o.decoder);
  return o;
}

std::variant<BahdanauDecoder, LuongDecoder> make_decoder(const Scope& scope, const RecurrentModel::Options& o) {
  using Decoder = std::variant<BahdanauDecoder, LuongDecoder>;
  if (const auto* bahdanau = std::get_if<BahdanauDecoder::Options>(&o.decoder))
    return Decoder(std::in_place_type<BahdanauDecoder>, scope, *bahdanau);
  return Decoder(std::in_place_type<LuongDecoder>, scope, std::get<LuongDecoder::Options>(o.decoder));
}

}  // namespace

RecurrentModel::RecurrentModel(Scope scope, Options given) : RecurrentModel(scope, settled(std::move(given)), Settled()) {}

RecurrentModel::RecurrentModel(Scope scope, const Options& o, Settled)
    : source_embedding(scope / "source_embedding",
                       {.vocabulary = o.source_vocabulary, .width = o.embedding, .padding = o.pad}),
      target_embedding(scope / "target_embedding",
                       {.vocabulary = o.target_vocabulary, .width = o.embedding, .padding = o.pad}),
      encoder(scope / "encoder", o.encoder),
      decoder(make_decoder(scope, o)),
      out(scope / "out",
          {.in = std::visit([](const auto& d) { return d.features(); }, decoder), .out = o.target_vocabulary, .bias = o.output_bias}),
      dropout_(checked_dropout(scope.path(), o.dropout)) {}

Variable RecurrentModel::embed(const Tensor& ids) const { return dropped(target_embedding(ids), dropout_, target_embedding.path); }

DecoderState RecurrentModel::first_state(const Sequences& source, Variable* states) const {
  const Encoded encoded = encoder(source_embedding, dropout_, source);
  if (states) *states = encoded.states;
  return std::visit([&](const auto& d) { return d.start(encoded); }, decoder);
}

Variable RecurrentModel::decode(const Variable& inputs, DecoderState& state, Variable* weights) const {
  return dropped(std::visit([&](const auto& d) { return d(inputs, state, weights); }, decoder), dropout_, out.path);
}

Variable RecurrentModel::time_first(const Batch& batch, List<AttentionMap>* maps, Variable* states) const {
  DecoderState state = first_state(batch.source, states);
  Variable weights;
  PackedWeights packed;                                                                           // for all steps
  const PackedWeights::Use use(PackedWeights::current() ? *PackedWeights::current() : packed);
  const Variable y = decode(embed(transpose(batch.inputs).contiguous()), state, maps ? &weights : nullptr);
  if (weights.defined()) maps->push_back({AttentionMap::Kind::cross, 0, weights});
  return y;
}

Variable RecurrentModel::features(const Batch& batch, List<AttentionMap>* maps, Variable* states) const {
  return permute(time_first(batch, maps, states), {1, 0, 2});
}

Loss RecurrentModel::loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const {
  check_targets(batch);
  const Variable rows = flatten(time_first(batch, maps), 0, 1);                                     // [T B, d]
  const Inside inside(out.path);
  return {linear_cross_entropy(rows, out.weight, out.bias, reshape(transpose(batch.targets), {-1}),
                               with_padding(options, target_embedding.padding)),
          target_tokens(batch)};
}

Seq2Seq::Encoding RecurrentModel::encode(const Sequences& source) const {
  Encoding encoding;
  encoding.state = std::make_unique<RecurrentDecoding>(first_state(source, &encoding.states));
  return encoding;
}

Variable RecurrentModel::next_features(const Tensor& tokens, DecodingState& base, List<AttentionMap>* maps) const {
  DecoderState& state = state_as<RecurrentDecoding>(base).state;
  const Index rows = state.layers[0].h.size(0);
  check<ShapeError>(tokens.shape() == Shape{rows}, "step: needs one token a row: tokens {}, rows {}", tokens.shape(), rows);
  Variable weights;
  const Variable y = decode(embed(reshape(tokens, {1, rows})), state, maps ? &weights : nullptr);               // [1, R, d]
  if (weights.defined()) maps->push_back({AttentionMap::Kind::cross, 0, weights});
  return select(y, 0, 0);
}

}  // namespace heed
