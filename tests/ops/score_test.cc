// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/score.h"

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

TEST_CASE("additive_score: by hand") {
  // q = (0, 1), k_0 = (1, 0), k_1 = (0, -1), v = (2, -1):  e_0 = 2 tanh 1 - tanh 1 = tanh 1,  e_1 = 2 tanh 0 - tanh 0 = 0
  const Tensor e = additive_score(tensor({{{0, 1}}}, DType::f64), tensor({{{1, 0}, {0, -1}}}, DType::f64), tensor({2, -1}, DType::f64));
  CHECK(e.shape() == Shape{1, 1, 2});
  CHECK(e(0, 0, 0).item() == doctest::Approx(std::tanh(1.0)).epsilon(1e-15));
  CHECK(e(0, 0, 1).item() == 0);
}

TEST_CASE("additive_score: padding, one query at a time and the batch change no bit; what is masked is not read") {
  const Tensor q = normal(Key(1), {3, 5, 37}), k = normal(Key(2), {3, 9, 37}), v = normal(Key(3), {37});
  const Mask mask = Mask::lengths(tensor({9, 4, 0}, DType::i32));
  const Tensor poisoned = k.clone();
  fill_(poisoned(1, Slice{4, 9}), NAN);
  fill_(poisoned(2), NAN);
  for_every_target([&] {
    const Tensor e = additive_score(q, poisoned, v, mask);
    CHECK(equal_bits(e(1, all, Slice{0, 4}), additive_score(q(Slice{1, 2}), k(Slice{1, 2}, Slice{0, 4}), v)[0]));
    for (Index t = 0; t < 5; ++t) CHECK(equal_bits(e(all, Slice{t, t + 1}), additive_score(q(all, Slice{t, t + 1}), k, v, mask)));
    CHECK(equal_bits(e(2), zeros({5, 9})));
    const Tensor de = full({3, 5, 9}, 1), dq = empty(q.shape()), dk = empty(k.shape()), dv = empty(v.shape());
    const Into into[3] = {{dq}, {dk}, {dv}};
    additive_score_grad(q, poisoned, v, mask, de, &into[0], &into[1], &into[2]);
    CHECK(equal_bits(dq(2), zeros({5, 37})));
    CHECK(equal_bits(dk(1, Slice{4, 9}), zeros({5, 37})));
    for (double g : doubles(dv)) CHECK(std::isfinite(g));
  });
}

TEST_CASE("additive_score: the same tensor as queries and keys") {
  const Tensor x = normal(Key(1), {2, 4, 19}, 0, 1, DType::f64), v = normal(Key(3), {19}, 0, 1, DType::f64);
  const Played a = play([](auto x) { return additive_score(x[0], x[0], x[1]); }, {x, v});
  const Played b = play([](auto x) { return additive_score_by_definition(x[0], x[0], x[1]); }, {x, v});
  for (std::size_t i = 0; i < 2; ++i) CHECK(worst_absolute(a.gradients[i], b.gradients[i]) < 1e-13);
}

namespace {

// Σ_a v_a tanh(q_ta + k_sa) where allowed, by loops
template <class Allowed> reference::Function additive(Allowed allowed) {
  return [allowed](const reference::Arrays& x) {
    return reference::make({x[0].shape[0], x[0].shape[1], x[1].shape[1]}, [&](const reference::Position& p) {
      double e = 0;
      for (Index a = 0; a < x[2].shape[0]; ++a) e += x[2]({a}) * std::tanh(x[0]({p[0], p[1], a}) + x[1]({p[0], p[2], a}));
      return allowed(p[0], p[1], p[2]) ? e : 0;
    });
  };
}

}  // namespace

static const InTable rows{
    {.name = "additive_score", .reference = additive([](Index, Index, Index) { return true; }),
     .definition = [](std::span<const Variable> x) { return additive_score_by_definition(x[0], x[1], x[2]); },
     .wrong = {{{{2, 3, 4}, {2, 5, 3}, {4}}}, {{{2, 3, 4}, {1, 5, 4}, {4}}}, {{{2, 3, 4}, {2, 5, 4}, {3}}},
               {{{3, 4}, {2, 5, 4}, {4}}}}, .ulp = 60},
    {.name = "additive_score masked", .reference = additive([](Index b, Index t, Index s) { return s <= t + 1 && s < (b == 0 ? 4 : 2); }),
     .definition = [](std::span<const Variable> x) {
       return additive_score_by_definition(x[0], x[1], x[2], Mask::lengths(tensor({4, 2}, DType::i32)) & Mask::causal(1));
     }, .ulp = 60},
};
