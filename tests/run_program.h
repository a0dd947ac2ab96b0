// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

struct Ran {
  int exit_code;
  std::string output;
};

// Runs a shell command; standard output, and standard error where the command says 2>&1.
inline Ran run_program(const std::string& command) {
  Ran ran{-1, {}};
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return ran;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) ran.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}
