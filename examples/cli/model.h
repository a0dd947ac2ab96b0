// SPDX-License-Identifier: Apache-2.0
// A run with its weights, for the commands that use one.
#pragma once
#include <string>
#include <vector>

#include "examples/cli/command.h"
#include "models/ensemble.h"
#include "models/run.h"
#include "models/search.h"
#include "models/translate.h"

namespace heed::cli {

struct RunFlags {
  std::string run, checkpoint, ensemble, ensemble_mean = "mean";
  std::optional<Index> threads;
};
std::vector<Option> options(RunFlags& flags);
std::vector<Option> ensemble_options(RunFlags& flags);     // of the commands that decode

struct Ready {
  Run run;
  LoadedModel loaded;
  std::vector<LoadedModel> others;                           // of an ensemble
  std::unique_ptr<Ensemble> ensemble;
  bool attends = false;                                      // one of the models looks at the source
  const Seq2Seq& model() const { return *loaded.model; }
  const Translator& translator() const { return ensemble ? static_cast<const Translator&>(*ensemble) : *loaded.model; }
};
// Sets the threads, reads runs and weights, and says on standard error what was wrong with files that were passed over. Mistake where the
// models of an ensemble do not write the same words.
Ready ready(const RunFlags& flags);

// The file of weights that a path means: it itself; where it is a run, the one that would be read there, with the same notes.
std::string weights_file(const std::string& path);

// The parts of A,B,..; all of it where a file has that name.
std::vector<std::string> listed_files(const std::string& list, std::string_view flag);
// A sentence and its translation, or what the model says, both ending in eos. Mistake where a side is empty or too long.
Example sentence_pair(const Ready& model, const std::string& source, const std::string& target);
// A note on lines that were longer than this.
void note_cut(const Overlooked& overlooked, const Run& run, Index max_length, const Manner& manner);
// Notes on words that the model does not have, nor the source to copy them from; of --source and --target.
void note_unknown(std::span<const std::string> words, const Manner& manner, std::string_view where = {});   // "--source: ", say
void note_unknown(const Run& run, const std::string& source, const std::string& target, const Manner& manner);

// Mistake where the output is a file of data that the config names.
void check_not_data(const RunConfig& config, const std::string& output);
// The same for the data of the run, weights that were read, files that make up a run, and parts of data.
void check_outside(const Ready& model, const std::string& output);

struct SearchFlags {
  Index beam = 1, nbest = 1, extra_length = 50, min_length = 0, no_repeat_ngram = 0, batch = 32;
  std::string length_penalty = "gnmt", stop = "bound", precision = "float32";
  double alpha = 0.6, coverage = 0;
  bool replace_unk = false;
  bool sample = false;
  double temperature = 1, top_p = 1;
  Index top_k = 0, seed = 1;
};
std::vector<Option> options(SearchFlags& flags);
TranslateOptions translate_options(const SearchFlags& flags, const Given& given);      // Mistake
bool attends(const RunConfig& config);                                                 // of a run: whether its model looks at the source
void check_search(const SearchFlags& flags, const Ready& model);                       // Mistake where such models cannot do it
// After these lines: the draws for the next ones go on where theirs ended.
void draw_on(TranslateOptions& options, const Run& run, std::span<const std::string> lines);

}  // namespace heed::cli
