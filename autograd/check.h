// SPDX-License-Identifier: Apache-2.0
// Gradients from the tape against central differences in f64.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "autograd/variable.h"

namespace heed {

struct GradientReport {
  double error = 0;            // largest |tape - difference| / max(1, |tape|, |difference|) over all inputs and elements
  std::string worst;           // "d/d input 0 at [1, 4]: tape 0.1234, difference 0.1301"
  bool holds(double tolerance = 1e-6) const { return error <= tolerance; }
};

using DifferentiableFunction = std::function<Variable(std::span<const Variable>)>;

// Checks d f / d inputs at the given f64 tensors, both where it is written and where it is added to a gradient that is there. An f
// whose value is no scalar is weighted with fixed random numbers.
// Step cbrt(eps) max(1, |x|). All elements up to 200 an input, 8 random directions beyond. The report names the worst.
// DTypeError unless inputs and f are f64; NumericError where f is not finite; Error where no gradient reaches any input, where an input
// wants none or is another one, and under a tape that trains. Parameters that f reads get gradients, too: forget them before training
// goes on.
GradientReport check_gradient(const DifferentiableFunction& f, std::span<const Tensor> inputs);
GradientReport check_gradient(const DifferentiableFunction& f, std::initializer_list<Tensor> inputs);
// The same of leaves that f reads by itself, as Parameters:  check_gradient([&] { return layer(x); }, {layer.weight, layer.bias}).
// Their values are moved and put back, their gradients forgotten.
GradientReport check_gradient(const std::function<Variable()>& f, std::span<const Variable> leaves);
GradientReport check_gradient(const std::function<Variable()>& f, std::initializer_list<Variable> leaves);

}  // namespace heed
