// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "examples/cli/command.h"
#include "examples/cli/stop.h"
#include "examples/cli/training.h"
#include "tensor/context.h"
#include "tensor/file.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

struct Asked {
  std::string out, config;
  bool resume = false;
  Manner manner;
};

std::vector<Option> own_options(Asked& asked) {
  return {{.name = "out", .value = &asked.out, .takes = "RUN", .help = "directory of the run, new unless --resume", .heading = "Run"},
          {.name = "resume", .value = &asked.resume,
           .help = "go on from its newest checkpoint; only --steps, --epochs, --minutes (one of them replaces all three), --patience, threads, what is saved and where the data are may differ"},
          {.name = "config", .value = &asked.config, .takes = "FILE",
           .help = "a JSON file with any of the options below but --quiet and --json; flags override it, --SWITCH=false too"}};
}

// Of options that exclude each other the ones that were asked for stay alone.
void leave_only(RunConfig& config, std::span<const std::string_view> family, const std::function<bool(std::string_view)>& asked) {
  if (std::ranges::none_of(family, asked)) return;
  RunConfig fresh;
  fresh.steps = fresh.batch_tokens = {};
  const std::vector<Option> from = options(fresh), to = options(config);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (std::ranges::find(family, to[i].name) != family.end() && !asked(to[i].name))
      copy_value(from[i], to[i]);
}

// What a file says of where data and words come from is put aside by a flag that names others.
struct Replaced {
  std::vector<std::string_view> by, family;
};
const Replaced kReplaced[] = {
    {{"data", "train-files", "train"},
     {"data", "train-files", "dev-files", "test-files", "train", "split-by-source", "split-dev", "split-test"}},
    {{"vocabularies"}, {"vocabularies", "tokenizer", "sentencepiece", "lowercase", "min-count", "vocabulary-size"}}};

// Flags before the file, the file before the defaults, which are those of the kind of model, schedule and optimizer.
void take(RunConfig& config, const Syntax& syntax, const Given& given, const std::string& file) {
  const std::string text = file.empty() ? "{}" : read_file(file, 1 << 20);
  from_json(options(config), text, file, false);
  set_options(syntax, given);
  config = default_config(config.model, config.schedule, config.optimizer);
  if (!file.empty()) {
    const std::vector<std::string> names = from_json(options(config), text, file, false);
    const auto in_file = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
    leave_only(config, kLimits, in_file);
    leave_only(config, kBatches, in_file);
  }
  set_options(syntax, given);
  const auto as_flag = [&](std::string_view name) { return given.contains(name); };
  leave_only(config, kLimits, as_flag);
  leave_only(config, kBatches, as_flag);
  for (const auto& [by, family] : kReplaced)
    if (std::ranges::any_of(by, as_flag)) leave_only(config, family, as_flag);
}

// What was asked for must be what is stored, but for what may change, which is taken over.
void compare(RunConfig& stored, RunConfig asked, std::span<const std::string> names, const std::string& run) {
  RunConfig fresh;
  const std::vector<Option> from = options(stored), to = options(asked), defaults = options(fresh);
  for (std::size_t i = 0; i < to.size(); ++i)                                      // what auto became
    if (value_text(to[i]) == "auto" && value_text(defaults[i]) == "auto" && to[i].name != "final-norm")
      copy_value(from[i], to[i]);
  const auto wanted = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  if (!wanted("model")) asked.model = stored.model;                                // names are read as those of its kind
  settle(asked);
  take_over(stored, asked, [&](const Option& option) { return wanted(option.name); }, run);
  leave_only(stored, kLimits, wanted);
}

int finish(Training& training, const Asked& asked) {
  const int code = training.run();
  if (code == 0) training.result();
  else if (!asked.manner.quiet)
    note(fmt::format("stopped by {} after update {}; `heed train --out {} --resume` goes on", signal_name(code - 128), training.step(),
                     asked.out));
  return code;
}

int resume(const Asked& asked, const Syntax& syntax, const Given& given, RunConfig& config) {
  if (fs::exists(asked.out) && is_vacant(asked.out))
    throw Mistake(fmt::format("no run yet: --out {} --resume; without --resume it begins", asked.out));
  Run run = open_run(asked.out);
  std::vector<std::string> names;
  if (!asked.config.empty()) names = from_json(options(config), read_file(asked.config, 1 << 20), asked.config, false);
  set_options(syntax, given);
  for (const auto& [name, values] : given) names.push_back(name);
  compare(run.config, config, names, asked.out);
  leave_only(run.config, kLimits, [&](std::string_view name) { return given.contains(name); });
  check_config(run.config);
  if (run.config.threads) set_threads(int(*run.config.threads));
  const RunConfig changed = run.config;
  Training training(std::move(run), read_dataset(changed), asked.manner);
  if (training.resume()) return finish(training, asked);
  training.result();
  return 0;
}

}  // namespace

int train(std::span<const std::string> words) {
  Asked asked;
  RunConfig config;
  const Syntax syntax{.command = "train",
                      .usage = "--data DIR --out RUN [options]     or: --out RUN --resume",
                      .about = "Trains a model and keeps all there is to it in the directory RUN.",
                      .example = "heed train --data phrases-data --out phrases --steps 3000 --threads 2",
                      .options = own_options(asked) + options(config) + options(asked.manner)};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  check_required(asked.out, "out", "the directory of the run");
  if (asked.resume) return resume(asked, syntax, given, config);

  std::error_code ignored;
  if (fs::exists(fs::path(asked.out) / "config.json", ignored))
    throw Mistake(fmt::format("the run exists: --out {}; --resume to go on with it, or another name", asked.out));
  take(config, syntax, given, asked.config);
  check_config(config);
  check_read(config);
  if (fs::exists(asked.out, ignored)) {
    if (!fs::is_directory(asked.out)) throw Mistake(fmt::format("no directory: --out {}; the name of a new directory", asked.out));
    if (!is_vacant(asked.out))
      throw Mistake(fmt::format("exists, is not empty and no run: --out {}; the name of a new directory", asked.out));
  }
  if (config.threads) set_threads(int(*config.threads));
  const std::string decoder = config.decoder;
  settle(config);
  Dataset data = read_dataset(config);
  const std::string links = unused_links(config, data.train);
  Run run = make_run(asked.out, config, data);
  Training training(std::move(run), std::move(data), asked.manner);
  if (decoder != "auto" && decoder != config.decoder && !asked.manner.quiet)
    note(fmt::format("--decoder {} without attention is {}", decoder, config.decoder));
  if (!links.empty() && !asked.manner.quiet) note(links);
  training.begin();
  return finish(training, asked);
}

}  // namespace heed::cli
