// SPDX-License-Identifier: Apache-2.0
#include "models/pointer_generator.h"

#include <algorithm>
#include <cmath>

#include "autograd/trace.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/index.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

constexpr double kLeast = 1e-20;         // what a word outside of the vocabulary has beside its weights, which may be 0: its loss stays finite

// ids of at least `size` become unk.
Tensor within(const Tensor& ids, Index size, std::int32_t unk) {
  const auto outside = [&](std::int32_t id) { return id >= size; };
  const Tensor all = ids.contiguous();
  if (std::ranges::none_of(all.span<std::int32_t>(), outside)) return all;
  const Tensor known = all.clone();
  std::ranges::replace_if(known.mutable_span<std::int32_t>(), outside, unk);
  return known;
}

// Weights of the last cross-attention, of its first head.   [B, T, S]
Variable looked_at(std::span<const AttentionMap> maps) {
  const AttentionMap* const last = last_cross_attention(maps);
  check<Error>(last, "pointer generator: the model looks at no source word");
  return last->weights.rank() == 4 ? select(last->weights, 1, 0) : last->weights;
}

// Shares of copied words, with what they have at least: no gradient goes to a share of 0, which straight-through weights would make 1 / kLeast.
Variable with_least(const Variable& shares, const Tensor& outside) {
  return masked_fill(shares, logical_and(equal(shares.value(), 0), outside), 0) + constant(to(outside, shares.dtype()) * kLeast);
}

struct CopyState : DecodingState {
  std::unique_ptr<DecodingState> model;
  Tensor words;                          // i32 [sentences, S]
  Tensor outside;                        // [sentences, S]: is this the first place of a word outside of the vocabulary
  Index group = 1;                       // rows of a sentence

  void reorder(std::span<const Index> order, Index per_sentence) override {
    const Tensor ids = reordered_sentences(order, per_sentence, words.size(0) * group, group);
    model->reorder(order, per_sentence);
    group = per_sentence;
    if (ids.defined()) words = index_select(words, 0, ids), outside = index_select(outside, 0, ids);
  }
};

}  // namespace

PointerGenerator::PointerGenerator(Scope scope, std::unique_ptr<Seq2Seq> model, Options options)
    : gate(scope / "gate", {.in = model->output_layer().weight.shape()[1], .out = 1}), model_(std::move(model)), options_(std::move(options)) {
  check<ShapeError>(!options_.shared.defined() || options_.shared.shape() == Shape{options_.source_vocabulary}, "pointer generator: shared needs one number a source word: shared {}, {} words",
                    options_.shared.defined() ? options_.shared.shape() : Shape{}, options_.source_vocabulary);
}

Sequences PointerGenerator::known(const Sequences& source) const { return {within(source.ids, options_.source_vocabulary, options_.source_unk), source.lengths}; }

Batch PointerGenerator::known(const Batch& batch) const {
  Batch known = batch;
  known.source = this->known(batch.source);
  known.inputs = within(batch.inputs, options_.target_vocabulary, options_.target_unk);
  return known;
}

Tensor PointerGenerator::words(const Sequences& source) const {
  source_mask("pointer generator", source);
  const Index U = options_.source_vocabulary, V = options_.target_vocabulary, S = source.ids.size(1);
  const Tensor ids = source.ids.contiguous(), words = empty({source.size(), S}, DType::i32);
  for (Index b = 0; b < source.size(); ++b) {
    const std::int32_t* const row = ids.data<std::int32_t>() + b * S;
    std::int32_t* const to = words.mutable_data<std::int32_t>() + b * S;
    for (Index j = 0; j < S; ++j) {
      check<IndexError>(row[j] >= 0 && row[j] < U + V + S, "pointer generator: source word {} at position [{}, {}] is not in [0, {})", row[j], b, j, U + V + S);
      to[j] = row[j] >= U ? row[j] - std::int32_t(U) : options_.shared.defined() ? options_.shared.data<std::int32_t>()[row[j]] : -1;
      if (to[j] < 0) to[j] = std::int32_t(V + (std::find(row, row + j, row[j]) - row));
    }
  }
  return words;
}

Variable PointerGenerator::features(const Batch& batch, List<AttentionMap>* maps) const { return model_->features(known(batch), maps); }

