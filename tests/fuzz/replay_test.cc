// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "tensor/file.h"
#include "tests/fuzz/harness.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> seeds_of(std::string_view harness) {
  std::vector<std::string> files;
  const fs::path folder = fs::path(HEED_SOURCE_DIR) / "tests/fuzz/corpus" / harness;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("fuzz: every seed is taken or refused, and so is each of its beginnings") {
  for (const fuzz::Harness& harness : fuzz::harnesses()) {
    const std::vector<std::string> seeds = seeds_of(harness.name);
    CHECK_MESSAGE(!seeds.empty(), harness.name);
    for (const std::string& seed : seeds) {
      INFO(seed);
      const std::string bytes = read_file(seed);
      CHECK_NOTHROW(harness.run(bytes));
      const std::size_t step = bytes.size() / 300 + 1;
      for (std::size_t size = 0; size < bytes.size(); size += step) CHECK_NOTHROW(harness.run(std::string_view(bytes).substr(0, size)));
    }
  }
}

TEST_CASE("fuzz: 64 KiB of the same thing over and over take less than a second") {
  constexpr std::size_t kSize = 64 << 10;
  for (const fuzz::Harness& harness : fuzz::harnesses()) {
    std::vector<std::string> pieces{"a",  "9",   " ",    "\n",          "\t",     "-",    "[",    "{",        "\"",        "\\",   ",",
                                    "--", "a\n", "-1\n", "--beam\n1\n", "\"a\":", "[[],", "\xff", "\xc3\xa9", "e\xcc\x81", "0-0 ", "ab,"};
    for (const std::string& seed : seeds_of(harness.name)) pieces.push_back(read_file(seed));
    pieces.emplace_back(1, '\0');
    for (const std::string& piece : pieces) {
      std::string bytes;
      while (!piece.empty() && bytes.size() < kSize) bytes += piece;
      bytes.resize(kSize);
      const std::clock_t begin = std::clock();
      CHECK_NOTHROW(harness.run(bytes));
      const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
      CHECK_MESSAGE(seconds < 1, harness.name << ": " << seconds << " s of " << piece.substr(0, 40));
    }
  }
}
