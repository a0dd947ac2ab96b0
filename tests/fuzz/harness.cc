// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/harness.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/cli/command.h"
#include "examples/cli/log.h"
#include "examples/cli/training.h"
#include "models/alignment.h"
#include "models/bpe.h"
#include "models/corpus.h"
#include "models/run_config.h"
#include "models/tokenizer.h"
#include "models/vocabulary.h"
#include "tensor/error.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/ops/einsum.h"
#include "tensor/safetensors.h"
#include "tests/temporary_folder.h"

namespace heed::fuzz {
namespace {

// A regular file in memory, the same one for all bytes.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) {
    if (file() < 0 || ::ftruncate(file(), 0) != 0 || ::pwrite(file(), bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
      throw std::runtime_error("no memory file");
  }
  static const std::string& path() {
    static const std::string name = fmt::format("/proc/self/fd/{}", file());
    return name;
  }

 private:
  static int file() {
    static const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
    return descriptor;
  }
};

// A table is made once: nothing in it depends on the bytes.
struct Table {
  RunConfig config;
  std::vector<Option> rows = options(config);
};
Table& fresh_table() {
  static Table table;
  table.config = RunConfig();
  return table;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// True where f took it. Anything but an Error is a find.
template <class F> bool taken(F&& f) {
  try {
    f();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void safetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  SafetensorsFile read;
  if (!taken([&] { read = read_safetensors(file.path()); })) return;
  std::uint64_t stored = 0;
  for (const StoredTensor& tensor : read.header.tensors) stored += tensor.end - tensor.begin;
  require(stored < bytes.size(), "tensors of more bytes than the file has");
}

// As many multiples of 8 zeros as the first byte says are the data, the rest is the header: what a fuzzer changes reaches the rules.
void safetensors_header(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::uint64_t n = bytes.size() - 1;
  std::string file(reinterpret_cast<const char*>(&n), 8);
  file += bytes.substr(1);
  file.append(8 * static_cast<unsigned char>(bytes[0]), '\0');
  safetensors(file);
}

void config(std::string_view bytes) {
  Table& table = fresh_table();
  RunConfig& config = table.config;
  if (!taken([&] { from_json(table.rows, bytes, "config.json", false); }))
    return require(config == RunConfig(), "a refused file changed an option");
  const RunConfig read = config;
  const std::string once = to_json(table.rows);
  config = RunConfig();
  from_json(table.rows, once, "config.json");
  require(config == read, "an option differs when it was written and read");
  taken([&] { check_config(config); });
}

void json(std::string_view bytes) {
  const Json read = parse_json(bytes);
  if (!read.is_discarded()) require(parse_json(json_text(read)) == read, "a value differs when it was written and read");
}

void tokenizer(std::string_view bytes) {
  taken([&] {
    const TokenizerOptions read = tokenizer_options_from_json(bytes);
    const std::string once = to_json(read);
    require(to_json(tokenizer_options_from_json(once)) == once, "an option differs when it was written and read");
    if (read.name != "bpe") Tokenizer(read).tokens("a few words, \xc3\xa9t\xc3\xa9");
  });
}

// metrics.jsonl, which is written again as curves.
void log(std::string_view bytes) {
  const MemoryFile file(bytes);
  taken([&] { cli::Log(file.path(), Index(bytes.size())).write_curves("/dev/null", "dev BLEU", "", ""); });
}

void vocabulary(std::string_view bytes) {
  const MemoryFile file(bytes);
  taken([&] {
    const Vocabulary read = load_vocabulary(file.path());
    for (Index id = 0; id < read.size(); ++id) {
      const bool special = id == read.pad || id == read.unk || id == read.bos || id == read.eos;
      require(read.id(read.piece(id)) == (special ? read.unk : std::int32_t(id)), "a piece has another id");
    }
  });
}

void corpus(std::string_view bytes) {
  const MemoryFile file(bytes);
  for (const bool skip_empty : {true, false})
    taken([&] {
      const Corpus read = read_tsv(file.path(), {.skip_empty = skip_empty});
      for (const Pair& pair : read.pairs) require(is_utf8(pair.source) && is_utf8(pair.target), "text that is no UTF-8");
      taken([&] { split_by_source(read, {.dev = 1, .test = 1}); });
    });
}

void links(std::string_view bytes) {
  for (const char mark : {'-', '?'})
    taken([&] {
      const std::vector<Link> read = parse_links(bytes, mark);
      require(parse_links(to_string(read, mark), mark) == read, "links differ when they were written and read");
    });
}

void text(std::string_view bytes) {
  const std::string mended = repaired(bytes);
  require(is_utf8(mended), "repaired text is no UTF-8");
  require(clean(clean(mended)) == clean(mended), "clean text changes when cleaned");
  require(is_utf8(lower(mended)) && is_utf8(nfc(mended)), "changed text is no UTF-8");
  const std::vector<std::string> letters = characters(mended);
  std::string joined;
  for (const std::string& letter : letters) joined += letter;
  require(joined == mended, "characters do not join to the text");
}

void bpe_model(std::string_view bytes) {
  if (!has_sentencepiece()) return;
  taken([&] { Bpe(bytes).tokens("a few words, \xc3\xa9t\xc3\xa9"); });
}

void einsum_equation(std::string_view bytes) {
  const Tensor x = full({2, 3, 2}, 1.0), y = full({3, 2}, 1.0);
  taken([&] { einsum(bytes, {x}); });
  taken([&] { einsum(bytes, {x, y}); });
}

// Words end at line ends.
void command_line(std::string_view bytes) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    words.emplace_back(bytes.substr(at, end - at));
    if (words.back() == "--help" || words.back() == "-h") return;      // prints
    at = end + 1;
  }
  Table& table = fresh_table();
  RunConfig& config = table.config;
  taken([&] {
    static const cli::Syntax syntax{"train", "", "", "", table.rows};
    static cli::Reader read(syntax);
    cli::Given given;
    read(words, given);
    cli::set_options(syntax, given);
    check_config(config);
  });
}

// A training that was stopped after its first update.
class StoppedTraining {
 public:
  static const StoppedTraining& get() {
    static const StoppedTraining one;
    return one;
  }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::string file() const { return checkpoint_path(path_, 1); }
  // --resume from the checkpoint that f writes: false where it is refused, else the training goes on to its end.
  template <class F> bool goes_on(F&& f) const {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ + "/checkpoints");
    for (const auto& [name, bytes] : files_) folder_.write(name, bytes);
    std::streambuf* const warnings = std::cerr.rdbuf(nullptr);
    const bool ended = taken([&] {
      Run run = open_run(path_);
      f(run);
      cli::Training training(std::move(run), data_, {.quiet = true});
      require(training.resume() && training.run() == 0 && training.step() == 2, "a training that went on has not ended");
    });
    std::cerr.rdbuf(warnings);
    if (ended) require(checkpoint_steps(path_).back() == 2, "a training that ended has left no checkpoint");
    return ended;
  }

