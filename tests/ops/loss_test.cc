// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/loss.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/ops/random.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

namespace {

Tensor draw(int key, const Shape& shape, DType dtype = DType::f64) { return normal(Key(55, key), shape, 0, 2, dtype); }

// x of each row [2, 3] at the samples' labels, 0 where they are ignored
reference::Values at_labels(const reference::Array& x) { return {x({0, 0, 0}), x({0, 1, 3}), 0, x({1, 0, 2}), x({1, 1, 1}), x({1, 2, 2})}; }

}  // namespace

TEST_CASE("smooth_l1_loss: a large or tiny β |x - y| is no part of it, every target") {
  const Tensor x = tensor({1e30f, 1e20f, 1e-18f, 2.0f}), y = zeros({4});
  for_every_target([&] {
    const std::vector<double> values{1e30, 1e20, 1e-18, 2};
    for (const double beta : {1e10, 1e19, 1e-30}) {
      const std::vector<double> found = doubles(smooth_l1_loss(x, y, Reduction::none, beta));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double expected = values[i] < beta ? values[i] * values[i] / (2 * beta) : values[i] - beta / 2;
        if (expected > 1e-37) CHECK(found[i] == doctest::Approx(expected).epsilon(1e-6).scale(0));
      }
    }
  });
}

TEST_CASE("mse_loss and binary_cross_entropy_with_logits: the formulas, reductions, every target") {
  const Shape shape{3, 7, 5};
  for (DType dtype : {DType::f32, DType::f64}) {
    const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
    const Tensor x = draw(1, shape, dtype), y = uniform(Key(2), shape, 0, 1, dtype), w = uniform(Key(3), shape, 0, 2, dtype),
                 p = uniform(Key(4), {7, 1}, 0, 3, dtype);
    const auto a = doubles(x), b = doubles(y), c = doubles(w), e = doubles(expand(p, shape));
    std::vector<double> squares(a.size()), logistic(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      squares[i] = (a[i] - b[i]) * (a[i] - b[i]);
      const double s = 1 / (1 + std::exp(-a[i]));
      logistic[i] = -c[i] * (e[i] * b[i] * std::log(s) + (1 - b[i]) * std::log1p(-s));
    }
    const double square_sum = std::accumulate(squares.begin(), squares.end(), 0.0),
                 logistic_sum = std::accumulate(logistic.begin(), logistic.end(), 0.0);
    for_every_target([&] {
      CHECK(worst_absolute(mse_loss(x, y, Reduction::none), squares) < 100 * eps);
      CHECK(mse_loss(x, y, Reduction::sum).item() == doctest::Approx(square_sum).epsilon(10 * eps));
      CHECK(mse_loss(x, y).item() == doctest::Approx(square_sum / 105).epsilon(10 * eps));
      CHECK(worst_absolute(binary_cross_entropy_with_logits(x, y, w, p, Reduction::none), logistic) < 100 * eps);
      CHECK(binary_cross_entropy_with_logits(x, y, w, p, Reduction::sum).item() == doctest::Approx(logistic_sum).epsilon(10 * eps));
      CHECK(binary_cross_entropy_with_logits(x, y, w, p).item() == doctest::Approx(logistic_sum / 105).epsilon(10 * eps));
    });
  }
  // far from 0 nothing overflows
  const Tensor far = tensor({800, -800}, DType::f64), label = tensor({0, 1}, DType::f64);
  CHECK(doubles(binary_cross_entropy_with_logits(far, label, {}, {}, Reduction::none)) == std::vector<double>{800, 800});
  CHECK(doubles(binary_cross_entropy_with_logits(far, tensor({1, 0}, DType::f64), {}, {}, Reduction::none)) == std::vector<double>{0, 0});
  CHECK(std::isnan(mse_loss(zeros({0}), zeros({0})).item()));
  CHECK(mse_loss(zeros({0}), zeros({0}), Reduction::sum).item() == 0);
  CHECK_THROWS_AS(mse_loss(zeros({2}), zeros({3})), ShapeError);
  CHECK_THROWS_AS(mse_loss(zeros({2}), zeros({2}, DType::f64)), DTypeError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(zeros({2}), zeros({2}), zeros({3})), ShapeError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(zeros({2}), zeros({2}), zeros({3, 2})), ShapeError);
}

