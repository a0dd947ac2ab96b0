// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: the rate of each update, counted from 1.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heed {

class Schedule {
 public:
  enum class Kind { constant, linear, inverse_sqrt, noam, cosine, step, plateau };
  struct Options {
    Kind kind = Kind::constant;
    double peak = 1e-3;            // the rate itself; noam computes its own peak: factor (width warmup)^-1/2
    std::int64_t warmup = 0;       // updates of linear rise from start · peak to peak; 0 = none, which inverse_sqrt and noam do not take
    double start = 0;
    std::int64_t total = 0;        // linear, cosine: the update at which the rate reaches `end` · peak
    double end = 0;
    std::optional<double> factor = {};   // step, plateau: multiplied in, else 0.5; noam: its factor, else 1
    // step: after each `every` updates beyond `after`, those of a warm-up counted: after = warmup begins there
    std::int64_t every = 1;
    std::int64_t after = 0;
    int patience = 2;              // plateau: observations without a better score before the rate falls
    bool higher_is_better = true;  // plateau
    std::int64_t width = 512;      // noam: d_model
  };
  explicit Schedule(Options options);   // Error when an option is out of range

  // linear, cosine and the rise: update s has the rate of PyTorch's update s + 1, so that without a warm-up none runs at the peak, and
  // update `total` at end · peak. step, plateau: that of PyTorch's update s.
  // linear        peak (1 - (1 - end) (s - warmup)/(total - warmup))
  // inverse_sqrt  peak √(warmup / s)                                                    fairseq
  // noam          factor d^-1/2 min(s^-1/2, s warmup^-3/2)                              Vaswani et al. 2017, Eq. 3
  // cosine        peak (end + (1 - end) (1 + cos(π (s - warmup)/(total - warmup)))/2)   Loshchilov and Hutter 2017
  // step          peak factor^⌊max(0, s - 1 - after)/every⌋                              PyTorch's StepLR where after = 0
  // plateau       peak factor^(number of falls), in the rise as well                    PyTorch's ReduceLROnPlateau, threshold and eps 0
  double rate(std::int64_t step) const;
  void observe(double score);            // plateau: a dev score, NaN is no better one; the others ignore it

  struct State { double best = 0; int waited = 0, falls = 0; bool seen = false; };
  const State& state() const { return state_; }
  void restore(State state) { state_ = state; }

  static Kind kind(std::string_view name);   // Error lists the names
  static std::string_view name(Kind kind);
  static std::vector<std::string_view> names();

 private:
  Options options_;
  State state_;
};

}  // namespace heed
