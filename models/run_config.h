// SPDX-License-Identifier: Apache-2.0
// The options of a run: their table, what fits together, and what is made of them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/option.h"
#include "models/seq2seq.h"
#include "models/vocabulary.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "nn/scope.h"

namespace heed {

// Everything that decides how a model is trained. The defaults here are those of `heed train` with a Transformer.
struct RunConfig {
  // data: a directory with train.tsv, dev.tsv, test.tsv; or pairs of parallel files; or one file that is to be split
  std::string data;
  std::vector<std::string> train_files, dev_files, test_files;
  std::string train;
  bool split_by_source = false;
  Index split_dev = 1500, split_test = 1500;       // source sentences

  // text
  std::string tokenizer = "auto";                  // auto becomes what the data asks for
  std::vector<std::string> sentencepiece;          // models of bpe that were learned elsewhere
  std::string vocabularies;                        // a run whose tokenizers and vocabularies these are
  bool lowercase = false;
  Index min_count = 1;
  std::optional<Index> vocabulary_size;
  Index max_length = 250;

  // model
  std::string model = "transformer";
  Index layers = 2, width = 128, heads = 4, feed_forward = 256;
  std::optional<Index> decoder_layers;             // else layers
  std::optional<Index> key_value_heads;            // of the decoder, else heads
  std::optional<Index> sliding_window;             // words to each side, else all
  std::string dilation;                            // gaps of its heads: 1,1,2,4, or one for all
  std::optional<Index> global_tokens;              // first source words that see all and are seen by all
  bool gated = false, rms_norm = false, talking_heads = false, differential = false, linear_attention = false;
  std::optional<Index> random_features;            // of linear attention, else elu(x) + 1
  double dropout = 0.05, attention_dropout = 0, activation_dropout = 0;
  bool copy = false;
  std::string copy_form = "pointer-generator";
  std::string activation = "relu", norm = "post", final_norm = "auto", positions = "sinusoidal", qk_norm = "none", normalise = "softmax",
              tie = "none", qkv_init = "separate";

  // recurrent models; auto becomes what the others ask for
  std::string attention = "auto", decoder = "auto", gru_form = "auto", readout = "auto", readout_state = "auto", start_state = "auto",
              bridge = "auto", context = "auto";
  std::optional<Index> window;
  bool input_feeding = false, reverse_source = false, one_direction = false;
  std::string start = "bos", initial_values = "pytorch";

  // training
  std::optional<Index> batch_tokens = 2048, batch_sentences;
  Index accumulate = 1;
  std::string optimizer = "adam";
  double learning_rate = 2e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, rho = 0.9, momentum = 0, weight_decay = 0;
  std::string schedule = "inverse_sqrt";
  Index warmup = 200;
  std::optional<Index> schedule_steps;
  Index schedule_after = 0;
  double label_smoothing = 0.1, guided_alignment = 0, coverage_loss = 0, clip = 1, average = 0.995;
  Index seed = 1;
  std::string precision = "float32";               // of the factors in the matrix products of an update
  std::string init;

  // how long, and what is kept
  std::optional<Index> steps = 2000, epochs;
  double minutes = 0;
  std::optional<Index> patience, evaluate_every, save_every;
  std::string best_by = "bleu";                    // of evaluations
  Index keep = 3;
  std::string if_full = "go-on";
  std::optional<Index> threads;

  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// As RunConfig(), but for what recurrent models do better with; the rate is 1 with noam, whose factor stands in its place, and with
// adadelta, eps 1e-9 with noam (Vaswani et al. 2017, 5.3), weight_decay 0.01 with adamw, as PyTorch's.
RunConfig default_config(std::string_view model, std::string_view schedule = {}, std::string_view optimizer = {});

// The one table. Its options point into `config`; their defaults are those of default_config.
std::vector<Option> options(RunConfig& config);
// Error `<what>: <where>; <what would be right>` where options that are right alone do not fit together.
void check_config(const RunConfig& config);

// Error where an option was set that the optimizer or schedule beside it does not read.
void check_read(const RunConfig& config);

// Options that a resumed run may change: limits, threads, what is saved and kept, where its data are.
bool may_change(std::string_view option);
inline constexpr double kLargestSeed = 9e18;       // of --seed

Index decoder_layers(const RunConfig& config);     // of the decoder's stack
bool copies_by_attention(const RunConfig& config); // a PointerGenerator's --copy, which needs weights that sum to 1

std::vector<std::string_view> model_names();
struct SpecialIds { std::int32_t pad = 0, source_unk = 1, target_unk = 1; };
// Error lists the names. shared: of models/copying_model.h, for config.copy. The second form knows it and the ids; Error where the
// vocabularies have different ids of padding.
std::unique_ptr<Seq2Seq> make_model(const RunConfig& config, Scope scope, Index source_vocabulary, Index target_vocabulary,
                                    const Tensor& shared = {}, SpecialIds ids = {});
std::unique_ptr<Seq2Seq> make_model(const RunConfig& config, Scope scope, const Vocabulary& source, const Vocabulary& target);
std::unique_ptr<Optimizer> make_optimizer(const RunConfig& config, Parameters& parameters);
Schedule make_schedule(const RunConfig& config);
// The gaps of --dilation, one a head; empty without it. Error: others
std::vector<Index> dilation(const RunConfig& config);
std::int32_t start_symbol(const RunConfig& config, const Vocabulary& target);   // what opens a target
Index max_positions(const RunConfig& config);      // words of a sentence, eos counted, that the model can read or write

}  // namespace heed
