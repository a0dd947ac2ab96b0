// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/progress.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/cli/program.h"

using namespace heed;

namespace {

ProgressNumbers numbers(Index done) {
  return {.done = done, .total = 2000, .epoch = 3.21, .loss = 1.2344, .tokens_per_second = 12345, .dev_bleu = 87.123};
}

}  // namespace

TEST_CASE("durations and counts") {
  CHECK(short_duration(0) == "0:00");
  CHECK(short_duration(41.4) == "0:41");
  CHECK(short_duration(59.6) == "1:00");
  CHECK(short_duration(725) == "12:05");
  CHECK(short_duration(3 * 3600 + 7 * 60) == "3:07:00");
  CHECK(short_duration(2 * 86400 + 3 * 3600 + 7 * 60) == "2 d 03:07");
  CHECK(short_duration(-1) == "?");
  CHECK(short_duration(std::nan("")) == "?");
  CHECK(short_duration(std::numeric_limits<double>::infinity()) == "?");
  CHECK(short_count(0) == "0");
  CHECK(short_count(950) == "950");
  CHECK(short_count(999.7) == "1.00k");
  CHECK(short_count(12345) == "12.3k");
  CHECK(short_count(99960) == "100k");
  CHECK(short_count(1234567) == "1.23M");
  CHECK(short_count(std::nan("")) == "?");
}

TEST_CASE("a bar fits its columns") {
  CHECK(progress_bar(numbers(420), 41, 120) ==
        "epoch 3.2  step 420/2000 [######------------------------]   21%   0:41 left  loss 1.234  12.3k tok/s  dev BLEU 87.1");
  CHECK(progress_bar(numbers(420), 41, 80) ==
        "epoch 3.2  step 420/2000 [##--------]   21%   0:41 left  loss 1.234  12.3k tok/s");
  CHECK(progress_bar(numbers(420), 41, 30) == "epoch 3.2  step 420/2000   21%");
  CHECK(progress_bar(numbers(420), 41, 20) == "step 420/2000   21%");
  CHECK(progress_bar(numbers(420), 41, 12) == "420   21%");
  for (int columns = 0; columns < 140; ++columns) CHECK(int(progress_bar(numbers(420), 41, columns).size()) <= columns);
  CHECK(progress_bar({.unit = "sentence", .done = 7}, -1, 80) == "sentence 7");
  CHECK(progress_bar({.done = 5, .fraction = 0.5}, 9, 60) == "step 5 [###############---------------]   50%   0:09 left");
  CHECK(progress_bar({.done = 4000, .total = 2000}, 0, 60).find("100%") != std::string::npos);
  CHECK(progress_line(numbers(420), 41) == "step 420 of 2000, epoch 3.2, loss 1.234, 12.3k tokens/s, 0:41 left, dev BLEU 87.1");
  CHECK(progress_line({.done = 3}, -1) == "step 3");
}

TEST_CASE("progress on a terminal") {
  std::ostringstream out;
  double now = 100;
  Progress progress(out, {.terminal = true, .columns = [] { return 60; }, .clock = [&] { return now; }});
  const auto taken = [&] {
    std::string text = out.str();
    out.str("");
    return text;
  };
  progress.update({.done = 1000, .total = 2000});  // a resumed run: the first numbers give no speed yet
  CHECK(taken() == "\rstep 1000/2000 [############------------]   50%      ? left\x1b[K");
  now += 0.05;
  progress.update({.done = 1001, .total = 2000});
  CHECK(taken().empty());  // too soon
  now += 9.95;
  progress.update({.done = 1100, .total = 2000});
  CHECK(taken() == "\rstep 1100/2000 [#############-----------]   55%   1:30 left\x1b[K");
  progress.note("dev BLEU 50.0");
  CHECK(taken() == "\r\x1b[Kdev BLEU 50.0\n\rstep 1100/2000 [#############-----------]   55%   1:30 left\x1b[K");
  progress.update({.done = 2000, .total = 2000});
  CHECK(taken().empty());
  progress.finish();
  CHECK(taken() == "\rstep 2000/2000 [########################]  100%   0:00 left\x1b[K\n");
  progress.finish();
  CHECK(taken().empty());
}

TEST_CASE("progress elsewhere, and quiet") {
  std::ostringstream out;
  double now = 0;
  {
    Progress progress(out, {.clock = [&] { return now; }});
    for (int step = 0; step <= 25; ++step, now += 1) progress.update({.done = step, .total = 26});
    progress.note("dev BLEU 50.0");
  }
  CHECK(out.str() == "step 10 of 26, 0:16 left\nstep 20 of 26, 0:06 left\ndev BLEU 50.0\nstep 25 of 26, 0:01 left\n");
  out.str("");
  {
    Progress progress(out, {.quiet = true, .terminal = true});
    progress.update(numbers(1));
    progress.note("x");
    CHECK(out.str().empty());
    progress.warn("no room");
  }
  CHECK(out.str() == "warning: no room\n");
  std::ostringstream untouched;
  { Progress progress(untouched, {.terminal = true}); }
  CHECK(untouched.str().empty());
  CHECK(terminal_columns(-1) > 0);
  CHECK(page_columns(-1) == 100);
  CHECK(!is_terminal(-1));
}

TEST_CASE("colour on a terminal, unless NO_COLOR is set to something") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const char *const term = std::getenv("TERM"), *const no_colour = std::getenv("NO_COLOR");
  const auto set = [](const char* name, const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); };
  set("TERM", "xterm");
  for (const auto& [value, takes] : {std::pair<const char*, bool>(nullptr, true), {"", true}, {"1", false}, {"0", false}}) {
    set("NO_COLOR", value);
    CHECK(takes_colour(terminal) == takes);
    CHECK(!takes_colour(-1));
  }
  set("TERM", "dumb");
  set("NO_COLOR", nullptr);
  CHECK(!takes_colour(terminal));
  set("TERM", term);
  set("NO_COLOR", no_colour);
  ::close(terminal);
}

TEST_CASE("a training shows how much of its epochs is done") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 40 --dev 4 --test 4").code == 0);
  const std::string train =
      "train --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --learning-rate 0 --average 0 --batch-sentences 5 --epochs 4 "
      "--patience 1 --evaluate-every ";
  int n = 0;
  // the second evaluation is no better and ends it
  for (const auto& [every, shown] :
       {std::pair("3", "epoch 0\\.8  step 6 \\[[#-]*\\]   18%"), {"5", "epoch 1\\.2  step 10 \\[[#-]*\\]   31%"}}) {
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE((terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0));
    const std::string name = ::ptsname(terminal);
    const int kept = ::open(name.c_str(), O_RDWR | O_NOCTTY);
    std::string text;
    std::thread reader([&] {
      char bytes[4096];
      for (ssize_t count; (count = ::read(terminal, bytes, sizeof bytes)) > 0;) text.append(bytes, std::size_t(count));
    });
    const int process = Program{.words = split(train + every + " --out run" + std::to_string(++n)),
                                .folder = folder.path(),
                                .environment = {"TERM=xterm", "COLUMNS=100"},
                                .under = {"sh", "-c", "exec \"$0\" \"$@\" 2>" + name}}.start();
    CHECK(wait_for(process) == 0);
    ::close(kept);                                 // the end for the reader
    reader.join();
    ::close(terminal);
    const std::string last = text.substr(text.rfind("epoch "));
    CHECK_MESSAGE(std::regex_search(last, std::regex(shown)), text);
  }
}
