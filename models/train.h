// SPDX-License-Identifier: Apache-2.0
// One optimiser update after another: accumulation weighted by tokens, clipping, schedule, averaging, exact state.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "models/seq2seq.h"
#include "nn/average.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "tensor/precision.h"

namespace heed {

class Trainer {
 public:
  // Error where one is out of its range: clip and the two λ finite and >= 0, average in [0, 1), precision float32 or bfloat16
  struct Options {
    CrossEntropyOptions loss = {};
    double clip = 1;              // largest norm of all gradients together; 0 = no clipping
    double guided_alignment = 0;  // λ of the loss + λ alignment_loss of the last cross-attention, a target with a link in the batches
    double coverage_loss = 0;     // λ of the loss + λ coverage_loss of the same attention, a target
    double average = 0;           // decay of a WeightAverage; 0 = none
    Precision precision = Precision::float32;   // of the factors in matrix products, tensor/gemm_bfloat16.h; all else stays in f32
    std::uint64_t seed = 1;       // dropout masks are a function of (seed, step, micro-batch, module, element)
  };
  Trainer(const Seq2Seq& model, Parameters& parameters, Optimizer& optimizer, Schedule schedule, Options options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  struct Report {
    double loss = 0;              // per target token, label smoothing included
    Index source_tokens = 0, target_tokens = 0;
    double alignment_loss = 0, coverage_loss = 0;   // beside `loss`: a target with a link, a target; 0 where not asked for
    double gradient_norm = 0;     // before clipping
    double learning_rate = 0;
    bool skipped = false;         // the loss or a gradient was not finite: no weight has changed
  };
  // One update from the mean over all tokens of all micro-batches: 4 of unequal sizes equal one batch of their sum.
  // What throws, memory that is refused say, has changed nothing: the same call may follow.
  Report update(std::span<const Batch> micro_batches);
  // A dev score, for the plateau schedule.
  void observe(double score) { schedule_.observe(score); }

  std::int64_t step() const { return step_; }             // updates so far, skipped ones included
  std::int64_t skipped() const { return skipped_; }
  WeightAverage* average() { return average_.get(); }   // null where none is asked for

  // Everything an exact continuation needs beside the weights: "optimizer.<path>.<name>" and "average.<path>" ...
  static constexpr std::string_view kOptimizerPrefix = "optimizer.", kAveragePrefix = "average.";
  std::map<std::string, Tensor> tensors() const;
  // ... and scalars, as text that reads back to the same bits.
  std::map<std::string, std::string> scalars() const;
  // FileError that says what does not fit; then nothing has changed.
  void restore(const std::map<std::string, Tensor>& tensors, const std::map<std::string, std::string>& scalars);

 private:
  struct Sums;
  Variable loss(const Batch& batch, Sums& sums);          // with those on attention, to be divided by the tokens of the update
  const Seq2Seq& model_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  Schedule schedule_;
  Options options_;
  std::int64_t step_ = 0, skipped_ = 0;
  std::unique_ptr<WeightAverage> average_;
};

// Arithmetic mean of weights, accumulated in f64 (checkpoint averaging). ShapeError, FileError unless all have the same keys and shapes.
std::map<std::string, Tensor> mean_weights(std::span<const std::map<std::string, Tensor>> checkpoints);

}  // namespace heed
