// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tensor/file.h"

namespace fs = std::filesystem;

namespace {

constexpr char kProgram[] = HEED_BUILD_DIR "/examples/heed";

void redirect(const std::string& file, int flags, int to) {
  const int from = ::open(file.c_str(), flags, 0666);
  if (from < 0 || ::dup2(from, to) < 0) ::_exit(126);
  ::close(from);
}

int launch(const Program& program, const std::string& in, const std::string& out, const std::string& err) {
  std::vector<char*> arguments;
  for (const std::string& word : program.under) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(const_cast<char*>(kProgram));
  for (const std::string& word : program.words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return int(child);
  for (const int number : {SIGINT, SIGHUP}) ::signal(number, SIG_DFL);                 // a shell in the background ignores them
  redirect(in, O_RDONLY, 0);
  redirect(out, O_WRONLY | O_CREAT | O_TRUNC, 1);
  redirect(err, O_WRONLY | O_CREAT | O_TRUNC, 2);
  if (::chdir(program.folder.c_str()) != 0) ::_exit(126);
  for (const std::string& variable : program.environment) ::putenv(const_cast<char*>(variable.c_str()));
  if (program.largest_file >= 0) {
    const rlimit limit{rlim_t(program.largest_file), rlim_t(program.largest_file)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

int wait_for(int process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Result Program::run() const {
  const TemporaryFolder streams;
  write_text(streams / "in", input);
  const std::string out = output.empty() ? streams / "out" : output;
  Result result;
  result.code = wait_for(launch(*this, streams / "in", out, streams / "err"));
  if (output.empty()) result.out = text_of(out);
  result.err = text_of(streams / "err");
  return result;
}

int Program::start(const std::string& input_file) const {
  return launch(*this, input_file, output.empty() ? "/dev/null" : output, "/dev/null");
}

std::vector<std::string> split(const std::string& line) {
  static const std::regex word(R"('([^']*)'|(\S+))");
  std::vector<std::string> words;
  for (std::sregex_iterator it(line.begin(), line.end(), word), end; it != end; ++it)
    words.push_back((*it)[2].matched ? (*it)[2] : (*it)[1]);
  return words;
}

Result heed_in(const std::string& folder, const std::string& line, const std::string& input) {
  return Program{.words = split(line), .folder = folder, .input = input}.run();
}

std::string text_of(const std::string& path) { return heed::read_file(path); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string listing(const std::string& folder) {
  std::vector<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().filename() != "lock")
      lines.push_back(entry.path().string() + " " +
                      (entry.is_regular_file()
                           ? std::to_string(entry.file_size()) + " " + std::to_string(entry.last_write_time().time_since_epoch().count())
                           : "directory"));
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

std::string log_without_timing(const std::string& run) {
  static const std::regex timing(R"re(, "timing": \{[^}]*\})re");
  return std::regex_replace(text_of(run + "/metrics.jsonl"), timing, "");
}
