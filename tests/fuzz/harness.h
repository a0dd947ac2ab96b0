// SPDX-License-Identifier: Apache-2.0
// Readers of what strangers write, each as a function of any bytes: it refuses them with an Error or takes them whole. A fuzzer
// feeds them (tests/fuzz/fuzzer.cc), and tests/fuzz/replay_test.cc what a fuzzer has found once.
#pragma once
#include <span>
#include <string_view>

namespace heed::fuzz {

struct Harness {
  std::string_view name;                         // its seeds lie in tests/fuzz/corpus/<name>
  void (*run)(std::string_view bytes);           // throws or crashes on a find
};
std::span<const Harness> harnesses();

}  // namespace heed::fuzz
