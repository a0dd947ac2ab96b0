// SPDX-License-Identifier: Apache-2.0
// The rules of the house that a machine can check: who may include whom, stems, headers that stand alone, no exits.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "tensor/file.h"
#include "tensor/format.h"
#include "tests/temporary_folder.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

const fs::path root = HEED_SOURCE_DIR;
const std::vector<std::string> layers{"tensor", "autograd", "nn", "attention", "models", "examples"};   // includes go to the left only

struct Source {
  std::string path, folder, text, code;   // code: without comments and the insides of literals
};

// Comments and the insides of literals become spaces; lines stay where they are.
std::string code_of(const std::string& text) {
  static const std::regex token(R"re(//[^\n]*|/\*[^]*?\*/|R"(\w*)\([^]*?\)\1"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)')re");
  std::string code;
  auto from = text.begin();
  for (std::sregex_iterator it(text.begin(), text.end(), token), end; it != end; ++it) {
    code.append(from, (*it)[0].first);
    for (const char c : it->str()) code += c == '\n' ? '\n' : ' ';
    from = (*it)[0].second;
  }
  return code.append(from, text.end());
}

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> found;
    std::vector<std::string> folders = layers;
    folders.push_back("tests");
    for (const std::string& folder : folders) {
      if (!fs::exists(root / folder)) continue;
      for (const auto& file : fs::recursive_directory_iterator(root / folder)) {
        const std::string extension = file.path().extension().string();
        if (extension != ".h" && extension != ".cc") continue;
        const std::string text = read_file(file.path().string());
        found.push_back({fs::relative(file.path(), root).generic_string(), folder, text, code_of(text)});
      }
    }
    std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
    return found;
  }();
  return all;
}

bool is_library(const Source& source) { return source.folder != "tests" && source.folder != "examples"; }
bool is_header(const Source& source) { return source.path.ends_with(".h"); }
bool is_inline_part(const Source& source) { return source.path.ends_with("-inl.h"); }   // included several times, never alone

// The names between `open` and its twin in lines  #include "name"  or  #include <name>
std::vector<std::string> includes(const Source& source, char open) {
  std::vector<std::string> names;
  std::istringstream lines(source.text);
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t first = line.find_first_not_of(' '); first == line.npos || line[first] != '#') continue;
    const std::size_t word = line.find("include"), from = line.find(open, word), to = line.find(open == '<' ? '>' : '"', from + 1);
    if (word != line.npos && from != line.npos && to != line.npos) names.push_back(line.substr(from + 1, to - from - 1));
  }
  return names;
}

// Where in the text the word ends, each time it stands alone.
std::vector<std::size_t> ends_of_word(const std::string& text, const std::string& word) {
  const auto continues = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  std::vector<std::size_t> ends;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1))
    if (!(at > 0 && continues(at - 1)) && !continues(at + word.size())) ends.push_back(at + word.size());
  return ends;
}

bool is_third_party(const std::string& name) {
  return std::regex_search(
      name, std::regex("^(hwy|tbb|oneapi|fmt|nlohmann|doctest|benchmark|CLI)/|^(utf8proc|sentencepiece|rapidcheck)"));
}

}  // namespace

TEST_CASE("house: includes go down only, and name the file from the root") {
  CHECK(sources().size() > 50);
  for (const Source& source : sources())
    for (const std::string& name : includes(source, '"')) {
      const std::string folder = name.substr(0, name.find('/'));
      const auto to = std::find(layers.begin(), layers.end(), folder),
                 from = std::find(layers.begin(), layers.end(), source.folder);
      INFO(source.path << " includes " << name);
      CHECK(((to != layers.end() && to <= from) || (folder == "tests" && source.folder == "tests")));
      CHECK(fs::exists(root / name));
    }
}

