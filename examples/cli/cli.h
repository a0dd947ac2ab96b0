// SPDX-License-Identifier: Apache-2.0
// The `heed` program.
#pragma once
#include "attention/score.h"

namespace heed {

// What `heed` does with these arguments; the value is its exit code: 0 done, 1 a fault while working, damage that `inspect` or a difference
// that `diff` found, 2 a mistake in the command or in a file named there, 129, 130, 143 stopped by a signal.
// A user's own scores are known by their names in every command: examples/*_your_own_score.cc.
int main(int argc, char** argv, std::vector<NamedScore> extra_scores = {});

}  // namespace heed
