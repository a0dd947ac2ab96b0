// SPDX-License-Identifier: Apache-2.0
// Sentence pairs that Heed makes itself, with gold word alignments: the same bytes on every machine for the same options.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/alignment.h"

namespace heed {

struct TaskOptions {
  std::optional<Index> train{};               // pairs; by default 20,000 (dates: 8,000; copy, reverse, sort: 50,000)
  Index dev = 1000, test = 1000;              // test: of each test set
  std::uint64_t seed = 1;
  std::string from{}, to{};                   // numbers: digits to or from one of en fr es de; phrases: en to fr or es
  Index symbols = 32, max_length = 25;        // copy, reverse, sort
  Index clauses = 1;                          // phrases: at most, with and, but between them
  bool spoken_and = false;                    // numbers, English: two hundred and five
};

// The most that these options may be, dev and test as train; the least is 1.
inline constexpr Index kMostPairs = 10'000'000, kMostSymbols = 1'000'000, kMostLength = 10'000, kMostClauses = 100;

struct TaskPair {
  std::string source, target;                 // words between single spaces; dates: characters
  Alignment alignment;                        // of these words or characters
};

struct TaskPart {
  std::string name;                           // train, dev, test, test-pairs, test-long
  std::vector<TaskPair> pairs;
};

struct Task {
  std::string name, tokenizer;                // tokenizer that the links count by: space or char
  TaskOptions options;                        // complete: from, to and train filled in
  std::vector<TaskPart> parts;                // train, dev, test, then what further tests the task has
};

// copy reverse sort numbers dates phrases
std::span<const std::string_view> task_names();

// All sources of a task are distinct, over its parts too.
// Error: unknown task or language, a number out of range, more pairs asked for than distinct sources exist (says how many).
Task make_task(std::string_view name, TaskOptions options = {});

// `source TAB target TAB i-j .. [TAB i?j ..]`, a line a pair.
std::string to_tsv(const TaskPart& part);

// DIRECTORY/<part>.tsv for each part, and task.json with name, tokenizer and options. FileError
// While it is at work the directory holds a file kUnfinished too: what a kill left is known by it.
void write_task(const Task& task, const std::string& directory);
inline constexpr std::string_view kUnfinished = ".unfinished";
// Whether write_task may have this directory: nothing is there, or an empty one, or what a write_task that was killed left.
bool is_free(const std::string& directory);

}  // namespace heed
