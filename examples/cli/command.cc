// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "models/drawing.h"
#include "tensor/format.h"

namespace heed::cli {
namespace {

bool is_switch(const Option& option) { return std::holds_alternative<bool*>(option.value); }

std::string flag(std::string_view name) { return fmt::format("--{}", name); }

std::string see(const Syntax& syntax) { return fmt::format("`heed {} --help` shows what there is", syntax.command); }

const Option* find(const Syntax& syntax, std::string_view with_dashes) {
  for (const Option& option : syntax.options)
    if (flag(option.name) == with_dashes) return &option;
  return nullptr;
}

[[noreturn]] void unknown(const Syntax& syntax, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (!word.starts_with('-') || word == "-") throw Mistake(fmt::format("unexpected word: {}; {}", quote(word), see(syntax)));
  std::vector<std::string_view> known;
  for (const Option& option : syntax.options) known.push_back(option.name);
  const std::string plain = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  throw Mistake(fmt::format("unknown flag: {}; {}{}", drawing::printable(name), did_you_mean(plain, known, "--"), see(syntax)));
}

std::string lines_of(std::string_view indent, const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += fmt::format("{}{}\n", indent, line);
  return out;
}

}  // namespace

std::vector<Option> options(Manner& manner) {
  return {{.name = "quiet", .value = &manner.quiet, .help = "no progress and no notes on standard error", .heading = "Output"},
          {.name = "json", .value = &manner.json, .help = "results as JSON on standard output"}};
}

std::vector<Option> operator+(std::vector<Option> a, const std::vector<Option>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string help(const Syntax& syntax) {
  std::string out = fmt::format("{}\n\nUsage: heed {} {}\n", syntax.about, syntax.command, syntax.usage);
  if (!syntax.example.empty()) out += fmt::format("Example: {}\n", syntax.example);
  if (!syntax.options.empty() && syntax.options.front().heading.empty()) out += '\n';
  constexpr std::size_t kColumn = 30;
  std::string_view heading;
  for (const Option& option : syntax.options) {
    if (!option.heading.empty() && option.heading != heading) out += fmt::format("\n{}\n", heading = option.heading);
    std::string text(option.help);
    if (!option.choices.empty()) text += fmt::format(" ({})", fmt::join(option.choices, ", "));
    if (!option.standard.empty()) text += fmt::format(" [{}]", option.standard);
    const std::string name = fmt::format("  --{} {}", option.name, option.takes);
    const std::vector<std::string> lines = drawing::wrap(text, 100 - double(kColumn));
    if (name.size() < kColumn && !lines.empty())
      out += fmt::format("{:<{}}{}\n", name, kColumn, lines[0]) + lines_of(std::string(kColumn, ' '), {lines.begin() + 1, lines.end()});
    else out += name + "\n" + lines_of(std::string(kColumn, ' '), lines);
  }
  return out;
}

struct Reader::Parts {
  const Syntax& syntax;
  CLI::App app{};
  std::vector<CLI::Option*> flags{};
  std::vector<std::vector<std::string>> values{};
};

Reader::Reader(const Syntax& syntax) : parts_(new Parts{.syntax = syntax}) {
  CLI::App& app = parts_->app;
  app.set_help_flag();
  app.allow_extras();
  parts_->values.resize(syntax.options.size());
  for (std::size_t i = 0; i < syntax.options.size(); ++i) {
    const Option& option = syntax.options[i];
    const std::string name = flag(option.name);
    if (is_switch(option)) parts_->flags.push_back(app.add_flag(name));
    else
      parts_->flags.push_back(app.add_option(name, parts_->values[i])
                                  ->expected(int(option.count))
                                  ->allow_extra_args(false)
                                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
  }
}

Reader::~Reader() = default;

bool Reader::operator()(std::span<const std::string> words, Given& given) {
  auto& [syntax, app, flags, values] = *parts_;
  if (std::ranges::any_of(words, [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    print(help(syntax));
    flush();
    return false;
  }
  for (auto& value : values) value.clear();
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& e) {
    const std::string text = e.what(), name = text.substr(0, text.find(':'));
    if (const Option* option = find(syntax, name)) throw Mistake(fmt::format("no value: {}; {}", name, allowed(*option)));
    throw Mistake(fmt::format("{}; {}", drawing::printable(text), see(syntax)));
  }
  for (std::size_t i = 0; i < syntax.options.size(); ++i) {
    const Option& option = syntax.options[i];
    if (flags[i]->count() == 0) continue;
    if (is_switch(option)) {
      if (std::ranges::find(words, flag(option.name) + "=") != words.end())
        throw Mistake(fmt::format("no value: {}=; {}", flag(option.name), allowed(option)));
      values[i] = flags[i]->results();             // "true" without =
      values[i].erase(std::unique(values[i].begin(), values[i].end()), values[i].end());
    }
    for (const std::string& value : values[i]) {
      if (value.empty()) throw Mistake(fmt::format("an empty value: {} \"\"; {}", flag(option.name), allowed(option)));
      if (find(syntax, value) && std::ranges::find(words, flag(option.name) + "=" + value) == words.end())
        throw Mistake(fmt::format("no value: {} before {}; {}", flag(option.name), value, allowed(option)));
    }
    if (values[i].size() < option.count)
      throw Mistake(fmt::format("too few values: {} {}; {}", flag(option.name), values[i][0], allowed(option)));
    if (values[i].size() > option.count) throw Mistake(fmt::format("given more than once: {}; {}", flag(option.name), allowed(option)));
    given[std::string(option.name)] = values[i];
  }
  std::size_t word = 0;
  for (const std::string& rest : app.remaining()) {
    if (word == syntax.words.size() || (rest.starts_with('-') && rest != "-")) unknown(syntax, rest);
    if (rest.empty()) break;                                  // missing
    *syntax.words[word++].value = rest;
  }
  if (word < syntax.words.size())
    throw Mistake(fmt::format("missing: {}; heed {} {}", syntax.words[word].name, syntax.command, syntax.usage));
  return true;
}

bool read(const Syntax& syntax, std::span<const std::string> words, Given& given) { return Reader(syntax)(words, given); }

void set_options(const Syntax& syntax, const Given& given) {
  for (const Option& option : syntax.options) {
    const auto at = given.find(option.name);
    if (at == given.end()) continue;
    try {
      set(option, at->second);
    } catch (const Error& e) {
      throw Mistake(e.what());
    }
  }
}

bool parse(const Syntax& syntax, std::span<const std::string> words) {
  Given given;
  if (!read(syntax, words, given)) return false;
  set_options(syntax, given);
  return true;
}

// ---- output ---------------------------------------------------------------------------------------------------------

namespace {

std::string& waiting() {
  static std::string text;
  return text;
}

// 0, or the number of the error after which nothing more is written.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(std::size_t(written));
  }
  return 0;
}

}  // namespace

void print(std::string_view text) {
  waiting() += text;
  if (waiting().size() > 1 << 16) flush();
}

void flush() {
  const int error = write_all(STDOUT_FILENO, waiting());
  waiting().clear();
  if (error == EPIPE) throw Unread();
  if (error != 0) throw Fault(fmt::format("standard output: cannot write: {}", std::strerror(error)));
}

void note(std::string_view line) { write_all(STDERR_FILENO, drawing::printable(line) + "\n"); }

void check_different(const std::string& input, const std::string& output) {
  struct stat a, b;
  if (::stat(input.c_str(), &a) == 0 && ::stat(output.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
    throw Mistake(fmt::format("input and output are the same file: {} and {}; another name for the output", input, output));
}

void check_output(const std::string& file) {
  struct stat there;
  if (::stat(file.c_str(), &there) == 0 && S_ISDIR(there.st_mode))
    throw Mistake(fmt::format("a directory: --out {}; the name of a file", file));
  if (file.starts_with("/dev/")) return;                      // written to, not replaced
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  const int error = errno;
  const std::string text = fmt::format("cannot write: --out {}: {}: {}; a file in another directory", file, folder, std::strerror(error));
  if (error == EROFS) throw FileError(text, error);
  throw Mistake(text);
}

void check_required(const std::string& value, std::string_view name, std::string_view hint) {
  if (value.empty()) throw Mistake(fmt::format("missing: --{}; {}", name, hint));
}

}  // namespace heed::cli
