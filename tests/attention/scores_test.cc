// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "attention/attend.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "tensor/ops/random.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("attention by name: every gradient agrees with central differences") {
  for (const std::string& name : attention_names()) {
    CAPTURE(name);
    const bool square = name == "dot" || name == "scaled-dot" || name == "cosine";
    const Tensor states = normal(Key(1), {2, 5, Index(square ? 3 : 4)}, 0, 1, DType::f64), queries = normal(Key(2), {2, 3, 3}, 0, 1, DType::f64);
    Parameters parameters(Seed{3}, DType::f64);
    const Attention attention = make_attention(name, parameters.root() / "attention", {.query_width = 3, .memory_width = states.size(2), .window = 2});
    const Mask mask = Mask::lengths(tensor({5, 3}, DType::i32));
    const auto f = [&](std::span<const Variable> x) {
      const Memory memory = attention.prepare(x[0], mask);
      if (!attention.looks_back()) return attention(x[1], memory).context;
      AttentionState state;
      std::vector<Variable> contexts;
      for (Index t = 0; t < 3; ++t) contexts.push_back(attention(slice(x[1], 1, t, t + 1), memory, state).context);
      return concat(contexts, 1);
    };
    const GradientReport report = check_gradient(f, {states, queries});
    CHECK_MESSAGE(report.holds(1e-7), report.worst);
  }
}
