// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <thread>

#include "models/run.h"
#include "tensor/file.h"
#include "tests/cli/tiny_training.h"
#include "tests/faults/faults.h"
#include "tests/run_program.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

const std::string kOptions = "--batch-tokens 32 --accumulate 2 --dropout 0.2 --average 0.9 --schedule plateau --patience 50 --save-every 1";
constexpr int kSteps = 14;

std::string say(const Result& result) {
  std::string text = result.err.empty() ? result.out : result.err;
  while (text.ends_with('\n')) text.pop_back();
  return "exit " + std::to_string(result.code) + (text.empty() ? "" : ": " + text);
}

// One training for all of these faults; `copy` is a run of its own.
class Ground {
 public:
  static Ground& here() {
    static Ground ground;
    return ground;
  }
  std::string operator/(const std::string& name) const { return training.folder() / name; }
  Result heed(const std::string& line, const std::string& input = {}) const { return heed_in(training.folder().path(), line, input); }
  Result under(const std::vector<std::string>& program, const std::string& line, const std::vector<std::string>& environment = {}) const {
    return Program{.words = split(line), .folder = training.folder().path(), .environment = environment, .under = program}.run();
  }
  bool works(const std::vector<std::string>& program) const { return under(program, "--version").code == 0; }
  std::string copy(const std::string& name) const {
    fs::remove_all(*this / name);
    fs::copy(*this / "whole", *this / name, fs::copy_options::recursive);
    return *this / name;
  }
  TinyTraining training{kOptions, kSteps};
};

Ground& ground() { return Ground::here(); }

std::function<std::string()> answer(const std::string& line) {
  return [line] { return say(ground().heed(line)); };
}

// A training that goes through with the bits of one to which nothing happened.
std::string same_bits(const std::vector<std::string>& under, const std::vector<std::string>& environment, const std::string& what) {
  if (!under.empty() && !ground().works(under)) return "";
  fs::remove_all(ground() / "again");
  const Result result = ground().under(under, ground().training.begin("again"), environment);
  const std::string difference = result.code == 0 ? ground().training.difference("again") : say(result);
  return difference.empty() ? what : "NOT (" + difference + "): " + what;
}

std::string diverging() {
  const std::string text =
      say(ground().heed("train --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --optimizer sgd --schedule constant "
                        "--learning-rate 1e6 --clip 0 --batch-tokens 32 --steps 200 --out wild --quiet"));
  return std::regex_replace(text, std::regex("number [0-9]+; (.*now) [0-9]+"), "number N; $1 N");
}

std::string left_behind(const std::string& name) {
  return fs::exists(ground() / name) ? "; NOT (left behind: " + name + ")" : "; nothing is left behind";
}

std::string little_memory() {
  const std::vector<std::string> prlimit{"prlimit", "--as=300000000"};
  if (!ground().works(prlimit)) return "";
  const std::string text = say(
      ground().under(prlimit, "train --data data --layers 3 --width 1024 --feed-forward 4096 --threads 1 --steps 2 --quiet --out large"));
  return std::regex_replace(text, std::regex("allocate: [0-9]+ bytes"), "allocate: N bytes") + left_behind("large");
}

std::string with_pipe() {
  write_text(ground() / "many", [] { std::string lines; for (int i = 0; i < 20000; ++i) lines += "1 2 3\n"; return lines; }());
  const std::string folder = ground().training.folder().path();
  const Ran ran = run_program("cd '" + folder +
                              "' && (" HEED_BUILD_DIR
                              "/examples/heed translate --run whole --quiet < many; echo \"exit $?\" > code) 2> err | head -n 1 > first");
  return ran.exit_code != 0 ? "NOT (no pipe)"
                            : text_of(folder + "/code").substr(0, 6) +
                                  (text_of(folder + "/err").empty() ? ", nothing on standard error" : ": " + text_of(folder + "/err"));
}

