// SPDX-License-Identifier: Apache-2.0
#include "attention/linear_attention.h"

#include <doctest/doctest.h>

#include <cmath>

#include "attention/cache.h"
#include "attention/multi_head.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "tensor/error.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

// Context and weights by loops over x's own queries, keys and values: what `allowed(b, t, s)` forbids takes no part.
template <class Allowed>
std::pair<std::vector<double>, std::vector<double>> by_loops(const Tensor& q, const Tensor& k, const Tensor& v, Allowed allowed) {
  const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const Index B = q.size(0), H = q.size(1), T = q.size(2), S = k.size(2), dk = q.size(3), dv = v.size(3);
  std::vector<double> context, weights;
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index t = 0; t < T; ++t) {
        std::vector<double> a(std::size_t(S), 0.0);
        double total = 0;
        for (Index s = 0; s < S; ++s) {
          for (Index i = 0; i < dk && allowed(b, t, s); ++i) a[std::size_t(s)] += phi(q(b, h, t, i).item()) * phi(k(b, h, s, i).item());
          total += a[std::size_t(s)];
        }
        for (double& w : a) weights.push_back(w /= std::max(total, 1e-6));
        for (Index i = 0; i < dv; ++i) {
          double c = 0;
          for (Index s = 0; s < S; ++s) c += a[std::size_t(s)] * v(b, h, s, i).item();
          context.push_back(c);
        }
      }
  return {context, weights};
}

}  // namespace

TEST_CASE("linear attention: by sums, causal, by weights: what loops give") {
  const Tensor q = normal(Key(1), {2, 3, 5, 4}, 0, 1, DType::f64), k = normal(Key(2), {2, 3, 7, 4}, 0, 1, DType::f64),
               v = normal(Key(3), {2, 3, 7, 6}, 0, 1, DType::f64);
  const Mask lengths = Mask::lengths(tensor({7, 3}, DType::i32));
  const auto within = [](Index b, Index, Index s) { return s < (b == 0 ? 7 : 3); };
  const Variable fq = linear_features(constant(q)), fk = linear_features(constant(k)), values = constant(v);
  const auto [context, weights] = by_loops(q, k, v, within);
  CHECK(worst_absolute(linear_context(fq, linear_sums(without_padding(fk, lengths), values)).value(), context) < 1e-13);
  const Variable p = linear_weights(matmul(fq, transpose(fk)), lengths);
  CHECK(worst_absolute(p.value(), weights) < 1e-14);
  CHECK(worst_absolute(matmul(p, values).value(), context) < 1e-13);
  const auto [causal, ones_before] = by_loops(k, k, v, [](Index, Index t, Index s) { return s <= t; });
  CHECK(worst_absolute(causal_linear_context(fk, fk, values).value(), causal) < 1e-13);
  CHECK(worst_absolute(linear_weights(matmul(fk, transpose(fk)), Mask::causal()).value(), ones_before) < 1e-14);
  // hardly anything to see: what all is divided by is at least 1e-6
  const Tensor low = normal(Key(4), {2, 3, 5, 4}, -9, 0.5, DType::f64), few = slice(v, 2, 0, 5);
  const auto [faint, shares] = by_loops(low, low, few, [](Index, Index, Index) { return true; });
  const Variable f = linear_features(constant(low));
  CHECK(doubles(sum(tensor(shares, {2, 3, 5, 5}), -1))[0] < 0.9);
  CHECK(worst_absolute(linear_context(f, linear_sums(f, constant(few))).value(), faint) < 1e-13);
  CHECK(worst_absolute(linear_weights(matmul(f, transpose(f)), Mask()).value(), shares) < 5e-13);   // elu(x) + 1 = 5e-4 is rounded as 1 is
  const auto [faint_before, shares_before] = by_loops(low, low, few, [](Index, Index t, Index s) { return s <= t; });
  CHECK(worst_absolute(causal_linear_context(f, f, constant(few)).value(), faint_before) < 1e-13);
  // nothing to see
  const Mask none = Mask::lengths(tensor({0, 3}, DType::i32));
  CHECK(equal_bits(linear_context(fq, linear_sums(without_padding(fk, none), values)).value()(0), zeros({3, 5, 6}, DType::f64)));
  CHECK(equal_bits(linear_weights(matmul(fq, transpose(fk)), none).value()(0), zeros({3, 5, 7}, DType::f64)));
}

TEST_CASE("linear attention: gradients of each way to compute it") {
  const std::vector<Tensor> x{normal(Key(1), {1, 2, 4, 3}, 0, 1, DType::f64), normal(Key(2), {1, 2, 4, 3}, 0, 1, DType::f64),
                              normal(Key(3), {1, 2, 4, 2}, 0, 1, DType::f64)};
  using Inputs = std::span<const Variable>;
  CHECK(check_gradient([](Inputs v) { return linear_context(linear_features(v[0]), linear_sums(linear_features(v[1]), v[2])); }, x)
            .holds(1e-8));
  CHECK(check_gradient([](Inputs v) { return causal_linear_context(linear_features(v[0]), linear_features(v[1]), v[2]); }, x).holds(1e-8));
  CHECK(check_gradient(
            [](Inputs v) { return linear_weights(matmul(linear_features(v[0]), transpose(linear_features(v[1]))), Mask::causal()); },
            {x[0], x[1]})
            .holds(1e-8));
}

