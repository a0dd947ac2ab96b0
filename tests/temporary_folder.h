// SPDX-License-Identifier: Apache-2.0
// A folder for one test, removed with everything in it at the end of the scope.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

struct TemporaryFolder {
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heed-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder: " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Without the syncs of write_file_atomically, and of a file system when a file is truncated: for loops over many files.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::filesystem::remove(*this / name);
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};
