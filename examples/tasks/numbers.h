// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "examples/tasks/generate.h"

namespace heed {

struct SpokenNumber {
  std::vector<std::string> words;
  Alignment alignment;                        // word - digit, digits counted from the left
};

// 0 .. 999,999 in words of en, fr, es or de, split at spaces and hyphens, German into its pieces: sieben und zwanzig.
// Sure links: each non-zero digit and the words that state it. Possible: words for 100 and 1000 and the digits they scale.
SpokenNumber say_number(std::string_view language, Index number, bool spoken_and = false);

}  // namespace heed
