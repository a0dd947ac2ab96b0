// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/tasks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "examples/tasks/generate.h"
#include "tensor/error.h"
#include "tensor/file.h"
#include "tensor/json.h"
#include "tests/temporary_folder.h"

using namespace heed;

namespace {

Index characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

const std::vector<TaskPair>& part(const Task& task, std::string_view name) {
  return std::find_if(task.parts.begin(), task.parts.end(), [&](const TaskPart& part) { return part.name == name; })->pairs;
}

// Fowler-Noll-Vo 1a
std::uint64_t hash(const Task& task) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const TaskPart& part : task.parts) {
    for (const char c : to_tsv(part)) h = (h ^ std::uint8_t(c)) * 0x100000001b3u;
  }
  return h;
}

TaskOptions small(const char* from = "", const char* to = "") {
  return {.train = 600, .dev = 100, .test = 100, .from = from, .to = to};
}

// "d B Y", "d b Y", "B d, Y", "A d B Y", or of digits alone their mark, with "ambiguous" where day and month are both <= 12
std::string form_of(const std::string& source, bool ambiguous) {
  if (source.find_first_not_of("0123456789./-") == source.npos)
    return source.substr(source.find_first_of("./-"), 1) + (ambiguous ? " ambiguous" : "");
  if (source.find(',') != source.npos) return "B d, Y";
  if (source.find_first_of("0123456789") != 0) return "A d B Y";
  return characters(split_words(source)[1]) > 4 ? "d B Y" : "d b Y";
}

}  // namespace

TEST_CASE("dates") {
  const Task task = make_task("dates", {.train = 4000});
  std::map<std::string, int> forms;
  for (const TaskPair& pair : part(task, "train")) {
    INFO(pair.source, " -> ", pair.target);
    REQUIRE(pair.target.size() == 10);
    const int year = std::stoi(pair.target.substr(0, 4)), month = std::stoi(pair.target.substr(5, 2)),
              day = std::stoi(pair.target.substr(8, 2));
    const std::string form = form_of(pair.source, day <= 12 && month <= 12);
    ++forms[form];
    CHECK((year >= 1900 && year <= 2099 && month >= 1 && month <= 12 && day >= 1 && day <= 31));
    if (form.starts_with("/")) {
      CHECK((year >= 1950 && year <= 2049));
      CHECK(pair.source == std::to_string(day) + "/" + std::to_string(month) + "/" + pair.target.substr(2, 2));
    }
    if (form.starts_with("-")) CHECK(pair.source == pair.target);
    if (form.starts_with("."))
      CHECK(pair.source == pair.target.substr(8, 2) + "." + pair.target.substr(5, 2) + "." + pair.target.substr(0, 4));
    std::set<Index> linked;  // every digit of the target has a source
    for (const Link& link : pair.alignment.sure) {
      CHECK(link.source < characters(pair.source));
      linked.insert(link.target);
    }
    CHECK(linked == std::set<Index>{0, 1, 2, 3, 5, 6, 8, 9});
  }
  CHECK(forms.size() == 10);  // seven, three of them ambiguous at times
  for (const auto& [form, count] : forms) CHECK(count > 4000 / 7 / 10);
}

TEST_CASE("copy, reverse, sort") {
  for (const char* name : {"copy", "reverse", "sort"}) {
    const Task task = make_task(name, small());
    for (const TaskPart& part : task.parts) {
      for (const TaskPair& pair : part.pairs) {
        const auto x = split_words(pair.source), y = split_words(pair.target);
        const Index n = Index(x.size());
        CHECK((part.name == "test-long" ? n >= 26 && n <= 50 : n >= 1 && n <= 25));
        REQUIRE(y.size() == x.size());
        REQUIRE(pair.alignment.sure.size() == x.size());
        for (const Link& link : pair.alignment.sure) {
          CHECK(x[std::size_t(link.source)] == y[std::size_t(link.target)]);
          if (task.name == "copy") CHECK(link.source == link.target);
          if (task.name == "reverse") CHECK(link.source == n - 1 - link.target);
        }
        if (task.name != "sort") continue;
        std::vector<Index> from(x.size());
        for (const Link& link : pair.alignment.sure) from[std::size_t(link.target)] = link.source;
        for (std::size_t i = 1; i < y.size(); ++i) {
          CHECK(std::stoi(y[i - 1]) <= std::stoi(y[i]));
          if (y[i - 1] == y[i]) CHECK(from[i - 1] < from[i]);  // stable
        }
      }
    }
  }
  const Task binary = make_task("copy", {.train = 4, .dev = 1, .test = 1, .symbols = 2, .max_length = 2});  // all six there are
  CHECK(part(binary, "train").size() == 4);
  CHECK(part(make_task("copy", {.train = 2, .dev = 1, .test = 9, .symbols = 1, .max_length = 12}), "test-long").size() == 9);
}

