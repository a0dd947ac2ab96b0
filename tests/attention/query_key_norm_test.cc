// SPDX-License-Identifier: Apache-2.0
#include "attention/query_key_norm.h"

#include <doctest/doctest.h>

#include <cmath>

#include "attention/cache.h"
#include "attention/multi_head.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

constexpr QueryKey kKinds[] = {QueryKey::l2, QueryKey::rms, QueryKey::layer};

// factor (x - μ)/√(var + eps) ⊙ γ + β of each row by a loop; l2: γ x/‖x‖
std::vector<double> by_formula(QueryKey kind, const Tensor& x, const std::vector<double>& weight, const std::vector<double>& bias) {
  const auto n = std::size_t(x.size(-1));
  auto rows = doubles(x);
  for (std::size_t begin = 0; begin < rows.size(); begin += n) {
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) mean += kind == QueryKey::layer ? rows[begin + i] / double(n) : 0;
    for (std::size_t i = 0; i < n; ++i) squares += (rows[begin + i] - mean) * (rows[begin + i] - mean);
    const double length = kind == QueryKey::l2 ? std::sqrt(squares) : std::sqrt(squares / double(n) + 1e-5);
    for (std::size_t i = 0; i < n; ++i) rows[begin + i] = weight[i] * (rows[begin + i] - mean) / length + bias[i];
  }
  return rows;
}

}  // namespace

TEST_CASE("query-key norm: queries and keys are those of the formulas; of length 0 they stay 0") {
  for (const QueryKey kind : kKinds)
    for (const Index n : {1, 2, 7, 64}) {
      CAPTURE(int(kind));
      CAPTURE(n);
      Parameters parameters(Seed{1}, DType::f64);
      const QueryKeyNorm norm(parameters.root(), {.kind = kind, .head_width = n});
      for (const auto& item : parameters.items()) parameters.select(item->path).initialise(uniform_init(0.5, 1.5));
      const Tensor x = normal(Key(3), {2, 3, 5, n}, 0, 3, DType::f64);
      const auto values = [](const Parameter& p, double otherwise, Index count) {
        return p.defined() ? doubles(p.value()) : std::vector<double>(std::size_t(count), otherwise);
      };
      const double g = norm.g.defined() ? norm.g.value().item() : 1;
      CHECK(worst_absolute(norm.queries(constant(x)).value(), by_formula(kind, x, values(norm.q_weight, g, n), values(norm.q_bias, 0, n))) <
            1e-12);
      CHECK(worst_absolute(norm.keys(constant(x)).value(), by_formula(kind, x, values(norm.k_weight, 1, n), values(norm.k_bias, 0, n))) <
            1e-12);
      if (kind == QueryKey::layer) continue;
      const Variable none = constant(zeros({2, n}, DType::f64));
      CHECK(equal_bits(norm.queries(none).value(), none.value()));
      CHECK(equal_bits(norm.keys(none).value(), none.value()));
    }
}

TEST_CASE("query-key norm: l2's scores lie between -g and g, whatever the numbers") {
  for (const double size : {1e-6, 1.0, 1e6}) {
    Parameters parameters(Seed{2});
    const QueryKeyNorm norm(parameters.root(), {.kind = QueryKey::l2, .head_width = 8, .length = 20});
    CHECK(norm.g.value().item() == doctest::Approx(std::log2(380.0)));
    const Variable x = constant(normal(Key(3), {64, 8}, 0, size));
    const auto scores = doubles(matmul(norm.queries(x), transpose(norm.keys(x))).value());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      REQUIRE(std::abs(scores[i]) <= std::log2(380.0) * (1 + 1e-6));
      if (i % 65 == 0) REQUIRE(scores[i] == doctest::Approx(std::log2(380.0)).epsilon(1e-6));
    }
  }
}

TEST_CASE("query-key norm: parameters and their start") {
  const auto paths = [](QueryKey kind, bool bias, Index key_value_heads) {
    Parameters parameters(Seed{1});
    const MultiHeadAttention layer(parameters.root(),
                                   {.width = 8, .heads = 2, .bias = bias, .key_value_heads = key_value_heads, .query_key = kind});
    std::vector<std::string> out;
    for (const auto& item : parameters.items())
      if (item->path == "g" || item->path.find("norm") != item->path.npos) out.push_back(item->path);
    return out;
  };
  CHECK(paths(QueryKey::none, true, 2).empty());
  CHECK(paths(QueryKey::l2, true, 1) == std::vector<std::string>{"g"});
  CHECK(paths(QueryKey::rms, true, 1) == std::vector<std::string>{"q_norm.weight", "k_norm.weight"});
  CHECK(paths(QueryKey::layer, false, 2) == std::vector<std::string>{"q_norm.weight", "k_norm.weight"});
  CHECK(paths(QueryKey::layer, true, 2) == std::vector<std::string>{"q_norm.weight", "k_norm.weight", "q_norm.bias", "k_norm.bias"});
  // Where products are not divided by √dk, γ of the queries starts smaller; the projection does not.
  Parameters a(Seed{1}), b(Seed{1});
  const MultiHeadAttention divided(a.root(), {.width = 8, .heads = 2, .query_key = QueryKey::rms}),
      whole(b.root(), {.width = 8, .heads = 2, .scale = 1, .query_key = QueryKey::rms});
  CHECK(equal_bits(divided.in_proj_weight.value(), whole.in_proj_weight.value()));
  CHECK(equal_bits(whole.norm.q_weight.value(), full({4}, 0.5)));
  const Variable x = constant(normal(Key(3), {2, 5, 8}));
  CHECK(worst_absolute(divided.self(x, {}).context.value(), doubles(whole.self(x, {}).context.value())) < 1e-6);
  CHECK(MultiHeadAttention(a.root() / "l2", {.width = 8, .heads = 2, .query_key = QueryKey::l2}).scale == 1);
  for (const std::string_view name : query_key_names()) CHECK(query_key_names()[std::size_t(query_key_named(name))] == name);
}

TEST_CASE("query-key norm: of a memory, step by step and a few at once: the bits of all at once") {
  for (const QueryKey kind : kKinds)
    for (const Index key_value_heads : {1, 2, 4}) {
      Parameters parameters(Seed{5});
      const MultiHeadAttention layer(parameters.root(), {.width = 16, .heads = 4, .key_value_heads = key_value_heads, .query_key = kind});
      const Index T = 21;
      const Tensor x = normal(Key(3), {2, T, 16});
      const Tensor every = layer.self(constant(x), Mask::causal()).context.value();
      for (const Index n : {1, 3}) {
        KeyValueCache cache(2, {key_value_heads, 4}, {key_value_heads, 4}, 4, DType::f32);
        for (Index t = 0; t < T; t += n)
          REQUIRE(equal_bits(layer.next(constant(slice(x, 1, t, t + n)), cache).context.value(), slice(every, 1, t, t + n)));
      }
      // as a memory the words' own keys and values give what self-attention gives
      const Variable states = constant(x);
      const Tensor read = layer(states, layer.prepare(states, Mask::causal())).context.value();
      CHECK(worst_absolute(read, doubles(every)) < 1e-6);
    }
}
