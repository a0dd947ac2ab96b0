// SPDX-License-Identifier: Apache-2.0
// Whatever a mask hides: every value and gradient is finite, a row without positions gives zeros, fused = definition.
#include <doctest/doctest.h>

#include "attention/attend.h"
#include "autograd/ops.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/play.h"
#include "tests/random_mask.h"

using namespace heed;

namespace {

constexpr DType f64 = DType::f64;

Tensor draw(Key key, const Shape& shape) { return normal(key, shape, 0, 2, f64); }

bool all_finite(const Played& played) {
  bool finite = heed::all_finite(played.value);
  for (const Tensor& gradient : played.gradients) finite = finite && heed::all_finite(gradient);
  return finite;
}

double distance(const Played& a, const Played& b) {
  double most = worst_absolute(a.value, b.value);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) most = std::max(most, worst_absolute(a.gradients[i], b.gradients[i]));
  return most;
}

struct Sizes {
  explicit Sizes(Random& random)
      : B(random.below(8) ? 1 + random.below(3) : 0),
        H(1 + random.below(2)),
        T(random.below(8) ? 1 + random.below(5) : 0),
        S(random.below(8) ? 1 + random.below(random.below(20) ? 8 : 60) : 0) {}
  Index B, H, T, S;
};

void attention_case(Random& random, Key key) {
  const Sizes n(random);
  const Index dk = 1 + random.below(6), dv = 1 + random.below(6);
  const Mask mask = random_mask(random, key, n.B, n.H, n.T, n.S);
  const AttentionOptions options{.scale = random.below(3) ? 0 : 40.0, .dropout = random.below(3) ? 0 : 0.3};
  const std::vector<Tensor> inputs{draw(key / 2, {n.B, n.H, n.T, dk}), draw(key / 3, {n.B, n.H, n.S, dk}),
                                   draw(key / 4, {n.B, n.H, n.S, dv})};
  const Played fused = play([&](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2], mask, options).output; }, inputs, key);
  REQUIRE(all_finite(fused));
  REQUIRE(distance(fused, play([&](auto x) { return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], mask, options).output; },
                               inputs, key)) < 1e-10);
  const auto seen = mask.dense({n.B, n.H, n.T, n.S}).to_vector<std::uint8_t>();
  const auto output = doubles(fused.value), dq = doubles(fused.gradients[0]);
  for (std::size_t row = 0; row < std::size_t(n.B * n.H * n.T); ++row) {
    const auto first = seen.begin() + std::ptrdiff_t(row) * n.S;
    if (std::any_of(first, first + n.S, [](auto s) { return s != 0; })) continue;
    for (std::size_t i = 0; i < std::size_t(dv); ++i) REQUIRE(output[row * std::size_t(dv) + i] == 0);
    for (std::size_t i = 0; i < std::size_t(dk); ++i) REQUIRE(dq[row * std::size_t(dk) + i] == 0);
  }
}

void normaliser_case(Random& random, Key key) {
  const Sizes n(random);
  const Mask mask = random_mask(random, key, n.B, n.H, n.T, n.S);
  const Tensor x = draw(key / 2, {n.B, n.H, n.T, n.S});
  const auto seen = mask.dense(x.shape()).to_vector<std::uint8_t>();
  const auto sum_to_one = [&](auto f) {
    const Played played = play([&](auto in) { return f(in[0]); }, {x}, key);
    REQUIRE(all_finite(played));
    const auto y = doubles(played.value), dx = doubles(played.gradients[0]);
    for (std::size_t row = 0; row < std::size_t(n.B * n.H * n.T); ++row) {
      double sum = 0, any = 0;
      for (std::size_t i = row * std::size_t(n.S); i < (row + 1) * std::size_t(n.S); ++i) {
        if (!seen[i]) REQUIRE((y[i] == 0 && dx[i] == 0));
        sum += y[i], any += seen[i];
      }
      REQUIRE(std::abs(sum - (any > 0)) < 1e-12);
    }
  };
  sum_to_one([&](const Variable& v) { return softmax(v, -1, mask); });
  // e^-inf; e^0 in an empty row
  sum_to_one([&](const Variable& v) { return exp(log_softmax(v, -1, mask)) * constant(to(mask.dense(x.shape()), f64)); });
  sum_to_one([&](const Variable& v) { return sparsemax(v, mask); });
  sum_to_one([&](const Variable& v) { return entmax(v, mask); });
}

// A recurrent decoder's attention by name over sources of random lengths.
void score_case(Random& random, Key key) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = attention_names();
    all.insert(all.end(), {"local-m-dot", "local-p-concat", "general-sparsemax", "additive-entmax", "local-p-dot-entmax",
                           "coverage-sparsemax", "dot-hard"});
    return all;
  }();
  const std::string& name = names[std::size_t(random.below(Index(names.size())))];
  CAPTURE(name);
  const Sizes n(random);
  const Index T = std::min<Index>(n.T, 3) + 1;
  const Tensor lengths = to(randint(key / 0, {n.B}, 0, random.below(6) ? n.S + 1 : 1), DType::i32);
  Parameters parameters(Seed{3}, f64);
  const Attention attention =
      make_attention(name, parameters.root(), {.query_width = 3, .memory_width = 3, .hidden_width = 4, .window = random.below(4)});
  const std::vector<Tensor> inputs{draw(key / 1, {n.B, n.S, 3}), draw(key / 2, {n.B, T, 3})};
  std::vector<Tensor> weights;
  const auto contexts = [&](auto x) {
    const Memory memory = attention.prepare(x[0], Mask::lengths(lengths));
    AttentionState state;
    std::vector<Variable> all;
    for (Index t = 0; t < T; ++t) {
      const Attended step = attention(slice(x[1], 1, t, t + 1), memory, state, Want::weights);
      weights.push_back(step.weights.value());
      all.push_back(step.context);
    }
    return concat(all, 1) + 0 * sum(x[0]) + 0 * sum(x[1]);     // of what does not look at them too there is a gradient
  };
  REQUIRE(all_finite(play(contexts, inputs, key)));
  for (const auto& item : parameters.items())
    if (item->gradient->written()) REQUIRE(heed::all_finite(item->gradient->value()));
  const auto length = lengths.to_vector<std::int32_t>();
  for (const Tensor& w : weights)
    for (Index b = 0; b < n.B; ++b)
      for (Index s = length[std::size_t(b)]; s < n.S; ++s) REQUIRE(w(b, 0, s).item() == 0);
}

}  // namespace

TEST_CASE("masks: 100,000 random ones over random shapes") {
  Random random(Key(Seed{2024}));
  for (int i = 0; i < 100000; ++i) {
    CAPTURE(i);
    const Key key(5, i);
    if (i % 4 < 2) attention_case(random, key);
    else if (i % 4 == 2) normaliser_case(random, key);
    else score_case(random, key);
  }
}
