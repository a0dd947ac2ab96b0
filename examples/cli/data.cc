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
}

int data(std::span<const std::string> words) {
  TaskOptions task_options;
  std::string task, out;
  std::optional<Index> train;
  Index seed = 1;
  Manner manner;
  Syntax syntax{
      .command = "data",
      .usage = fmt::format("TASK --out DIR [options]     TASK: {}", fmt::join(task_names(), " ")),
      .about = "Makes sentence pairs of a task, with gold word alignments: train.tsv, dev.tsv, test.tsv; of copy, reverse and sort test-long.tsv too, of phrases test-pairs.tsv.",
      .example = "heed data phrases --out phrases-data --to es",
      .options = {{.name = "out", .value = &out, .takes = "DIR", .help = "where to; must be empty or not exist"},
                  {.name = "train", .value = &train, .takes = "N",
                   .help = "pairs to train on (20000; dates: 8000; copy, reverse, sort: 50000)", .low = 1, .high = double(kMostPairs)},
                  {.name = "dev", .value = &task_options.dev, .takes = "N",
                   .help = "pairs of the dev part", .low = 1, .high = double(kMostPairs), .standard = "1000"},
                  {.name = "test", .value = &task_options.test, .takes = "N",
                   .help = "pairs of each test part", .low = 1, .high = double(kMostPairs), .standard = "1000"},
                  {.name = "seed", .value = &seed, .takes = "N",
                   .help = "other pairs for another seed", .low = 0, .high = 9e18, .standard = "1"},
                  {.name = "from", .value = &task_options.from, .takes = "LANGUAGE",
                   .help = "numbers: en, fr, es, de, or digits; phrases: en"},
                  {.name = "to", .value = &task_options.to, .takes = "LANGUAGE", .help = "the same; phrases: fr or es"},
                  {.name = "clauses", .value = &task_options.clauses, .takes = "N",
                   .help = "phrases: clauses of a sentence, 1 to N, with and, but between them", .low = 1, .high = double(kMostClauses),
                   .standard = "1"},
                  {.name = "spoken-and", .value = &task_options.spoken_and, .help = "numbers, English: two hundred and five"},
                  {.name = "symbols", .value = &task_options.symbols, .takes = "N",
                   .help = "copy, reverse, sort: different words", .low = 1, .high = double(kMostSymbols), .standard = "32"},
                  {.name = "max-length", .value = &task_options.max_length, .takes = "N",
                   .help = "copy, reverse, sort: words of a sentence", .low = 1, .high = double(kMostLength), .standard = "25"}},
      .words = {{"TASK", &task}}};
  syntax.options = syntax.options + options(manner);
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  const std::span<const std::string_view> tasks = task_names();
  if (std::find(tasks.begin(), tasks.end(), task) == tasks.end()) {
    const std::string_view near = nearest(task, tasks);
    throw Mistake(fmt::format("unknown task: {}; {}there are {}", task, near.empty() ? "" : fmt::format("did you mean {}? ", near),
                              fmt::join(tasks, ", ")));
  }
  check_required(out, "out", "the directory to make");
  for (const auto& [flag, of] : kOfTasks)
    if (given.contains(flag) && of.find(task) == of.npos)
      throw Mistake(fmt::format("not of this task: {} --{}; it is of {}", task, flag, of));
  std::error_code ignored;
  const bool existed = fs::exists(out, ignored);
  if (existed && !fs::is_directory(out)) throw Mistake(fmt::format("no directory: --out {}; the name of a new or empty directory", out));
  if (!is_free(out)) throw Mistake(fmt::format("exists and is not empty: --out {}; the name of a new or empty directory", out));
  task_options.train = train;
  task_options.seed = std::uint64_t(seed);
  const Task made = make_task(task, task_options);
  try {
    write_task(made, out);
  } catch (...) {
    if (!existed) fs::remove(out, ignored);
    throw;
  }
  if (manner.json) {
    Json json{{"task", made.name}, {"directory", out}, {"tokenizer", made.tokenizer}, {"parts", Json::object()}};
    for (const TaskPart& part : made.parts) json["parts"][part.name] = part.pairs.size();
    print(json_text(json) + "\n");
    return 0;
  }
  std::string parts;
  for (const TaskPart& part : made.parts) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, part.pairs.size());
  print(fmt::format("{}: {}\n", out, parts));
  const TaskPair& first = made.parts[0].pairs[0];
  if (!manner.quiet) print(fmt::format("for example: {} -> {}\n", first.source, first.target));
  return 0;
}

}  // namespace heed::cli
