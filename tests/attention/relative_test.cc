// SPDX-License-Identifier: Apache-2.0
#include "attention/relative.h"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <string>

#include "attention/cache.h"
#include "attention/multi_head.h"
#include "autograd/tape.h"
#include "models/transformer.h"
#include "nn/init.h"
#include "tensor/error.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

constexpr Positions kKinds[] = {Positions::rope, Positions::rope_half, Positions::alibi, Positions::t5, Positions::shaw};

MultiHeadAttention attention_of(Parameters& parameters, Positions kind, bool causal, bool shared = false, Index clip = 2) {
  const Scope scope = parameters.root() / "self_attn";
  RelativePositions positions(
      scope, {.kind = kind, .heads = 3, .head_width = 4, .causal = causal, .length = 9, .farthest = 20, .clip = clip, .shared = shared});
  return MultiHeadAttention(scope, {.width = 12, .heads = 3, .init = normal_init(0, 0.4), .positions = std::move(positions)});
}

// Self-attention by the formulas, a number at a time.
std::vector<double> by_formulas(const MultiHeadAttention& layer, Positions kind, bool causal, bool shared, Index clip, const Tensor& x) {
  const Index B = x.size(0), T = x.size(1), d = 12, H = 3, dk = 4;
  const auto W = doubles(layer.in_proj_weight.value()), bias = doubles(layer.in_proj_bias.value()),
             O = doubles(layer.out_proj.weight.value()), o = doubles(layer.out_proj.bias.value()), in = doubles(x);
  const auto table = [](const Parameter& p) { return p.defined() ? doubles(p.value()) : std::vector<double>(); };
  const auto t5 = table(layer.positions.weight), rel_k = table(layer.positions.rel_k), rel_v = table(layer.positions.rel_v);
  const auto at = [](const std::vector<double>& v, Index i) { return v[std::size_t(i)]; };
  std::vector<double> y(std::size_t(B * T * d));
  for (Index b = 0; b < B; ++b) {
    // of head a at place t, turned where it is to be
    const auto projected = [&](Index block, Index a, Index t) {
      std::vector<double> v(std::size_t(dk), 0);
      for (Index j = 0; j < dk; ++j) {
        const Index row = block * d + a * dk + j;
        v[std::size_t(j)] = at(bias, row);
        for (Index i = 0; i < d; ++i) v[std::size_t(j)] += at(W, row * d + i) * at(in, (b * T + t) * d + i);
      }
      if (block == 2 || (kind != Positions::rope && kind != Positions::rope_half)) return v;
      std::vector<double> turned(v.size());
      for (Index p = 0; p < dk / 2; ++p) {
        const auto first = std::size_t(kind == Positions::rope ? 2 * p : p),
                   second = std::size_t(kind == Positions::rope ? 2 * p + 1 : p + dk / 2);
        const auto z = std::complex(v[first], v[second]) * std::polar(1.0, double(t) * std::pow(10000.0, -2.0 * double(p) / double(dk)));
        turned[first] = z.real(), turned[second] = z.imag();
      }
      return turned;
    };
    for (Index t = 0; t < T; ++t) {
      std::vector<double> joined(std::size_t(d), 0);
      for (Index a = 0; a < H; ++a) {
        const auto q = projected(0, a, t);
        std::vector<double> e;
        double total = 0;
        const Index last = causal ? t : T - 1;
        const auto row = [&](Index s) { return ((shared ? 0 : a * (2 * clip + 1)) + std::clamp(s - t, -clip, clip) + clip) * dk; };
        for (Index s = 0; s <= last; ++s) {
          const auto k = projected(1, a, s);
          double score = 0;
          for (Index j = 0; j < dk; ++j) score += at(q, j) * (at(k, j) + (kind == Positions::shaw ? at(rel_k, row(s) + j) : 0));
          if (kind != Positions::t5) score /= std::sqrt(double(dk));
          if (kind == Positions::alibi) score -= alibi_slopes(H).data<double>()[a] * double(std::abs(s - t));
          if (kind == Positions::t5) score += at(t5, t5_bucket(s - t, causal, 32, 20) * H + a);
          e.push_back(std::exp(score));
          total += e.back();
        }
        for (Index s = 0; s <= last; ++s) {
          const auto v = projected(2, a, s);
          for (Index j = 0; j < dk; ++j)
            joined[std::size_t(a * dk + j)] += at(e, s) / total * (at(v, j) + (kind == Positions::shaw ? at(rel_v, row(s) + j) : 0));
        }
      }
      for (Index i = 0; i < d; ++i) {
        double sum = at(o, i);
        for (Index j = 0; j < d; ++j) sum += at(O, i * d + j) * at(joined, j);
        y[std::size_t((b * T + t) * d + i)] = sum;
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("relative positions: the slopes of ALiBi") {
  const auto powers = [](std::initializer_list<double> exponents) {
    std::vector<double> m;
    for (const double e : exponents) m.push_back(std::exp2(-e));
    return m;
  };
  CHECK(alibi_slopes(8).to_vector<double>() == powers({1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK(alibi_slopes(1).to_vector<double>() == powers({8}));
  CHECK(alibi_slopes(16).to_vector<double>() == powers({0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8}));
  CHECK(alibi_slopes(12).to_vector<double>() == powers({1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}));
  CHECK(alibi_slopes(3).to_vector<double>() == powers({4, 8, 2}));
  CHECK_THROWS_WITH_AS(alibi_slopes(0), "alibi: heads must be at least 1: 0", Error);
}

TEST_CASE("relative positions: the buckets of T5, their edges") {
  using Edge = std::pair<Index, Index>;
  for (const Edge& edge :
       {Edge{0, 0}, {7, 7}, {8, 8}, {15, 9}, {16, 10}, {31, 11}, {32, 12}, {63, 13}, {64, 14}, {127, 15}, {128, 15}, {1000000, 15}}) {
    const Index n = edge.first, bucket = edge.second;
    CAPTURE(n);
    CHECK(t5_bucket(-n, false) == bucket);
    CHECK(t5_bucket(n, false) == (n > 0 ? bucket + 16 : 0));
  }
  for (const Edge& edge : {Edge{0, 0}, {15, 15}, {16, 16}, {32, 21}, {127, 31}, {128, 31}, {Index{1} << 40, 31}}) {
    const Index n = edge.first, bucket = edge.second;
    CAPTURE(n);
    CHECK(t5_bucket(-n, true) == bucket);
    CHECK(t5_bucket(n, true) == 0);                                   // keys behind
  }
  for (const bool causal : {true, false})
    for (Index r = -300; r < 0; ++r) CHECK(t5_bucket(r, causal) >= t5_bucket(r + 1, causal));
}

TEST_CASE("relative positions: self-attention is that of the formulas, both ways and causal") {
  const Tensor x = normal(Key(3), {2, 7, 12}, 0, 1, DType::f64);
  for (const Positions kind : kKinds)
    for (const bool causal : {false, true})
      for (const bool shared : {false, true}) {
        if (shared && kind != Positions::shaw) continue;
        CAPTURE(name(kind));
        Parameters parameters(Seed{5}, DType::f64);
        const MultiHeadAttention layer = attention_of(parameters, kind, causal, shared);
        for (const auto& item : parameters.items()) parameters.select(item->path).initialise(uniform_init(-0.8, 0.8));
        const Mask mask = causal ? Mask::causal() : Mask();
        const Attended y = layer.self(constant(x), mask, Want::weights);
        CHECK(worst_absolute(y.context.value(), by_formulas(layer, kind, causal, shared, 2, x)) < 1e-13);
        CHECK(worst_absolute(sum(y.weights.value(), {3}), std::vector<double>(2 * 3 * 7, 1.0)) < 1e-14);
        CHECK(equal_bits(layer.self(constant(x), mask).context.value(), y.context.value()));
        // every parameter counts, and its gradient is the slope
        for (const auto& item : parameters.items()) {
          if (item->path.ends_with("in_proj_weight") || item->path.starts_with("self_attn.out_proj")) continue;
          CAPTURE(item->path);
          const Tensor w = item->variable.value(), kept = w.clone(), some = normal(Key(6), y.context.shape(), 0, 1, DType::f64);
          const auto loss = [&] { return sum(layer.self(constant(x), mask).context * constant(some)); };
          Tape tape;
          parameters.forget_gradients();
          tape.backward(loss());
          const Tensor gradient = item->gradient->value().clone();
          const double h = 1e-6;
          for (const Index i : {Index{0}, w.numel() / 3, w.numel() - 1}) {
            w.mutable_span<double>()[std::size_t(i)] = kept.span<double>()[std::size_t(i)] + h;
            const double more = loss().value().item();
            w.mutable_span<double>()[std::size_t(i)] = kept.span<double>()[std::size_t(i)] - h;
            const double less = loss().value().item();
            copy_into(w, kept);
            CHECK((more - less) / (2 * h) == doctest::Approx(gradient.span<double>()[std::size_t(i)]).epsilon(1e-8).scale(1));
          }
        }
      }
}

TEST_CASE("relative positions: Shaw's are multiplied by the same factor as q·k") {
  const Tensor x = normal(Key(3), {2, 7, 12}, 0, 1, DType::f64);
  Parameters parameters(Seed{5}, DType::f64);
  MultiHeadAttention layer = attention_of(parameters, Positions::shaw, true);
  for (const auto& item : parameters.items()) parameters.select(item->path).initialise(uniform_init(-0.8, 0.8));
  const Tensor plain = layer.self(constant(x), Mask::causal()).context.value();
  const Tensor queries = slice(layer.in_proj_weight.value(), 0, 0, 12), bias = slice(layer.in_proj_bias.value(), 0, 0, 12);
  copy_into(queries, queries * 4.0), copy_into(bias, bias * 4.0);
  layer.scale = 0.125;                                                              // (4 q)·(k + a) / 8 = q·(k + a) / √4
  CHECK(worst_absolute(layer.self(constant(x), Mask::causal()).context.value(), doubles(plain)) < 1e-13);
}

TEST_CASE("relative positions: the base of rope") {
  const Tensor q = normal(Key(3), {1, 1, 5, 4}, 0, 1, DType::f64);
  Parameters parameters(Seed{5}, DType::f64);
  for (const Index length : {2, 9}) {                                               // beyond those kept, too
    const RelativePositions positions(parameters.root(),
                                      {.kind = Positions::rope, .heads = 1, .head_width = 4, .length = length, .base = 500});
    const Tensor expected = rotary(q, rotations(5, 4, DType::f64, RotaryLayout::interleaved, 1, 500));
    CHECK(equal_bits(positions.turned(constant(q), 1).value(), expected));
    CHECK_FALSE(equal_bits(expected, rotary(q, rotations(5, 4, DType::f64, RotaryLayout::interleaved, 1))));
  }
}

TEST_CASE("relative positions: step by step, a few at once, far beyond the positions kept: the bits of all at once") {
  for (const Positions kind : kKinds)
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(name(kind));
      Parameters parameters(Seed{5}, dtype);
      const MultiHeadAttention layer = attention_of(parameters, kind, true);
      const Index T = 41;
      const Tensor x = normal(Key(3), {2, T, 12}, 0, 1, dtype);
      const Tensor every = layer.self(constant(x), Mask::causal()).context.value();
      for (const Index n : {1, 3}) {
        KeyValueCache cache(2, {3, 4}, {3, 4}, 4, dtype);
        for (Index t = 0; t < T; t += n) {
          const Index end = std::min(t + n, T);
          REQUIRE(equal_bits(layer.next(constant(slice(x, 1, t, end)), cache).context.value(), slice(every, 1, t, end)));
        }
      }
      KeyValueCache cache(2, {3, 4}, {3, 4}, 4, dtype);                                         // rows change places on the way
      layer.next(constant(slice(x, 1, 0, 20)), cache);
      cache.reorder(std::vector<Index>{1, 0});
      const Tensor crossed = flip(x, {0});
      CHECK(equal_bits(layer.next(constant(slice(crossed, 1, 20, 21)), cache).context.value(), flip(slice(every, 1, 20, 21), {0})));
    }
}

TEST_CASE("relative positions: words alone count, not where they stand") {
  const Tensor x = normal(Key(3), {1, 30, 12}, 0, 1, DType::f64);
  for (const Positions kind : kKinds) {
    CAPTURE(name(kind));
    Parameters parameters(Seed{5}, DType::f64);
    const MultiHeadAttention layer = attention_of(parameters, kind, false);
    const Tensor near = layer.self(constant(x), Mask::window(3, 3)).context.value(),
                 later = layer.self(constant(slice(x, 1, 9)), Mask::window(3, 3)).context.value();
    CHECK(worst_absolute(slice(later, 1, 3), doubles(slice(near, 1, 12))) < 1e-13);
  }
}

TEST_CASE("relative positions: what a stack shares, what each layer has, and what is refused") {
  const auto paths = [](Positions kind) {
    Parameters parameters(Seed{1});
    const Transformer core(parameters.root(),
                           {.width = 8, .heads = 2, .feed_forward = 8, .encoder_layers = 2, .decoder_layers = 2, .positions = kind});
    std::vector<std::string> out;
    for (const auto& item : parameters.items())
      if (item->path.find("rel") != item->path.npos) out.push_back(item->path + " " + to_string(item->variable.shape()));
    return out;
  };
  CHECK(paths(Positions::t5) ==
        std::vector<std::string>{"encoder.relative_attention_bias.weight [32, 2]", "decoder.relative_attention_bias.weight [32, 2]"});
  CHECK(paths(Positions::shaw).size() == 8);
  CHECK(paths(Positions::shaw)[1] == "encoder.layers.0.self_attn.rel_v.weight [2, 33, 4]");
  for (const Positions kind : {Positions::rope, Positions::alibi, Positions::none}) CHECK(paths(kind).empty());
  Parameters parameters(Seed{1});
  const TransformerEncoderLayer layer(parameters.root() / "layer", {.width = 8, .heads = 2, .feed_forward = 8, .positions = Positions::t5});
  CHECK(parameters.find("layer.self_attn.relative_attention_bias.weight"));
  CHECK(layer.self_attn.scale == 1);
  CHECK_FALSE(layer.self_attn.positions.weight.data().multiplied);
  CHECK_THROWS_WITH_AS(
      TransformerEncoderLayer(parameters.root() / "odd", {.width = 6, .heads = 2, .feed_forward = 8, .positions = Positions::rope}),
      "in odd.self_attn: rope: turns pairs of columns, so that the width of a head must be even: 3, heads 2", ShapeError);
  CHECK_THROWS_AS(RelativePositions(parameters.root() / "p", {.kind = Positions::t5, .heads = 2, .head_width = 4, .buckets = 5}), Error);
  CHECK_THROWS_AS(RelativePositions(parameters.root() / "p", {.kind = Positions::shaw, .heads = 2, .head_width = 4, .clip = 0}), Error);
  const auto deviation = [](const Parameter& p) { return std::sqrt(mean(square(constant(p.value()))).value().item()); };
  Parameters wide(Seed{1});
  const RelativePositions buckets(wide.root() / "t5", {.kind = Positions::t5, .heads = 64, .head_width = 4}),
      clipped(wide.root() / "shaw", {.kind = Positions::shaw, .heads = 4, .head_width = 64});
  CHECK(deviation(buckets.weight) == doctest::Approx(1 / std::sqrt(64.0 * 4)).epsilon(0.06).scale(0));
  // four standard errors of 2048 numbers, of 8448
  for (const Parameter* p : {&clipped.rel_k, &clipped.rel_v})
    CHECK(deviation(*p) == doctest::Approx(1 / std::sqrt(64.0)).epsilon(0.03).scale(0));
  // the query's start is smaller where the product is not divided, so that it starts as large
  Parameters a(Seed{1}), b(Seed{1});
  const MultiHeadAttention plain(a.root(), {.width = 8, .heads = 2}), whole(b.root(), {.width = 8, .heads = 2, .scale = 1});
  CHECK(equal_bits(whole.in_proj_weight.value()(Slice{0, 8}), plain.in_proj_weight.value()(Slice{0, 8}) * 0.5));
  CHECK(equal_bits(whole.in_proj_weight.value()(Slice{8, 24}), plain.in_proj_weight.value()(Slice{8, 24})));
}
