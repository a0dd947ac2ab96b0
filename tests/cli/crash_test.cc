// SPDX-License-Identifier: Apache-2.0
// Kills and faults of the disk at every moment of a training. Whatever happens, every checkpoint there is is whole, and going on gives
// the bits of a training to which nothing happened. Those under strace run with `tests/run.sh kill`.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/cli/tiny_training.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

// Dropout, accumulation, averages, the schedule and the patience all have a state of their own.
const std::string kRich =
    "--batch-tokens 32 --accumulate 2 --dropout 0.2 --average 0.9 --schedule plateau --patience 50 --threads 1 --save-every ";

Result heed_under(const TinyTraining& training, const std::vector<std::string>& under, const std::string& line) {
  return Program{.words = split(line), .folder = training.folder().path(), .under = under}.run();
}

// Kills at random moments until there were that many.
void kill_randomly(int wanted, std::uint32_t seed) {
  const TinyTraining training(kRich + "1", 20);
  std::mt19937 random(seed);
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(heed_in(training.folder().path(), training.begin("timed")).code == 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  int kills = 0, runs = 0;
  while (kills < wanted) {
    const std::string run = "run" + std::to_string(++runs);
    for (int code = -1; code != 0;) {
      const int process = Program{.words = split(training.next(run) + " --keep 2"), .folder = training.folder().path()}.start();
      std::this_thread::sleep_for(std::chrono::duration<double>(0.5 * seconds * double(random()) / 0x1p32));
      ::kill(process, SIGKILL);
      code = wait_for(process);
      INFO("kill ", kills, " of seed ", seed);
      REQUIRE((code == -SIGKILL || code == 0));
      kills += code != 0;
      CHECK_NOTHROW(training.whole_checkpoints(run));
    }
    CHECK(training.difference(run) == "");
    CHECK(!fs::exists(training.folder() / (run + "/best.safetensors.old")));
    fs::remove_all(training.folder() / run);
  }
  if (wanted > 100) MESSAGE(kills, " kills at random moments of ", runs, " trainings");
}

// ---- under strace ---------------------------------------------------------------------------------------------------

constexpr const char* kVictim = "victim";

bool strace_works() {
  const TemporaryFolder folder;
  const bool works = Program{.words = {"--version"}, .under = {"strace", "-o", folder / "log"}}.run().code == 0;
  if (!works) MESSAGE("skipped: strace is not there or not permitted");
  return works;
}

struct Call {
  std::string name;
  int number = 0;                                  // among those of its name, from 1
  std::string line;
  Index saved = -1;                                // newest checkpoint that was in place before it
};

// System calls of a command that name the victim, and all that sync.
std::vector<Call> trace(const TinyTraining& training, const std::string& line, const std::string& names) {
  const std::string log = training.folder() / "trace";
  REQUIRE(heed_under(training, {"strace", "-y", "-s", "0", "-o", log, "-e", "trace=" + names}, line).code == 0);
  static const std::regex call(R"re(^([a-z0-9_]+)\()re"), renamed(R"re(checkpoints/([0-9]+)\.safetensors"\) = 0)re");
  std::istringstream lines(text_of(log));
  std::vector<Call> found;
  std::map<std::string, int> numbers;
  Index saved = -1;
  for (std::string text; std::getline(lines, text);) {
    text = std::regex_replace(text, std::regex(" +="), " =");
    std::smatch match;
    if (!std::regex_search(text, match, call)) continue;
    const int number = ++numbers[match[1]];
    if (text.find(kVictim) != text.npos || text.starts_with("fsync")) found.push_back({match[1], number, text, saved});
    if (std::regex_search(text, match, renamed)) saved = std::stoll(match[1]);
  }
  return found;
}

// A training from its beginning, and one that goes on from a checkpoint.
struct Scenario {
  const TinyTraining& training;
  bool from_checkpoint;

  void set_up() const {
    const std::string victim = training.folder() / kVictim;
    fs::remove_all(victim);
    if (!from_checkpoint) return;
    if (!fs::exists(training.folder() / "half"))
      REQUIRE(heed_in(training.folder().path(), training.begin("half", 4) + " --keep 1000").code == 0);
    fs::copy(training.folder() / "half", victim, fs::copy_options::recursive);
  }
  std::string line(const std::string& more) const {
    return (from_checkpoint ? training.go_on(kVictim) + " --save-every 4" : training.begin(kVictim)) + more;
  }
};

}  // namespace

