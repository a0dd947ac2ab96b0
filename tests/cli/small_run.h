// SPDX-License-Identifier: Apache-2.0
// Data of the copying task and a run that was trained on them for a moment, made once for all tests that look at one.
#pragma once
#include <string>

#include "tests/cli/program.h"

struct SmallRun {
  SmallRun();
  TemporaryFolder folder;                        // data and run in it
};
const SmallRun& small();
Result call(const std::string& line, const std::string& input = {});     // `heed` in its folder
