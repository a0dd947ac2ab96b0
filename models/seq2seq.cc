// SPDX-License-Identifier: Apache-2.0
#include "models/seq2seq.h"

#include <algorithm>

#include "autograd/trace.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"

namespace heed {

Sequences pad_sequences(std::span<const std::span<const std::int32_t>> rows, std::int32_t pad) {
  Index longest = 0;
  for (const auto& row : rows) longest = std::max(longest, Index(row.size()));
  const Index B = Index(rows.size());
  Sequences out{empty({B, longest}, DType::i32), empty({B}, DType::i32)};
  auto* ids = out.ids.mutable_data<std::int32_t>();
  auto* lengths = out.lengths.mutable_data<std::int32_t>();
  for (Index b = 0; b < B; ++b) {
    const auto& row = rows[std::size_t(b)];
    std::fill(std::copy(row.begin(), row.end(), ids + b * longest), ids + (b + 1) * longest, pad);
    lengths[b] = std::int32_t(row.size());
  }
  return out;
}

Sequences pad_sequences(std::span<const std::vector<std::int32_t>> rows, std::int32_t pad) {
  return pad_sequences(List<std::span<const std::int32_t>>(rows.begin(), rows.end()), pad);
}

Mask source_mask(std::string_view op, const Sequences& source) {
  check<ShapeError>(source.ids.rank() == 2, "{}: ids need 2 dimensions [B, S]: ids {}", op, source.ids.shape());
  Mask mask = Mask::lengths(source.lengths);
  mask.check_fits(op, source.ids.shape());
  const Index S = source.ids.size(1);
  for (Index b = 0; b < source.size(); ++b) {
    const Index length = mask.lengths().data<std::int32_t>()[b];
    check<IndexError>(length >= 0 && length <= S, "{}: length {} at position [{}] is not in [0, {}]", op, length, b, S);
  }
  return mask;
}

void check_targets(const Batch& batch) {
  check<ShapeError>(batch.targets.shape() == batch.inputs.shape(), "loss: inputs and targets differ: inputs {}, targets {}",
                    batch.inputs.shape(), batch.targets.shape());
  check<ShapeError>(batch.targets.rank() == 2, "loss: targets need 2 dimensions [B, T]: {}", batch.targets.shape());
}

Index target_tokens(const Batch& batch) {
  if (batch.target_tokens > 0 || batch.targets.numel() == 0) return batch.target_tokens;
  check<Error>(batch.lengths.defined(), "loss: a batch of targets {} has target_tokens 0 and no lengths to count them by",
               batch.targets.shape());
  return Index(sum(to(batch.lengths, DType::f64)).item());
}

Variable mean_over_heads(const AttentionMap& map) {
  if (map.weights.rank() == 3) return map.weights;
  check<ShapeError>(map.weights.rank() == 4, "mean over heads: weights need [B, H, T, S] or [B, T, S]: {}", map.weights.shape());
  const Index H = map.weights.size(1);
  Variable sum = select(map.weights, 1, 0);
  for (Index h = 1; h < H; ++h) sum = sum + select(map.weights, 1, h);
  return sum * (1 / double(H));
}

Tensor mean_of_heads(const AttentionMap& map) { return to(mean_over_heads(map).value(), DType::f32); }

const AttentionMap* last_cross_attention(std::span<const AttentionMap> maps) {
  const auto last = std::find_if(maps.rbegin(), maps.rend(), [](const AttentionMap& map) { return map.kind == AttentionMap::Kind::cross; });
  return last == maps.rend() ? nullptr : &*last;
}

Variable alignment_loss(const AttentionMap& map, const Batch& batch) {
  const Variable weights = mean_over_heads(map);
  check<ShapeError>(batch.links.defined() && batch.links.shape() == weights.shape(),
                    "alignment loss: links and attention differ: links {}, attention {}",
                    batch.links.defined() ? batch.links.shape() : Shape{}, map.weights.shape());
  return -sum(constant(to(batch.links, weights.dtype())) * log(maximum(weights, 1e-6)));
}

Variable coverage_loss(const AttentionMap& map, const Batch& batch) {
  const Variable weights = mean_over_heads(map);
  const Shape targets{weights.size(0), weights.size(1)};
  check<ShapeError>(batch.targets.shape() == targets, "coverage loss: targets and attention differ: targets {}, attention {}",
                    batch.targets.shape(), map.weights.shape());
  const Tensor words = to(Mask::lengths(batch.lengths).dense(targets), weights.dtype());                       // 0 beyond the end
  return sum(constant(unsqueeze(words, -1)) * minimum(weights, cumsum(weights, 1) - weights));
}

void refuse_state() { fail<Error>("step: a model of another kind made this state; start() of this one"); }

Tensor reordered_sentences(std::span<const Index> rows, Index per_sentence, Index old_rows, Index old_group) {
  const Index count = Index(rows.size());
  check<Error>(per_sentence >= 1 && count % per_sentence == 0, "reorder: {} rows are no groups of {}", count, per_sentence);
  const Index sentences = count / per_sentence;
  const Tensor kept = empty({sentences}, DType::i64);
  auto* const to = kept.mutable_data<std::int64_t>();
  bool same = sentences == old_rows / old_group;
  for (Index i = 0; i < count; ++i) {
    const Index row = rows[std::size_t(i)], first = rows[std::size_t(i - i % per_sentence)], g = i / per_sentence;
    check<IndexError>(row >= 0 && row < old_rows, "reorder: row {} is not in [0, {})", row, old_rows);
    check<Error>(row / old_group == first / old_group, "reorder: rows {} and {} in one group belong to sentences {} and {}", first, row,
                 first / old_group, row / old_group);
    to[g] = row / old_group;
    same &= row / old_group == g;
  }
  return same ? Tensor() : kept;
}

CrossEntropyOptions with_padding(CrossEntropyOptions options, Index pad) {
  if (options.pad < 0) options.pad = pad, options.smooth_pad = true;
  return options;
}

Tensor Translator::token_losses(const Batch& batch, Index pad) const {
  check_targets(batch);
  if (batch.targets.numel() == 0) return zeros(batch.targets.shape());
  const auto state = start(batch.source);
  List<Tensor> columns;
  for (Index t = 0; t < batch.targets.size(1); ++t) {
    const Tensor y = unsqueeze(batch.targets(all, t), 1).contiguous(),
                 log_p = step(batch.inputs(all, t).contiguous(), *state).log_probabilities;
    columns.push_back(masked_fill(gather(log_p, 1, y) * -1.0, equal(y, double(pad)), 0));
  }
  return concat(columns, 1);
}

Tensor Seq2Seq::token_losses(const Batch& batch, Index pad) const {
  check_targets(batch);
  const Linear& out = output_layer();
  const Tensor x = features(batch).value();
  const Inside inside(out.path);
  return linear_cross_entropy(x, out.weight.value(), out.bias.value(), batch.targets, {.pad = pad}).losses;
}

Step Seq2Seq::step(const Tensor& tokens, DecodingState& state, Want want) const {
  Step step;
  const Variable x = next_features(tokens, state, want == Want::weights ? &step.attention : nullptr);
  const Variable z = traced_logits(x);
  log_softmax_(z.value());
  step.log_probabilities = z.value();
  return step;
}

Variable Seq2Seq::traced_logits(const Variable& features) const {
  return trace("logits", output_layer().bias.defined() ? "z = W x + b, a number for each word" : "z = W x, a number for each word",
               logits(features), {.columns = Along::vocabulary});
}

Variable Loss::mean() const { return tokens > 0 ? sum * (1.0 / double(tokens)) : sum * 0.0; }

}  // namespace heed
