// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "examples/cli/command.h"
#include "examples/tasks/tasks.h"
#include "models/bpe.h"
#include "models/recurrent_config.h"
#include "tensor/file.h"
#include "tensor/json.h"
#include "tensor/sha256.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

// The tokenizer that `heed data` names beside its data; empty for other data.
std::string named_tokenizer(const RunConfig& config) {
  if (config.data.empty()) return {};
  const std::string file = (fs::path(config.data) / "task.json").string();
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const auto json = parse_json(read_file(file, 1 << 20));
  const std::vector<std::string> names = tokenizer_names();
  std::string name;
  if (json.is_object() && json.contains("tokenizer") && json["tokenizer"].is_string()) name = json["tokenizer"].get<std::string>();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw FileError(fmt::format("{}: no known tokenizer in it; `heed data` writes it", file));
  return name;
}

void make_absolute(std::string& path) {
  if (!path.empty() && !path.starts_with("/dev/")) path = fs::weakly_canonical(fs::absolute(path)).string();
}

// Links are part of it where the training reads them.
std::string checksum(const std::vector<Example>& train, const std::vector<Example>& dev, bool with_links) {
  Sha256 hash;
  const auto add = [&](const auto& ids) { hash.update({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])}); };
  for (const auto* part : {&train, &dev})
    for (const Example& example : *part) {
      add(example.source), add(example.target);
      if (with_links) hash.update(to_string(example.links.sure));
    }
  return hexadecimal(hash.digest());
}

std::string digest(const std::string& path) {
  InputFile file(path, InputFile::Kind::any);
  Sha256 hash;
  std::string block(std::size_t(1) << 16, '\0');
  while (const std::size_t n = file.read_some(block.data(), block.size())) hash.update(std::string_view(block).substr(0, n));
  return hexadecimal(hash.digest());
}

std::string digest_file(const Run& run) { return (fs::path(run.path) / "data.sha256").string(); }

}  // namespace

void settle(RunConfig& config) {
  make_absolute(config.data);
  make_absolute(config.train);
  make_absolute(config.init);
  settle_recurrent(config);
  for (auto* files : {&config.train_files, &config.dev_files, &config.test_files})
    for (std::string& file : *files) make_absolute(file);
  for (std::string& file : config.sentencepiece) make_absolute(file);
  make_absolute(config.vocabularies);
  if (config.tokenizer != "auto") return;
  if (!config.vocabularies.empty()) {
    const Run words = open_run(config.vocabularies);
    config.tokenizer = words.source.tokenizer.options().name;
    config.lowercase |= words.config.lowercase;
    return;
  }
  if (!config.sentencepiece.empty()) {
    config.tokenizer = "bpe";
    return;
  }
  const std::string named = named_tokenizer(config);
  config.tokenizer = named.empty() ? "word" : named;
}

namespace {

Corpus find_part(const RunConfig& config, const std::string& part, CorpusOptions options) {
  if (!config.data.empty()) {
    if (!fs::is_directory(config.data))
      throw Mistake(fmt::format("no such directory: --data {}; one with train.tsv, dev.tsv and test.tsv", config.data));
    if (fs::exists(fs::path(config.data) / kUnfinished))
      throw Mistake(fmt::format("unfinished data: --data {}; `heed data` was stopped while it made them, make them again", config.data));
    const std::string file = (fs::path(config.data) / (part + ".tsv")).string();
    if (!fs::exists(file)) {
      std::set<std::string> parts;
      for (const auto& entry : fs::directory_iterator(config.data))
        if (entry.path().extension() == ".tsv") parts.insert(entry.path().filename().string());
      throw Mistake(fmt::format("no such file: {}; --data expects train.tsv, dev.tsv and test.tsv in its directory{}", file,
                                parts.empty() ? "" : fmt::format(", where there is {}", fmt::join(parts, ", "))));
    }
    return read_tsv(file, options);
  }
  if (!config.train.empty()) {
    CorpusSplit split = split_by_source(read_tsv(config.train), {config.split_dev, config.split_test});
    if (part == "train") return std::move(split.train);
    if (part == "dev") return std::move(split.dev);
    if (part == "test") return std::move(split.test);
  }
  const auto& files = part == "train" ? config.train_files : part == "dev" ? config.dev_files : config.test_files;
  if (part == "test" && files.empty())
    throw Mistake("no test part: --train-files and --dev-files alone; --test-files SOURCE TARGET, to evaluate --files, or --split dev");
  if (files.size() != 2 || (part != "train" && part != "dev" && part != "test"))
    throw Mistake(fmt::format("no such part: {}; the run knows train, dev{}", part,
                              config.train.empty() && config.test_files.empty() ? "" : ", test"));
  return read_parallel(files[0], files[1], options);
}

}  // namespace