TEST_CASE("tasks: every source once, links inside, splits of the sizes asked for") {
  for (const std::string_view name : task_names()) {
    const Task task = make_task(name, small());
    CHECK(task.parts.size() == (name == "numbers" || name == "dates" ? 3 : 4));
    std::set<std::string> seen;
    for (const TaskPart& part : task.parts) {
      CHECK(part.pairs.size() == (part.name == "train" ? 600 : 100));
      for (const TaskPair& pair : part.pairs) {
        CHECK_MESSAGE(seen.insert(pair.source).second, pair.source);
        const bool words = task.tokenizer == "space";
        const Index source = words ? Index(split_words(pair.source).size()) : characters(pair.source);
        const Index target = words ? Index(split_words(pair.target).size()) : characters(pair.target);
        for (const auto& links : {pair.alignment.sure, pair.alignment.possible}) {
          CHECK(std::is_sorted(links.begin(), links.end()));
          CHECK(std::all_of(links.begin(), links.end(), [&](const Link& link) {
            return link.source >= 0 && link.source < source && link.target >= 0 && link.target < target;
          }));
        }
      }
    }
  }
}

TEST_CASE("tasks: the same bytes on every machine") {
  const std::map<std::string_view, std::uint64_t> expected{{"copy", 11225238084981931674u},  {"reverse", 7525724175267912427u},
                                                           {"sort", 8213842538906808243u},   {"numbers", 17313895724063569946u},
                                                           {"dates", 15608808600377502550u}, {"phrases", 6525667956595377020u}};
  for (const std::string_view name : task_names()) {
    INFO(std::string(name));
    CHECK(hash(make_task(name, small())) == expected.at(name));
    TaskOptions other = small();
    other.seed = 2;
    CHECK(hash(make_task(name, other)) != expected.at(name));
  }
}

TEST_CASE("tasks: files") {
  const TemporaryFolder folder;
  const Task task = make_task("phrases", small("", "es"));
  const std::string directory = folder / "new/data";
  write_task(task, directory);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.insert(entry.path().filename());
  CHECK(files == std::set<std::string>{"train.tsv", "dev.tsv", "test.tsv", "test-pairs.tsv", "task.json"});
  CHECK(read_file(directory + "/dev.tsv") == to_tsv(task.parts[1]));
  CHECK(to_tsv({"x", {{"a b", "c", {{{0, 0}}, {}}}, {"d", "e", {{}, {{0, 0}}}}}}) == "a b\tc\t0-0\nd\te\t\t0?0\n");
  const auto about = parse_json(read_file(directory + "/task.json"));
  CHECK(about == Json{{"task", "phrases"},
                                {"tokenizer", "space"},
                                {"train", 600},
                                {"dev", 100},
                                {"test", 100},
                                {"seed", 1},
                                {"from", "en"},
                                {"to", "es"}});
  CHECK_THROWS_AS(write_task(task, directory + "/dev.tsv"), FileError);
}

TEST_CASE("tasks: what cannot be made") {
  CHECK_THROWS_WITH_AS(make_task("translate"), "tasks: \"translate\" is none of copy, reverse, sort, numbers, dates, phrases",
                       Error);
  CHECK_THROWS_WITH_AS(
      make_task("copy", {.max_length = 1}),
      "copy: more distinct sources asked for than exist: train, dev and test 52000, existing 32 (32 symbols, lengths 1 to 1)",
      Error);
  CHECK_THROWS_WITH_AS(
      make_task("numbers", {.train = 999000}),
      "numbers: more distinct sources asked for than exist: train, dev and test 1001000, existing 1000000 (0 to 999999)",
      Error);
  CHECK_THROWS_WITH_AS(
      make_task("dates", {.train = 80000}),
      "dates: more distinct sources asked for than exist: train, dev and test 82000, existing 73049 (one a day, 1900-01-01 to "
      "2099-12-31)",
      Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.train = 0}), "sort: --train 0 is not in 1 .. 10000000", Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.symbols = -1}), "sort: --symbols -1 is not in 1 .. 1000000", Error);
  CHECK_THROWS_WITH_AS(make_task("sort", {.max_length = 0}), "sort: --max-length 0 is not in 1 .. 10000", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "en", .to = "fr"}),
                       "numbers: one of --from and --to must be digits: from en, to fr", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "digits", .to = "digits"}),
                       "numbers: one of --from and --to must be digits: from digits, to digits", Error);
  CHECK_THROWS_WITH_AS(make_task("numbers", {.from = "it"}), "numbers: --from \"it\" is none of digits, en, fr, es, de", Error);
  CHECK_THROWS_WITH_AS(make_task("phrases", {.to = "de"}),
                       "phrases: --from must be en and --to fr or es: from \"en\", to \"de\"", Error);
  CHECK_THROWS_WITH_AS(make_task("dates", {.from = "en"}), "dates: has no languages: from \"en\", to \"\"", Error);
}
