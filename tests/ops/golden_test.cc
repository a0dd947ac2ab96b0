// SPDX-License-Identifier: Apache-2.0
// Ops against PyTorch: values and gradients, and what happens at the edges.
#include "tests/golden.h"

#include <doctest/doctest.h>

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

namespace {
Reduction reduction(const golden::Case& c) {
  const std::string name = c.options()["reduction"];
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}
}  // namespace

TEST_CASE("golden: cross-entropy, by itself and fused with the product before it") {
  static const std::map<std::string, Smoothing> forms = {
      {"uniform", Smoothing::uniform}, {"others", Smoothing::others}, {"others_not_pad", Smoothing::others_not_pad}};
  golden::each("cross_entropy", [](golden::Case& c) {
    CrossEntropyOptions options{.label_smoothing = c.options().value("label_smoothing", 0.0)};
    (c.options().contains("smoothing") ? options.pad : options.ignore_index) = c.options().value("ignore_index", Index{-100});
    if (c.options().contains("smoothing")) options.smoothing = forms.at(c.options()["smoothing"]);
    if (c.has("weight")) options.weight = c.tensor("weight");
    {
      Tape tape;
      c.check(tape, {{"loss", cross_entropy(c.input("logits"), c.tensor("targets"), options, reduction(c))}});
    }
    if (reduction(c) != Reduction::sum) return;
    Tape tape;
    c.input("logits").forget_gradient();
    const Variable one = constant(eye(c.input("logits").size(-1), c.dtype()));
    c.check(tape, {{"loss", linear_cross_entropy(c.input("logits"), one, {}, c.tensor("targets"), options)}});
  });
}

TEST_CASE("golden: smoothing over pad too is PyTorch's") {
  golden::each(
      "cross_entropy", [](const std::string& name) { return name.starts_with("smoothing_ignore"); },
      [](golden::Case& c) {
        Tape tape;
        const CrossEntropyOptions options{.label_smoothing = 0.1, .pad = 0, .smooth_pad = true};
        c.check(tape, {{"loss", cross_entropy(c.input("logits"), c.tensor("targets"), options, reduction(c))}});
      });
}

TEST_CASE("golden: losses of pairs, of probabilities, of labels, binary cross-entropy") {
  golden::each("losses", [](golden::Case& c) {
    Tape tape;
    const auto optional = [&](const char* name) { return c.has(name) ? c.tensor(name) : Tensor(); };
    const auto loss = [&] {
      const std::string kind = c.options().value("function", "");
      if (kind.empty())
        return binary_cross_entropy_with_logits(c.input("x"), c.tensor("target"), optional("weight"), optional("pos_weight"), reduction(c));
      if (kind == "nll_loss")
        return nll_loss(c.input("x"), c.tensor("targets"), optional("weight"), c.options().value("ignore_index", Index{-100}),
                        reduction(c));
      const Variable x = c.input("x"), target = c.input("target");
      if (kind == "smooth_l1_loss") return smooth_l1_loss(x, target, reduction(c), c.options()["beta"].get<double>());
      if (kind == "huber_loss") return huber_loss(x, target, reduction(c), c.options()["delta"].get<double>());
      if (kind == "soft_cross_entropy") return soft_cross_entropy(x, target, reduction(c));
      if (kind == "l1_loss") return l1_loss(x, target, reduction(c));
      return kind == "kl_div" ? kl_div(x, target, reduction(c)) : mse_loss(x, target, reduction(c));
    };
    c.check(tape, {{"loss", loss()}});
  });
}
