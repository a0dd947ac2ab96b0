// SPDX-License-Identifier: Apache-2.0
#include "models/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>

#include "models/bpe.h"
#include "models/text.h"
#include "models/train.h"
#include "nn/checkpoint.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/safetensors.h"
#include "tensor/sha256.h"

namespace heed {
namespace fs = std::filesystem;
namespace {

constexpr int kFormat = 1;                         // of checkpoints
constexpr std::string_view kFormatKey = "heed.format", kStepKey = "heed.step", kStateKey = "heed.state",
                           kVocabulariesKey = "heed.vocabularies";

// ---- files ----------------------------------------------------------------------------------------------------------

std::string reason(int error) { return std::strerror(error); }

std::string vocabulary_hashes(const Run& run) {
  const auto hash_of = [](const Side& side) {
    Sha256 hash;
    for (const std::string& piece : side.vocabulary.pieces()) hash.update(piece), hash.update(std::string_view("\0", 1));
    return hexadecimal(hash.digest());
  };
  return hash_of(run.source) + " " + hash_of(run.target);
}

void check_made_by(const SafetensorsFile& file, const Run& run) {
  const auto entry = [&](std::string_view key) {
    const auto at = file.metadata.find(std::string(key));
    return at == file.metadata.end() ? std::string() : at->second;
  };
  if (const std::string format = entry(kFormatKey); !format.empty()) {
    int number = 0;
    std::from_chars(format.data(), format.data() + format.size(), number);
    check<FileError>(number == kFormat, "{}: format {} of a checkpoint, this program (heed {}) reads format {}", file.path, format,
                     HEED_VERSION, kFormat);
  }
  if (const std::string made_with = entry(kVocabulariesKey); !made_with.empty())
    check<FileError>(made_with == vocabulary_hashes(run),
                     "{}: made with other vocabularies than those of {} ({} and {} {}s); `heed train --vocabularies RUN` takes those of a run",
                     file.path, run.path, run.source.vocabulary.size(), run.target.vocabulary.size(),
                     run.source.tokenizer.options().noun());
}

// Metadata without what describes the training.
std::map<std::string, std::string> of_weights(std::map<std::string, std::string> metadata) {
  std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("heed."); });
  return metadata;
}

Index step_of(const SafetensorsFile& file) {
  const auto at = file.metadata.find(std::string(kStepKey));
  Index step = -1;
  if (at != file.metadata.end()) std::from_chars(at->second.data(), at->second.data() + at->second.size(), step);
  check<FileError>(step >= 0, "{}: no number of updates in its metadata", file.path);
  return step;
}

std::string join(const std::string& directory, std::string_view name) { return (fs::path(directory) / name).string(); }

void save_side(const std::string& run, const std::string& name, const Side& side) {
  write_file_atomically(join(run, name + ".tokenizer.json"), to_json(side.tokenizer.options()) + "\n");
  if (!side.tokenizer.model().empty()) write_file_atomically(join(run, name + ".model"), side.tokenizer.model());
  save_vocabulary(join(run, name + ".vocabulary"), side.vocabulary);
}

Side load_side(const std::string& run, const std::string& name, const RunConfig& config) {
  const std::string file = join(run, name + ".tokenizer.json"), model = join(run, name + ".model");
  const std::string text = read_file(file, 1 << 20, InputFile::Kind::regular);
  TokenizerOptions options;
  try {
    options = tokenizer_options_from_json(text);
  } catch (const Error& e) {
    fail<FileError>("{}: {}", file, e.what());
  }
  check<FileError>(config.tokenizer == "auto" || options.name == config.tokenizer, "{}: tokenizer {}, but the run's config.json says {}",
                   file, options.name, config.tokenizer);
  check<FileError>(options.lowercase == config.lowercase, "{}: lowercase {}, but the run's config.json says {}", file, options.lowercase,
                   config.lowercase);
  check<FileError>(options.clean == config.split_by_source || !config.vocabularies.empty(),
                   "{}: clean {}, but the run's config.json says split-by-source {}", file, options.clean, config.split_by_source);
  Side side{Tokenizer(options, options.name == "bpe" ? read_file(model, kLargestModel, InputFile::Kind::regular) : std::string(), model),
            load_vocabulary(join(run, name + ".vocabulary"))};
  if (options.name != "bpe") return side;
  const std::vector<std::string> pieces = side.tokenizer.pieces();
  const std::set<std::string_view> known(pieces.begin(), pieces.end());
  const Vocabulary& words = side.vocabulary;
  for (Index id = 0; id < words.size(); ++id)
    if (id != words.pad && id != words.unk && id != words.bos && id != words.eos)
      check<FileError>(known.contains(words.piece(id)), "{}: not the model that {}.vocabulary was made with: it has no piece {}", model,
                       name, quote(words.piece(id)));
  return side;
}

