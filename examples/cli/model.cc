// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/drawing.h"
#include "models/recurrent_config.h"
#include "models/text.h"
#include "tensor/context.h"
#include "tensor/format.h"

namespace heed::cli {

std::vector<Option> options(RunFlags& flags) {
  return {{.name = "run", .value = &flags.run, .takes = "RUN", .help = "directory that `heed train` made", .heading = "Model"},
          {.name = "checkpoint", .value = &flags.checkpoint, .takes = "FILE",
           .help = "its weights instead of best.safetensors or the newest checkpoint; of several, A,B,..: their mean"},
          {.name = "threads", .value = &flags.threads, .takes = "N",
           .help = "else HEED_THREADS, else what the machine offers", .low = 1, .high = 1024}};
}

std::vector<Option> ensemble_options(RunFlags& flags) {
  return {{.name = "ensemble", .value = &flags.ensemble, .takes = "LIST",
           .help = "further models that decode with it: A,B,.., runs with the same words or files of weights of RUN"},
          {.name = "ensemble-mean", .value = &flags.ensemble_mean, .takes = "NAME",
           .help = "of their probabilities, or of the logarithms of these", .choices = {"mean", "log-mean"},
           .standard = flags.ensemble_mean}};
}

std::vector<std::string> listed_files(const std::string& list, std::string_view flag) {
  std::error_code ignored;
  if (list.empty() || std::filesystem::exists(list, ignored)) return {list};
  std::vector<std::string> names = at_commas(list);
  if (std::ranges::find(names, "") != names.end()) throw Mistake(fmt::format("a file without a name: --{} {}; A,B,..", flag, list));
  return names;
}

namespace {

LoadedModel loaded_model(const Run& run, const std::string& file) {
  if (const std::vector<std::string> files = listed_files(file, "checkpoint"); files.size() > 1) return load_mean(run, files);
  LoadedModel loaded = load_model(run, file);
  for (const std::string& wrong : loaded.passed_over) note(fmt::format("warning: passed over: {}; using {}", wrong, loaded.file));
  if (file.empty() && loaded.passed_over.empty() && !loaded.file.ends_with("best.safetensors"))
    note(fmt::format("{} has no best.safetensors: using {}", run.path, loaded.file));
  return loaded;
}

// Mistake where another run does not read and write as this one.
void check_fits(const Run& run, const Run& other) {
  const auto differs = [&](std::string_view what) {
    throw Mistake(fmt::format("models that do not fit: --ensemble {}: {} not as in {}; runs of the same data and text options, or of one's "
                              "--vocabularies",
                              other.path, what, run.path));
  };
  for (const auto& [a, b] : {std::pair(&run.source, &other.source), std::pair(&run.target, &other.target)}) {
    if (!(a->vocabulary == b->vocabulary)) differs("vocabularies");
    if (to_json(a->tokenizer.options()) != to_json(b->tokenizer.options()) || a->tokenizer.model() != b->tokenizer.model())
      differs("tokenizer");
  }
  if (run.config.start != other.config.start) differs("--start");
  if (run.config.copy != other.config.copy) differs("--copy");
  if (max_positions(other.config) < max_positions(run.config)) differs("--max-length");
}

}  // namespace

Ready ready(const RunFlags& flags) {
  check_required(flags.run, "run", "a directory that `heed train` made");
  if (flags.threads) set_threads(int(*flags.threads));
  Run run = open_run(flags.run);
  LoadedModel loaded = loaded_model(run, flags.checkpoint);
  const bool looks = attends(run.config);
  Ready ready{std::move(run), std::move(loaded), {}, {}, looks};
  if (flags.ensemble.empty()) {
    if (flags.ensemble_mean != "mean")
      throw Mistake(fmt::format("one model alone: --ensemble-mean {}; it goes with --ensemble", flags.ensemble_mean));
    return ready;
  }
  for (const std::string& name : listed_files(flags.ensemble, "ensemble")) {
    const bool is_weights = std::filesystem::is_regular_file(name);
    const Run other = is_weights ? Run() : open_run(name);
    if (!is_weights) check_fits(ready.run, other), ready.attends |= attends(other.config);
    ready.others.push_back(is_weights ? loaded_model(ready.run, name) : loaded_model(other, {}));
  }
  std::vector<const Translator*> models{ready.loaded.model.get()};
  for (const LoadedModel& other : ready.others) models.push_back(other.model.get());
  ready.ensemble = std::make_unique<Ensemble>(std::move(models), ensemble_mean_named(flags.ensemble_mean));
  return ready;
}

std::string weights_file(const std::string& path) {
  return std::filesystem::is_directory(path) ? loaded_model(open_run(path), {}).file : path;
}

void note_cut(const Overlooked& overlooked, const Run& run, Index max_length, const Manner& manner) {
  if (manner.quiet || overlooked.cut == 0) return;
  note(fmt::format("{} longer than {} {} cut; only what stands before is translated", counted(overlooked.cut, "line"),
                   counted(max_length, run.source.tokenizer.options().noun()), overlooked.cut == 1 ? "was" : "were"));
}

void note_unknown(std::span<const std::string> words, const Manner& manner, std::string_view where) {
  if (manner.quiet || words.empty()) return;
  std::vector<std::string> shown;
  for (const std::string& word : words) shown.push_back(drawing::shorten(word, 40));
  note(fmt::format("{}unknown to the model: {}", where, first_ten(shown, ", ")));
}

void note_unknown(const Run& run, const std::string& source, const std::string& target, const Manner& manner) {
  const std::vector<std::string> copied = run.config.copy ? run.source.tokenizer.tokens(repaired(source)) : std::vector<std::string>();
  const auto note = [&](const Side& side, const std::string& text, std::string_view flag) {
    std::vector<std::string> unknown;
    for (const std::string& token : side.tokenizer.tokens(repaired(text)))
      if (side.vocabulary.id(token) == side.vocabulary.unk && std::ranges::find(unknown, token) == unknown.end() &&
          std::ranges::find(copied, token) == copied.end())
        unknown.push_back(token);
    note_unknown(unknown, manner, flag);
  };
  note(run.source, source, "--source: ");
  note(run.target, target, "--target: ");
}

Example sentence_pair(const Ready& model, const std::string& source, const std::string& target) {
  const Run& run = model.run;
  const Index longest = run.config.max_length;
  Example example = encode_pair(run.source, run.target, repaired(source), repaired(target), run.config.copy);
  if (example.source.size() == 1) throw Mistake("an empty sentence: --source; at least one word");
  if (!run.config.copy)
    for (const std::string& token : run.source.tokenizer.tokens(repaired(source)))
      if (run.source.vocabulary.id(token) == run.source.vocabulary.unk) example.unknown.push_back(token);
  if (Index(example.source.size()) > longest + 1)
    throw Mistake(fmt::format("a long sentence: --source: {}; at most {}, as in training",
                              counted(Index(example.source.size()) - 1, run.source.tokenizer.options().noun()), longest));
  if (target.empty()) {
    example.target = search(model.model(), std::span(&example.source, 1), search_options(run))[0][0].ids;
    example.target.push_back(run.target.vocabulary.eos);
    return example;
  }
  if (Index(example.target.size()) > max_positions(run.config))
    throw Mistake(fmt::format("a long sentence: --target: {}; at most {}",
                              counted(Index(example.target.size()) - 1, run.source.tokenizer.options().noun()),
                              max_positions(run.config) - 1));
  return example;
}

void check_not_data(const RunConfig& config, const std::string& output) {
  check_different(config.train, output);
  for (const auto* files : {&config.train_files, &config.dev_files, &config.test_files})
    for (const std::string& file : *files) check_different(file, output);
}

void check_outside(const Ready& model, const std::string& output) {
  if (output.starts_with("/dev/")) return;
  for (const std::string& file : listed_files(model.loaded.file, "checkpoint")) check_different(file, output);
  for (const LoadedModel& other : model.others) check_different(other.file, output);
  check_not_data(model.run.config, output);
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::weakly_canonical(output), folder = file.parent_path();
  for (const fs::path& run : {folder, folder.parent_path()}) {
    if (!fs::exists(run / "config.json", ignored) || !fs::exists(run / "source.vocabulary", ignored)) continue;
    const std::string in_run = file.lexically_relative(run).generic_string();
    for (const std::string_view own : {"config.json", "source.tokenizer.json", "source.model", "source.vocabulary", "target.tokenizer.json",
                                       "target.model", "target.vocabulary", "best.safetensors", "checkpoints/", "data.sha256",
                                       "seconds.json", "metrics.jsonl", "curves.svg", "attention/sentence-", "lock"})
      if (own.ends_with('/') || own.ends_with('-') ? in_run.starts_with(own) : in_run == own)
        throw Mistake(fmt::format("a file of a run: --out {}; another name", output));
  }
  const std::string name = file.filename().string();
  const bool is_part = (name == "train.tsv" || name == "dev.tsv" || name.starts_with("test")) && name.ends_with(".tsv");
  if ((is_part || name == "task.json") && fs::exists(folder / "train.tsv", ignored) && fs::exists(file, ignored))
    throw Mistake(fmt::format("a file of data: --out {}; another name", output));
}

std::vector<Option> options(SearchFlags& flags) {
  static const SearchFlags standard;
  const auto number = [](auto x) { return fmt::format("{}", x); };
  return {
      {.name = "beam", .value = &flags.beam, .takes = "N",
       .help = "hypotheses kept; 1: greedy", .low = 1, .high = 1000, .standard = number(standard.beam), .heading = "Search"},
      {.name = "nbest", .value = &flags.nbest, .takes = "N",
       .help = "translations of a line, at most --beam, fewer where hypotheses have the same text; from 2 on each behind the line's number and its score, tabs between; with --sample: draws",
       .low = 1, .high = 1000, .standard = number(standard.nbest)},
      {.name = "length-penalty", .value = &flags.length_penalty, .takes = "NAME",
       .help = "what log P is divided by", .choices = {"gnmt", "average", "none"}, .standard = standard.length_penalty},
      {.name = "alpha", .value = &flags.alpha, .takes = "X",
       .help = "exponent of the length penalty", .low = 0, .high = 10, .standard = number(standard.alpha)},
      {.name = "stop", .value = &flags.stop, .takes = "NAME",
       .help = "bound: a sentence ends when none that goes on can become better; first-k: with --beam finished translations, which may miss a better one",
       .choices = {"bound", "first-k"}, .standard = standard.stop},
      {.name = "coverage", .value = &flags.coverage, .takes = "X",
       .help = "weight of the coverage penalty", .low = 0, .high = 100, .standard = number(standard.coverage)},
      {.name = "extra-length", .value = &flags.extra_length, .takes = "N",
       .help = "a translation has at most this many tokens more than its source, its end counted, unless --min-length or a prefix asks for more",
       .low = 0, .high = 1e5, .standard = number(standard.extra_length)},
      {.name = "min-length", .value = &flags.min_length, .takes = "N",
       .help = "and at least this many tokens", .low = 0, .high = 1e5, .standard = number(standard.min_length)},
      {.name = "no-repeat-ngram", .value = &flags.no_repeat_ngram, .takes = "N",
       .help = "no n tokens in a row twice; 0: allowed", .low = 0, .high = 1e5, .standard = number(standard.no_repeat_ngram)},
      {.name = "replace-unk", .value = &flags.replace_unk, .help = "<unk> becomes the source word most looked at; models write it that have learned it, by --min-count 2 or more"},
      {.name = "sample", .value = &flags.sample, .help = "draw words by their probability instead of searching"},
      {.name = "temperature", .value = &flags.temperature, .takes = "X",
       .help = "of the draws; towards 0: greedy", .low = 0, .high = 1000, .standard = number(standard.temperature)},
      {.name = "top-k", .value = &flags.top_k, .takes = "N",
       .help = "draw from the N likeliest words; 0: from all", .low = 0, .high = 1e9, .standard = number(standard.top_k)},
      {.name = "top-p", .value = &flags.top_p, .takes = "P",
       .help = "draw from the fewest words whose probabilities reach P", .low = 0, .high = 1, .standard = number(standard.top_p)},
      {.name = "seed", .value = &flags.seed, .takes = "N",
       .help = "of the draws", .low = 0, .high = kLargestSeed, .standard = number(standard.seed)},
      {.name = "batch", .value = &flags.batch, .takes = "N",
       .help = "sentences decoded together", .low = 1, .high = 1e5, .standard = number(standard.batch)},
      {.name = "precision", .value = &flags.precision, .takes = "NAME",
       .help = "of weights where they are multiplied; int8: of what they multiply too", .choices = {"float32", "bfloat16", "int8"},
       .standard = standard.precision},
  };
}

TranslateOptions translate_options(const SearchFlags& f, const Given& given) {
  if (!f.sample && f.nbest > f.beam)
    throw Mistake(fmt::format("more translations than hypotheses: --nbest {} --beam {}; --beam {} or more", f.nbest, f.beam, f.nbest));
  for (const char* name : {"temperature", "top-k", "top-p", "seed"})
    if (const auto at = given.find(name); !f.sample && at != given.end())
      throw Mistake(fmt::format("nothing is drawn: --{} {}; it goes with --sample", name, at->second[0]));
  if (f.sample && given.contains("beam")) throw Mistake(fmt::format("nothing is searched: --sample --beam {}; one of them", f.beam));
  if (f.sample && given.contains("stop")) throw Mistake(fmt::format("nothing is searched: --sample --stop {}; one of them", f.stop));
  if (f.length_penalty == "none" && given.contains("alpha"))
    throw Mistake(fmt::format("nothing is divided: --length-penalty none --alpha {}; leave out --alpha", f.alpha));
  if (f.sample && f.top_p == 0) throw Mistake("out of range: --top-p 0; a number above 0, at most 1, default 1");
  TranslateOptions options{.search = {.beam = f.sample ? 1 : f.beam,
                                      .nbest = f.nbest,
                                      .penalty = length_penalty_named(f.length_penalty),
                                      .alpha = f.alpha,
                                      .stop = stop_named(f.stop),
                                      .coverage = f.coverage,
                                      .extra_length = f.extra_length,
                                      .min_length = f.min_length,
                                      .no_repeat_ngram = f.no_repeat_ngram,
                                      .batch = f.batch},
                           .replace_unk = f.replace_unk};
  if (f.sample) options.search.sampling = Sampling{f.temperature, f.top_k, f.top_p, Key(Seed{std::uint64_t(f.seed)})};
  return options;
}

bool attends(const RunConfig& config) { return !is_recurrent(config.model) || config.attention != "none"; }

void check_search(const SearchFlags& f, const Ready& model) {
  if (!model.attends && f.replace_unk) throw Mistake("no attention over the source: --replace-unk; a run trained with attention");
  if (!model.attends && f.coverage != 0)
    throw Mistake(fmt::format("no attention over the source: --coverage {}; a run trained with attention", f.coverage));
  if (const Index most = max_positions(model.run.config); std::max(f.min_length, f.extra_length) > most)
    throw Mistake(fmt::format("out of range: --{} {}; at most {} for this run", f.min_length > most ? "min-length" : "extra-length",
                              f.min_length > most ? f.min_length : f.extra_length, most));
}

void draw_on(TranslateOptions& options, const Run& run, std::span<const std::string> lines) {
  if (auto& sampling = options.search.sampling)
    sampling->first += std::ranges::count_if(lines, [&](const std::string& line) { return !source_tokens(run, line).empty(); });
}

}  // namespace heed::cli
