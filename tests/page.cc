// SPDX-License-Identifier: Apache-2.0
#include "tests/page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tensor/file.h"
#include "tests/cli/program.h"

namespace {

std::string neutral(std::string text) {
  const std::string temporary = std::filesystem::temp_directory_path().string();
  for (std::size_t at; (at = text.find(temporary + "/heed-test-")) != text.npos;) text.replace(at, temporary.size() + 17, "DIR");
  static const std::pair<std::regex, const char*> rules[] = {{std::regex(R"(process [0-9]+)"), "process N"},
                                                             {std::regex(R"(in use [0-9]+)"), "in use N"},
                                                             {std::regex(R"(this machine has [0-9]+ GiB)"), "this machine has N GiB"},
                                                             {std::regex(R"(\n+$)"), ""},
                                                             {std::regex(R"(\n)"), " / "}};
  for (const auto& [what, by] : rules) text = std::regex_replace(text, what, by);
  return text;
}

}  // namespace

void check_page(const std::string& path, const std::string& head, const std::vector<PageRow>& rows) {
  const std::string file = std::string(HEED_SOURCE_DIR) + "/" + path;
  const bool write = std::getenv("HEED_WRITE_PAGES") != nullptr;
  const std::string before = std::filesystem::exists(file) ? heed::read_file(file) : "";
  if (!write) CHECK_MESSAGE(before.starts_with(head), path << " begins otherwise");
  std::vector<std::string> lines = lines_of(before.starts_with(head) ? before.substr(head.size()) : "");
  std::string page = head;
  for (const PageRow& row : rows) {
    const std::string begin = "| " + neutral(row.begin) + " | ";
    const auto stands = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(begin); });
    std::string line = begin + neutral(row.answer) + " |";
    if (row.answer.empty()) {
      MESSAGE("skipped, not permitted here: ", row.begin);
      line = stands == lines.end() ? "" : *stands;
    } else if (!write) {
      CHECK((stands == lines.end() ? "not on the page: " + begin : *stands) == line);
    }
    if (!line.empty()) page += line + "\n";
    if (stands != lines.end()) lines.erase(stands);
  }
  if (write) return heed::write_file_atomically(file, page);
  for (const std::string& line : lines) FAIL_CHECK("on the page " << path << ", but nowhere else: " << line);
}