TEST_CASE("linear attention: of heads: weights are those of the contexts, padding changes nothing, step by step the same bits") {
  for (const Index shared : {4, 2})
    for (const auto& [norm, features] : {std::pair{QueryKey::none, 0}, {QueryKey::l2, 0}, {QueryKey::none, 6}, {QueryKey::l2, 3}}) {
      const Index T = 23;
      const double close = features ? 1e-4 : 1e-12;                        // to which 1e-6 was added or not
      Parameters parameters(Seed{1}, DType::f64);
      const MultiHeadAttention layer(parameters.root(), {.width = 16,
                                                         .heads = 4,
                                                         .init = normal_init(0, features ? 0.3 : 0.6),
                                                         .key_value_heads = shared,
                                                         .query_key = norm,
                                                         .linear_attention = true,
                                                         .random_features = features});
      const Variable x = constant(normal(Key(3), {2, T, 16}, 0, 1, DType::f64));
      const Mask lengths = Mask::lengths(tensor({5, 19}, DType::i32));
      const Tensor every_one = full({1, 1, T, T}, 1, DType::u8);
      // the same by weights, which an explicit mask asks for
      for (const Mask& mask : {Mask(), lengths, Mask::causal(), lengths & Mask::causal()}) {
        const Attended fast = layer.self(x, mask, Want::weights), slow = layer.self(x, mask & Mask::allowed(every_one), Want::weights);
        CHECK(worst_absolute(fast.context.value(), doubles(slow.context.value())) < close);
        if (features) CHECK(worst_absolute(fast.weights.value(), slow.weights.value()) < close);
        else CHECK(equal_bits(fast.weights.value(), slow.weights.value()));
        CHECK(equal_bits(layer.self(x, mask).context.value(), fast.context.value()));
        const Memory memory = layer.prepare(x, mask);
        CHECK(memory.sums.defined() == mask.only_lengths());
        CHECK(worst_absolute(layer(x, memory).context.value(), doubles(fast.context.value())) < close);
      }
      const Tensor longer = concat({x.value(), full({2, 3, 16}, 7, DType::f64)}, 1);
      CHECK(equal_bits(slice(layer.self(constant(longer), lengths).context.value(), 1, 0, T), layer.self(x, lengths).context.value()));

      const Tensor every = layer.self(x, Mask::causal()).context.value();
      KeyValueCache cache = layer.cache(2, 4), by_threes = layer.cache(2, 4);
      for (const Index t : {0, 3, 6, 9, 6, 9, 12}) {                       // and back once
        by_threes.truncate(t);
        REQUIRE(equal_bits(layer.next(constant(slice(x.value(), 1, t, t + 3)), by_threes).context.value(), slice(every, 1, t, t + 3)));
      }
      for (Index t = 0; t < T; ++t) {
        if (t == 6) cache.reorder(std::vector<Index>{0, 0, 1});            // from here on three rows of two sentences
        if (t == 9) cache.reorder(std::vector<Index>{0, 2});               // and back
        const auto rows = [&](const Tensor& of) { return slice(t < 6 || t >= 9 ? of : concat({slice(of, 0, 0, 1), of}, 0), 1, t, t + 1); };
        REQUIRE(equal_bits(layer.next(constant(rows(x.value())), cache).context.value(), rows(every)));
      }
      CHECK(cache.sums().shape() == Shape{2, 4, features ? features : 4, 5});
      const Attended with_weights = layer.next(constant(zeros({2, 1, 16}, DType::f64)), cache, Want::weights);
      CHECK(worst_absolute(sum(with_weights.weights, -1).value(), std::vector<double>(8, 1)) < 1e-14);
    }
}

TEST_CASE("linear attention: positions that are forgotten take their share of the sums with them") {
  Parameters parameters(Seed{1}, DType::f64);
  const MultiHeadAttention layer(parameters.root(), {.width = 8, .heads = 2, .linear_attention = true});
  KeyValueCache cache = layer.cache(1, 4);
  const Tensor x = normal(Key(3), {1, 4, 8}, 0, 1, DType::f64);
  layer.next(constant(slice(x, 1, 0, 2)), cache);
  const Tensor sums = cache.sums().clone();
  layer.next(constant(slice(x, 1, 2, 4)), cache);
  CHECK_FALSE(equal_bits(cache.sums(), sums));
  cache.truncate(2);
  CHECK(equal_bits(cache.sums(), sums));
}
