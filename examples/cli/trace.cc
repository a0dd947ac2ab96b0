// SPDX-License-Identifier: Apache-2.0
// `heed trace`: every module's output into a file.
#include "autograd/trace.h"

#include "examples/cli/model.h"
#include "models/text.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/safetensors.h"

namespace heed::cli {

int trace(std::span<const std::string> words) {
  RunFlags run_flags;
  Manner manner;
  std::string source, target, out;
  const Syntax syntax{.command = "trace",
                      .usage = "--run RUN --source TEXT [--target TEXT] --out FILE.safetensors",
                      .about = "Every module's output for one sentence pair, teacher forced, under the path of the module.",
                      .example = "heed trace --run phrases --source 'a beautiful dog' --out dog.safetensors",
                      .options = options(run_flags) + std::vector<Option>{
                          {.name = "source", .value = &source, .takes = "TEXT", .help = "the sentence", .heading = "Sentence"},
                          {.name = "target", .value = &target, .takes = "TEXT", .help = "its translation; else what the model says"},
                          {.name = "out", .value = &out, .takes = "FILE", .help = "ending in .safetensors"}
                      } + options(manner)};
  if (!parse(syntax, words)) return 0;
  check_required(source, "source", "the sentence to translate");
  check_required(out, "out", "the file to write, ending in .safetensors");
  if (!out.ends_with(".safetensors")) throw Mistake(fmt::format("unknown kind of file: --out {}; a name that ends in .safetensors", out));
  check_output(out);
  const Ready model = ready(run_flags);
  check_outside(model, out);
  const Run& run = model.run;
  const Example example = sentence_pair(model, source, target);
  std::map<std::string, Tensor> tensors;
  auto order = Json::array();
  Index values = 0;
  {
    const Trace collected;
    model.model().logits(model.model().features(make_batch(run, {&example, 1})));
    for (const Trace::Entry& entry : collected.entries()) {
      tensors[entry.key()] = entry.value;
      order.push_back({entry.key(), entry.formula});
      values += entry.value.numel();
    }
  }
  write_safetensors(
      out, tensors,
      {{std::string(kTraceOrder), json_text(order)}, {"heed.source", source_text(run, example)}, {"heed.target", target_text(run, example)}});
  note_unknown(run, source, target, manner);
  if (manner.json) print(json_text(Json{{"file", out}, {"tensors", tensors.size()}, {"values", values}}) + "\n");
  else print(fmt::format("{}: {}, {}\n", out, counted(Index(tensors.size()), "tensor"), counted(values, "value")));
  return 0;
}

}  // namespace heed::cli
