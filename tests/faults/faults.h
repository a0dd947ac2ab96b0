// SPDX-License-Identifier: Apache-2.0
// Faults that Heed survives, each provoked for real. The page faults.md beside this file says what was done and what Heed answered;
// tests/faults/faults_test.cc writes it and compares it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/page.h"
#include "tests/thrown.h"

struct Fault {
  int number;                                      // of its kind, as faults_test.cc names them
  std::string done;                                // to Heed
  std::function<std::string()> answer;             // of Heed; "" where this machine does not permit the fault
};

std::vector<Fault> tensor_faults();
std::vector<Fault> model_faults();
std::vector<Fault> file_faults();
std::vector<Fault> program_faults();

// What holds in all of the cases.
struct Cases {
  int all = 0, good = 0;
  void add(bool holds) { ++all, good += holds; }
  std::string say(const std::string& what) const {
    return all > 0 && good == all ? what : "NOT (" + std::to_string(good) + " of " + std::to_string(all) + "): " + what;
  }
};
