// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "examples/cli/model.h"
#include "examples/cli/quality.h"
#include "models/text.h"
#include "tensor/json.h"
#include "tensor/packed.h"

namespace heed::cli {
namespace {

constexpr std::size_t kBlock = 512;                // lines translated together
constexpr std::size_t kMostUnknown = 10000;        // words that wait to be named

// Lines of standard input as they come; only LF ends one.
class InputLines {
 public:
  // Up to `most` lines, fewer only where the input ends or, on a terminal or pipe, nothing more is there yet.
  bool next(std::vector<std::string>& lines, std::size_t most) {
    lines.clear();
    while (lines.size() < most) {
      const std::size_t end = text_.find('\n', at_);
      if (std::min(end, text_.size()) - at_ > kLongestLine) {
        if (!lines.empty()) break;                            // those before it are answered
        throw Mistake(fmt::format("standard input: line {} is longer than {} bytes; shorter lines", number_ + 1, kLongestLine));
      }
      if (end != text_.npos) {
        take(lines, text_.substr(at_, end - at_));
        at_ = end + 1;
        continue;
      }
      text_.erase(0, at_);
      at_ = 0;
      if (!ended_ && !lines.empty()) break;                   // do not wait while there is something to do
      if (ended_) {
        if (!text_.empty()) take(lines, std::exchange(text_, {}));
        break;
      }
      fill();
    }
    return !lines.empty();
  }
  Index invalid() const { return invalid_; }

 private:
  void fill() {
    char buffer[1 << 16];
    for (;;) {
      const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Fault(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
      ended_ = count == 0;
      if (number_ == 0 && text_.empty()) check_text({buffer, std::size_t(count)}, "standard input");
      text_.append(buffer, std::size_t(count));
      return;
    }
  }
  void take(std::vector<std::string>& lines, std::string line) {
    if (number_++ == 0 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(repaired(line, &invalid_));
  }

  std::string text_;
  std::size_t at_ = 0;
  bool ended_ = false;
  Index number_ = 0, invalid_ = 0;
};

void check_different_streams() {
  struct stat in, out;
  if (::fstat(STDIN_FILENO, &in) == 0 && ::fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(in.st_mode) && in.st_dev == out.st_dev &&
      in.st_ino == out.st_ino)
    throw Mistake("input and output are the same file: standard input and standard output; another file for the output");
}

// Mistake where no translation can be as long, or stand in a line.
void check_prefix(const Run& run, const std::string& prefix) {
  if (prefix.find('\n') != prefix.npos) throw Mistake("a line end: --prefix; text of one line");
  const Index tokens = Index(run.target.tokenizer.tokens(prefix).size()), most = max_positions(run.config) - 1;
  if (tokens > most)
    throw Mistake(fmt::format("a long prefix: --prefix: {}; at most {}", counted(tokens, run.source.tokenizer.options().noun()), most));
}

// With nbest > 1 each behind the number of its line and its score; links behind it.
void print_translations(Index number, const std::string& source, std::span<const Translation> translations, Index nbest, bool tokens,
                        bool links, bool json) {
  Json list = Json::array();
  for (const Translation& t : translations) {
    std::string text = tokens ? token_line(t.tokens) : t.text;
    if (json) {
      list.push_back({{"text", text}, {"score", t.score}, {"log_probability", t.log_probability}, {"finished", t.finished}});
      if (links) list.back()["links"] = to_string(t.links);
      continue;
    }
    if (nbest > 1 || links) std::ranges::replace(text, '\t', ' ');   // as evaluate --force
    print(fmt::format("{}{}{}\n", nbest > 1 ? fmt::format("{}\t{:.4f}\t", number, t.score) : "", text,
                      links ? "\t" + to_string(t.links) : ""));
  }
  if (json) print(json_text(Json{{"source", source}, {"translations", list}}) + "\n");
}

}  // namespace

int translate(std::span<const std::string> words) {
  RunFlags run_flags;
  SearchFlags search_flags;
  Manner manner;
  std::string prefix;
  std::optional<Index> max_length;
  bool tokens = false, alignment = false;
  const Syntax syntax{.command = "translate",
                      .usage = "--run RUN [options] < LINES > TRANSLATIONS",
                      .about = "Translates lines from standard input to standard output: line n answers line n, an empty one an empty one.",
                      .example = "echo 'the black cat' | heed translate --run phrases --beam 4",
                      .options = options(run_flags) + ensemble_options(run_flags) + options(search_flags) + std::vector<Option>{
                          {.name = "prefix", .value = &prefix, .takes = "TEXT",
                           .help = "every translation begins with this", .heading = "Text"},
                          {.name = "max-length", .value = &max_length, .takes = "N",
                           .help = "longer sources are cut; the most, and the default, is that of the training", .low = 1, .high = 1e5},
                          {.name = "tokens", .value = &tokens, .help = "tokens with spaces between them, not put together to text"},
                          {.name = "alignment", .value = &alignment,
                           .help = "behind a tab the source token that each token looks at most, \"0-0 1-2\", source-target from 0"}
                      } + options(manner)};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  TranslateOptions translate_with = translate_options(search_flags, given);
  translate_with.links = alignment;
  check_different_streams();
  const Ready model = ready(run_flags);
  check_search(search_flags, model);
  if (translate_with.links && !model.attends)
    throw Mistake("no attention over the source: --alignment; a run trained with attention");
  PackedWeights weights(precision_named(search_flags.precision));
  const PackedWeights::Use use(weights);
  check_prefix(model.run, prefix);
  translate_with.max_length = max_length.value_or(model.run.config.max_length);
  if (translate_with.max_length > model.run.config.max_length)
    throw Mistake(
        fmt::format("out of range: --max-length {}; at most {}, as in training", translate_with.max_length, model.run.config.max_length));
  const bool asked = ::isatty(STDIN_FILENO) == 1;   // line by line
  if (asked && !manner.quiet) note("Type a sentence and press Enter; Ctrl-D ends.");

  InputLines input;
  std::vector<std::string> lines;
  Index first = 0;
  Overlooked overlooked;
  const auto note_unknown_words = [&] {
    note_unknown(std::vector<std::string>(overlooked.unknown.begin(), overlooked.unknown.end()), manner);
    overlooked.unknown.clear();
  };
  const auto tell = [&] {
    note_unknown_words();
    note_cut(overlooked, model.run, translate_with.max_length, manner);
    if (!manner.quiet && input.invalid() > 0) note(fmt::format("{} replaced", counted(input.invalid(), "invalid byte sequence")));
  };
  const auto more = [&] {
    try {
      return input.next(lines, kBlock);
    } catch (const Error&) {                       // of what was answered before
      tell();
      throw;
    }
  };
  while (more()) {
    const std::vector<std::string> prefixes(prefix.empty() ? 0 : lines.size(), prefix);
    const auto found = heed::translate(model.run, model.translator(), lines, translate_with, prefixes, &overlooked);
    for (std::size_t i = 0; i < found.size(); ++i)
      print_translations(first + Index(i) + 1, lines[i], found[i], search_flags.nbest, tokens, alignment, manner.json);
    flush();
    if (asked || overlooked.unknown.size() > kMostUnknown) note_unknown_words();
    first += Index(lines.size());
    draw_on(translate_with, model.run, lines);
  }
  tell();
  return 0;
}

}  // namespace heed::cli
