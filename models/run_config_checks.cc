// SPDX-License-Identifier: Apache-2.0
// Which options of a run fit together.
#include "models/run_config.h"

#include <algorithm>

#include "attention/normalise.h"
#include "attention/position.h"
#include "models/recurrent_config.h"
#include "models/text.h"
#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"

namespace heed {
namespace {

std::string near_heads(Index width, Index heads) {
  Index best = 1;
  for (Index h = 1; h <= std::min<Index>(width, 1024); ++h)
    if (width % h == 0 && std::abs(h - heads) <= std::abs(best - heads)) best = h;
  return fmt::format("{}", best);
}

void check_normalise(std::string_view name) {
  if (!name.empty() && normalise_in(name) == name) return;
  fail<Error>("unknown name: --normalise {}; {}one of {}", quote(name), did_you_mean(name, normalise_names()), normalise_choices());
}

Index near_divisor_below(Index n, Index most) {
  Index divisor = std::min(n, most);
  while (n % divisor != 0) --divisor;
  return divisor;
}

void check_data(const RunConfig& c) {
  const int sources = !c.data.empty() + !c.train_files.empty() + !c.train.empty();
  check<Error>(
      sources > 0,
      "no data: --data; a directory made by `heed data`, or --train-files SRC TGT --dev-files SRC TGT, or --train FILE --split-by-source");
  check<Error>(sources == 1, "more than one source of data: {}; only one of --data, --train-files and --train",
               !c.data.empty() ? (c.train.empty() ? "--data --train-files" : "--data --train") : "--train-files --train");
  check<Error>(c.train_files.empty() || !c.dev_files.empty(), "no dev data: --train-files; give --dev-files SRC TGT as well");
  check<Error>(c.train.empty() || c.split_by_source, "no dev data: --train {}; give --split-by-source, which makes dev and test of it",
               c.train);
  check<Error>(!c.split_by_source || !c.train.empty(), "nothing to split: --split-by-source; it goes with --train FILE");
  check<Error>(c.split_by_source || (c.split_dev == RunConfig().split_dev && c.split_test == RunConfig().split_test),
               "nothing to split: --{} {}; it goes with --split-by-source",
               c.split_dev == RunConfig().split_dev ? "split-test" : "split-dev",
               c.split_dev == RunConfig().split_dev ? c.split_test : c.split_dev);
  for (const auto& [name, files] : {std::pair("dev-files", &c.dev_files), std::pair("test-files", &c.test_files)})
    check<Error>(!c.train_files.empty() || files->empty(), "files that would not be read: --{} {}; they go with --train-files, {}", name,
                 fmt::join(*files, " "), c.train.empty() ? "--data has its own parts" : "--split-by-source makes the parts of --train");
  check<Error>(c.sentencepiece.empty() || c.tokenizer == "auto" || c.tokenizer == "bpe",
               "models that would not be read: --sentencepiece {} --tokenizer {}; they are of --tokenizer bpe",
               fmt::join(c.sentencepiece, " "), c.tokenizer);
  check<Error>(c.sentencepiece.empty() || !c.vocabulary_size,
               "no pieces are learned: --sentencepiece {} --vocabulary-size {}; leave out --vocabulary-size, the models have theirs",
               fmt::join(c.sentencepiece, " "), c.vocabulary_size.value_or(0));
  check<Error>(c.min_count == 1 || (c.tokenizer != "bpe" && c.sentencepiece.empty()),
               "words that are not counted: --tokenizer bpe --min-count {}; leave out --min-count, all pieces stay", c.min_count);
  for (const auto& [given, what] : {std::pair(!c.sentencepiece.empty(), fmt::format("--sentencepiece {}", fmt::join(c.sentencepiece, " "))),
                                    {c.min_count != 1, fmt::format("--min-count {}", c.min_count)},
                                    {c.vocabulary_size.has_value(), fmt::format("--vocabulary-size {}", c.vocabulary_size.value_or(0))}})
    check<Error>(c.vocabularies.empty() || !given, "words that are there already: --vocabularies {} {}; only one of them", c.vocabularies,
                 what);
  check<Error>(!!c.batch_tokens != !!c.batch_sentences,
               "batches of tokens or of sentences: {}; one of --batch-tokens and --batch-sentences",
               c.batch_tokens ? "both given" : "none given");
}

void check_transformer(const RunConfig& c) {
  check_not_recurrent(c);
  check<Error>(c.width % c.heads == 0,
               "the heads do not divide the width: --width {} --heads {}; --width {} would do, or --heads {}", c.width, c.heads,
               nearest_multiples(c.width, c.heads), near_heads(c.width, c.heads));
  const Index shared = c.key_value_heads.value_or(c.heads);
  check<Error>(c.heads % shared == 0,
               "heads that cannot be shared out: --heads {} --key-value-heads {}; a divisor of {}, as {}", c.heads, shared, c.heads,
               near_divisor_below(c.heads, shared));
  check<Error>(!c.differential || (c.heads % 2 == 0 && shared % 2 == 0), "no pairs of heads: --differential --heads {}{}; even numbers",
               c.heads, c.key_value_heads ? fmt::format(" --key-value-heads {}", shared) : "");
  check<Error>(!c.differential || c.positions != "shaw",
               "values of heads and of pairs: --differential --positions shaw; another of --positions, t5 is near");
  check_normalise(c.normalise);
  for (const auto& [given, name] : {std::pair(copies_by_attention(c), std::string("copy")),
                                    {c.guided_alignment > 0, fmt::format("guided-alignment {}", c.guided_alignment)},
                                    {c.coverage_loss > 0, fmt::format("coverage-loss {}", c.coverage_loss)}})
    check<Error>(!given || (!c.talking_heads && !c.differential && sums_to_one(c.normalise)),
                 "weights that are no probabilities: --{} {}; one of them", name,
                 c.differential    ? "--differential"
                 : c.talking_heads ? "--talking-heads"
                                   : fmt::format("--normalise {}", c.normalise));
  for (const auto& [given, what] : {std::pair(!c.dilation.empty(), fmt::format("--dilation {}", c.dilation)),
                                    {c.global_tokens.has_value(), fmt::format("--global-tokens {}", c.global_tokens.value_or(0))}})
    check<Error>(!given || c.sliding_window, "no sliding window: {}; with --sliding-window N", what);
  dilation(c);
  check<Error>(c.linear_attention || !c.random_features, "features of no linear attention: --random-features {}; with --linear-attention",
               c.random_features.value_or(0));
  if (c.linear_attention)
    for (const auto& [given, what] : {std::pair(inside_attention(positions_named(c.positions)), fmt::format("--positions {}", c.positions)),
                                      {c.normalise != "softmax", fmt::format("--normalise {}", c.normalise)},
                                      {c.talking_heads, "--talking-heads"},
                                      {c.differential, "--differential"},
                                      {c.sliding_window.has_value(), fmt::format("--sliding-window {}", c.sliding_window.value_or(0))},
                                      {c.attention_dropout > 0, fmt::format("--attention-dropout {}", c.attention_dropout)}})
      check<Error>(!given, "no scores and no weights: --linear-attention {}; only one of them", what);
  check<Error>(!c.positions.starts_with("rope") || c.width / c.heads % 2 == 0,
               "an odd width of a head: --positions {} --width {} --heads {}; it turns pairs of units, --width {} would do", c.positions,
               c.width, c.heads, (c.width / c.heads + 1) * c.heads);
}

}  // namespace

void check_config(const RunConfig& c) {
  RunConfig copy = c;
  for (const Option& option : options(copy))
    check<Error>(repaired(value_text(option)) == value_text(option), "no UTF-8: --{} {}; config.json could not keep it", option.name,
                 repaired(value_text(option)));
  check_data(c);
  if (is_recurrent(c.model)) check_recurrent(c);
  else check_transformer(c);
  check<Error>(c.copy || c.copy_form == RunConfig().copy_form, "a form of nothing: --copy-form {}; with --copy", c.copy_form);
  check<Error>(c.warmup > 0 || (c.schedule != "inverse_sqrt" && c.schedule != "noam"),
               "no warm-up: --schedule {} --warmup 0; at least 1, default {}", c.schedule, RunConfig().warmup);
  if (c.schedule_steps && (c.schedule == "linear" || c.schedule == "cosine"))
    check<Error>(*c.schedule_steps > c.warmup, "the warm-up does not end: --schedule {} --warmup {}, {} updates planned; fewer than that",
                 c.schedule, c.warmup, *c.schedule_steps);
  check<Error>(c.precision != "bfloat16" || has_bfloat16_products(),
               "no instructions: --precision bfloat16 needs AVX512-BF16, which this processor lacks; --precision float32");
  check<Error>(c.steps || c.epochs || c.minutes > 0 || c.patience,
               "no end: neither --steps nor --epochs, --minutes, --patience; at least one of them");
}

void check_read(const RunConfig& c) {
  const auto among = [](std::string_view name, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
  };
  check<Error>(c.momentum == 0 || among(c.optimizer, {"sgd", "rmsprop"}),
               "not an option of this optimizer: --momentum {} --optimizer {}; it belongs to sgd and rmsprop", c.momentum, c.optimizer);
  check<Error>(c.beta1 == RunConfig().beta1 || among(c.optimizer, {"adam", "adamw"}),
               "not an option of this optimizer: --beta1 {} --optimizer {}; it belongs to adam and adamw", c.beta1, c.optimizer);
  check<Error>(c.beta2 == RunConfig().beta2 || c.beta2 == default_config("gru").beta2 || among(c.optimizer, {"adam", "adamw"}),
               "not an option of this optimizer: --beta2 {} --optimizer {}; it belongs to adam and adamw", c.beta2, c.optimizer);
  check<Error>(c.eps == RunConfig().eps || c.eps == default_config("transformer", "noam").eps || among(c.optimizer, {"adam", "adamw"}),
               "not an option of this optimizer: --eps {} --optimizer {}; it belongs to adam and adamw", c.eps, c.optimizer);
  check<Error>(c.rho == RunConfig().rho || c.optimizer == "adadelta",
               "not an option of this optimizer: --rho {} --optimizer {}; it belongs to adadelta", c.rho, c.optimizer);
  check<Error>(c.schedule_after == 0 || c.schedule == "step",
               "not an option of this schedule: --schedule-after {} --schedule {}; it belongs to step", c.schedule_after, c.schedule);
  check<Error>(!c.schedule_steps || among(c.schedule, {"linear", "cosine", "step"}),
               "not an option of this schedule: --schedule-steps {} --schedule {}; it belongs to linear, cosine and step",
               c.schedule_steps.value_or(0), c.schedule);
}

}  // namespace heed
