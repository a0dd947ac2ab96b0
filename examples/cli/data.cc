// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "examples/cli/command.h"
#include "examples/tasks/tasks.h"
#include "tensor/json.h"

namespace heed::cli {
namespace fs = std::filesystem;

namespace {

constexpr std::pair<std::string_view, std::string_view> kOfTasks[] = {
    {"from", "numbers, phrases"}, {"to", "numbers, phrases"},         {"clauses", "phrases"},
    {"spoken-and", "numbers"},    {"symbols", "copy, reverse, sort"}, {"max-length", "copy, reverse, sort"}};

struct Asked {
  std::string name, out;
  TaskOptions task{};
  Index seed = 1;
  Manner manner{};
};

std::vector<Option> own_options(Asked& asked) {
  return {{.name = "out", .value = &asked.out, .takes = "DIR", .help = "where to; must be empty or not exist"},
          {.name = "train", .value = &asked.task.train, .takes = "N",
           .help = "pairs to train on (20000; dates: 8000; copy, reverse, sort: 50000)", .low = 1, .high = double(kMostPairs)},
          {.name = "dev", .value = &asked.task.dev, .takes = "N",
           .help = "pairs of the dev part", .low = 1, .high = double(kMostPairs), .standard = "1000"},
          {.name = "test", .value = &asked.task.test, .takes = "N",
           .help = "pairs of each test part", .low = 1, .high = double(kMostPairs), .standard = "1000"},
          {.name = "seed", .value = &asked.seed, .takes = "N",
           .help = "other pairs for another seed", .low = 0, .high = 9e18, .standard = "1"},
          {.name = "from", .value = &asked.task.from, .takes = "LANGUAGE",
           .help = "numbers: en, fr, es, de, or digits; phrases: en"},
          {.name = "to", .value = &asked.task.to, .takes = "LANGUAGE", .help = "the same; phrases: fr or es"},
          {.name = "clauses", .value = &asked.task.clauses, .takes = "N",
           .help = "phrases: clauses of a sentence, 1 to N, with and, but between them", .low = 1, .high = double(kMostClauses),
           .standard = "1"},
          {.name = "spoken-and", .value = &asked.task.spoken_and, .help = "numbers, English: two hundred and five"},
          {.name = "symbols", .value = &asked.task.symbols, .takes = "N",
           .help = "copy, reverse, sort: different words", .low = 1, .high = double(kMostSymbols), .standard = "32"},
          {.name = "max-length", .value = &asked.task.max_length, .takes = "N",
           .help = "copy, reverse, sort: words of a sentence", .low = 1, .high = double(kMostLength), .standard = "25"}};
}

void print_made(const Task& made, const std::string& out, const Manner& manner) {
  if (manner.json) {
    Json json{{"task", made.name}, {"directory", out}, {"tokenizer", made.tokenizer}, {"parts", Json::object()}};
    for (const TaskPart& part : made.parts) json["parts"][part.name] = part.pairs.size();
    print(json_text(json) + "\n");
    return;
  }
  std::string parts;
  for (const TaskPart& part : made.parts) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, part.pairs.size());
  print(fmt::format("{}: {}\n", out, parts));
  const TaskPair& first = made.parts[0].pairs[0];
  if (!manner.quiet) print(fmt::format("for example: {} -> {}\n", first.source, first.target));
}

}  // namespace

int data(std::span<const std::string> words) {
  Asked asked;
  const Syntax syntax{
      .command = "data",
      .usage = fmt::format("TASK --out DIR [options]     TASK: {}", fmt::join(task_names(), " ")),
      .about = "Makes sentence pairs of a task, with gold word alignments: train.tsv, dev.tsv, test.tsv; of copy, reverse and sort test-long.tsv too, of phrases test-pairs.tsv.",
      .example = "heed data phrases --out phrases-data --to es",
      .options = own_options(asked) + options(asked.manner),
      .words = {{"TASK", &asked.name}}};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  const std::span<const std::string_view> tasks = task_names();
  if (std::find(tasks.begin(), tasks.end(), asked.name) == tasks.end())
    throw Mistake(fmt::format("unknown task: {}; {}there are {}", asked.name, did_you_mean(asked.name, tasks), fmt::join(tasks, ", ")));
  check_required(asked.out, "out", "the directory to make");
  for (const auto& [flag, of] : kOfTasks)
    if (given.contains(flag) && of.find(asked.name) == of.npos)
      throw Mistake(fmt::format("not of this task: {} --{}; it is of {}", asked.name, flag, of));
  std::error_code ignored;
  const bool existed = fs::exists(asked.out, ignored);
  if (existed && !fs::is_directory(asked.out))
    throw Mistake(fmt::format("no directory: --out {}; the name of a new or empty directory", asked.out));
  if (!is_free(asked.out))
    throw Mistake(fmt::format("exists and is not empty: --out {}; the name of a new or empty directory", asked.out));
  asked.task.seed = std::uint64_t(asked.seed);
  const Task made = make_task(asked.name, asked.task);
  try {
    write_task(made, asked.out);
  } catch (...) {
    if (!existed) fs::remove(asked.out, ignored);
    throw;
  }
  print_made(made, asked.out, asked.manner);
  return 0;
}

}  // namespace heed::cli
