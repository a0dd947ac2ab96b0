// SPDX-License-Identifier: Apache-2.0
// Where execution is: a thread-local stack of module paths, read by errors, dropout keys, anomaly mode and Trace.
#pragma once
#include <concepts>
#include <string>
#include <string_view>

namespace heed {

// First line of a module's call:  Inside inside(path);   `path` must outlive the guard.
class [[nodiscard]] Inside {
 public:
  explicit Inside(std::string_view path);
  template <std::same_as<std::string> S> explicit Inside(S&&) = delete;   // one that would be gone
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::string_view previous_;
};

// Path of the innermost module being called on this thread, "" outside of any.
std::string_view current_path();

}  // namespace heed
