// SPDX-License-Identifier: Apache-2.0
// Trace: while it lives, modules hand it what they compute, each value under the path of its module with the formula that made it:
//
//   Variable e = trace("scores", "e_j = q·k_j", matmul(q, k), {.columns = Along::source});
//
// Without a Trace that is one comparison. With one the values are the same bits, and under a Tape their gradients are kept as well.
#pragma once
#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/variable.h"

namespace heed {

enum class Along { units, source, target, vocabulary };

class [[nodiscard]] Trace {
 public:
  // What stands along the last axis and along the one before it; heads: axis 1 counts heads.
  struct Axes {
    Along columns = Along::units, rows = Along::units;
    bool heads = false;
  };
  struct Entry {
    std::string path, name, formula;     // name "": the output of the module
    Axes axes;
    Index call;                          // from 1: which of this path and name
    Tensor value;                        // a copy
    Variable variable;                   // what went on; undefined for a value that was computed for the trace alone
    std::shared_ptr<Tensor> gradient;    // d loss / d value, undefined before a tape was played back to here

    std::string key() const;             // "decoder.cell", "decoder.cell.gates", and "decoder.cell#2" for the second call
  };

  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  static Trace* current();               // latest of this thread, or nullptr

  const std::vector<Entry>& entries() const { return entries_; }       // in the order of computation
  const Entry* find(std::string_view key) const;                       // nullptr: no such entry

  Variable note(std::string_view name, std::string_view formula, const Variable& x, Axes axes);
  void note(std::string_view name, std::string_view formula, const Tensor& x, Axes axes);

 private:
  Entry& add(std::string_view name, std::string_view formula, const Tensor& x, Axes axes);
  std::vector<Entry> entries_;
  std::map<std::pair<std::string, std::string>, Index> calls_;         // of each path and name
  Trace* outer_;
};

// The value `y` with the graph of `x`, which computes the same in small steps that a Trace notes: gradients go through x.
Variable with_value(const Variable& x, Tensor y);

// x itself, noted under current_path() where a Trace lives. Go on with what comes back: gradients are seen through it.
inline Variable trace(std::string_view name, std::string_view formula, Variable x, Trace::Axes axes = {}) {
  if (Trace* const trace = Trace::current()) [[unlikely]] return trace->note(name, formula, x, axes);
  return x;
}
inline const Tensor& trace(std::string_view name, std::string_view formula, const Tensor& x, Trace::Axes axes = {}) {
  if (Trace* const trace = Trace::current()) [[unlikely]] trace->note(name, formula, x, axes);
  return x;
}
// A value that nothing but a Trace needs: `make` runs only for one.
template <std::invocable F> void trace(std::string_view name, std::string_view formula, F&& make, Trace::Axes axes = {}) {
  if (Trace* const trace = Trace::current()) [[unlikely]] trace->note(name, formula, Tensor(make()), axes);
}

}  // namespace heed