TEST_CASE("losses of pairs: the formulas, reductions, every target, what is not finite") {
  const Shape shape{3, 7, 5};
  const auto formula = [](PairLoss op, double x, double y, double p) {
    const double d = std::abs(x - y);
    if (op == PairLoss::mse_loss) return d * d;
    if (op == PairLoss::smooth_l1_loss) return d < p ? d * d / (2 * p) : d - p / 2;
    if (op == PairLoss::huber_loss) return d < p ? d * d / 2 : p * (d - p / 2);
    return op == PairLoss::l1_loss ? d : y == 0 ? 0 : y * (std::log(y) - x);
  };
  for (DType dtype : {DType::f32, DType::f64}) {
    const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
    const Tensor x = draw(1, shape, dtype), any = draw(2, shape, dtype), p = relu(draw(3, shape, dtype));               // half of p is 0
    for (const auto& kind : {std::pair{PairLoss::mse_loss, 0.0}, {PairLoss::l1_loss, 0.0}, {PairLoss::smooth_l1_loss, 0.5},
                             {PairLoss::smooth_l1_loss, 0.0}, {PairLoss::huber_loss, 2.0}, {PairLoss::kl_div, 0.0}}) {
      const PairLoss op = kind.first;
      const double parameter = kind.second;
      INFO(name(op) << " " << parameter);
      const Tensor y = op == PairLoss::kl_div ? p : any;
      const auto a = doubles(x), b = doubles(y);
      std::vector<double> each(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) each[i] = formula(op, a[i], b[i], parameter);
      const double total = std::accumulate(each.begin(), each.end(), 0.0);
      for_every_target([&] {
        CHECK(worst_absolute(pair_loss(op, x, y, Reduction::none, parameter), each) < 100 * eps);
        CHECK(pair_loss(op, x, y, Reduction::sum, parameter).item() == doctest::Approx(total).epsilon(100 * eps));
        CHECK(pair_loss(op, x, y, Reduction::mean, parameter).item() == doctest::Approx(total / 105).epsilon(100 * eps));
      });
      CHECK(all_nan(pair_loss(op, full({3}, NAN, dtype), ones({3}, dtype), Reduction::none, parameter)));
      const Tensor dx = empty({3}, dtype);
      const Into into{dx, false};
      if (op != PairLoss::kl_div) {                      // whose dx = -y
        pair_loss_grad(op, full({3}, NAN, dtype), ones({3}, dtype), Reduction::none, parameter, ones({3}, dtype), &into, nullptr);
        CHECK(all_nan(dx));
      }
    }
    // gradients far away, and where both are equal
    const Tensor far = tensor({5e4, -5e4, 1, 0}, dtype), to = tensor({1, 1, 1, 0}, dtype);
    const auto slope = [&](PairLoss op, double parameter, bool of_target) {
      const Tensor d = empty({4}, dtype);
      const Into into{d, false};
      pair_loss_grad(op, far, to, Reduction::none, parameter, ones({4}, dtype), of_target ? nullptr : &into, of_target ? &into : nullptr);
      return doubles(d);
    };
    CHECK(slope(PairLoss::l1_loss, 0, false) == std::vector<double>{1, -1, 0, 0});
    CHECK(slope(PairLoss::l1_loss, 0, true) == std::vector<double>{-1, 1, 0, 0});
    CHECK(slope(PairLoss::huber_loss, 2, false) == std::vector<double>{2, -2, 0, 0});
    CHECK(slope(PairLoss::smooth_l1_loss, 2, false) == std::vector<double>{1, -1, 0, 0});
    CHECK(slope(PairLoss::smooth_l1_loss, 0, false) == std::vector<double>{1, -1, 0, 0});
    CHECK(slope(PairLoss::kl_div, 0, true) == std::vector<double>{1 - 5e4, 1 + 5e4, 0, 0});
  }
  // what softmax never reaches costs nothing where it should not be reached
  CHECK(doubles(kl_div(tensor({-HUGE_VAL, -1}, DType::f64), tensor({0, 1}, DType::f64), Reduction::none)) == std::vector<double>{0, 1});
  CHECK(std::isnan(l1_loss(zeros({0}), zeros({0})).item()));
}

TEST_CASE("mse_loss and binary_cross_entropy_with_logits: rules against central differences") {
  const Tensor x = draw(1, {4, 3}), y = draw(4, {4, 3});
  const Tensor label = uniform(Key(1), {4, 3}, 0, 1, DType::f64), weight = uniform(Key(2), {4, 1}, 0, 1, DType::f64),
               pos = uniform(Key(3), {3}, 0, 2, DType::f64);
  for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    CHECK(check_gradient([&](auto v) { return mse_loss(v[0], v[1], reduction); }, {x, y}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return mse_loss(v[0], v[0], reduction); }, {x}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return l1_loss(v[0], v[1], reduction); }, {x, y}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return smooth_l1_loss(v[0], v[1], reduction, 1.3); }, {x, y}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return huber_loss(v[0], v[1], reduction, 1.3); }, {x, y}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return kl_div(v[0], v[1], reduction); }, {x, label}).holds(1e-7));
    CHECK(check_gradient([&](auto v) { return binary_cross_entropy_with_logits(v[0], label, weight, pos, reduction); }, {x}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return binary_cross_entropy_with_logits(v[0], label, {}, {}, reduction); }, {x}).holds(1e-8));
  }
}

