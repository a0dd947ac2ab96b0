// SPDX-License-Identifier: Apache-2.0
#include "models/explain.h"

#include <unistd.h>

#include "examples/cli/model.h"
#include "examples/cli/progress.h"
#include "tensor/format.h"

namespace heed::cli {

int explain(std::span<const std::string> words) {
  RunFlags run_flags;
  Manner manner;
  std::string source, target;
  std::optional<Index> layer, head;
  ExplainOptions with;
  ExplanationStyle style;
  const Syntax syntax{.command = "explain",
                      .usage = "--run RUN --source TEXT [--step N] [--target TEXT] [options]",
                      .about = "One step of decoding taken apart: every value with its shape, its numbers and the formula that made it.",
                      .example = "heed explain --run phrases --source 'a beautiful dog' --step 2",
                      .options = options(run_flags) + std::vector<Option>{
                          {.name = "source", .value = &source, .takes = "TEXT", .help = "the sentence", .heading = "Step"},
                          {.name = "target", .value = &target, .takes = "TEXT",
                           .help = "its translation, with dL, the gradients of values: how the loss of the step's word would change; else what the model says"},
                          {.name = "step", .value = &with.step, .takes = "N",
                           .help = "which word of the target is looked at, from 1", .low = 1, .high = 1e6, .standard = "1"},
                          {.name = "layer", .value = &layer, .takes = "N",
                           .help = "layer of a Transformer's decoder, from 1; else the last", .low = 1, .high = 1000},
                          {.name = "head", .value = &head, .takes = "N",
                           .help = "head of its attentions, from 1", .low = 1, .high = 1024, .standard = "1"},
                          {.name = "top", .value = &with.top, .takes = "N",
                           .help = "likeliest next words that are shown, beside the target's", .low = 1, .high = 1e6, .standard = "5"},
                          {.name = "numbers", .value = &style.numbers, .takes = "N",
                           .help = "shown of each vector; --json has all", .low = 1, .high = 1e6, .standard = "8"}
                      } + options(manner)};
  if (!parse(syntax, words)) return 0;
  check_required(source, "source", "the sentence to translate");
  const Ready model = ready(run_flags);
  if ((layer || head) && model.run.config.model != "transformer")
    throw Mistake(
        fmt::format("no layers and heads to choose from: --{}; the run's model is {}", layer ? "layer" : "head", model.run.config.model));
  const Example example = sentence_pair(model, source, target);
  with.backward = !target.empty();
  with.layer = layer.value_or(0), with.head = head.value_or(1);
  if (with.step > Index(example.target.size()))
    throw Mistake(fmt::format("no such step: --step {}; the translation has {}, its end counted", with.step,
                              counted(Index(example.target.size()), model.run.source.tokenizer.options().noun())));
  const auto out_of = [](std::string_view flag, Index value, Index last) {
    throw Mistake(fmt::format("no such {}: --{} {}; the model has {}", flag, flag, value, last));
  };
  if (const Index layers = decoder_layers(model.run.config); layer && *layer > layers) out_of("layer", *layer, layers);
  if (head && *head > model.run.config.heads) out_of("head", *head, model.run.config.heads);
  const Explanation explanation = heed::explain(model.run, model.model(), example, with);
  note_unknown(model.run, source, target, manner);
  style.columns = page_columns(STDOUT_FILENO);
  style.colour = takes_colour(STDOUT_FILENO);
  print(manner.json ? explanation_json(explanation) : explanation_text(explanation, style));
  return 0;
}

}  // namespace heed::cli
