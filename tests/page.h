// SPDX-License-Identifier: Apache-2.0
// Pages of what Heed answers, written by tests and committed: a test asks again and compares. HEED_WRITE_PAGES=1 in the environment
// writes them.
#pragma once
#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

struct PageRow {
  std::string begin;                               // its first cells: "matmul | inner sizes differ"
  std::string answer;                              // the last one; "" where this machine does not permit to ask
};

// Compares a page below the source folder, from its head on, with these rows. What another machine or moment changes is left out:
// the folders of tests, process numbers, memory in use.
void check_page(const std::string& path, const std::string& head, const std::vector<PageRow>& rows);

// "ShapeError: text" of what a call throws.
template <class F> std::string thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    const std::unique_ptr<char, void (*)(void*)> type(abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, nullptr), std::free);
    const std::string name = type.get();
    return name.substr(name.rfind(':') + 1) + ": " + e.what();
  }
  return "nothing thrown";
}
