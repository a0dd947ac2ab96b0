// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/causal_product.h"

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

TEST_CASE("causal_product: of any sizes the definition, values and gradients; the same bits in any layout of memory and in pieces") {
  for (const Index T : {1, 2, 37})
    for (const auto& sizes : {std::pair<Index, Index>{1, 1}, {3, 17}, {8, 16}, {21, 49}}) {
      const Index m = sizes.first, n = sizes.second;
      CAPTURE(T);
      CAPTURE(m);
      CAPTURE(n);
      const Tensor q = normal(Key(1), {2, 3, T, m}, 0, 1, DType::f64), k = normal(Key(2), {2, 3, T, m}, 0, 1, DType::f64),
                   v = normal(Key(3), {2, 3, T, n}, 0, 1, DType::f64);
      const Played fast = play([](auto x) { return causal_product(x[0], x[1], x[2]); }, {q, k, v}),
                   slow = play([](auto x) { return causal_product_by_definition(x[0], x[1], x[2]); }, {q, k, v});
      CHECK(worst_absolute(fast.value, doubles(slow.value)) < 1e-11);
      for (std::size_t i = 0; i < 3; ++i) CHECK(worst_absolute(fast.gradients[i], doubles(slow.gradients[i])) < 1e-11);
      const Tensor y = causal_product(q, k, v);
      const auto heads = [](const Tensor& x) { return transpose(transpose(x, 1, 2).clone(), 1, 2); };
      CHECK(equal_bits(causal_product(heads(q), heads(k), transpose(transpose(v).clone())), y));
      const Tensor state = zeros({2, 3, m, n}, DType::f64);
      for (Index t = 0; t < T; t += 5) {
        const auto some = [&](const Tensor& x) { return slice(x, 2, t, std::min(T, t + 5)); };
        CHECK(equal_bits(causal_product_next(some(q), some(k), some(v), state), some(y)));
      }
      CHECK(worst_absolute(state, doubles(matmul(constant(transpose(k)), constant(v)).value())) < 1e-12);
      // gradients into views, added
      const Tensor dy = ones(y.shape(), DType::f64), dk = ones({2, T, 3, m}, DType::f64), plain = empty(k.shape(), DType::f64);
      const Into into{transpose(dk, 1, 2), true}, written{plain};
      causal_product_grad(q, k, v, dy, nullptr, &into, nullptr);
      causal_product_grad(q, k, v, dy, nullptr, &written, nullptr);
      CHECK(worst_absolute(transpose(dk, 1, 2), doubles(add(plain, 1))) < 1e-13);
    }
}

TEST_CASE("causal_product: nothing to sum, and what is not finite stays in its row and after it") {
  CHECK(causal_product(zeros({1, 2, 0, 3}), zeros({1, 2, 0, 3}), zeros({1, 2, 0, 4})).shape() == Shape{1, 2, 0, 4});
  CHECK(equal_bits(causal_product(zeros({1, 2, 3, 0}), zeros({1, 2, 3, 0}), ones({1, 2, 3, 4})), zeros({1, 2, 3, 4})));
  const Tensor x = normal(Key(1), {1, 1, 9, 4}), poisoned = x.clone(), y = causal_product(x, x, x);
  fill_(poisoned(0, 0, 6), std::numeric_limits<double>::quiet_NaN());
  CHECK(equal_bits(slice(causal_product(x, poisoned, x), 2, 0, 6), slice(y, 2, 0, 6)));
}

TEST_CASE("causal_product: what does not fit is refused") {
  const Tensor x = zeros({1, 2, 3, 4});
  CHECK_THROWS_WITH_AS(causal_product_next(x, x, x, zeros({1, 2, 4, 3})),
                       "causal_product_next: the state needs [1, 2, 4, 4], contiguous: shape [1, 2, 4, 3], strides [24, 12, 3, 1]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(causal_product_next(x, x, x, zeros({1, 2, 4, 4}, DType::f64)),
                       "causal_product_next: dtypes differ: q f32, state f64", DTypeError);
  CHECK_THROWS_WITH_AS(causal_product_next(x, x, x, expand(zeros({1, 1, 4, 4}), {1, 2, 4, 4})),
                       doctest::Contains("causal_product_next: the state needs [1, 2, 4, 4], contiguous"), ShapeError);
  CHECK_THROWS_WITH_AS(causal_product_grad(x, x, x, zeros({1, 2, 3, 5}), nullptr, nullptr, nullptr),
                       "causal_product_grad: shapes differ: v [1, 2, 3, 4], dy [1, 2, 3, 5]", ShapeError);
}

namespace {

// Σ_{j <= i} (Σ_r q_ir k_jr) v_j by loops
double product(const reference::Arrays& x, const reference::Position& p) {
  double y = 0;
  for (Index j = 0; j <= p[2]; ++j)
    for (Index r = 0; r < x[0].shape[3]; ++r) y += x[0]({p[0], p[1], p[2], r}) * x[1]({p[0], p[1], j, r}) * x[2]({p[0], p[1], j, p[3]});
  return y;
}
const auto products = [](const reference::Arrays& x) {
  return reference::make(x[2].shape, [&](const reference::Position& p) { return product(x, p); });
};
const auto definition = [](std::span<const Variable> x) { return causal_product_by_definition(x[0], x[1], x[2]); };

}  // namespace

static const InTable rows{
    {.name = "causal_product", .reference = products, .definition = definition,
     .wrong = {{{{2, 3, 4}, {2, 3, 4}, {2, 3, 4}}}, {{{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}}},
               {{{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 4, 4}}}}, .ulp = 200},
    {.name = "causal_product wide", .reference = products, .definition = definition, .ulp = 200},
};
