// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <vector>

#include "models/drawing.h"

namespace heed {
namespace {

double fraction(const ProgressNumbers& numbers) {
  const double f = numbers.fraction >= 0 ? numbers.fraction
                   : numbers.total > 0   ? double(numbers.done) / double(numbers.total)
                                         : -1;
  return std::min(f, 1.0);
}

std::string epoch_text(double epoch) {
  return epoch == std::floor(epoch) ? fmt::format("epoch {:.0f}", epoch) : fmt::format("epoch {:.1f}", epoch);
}

std::string dev_text(const ProgressNumbers& numbers) { return fmt::format("dev {} {:.1f}", numbers.bleu_name, *numbers.dev_bleu); }

}  // namespace

std::string short_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<long long>(seconds + 0.5);
  if (s >= 86400) return fmt::format("{} d {:02}:{:02}", s / 86400, s / 3600 % 24, s / 60 % 60);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string short_count(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 999.5) return fmt::format("{:.0f}", count);
  const char* unit = "k";
  count /= 1e3;
  if (count >= 999.5) count /= 1e3, unit = "M";
  if (count >= 999.5) count /= 1e3, unit = "G";
  return fmt::format("{:.{}f}{}", count, count < 9.995 ? 2 : count < 99.95 ? 1 : 0, unit);
}

std::string progress_bar(const ProgressNumbers& numbers, double seconds_left, int columns) {
  const double f = fraction(numbers);
  std::string head;
  if (numbers.epoch) head = epoch_text(*numbers.epoch) + "  ";
  std::string done = fmt::format("{} {}", numbers.unit, numbers.done);
  if (numbers.total > 0) done += fmt::format("/{}", numbers.total);
  if (int(head.size() + done.size()) > columns) head.clear();
  head += int(done.size()) > columns ? std::to_string(numbers.done) : done;

  std::vector<std::string> parts;  // in order of importance
  if (f >= 0) parts.push_back(fmt::format("{:3.0f}%", std::floor(100 * f)));
  if (f >= 0) parts.push_back(fmt::format("{:>5} left", short_duration(seconds_left)));  // else the bar jumps
  if (numbers.loss) parts.push_back(fmt::format("loss {:.3f}", *numbers.loss));
  if (numbers.tokens_per_second) parts.push_back(short_count(*numbers.tokens_per_second) + " tok/s");
  if (numbers.dev_bleu) parts.push_back(dev_text(numbers));

  std::string tail;
  const auto room = [&] { return columns - int(head.size() + tail.size()); };
  for (const std::string& part : parts) {
    if (room() < int(part.size()) + 2) break;
    tail += "  " + part;
  }
  constexpr int kShortest = 8, kLongest = 30;  // of the bar between its brackets
  std::string bar;
  if (const int width = std::min(room() - 3, kLongest); f >= 0 && width >= kShortest) {
    const int full = int(std::floor(f * width));
    bar = fmt::format(" [{}{}]", std::string(std::size_t(full), '#'), std::string(std::size_t(width - full), '-'));
  }
  return (head + bar + tail).substr(0, std::size_t(std::max(columns, 0)));
}

std::string progress_line(const ProgressNumbers& numbers, double seconds_left) {
  std::string line = fmt::format("{} {}", numbers.unit, numbers.done);
  if (numbers.total > 0) line += fmt::format(" of {}", numbers.total);
  if (numbers.epoch) line += ", " + epoch_text(*numbers.epoch);
  if (numbers.loss) line += fmt::format(", loss {:.3f}", *numbers.loss);
  if (numbers.tokens_per_second) line += fmt::format(", {} tokens/s", short_count(*numbers.tokens_per_second));
  if (fraction(numbers) >= 0) line += fmt::format(", {} left", short_duration(seconds_left));
  if (numbers.dev_bleu) line += ", " + dev_text(numbers);
  return line;
}

bool is_terminal(int file) {
  const char* const term = std::getenv("TERM");
  return ::isatty(file) == 1 && term && std::string_view(term) != "dumb";
}

bool takes_colour(int file) {
  const char* const no_colour = std::getenv("NO_COLOR");
  return is_terminal(file) && !(no_colour && *no_colour);
}

int terminal_columns(int file) {
  winsize size{};
  if (::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  const int n = columns ? std::atoi(columns) : 0;
  return n > 0 ? n : 80;
}

int page_columns(int file) { return is_terminal(file) ? terminal_columns(file) : 100; }

Progress::Progress(std::ostream& out, Options options) : out_(out), options_(std::move(options)) {
  if (!options_.columns) options_.columns = [] { return 80; };
  if (!options_.clock) {
    options_.clock = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  }
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a stream that throws: there is nothing left to say
  }
}

Progress::Options Progress::standard_error(bool quiet) {
  return {.quiet = quiet, .terminal = is_terminal(STDERR_FILENO), .columns = [] { return terminal_columns(STDERR_FILENO); }};
}

// What is left takes as long a share as what was done since the first numbers: a resumed run does not start at 0.
double Progress::seconds_left() const {
  const double f = fraction(*numbers_), passed = options_.clock() - start_;
  if (f >= 1) return 0;
  return f > start_fraction_ ? passed * (1 - f) / (f - start_fraction_) : -1;
}

void Progress::draw() {
  // one column less than there are: a full line would wrap on some terminals
  if (options_.terminal)
    out_ << '\r' << progress_bar(*numbers_, seconds_left(), options_.columns() - 1) << "\x1b[K" << std::flush;
  else out_ << progress_line(*numbers_, seconds_left()) << std::endl;
  line_open_ = options_.terminal;
  fresh_ = false;
  drawn_ = options_.clock();
}

void Progress::update(const ProgressNumbers& numbers) {
  if (options_.quiet) return;
  const double now = options_.clock();
  if (!numbers_) {
    start_ = drawn_ = now;
    start_fraction_ = std::max(fraction(numbers), 0.0);
  }
  const bool first = !numbers_ && options_.terminal;
  numbers_ = numbers;
  fresh_ = true;
  if (first || now - drawn_ >= (options_.terminal ? options_.redraw_every : options_.print_every)) draw();
}

void Progress::note(std::string_view line) {
  if (!options_.quiet) stay(line);
}

void Progress::warn(std::string_view line) { stay(fmt::format("warning: {}", line)); }

void Progress::stay(std::string_view line) {
  if (line_open_) out_ << "\r\x1b[K";
  out_ << drawing::printable(line) << std::endl;
  line_open_ = false;
  if (numbers_ && options_.terminal) draw();
}

void Progress::finish() {
  if (options_.quiet) return;
  if (fresh_) draw();
  if (line_open_) out_ << std::endl;
  line_open_ = false;
  numbers_.reset();
}

}  // namespace heed
