// SPDX-License-Identifier: Apache-2.0
// Ops against PyTorch: values and gradients, and what happens at the edges (trust.md, section 3).
#include "tests/golden.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "tensor/format.h"

using namespace heed;

namespace {
bool starts(const std::string& s, std::string_view with) { return s.starts_with(with); }
}  // namespace

TEST_CASE("golden: softmax, log_softmax, logsumexp") {
  golden::each(
      "activations",
      [](const std::string& name) {
        return starts(name, "softmax_") || starts(name, "log_softmax_") || starts(name, "logsumexp_");
      },
      [](golden::Case& c) {
        const std::string function = c.options()["function"];
        const int dim = c.options()["dim"];
        Tape tape;
        const Variable x = c.input("x");
        c.check(tape, {{"y", function == "softmax"       ? softmax(x, dim)
                             : function == "log_softmax" ? log_softmax(x, dim)
                                                         : logsumexp(x, {dim})}});
      });
}

TEST_CASE("golden: activations") {
  static const std::map<std::string, std::function<Variable(const Variable&)>> functions = {
      {"relu", [](const Variable& x) { return relu(x); }},
      {"gelu", [](const Variable& x) { return gelu(x); }},
      {"gelu_tanh", [](const Variable& x) { return gelu_tanh(x); }},
      {"silu", [](const Variable& x) { return silu(x); }},
      {"softplus", [](const Variable& x) { return softplus(x); }},
      {"elu", [](const Variable& x) { return elu(x); }},
      {"leaky_relu", [](const Variable& x) { return leaky_relu(x); }},
      {"sigmoid", [](const Variable& x) { return sigmoid(x); }},
      {"tanh", [](const Variable& x) { return tanh(x); }},
      {"log_sigmoid", [](const Variable& x) { return -softplus(-x); }}};
  golden::each(
      "activations", [](const std::string& name) { return functions.contains(name); },
      [](golden::Case& c) {
        Tape tape;
        c.check(tape, {{"y", functions.at(c.options()["function"])(c.input("x"))}});
      });
}