TEST_CASE("crash: what a killed start leaves is taken over, and nothing else") {
  const TinyTraining training("--batch-tokens 64", 7);
  const TemporaryFolder& folder = training.folder();
  fs::create_directories(folder / "run/checkpoints");
  for (const std::string file : {"lock", ".heed-tmp-1-2", "source.vocabulary", "source.model"}) folder.write("run/" + file, "half");
  CHECK(heed_in(folder.path(), training.begin("run")).code == 0);
  CHECK(training.difference("run") == "");
  CHECK(!fs::exists(folder / "run/source.model"));
  for (const std::string files : {"lock mine", "source.vocabulary", "lock checkpoints/7.safetensors"}) {
    fs::remove_all(folder / "other");
    fs::create_directories(folder / "other/checkpoints");
    for (const std::string& file : split(files)) folder.write("other/" + file, "mine");
    const std::string before = listing(folder / "other");
    const Result refused = heed_in(folder.path(), training.begin("other"));
    CHECK(refused.code == 2);
    CHECK(refused.err == "heed train: exists, is not empty and no run: --out other; the name of a new directory\n");
    CHECK((listing(folder / "other") == before));
  }
}

TEST_CASE("crash: 50 kills at random moments" * doctest::test_suite("slow")) { kill_randomly(50, std::random_device()()); }

TEST_SUITE("kill") {

TEST_CASE("crash: 1,000 kills at random moments" * doctest::skip()) { kill_randomly(1000, std::random_device()()); }

TEST_CASE("crash: killed at every system call" * doctest::skip()) {
  if (!strace_works()) return;
  const TinyTraining training(kRich + "4", 8);
  for (const bool from_checkpoint : {false, true}) {
    const Scenario scenario{training, from_checkpoint};
    const std::string line = scenario.line(" --keep 2");
    scenario.set_up();
    const std::vector<Call> calls =
        trace(training, line, "openat,write,pwrite64,ftruncate,fsync,fdatasync,fchmod,close,read,rename,unlink,mkdir,flock,newfstatat");
    CHECK(calls.size() > 100);
    for (const Call& call : calls) {
      CAPTURE(call.line);
      scenario.set_up();
      const std::string number = std::to_string(call.number);
      const Result killed = heed_under(
          training, {"strace", "-o", "/dev/null", "-e", "trace=" + call.name, "-e", "inject=" + call.name + ":signal=KILL:when=" + number},
          line);
      REQUIRE(killed.code == -SIGKILL);
      std::vector<Index> steps;
      if (fs::exists(training.folder() / "victim/config.json")) CHECK_NOTHROW(steps = training.whole_checkpoints(kVictim));
      CHECK((steps.empty() ? -1 : steps.back()) >= std::max<Index>(call.saved, from_checkpoint ? 4 : -1));
      const Result on = heed_in(training.folder().path(), training.next(kVictim));
      REQUIRE_MESSAGE(on.code == 0, on.err);
      CHECK(training.difference(kVictim) == "");
      CHECK(!fs::exists(training.folder() / "victim/best.safetensors.old"));
    }
    MESSAGE(calls.size(), " kills, one at each system call of a training ",
            std::string(from_checkpoint ? "that goes on" : "from its beginning"));
  }
}

// Stands in for a power cut: what a name shows is on the disk before the name is.
TEST_CASE("crash: the order of writing" * doctest::skip()) {
  if (!strace_works()) return;
  const TinyTraining training(kRich + "1", 3);
  const std::vector<Call> calls = trace(training, training.begin(kVictim), "openat,write,pwrite64,fsync,fdatasync,close,rename,mkdir");
  static const std::regex names(R"re(^rename\("(.*)", "(.*)/[^/]*"\) = 0$)re");
  const auto last = [&](std::size_t before, const std::string& name, const std::string& path) {
    std::size_t at = before;
    while (at-- > 0)
      if (calls[at].name == name && calls[at].line.find(path + ">") != std::string::npos) return std::ptrdiff_t(at);
    return std::ptrdiff_t(-1);
  };
  int files = 0;
  bool log_synced = false;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(calls[i].line);
    if (calls[i].name == "fdatasync" && calls[i].line.find("metrics.jsonl>") != std::string::npos) log_synced = true;
    std::smatch match;
    if (!std::regex_match(calls[i].line, match, names)) continue;
    ++files;
    const std::string temporary = match[1], folder = match[2];
    const auto written = last(i, "write", temporary), synced = last(i, "fsync", temporary), closed = last(i, "close", temporary);
    CHECK(0 <= written);
    CHECK(written < synced);
    CHECK(synced < closed);
    REQUIRE(i + 2 < calls.size());
    CHECK(calls[i + 1].name == "openat");
    CHECK_MESSAGE((calls[i + 2].name == "fsync" && calls[i + 2].line.find("/" + folder + ">) = 0") != std::string::npos),
                  calls[i + 2].line);
    if (folder.ends_with("checkpoints")) CHECK(log_synced);        // a checkpoint names the length of the log
  }
  CHECK(files >= 9);                                               // vocabularies and tokenizers, config, three checkpoints, best
  static const std::regex made(R"re(^mkdir\("(.*)", .* = 0$)re");
  for (auto call = calls.begin(); call != calls.end(); ++call)
    if (std::smatch match; std::regex_match(call->line, match, made)) {
      const auto sync = std::find_if(call, calls.end(), [](const Call& other) { return other.name == "fsync"; });
      const std::string folder = (fs::path(training.folder().path()) / match[1].str()).parent_path();
      CHECK_MESSAGE((sync != calls.end() && sync->line.find(folder + ">) = 0") != std::string::npos), call->line);
    }
}

