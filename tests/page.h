// SPDX-License-Identifier: Apache-2.0
// Pages of what Heed answers, written by tests and committed: a test asks again and compares. HEED_WRITE_PAGES=1 in the environment
// writes them.
#pragma once
#include <string>
#include <vector>

struct PageRow {
  std::string begin;                               // its first cells: "matmul | inner sizes differ"
  std::string answer;                              // the last one; "" where this machine does not permit to ask
};

// Compares a page below the source folder, from its head on, with these rows. What another machine or moment changes is left out:
// the folders of tests, process numbers, memory in use.
void check_page(const std::string& path, const std::string& head, const std::vector<PageRow>& rows);