Corpus read_part(const RunConfig& config, const std::string& part, CorpusOptions options) try {
  Corpus corpus = find_part(config, part, options);
  if (corpus.pairs.empty()) throw Mistake(fmt::format("an empty part: {}; at least one pair", corpus.name));
  return corpus;
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

Dataset read_dataset(const RunConfig& config) {
  if (config.train.empty()) return {read_part(config, "train"), read_part(config, "dev")};
  CorpusSplit split = split_by_source(read_tsv(config.train), {config.split_dev, config.split_test});
  return {std::move(split.train), std::move(split.dev)};
}

std::string shared_warning(Index shared, const Corpus& part) {
  return fmt::format("warning: {} of {} source sentences of {} stand in the training data as well", shared, part.pairs.size(), part.name);
}

bool has_links(const RunConfig& config) {
  const std::string named = named_tokenizer(config);
  return config.tokenizer == (named.empty() ? "space" : named);
}

namespace {

std::string read_sentencepiece(const std::string& file) {
  std::string model = read_file(file, kLargestModel);
  if (scan_sentencepiece_model(model, file) != model)
    throw Mistake(
        fmt::format("an unknown table of normalisation: --sentencepiece {}; a model trained with one of SentencePiece's own, or with "
                    "--normalization_rule_name=identity",
                    file));
  return model;
}

// Mistake where --vocabularies has other words than asked for.
Run with_words_of(const std::string& path, const RunConfig& config) {
  Run words = open_run(config.vocabularies);
  const TokenizerOptions& text = words.source.tokenizer.options();
  const auto contradicts = [&](std::string_view what, std::string_view stored) {
    throw Mistake(fmt::format("contradicts --vocabularies: {}, in {} it is {}; leave it out", what, config.vocabularies, stored));
  };
  if (config.tokenizer != text.name) contradicts(fmt::format("--tokenizer {}", config.tokenizer), text.name);
  if (config.lowercase != text.lowercase) contradicts(fmt::format("--lowercase={}", config.lowercase), text.lowercase ? "true" : "false");
  if (config.tie == "all" && !(words.source.vocabulary == words.target.vocabulary))
    throw Mistake(fmt::format("two vocabularies: --tie all --vocabularies {}; --tie output, or a run with --tie all", config.vocabularies));
  return {path, config, std::move(words.source), std::move(words.target)};
}

// Mistake where nothing but <unk> can be read or written.
Run with_words(Run run) {
  for (const Side* side : {&run.source, &run.target})
    if (side->vocabulary.size() <= Vocabulary().size())
      throw Mistake(run.config.min_count > 1 ? fmt::format("no word is frequent enough: --min-count {}; fewer", run.config.min_count)
                                             : "no word: the data have none but special symbols; other data");
  return run;
}

}  // namespace

Run make_run(const std::string& path, const RunConfig& config, const Dataset& data) {
  if (!config.vocabularies.empty()) return with_words_of(path, config);
  const TokenizerOptions tokenizer{.name = config.tokenizer, .lowercase = config.lowercase, .clean = config.split_by_source};
  const VocabularyOptions vocabulary{.min_count = config.min_count, .max_size = config.vocabulary_size.value_or(0)};
  const std::vector<std::string> sources = source_lines(data.train), targets = target_lines(data.train);
  std::vector<std::string> own;
  for (const std::string& file : config.sentencepiece) own.push_back(read_sentencepiece(file));
  const auto side = [&](std::size_t which, const std::vector<std::string>& lines) {
    return own.empty() ? build_side(lines, tokenizer, vocabulary)
                       : build_side(Tokenizer(tokenizer, own[which], config.sentencepiece[which]), lines, vocabulary);
  };
  if (config.tie != "all") return with_words({path, config, side(0, sources), side(1, targets)});
  if (!own.empty() && own[0] != own[1])
    throw Mistake(fmt::format("two models for one vocabulary: --tie all --sentencepiece {}; the same model twice",
                              fmt::join(config.sentencepiece, " ")));
  std::vector<std::string> both = sources;
  both.insert(both.end(), targets.begin(), targets.end());
  Run run{path, config, side(0, both), {}};
  run.target = run.source;
  if (config.tokenizer == "word") {                // each language keeps its own spacing of marks
    run.source.tokenizer = train_tokenizer(tokenizer, sources);
    run.target.tokenizer = train_tokenizer(tokenizer, targets);
  }
  return with_words(std::move(run));
}

void keep_split_data(const Run& run) {
  if (run.config.split_by_source && fs::is_regular_file(run.config.train))
    write_file_atomically(digest_file(run), digest(run.config.train) + "\n");
}

void check_split_data(const Run& run) {
  if (!run.config.split_by_source || !fs::exists(digest_file(run)) || read_file(digest_file(run), 100) == digest(run.config.train) + "\n")
    return;
  note(fmt::format("warning: {} has changed since it was split for the training: sentences of this part may have been trained on",
                   run.config.train));
}

std::string unused_links(const RunConfig& config, const Corpus& train) {
  if (has_links(config) || std::ranges::all_of(train.pairs, [](const Pair& pair) { return pair.links.sure.empty(); })) return {};
  const std::string named = named_tokenizer(config);
  return fmt::format("{}: its links count words of --tokenizer {}: not read with --tokenizer {}", train.name,
                     named.empty() ? "space" : named, config.tokenizer);
}

namespace {

// --guided-alignment needs links, of the words that this run reads.
void check_links(const RunConfig& config, const Corpus& train) {
  if (std::ranges::all_of(train.pairs, [](const Pair& pair) { return pair.links.sure.empty(); }))
    throw Mistake(fmt::format("no gold links: --guided-alignment {}; training data with a third column \"0-0 1-2\", source-target from 0",
                              config.guided_alignment));
  if (const std::string named = named_tokenizer(config); !has_links(config))
    throw Mistake(fmt::format("links of other words: --guided-alignment {} --tokenizer {}; the links of the data count by --tokenizer {}",
                              config.guided_alignment, config.tokenizer, named.empty() ? "space" : named));
}

}  // namespace

Examples make_examples(const Run& run, Dataset& data) {
  if (run.config.guided_alignment > 0) check_links(run.config, data.train);
  const ExampleOptions options{.max_length = run.config.max_length, .links = has_links(run.config), .copies = run.config.copy};
  Examples examples;
  examples.train = heed::make_examples(data.train, run.source, run.target, options, &data.train.report.too_long);
  examples.dev = heed::make_examples(data.dev, run.source, run.target, options, &data.dev.report.too_long);
  for (const auto& [corpus, part] : {std::pair(&data.train, &examples.train), std::pair(&data.dev, &examples.dev)})
    if (part->empty())
      throw Mistake(fmt::format("no pair is short enough: {}: --max-length {}; more {}s", corpus->name, run.config.max_length,
                                run.source.tokenizer.options().noun()));
  examples.checksum = checksum(examples.train, examples.dev, run.config.guided_alignment > 0);
  return examples;
}

}  // namespace heed::cli
