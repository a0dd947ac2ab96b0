// SPDX-License-Identifier: Apache-2.0
// Heads that share keys and values.
#include "attention/multi_head.h"

#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

// rows of [H' dk, d] or [H' dk], each head's `group` times
Tensor repeated(const Tensor& x, Index head_width, Index group) {
  std::vector<Tensor> rows;
  for (Index h = 0; h < x.size(0) / head_width; ++h)
    for (Index g = 0; g < group; ++g) rows.push_back(slice(x, 0, h * head_width, (h + 1) * head_width));
  return concat(rows);
}

}  // namespace

TEST_CASE("multi-head attention: heads that share keys and values give what all give from repeated weights, step by step too") {
  const Index d = 24, H = 6, dk = 4;
  for (const Index shared : {1, 2, 3})
    for (const bool bias : {true, false}) {
      Parameters few(Seed{1}, DType::f64), every(Seed{2}, DType::f64);
      const MultiHeadAttention grouped(few.root() / "a", {.width = d, .heads = H, .bias = bias, .key_value_heads = shared}), plain(every.root() / "a", {.width = d, .heads = H, .bias = bias});
      CHECK(few.find("a.k_proj.weight")->variable.shape() == Shape{shared * dk, d});
      CHECK((few.find("a.v_proj.bias") != nullptr) == bias);
      for (const auto& item : few.items())
        if (item->variable.rank() == 1) uniform_(item->variable.value(), Key(7) / item->path, -0.5, 0.5);
      const auto fill = [&](const Parameter& into, const Parameter& q, const Parameter& k, const Parameter& v) {
        copy_into(into.value(), concat({q.value(), repeated(k.value(), dk, H / shared), repeated(v.value(), dk, H / shared)}));
      };
      fill(plain.in_proj_weight, grouped.q_proj->weight, grouped.k_proj->weight, grouped.v_proj->weight);
      if (bias) fill(plain.in_proj_bias, grouped.q_proj->bias, grouped.k_proj->bias, grouped.v_proj->bias);
      copy_into(plain.out_proj.weight.value(), grouped.out_proj.weight.value());
      if (bias) copy_into(plain.out_proj.bias.value(), grouped.out_proj.bias.value());
      const Tensor x = normal(Key(3), {2, 7, d}, 0, 1, DType::f64), memory = normal(Key(4), {2, 9, d}, 0, 1, DType::f64);
      const Mask mask = Mask::lengths(tensor({9, 4}, DType::i32));
      const Attended a = grouped.self(constant(x), Mask::causal(), Want::weights), b = plain.self(constant(x), Mask::causal(), Want::weights);
      CHECK(equal_bits(a.context.value(), b.context.value()));
      CHECK(equal_bits(a.weights.value(), b.weights.value()));
      CHECK(grouped.prepare(constant(memory), mask).keys.shape() == Shape{2, shared, 9, dk});
      CHECK(equal_bits(grouped(constant(x), grouped.prepare(constant(memory), mask)).context.value(), plain(constant(x), plain.prepare(constant(memory), mask)).context.value()));
      KeyValueCache cache(2, shared, 3, dk, DType::f64);
      for (Index t = 0; t < 7; ++t) CHECK(equal_bits(grouped.next(constant(slice(x, 1, t, t + 1)), cache).context.value(), slice(a.context.value(), 1, t, t + 1)));
    }
}

TEST_CASE("multi-head attention: as many heads of keys and values as of queries is the plain layer") {
  Parameters one(Seed{1}), other(Seed{1});
  const MultiHeadAttention plain(one.root(), {.width = 8, .heads = 4}), same(other.root(), {.width = 8, .heads = 4, .key_value_heads = 4});
  CHECK(equal_bits(plain.in_proj_weight.value(), same.in_proj_weight.value()));
  CHECK_FALSE(same.k_proj);
  CHECK(same.key_value_heads == 4);
  const MultiHeadAttention wide(one.root() / "wide", {.width = 8, .heads = 4, .key_width = 6, .key_value_heads = 2});   // a memory of another width
  CHECK(wide(constant(ones({1, 3, 8})), wide.prepare(constant(ones({1, 5, 6})), {})).context.shape() == Shape{1, 3, 8});
}
