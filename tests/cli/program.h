// SPDX-License-Identifier: Apache-2.0
// Runs the built `heed` program as a user would: a process of its own, in a folder of its own.
#pragma once
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

struct Result {
  int code = -1;                                   // exit code; -signal where one ended it
  std::string out, err;
};

struct Program {
  std::vector<std::string> words;
  std::string folder = ".", input{};
  std::vector<std::string> environment{};          // "NAME=value", added to the caller's
  std::string output{};                            // a file for standard output instead of `out`
  long largest_file = -1;                          // bytes (RLIMIT_FSIZE)
  std::vector<std::string> under{};                // another program and its words that run `heed`: strace

  Result run() const;
  int start(const std::string& input_file = "/dev/null") const;   // without waiting: process id; `err` is lost
};

// "train --data d --out 'a b'" as a shell splits it.
std::vector<std::string> split(const std::string& line);
Result heed_in(const std::string& folder, const std::string& line, const std::string& input = {});
int wait_for(int process);                         // as Result::code

// Paths, sizes and times of all files below a folder but locks, as one text: unchanged where nothing was written.
std::string listing(const std::string& folder);
std::string text_of(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);
void write_text(const std::string& path, const std::string& text);
// metrics.jsonl without what depends on the clock.
std::string log_without_timing(const std::string& run);
