// SPDX-License-Identifier: Apache-2.0
// A RUN directory, which is all there is to a trained model:
//   config.json                          every option of the training
//   source.* target.*                    tokenizers and vocabularies
//   best.safetensors                     the weights to translate with
//   checkpoints/<step>.safetensors       each complete: weights under "model.", optimiser, averages, state; the newest whole one counts
//   data.sha256                          of the file that --split-by-source split
//   seconds.json                         how long the training took up to a checkpoint, and which
//   metrics.jsonl curves.svg attention/  what happened
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/batch.h"
#include "models/run_config.h"
#include "tensor/safetensors.h"

namespace heed {

struct Run {
  std::string path;
  RunConfig config;
  Side source, target;
};
// make_batch with the ids of padding and start that the run has.
Batch make_batch(const Run& run, std::span<const Example> examples);
Batch make_batch(const Run& run, std::span<const Example> examples, std::span<const Index> rows);

[[noreturn]] void refuse(const std::filesystem::filesystem_error& e);   // the FileError that says the same

// One training, or one comparison, of a directory at a time: holds its file `lock`. FileError names the process that has it. Deletes
// what crashes left behind.
class RunLock {
 public:
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

// Whether create_run takes this path: nothing is there, or an empty directory, or what is left of a create_run that was killed.
bool is_vacant(const std::string& path);
// Makes the directory, or takes a vacant one, and writes all of it but weights, config.json last. FileError; then nothing is left of it.
std::unique_ptr<RunLock> create_run(const Run& run);
// Reads it again, strictly. FileError
Run open_run(const std::string& path);

// A model with its weights.
struct LoadedModel {
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Seq2Seq> model;
  std::string file;                                // where the weights come from
  std::vector<std::string> passed_over;            // what was wrong with better candidates
};
// From `file`, else best.safetensors, else the newest checkpoint that is whole. A checkpoint's averages go before its weights.
LoadedModel load_model(const Run& run, const std::string& file = {});
// The mean of the weights in all these files, as of the last checkpoints in Vaswani et al. 2017, arXiv 1706.03762, 6.1; its `file`
// is their list "A,B". FileError
LoadedModel load_mean(const Run& run, std::span<const std::string> files);
// The weights in a file by path, of a checkpoint or plain ones, and what its metadata says of them. FileError
SafetensorsFile read_weights(const std::string& file, const Run* fits = nullptr);

// ---- training a run ---------------------------------------------------------------------------------------------------
inline constexpr std::string_view kModelPrefix = "model.";

struct Checkpoint {
  Index step = 0;
  std::map<std::string, Tensor> tensors;           // model.<path>, and what the trainer keeps
  std::string state;                               // of the training, as JSON
  std::map<std::string, std::string> gru_forms{};  // nn/checkpoint.h
};
std::string checkpoint_path(const std::string& run, Index step);
std::vector<Index> checkpoint_steps(const std::string& run);                         // rising
// All of these files name the vocabularies they were made with, and are refused with others.
void write_checkpoint(const Run& run, const Checkpoint& checkpoint);
void write_best(const Run& run, const std::map<std::string, Tensor>& weights, const std::map<std::string, std::string>& gru_forms,
                Index step);
std::optional<Index> best_step(const Run& run);    // of best.safetensors; nothing where there is none that is whole
Checkpoint read_checkpoint(const Run& run, Index step);
// Of the checkpoints up to `step` deletes all but the newest `keep` and that of step `best`, oldest first. Later ones were passed
// over when the training went on: they count for nothing.
void remove_old_checkpoints(const std::string& run, Index step, Index keep, Index best);

}  // namespace heed
