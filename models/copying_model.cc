// SPDX-License-Identifier: Apache-2.0
#include "models/copying_model.h"

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

// what a word outside of the vocabulary has beside its weights, which may be 0: its loss stays finite
constexpr double kLeast = 1e-20;

// ids of at least `size`, those of the words that `copied` places have, become unk.
Tensor within(std::string_view what, const Tensor& ids, Index size, Index copied, std::int32_t unk) {
  check<DTypeError>(ids.dtype() == DType::i32, "copying model: {} need dtype i32: {}", what, ids.dtype());
  const Tensor all = ids.contiguous();
  const auto values = all.span<std::int32_t>();
  const Index largest = values.empty() ? -1 : Index(std::ranges::max(values));
  check<IndexError>(largest < size + copied, "copying model: {}: id {} is not in [0, {})", what, largest, size + copied);
  if (largest < size) return all;
  const Tensor known = all.clone();
  std::ranges::replace_if(known.mutable_span<std::int32_t>(), [&](std::int32_t id) { return id >= size; }, unk);
  return known;
}

// Shares of copied words, with what they have at least:
// no gradient goes to a share of 0, which straight-through weights would make 1 / kLeast.
Variable with_least(const Variable& shares, const Tensor& outside) {
  return masked_fill(shares, logical_and(equal(shares.value(), 0), outside), 0) + constant(to(outside, shares.dtype()) * kLeast);
}

struct CopyState : DecodingState {
  std::unique_ptr<DecodingState> model;
  Tensor words;                          // i32 [sentences, S]
  Tensor outside;                        // [sentences, S]: is this the first place of a word outside of the vocabulary
  Mask mask;                             // lengths
  Variable keys;                         // [sentences, S, d], where the model has them
  Index group = 1;                       // rows of a sentence

  void reorder(std::span<const Index> order, Index per_sentence) override {
    const Tensor ids = reordered_sentences(order, per_sentence, words.size(0) * group, group);
    model->reorder(order, per_sentence);
    group = per_sentence;
    if (!ids.defined()) return;
    for (Tensor* const rows : {&words, &outside}) *rows = index_select(*rows, 0, ids);
    mask = mask.of_sentences(ids, 3);      // of ψ [B, T, S]
    if (keys.defined()) keys = constant(index_select(keys.value(), 0, ids));
  }
};

}  // namespace

CopyingModel::CopyingModel(std::unique_ptr<Seq2Seq> model, Options options, bool by_attention)
    : model_(std::move(model)), options_(std::move(options)), by_attention_(by_attention) {
  check<Error>(model_ != nullptr, "copying model: no model to write with");
  check<ShapeError>(!options_.shared.defined() || options_.shared.shape() == Shape{options_.source_vocabulary},
                    "copying model: shared needs one number a source word: shared {}, {} words",
                    options_.shared.defined() ? options_.shared.shape() : Shape{}, options_.source_vocabulary);
}

Sequences CopyingModel::known(const Sequences& source) const {
  const Index places = source.ids.rank() == 2 ? source.ids.size(1) : 0;
  return {within("source ids", source.ids, options_.source_vocabulary, options_.target_vocabulary + places, options_.source_unk),
          source.lengths};
}

Batch CopyingModel::known(const Batch& batch) const {
  Batch known = batch;
  known.source = this->known(batch.source);
  known.inputs = within("inputs", batch.inputs, options_.target_vocabulary, batch.source.ids.size(1), options_.target_unk);
  return known;
}

Tensor CopyingModel::words(const Sequences& source) const {
  const Index U = options_.source_vocabulary, V = options_.target_vocabulary, S = source.ids.size(1);
  const Tensor ids = source.ids.contiguous(), words = empty({source.size(), S}, DType::i32);
  for (Index b = 0; b < source.size(); ++b) {
    const std::int32_t* const row = ids.data<std::int32_t>() + b * S;
    std::int32_t* const to = words.mutable_data<std::int32_t>() + b * S;
    for (Index j = 0; j < S; ++j) {
      check<IndexError>(row[j] >= 0 && row[j] < U + V + S, "copying model: source word {} at position [{}, {}] is not in [0, {})", row[j],
                        b, j, U + V + S);
      to[j] = row[j] >= U ? row[j] - std::int32_t(U) : options_.shared.defined() ? options_.shared.data<std::int32_t>()[row[j]] : -1;
      if (to[j] < 0) to[j] = std::int32_t(V + (std::find(row, row + j, row[j]) - row));
    }
  }
  return words;
}

Variable CopyingModel::features(const Batch& batch, List<AttentionMap>* maps, Variable* states) const {
  return model_->features(known(batch), maps, states);
}

// What linear_mixture_cross_entropy reads, a row a target.
struct CopyingModel::Labels {
  Variable x, log_share, other, rest;    // [N, d], [N], [N], [N]
  Tensor ids;                            // i32 [N]
};

