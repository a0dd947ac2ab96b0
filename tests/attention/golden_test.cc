// SPDX-License-Identifier: Apache-2.0
// Attention against PyTorch's scaled_dot_product_attention.
#include "tests/golden.h"

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "tensor/ops/view.h"

using namespace heed;

namespace {
// What the case allows: causal, lengths, an explicit mask [B, T, S] for all heads.
Mask mask(const golden::Case& c) {
  Mask m;
  if (c.options().value("is_causal", false)) m = m & Mask::causal();
  if (c.has("lengths")) m = m & c.lengths();
  if (c.has("mask")) m = m & Mask::allowed(unsqueeze(c.tensor("mask"), 1));
  return m;
}
}  // namespace

TEST_CASE("golden: scaled dot-product attention, fused and by definition") {
  golden::each("scaled_dot_product_attention", [](golden::Case& c) {
    const auto& scale = c.options().value("scale", nlohmann::json());
    const double factor = scale.is_number() ? scale.get<double>() : 0;
    Tape tape;
    const AttentionVariable y =
        scaled_dot_product_attention(c.input("q"), c.input("k"), c.input("v"), mask(c), {.scale = factor, .weights = true});
    c.check_value("weights", y.weights);
    c.check(tape, {{"context", y.output}});
  });
}
