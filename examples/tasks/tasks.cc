// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/tasks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "examples/tasks/generate.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"

namespace heed {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNames[] = {"copy", "reverse", "sort", "numbers", "dates", "phrases"};

void check_range(std::string_view task, std::string_view option, Index value, Index least, Index most) {
  check<Error>(value >= least && value <= most, "{}: --{} {} is not in {} .. {}", task, option, value, least, most);
}

void check_no_languages(std::string_view task, const TaskOptions& options) {
  check<Error>(options.from.empty() && options.to.empty(), "{}: has no languages: from \"{}\", to \"{}\"", task, options.from,
               options.to);
}

// All pairs of train, dev and test together, and the parts with further tests.
std::vector<TaskPair> make_pairs(Task& task, Key key, Index count) {
  TaskOptions& options = task.options;
  const Random random(key / "pairs"), further(key / "further");
  if (task.name == "numbers") return make_numbers(options, random, count);
  if (task.name == "phrases") {
    check_range(task.name, "clauses", options.clauses, 1, kMostClauses);
    auto pairs = make_phrases(options, random, count, false);
    task.parts.push_back({"test-pairs", make_phrases(options, further, options.test, true)});
    return pairs;
  }
  check_no_languages(task.name, options);
  if (task.name == "dates") return make_dates(options, random, count);

  const Rearrange rearrange = task.name == "copy" ? copied : task.name == "reverse" ? reversed : sorted;
  const Index longest = options.max_length, twice = 2 * longest;
  check_range(task.name, "symbols", options.symbols, 1, kMostSymbols);
  check_range(task.name, "max-length", longest, 1, kMostLength);
  check_enough(task.name, count, count_sequences(options.symbols, 1, longest),
               fmt::format("{} symbols, lengths 1 to {}", options.symbols, longest));
  const Index longer = std::min(options.test, count_sequences(options.symbols, longest + 1, twice));
  task.parts.push_back({"test-long", make_sequences(rearrange, options.symbols, longest + 1, twice, further, longer)});
  return make_sequences(rearrange, options.symbols, 1, longest, random, count);
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::string join_words(std::span<const std::string> words) { return fmt::format("{}", fmt::join(words, " ")); }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void check_enough(std::string_view task, Index count, Index exist, std::string_view of_what) {
  check<Error>(count <= exist, "{}: more distinct sources asked for than exist: train, dev and test {}, existing {} ({})", task,
               count, exist, of_what);
}

std::span<const std::string_view> task_names() { return kNames; }

Task make_task(std::string_view name, TaskOptions options) {
  check<Error>(std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames), "tasks: \"{}\" is none of {}", name,
               fmt::join(kNames, ", "));
  if (!options.train) options.train = name == "dates" ? 8000 : name == "numbers" || name == "phrases" ? 20000 : 50000;
  const Index train = *options.train, dev = options.dev, test = options.test;
  check_range(name, "train", train, 1, kMostPairs);
  check_range(name, "dev", dev, 1, kMostPairs);
  check_range(name, "test", test, 1, kMostPairs);

  Task task{std::string(name), name == "dates" ? "char" : "space", std::move(options), {}};
  const Key key = Key(Seed{task.options.seed}) / name;
  std::vector<TaskPair> pairs = make_pairs(task, key, train + dev + test);
  Random(key / "order").shuffle(std::span(pairs));
  const auto cut = [&](Index from, Index to) { return std::vector(pairs.begin() + from, pairs.begin() + to); };
  std::vector<TaskPart> parts{
      {"train", cut(0, train)}, {"dev", cut(train, train + dev)}, {"test", cut(train + dev, train + dev + test)}};
  task.parts.insert(task.parts.begin(), parts.begin(), parts.end());
  for (TaskPart& part : task.parts) {
    for (TaskPair& pair : part.pairs) {
      std::sort(pair.alignment.sure.begin(), pair.alignment.sure.end());
      std::sort(pair.alignment.possible.begin(), pair.alignment.possible.end());
    }
  }
  return task;
}

std::string to_tsv(const TaskPart& part) {
  std::string text;
  for (const auto& [source, target, alignment] : part.pairs) {
    text.append(source).append("\t").append(target).append("\t").append(to_string(alignment.sure));
    if (!alignment.possible.empty()) text.append("\t").append(to_string(alignment.possible, '?'));
    text += '\n';
  }
  return text;
}

namespace {

// What write_task writes.
void clear(const std::string& directory) {
  std::error_code ignored;
  const std::vector<fs::directory_entry> entries(fs::directory_iterator(directory, ignored), {});
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tsv") || name == "task.json" || name.starts_with(kTemporaryPrefix)) fs::remove(entry.path(), ignored);
  }
}

// The file that says that a process is at work in the directory; its lock goes with the process, also where a kill ends it.
struct Mark {
  explicit Mark(const std::string& directory)
      : path((fs::path(directory) / kUnfinished).string()), file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file < 0) throw FileError(fmt::format("{}: cannot open: {}", path, std::generic_category().message(errno)), errno);
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return;
    const int error = errno;
    ::close(file);
    check<FileError>(error != EWOULDBLOCK, "{}: another `heed data` is at work in it", directory);
    throw FileError(fmt::format("{}: cannot lock: {}", path, std::generic_category().message(error)), error);
  }
  ~Mark() { ::close(file); }
  std::string path;
  int file;
};

}  // namespace

void write_task(const Task& task, const std::string& directory) {
  make_directory(directory);
  check<FileError>(is_free(directory), "{}: exists and is not empty", directory);
  const Mark mark(directory);
  clear(directory);
  try {
    sync_name(mark.path);
    for (const TaskPart& part : task.parts) write_file_atomically(directory + "/" + part.name + ".tsv", to_tsv(part));

    const TaskOptions& options = task.options;
    Json about{{"task", task.name},  {"tokenizer", task.tokenizer}, {"train", *options.train},
               {"dev", options.dev}, {"test", options.test},        {"seed", options.seed}};
    if (!options.from.empty()) about.update({{"from", options.from}, {"to", options.to}});
    if (task.name == "phrases" && options.clauses > 1) about["clauses"] = options.clauses;
    if (task.name == "numbers" && options.spoken_and) about["spoken_and"] = true;
    if (is_one_of(task.name, {"copy", "reverse", "sort"}))
      about.update({{"symbols", options.symbols}, {"max_length", options.max_length}});
    write_file_atomically(directory + "/task.json", json_text(about, 2) + "\n");
  } catch (...) {
    std::error_code ignored;
    clear(directory);
    fs::remove(mark.path, ignored);
    throw;
  }
  fs::remove(mark.path);
  sync_name(mark.path);
}

bool is_free(const std::string& directory) {
  if (!fs::exists(directory) || fs::exists(fs::path(directory) / kUnfinished)) return true;
  const fs::directory_iterator files(directory);
  return std::all_of(begin(files), end(files),
                     [](const auto& file) { return file.path().filename().string().starts_with(kTemporaryPrefix); });
}

}  // namespace heed