std::string with_streams(const std::string& redirection, const std::string& line) {
  const std::string folder = ground().training.folder().path();
  run_program("cd '" + folder + "' && " HEED_BUILD_DIR "/examples/heed " + line + " 2> err " + redirection + "; echo \"exit $?\" > code");
  const std::string code = text_of(folder + "/code");
  return code.substr(0, code.size() - 1) + ": " + text_of(folder + "/err");
}

std::string signalled(int number, int expected) {
  fs::remove_all(ground() / "stopped");
  std::string line = ground().training.begin("stopped");
  line.replace(line.find("--steps 14"), 10, "--steps 1000000");
  const int process = Program{.words = split(line), .folder = ground().training.folder().path()}.start();
  for (int i = 0; i < 3000 && checkpoint_steps(ground() / "stopped").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(process, number);
  const int code = wait_for(process);
  Cases right;
  right.add(code == expected);
  const std::vector<Index> steps = ground().training.whole_checkpoints("stopped");
  right.add(!steps.empty());
  return right.say("exit " + std::to_string(expected) + " with a checkpoint of its last update");
}

// On a file system of its own, full but for some KiB or read-only.
template <class F> std::string on_disk(const char* options, unsigned long flags, F&& f) {
  const std::string disk = ground() / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", flags, options) != 0) return "";
  const std::string text = f();
  ::umount(disk.c_str());
  return text;
}

// A system call of a program fails or kills it.
std::string injected(const std::string& what, const std::string& line) {
  const std::vector<std::string> strace{"strace",        "-o", "/dev/null", "-f", "-e", "trace=" + what.substr(0, what.find(':')), "-e",
                                        "inject=" + what};
  if (!ground().works({"strace", "-o", "/dev/null"})) return "";
  return say(ground().under(strace, line));
}

std::string full_disk() {
  return on_disk("size=300k", 0, [] {
    write_text(ground() / "disk/filler", std::string(240 << 10, 'x'));
    const Result full = ground().heed(ground().training.begin("disk/run"));
    const std::string said =
        "exit " + std::to_string(full.code) + ", " +
        (full.err.starts_with("warning: disk/run/") ? "warnings though --quiet, the first: " + full.err.substr(0, full.err.find('\n'))
                                                    : "NOT (no warning): " + full.err);
    fs::remove(ground() / "disk/filler");
    const Result on = ground().heed("train --resume --quiet --keep 1 --save-every 100 --steps 14 --out disk/run");
    const bool same =
        on.code == 0 && text_of(ground() / "disk/run/checkpoints/14.safetensors") == text_of(ground() / "whole/checkpoints/14.safetensors");
    return std::regex_replace(said, std::regex("(byte |checkpoints/)[0-9]+"), "$1N") +
           (same ? "; with room again --resume ends with the bits of an undisturbed training" : "; NOT resumed: " + on.err);
  });
}

std::string killed() {
  Cases right;
  for (int run = 0; run < 4; ++run) {
    fs::remove_all(ground() / "killed");
    for (int kill = 0; kill < 6; ++kill) {
      const int process = Program{.words = split(ground().training.next("killed")), .folder = ground().training.folder().path()}.start();
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + 31 * (kill + run)));
      ::kill(process, SIGKILL);
      const int code = wait_for(process);
      right.add(code == 0 || code == -SIGKILL);
      if (fs::exists(ground() / "killed/config.json"))
        right.add(thrown([] { ground().training.whole_checkpoints("killed"); }) == "nothing thrown");
    }
    right.add(ground().heed(ground().training.next("killed")).code == 0);
    right.add(ground().training.difference("killed").empty());
  }
  return right.say(
      "every checkpoint whole; going on gives the bits of an undisturbed training (the test \"crash\": 1,000 kills, and one at every "
      "system call)");
}

