// SPDX-License-Identifier: Apache-2.0
// A function of Variables on a training tape: its value and the gradients of Σ w·f, w fixed random numbers. Two functions that
// draw their dropout masks in the same order see the same masks.
#pragma once
#include "autograd/check.h"
#include "autograd/tape.h"
#include "tensor/ops/random.h"

struct Played {
  heed::Tensor value;
  std::vector<heed::Tensor> gradients;
};

inline Played play(const heed::DifferentiableFunction& f, const std::vector<heed::Tensor>& inputs, heed::Key key = heed::Key(8)) {
  std::vector<heed::Variable> leaves;
  for (const heed::Tensor& x : inputs) leaves.push_back(heed::variable(x));
  heed::Tape tape(key);
  const heed::Variable y = f(leaves);
  const heed::Tensor dy = y.rank() ? heed::normal(heed::Key(9), y.shape(), 0, 1, y.dtype()) : heed::ones({}, y.dtype());
  tape.backward({&y, 1}, {&dy, 1});
  Played out{y.value(), {}};
  for (const heed::Variable& x : leaves) out.gradients.push_back(x.grad());
  return out;
}
