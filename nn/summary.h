// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "nn/scope.h"

namespace heed {

// A table of all parameters: path, shape, count, ending in totals: elements, memory of weights, and of training with two moments.
// With rows > 0 also the multiply-adds of all matrices for that many rows (tokens of a batch), forward.
std::string summary(const Parameters& parameters, Index rows = 0);

}  // namespace heed
