// SPDX-License-Identifier: Apache-2.0
#include "attention/random_features.h"

#include <doctest/doctest.h>

#include <cmath>

#include "attention/linear_attention.h"
#include "attention/multi_head.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

RandomFeatures::Options sizes(Index m, Index dk) { return {.number = m, .head_width = dk, .dtype = DType::f64}; }

Tensor at(RandomFeatures::Options options, std::int64_t draw) {
  options.draw = draw;
  return RandomFeatures(options).directions();
}

// exp(w·x - ‖x‖²/2) with x = √scale row, for each row and w; directions hold √scale w.
std::vector<double> exponents(const Tensor& rows, const Tensor& directions, double scale) {
  std::vector<double> e;
  const Tensor x = reshape(rows, {-1, rows.size(-1)});
  for (Index r = 0; r < x.size(0); ++r)
    for (Index i = 0; i < directions.size(0); ++i) {
      double dot = 0, square = 0;
      for (Index j = 0; j < x.size(1); ++j) dot += x(r, j).item() * directions(i, j).item(), square += x(r, j).item() * x(r, j).item();
      e.push_back(dot - scale * square / 2);
    }
  return e;
}

}  // namespace

TEST_CASE("random features: of queries and keys, what loops give") {
  const Index B = 2, H = 2, S = 5, dk = 4, m = 7;
  for (const double scale : {0.0, 0.3}) {
    RandomFeatures::Options options = sizes(m, dk);
    options.scale = scale;
    const RandomFeatures features(options);
    const double s = scale == 0 ? 1 / std::sqrt(double(dk)) : scale;
    const Tensor x = normal(Key(1), {B, H, S, dk}, 0, 2, DType::f64);
    const std::vector<double> e = exponents(x, features.directions(), s);
    const auto at = [&](Index b, Index h, Index t, Index i) { return e[std::size_t(((b * H + h) * S + t) * m + i)]; };
    std::vector<double> queries, whole, within, causal;
    const Index lengths[] = {5, 3};
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < H; ++h) {
        double largest = -HUGE_VAL, seen = -HUGE_VAL;
        for (Index t = 0; t < S; ++t)
          for (Index i = 0; i < m; ++i) {
            largest = std::max(largest, at(b, h, t, i));
            if (t < lengths[b]) seen = std::max(seen, at(b, h, t, i));
          }
        for (Index t = 0; t < S; ++t) {
          double of_row = -HUGE_VAL;
          for (Index i = 0; i < m; ++i) of_row = std::max(of_row, at(b, h, t, i));
          for (Index i = 0; i < m; ++i) {
            queries.push_back(std::exp(at(b, h, t, i) - of_row) + 1e-6);
            whole.push_back(std::exp(at(b, h, t, i) - largest) + 1e-6);
            within.push_back(t < lengths[b] ? std::exp(at(b, h, t, i) - seen) + 1e-6 : 0);
            causal.push_back(t < lengths[b] ? std::exp(at(b, h, t, i)) : 0);
          }
        }
      }
    const Mask some = Mask::lengths(tensor({5, 3}, DType::i32));
    CHECK(worst_relative(features.queries(constant(x)).value(), queries) < 1e-12);
    CHECK(worst_relative(features.keys(constant(x), {}).value(), whole) < 1e-12);
    CHECK(worst_absolute(features.keys(constant(x), some).value(), within) < 1e-14);
    CHECK(worst_absolute(features.keys(constant(x), some & Mask::causal()).value(), causal) < 1e-12);
    // a sentence of no words
    CHECK(equal_bits(features.keys(constant(x), Mask::lengths(tensor({0, 3}, DType::i32))).value()(0), zeros({H, S, m}, DType::f64)));
    CHECK(features.keys(constant(zeros({B, H, 0, dk}, DType::f64)), {}).shape() == Shape{B, H, 0, m});
  }
}

TEST_CASE("random features: large queries and keys stay finite, far ones too") {
  const RandomFeatures features({.number = 300, .head_width = 256});
  const Tensor x = features.directions()(Slice{0, 4}) * 16.0;                       // w itself: exponents of ‖w‖²/2, about 128
  for (const double factor : {1.0, 10.0, 1e4})
    for (const Mask& mask : {Mask(), Mask::causal(), Mask::lengths(tensor({0}, DType::i32))}) {
      const Variable rows = variable(reshape(x * factor, {1, 1, 4, 256}));
      Tape tape;
      const Variable k = features.keys(rows, mask), q = features.queries(rows);
      const Variable y = linear_context(q, linear_sums(k, rows), RandomFeatures::kLeast);
      tape.backward(sum(y));
      CHECK(all_finite(y.value()));
      CHECK(all_finite(rows.grad()));
    }
}

TEST_CASE("random features: rows at right angles with the lengths of independent ones; a draw is a function of its number") {
  const Index dk = 6, m = 15;                                                       // two blocks and a half
  for (const bool orthogonal : {true, false}) {
    RandomFeatures::Options options = sizes(m, dk);
    options.orthogonal = orthogonal;
    const double scale = 1 / std::sqrt(double(dk));
    double across = 0, lengths = 0;
    const int draws = 400;
    for (int draw = 0; draw < draws; ++draw) {
      const Tensor w = at(options, draw) / std::sqrt(scale), products = matmul(w, transpose(w));
      for (Index i = 0; i < m; ++i) {
        lengths += products(i, i).item();
        for (Index j = 0; j < i; ++j)
          if (i / dk == j / dk) across = std::max(across, std::abs(products(i, j).item()));
      }
    }
    CHECK(lengths / (draws * double(m)) == doctest::Approx(double(dk)).epsilon(0.02));   // E ‖w‖² = dk, as of N(0, I)
    if (orthogonal) CHECK(across < 1e-12);
    else CHECK(across > 1);
    CHECK(equal_bits(at(options, 3), at(options, 3)));
    CHECK_FALSE(equal_bits(at(options, 3), at(options, 4)));
    const Tensor exact = at(options, 3);
    options.dtype = DType::f32;
    CHECK(equal_bits(at(options, 3), to(exact, DType::f32)));
  }
}