// What create_run makes before config.json.
bool comes_before_config(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  for (const std::string side : {"source", "target"})
    if (name == side + ".tokenizer.json" || name == side + ".model" || name == side + ".vocabulary") return true;
  return name == "lock" || name.starts_with(kTemporaryPrefix) || (name == "checkpoints" && fs::is_directory(entry) && fs::is_empty(entry));
}

}  // namespace

void refuse(const fs::filesystem_error& e) {
  throw FileError(fmt::format("{}: {}", e.path1().string(), e.code().message()), e.code().value());
}

Batch make_batch(const Run& run, std::span<const Example> examples) {
  const Vocabulary& words = run.target.vocabulary;
  return make_batch(examples, words.pad, start_symbol(run.config, words));
}

Batch make_batch(const Run& run, std::span<const Example> examples, std::span<const Index> rows) {
  const Vocabulary& words = run.target.vocabulary;
  return make_batch(examples, rows, words.pad, start_symbol(run.config, words));
}

// ---- the directory --------------------------------------------------------------------------------------------------

bool is_vacant(const std::string& path) try {
  if (!fs::exists(path)) return true;
  if (!fs::is_directory(path)) return false;
  for (const auto& entry : fs::directory_iterator(path))
    if (!fs::exists(join(path, "lock")) || !comes_before_config(entry)) return false;
  return true;
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

std::unique_ptr<RunLock> create_run(const Run& run) try {
  const bool existed = fs::exists(run.path);
  check<FileError>(!existed || fs::is_directory(run.path), "{}: is no directory", run.path);
  check<FileError>(is_vacant(run.path), "{}: exists and is not empty", run.path);
  make_directory(run.path);
  std::error_code ignored;
  std::unique_ptr<RunLock> lock;
  try {
    lock = std::make_unique<RunLock>(run.path);
    check<FileError>(is_vacant(run.path), "{}: exists and is not empty", run.path);   // another training began and ended meanwhile
  } catch (...) {
    if (!existed) fs::remove(run.path, ignored);                                      // unless it holds what is another's
    throw;
  }
  try {
    for (const auto& entry : fs::directory_iterator(run.path))
      if (entry.path().filename() != "lock") fs::remove_all(entry.path());
    save_side(run.path, "source", run.source);
    save_side(run.path, "target", run.target);
    make_directory(join(run.path, "checkpoints"));
    RunConfig config = run.config;
    write_file_atomically(join(run.path, "config.json"), to_json(options(config)));
    return lock;
  } catch (...) {
    if (!existed) fs::remove_all(run.path, ignored);
    else for (const auto& entry : fs::directory_iterator(run.path, ignored)) fs::remove_all(entry.path(), ignored);
    throw;
  }
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

Run open_run(const std::string& path) try {
  const std::string file = join(path, "config.json");
  check<FileError>(fs::exists(path), "no such run: {}; a directory that `heed train` made", path);
  check<FileError>(fs::exists(file), "no run: {} has no config.json; a directory that `heed train` made", path);
  Run run{path, {}, {}, {}};
  from_json(options(run.config), read_file(file, 1 << 20, InputFile::Kind::regular), file);
  run.source = load_side(path, "source", run.config);
  run.target = load_side(path, "target", run.config);
  check<FileError>(run.config.tie != "all" || run.source.vocabulary == run.target.vocabulary,
                   "{}: tie \"all\" needs one vocabulary: source.vocabulary has {} {}s, target.vocabulary {} others", path,
                   run.source.vocabulary.size(), run.source.tokenizer.options().noun(), run.target.vocabulary.size());
  return run;
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

RunLock::RunLock(const std::string& run) {
  const std::string path = join(run, "lock");
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw FileError(fmt::format("{}: cannot open: {}", path, reason(errno)), errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char text[32]{};
    const auto count = ::read(file_, text, sizeof(text) - 1);
    ::close(file_);
    const std::string owner(text, count > 0 ? std::size_t(count) : 0);
    if (error == EWOULDBLOCK) throw FileError(fmt::format("another training holds {}: process {}", run, owner.substr(0, owner.find('\n'))));
    throw FileError(fmt::format("{}: cannot lock: {}", path, reason(error)), error);
  }
  const std::string owner = fmt::format("{}\n", ::getpid());
  // only for the message above
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, owner.data(), owner.size(), 0) != ssize_t(owner.size())) {}
  std::error_code ignored;
  for (const std::string& folder : {run, join(run, "checkpoints"), join(run, "attention")})
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(kTemporaryPrefix)) fs::remove(entry.path(), ignored);
}

RunLock::~RunLock() { ::close(file_); }

// ---- weights and checkpoints ----------------------------------------------------------------------------------------

SafetensorsFile read_weights(const std::string& path, const Run* fits) {
  SafetensorsFile file = read_safetensors(path);
  if (fits) check_made_by(file, *fits);
  for (const std::string_view prefix : {Trainer::kAveragePrefix, kModelPrefix})
    if (auto weights = under(file.tensors, prefix); !weights.empty()) {
      file.tensors = std::move(weights);
      file.others = under(file.others, prefix);
      break;
    }
  file.metadata = of_weights(std::move(file.metadata));
  return file;
}

