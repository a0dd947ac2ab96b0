// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a line, numbers in the shortest form that reads back to the same bits. What depends on the clock
// stands apart under "timing", in columns of fixed width: the lengths of the lines, which checkpoints hold, do not depend on it.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/json.h"

namespace heed::cli {

std::string json_number(double x);                 // null where it is not finite

class Log {
 public:
  Log() = default;
  // The lines of a file up to `bytes`; what stands after them is not read. FileError where it is shorter or not as written here.
  Log(std::string path, Index bytes);

  void add(std::string_view line);                 // kept in memory until sync
  void sync();                                     // to disk, all or nothing of it. FileError; then it waits for the next sync
  void cut();                                      // the file ends after what was read
  Index bytes() const { return bytes_ + Index(waiting_.size()); }
  double seconds() const { return seconds_; }      // of the timing of the last line

  // FileError
  void write_curves(const std::string& path, const std::string& bleu, const std::string& title, const std::string& caption) const;

 private:
  void take(const std::string& line);
  std::string path_, waiting_;
  Index bytes_ = 0;
  double seconds_ = 0;
  struct Points { std::vector<double> x, y; };
  std::map<std::string, Points> points_;           // "train loss", ...
};

// The objects of a log, one a line; a line that holds none is passed over. FileError
void each_entry(const std::string& path, const std::function<void(const Json&)>& take);
// What stands after these bytes, where a line with "event": "end" is among it.
std::string end_after(const std::string& path, Index bytes);
// Whether lines follow the first evaluation: a checkpoint was written before they were.
bool goes_beyond_evaluation(const std::string& path);

}  // namespace heed::cli