// E φ(q)·φ(k) / m = exp(scale q·k): the mean of n estimates has an error that falls as 1/√(n m), and less of it where rows are orthogonal.
TEST_CASE("random features: the mean of many draws is softmax, the error of one falls as 1/√m") {
  const Index dk = 8, S = 6;
  const double scale = 1 / std::sqrt(double(dk));
  const Tensor q = normal(Key(1), {S, dk}, 0, 0.4, DType::f64), k = normal(Key(2), {S, dk}, 0, 0.4, DType::f64);
  const auto softmax_by = [&](const std::vector<double>& e) {
    std::vector<double> p(e);
    for (Index t = 0; t < S; ++t) {
      double total = 0;
      for (Index s = 0; s < S; ++s) total += p[std::size_t(t * S + s)];
      for (Index s = 0; s < S; ++s) p[std::size_t(t * S + s)] /= total;
    }
    return p;
  };
  std::vector<double> exact = doubles(matmul(q, transpose(k)));
  for (double& e : exact) e = std::exp(scale * e);
  const std::vector<double> weights = softmax_by(exact);
  double means[2] = {}, errors[2][3] = {};                                          // of 25,600 features; of one draw
  for (const bool orthogonal : {true, false}) {
    const Index numbers[] = {16, 64, 256};
    for (int n = 0; n < 3; ++n) {
      const Index m = numbers[n], draws = 100;
      RandomFeatures::Options options = sizes(m, dk);
      options.orthogonal = orthogonal;
      std::vector<double> mean(exact.size(), 0.0);
      for (Index draw = 0; draw < draws; ++draw) {
        const Tensor w = at(options, draw);
        const auto phi = [&](const Tensor& x) { return exp(matmul(x, transpose(w)) - sum(square(x), {-1}, true) * (scale / 2)); };
        const std::vector<double> estimate = doubles(matmul(phi(q), transpose(phi(k))) / double(m)), p = softmax_by(estimate);
        for (std::size_t i = 0; i < mean.size(); ++i) {
          mean[i] += estimate[i] / double(draws);
          errors[orthogonal][n] += (p[i] - weights[i]) * (p[i] - weights[i]) / double(draws) / double(p.size());
        }
      }
      for (std::size_t i = 0; i < mean.size() && n == 2; ++i)
        means[orthogonal] = std::max(means[orthogonal], std::abs(mean[i] / exact[i] - 1));
    }
    for (double& error : errors[orthogonal]) error = std::sqrt(error);
    INFO("errors " << errors[orthogonal][0] << " " << errors[orthogonal][1] << " " << errors[orthogonal][2] << ", of means "
                   << means[orthogonal]);
    CHECK(means[orthogonal] < 0.05);
    for (int n = 0; n < 2; ++n) {
      CHECK(errors[orthogonal][n] / errors[orthogonal][n + 1] > 1.6);
      CHECK(errors[orthogonal][n] / errors[orthogonal][n + 1] < 2.5);
    }
  }
  for (int n = 0; n < 3; ++n) CHECK(errors[true][n] < errors[false][n]);
}

TEST_CASE("random features: gradients") {
  const RandomFeatures features(sizes(5, 3));
  const Tensor x = normal(Key(1), {2, 2, 4, 3}, 0, 1, DType::f64);
  using Inputs = std::span<const Variable>;
  CHECK(check_gradient([&](Inputs v) { return features.queries(v[0]); }, {x}).holds(1e-8));
  for (const Mask& mask :
       {Mask(), Mask::causal(), Mask::lengths(tensor({4, 2}, DType::i32)), Mask::lengths(tensor({0, 2}, DType::i32)) & Mask::causal()})
    CHECK(check_gradient([&](Inputs v) { return features.keys(v[0], mask); }, {x}).holds(1e-8));
}

TEST_CASE("random features: of heads: near softmax's heads with the same weights, with the scale that their queries and keys have") {
  for (const QueryKey norm : {QueryKey::none, QueryKey::l2})
    for (const Index shared : {4, 2}) {
      const auto layer = [&](Parameters& parameters, Index features) {
        return MultiHeadAttention(parameters.root(), {.width = 16,
                                                      .heads = 4,
                                                      .init = normal_init(0, 0.1),
                                                      .key_value_heads = shared,
                                                      .query_key = norm,
                                                      .long_sentence = 2,
                                                      .linear_attention = features > 0,
                                                      .random_features = features,
                                                      .orthogonal_features = false});
      };
      Parameters one(Seed{1}, DType::f64), other(Seed{1}, DType::f64);
      const MultiHeadAttention exact = layer(one, 0), estimated = layer(other, 20000);
      const Variable x = constant(normal(Key(3), {2, 9, 16}, 0, 1, DType::f64));
      for (const Mask& mask : {Mask(), Mask::lengths(tensor({5, 9}, DType::i32)), Mask::causal()}) {
        const Attended a = exact.self(x, mask, Want::weights), b = estimated.self(x, mask, Want::weights);
        CHECK(worst_absolute(b.weights.value(), a.weights.value()) < 0.05);
        CHECK(worst_absolute(b.context.value(), a.context.value()) < 0.1);
      }
    }
}