TEST_CASE("house: Highway and TBB under tensor/ only, heavy headers in no public header") {
  for (const Source& source : sources()) {
    for (const std::string& name : includes(source, '<')) {
      INFO(source.path << " includes " << name);
      const bool simd = name.starts_with("hwy/"),
                 threads = name.starts_with("tbb/") || name.starts_with("oneapi/") || name == "thread";
      if (simd) CHECK((source.folder == "tensor" || source.folder == "tests"));
      if (threads && is_library(source)) CHECK(source.path == "tensor/parallel.cc");
      if (is_third_party(name) && is_header(source) && !is_inline_part(source) && is_library(source))
        CHECK((source.path == "tensor/format.h" || source.path == "tensor/json.h"));
      if (name == "iostream") CHECK_FALSE(is_library(source));
    }
    for (const std::string& name : includes(source, '"')) {
      INFO(source.path << " includes " << name);
      if (name.ends_with("-inl.h")) CHECK((source.folder == "tensor" || source.folder == "tests"));
      if (name == "tensor/parallel.h" && is_library(source))
        CHECK((source.folder == "tensor" || source.path.starts_with("models/search")));
      if (name == "tensor/format.h" || name == "tensor/json.h") CHECK_FALSE((is_header(source) && is_library(source)));
    }
  }
}

TEST_CASE("house: what stands in HWY_NAMESPACE stands in an unnamed namespace there") {
  static const std::regex opening(R"re(HWY_NAMESPACE \{\s*(\S+ \S)?)re");
  for (const Source& source : sources())
    for (std::sregex_iterator it(source.code.begin(), source.code.end(), opening), end; it != end; ++it) {
      INFO(source.path);
      CHECK((*it)[1] == "namespace {");
    }
}

TEST_CASE("house: every stem of autograd/ops has its twins in tensor/ops and tests/ops") {
  for (const Source& source : sources()) {
    if (!source.path.starts_with("autograd/ops/") || is_header(source)) continue;
    const std::string stem = fs::path(source.path).stem().string();
    for (const std::string& twin :
         {"tensor/ops/" + stem + ".h", "tensor/ops/" + stem + ".cc", "tests/ops/" + stem + "_test.cc"})
      CHECK_MESSAGE(fs::exists(root / twin), source.path << " needs " << twin);
  }
}

TEST_CASE("house: the library neither ends the process nor prints") {
  for (const Source& source : sources()) {
    if (!is_library(source)) continue;
    INFO(source.path);
    for (const char* call :
         {"abort", "exit", "_exit", "quick_exit", "terminate", "printf", "fprintf", "vprintf", "puts", "putchar", "perror"})
      for (const std::size_t end : ends_of_word(source.code, call)) {
        INFO(call);
        CHECK(source.code[std::min(source.code.find_first_not_of(' ', end), source.code.size() - 1)] != '(');
      }
    for (const char* word : {"std::cout", "std::cerr", "std::clog", "stdout", "stderr", "fmt::print"}) {
      INFO(word);
      CHECK(ends_of_word(source.code, word).empty());
    }
  }
}

TEST_CASE("house: licence line, guard, no absolute path, nothing left to do") {
  for (const Source& source : sources()) {
    INFO(source.path);
    CHECK(source.text.starts_with("// SPDX-License-Identifier: Apache-2.0\n"));
    if (is_header(source) && !is_inline_part(source)) CHECK(source.code.find("#pragma once") != std::string::npos);
    if (source.path == "tests/house_test.cc") continue;
    for (const std::string folder : {"home", "root", "work", "Users", "tmp", "opt", "usr", "var", "mnt"})
      for (const char before : {'"', '\'', ' ', '('}) CHECK(source.text.find(before + ("/" + folder + "/")) == std::string::npos);
    for (const char* word : {"TODO", "FIXME", "XXX", "HACK"}) CHECK(ends_of_word(source.text, word).empty());
  }
}

TEST_CASE("house: code is at most 140 characters wide, texts in it not counted") {
  for (const Source& source : sources()) {
    INFO(source.path);
    std::istringstream texts(source.text), codes(source.code);
    std::string code;
    int number = 0;
    for (std::string text; std::getline(texts, text) && std::getline(codes, code);) {
      ++number;
      CAPTURE(number);
      std::size_t wide = std::min(text.find_first_not_of(' '), text.size());
      for (std::size_t i = wide; i < code.size(); ++i) wide += code[i] != ' ' || (i + 1 < code.size() && code[i + 1] != ' ');
      CHECK(wide <= 140);
    }
  }
}

