// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
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
