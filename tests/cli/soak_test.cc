// SPDX-License-Identifier: Apache-2.0
// Memory and open files stay flat while `heed` works for long:
// short here, 100,000 updates and a million translations in `tests/run.sh full`.
#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/bench/measure.h"
#include "tests/cli/tiny_training.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

struct Sample {
  double bytes;                                    // resident
  std::ptrdiff_t files;                            // open
};

// While it lives, processes that begin get no pages of 2 MiB: what is resident is what was touched.
struct SmallPages {
  SmallPages() { ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  ~SmallPages() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

// Samples of a process until it ends with code 0.
std::vector<Sample> watch(int process) {
  const std::string proc = "/proc/" + std::to_string(process);
  std::vector<Sample> samples;
  for (int status = 0; ::waitpid(process, &status, WNOHANG) == 0; std::this_thread::sleep_for(std::chrono::microseconds(500))) {
    std::error_code ignored;
    double size = 0, resident = 0;
    std::ifstream(proc + "/statm") >> size >> resident;
    const fs::directory_iterator files(proc + "/fd", ignored);
    if (resident > 0 && !ignored) samples.push_back({resident * double(::sysconf(_SC_PAGESIZE)), std::distance(begin(files), end(files))});
  }
  return samples;
}

// From a third of the time on nothing grows: of eight parts of it the median step from one to the next. Pages that a thread touches for
// the first time late, with the first piece of its kind that it takes, come once: this share of all at most.
void check_flat(const std::vector<Sample>& samples, [[maybe_unused]] double once) {
  constexpr std::size_t kParts = 8;
  REQUIRE(samples.size() >= 30);
  const std::size_t first = samples.size() / 3, count = samples.size() - first;
  std::vector<double> bytes[kParts], steps;
  std::vector<std::ptrdiff_t> files[2];
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i * kParts / count].push_back(samples[first + i].bytes);
    files[i * 2 / count].push_back(samples[first + i].files);
  }
  for (std::size_t part = 1; part < kParts; ++part)
    steps.push_back(heed::bench::median(bytes[part]) - heed::bench::median(bytes[part - 1]));
  const auto least = [](const auto& values) { return *std::ranges::min_element(values); };   // a save opens more for a moment
  const double before = heed::bench::median(bytes[0]), after = heed::bench::median(bytes[kParts - 1]), step = heed::bench::median(steps);
  MESSAGE("resident ", before / 1e6, " MB, then ", after / 1e6, " MB, a step of ", step / 1e6, " MB; files ", least(files[0]), ", then ",
          least(files[1]));
#ifndef __SANITIZE_ADDRESS__                       // which keeps what was freed
  CHECK(step <= 0.002 * before);
  CHECK(after <= (1 + once) * before);
#endif
  CHECK(least(files[1]) <= least(files[0]));
}

void soak(int updates, int lines) {
  const SmallPages pages;
  const TinyTraining training("--batch-tokens 64", 7);
  const std::string folder = training.folder().path(), every = std::to_string(updates / 20);
  std::string line = training.begin("run", updates) + " --save-every " + every;
  line.replace(line.find("--evaluate-every 7"), 18, "--evaluate-every " + every);
  check_flat(watch(Program{.words = split(line), .folder = folder}.start()), 0.02);
  CHECK(fs::exists(folder + "/run/checkpoints/" + std::to_string(updates) + ".safetensors"));

  std::string sources;
  for (int i = 0; i < lines; ++i) sources += std::to_string(i % 5) + (i % 3 == 0 ? " 1 2 3\n" : " 4\n");
  write_text(folder + "/sources", sources);
  // which thread takes which lines is chance
  check_flat(watch(Program{.words = split("translate --run run --quiet --beam 2"), .folder = folder, .output = folder + "/out"}.start(
                 folder + "/sources")),
             0.05);
  CHECK(std::ranges::count(text_of(folder + "/out"), '\n') == lines);
}

}  // namespace

TEST_CASE("soak: memory and open files stay flat") { soak(4000, 400000); }

TEST_CASE("soak: memory and open files stay flat over 100,000 updates and a million translations" * doctest::skip()) {
  soak(100000, 1000000);
}
