// SPDX-License-Identifier: Apache-2.0
// How far a long command has come: one line that is redrawn on a terminal, a plain line now and then elsewhere, only warnings when quiet.
#pragma once
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace heed {

// What a line shows; parts that are not set are left out.
struct ProgressNumbers {
  std::string_view unit = "step";             // of done and total
  Index done = 0, total = 0;                  // total 0: not known
  double fraction = -1;                       // of the work, where limits other than total count too; negative: done / total
  std::optional<double> epoch{};              // epochs begun or, with a fraction, passed
  std::optional<double> loss{}, tokens_per_second{}, dev_bleu{};
  std::string bleu_name = "BLEU";
};

// "epoch 3.2  step 420/2000 [###-----------]   21%   0:41 left  loss 1.234  12.3k tok/s  dev BLEU 87.1", at most
// `columns` wide: where that is too much, the bar shrinks and goes, parts are left out from the end.
std::string progress_bar(const ProgressNumbers& numbers, double seconds_left, int columns);
// The same in words, for logs: "step 420 of 2000, epoch 3.2, loss 1.234, 12.3k tokens/s, 0:41 left, dev BLEU 87.1"
std::string progress_line(const ProgressNumbers& numbers, double seconds_left);

std::string short_duration(double seconds);   // 0:41, 12:05, 3:07:00, 2 d 03:07; ? where it is not known (negative, not finite)
std::string short_count(double count);        // 950, 12.3k, 1.20M

// Whether a file descriptor is a terminal that can redraw a line (TERM is not dumb), and its width: COLUMNS, or 80, where it does
// not say.
bool is_terminal(int file);
bool takes_colour(int file);                  // it is one, and NO_COLOR is empty or not set (no-color.org)
int terminal_columns(int file);
int page_columns(int file);                   // of a terminal its width, else 100

class Progress {
 public:
  struct Options {
    bool quiet = false;                       // writes nothing but warnings
    bool terminal = false;
    std::function<int()> columns{};           // asked at every redraw; empty: 80
    std::function<double()> clock{};          // seconds, never falling; empty: the steady clock
    double redraw_every = 0.1, print_every = 10;   // seconds between two lines: terminal, elsewhere
  };
  Progress(std::ostream& out, Options options);
  ~Progress();                                // as finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // For standard error: terminal, width and clock as they are.
  static Options standard_error(bool quiet);

  void update(const ProgressNumbers& numbers);   // draws if the last drawing is long enough ago
  void note(std::string_view line);           // a line that stays, above the bar: dev scores
  void warn(std::string_view line);           // "warning: " and the line, also when quiet: of what went wrong while work goes on
  void finish();                              // draws the last numbers and leaves the line

 private:
  void draw();
  void stay(std::string_view line);
  double seconds_left() const;

  std::ostream& out_;
  Options options_;
  std::optional<ProgressNumbers> numbers_;    // the last ones
  double start_ = 0, start_fraction_ = 0, drawn_ = 0;
  bool line_open_ = false, fresh_ = false;    // a bar without end of line is on the terminal; numbers not drawn yet
};

}  // namespace heed
