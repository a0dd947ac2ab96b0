// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "examples/cli/command.h"
#include "models/drawing.h"
#include "tensor/context.h"

namespace heed {
namespace cli {
namespace {

constexpr Command kCommands[] = {
    {"data", "make data for a task: copy, reverse, sort, numbers, dates, phrases", data},
    {"train", "train a model, or go on with it", train},
    {"translate", "lines from standard input to standard output", translate},
    {"evaluate", "loss, perplexity, BLEU, chrF and exact match on data", evaluate},
    {"score", "BLEU, chrF and exact match of a file against references", score},
    {"attention", "draw where a model looks: SVG, HTML or text", attention},
    {"explain", "one decode step: every value with its formula; with --target its gradient too", explain},
    {"compare", "train a model with each attention; one table of cost and quality", compare},
    {"inspect", "what a run, a checkpoint or any .safetensors holds", inspect},
    {"trace", "every module's output for one sentence into a file", trace},
    {"diff", "the first and the largest difference of two files of tensors", diff},
    {"check-gradients", "every differentiable function against central differences", check_gradients},
};

std::string program_help() {
  std::string out = "Heed " HEED_VERSION
                    ": trains models that translate, and shows where they look.\n\nUsage: heed COMMAND [options]     `heed COMMAND --help` "
                    "shows them\n\n";
  for (const Command& command : kCommands) out += fmt::format("  {:<16} {}\n", command.name, command.about);
  return out +
         "\nFor example:\n"
         "  heed data reverse --out reverse-data\n"
         "  heed train --data reverse-data --out reverse\n"
         "  heed evaluate --run reverse --data reverse-data\n"
         "  echo '3 14 15 9 26' | heed translate --run reverse\n";
}

bool is_fault(int error) {
  for (const int fault : {ENOSPC, EDQUOT, EIO, EFBIG, ENOMEM, EMFILE, ENFILE, EROFS})
    if (error == fault) return true;
  return false;
}

// A wrong HEED_THREADS is said before anything is written, unless --threads goes before it or help needs none.
void check_threads(std::span<const std::string> words) {
  const auto needs_none = [](const std::string& word) {
    return word == "--threads" || word.starts_with("--threads=") || word == "--help" || word == "-h";
  };
  if (std::ranges::none_of(words, needs_none)) threads();
}

int run(std::span<const std::string> words, std::string& name) {
  if (words.size() > 1 && words[0] == "help") return run(std::vector<std::string>{words[1], "--help"}, name);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print(program_help());
    flush();
    return 0;
  }
  if (words[0] == "--version") {
    print(fmt::format("heed " HEED_VERSION "\n{}\n", describe_context()));
    flush();
    return 0;
  }
  for (const Command& command : kCommands)
    if (command.name == words[0]) {
      name = fmt::format("heed {}", command.name);
      check_threads(words.subspan(1));
      const int code = command.run(words.subspan(1));
      flush();
      return code;
    }
  std::vector<std::string_view> known;
  for (const Command& command : kCommands) known.push_back(command.name);
  const std::string_view near = nearest(words[0], known);
  throw Mistake(fmt::format(
      "unknown command: {}; {}", drawing::printable(words[0]).substr(0, 80),
      near.empty() ? fmt::format("there are {}", fmt::join(known, ", ")) : fmt::format("did you mean {}? `heed --help` lists all", near)));
}

// A stream that is closed would give its number to the first file that is opened. Its reads and writes fail as before.
void keep_streams_closed() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

}  // namespace cli

int main(int argc, char** argv, std::vector<NamedScore> extra_scores) {
  cli::keep_streams_closed();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);                     // a write then fails with EFBIG, and says so
  std::string name = "heed";
  const auto say = [&](const char* text) { cli::note(fmt::format("{}: {}", name, text)); };
  try {
    const ExtraScores known(std::move(extra_scores));
    return cli::run(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)), name);
  } catch (const cli::Unread&) {
    return 0;
  } catch (const cli::Fault& e) {
    say(e.what());
    return 1;
  } catch (const FileError& e) {
    if (e.error_number == EPIPE) return 0;           // as Unread: --out /dev/stdout
    say(e.what());
    return cli::is_fault(e.error_number) ? 1 : 2;
  } catch (const NumericError& e) {
    say(e.what());
    return 1;
  } catch (const Error& e) {
    say(e.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& e) {
    say(fmt::format("{}: {}", e.path1().string(), e.code().message()).c_str());
    return cli::is_fault(e.code().value()) ? 1 : 2;
  } catch (const OutOfMemory& e) {                   // of tensors
    say(e.what());
    return 1;
  } catch (const std::bad_alloc&) {
    say("the system gives no more memory; less data, a smaller model or smaller batches");
    return 1;
  } catch (const std::exception& e) {
    say(e.what());
    return 1;
  }
}

}  // namespace heed