std::string data_killed() {
  const std::string said =
      injected("rename:signal=KILL:when=3", "data copy --out half --symbols 5 --max-length 4 --train 50 --dev 10 --test 10");
  if (said.empty()) return "";
  const Result train = ground().heed("train --data half --out never"),
               again = ground().heed("data copy --out half --symbols 5 --max-length 4 --train 50 --dev 10 --test 10");
  const bool whole = again.code == 0 && !fs::exists(ground() / "half/.unfinished") && fs::exists(ground() / "half/task.json");
  return "`heed train`: " + say(train) + (whole ? "; `heed data` again makes it whole" : "NOT (" + say(again) + ")");
}

std::string resumed() {
  fs::remove_all(ground() / "parts");
  for (int steps : {3, 8, kSteps}) {
    const Result result =
        ground().heed(fs::exists(ground() / "parts") ? "train --resume --quiet --steps " + std::to_string(steps) + " --out parts"
                                                     : ground().training.begin("parts", steps));
    if (result.code != 0) return "NOT (" + say(result) + ")";
  }
  const std::string difference = ground().training.difference("parts");
  return difference.empty() ? "the bits of weights, averages, optimiser and log of one in a piece" : "NOT (" + difference + ")";
}

std::string newer_format() {
  const std::string run = ground().copy("newer");
  for (const Index step : checkpoint_steps(run))
    if (step != kSteps) fs::remove(checkpoint_path(run, step));
  const SafetensorsFile file = read_safetensors(checkpoint_path(run, kSteps));
  std::map<std::string, std::string> metadata = file.metadata;
  metadata["heed.format"] = "2";
  write_safetensors(file.path, file.tensors, metadata);
  return say(ground().heed("train --resume --steps 20 --out newer"));
}

// A run whose only checkpoint is this file, under this number.
std::string with_checkpoint(const std::string& name, const std::string& file, int number) {
  const std::string run = ground().copy(name);
  fs::copy_file(run + "/" + file, run + "/kept");
  for (const Index step : checkpoint_steps(run)) fs::remove(checkpoint_path(run, step));
  fs::rename(run + "/kept", checkpoint_path(run, number));
  return say(ground().heed("train --resume --steps 20 --out " + name));
}

std::string two_writers() {
  const RunLock lock(ground() / "whole");
  return say(ground().heed("train --resume --steps 20 --out whole"));
}

std::string other_vocabulary() {
  const std::string file = ground().copy("fewer") + "/target.vocabulary", words = text_of(file);
  write_text(file, words.substr(0, words.rfind('\n', words.size() - 2) + 1));
  return say(ground().heed("translate --run fewer", "1\n"));
}

std::string no_wall_clock() {
  static const std::regex asks(R"(system_clock|gettimeofday|CLOCK_REALTIME|\btime\(nullptr\)|localtime|\bstrtod\(|setlocale|std::locale)");
  std::string found;
  for (const char* folder : {"tensor", "autograd", "nn", "attention", "models", "examples"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(HEED_SOURCE_DIR) / folder)) {
      const std::string extension = entry.path().extension();
      if ((extension == ".cc" || extension == ".h") && std::regex_search(read_file(entry.path()), asks))
        found += " " + entry.path().filename().string();
    }
  return found.empty() ? "there is no such place" : "NOT:" + found;
}

}  // namespace

