// SPDX-License-Identifier: Apache-2.0
// What every sequence-to-sequence model offers to training and search.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attention/memory.h"
#include "autograd/ops.h"
#include "nn/linear.h"

namespace heed {

// Id sequences of different lengths, padded at the end.
struct Sequences {
  Tensor ids;       // i32 [B, S]
  Tensor lengths;   // i32 [B]
  Index size() const { return ids.size(0); }
};
Sequences pad_sequences(std::span<const std::span<const std::int32_t>> rows, std::int32_t pad);
Sequences pad_sequences(std::span<const std::vector<std::int32_t>> rows, std::int32_t pad);

// The words of a source. ShapeError, DTypeError, IndexError: ids are not [B, S], lengths not i32 [B] in [0, S].
Mask source_mask(std::string_view op, const Sequences& source);

// Pairs for one update, teacher forced: for y_1 .. y_n = eos the inputs are (start, y_1, .., y_{n-1}), the targets (y_1, .., y_n).
struct Batch {
  Sequences source;   // ends in eos
  Tensor inputs;      // i32 [B, T]
  Tensor targets;     // i32 [B, T], pad beyond the end
  Tensor lengths;     // i32 [B], targets of each sentence, eos counted
  Index source_tokens = 0, target_tokens = 0;   // without padding
  Tensor links{};            // f32 [B, T, S], of add_links: the share of x_s among the words that are linked to y_t, 0 where none is
  Index linked_tokens = 0;   // targets with a link
};

void check_targets(const Batch& batch);          // ShapeError unless each input [B, T] has a target
Index target_tokens(const Batch& batch);         // where it says 0, the sum of its lengths. Error without these

// Sum of the token losses, to be divided once by the number of all tokens of an update.
struct Loss {
  Variable sum;       // scalar
  Index tokens = 0;
  Variable mean() const;   // sum / tokens, 0 for no tokens
};

// Options that name no pad take the model's: its rows contribute nothing to the loss, smoothing still counts it among the labels.
CrossEntropyOptions with_padding(CrossEntropyOptions options, Index pad);

// Weights of one attention, for pictures and for losses on what is looked at:  [B, H, T, S] or [B, T, S].
struct AttentionMap {
  enum class Kind { encoder, decoder, cross } kind;
  Index layer;
  Variable weights;
};

// -Σ_ts g_ts ln α_ts over the targets with a link, scalar; g = batch.links, α = max(mean over the heads, 1e-6). To be divided by the number
// of all linked targets of an update. Guided alignment: Chen et al. 2016, arXiv 1607.01628. ShapeError unless the links fit the map.
Variable alignment_loss(const AttentionMap& map, const Batch& batch);
// Σ_ts min(α_ts, c_ts) over the targets, scalar; c_ts = Σ_{t' < t} α_t's, how much was looked at already, α the mean over the heads. To be
// divided by the number of all targets of an update. See et al. 2017, arXiv 1704.04368, Eq. 12-13. ShapeError unless batch and map fit.
Variable coverage_loss(const AttentionMap& map, const Batch& batch);

// The mean over the heads, [B, T, S], head added to head: the same bits whatever else is in the batch.
Variable mean_over_heads(const AttentionMap& map);
Tensor mean_of_heads(const AttentionMap& map);         // in f32
// nullptr: no source word is looked at.
const AttentionMap* last_cross_attention(std::span<const AttentionMap> maps);

// State of decoding: what the model remembers of the source and of the words so far. Rows are grouped by sentence.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  // Row i goes on from old row rows[i]. Rows come in groups of `per_sentence` of one sentence; sentences left out are dropped.
  virtual void reorder(std::span<const Index> rows, Index per_sentence) = 0;
};

// The state as the model that reads it knows it. Error where a model of another kind made it
[[noreturn]] void refuse_state();
template <class S> S& state_as(DecodingState& state) {
  if (auto* const made = dynamic_cast<S*>(&state)) return *made;
  refuse_state();
}

// For who writes a reorder: the old sentences that go on, i64 [sentences], undefined where all do, in their order. Old row r is one of
// sentence r / old_group. IndexError: no such row; Error: rows are no groups of per_sentence of one sentence.
Tensor reordered_sentences(std::span<const Index> rows, Index per_sentence, Index old_rows, Index old_group);

struct Step {
  Tensor log_probabilities;            // [R, V], more where words are copied (models/copying_model.h)
  List<AttentionMap> attention;        // rows of this step, T = 1, when asked for
};

// What search and scoring need of a model, or of several together.
class Translator {
 public:
  virtual ~Translator() = default;
  // Encodes the sources; one row per sentence.
  virtual std::unique_ptr<DecodingState> start(const Sequences& source) const = 0;
  // Reads tokens i32 [R], one a row, and gives the distribution of the next.
  virtual Step step(const Tensor& tokens, DecodingState& state, Want want = Want::context) const = 0;
  // -log P(target) of each target, [B, T], 0 where it is `pad`; step by step.
  virtual Tensor token_losses(const Batch& batch, Index pad) const;
};

class Seq2Seq : public Translator {
 public:
  // What the encoder makes of the sources: where decoding starts, and its states h [B, S, M] in the order of the words, of padding any.
  struct Encoding { std::unique_ptr<DecodingState> state; Variable states; };
  virtual Encoding encode(const Sequences& source) const = 0;
  virtual Index encoder_width() const = 0;                                                       // M
  std::unique_ptr<DecodingState> start(const Sequences& source) const override { return encode(source).state; }
  // Teacher-forced features before the output layer [B, T, d]; `maps` collects all attention weights when given, `states` are the
  // encoder's.
  virtual Variable features(const Batch& batch, List<AttentionMap>* maps = nullptr, Variable* states = nullptr) const = 0;
  virtual const Linear& output_layer() const = 0;                                                // weight [V, d]
  Variable logits(const Variable& features) const { return output_layer()(features); }           // [..., V]
  // Cross-entropy summed over the targets that are not padding, options.pad or else the model's; logits are made in chunks, never
  // [B, T, V] at once. `maps` as in features.
  virtual Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps = nullptr) const = 0;
  // All steps at once.
  Tensor token_losses(const Batch& batch, Index pad) const override;
  // Reads tokens i32 [R], one a row: what the output layer reads then, [R, d]; `maps` collects the attention weights of this step, T = 1.
  virtual Variable next_features(const Tensor& tokens, DecodingState& state, List<AttentionMap>* maps = nullptr) const = 0;
  // The same, and softmax of their logits.
  Step step(const Tensor& tokens, DecodingState& state, Want want = Want::context) const override;

 protected:
  Variable traced_logits(const Variable& features) const;
};

}  // namespace heed
