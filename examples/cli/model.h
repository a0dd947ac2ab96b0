// SPDX-License-Identifier: Apache-2.0
// A run with its weights, for the commands that use one.
#pragma once
#include <string>
#include <vector>

#include "examples/cli/command.h"
#include "models/run.h"
#include "models/search.h"
#include "models/translate.h"

namespace heed::cli {

struct RunFlags {
  std::string run, checkpoint;
  std::optional<Index> threads;
};
std::vector<Option> options(RunFlags& flags);

struct Ready {
  Run run;
  LoadedModel loaded;
  const Seq2Seq& model() const { return *loaded.model; }
};
// Sets the threads, reads run and weights, and says on standard error what was wrong with files that were passed over.
Ready ready(const RunFlags& flags);

// A sentence and its translation, or what the model says, both ending in eos. Mistake where a side is empty or too long.
Example sentence_pair(const Ready& model, const std::string& source, const std::string& target);
// Notes on words that the model does not have: of the text of a flag; of --source and --target.
void note_unknown(std::span<const std::string> words, std::string_view where, const Manner& manner);   // where: "--source: ", say
void note_unknown(const Side& side, const std::string& text, std::string_view flag, const Manner& manner);
void note_unknown(const Run& run, const std::string& source, const std::string& target, const Manner& manner);

// Mistake where the output is one of the files that make up the run.
void check_outside(const Run& run, const std::string& output);

struct SearchFlags {
  Index beam = 1, nbest = 1, extra_length = 50, min_length = 0, no_repeat_ngram = 0, batch = 32;
  std::string length_penalty = "gnmt", precision = "float32";
  double alpha = 0.6, coverage = 0;
  bool replace_unk = false;
  bool sample = false;
  double temperature = 1, top_p = 1;
  Index top_k = 0, seed = 1;
};
std::vector<Option> options(SearchFlags& flags);
TranslateOptions translate_options(const SearchFlags& flags, const Given& given);      // Mistake
bool attends(const RunConfig& config);                                                 // of a run: whether its model looks at the source
void check_search(const SearchFlags& flags, const RunConfig& config);                  // Mistake where such a model cannot do it
// After these lines: the draws for the next ones go on where theirs ended.
void draw_on(TranslateOptions& options, const Run& run, std::span<const std::string> lines);

}  // namespace heed::cli