// What linear_mixture_cross_entropy reads, a row a target.
struct PointerGenerator::Labels {
  Variable x, log_share, other;          // [N, d], [N], [N]
  Tensor ids;                            // i32 [N]
};

PointerGenerator::Labels PointerGenerator::labels(const Batch& batch, List<AttentionMap>* maps) const {
  check_targets(batch);
  List<AttentionMap> own;
  List<AttentionMap>& seen = maps ? *maps : own;
  const Variable features = this->features(batch, &seen), x = reshape(features, {-1, features.size(-1)}), g = reshape(gate(x), {-1});
  const Variable weights = looked_at(seen);                                                                       // [B, T, S]
  const Tensor targets = reshape(batch.targets, {-1}), outside = greater_equal(targets, double(options_.target_vocabulary));
  const Tensor same = equal(unsqueeze(words(batch.source), 1), unsqueeze(batch.targets, 2));                      // is source word s target word t
  const Variable copied = reshape(sum(weights * constant(to(same, weights.dtype())), {-1}), {-1});                // [N]
  return {x, masked_fill(logsigmoid(g), outside, -HUGE_VAL), with_least(copied * sigmoid(-g), outside),
          within(targets, options_.target_vocabulary, options_.target_unk)};
}

Loss PointerGenerator::loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const {
  const Labels of = labels(batch, maps);
  const Inside inside(gate.path);
  const Linear& out = output_layer();
  return {linear_mixture_cross_entropy(of.x, out.weight, out.bias, of.log_share, of.other, of.ids, without_padding(options, options_.pad)), batch.target_tokens};
}

Tensor PointerGenerator::token_losses(const Batch& batch, Index pad) const {
  const Labels of = labels(batch, nullptr);
  const Linear& out = output_layer();
  return reshape(linear_cross_entropy(of.x.value(), out.weight.value(), out.bias.value(), of.ids, {.pad = pad}, {}, {of.log_share.value(), of.other.value()}).losses, batch.targets.shape());
}

std::unique_ptr<DecodingState> PointerGenerator::start(const Sequences& source) const {
  auto state = std::make_unique<CopyState>();
  state->words = words(source);
  const Index V = options_.target_vocabulary, S = source.ids.size(1);
  state->outside = logical_and(equal(state->words, arange(double(V), double(V + S), 1, DType::i32)), less(arange(0, double(S), 1, DType::i32), unsqueeze(source.lengths, 1)));
  state->model = model_->start(known(source));
  return state;
}

namespace {

CopyState& copy_state(DecodingState& base) {
  auto* const made = dynamic_cast<CopyState*>(&base);
  check<Error>(made, "step: a model of another kind made this state; start() of this one");
  return *made;
}

}  // namespace

Variable PointerGenerator::next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps) const {
  return model_->next_features(within(tokens, options_.target_vocabulary, options_.target_unk), *copy_state(state).model, maps);
}

Step PointerGenerator::step(const Tensor& tokens, DecodingState& base, Want want) const {
  const CopyState& state = copy_state(base);
  List<AttentionMap> maps;
  const Variable x = next_features(tokens, base, &maps);                                                          // [R, d]
  const Index B = state.words.size(0), S = state.words.size(1), R = x.size(0);
  const auto of_rows = [&](const Tensor& of_sentences) { return reshape(expand(unsqueeze(of_sentences, 1), {B, state.group, S}), {R, S}); };
  const Variable g = trace("gate", "g = w·f + b, the vocabulary's share is p = σ(g)", gate(x));                   // [R, 1]
  const Variable words = concat({log_softmax(traced_logits(x)) + logsigmoid(g), constant(full({R, S}, -HUGE_VAL, x.dtype()))}, 1);   // [R, V + S]
  const Variable shares = with_least(select(looked_at(maps), 1, 0) * sigmoid(-g), of_rows(state.outside));
  const Variable copied = scatter_add(constant(zeros(words.shape(), x.dtype())), 1, of_rows(state.words), shares);
  if (Trace::current())
    trace("distribution", "P(w) = p softmax(z)_w + (1 - p) Σ α_j over the places j of w in the source", exp(words) + copied, {.columns = Along::vocabulary});
  Step step;
  step.log_probabilities = logaddexp(words.value(), log(copied.value()));
  if (want == Want::weights) step.attention = std::move(maps);
  return step;
}

}  // namespace heed