TEST_CASE("crash: a fault of the disk at every system call" * doctest::skip()) {
  if (!strace_works()) return;
  const TinyTraining training(kRich + "4", 8);
  const std::vector<Index> all = training.whole_checkpoints("whole");
  const std::regex said("(^|\n)(warning|heed train): [^\n]*(No space left on device|Input/output error|Disk quota exceeded)");
  int faults = 0, told = 0;
  for (const bool from_checkpoint : {false, true}) {
    const Scenario scenario{training, from_checkpoint};
    std::string line = scenario.line(" --keep 1000");
    line.replace(line.find("--quiet"), 7, "");
    scenario.set_up();
    for (const Call& call : trace(training, line, "openat,write,pwrite64,ftruncate,fsync,fdatasync,fchmod,close,read,rename,mkdir"))
      for (const std::string error : {"EIO", "ENOSPC", "EDQUOT"}) {
        if (call.name == "read" && error != "EIO") continue;
        CAPTURE(call.line);
        CAPTURE(error);
        scenario.set_up();
        const std::string number = std::to_string(call.number);
        const Result result = heed_under(
            training,
            {"strace", "-o", "/dev/null", "-e", "trace=" + call.name, "-e", "inject=" + call.name + ":error=" + error + ":when=" + number},
            line);
        ++faults;
        CAPTURE(result.err);
        REQUIRE((result.code == 0 || result.code == 1));
        const bool message = std::regex_search(result.err, said);
        told += message;
        CHECK((message || result.code == 0));
        const bool made_again = call.name == "read" && call.line.find("/best.safetensors>") != std::string::npos;   // from its checkpoint
        if (call.name != "close" && call.name != "openat" && call.line.find("/lock>") == std::string::npos && !made_again) CHECK(message);
        for (const auto& entry : fs::recursive_directory_iterator(training.folder().path()))
          CHECK(!entry.path().filename().string().starts_with(".heed-tmp-"));
        std::vector<Index> have;
        if (fs::exists(training.folder() / kVictim)) CHECK_NOTHROW(have = training.whole_checkpoints(kVictim));
        // Going on leaves out at most the one that failed; stopping leaves those before it.
        CHECK(std::ranges::includes(all, have));
        CHECK(Index(have.size()) >= (result.code == 0 ? Index(all.size()) - 1 : std::count_if(all.begin(), all.end(), [&](Index step) {
                return step <= std::max<Index>(call.saved, from_checkpoint ? 4 : -1);
              })));
        if (result.code != 0) {
          const Result on = heed_in(training.folder().path(), training.next(kVictim));
          REQUIRE_MESSAGE(on.code == 0, on.err);
        }
        CHECK(training.difference(kVictim) == "");
      }
  }
  MESSAGE(faults, " faults at system calls, ", told, " of them told");
  CHECK(told > faults / 2);
}

}
