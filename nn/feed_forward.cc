// SPDX-License-Identifier: Apache-2.0
#include "nn/feed_forward.h"

#include "autograd/trace.h"
#include "nn/dropout.h"

namespace heed {

FeedForward::FeedForward(Scope scope, Options options)
    : linear1(scope / "linear1", {.in = options.width, .out = options.inner, .bias = options.bias, .init = options.init}),
      linear2(scope / "linear2", {.in = options.inner, .out = options.width, .bias = options.bias, .init = options.init}),
      activation(options.activation),
      dropout(checked_dropout(scope.path(), options.dropout)) {
  if (options.gated)
    linear3.emplace(scope / "linear3",
                    Linear::Options{.in = options.width, .out = options.inner, .bias = options.bias, .init = options.init});
}

Variable FeedForward::operator()(const Variable& x) const {
  if (!linear3) return linear2(linear1(x, {.activation = activation, .dropout = dropout}));   // [..., F] -> [..., d]
  const Variable inner = linear1(x, {.activation = activation}), gate = (*linear3)(x);        // [..., F]
  const Inside inside(linear3->path);
  return linear2(heed::dropout(trace("gated", "y = linear1(x) ⊙ linear3(x)", inner * gate), dropout));
}

}  // namespace heed
