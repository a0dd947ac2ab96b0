// SPDX-License-Identifier: Apache-2.0
#include "autograd/check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "tensor/format.h"
#include "tensor/function_ref.h"
#include "tensor/into.h"
#include "tensor/ops/binary.h"
#include "tensor/random.h"

namespace heed {
namespace {

constexpr Index kAllElements = 200;
constexpr int kDirections = 8;

std::vector<double> weights_for(Index n) {
  Random random(Key(Seed{7}) / "check_gradient");
  std::vector<double> weights(static_cast<std::size_t>(n));
  for (double& weight : weights) weight = random.uniform() + 0.5;
  return weights;
}

// Σ w·y, in double.
double weighted(const Variable& value) {
  check<Error>(value.defined(), "check_gradient: the function gives an undefined Variable");
  check<DTypeError>(value.dtype() == DType::f64, "check_gradient: the function must give f64: {}", value.dtype());
  const Tensor y = value.value().contiguous();
  const std::vector<double> weights = y.numel() == 1 ? std::vector{1.0} : weights_for(y.numel());
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * y.span<double>()[i];
  check<NumericError>(std::isfinite(sum), "check_gradient: the function is not finite here: {}", sum);
  return sum;
}

// d f / d leaves from the tape: written, or added to gradients that are there, which are subtracted again.
std::vector<Tensor> backward(const std::function<Variable()>& f, std::span<const Variable> leaves, bool add) {
  std::vector<Variable> outputs;
  std::vector<Tensor> upstream, gradients;
  for (const Variable& leaf : leaves) leaf.forget_gradient();
  {
    Tape tape(evaluating);
    for (const Variable& leaf : leaves)
      if (add) outputs.push_back(leaf), upstream.push_back(ones(leaf.shape(), DType::f64));
    if (const Variable y = f(); y.wants_gradient()) {
      const std::vector<double> weights = y.numel() == 1 ? std::vector{1.0} : weights_for(y.numel());
      outputs.push_back(y), upstream.push_back(tensor(weights, y.shape()));
    }
    if (!outputs.empty()) tape.backward(outputs, upstream);
  }
  check<Error>(std::ranges::any_of(leaves, &Variable::has_grad), "check_gradient: no gradient reaches any of the {} inputs", leaves.size());
  for (const Variable& leaf : leaves) gradients.push_back((add ? leaf.grad() - 1.0 : leaf.grad()).clone());
  for (const Variable& leaf : leaves) leaf.forget_gradient();
  return gradients;
}

// The worst of the numbers compared.
void compare(GradientReport& report, double tape, double difference, FunctionRef<std::string()> where) {
  const double error = std::abs(tape - difference) / std::max({1.0, std::abs(tape), std::abs(difference)});
  if (error <= report.error && !report.worst.empty()) return;
  report.error = std::isnan(error) ? HUGE_VAL : error;
  report.worst = fmt::format("{}: tape {:.10g}, difference {:.10g}", where(), tape, difference);
}

// Input k, x, and its gradient: each element, of many a few random directions.
void compare_input(GradientReport& report, std::size_t k, const Tensor& x, const Tensor& gradient, FunctionRef<double()> evaluate) {
  const auto values = x.mutable_span<double>();
  const std::vector<double> tape = gradient.to_vector<double>(), before(values.begin(), values.end());
  const double epsilon = std::cbrt(2.220446049250313e-16);
  const auto moved = [&](auto&& move, double sign) {   // f(x ± h), h along the direction that `move` walks
    struct PutBack {
      const std::vector<double>& from;
      std::span<double> to;
      ~PutBack() { std::copy(from.begin(), from.end(), to.begin()); }
    } const put_back{before, values};
    move(sign);
    return evaluate();
  };
  const auto slope = [&](auto&& move) { return moved(move, 1) - moved(move, -1); };
  if (x.numel() <= kAllElements) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double h = epsilon * std::max(1.0, std::abs(values[i]));
      const double difference = slope([&](double sign) { values[i] += sign * h; }) / (2 * h);
      compare(report, tape[i], difference, [&] { return fmt::format("d/d input {} at {}", k, position_of(Index(i), x.shape())); });
    }
    return;
  }
  Random random(Key(Seed{11}) / "directions" / k);
  for (int d = 0; d < kDirections; ++d) {
    std::vector<double> direction(values.size());
    double norm = 0, along = 0;
    for (double& component : direction) { component = random.normal(); norm += component * component; }
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] *= std::max(1.0, std::abs(values[i])) / std::sqrt(norm);
    for (std::size_t i = 0; i < direction.size(); ++i) along += tape[i] * direction[i];
    const double difference = slope([&](double sign) {
                                for (std::size_t i = 0; i < direction.size(); ++i) values[i] += sign * epsilon * direction[i];
                              }) /
                              (2 * epsilon);
    compare(report, along, difference, [&] { return fmt::format("d/d input {} along random direction {}", k, d); });
  }
}

void check_inputs(std::span<const Variable> leaves) {
  check<Error>(!dropout_acts(1), "check_gradient: a tape that trains lives, whose dropout draws another mask at each call; check without it");
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const Variable& leaf = leaves[k];
    check<Error>(leaf.defined(), "check_gradient: input {} is undefined, as a bias that was not asked for", k);
    check<DTypeError>(leaf.dtype() == DType::f64, "check_gradient: inputs need dtype f64: input {} is {}", k, leaf.dtype());
    check<Error>(leaf.wants_gradient(), "check_gradient: input {} wants no gradient: a constant, or frozen", k);
    check<ShapeError>(leaf.value().is_contiguous(), "check_gradient: inputs must be contiguous: input {} has strides {}", k,
                      leaf.value().strides());
    for (std::size_t j = 0; j < k; ++j)
      check<Error>(!may_overlap(leaves[j].value(), leaf.value()), "check_gradient: inputs {} and {} are one tensor; name it once", j, k);
  }
}

}  // namespace

GradientReport check_gradient(const std::function<Variable()>& f, std::span<const Variable> leaves) {
  check_inputs(leaves);
  std::vector<Tensor> x;
  for (const Variable& leaf : leaves) x.push_back(leaf.value());
  const auto evaluate = [&] {
    const NoRecording silence;
    return weighted(f());
  };
  evaluate();
  const std::vector<Tensor> gradients = backward(f, leaves, false), added = backward(f, leaves, true);
  GradientReport report;
  for (std::size_t k = 0; k < x.size(); ++k) compare_input(report, k, x[k], gradients[k], evaluate);
  if (report.holds())                                // the gradient is right alone: is it also where it is added?
    for (std::size_t k = 0; k < x.size(); ++k) {
      const auto alone = gradients[k].to_vector<double>(), sum = added[k].to_vector<double>();
      for (std::size_t i = 0; i < sum.size(); ++i)
        compare(report, sum[i], alone[i],
                [&] { return fmt::format("d/d input {} at {}, added to a gradient", k, position_of(Index(i), x[k].shape())); });
    }
  return report;
}

GradientReport check_gradient(const std::function<Variable()>& f, std::initializer_list<Variable> leaves) {
  return check_gradient(f, std::span(leaves.begin(), leaves.size()));
}

GradientReport check_gradient(const DifferentiableFunction& f, std::span<const Tensor> inputs) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) leaves.push_back(variable(input.clone()));
  return check_gradient([&] { return f(leaves); }, leaves);
}

GradientReport check_gradient(const DifferentiableFunction& f, std::initializer_list<Tensor> inputs) {
  return check_gradient(f, std::span(inputs.begin(), inputs.size()));
}

}  // namespace heed
