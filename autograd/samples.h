// SPDX-License-Identifier: Apache-2.0
// Sample inputs of every differentiable function of autograd/ops.h: what `heed check-gradients` and the op table of the tests run.
#pragma once
#include <string>

#include "autograd/check.h"

namespace heed {

struct Sample {
  static constexpr Index kAny = -1;                   // a size that may be anything, the same wherever it stands
  struct Input {
    Shape shape;
    double low = -2, high = 2;                        // domain
    std::vector<double> kinks = {};                   // where the derivative jumps: kept away from
  };

  std::string name;                                   // the function, then what is special: "softmax dim 0"
  DifferentiableFunction f;
  std::function<Tensor(std::span<const Tensor>)> tensor;   // its twin on Tensors; none for what only a tape knows
  std::vector<Input> inputs;

  std::string function() const { return name.substr(0, name.find(' ')); }
};

const std::vector<Sample>& samples();

// Inputs of a sample with kAny = `any`, at f32 numbers so that both dtypes can be compared; at least 0.002 from a kink.
std::vector<Tensor> sample_inputs(const Sample& sample, Index any = 7, DType dtype = DType::f64);

}  // namespace heed
