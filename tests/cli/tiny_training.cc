// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/tiny_training.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "models/run.h"

using namespace heed;
namespace fs = std::filesystem;

void make_tiny_data(const TemporaryFolder& folder) {
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 120 --dev 12 --test 5").code == 0);
}

TinyTraining::TinyTraining(const std::string& options, int steps) : options_(options), steps_(steps) {
  make_tiny_data(folder_);
  const Result whole = heed_in(folder_.path(), begin("whole") + " --keep 1000");
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
}

std::string TinyTraining::begin(const std::string& run, int steps) const {
  return "train" + kTiny + options_ + " --steps " + std::to_string(steps ? steps : steps_) + " --out " + run;
}

std::string TinyTraining::go_on(const std::string& run) const {
  return "train --resume --quiet --steps " + std::to_string(steps_) + " --out " + run;
}

std::string TinyTraining::next(const std::string& run) const {
  return fs::exists(folder_ / (run + "/config.json")) ? go_on(run) : begin(run);
}

std::string TinyTraining::difference(const std::string& run) const {
  const std::string last = "/checkpoints/" + std::to_string(steps_) + ".safetensors";
  for (const std::string& file : {last, std::string("/best.safetensors"), std::string("/config.json")}) {
    if (!fs::exists(folder_ / (run + file))) return "no " + run + file;
    if (!file.ends_with(".json") && text_of(folder_ / ("whole" + file)) != text_of(folder_ / (run + file))) return run + file + " differs";
  }
  if (log_without_timing(folder_ / "whole") != log_without_timing(folder_ / run))
    return run + "/metrics.jsonl differs: " + log_without_timing(folder_ / run);
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / run))
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) return "left behind: " + entry.path().string();
  return {};
}

std::vector<Index> TinyTraining::whole_checkpoints(const std::string& run) const {
  const std::vector<Index> steps = checkpoint_steps(folder_ / run);
  if (steps.empty()) return steps;
  const Run opened = open_run(folder_ / run);
  for (const Index step : steps) (void)read_checkpoint(opened, step);
  return steps;
}
