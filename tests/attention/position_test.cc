// SPDX-License-Identifier: Apache-2.0
#include "attention/position.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "attention/cache.h"
#include "attention/multi_head.h"
#include "autograd/tape.h"
#include "nn/summary.h"
#include "tensor/ops/random.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("positions: the formula of the paper, tensor2tensor's layout, odd widths, any first position") {
  for (const Index d : {1, 2, 7, 16})
    for (const Index first : {0, 5}) {
      const auto angle = [&](Index t, double exponent) { return double(t + first) / std::pow(10000.0, exponent); };
      std::vector<double> paper, concatenated(std::size_t(9 * d), 0);
      for (Index t = 0; t < 9; ++t)
        for (Index i = 0; i < d; ++i)
          paper.push_back(i % 2 == 0 ? std::sin(angle(t, double(i) / double(d))) : std::cos(angle(t, double(i - 1) / double(d))));
      CHECK(worst_absolute(sinusoids(9, d, DType::f64, {.first = first}), paper) < 1e-13);
      const Index half = d / 2;
      for (Index t = 0; t < 9; ++t)
        for (Index i = 0; i < half; ++i) {
          const double exponent = half > 1 ? double(i) / double(half - 1) : 0;
          concatenated[std::size_t(t * d + i)] = std::sin(angle(t, exponent));
          concatenated[std::size_t(t * d + half + i)] = std::cos(angle(t, exponent));
        }
      CHECK(worst_absolute(sinusoids(9, d, DType::f64, {Sinusoids::Layout::concatenated, Sinusoids::Denominator::tensor2tensor, first}),
                           concatenated) < 1e-13);
    }
}

TEST_CASE("positions: rows of a table are those of the formula, beyond its end as well; learned ones end there") {
  for (const Positions kind : {Positions::sinusoidal, Positions::sinusoidal_concatenated}) {
    Parameters parameters(Seed{1});
    const PositionTable table(parameters.root() / "p", {.kind = kind, .width = 6, .length = 10}),
        longer(parameters.root() / "q", {.kind = kind, .width = 6, .length = 40});
    for (const Index offset : {0, 4, 8, 10, 30}) CHECK(equal_bits(table.rows(offset, 5).value(), longer.rows(offset, 5).value()));
    CHECK(equal_bits(longer.rows(7, 1).value()[0], longer.rows(0, 8).value()[7]));
    CHECK(parameters.count() == 0);
  }
  Parameters parameters(Seed{1});
  const PositionTable learned(parameters.root() / "p", {.kind = Positions::learned, .width = 6, .length = 10});
  CHECK(equal_bits(learned.rows(3, 7).value(), learned.weight.value()(Slice{3, 10})));
  CHECK_THROWS_WITH_AS(learned.rows(4, 7), "in p: positions: position 10 is not in [0, 10): only that many were trained", IndexError);
  CHECK(learned.rows(10, 0).shape() == Shape{0, 6});
  const PositionTable fixed(parameters.root() / "p2", {.width = 6, .length = 10});
  for (const PositionTable* table : {&learned, &fixed}) {
    CHECK_THROWS_WITH_AS(
        table->rows(-1, 2),
        (std::string("in ") + table->path.string() + ": positions: needs offset >= 0 and length >= 0: offset -1, length 2").c_str(),
        IndexError);
    CHECK_THROWS_AS(table->rows(1, -1), IndexError);
  }
  Parameters wide(Seed{1}, DType::f64);
  const PositionTable many(wide.root() / "p", {.kind = Positions::learned, .width = 64, .length = 300});
  double squares = 0;
  for (const double x : many.weight.value().span<double>()) squares += x * x;
  CHECK(squares / (300 * 64) == doctest::Approx(1.0 / 64).epsilon(0.05).scale(0));      // N(0, 1/d)
  CHECK_FALSE(learned.weight.data().multiplied);                               // by no matrix: summary, heed compare
  CHECK(summary(parameters, 100).find("\n0 multiply-adds forward for 100 rows") != std::string::npos);
  CHECK_FALSE(PositionTable(parameters.root() / "none", {.kind = Positions::none, .width = 6}).rows(0, 5).defined());
}

