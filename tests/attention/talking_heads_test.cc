// SPDX-License-Identifier: Apache-2.0
#include "attention/talking_heads.h"

#include <doctest/doctest.h>

#include "attention/cache.h"
#include "attention/multi_head.h"
#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("talking heads: mixed scores and weights are sums over the heads") {
  Parameters parameters(Seed{1}, DType::f64);
  const TalkingHeads talking(parameters.root(), 3);
  parameters.select("*").initialise(normal_init(0, 1));
  const Index B = 2, H = 3, T = 4, S = 5;
  const Tensor x = normal(Key(3), {B, H, T, S}, 0, 1, DType::f64);
  const auto by_loop = [&](const Tensor& mix) {
    std::vector<double> y(std::size_t(x.numel()));
    for (Index b = 0; b < B; ++b)
      for (Index a = 0; a < H; ++a)
        for (Index h = 0; h < H; ++h)
          for (Index i = 0; i < T * S; ++i)
            y[std::size_t((b * H + a) * T * S + i)] += mix(a, h).item() * x.data<double>()[(b * H + h) * T * S + i];
    return y;
  };
  CHECK(worst_absolute(talking.scores(constant(x)).value(), by_loop(talking.logit_mix.value())) < 1e-14);
  CHECK(worst_absolute(talking.weights(constant(x)).value(), by_loop(talking.weight_mix.value())) < 1e-14);
}

TEST_CASE("talking heads: they start as plain attention") {
  Parameters parameters(Seed{1}, DType::f64), others(Seed{1}, DType::f64);
  const MultiHeadAttention talking(parameters.root(), {.width = 12, .heads = 3, .talking_heads = true}),
      plain(others.root(), {.width = 12, .heads = 3});
  CHECK(equal_bits(talking.in_proj_weight.value(), plain.in_proj_weight.value()));
  CHECK(equal_bits(talking.talking->logit_mix.value(), eye(3, DType::f64)));
  CHECK(equal_bits(talking.talking->weight_mix.value(), eye(3, DType::f64)));
  const Variable x = constant(normal(Key(3), {2, 7, 12}, 0, 1, DType::f64));
  for (const Mask& mask : {Mask(), Mask::causal(), Mask::lengths(tensor({3, 7}, DType::i32))})
    CHECK(worst_absolute(talking.self(x, mask).context.value(), doubles(plain.self(x, mask).context.value())) < 1e-14);
}