CopyingModel::Labels CopyingModel::labels(const Batch& batch, List<AttentionMap>* maps) const {
  check_targets(batch);
  List<AttentionMap> own;
  Variable states;
  if (by_attention_ && !maps) maps = &own;
  const Variable features = this->features(batch, maps, &states), x = reshape(features, {-1, features.size(-1)});
  const Choice choice = choose(features, maps ? *maps : own, keys(states), source_mask("copying model", batch.source));
  const Tensor targets = reshape(batch.targets, {-1}), outside = greater_equal(targets, double(options_.target_vocabulary));
  // is source word s target word t
  const Tensor same = equal(unsqueeze(words(batch.source), 1), unsqueeze(batch.targets, 2));
  const Variable copied = reshape(sum(choice.weights * constant(to(same, x.dtype())), {-1}), {-1});               // [N]
  return {x, masked_fill(reshape(choice.log_share, {-1}), outside, -HUGE_VAL), with_least(copied, outside),
          choice.rest.defined() ? reshape(choice.rest, {-1}) : Variable(),
          within("targets", targets, options_.target_vocabulary, batch.source.ids.size(1), options_.target_unk)};
}

Loss CopyingModel::loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const {
  const Labels of = labels(batch, maps);
  const Linear& out = output_layer();
  const Inside inside(out.path);
  return {linear_mixture_cross_entropy(of.x, out.weight, out.bias, of.log_share, of.other, of.ids, with_padding(options, options_.pad),
                                       of.rest),
          target_tokens(batch)};
}

Tensor CopyingModel::token_losses(const Batch& batch, Index pad) const {
  const Labels of = labels(batch, nullptr);
  const Linear& out = output_layer();
  const Mixture mixture{of.log_share.value(), of.other.value(), of.rest.value()};
  return reshape(linear_cross_entropy(of.x.value(), out.weight.value(), out.bias.value(), of.ids, {.pad = pad}, {}, mixture).losses,
                 batch.targets.shape());
}

Seq2Seq::Encoding CopyingModel::encode(const Sequences& source) const {
  auto state = std::make_unique<CopyState>();
  state->mask = source_mask("copying model", source), state->words = words(source);
  const Index V = options_.target_vocabulary, S = source.ids.size(1);
  state->outside = logical_and(equal(state->words, arange(double(V), double(V + S), 1, DType::i32)), state->mask.dense(source.ids.shape()));
  Encoding encoding = model_->encode(known(source));
  state->model = std::move(encoding.state);
  state->keys = keys(encoding.states);
  return {std::move(state), encoding.states};
}

Variable CopyingModel::next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps) const {
  CopyState& own = state_as<CopyState>(state);
  return model_->next_features(within("tokens", tokens, options_.target_vocabulary, own.words.size(1), options_.target_unk), *own.model,
                               maps);
}

Step CopyingModel::step(const Tensor& tokens, DecodingState& base, Want want) const {
  const CopyState& state = state_as<CopyState>(base);
  List<AttentionMap> maps;
  const Variable x = next_features(tokens, base, by_attention_ || want == Want::weights ? &maps : nullptr);       // [R, d]
  const Index B = state.words.size(0), S = state.words.size(1), R = x.size(0);
  const auto of_rows = [&](const Tensor& of_sentences) { return reshape(expand(unsqueeze(of_sentences, 1), {B, state.group, S}), {R, S}); };
  const Choice choice = choose(reshape(x, {B, state.group, x.size(1)}), maps, state.keys, state.mask);
  const auto rows = [&](const Variable& of_groups) { return reshape(of_groups, {R, of_groups.size(2)}); };
  const Variable z = traced_logits(x);
  Variable log_share = rows(choice.log_share), log_rest = constant(zeros({R, 1}, x.dtype()));                     // [R, 1]
  if (choice.rest.defined()) {
    const Variable odds = logsumexp(z, -1, true) - rows(choice.rest);                                          // log(p / (1 - p))
    log_share = log_share + logsigmoid(odds), log_rest = logsigmoid(-odds);
  }
  const Variable words = concat({log_softmax(z) + log_share, constant(full({R, S}, -HUGE_VAL, x.dtype()))}, 1);   // [R, V + S]
  const Variable shares = with_least(rows(choice.weights), of_rows(state.outside));
  const Variable copied = scatter_add(constant(zeros(words.shape(), x.dtype())), 1, of_rows(state.words), shares);
  if (Trace::current()) trace("distribution", choice.formula, exp(words) + copied * exp(log_rest), {.columns = Along::vocabulary});
  Step step;
  step.log_probabilities = logaddexp(words.value(), log(copied.value()) + log_rest.value());
  if (want == Want::weights) step.attention = std::move(maps);
  return step;
}

}  // namespace heed