TEST_CASE("nll_loss: of log_softmax it is cross_entropy, with weights and ignored rows, in value and gradient, for any number of threads") {
  const Shape shape{31, 3, 40};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
    const Tensor z = draw(1, shape, dtype), w = uniform(Key(2), {40}, 0, 2, dtype), labels = randint(Key(3), {31, 3}, 0, 40);
    for (const Tensor& weight : {Tensor(), w})
      for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
        const auto nll = [&](auto v) { return nll_loss(log_softmax(v[0]), labels, weight, 7, reduction); };
        const auto whole = [&](auto v) { return cross_entropy(v[0], labels, {.ignore_index = 7, .weight = weight}, reduction); };
        for_threads([&] {
          const Played a = play(nll, {z}), b = play(whole, {z});
          CHECK(worst_absolute(a.value, b.value) < 100 * eps * std::max(1.0, std::abs(doubles(b.value)[0])));
          CHECK(worst_absolute(a.gradients[0], b.gradients[0]) < 40 * eps);
        });
      }
  }
  const Tensor x = transpose(draw(1, {4, 3})), to = transpose(ones({4, 3}, DType::f64));            // of any strides, i32 targets
  CHECK(doubles(nll_loss(x, tensor({3, 0, 2}, DType::i32), {}, 0, Reduction::none)) ==
        std::vector<double>{-x[0][3].item(), 0, -x[2][2].item()});
  nll_loss_grad(tensor({3, 0, 2}, DType::i32), {}, 0, Reduction::mean, full({}, 3, DType::f64), {to, true});
  CHECK(doubles(to) == std::vector<double>{1, 1, 1, -0.5, 1, 1, 1, 1, 1, 1, -0.5, 1});
  // nothing to count; what is never reached
  const Tensor none = full({2}, -100, DType::i64);
  CHECK(nll_loss(zeros({2, 3}), none).item() == 0);
  CHECK(nll_loss(full({2, 3}, -INFINITY), none, {}, -100, Reduction::sum).item() == 0);
  CHECK(nll_loss(tensor({{-INFINITY, 0}}), tensor({0}, DType::i64)).item() == INFINITY);
}

static const InTable rows{
    {.name = "mse_loss",
     .reference =
         [](const reference::Arrays& x) {
           return reference::over({}, false, reference::mean)({reference::two([](double a, double b) { return (a - b) * (a - b); })(x)});
         },
     .definition = [](std::span<const Variable> x) { return mean(square(x[0] - x[1])); },
     .wrong = {{{{2, 3}, {2, 4}}}},
     .ulp = 40},
    {.name = "mse_loss each",
     .reference = reference::two([](double a, double b) { return (a - b) * (a - b); }),
     .definition = [](std::span<const Variable> x) { return square(x[0] - x[1]); }},
    {.name = "l1_loss",
     .reference = reference::two([](double a, double b) { return std::abs(a - b); }),
     .definition = [](std::span<const Variable> x) { return abs(x[0] - x[1]); },
     .wrong = {{{{2, 3}, {2, 4}}}}},
    {.name = "smooth_l1_loss",
     .reference = reference::two([](double a, double b) {
       const double d = std::abs(a - b);
       return d < 0.7 ? d * d / 1.4 : d - 0.35;
     }),
     .wrong = {{{{2, 3}, {2, 4}}}},
     .ulp = 10},
    {.name = "huber_loss",
     .reference = reference::two([](double a, double b) {
       const double d = std::abs(a - b);
       return d < 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
     }),
     .wrong = {{{{2, 3}, {2, 4}}}},
     .ulp = 10},
    {.name = "kl_div",
     .reference = reference::two([](double a, double b) { return b * (std::log(b) - a); }),
     .definition = [](std::span<const Variable> x) { return x[1] * (log(x[1]) - x[0]); },
     .wrong = {{{{2, 3}, {2, 4}}}},
     .ulp = 20},
    {.name = "nll_loss",
     .reference =
         [](const reference::Arrays& x) {
           return reference::Array{Shape(), {-reference::sum(at_labels(x[0])) / 5}};
         }},
    {.name = "nll_loss each",
     .reference =
         [](const reference::Arrays& x) {
           reference::Array y{{2, 3}, at_labels(x[0])};
           for (double& value : y.values) value = -value;
           return y;
         }},
    {.name = "binary_cross_entropy_with_logits",
     .reference =
         [](const reference::Arrays& x) {
           const auto y = doubles(uniform(Key(5), x[0].shape));
           std::size_t i = 0;
           return reference::make(x[0].shape, [&](const reference::Position& p) {
             const double z = x[0](p), label = y[i++];
             return -label * std::log(1 / (1 + std::exp(-z))) - (1 - label) * std::log(1 / (1 + std::exp(z)));
           });
         }},
};