std::vector<Fault> program_faults() {
  const std::string everything = "the same bits";
  return {
      {5, "`heed train` of a model of 90 M parameters with 300 MB of address space", little_memory},
      {7, "`heed train --learning-rate 1e6 --optimizer sgd --clip 0`", diverging},
      {19, "a vocabulary with fewer words than the model", other_vocabulary},
      {19, "a checkpoint under another number", [] { return with_checkpoint("renamed", "checkpoints/14.safetensors", 15); }},
      {19, "plain weights in place of a checkpoint", [] { return with_checkpoint("plain", "best.safetensors", 14); }},
      {22, "`HEED_THREADS=many heed train`",
       [] {
         return say(ground().under({}, "train --data data --out new --layers 1 --width 8 --heads 2 --steps 1", {"HEED_THREADS=many"}));
       }},
      {22, "`heed tranlate`", answer("tranlate --run whole")},
      {22, "`heed train --widht 8`", answer("train --data data --out new --widht 8")},
      {22, "`--width 250 --heads 8`", answer("train --data data --out new --width 250 --heads 8")},
      {22, "`--threads 0`", answer("train --data data --out new --threads 0")},
      {22, "`--data` of a folder that is not there", answer("train --data nowhere --out new")},
      {22, "`--out` of a run that exists (all mistakes: tests/cli/mistakes_test.cc)", answer("train --data data --out whole")},
      {23, "`heed translate \\| head -n 1` of 20,000 lines", with_pipe},
      {23, "`heed translate` with standard input closed", [] { return with_streams("<&-", "translate --run whole --quiet"); }},
      {23, "`heed inspect` with standard output closed", [] { return with_streams(">&-", "inspect whole"); }},
      {23, "SIGINT while training", [] { return signalled(SIGINT, 130); }},
      {23, "SIGTERM while training", [] { return signalled(SIGTERM, 143); }},
      {23, "SIGHUP while training", [] { return signalled(SIGHUP, 129); }},
      {24, "`heed --help > /dev/full`", [] { return say(Program{.words = {"--help"}, .output = "/dev/full"}.run()); }},
      {24, "files that may not grow beyond 100 bytes",
       [] {
         return say(Program{
                    .words = split(ground().training.begin("limited")), .folder = ground().training.folder().path(), .largest_file = 100}
                        .run()) +
                left_behind("limited");
       }},
      {24, "the first `fsync` of `heed data` fails",
       [] {
         const std::string said =
             injected("fsync:error=EIO:when=1", "data copy --out broken --symbols 5 --max-length 4 --train 50 --dev 10 --test 10");
         return said.empty() ? said : said + left_behind("broken");
       }},
      {24, "a file system that is read-only",
       [] { return on_disk("size=200k", MS_RDONLY, [] { return say(ground().heed(ground().training.begin("disk/run"))); }); }},
      {24, "a disk that is full while `heed train --quiet` is at work", full_disk},
      {25, "kill -9 at many moments of a training", killed},
      {25, "kill -9 of `heed data` at its third file", data_killed},
      {27, "a training in three parts, ends of which lie inside epochs, with dropout, accumulation, averages, plateau schedule", resumed},
      {27, "`--resume` with another seed", answer("train --resume --seed 2 --steps 20 --out whole")},
      {27, "`--resume` after its data changed",
       [] {
         const std::string run = ground().copy("moved"), config = text_of(run + "/config.json");
         fs::copy(ground() / "data", ground() / "data2", fs::copy_options::recursive);
         write_text(ground() / "data2/train.tsv", text_of(ground() / "data/train.tsv") + "1\t1\n");
         write_text(run + "/config.json", std::regex_replace(config, std::regex("/data\""), "/data2\""));
         return say(ground().heed("train --resume --steps 20 --out moved"));
       }},
      {29, "a training on one CPU, with 64 threads",
       [] {
         return same_bits({"taskset", "-c", "0"}, {"HEED_THREADS=64"}, "the same bits, no deadlock");
       }},
      {31, "a training with LC_ALL=de_DE.UTF-8, LANG=C, no TERM, TMPDIR that is not there",
       [=] {
         return same_bits({"env", "-u", "TERM", "-u", "HOME"}, {"LC_ALL=de_DE.UTF-8", "LANG=C", "TMPDIR=/nowhere"}, everything);
       }},
      {31, "a training without /proc and /sys",
       [=] {
         return same_bits({"unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && mount -t tmpfs none /sys && exec \"$@\"", "sh"}, {},
                          everything);
       }},
      {31, "a look for code that asks the time of day, or reads or writes numbers by the locale", no_wall_clock},
      {32, "a checkpoint of a newer format", newer_format},
      {34, "`heed train --resume` of a run that another process trains", two_writers},
  };
}