TEST_CASE("cache: a row that is not there is refused, and nothing changes") {
  KeyValueCache cache(2, {1, 4}, {1, 4}, 3, DType::f32);
  cache.append(ones({2, 1, 2, 4}), zeros({2, 1, 2, 4}));
  for (const Index wrong : {-1, 2}) {
    const std::vector<Index> order{0, wrong};
    CHECK_THROWS_WITH_AS(cache.reorder(order), ("cache: row " + std::to_string(wrong) + " is not in [0, 2)").c_str(), IndexError);
  }
  CHECK(cache.rows() == 2);
  CHECK(equal_bits(cache.keys(), ones({2, 1, 2, 4})));
}

TEST_CASE("cache: keys and values of other shapes or dtypes are refused, and nothing changes") {
  KeyValueCache cache(2, {1, 4}, {1, 4}, 3, DType::f32);
  cache.append(ones({2, 1, 2, 4}), zeros({2, 1, 2, 4}));
  const auto refused = [&](const Tensor& keys, const Tensor& values, const char* says) {
    CHECK_THROWS_WITH_AS(cache.append(keys, values), says, ShapeError);
    CHECK(cache.length() == 2);
    CHECK(equal_bits(cache.keys(), ones({2, 1, 2, 4})));
    CHECK(equal_bits(cache.values(), zeros({2, 1, 2, 4})));
  };
  refused(ones({1, 1, 1, 4}), ones({1, 1, 1, 4}),
          "cache: keys need [2, 1, n, 4], values [2, 1, n, 4]: keys [1, 1, 1, 4], values [1, 1, 1, 4]");
  refused(ones({2, 1, 3, 1}), ones({2, 1, 3, 4}),
          "cache: keys need [2, 1, n, 4], values [2, 1, n, 4]: keys [2, 1, 3, 1], values [2, 1, 3, 4]");
  refused(ones({2, 1, 3, 4}), ones({2, 1, 1, 4}),
          "cache: keys need [2, 1, n, 4], values [2, 1, n, 4]: keys [2, 1, 3, 4], values [2, 1, 1, 4]");
  refused(ones({2, 4}), ones({2, 4}), "cache: keys need [2, 1, n, 4], values [2, 1, n, 4]: keys [2, 4], values [2, 4]");
  CHECK_THROWS_WITH_AS(cache.append(ones({2, 1, 1, 4}), ones({2, 1, 1, 4}, DType::f64)),
                       "cache: dtypes differ: keys f32, values f64, cache f32", DTypeError);
  CHECK(cache.length() == 2);
  Parameters parameters(Seed{1});
  const MultiHeadAttention layer(parameters.root() / "self_attn", {.width = 4, .heads = 1});
  CHECK_THROWS_WITH_AS(layer.next(constant(ones({1, 1, 4})), cache),
                       doctest::Contains("in self_attn: cache: keys need [2, 1, n, 4], values [2, 1, n, 4]"), ShapeError);
  CHECK(cache.length() == 2);
}

TEST_CASE("cache: grows, rows go where they are sent and positions are forgotten, whatever the order") {
  Random random(Key(Seed{1}));
  for (int round = 0; round < 200; ++round) {
    Index rows = 1 + random.below(5);
    const bool in_rows = round % 3 == 0;
    KeyValueCache cache(rows, {2, 3}, {2, 3}, 2, DType::f32, 0, in_rows);
    std::vector<Tensor> keys, values;                      // what each row should hold: [2, length, 3]
    for (Index r = 0; r < rows; ++r) keys.push_back(empty({2, 0, 3})), values.push_back(empty({2, 0, 3}));
    for (Index step = 0; step < 6; ++step) {
      const Index n = 1 + random.below(round % 2 ? 2 : 20);
      const Tensor k = uniform(Key(round, step, 0), {rows, 2, n, 3}), v = uniform(Key(round, step, 1), {rows, 2, n, 3});
      cache.append(k, v);
      for (Index r = 0; r < rows; ++r) {
        const auto longer = [&](Tensor& x, const Tensor& more) {
          const Tensor joined = empty({2, x.size(1) + n, 3});
          copy_into(joined(all, Slice{0, x.size(1)}), x);
          copy_into(joined(all, Slice{x.size(1), joined.size(1)}), more);
          x = joined;
        };
        longer(keys[std::size_t(r)], k[r]), longer(values[std::size_t(r)], v[r]);
      }
      if (random.below(4) == 0) {
        const Index length = random.below(cache.length() + 1);
        cache.truncate(length);
        for (auto* held : {&keys, &values})
          for (Tensor& x : *held) x = x(all, Slice{0, length}).clone();
      }
      CHECK(cache.turned() == (in_rows ? 0 : cache.length() / 16 * 16));
      std::vector<Index> order(std::size_t(1 + random.below(6)));
      std::vector<Tensor> new_keys, new_values;
      for (Index& from : order) {
        from = random.below(rows);
        new_keys.push_back(keys[std::size_t(from)].clone()), new_values.push_back(values[std::size_t(from)].clone());
      }
      cache.reorder(order);
      rows = Index(order.size()), keys = std::move(new_keys), values = std::move(new_values);
      REQUIRE(cache.rows() == rows);
      for (Index r = 0; r < rows; ++r) {
        CHECK(equal_bits(cache.keys()[r], keys[std::size_t(r)]));
        CHECK(equal_bits(cache.values()[r], values[std::size_t(r)]));
      }
    }
  }
}