LoadedModel load_model(const Run& run, const std::string& file) try {
  LoadedModel loaded;
  loaded.parameters = std::make_unique<Parameters>(Seed{std::uint64_t(run.config.seed)});
  loaded.model = make_model(run.config, loaded.parameters->root(), run.source.vocabulary, run.target.vocabulary);
  std::vector<std::string> candidates{file};
  if (file.empty()) {
    candidates = {join(run.path, "best.safetensors")};
    if (!fs::exists(candidates[0])) candidates.clear();
    const std::vector<Index> steps = checkpoint_steps(run.path);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) candidates.push_back(checkpoint_path(run.path, *step));
    check<FileError>(!candidates.empty(),
                     "no weights: {} has neither best.safetensors nor a checkpoint; `heed train --out {} --resume` makes them", run.path,
                     run.path);
  }
  std::exception_ptr first;                        // of the files that do not do
  for (const std::string& candidate : candidates) {
    try {
      SafetensorsFile weights = read_weights(candidate, &run);
      convert_floats(weights, loaded.parameters->dtype());
      load(loaded.parameters->select(), weights);
      loaded.file = candidate;
      return loaded;
    } catch (const FileError& e) {
      if (!first) first = std::current_exception();
      loaded.passed_over.push_back(e.what());
    }
  }
  std::rethrow_exception(first);
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

LoadedModel load_mean(const Run& run, std::span<const std::string> files) {
  check<Error>(!files.empty(), "load_mean: no files of weights");
  LoadedModel loaded = load_model(run, files[0]);
  const Selection all = loaded.parameters->select();
  std::vector<std::map<std::string, Tensor>> weights;
  for (const std::string& file : files) {
    load(all, read_weights(file, &run));
    for (auto& [name, value] : weights.emplace_back(state(all))) value = value.clone();
  }
  load(all, mean_weights(weights));
  loaded.file = fmt::format("{}", fmt::join(files, ","));
  return loaded;
}

std::string checkpoint_path(const std::string& run, Index step) { return join(run, fmt::format("checkpoints/{}.safetensors", step)); }

std::vector<Index> checkpoint_steps(const std::string& run) {
  std::vector<Index> steps;
  const std::string folder = join(run, "checkpoints");
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw FileError(fmt::format("{}: cannot read: {}", folder, error.message()), error.value());
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    Index step = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (bad == std::errc() && std::string_view(end, std::size_t(name.data() + name.size() - end)) == ".safetensors") steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void write_checkpoint(const Run& run, const Checkpoint& checkpoint) {
  std::map<std::string, std::string> metadata = checkpoint.gru_forms;
  metadata[std::string(kFormatKey)] = fmt::format("{}", kFormat);
  metadata[std::string(kStepKey)] = fmt::format("{}", checkpoint.step);
  metadata[std::string(kStateKey)] = checkpoint.state;
  metadata[std::string(kVocabulariesKey)] = vocabulary_hashes(run);
  write_safetensors(checkpoint_path(run.path, checkpoint.step), checkpoint.tensors, metadata);
}

void write_best(const Run& run, const std::map<std::string, Tensor>& weights, const std::map<std::string, std::string>& gru_forms,
                Index step) {
  std::map<std::string, std::string> metadata = gru_forms;
  metadata[std::string(kStepKey)] = fmt::format("{}", step);
  metadata[std::string(kVocabulariesKey)] = vocabulary_hashes(run);
  write_safetensors(join(run.path, "best.safetensors"), weights, metadata);
}

std::optional<Index> best_step(const Run& run) try {
  const std::string path = join(run.path, "best.safetensors");
  if (!fs::exists(path)) return {};
  try {
    const SafetensorsFile file = read_safetensors(path);
    check_made_by(file, run);
    return step_of(file);
  } catch (const FileError&) {
    return {};
  }
} catch (const fs::filesystem_error& e) {
  refuse(e);
}

Checkpoint read_checkpoint(const Run& run, Index step) {
  SafetensorsFile file = read_safetensors(checkpoint_path(run.path, step));
  check_made_by(file, run);
  const auto state = file.metadata.find(std::string(kStateKey));
  check<FileError>(file.metadata.contains(std::string(kFormatKey)) && state != file.metadata.end(),
                   "{}: no checkpoint of a training; its metadata has no state", file.path);
  check<FileError>(step_of(file) == step, "{}: holds step {}", file.path, step_of(file));
  return {step, std::move(file.tensors), state->second, of_weights(file.metadata)};
}

void remove_old_checkpoints(const std::string& run, Index step, Index keep, Index best) {
  std::vector<Index> steps = checkpoint_steps(run);
  std::erase_if(steps, [&](Index other) { return other > step; });
  for (std::size_t i = 0; i + std::size_t(keep) < steps.size(); ++i) {
    std::error_code ignored;
    if (steps[i] != best) fs::remove(checkpoint_path(run, steps[i]), ignored);
  }
}

}  // namespace heed
