// SPDX-License-Identifier: Apache-2.0
#include "attention/differential.h"

#include <doctest/doctest.h>

#include <cmath>

#include "attention/multi_head.h"
#include "autograd/ops.h"
#include "models/transformer.h"
#include "nn/init.h"
#include "tensor/ops/random.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("differential attention: weights and contexts of pairs by loops") {
  const Index B = 2, H = 6, T = 3, S = 5, dk = 4;
  Parameters parameters(Seed{1}, DType::f64);
  const DifferentialHeads heads(parameters.root(), {.heads = H, .head_width = dk, .layer = 4});
  parameters.select("*").initialise(normal_init(0, 1));
  const double start = 0.8 - 0.6 * std::exp(-0.9);
  CHECK(heads.start() == start);
  double one = 0, two = 0;
  for (Index i = 0; i < dk; ++i) {
    one += heads.lambda_q1.value()(i).item() * heads.lambda_k1.value()(i).item();
    two += heads.lambda_q2.value()(i).item() * heads.lambda_k2.value()(i).item();
  }
  const double lambda = std::exp(one) - std::exp(two) + start;
  CHECK(heads.lambda().value().item() == doctest::Approx(lambda).epsilon(1e-14));

  const Tensor p = normal(Key(2), {B, H, T, S}, 0, 1, DType::f64), c = normal(Key(4), {B, H / 2, T, 2 * dk}, 0, 1, DType::f64);
  std::vector<double> weights, contexts;
  for (Index b = 0; b < B; ++b)
    for (Index a = 0; a < H / 2; ++a) {
      for (Index i = 0; i < T * S; ++i) weights.push_back(p(b, 2 * a, i / S, i % S).item() - lambda * p(b, 2 * a + 1, i / S, i % S).item());
      for (Index t = 0; t < T; ++t) {
        double squares = 0;
        for (Index i = 0; i < 2 * dk; ++i) squares += std::pow(c(b, a, t, i).item(), 2) / double(2 * dk);
        for (Index i = 0; i < 2 * dk; ++i)
          contexts.push_back((1 - start) * heads.norm_weight.value()(i).item() * c(b, a, t, i).item() / std::sqrt(squares + 1e-5));
      }
    }
  CHECK(worst_absolute(heads.weights(constant(p)).value(), weights) < 1e-13);
  CHECK(worst_absolute(heads.context(constant(c)).value(), contexts) < 1e-13);
}

TEST_CASE("differential attention: how it starts") {
  const auto start = [](Index layer) {
    Parameters parameters(Seed{1});
    return DifferentialHeads(parameters.root(), {.heads = 2, .head_width = 3, .layer = layer}).start();
  };
  CHECK(start(1) == doctest::Approx(0.2));                                  // 0.8 - 0.6
  CHECK(start(100) == doctest::Approx(0.8));
  Parameters parameters(Seed{1});
  const MultiHeadAttention layer(parameters.root(), {.width = 512, .heads = 2, .differential = true});
  std::vector<std::string> paths;
  for (const auto& item : parameters.items())
    if (item->path.find("proj") == item->path.npos) paths.push_back(item->path);
  CHECK(paths == std::vector<std::string>{"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "norm.weight"});
  CHECK(std::sqrt(mean(square(layer.differential->lambda_q1)).value().item()) == doctest::Approx(0.1).epsilon(0.2).scale(0));
  CHECK(equal_bits(layer.differential->norm_weight.value(), ones({512})));
}

TEST_CASE("differential attention: layers of a stack start with their own λ") {
  Parameters parameters(Seed{1});
  const Transformer core(parameters.root(),
                         {.width = 8, .heads = 2, .feed_forward = 8, .encoder_layers = 3, .decoder_layers = 2, .differential = true});
  const auto expected = [](Index layer) { return 0.8 - 0.6 * std::exp(-0.3 * double(layer - 1)); };
  for (Index k = 0; k < 3; ++k) CHECK(core.encoder.layers[std::size_t(k)].self_attn.differential->start() == expected(k + 1));
  for (Index k = 0; k < 2; ++k) {
    CHECK(core.decoder.layers[std::size_t(k)].self_attn.differential->start() == expected(k + 1));
    CHECK(core.decoder.layers[std::size_t(k)].multihead_attn->differential->start() == expected(k + 1));
  }
}