 private:
  StoppedTraining() : path_(folder_ / "run") {
    RunConfig config = default_config("gru");
    config.data = "data";
    config.tokenizer = "space";
    config.width = 2, config.attention = "none", config.schedule = "plateau", config.steps = 1;
    for (Corpus* part : {&data_.train, &data_.dev}) part->pairs = {{"a b", "b a", {}, 1}, {"b", "b", {}, 2}};
    cli::settle(config);
    cli::Training training(cli::make_run(path_, config, data_), data_, {.quiet = true});
    training.begin();
    training.run();
    Run run = open_run(path_);
    checkpoint_ = read_checkpoint(run, 1);
    run.config.steps = 2;
    write_file_atomically(path_ + "/config.json", to_json(options(run.config)));
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      if (entry.is_regular_file()) files_.emplace_back("run/" + entry.path().filename().string(), read_file(entry.path().string()));
    require(goes_on([&](const Run& stopped) { write_checkpoint(stopped, checkpoint_); }),
            "a training does not go on from its own checkpoint");
  }

  TemporaryFolder folder_;
  std::string path_;
  cli::Dataset data_;
  Checkpoint checkpoint_;
  std::vector<std::pair<std::string, std::string>> files_;
};

// The state that a checkpoint holds as JSON.
void training_state(std::string_view bytes) {
  const StoppedTraining& training = StoppedTraining::get();
  training.goes_on([&](const Run& run) {
    Checkpoint checkpoint = training.checkpoint();
    checkpoint.state = bytes;
    write_checkpoint(run, checkpoint);
  });
}

// A whole checkpoint, in which the bytes after the first two stand from where these two say.
void checkpoint(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const StoppedTraining& training = StoppedTraining::get();
  training.goes_on([&](const Run& run) {
    write_checkpoint(run, training.checkpoint());
    const SafetensorsFile whole = read_safetensors(training.file());
    write_safetensors(training.file(), whole.tensors, whole.metadata, {.checksum = false});
    std::string file = read_file(training.file());
    std::uint16_t at = 0;
    std::memcpy(&at, bytes.data(), 2);
    const std::size_t begin = std::min<std::size_t>(at, file.size()), count = std::min(bytes.size() - 2, file.size() - begin);
    file.replace(begin, count, bytes.substr(2, count));
    write_file_atomically(training.file(), file);
  });
}

constexpr Harness kHarnesses[] = {
    {"safetensors", safetensors}, {"safetensors_header", safetensors_header}, {"config", config},       {"vocabulary", vocabulary},
    {"corpus", corpus},           {"links", links},                           {"text", text},           {"bpe_model", bpe_model},
    {"einsum", einsum_equation},  {"command_line", command_line},             {"json", json},           {"tokenizer", tokenizer},
    {"log", log},                 {"training_state", training_state},         {"checkpoint", checkpoint},
};

}  // namespace

std::span<const Harness> harnesses() { return kHarnesses; }

}  // namespace heed::fuzz