// A header that its own .cc includes first has compiled alone already, with all warnings, as those to be precompiled;
// the others are compiled here.
TEST_CASE("house: every header compiles alone") {
  std::set<std::string> proven;
  for (const Source& source : sources()) {
    const std::string own = fs::path(source.path).replace_extension(".h").generic_string();
    std::smatch first;
    if (!is_header(source) &&
        std::regex_search(source.text, first, std::regex(R"re((?:^|\n) *# *(?:include|define) *["<]?([^">\n]+))re")) &&
        first[1] == own)
      proven.insert(own);
  }
  std::vector<std::string> headers;
  for (const Source& source : sources())
    if (is_header(source) && !is_inline_part(source) && !proven.contains(source.path))
      headers.push_back(source.path);
  const TemporaryFolder folder;
  std::vector<std::string> errors(headers.size());
  std::atomic<size_t> next = 0;
  const auto work = [&](size_t worker) {
    const std::string log = folder / std::to_string(worker);
    for (size_t i; (i = next++) < headers.size();) {
      const std::string command = fmt::format(
          "{} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I '{}' -include '{}' -x c++ /dev/null > '{}' 2>&1",
          HEED_COMPILER, root.string(), headers[i], log);
      if (std::system(command.c_str()) != 0) errors[i] = "failed: " + read_file(log);
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, 8u); ++i) workers.emplace_back(work, i);
  for (std::thread& worker : workers) worker.join();
  for (size_t i = 0; i < headers.size(); ++i) CHECK_MESSAGE(errors[i].empty(), headers[i] << ": " << errors[i].substr(0, 2000));
}

TEST_CASE("house: the examples at the top of headers compile") {
  struct Example { std::string header, more, open, close; };   // further includes, and what stands around the lines behind "//   "
  const Example examples[] = {
      {"autograd/record.h", "tensor/ops/binary.h tensor/ops/unary.h", "namespace mine {", "}"},
      {"autograd/trace.h", "", "Variable f(Variable q, Variable k) {", "return e; }"},
      {"nn/optimizer.h", "tensor/ops/binary.h tensor/ops/unary.h", "void f(Parameters& parameters) {", "}"},
      {"nn/average.h", "nn/optimizer.h", "void f(Parameters& parameters, Adam& adam) {", "}"},
      {"attention/score.h", "examples/cli/cli.h", "", ""},
  };
  for (const Example& its : examples) {
    INFO(its.header);
    std::istringstream lines(read_file((root / its.header).string())), includes("autograd/ops.h " + its.header + " " + its.more);
    std::string program, example;
    for (std::string name; includes >> name;) program += "#include \"" + name + "\"\n";
    for (std::string line; std::getline(lines, line) && line != "#pragma once";)
      if (line.starts_with("//   ")) example += line.substr(5) + "\n";
    REQUIRE(!example.empty());
    const TemporaryFolder folder;
    write_file_atomically(folder / "example.cc", program + "using namespace heed;\n" + its.open + "\n" + example + its.close + "\n");
    CHECK(std::system(
              fmt::format("{} -std=c++20 -fsyntax-only -I '{}' '{}'", HEED_COMPILER, root.string(), folder / "example.cc").c_str()) == 0);
  }
}

TEST_CASE("house: README names files that are there") {
  const std::string page = read_file((root / "README.md").string());
  const std::regex name(R"re([`(]((?:tensor|autograd|nn|attention|models|examples|tests)/[\w./]+)[`) ])re");
  int named = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), name), end; it != end; ++it, ++named)
    CHECK_MESSAGE(fs::exists(root / it->str(1)), it->str(1));
  CHECK(named > 60);
}

TEST_CASE("house: every planted fault has its place") {
  std::istringstream lines(read_file((root / "tests/mutants.txt").string()));
  std::string name, path, from, to;
  int faults = 0;
  const auto stands_once = [&] {
    if (name.empty()) return;
    CAPTURE(name);
    ++faults;
    REQUIRE(fs::exists(root / path));
    CHECK(from != to);
    const std::string text = read_file((root / path).string());
    const std::size_t at = text.find(from);
    CHECK(at != std::string::npos);
    CHECK(text.find(from, at + 1) == std::string::npos);
  };
  const auto append = [](std::string& text, const std::string& line) {
    text += (text.empty() ? "" : "\n") + (line.size() > 2 ? line.substr(2) : "");
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) stands_once(), name = line.substr(2), path = from = to = "";
    else if (line == "-" || line.starts_with("- ")) append(from, line);
    else if (line == "+" || line.starts_with("+ ")) append(to, line);
    else if (const std::size_t bar = line.find(" | "); bar != std::string::npos) path = line.substr(0, bar);
  }
  stands_once();
  CHECK(faults > 200);
}
