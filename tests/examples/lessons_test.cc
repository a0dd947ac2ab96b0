// SPDX-License-Identifier: Apache-2.0
// Every numbered lesson prints what the comment at its end says.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>

#include "tensor/file.h"
#include "tests/run_program.h"
#include "tests/temporary_folder.h"
#include "tests/xml.h"

namespace fs = std::filesystem;

namespace {

// Microseconds are those of a machine.
std::string without_times(const std::string& text) { return std::regex_replace(text, std::regex(" *[0-9]+\\.[0-9] µs"), " T"); }

}  // namespace

TEST_CASE("lessons print what their last comment says") {
  int lessons = 0;
  const TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(fs::path(HEED_SOURCE_DIR) / "examples")) {
    const fs::path source = entry.path();
    if (source.extension() != ".cc") continue;
    CAPTURE(source.string());
    ++lessons;
    const std::string text = heed::read_file(source.string()), opening = "/* Output:\n", closing = "*/\n";
    const std::size_t begin = text.rfind(opening);
    REQUIRE(begin != std::string::npos);
    REQUIRE(text.ends_with(closing));
    const std::string expected = text.substr(begin + opening.size(), text.size() - closing.size() - begin - opening.size());
    const Ran ran = run_program("cd '" + folder.path() + "' && '" + (fs::path(HEED_BUILD_DIR) / "examples" / source.stem()).string() + "'");
    CHECK(ran.exit_code == 0);
    CHECK(without_times(ran.output) == without_times(expected));
    const std::size_t drawn = expected.find("drawn: ");
    if (drawn != expected.npos)
      CHECK(xml_fault(heed::read_file(folder / expected.substr(drawn + 7, expected.find('\n', drawn) - drawn - 7))) == "");
  }
  CHECK(lessons == 22);
}

TEST_CASE("README: every C++ block stands in a lesson, word for word, and so does what it prints") {
  const fs::path root = HEED_SOURCE_DIR;
  const std::string page = heed::read_file((root / "README.md").string()), opening = "```cpp\n", output = "```\n\n```\n";
  int blocks = 0, outputs = 0;
  for (std::size_t at = 0; (at = page.find(opening, at)) != std::string::npos; ++blocks) {
    at += opening.size();
    const std::size_t end = page.find("```", at);
    const std::string block = page.substr(at, end - at);
    std::string printed;
    if (page.compare(end, output.size(), output) == 0) {
      printed = page.substr(end + output.size(), page.find("```", end + output.size()) - end - output.size());
      ++outputs;
    }
    bool found = false;
    for (const auto& entry : fs::directory_iterator(root / "examples")) {
      if (entry.path().extension() != ".cc") continue;
      const std::string lesson = heed::read_file(entry.path().string());
      found |= lesson.find(block) != std::string::npos && lesson.ends_with(printed + (printed.empty() ? "" : "*/\n"));
    }
    CAPTURE(block);
    CHECK(found);
  }
  CHECK(blocks == 3);
  CHECK(outputs == 1);
}