TEST_CASE("cache: memory is taken once for its capacity, beyond it for twice as many positions or as many as come") {
  KeyValueCache cache(2, {3, 2}, {3, 2}, 4, DType::f32);
  Index added = 0;
  const auto capacity_with = [&](Index more) {
    const Tensor x = full({2, 3, more, 2}, double(++added));
    cache.append(x, x);
    for (const Tensor& held : {cache.keys(), cache.stored_values()})
      CHECK(equal_bits(held(all, all, Slice{cache.length() - more, cache.length()}), x));
    CHECK(cache.stored_values().strides()[1] == cache.stored_keys().strides()[1]);
    return cache.stored_keys().strides()[1] / 2;
  };
  CHECK(capacity_with(1) == 4);
  const std::byte* const memory = cache.stored_keys().storage().data();
  CHECK(capacity_with(3) == 4);
  CHECK(cache.stored_keys().storage().data() == memory);
  CHECK(capacity_with(1) == 8);
  CHECK(capacity_with(20) == 25);
}

TEST_CASE("cache: positions are forgotten from the end, also those of a step that fails") {
  KeyValueCache cache(1, {2, 2}, {2, 2}, 4, DType::f32);
  cache.append(ones({1, 2, 3, 2}), ones({1, 2, 3, 2}));
  cache.truncate(2);
  CHECK(cache.length() == 2);
  cache.append(zeros({1, 2, 1, 2}), ones({1, 2, 1, 2}));
  CHECK(doubles(cache.keys()(0, 0)) == std::vector<double>{1, 1, 1, 1, 0, 0});
  for (const Index wrong : {-1, 4})
    CHECK_THROWS_WITH_AS(cache.truncate(wrong), ("cache: length " + std::to_string(wrong) + " is not in [0, 3]").c_str(), IndexError);
  Parameters parameters(Seed{1});
  const MultiHeadAttention attention(parameters.root() / "self_attn", {.width = 4, .heads = 2, .dropout = 0.1});
  parameters.select().freeze();
  Tape tape;
  CHECK_THROWS_AS(attention.next(constant(ones({1, 1, 4})), cache), Error);   // dropout without a key
  CHECK(cache.length() == 3);
}

TEST_CASE("cache: keys and values that want a gradient are refused") {
  Parameters parameters(Seed{1});
  const MultiHeadAttention attention(parameters.root() / "self_attn", {.width = 4, .heads = 2});
  KeyValueCache cache(1, {2, 2}, {2, 2}, 4, DType::f32);
  const Variable x = constant(ones({1, 1, 4}));
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(attention.next(x, cache),
                         "in self_attn: multi-head attention: next keeps keys and values without their gradients: x [1, 1, 4] under a "
                         "tape; self(x, Mask::causal()) has them",
                         Error);
    CHECK(cache.length() == 0);
    const MultiHeadAttention shared(parameters.root() / "shared", {.width = 4, .heads = 2, .key_value_heads = 1});
    KeyValueCache of_shared = shared.cache(1, 4);
    parameters.select("shared.k_proj*").freeze();              // the values want theirs still
    CHECK_THROWS_AS(shared.next(x, of_shared), Error);
    parameters.select().freeze();
    CHECK_NOTHROW(attention.next(x, cache));
    CHECK_THROWS_AS(attention.next(variable(ones({1, 1, 4})), cache), Error);
    parameters.select().unfreeze();
  }
  attention.next(x, cache);
  CHECK(cache.length() == 2);
}
