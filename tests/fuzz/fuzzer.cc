// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry: feeds the harness HEED_FUZZ. Built with -Dfuzz=true and clang.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/harness.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const heed::fuzz::Harness& harness : heed::fuzz::harnesses())
    if (harness.name == HEED_FUZZ) harness.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
