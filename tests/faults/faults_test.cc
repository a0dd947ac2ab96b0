// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/faults.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace {

constexpr const char* kKinds[] = {
    "strange shapes and strides",
    "writing where elements overlap",
    "a result over its input",
    "sizes whose product overflows",
    "memory that is refused",
    "an exception inside a parallel region",
    "NaN and infinity",
    "nothing to attend to",
    "extreme logits",
    "flush-to-zero set by the caller",
    "misuse of tapes",
    "shared, unused and frozen parameters",
    "optimiser state of another model",
    "safetensors of every wrong kind",
    "a file shorter than its header says",
    "saving over a file that is loaded",
    ".npy and .npz",
    ".pt",
    "numbers of a file that do not fit each other",
    "a SentencePiece model from a stranger",
    "odd text",
    "mistakes at the command line",
    "pipes and signals",
    "faults of the disk",
    "kill -9",
    "modes and links of files",
    "what a resumed training could forget",
    "accumulation",
    "threads",
    "every SIMD target",
    "no clock, no /proc, no TMPDIR, another locale",
    "files of other releases",
    "long work",
    "two writers",
};

}  // namespace

TEST_CASE("faults: each is provoked, and Heed answers as the page says" * doctest::test_suite("slow")) {
  std::vector<Fault> faults;
  for (const auto& some : {tensor_faults(), model_faults(), file_faults(), program_faults()})
    faults.insert(faults.end(), some.begin(), some.end());
  std::stable_sort(faults.begin(), faults.end(), [](const Fault& a, const Fault& b) { return a.number < b.number; });
  std::set<int> kinds;
  std::vector<PageRow> rows;
  for (const Fault& fault : faults) {
    kinds.insert(fault.number);
    INFO(fault.done);
    rows.push_back({std::to_string(fault.number) + " " + kKinds[fault.number - 1] + " | " + fault.done, fault.answer()});
    CHECK_MESSAGE(rows.back().answer.find("NOT") == std::string::npos, rows.back().answer);
    CHECK(rows.back().answer != "nothing thrown");
  }
  CHECK(kinds.size() == std::size(kKinds));
  check_page("tests/faults/faults.md",
             "# Faults\n\n"
             "What was done to Heed, and what it answered. The test \"faults\" does all of this and compares the answers with this page; "
             "`HEED_WRITE_PAGES=1 build/tests/heed-tests -tc='faults*'` writes it. DIR is a folder of the test, N a number that differs "
             "each time.\n\n"
             "| fault | what was done | what Heed answered |\n|---|---|---|\n",
             rows);
}
