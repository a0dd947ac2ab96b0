// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/soft_cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/random.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

Tensor draw(int key, const Shape& shape, DType dtype = DType::f64) { return normal(Key(55, key), shape, 0, 2, dtype); }

}  // namespace

TEST_CASE(
    "soft_cross_entropy: value and gradients by the formulas, every target; what no mass is on costs nothing; what cross_entropy is for "
    "one label") {
  for (const Index V : {1, 4, 16, 17, 1000})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
      // any masses, half of them 0
      const Tensor z = draw(1, {3, 5, V}, dtype), q = relu(draw(2, {3, 5, V}, dtype)), d = draw(3, {3, 5}, dtype);
      const auto x = doubles(z), mass = doubles(q), up = doubles(d);
      std::vector<double> losses(15), dz(x.size()), dq(x.size());
      double largest = 1;
      for (std::size_t row = 0; row < 15; ++row) {
        const std::size_t first = row * std::size_t(V), last = first + std::size_t(V);
        const double whole = std::accumulate(mass.begin() + std::ptrdiff_t(first), mass.begin() + std::ptrdiff_t(last), 0.0);
        double sum = 0;
        for (std::size_t k = first; k < last; ++k) sum += std::exp(x[k]);
        for (std::size_t k = first; k < last; ++k) {
          losses[row] -= mass[k] * (x[k] - std::log(sum));
          dz[k] = up[row] * (std::exp(x[k]) / sum * whole - mass[k]);
          dq[k] = -up[row] * (x[k] - std::log(sum));
        }
        largest = std::max({largest, losses[row], whole});
      }
      for_every_target([&] {
        const SoftCrossEntropy out = soft_cross_entropy(z, q);
        CHECK(worst_absolute(out.losses, losses) < 40 * eps * largest);
        CHECK(out.total == doctest::Approx(std::accumulate(losses.begin(), losses.end(), 0.0)).epsilon(100 * eps));
        const Tensor to_z = full(z.shape(), 1, dtype), to_q = transpose(empty({3, V, 5}, dtype));
        const Into into_z{to_z, true}, into_q{to_q, false};
        soft_cross_entropy_grad(z, q, out.log_sum_exp, d, &into_z, &into_q);
        CHECK(worst_absolute(to_z - 1.0, dz) < 40 * eps * largest);
        CHECK(worst_absolute(to_q, dq) < 100 * eps);
      });
      const Tensor labels = randint(Key(4), {3, 5}, 0, V);
      const CrossEntropyOptions smooth{.label_smoothing = 0.1};
      CHECK(worst_absolute(soft_cross_entropy(z, 0.9 * one_hot(labels, V, dtype) + 0.1 / double(V)).losses,
                           cross_entropy(z, labels, smooth).losses) < 40 * eps);
    }
  // what softmax never reaches costs nothing where it should not be reached
  const Tensor masked = tensor({{-INFINITY, 1, 1}, {-INFINITY, 1, 1}}, DType::f64), q = tensor({{0, 1, 0}, {1, 0, 0}}, DType::f64);
  CHECK(worst_absolute(soft_cross_entropy(masked, q).losses, std::vector<double>{std::log(2), INFINITY}) < 1e-15);
  CHECK(soft_cross_entropy(zeros({2, 0}), zeros({2, 0})).total == 0);
  const Variable one = variable(draw(1, {4, 6})), two = constant(softmax(draw(2, {4, 6})));
  CHECK(soft_cross_entropy(one, two).value().item() == doctest::Approx(soft_cross_entropy(one, two, Reduction::sum).value().item() / 4));
  CHECK(soft_cross_entropy(constant(zeros({0, 3})), constant(zeros({0, 3}))).value().item() == 0);
}

TEST_CASE("soft_cross_entropy: rows of few classes have the bits of rows of more that nothing is on, with any number of threads") {
  const Index N = 150;
  for (const Index V : {1, 2, 8, 10, 16})
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(V);
      const Tensor z = draw(1, {N, V}, dtype), q = relu(draw(2, {N, V}, dtype));
      const SoftCrossEntropy longer =
          soft_cross_entropy(concat({z, full({N, 17 - V}, -INFINITY, dtype)}, 1), concat({q, zeros({N, 17 - V}, dtype)}, 1));
      for_threads([&] {
        const SoftCrossEntropy out = soft_cross_entropy(z, q);
        CHECK(equal_bits(out.losses, longer.losses));
        CHECK(equal_bits(out.log_sum_exp.max, longer.log_sum_exp.max));
        CHECK(equal_bits(out.log_sum_exp.log_sum, longer.log_sum_exp.log_sum));
      });
    }
}

TEST_CASE("soft_cross_entropy: rules against central differences") {
  const Tensor x = draw(1, {4, 3});
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    CHECK(check_gradient([&](auto v) { return soft_cross_entropy(v[0], v[1], reduction); }, {x, softmax(draw(4, {4, 3}))}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return soft_cross_entropy(v[0], softmax(v[0]), reduction); }, {x}).holds(1e-8));
    CHECK(check_gradient([&](auto v) { return soft_cross_entropy(v[0], v[0], reduction); }, {x}).holds(1e-8));
  }
}

static const InTable rows{
    {.name = "soft_cross_entropy", .reference = [](const reference::Arrays& x) {
       const auto parts = reference::make(x[0].shape, [&, p = reference::along(-1, [](reference::Values line) {
         const double whole = reference::logsumexp(line);
         for (double& value : line) value = whole - value;
         return line;
       })(x)](const reference::Position& at) { return x[1](at) * p(at); });
       return reference::over({-1}, false, reference::sum)({parts});
     },
     .definition = [](std::span<const Variable> x) { return -sum(x[1] * log_softmax(x[0]), -1); },
     .wrong = {{{{2, 3, 4}, {2, 3, 5}}}, {{{2, 3}, {2, 1}}}}, .ulp = 40},
};
