// SPDX-License-Identifier: Apache-2.0
// A training of less than a second, beside it the same one to which nothing happened: for tests that stop, kill and resume it.
#pragma once
#include <string>

#include "tensor/dtype.h"
#include "tests/cli/program.h"

class TinyTraining {
 public:
  explicit TinyTraining(const std::string& options, int steps);    // trains the run "whole", all checkpoints kept

  const TemporaryFolder& folder() const { return folder_; }
  std::string begin(const std::string& run, int steps = 0) const;  // the line for `heed`; to the end, or so many updates
  std::string go_on(const std::string& run) const;
  std::string next(const std::string& run) const;                  // goes on, or begins where a kill came before there was a run
  // What is wrong with a run that has come to its end: nothing where all bits are those of "whole".
  std::string difference(const std::string& run) const;
  // The steps of its checkpoints, each read to its end. FileError where one is not whole.
  std::vector<heed::Index> whole_checkpoints(const std::string& run) const;

 private:
  TemporaryFolder folder_;
  std::string options_;
  int steps_;
};

void make_tiny_data(const TemporaryFolder& folder);                // in its folder data
inline const std::string kTiny = " --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 5 --evaluate-every 7 --quiet ";
