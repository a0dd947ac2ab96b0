// SPDX-License-Identifier: Apache-2.0
// Heads that share keys and values; weights of other kinds than softmax's; sliding windows.
#include "attention/multi_head.h"

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/transformer.h"
#include "nn/init.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
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
      const MultiHeadAttention grouped(few.root() / "a", {.width = d, .heads = H, .bias = bias, .key_value_heads = shared}),
          plain(every.root() / "a", {.width = d, .heads = H, .bias = bias});
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
      const Attended a = grouped.self(constant(x), Mask::causal(), Want::weights),
                     b = plain.self(constant(x), Mask::causal(), Want::weights);
      CHECK(equal_bits(a.context.value(), b.context.value()));
      CHECK(equal_bits(a.weights.value(), b.weights.value()));
      CHECK(grouped.prepare(constant(memory), mask).keys.shape() == Shape{2, shared, 9, dk});
      CHECK(equal_bits(grouped(constant(x), grouped.prepare(constant(memory), mask)).context.value(),
                       plain(constant(x), plain.prepare(constant(memory), mask)).context.value()));
      KeyValueCache cache(2, {shared, dk}, {shared, dk}, 3, DType::f64);
      for (Index t = 0; t < 7; ++t)
        CHECK(equal_bits(grouped.next(constant(slice(x, 1, t, t + 1)), cache).context.value(), slice(a.context.value(), 1, t, t + 1)));
    }
}

TEST_CASE("multi-head attention: as many heads of keys and values as of queries is the plain layer") {
  Parameters one(Seed{1}), other(Seed{1});
  const MultiHeadAttention plain(one.root(), {.width = 8, .heads = 4}), same(other.root(), {.width = 8, .heads = 4, .key_value_heads = 4});
  CHECK(equal_bits(plain.in_proj_weight.value(), same.in_proj_weight.value()));
  CHECK_FALSE(same.k_proj);
  CHECK(same.key_value_heads == 4);
  // a memory of another width
  const MultiHeadAttention wide(one.root() / "wide", {.width = 8, .heads = 4, .key_width = 6, .key_value_heads = 2});
  CHECK(wide(constant(ones({1, 3, 8})), wide.prepare(constant(ones({1, 5, 6})), {})).context.shape() == Shape{1, 3, 8});
}

TEST_CASE("multi-head attention: weights by small steps are those of the kernel, values and gradients") {
  for (const Positions kind : {Positions::none, Positions::alibi})
    for (const Index shared : {4, 2}) {
      const auto run = [&](bool by_kernel) {
        Parameters parameters(Seed{1}, DType::f64);
        const Scope scope = parameters.root();
        MultiHeadAttention layer(scope, {.width = 16,
                                         .heads = 4,
                                         .positions = RelativePositions(scope, {.kind = kind, .heads = 4, .head_width = 4}),
                                         .key_value_heads = shared});
        if (!by_kernel) layer.normalise.is_softmax = false;
        Tape tape;
        const Variable x = variable(normal(Key(3), {2, 6, 16}, 0, 1, DType::f64));
        const Attended y = layer.self(x, Mask::lengths(tensor({4, 6}, DType::i32)), Want::weights);
        tape.backward(sum(square(y.context)));
        std::vector<Tensor> out{y.context.value(), y.weights.value(), x.grad()};
        for (const auto& item : parameters.items()) out.push_back(item->gradient->value());
        return out;
      };
      const auto kernel = run(true), steps = run(false);
      for (std::size_t i = 0; i < kernel.size(); ++i) CHECK(worst_absolute(steps[i], doubles(kernel[i])) < 1e-12);
    }
}

TEST_CASE("multi-head attention: every normaliser is that of the scores") {
  for (const std::string_view name : {"softmax", "exp", "sparsemax", "entmax", "hard", "top-3"}) {
    CAPTURE(name);
    Parameters parameters(Seed{1}, DType::f64);
    const MultiHeadAttention layer(parameters.root(), {.width = 12, .heads = 3, .init = normal_init(0, 0.6), .normalise = name});
    const Index T = 11;
    const Variable x = constant(normal(Key(3), {2, T, 12}, 0, 1, DType::f64));
    const auto heads = [&](Index block) {
      return permute(reshape(linear(x, slice(layer.in_proj_weight, 0, 12 * block, 12 * block + 12), {}), {2, T, 3, 4}), {0, 2, 1, 3});
    };
    const auto by_hand = [&](const Mask& mask) {
      const Variable weights = normalise_named(name)(matmul(heads(0), transpose(heads(1))) * 0.5, mask);
      return linear(reshape(permute(matmul(weights, heads(2)), {0, 2, 1, 3}), {2, T, 12}), layer.out_proj.weight, {}).value();
    };
    for (const Mask& mask : {Mask(), Mask::causal(), Mask::lengths(tensor({5, 9}, DType::i32))}) {
      const Attended y = layer.self(x, mask, Want::weights);
      CHECK(worst_absolute(y.context.value(), doubles(by_hand(mask))) < 1e-12);
      CHECK((worst_absolute(sum(y.weights, -1).value(), std::vector<double>(std::size_t(2 * 3 * T), 1)) < 1e-12) == sums_to_one(name));
    }
  }
}

TEST_CASE("multi-head attention: learned entmax has an α for each head, 1.5 at first") {
  Parameters parameters(Seed{1}, DType::f64);
  const MultiHeadAttention layer(parameters.root(), {.width = 12, .heads = 3, .init = normal_init(0, 0.6), .normalise = "learned-entmax"});
  const Variable x = constant(normal(Key(3), {2, 7, 12}, 0, 1, DType::f64));
  const Tensor w = parameters.find("entmax_order")->variable.value();
  CHECK(equal_bits(w, zeros({3}, DType::f64)));
  const auto weights = [&](std::string_view name) {
    MultiHeadAttention other(parameters.root() / "other" / name, {.width = 12, .heads = 3, .normalise = name});
    copy_into(other.in_proj_weight.value(), layer.in_proj_weight.value());
    return other.self(x, Mask::causal(), Want::weights).weights.value();
  };
  const Tensor entmax = weights("entmax"), sparsemax = weights("sparsemax"), softmax = weights("softmax");
  CHECK(worst_absolute(layer.self(x, Mask::causal(), Want::weights).weights.value(), doubles(entmax)) < 1e-13);
  copy_into(w, tensor({-50, 0, 50}, DType::f64));
  const Tensor mixed = layer.self(x, Mask::causal(), Want::weights).weights.value();
  CHECK(worst_absolute(select(mixed, 1, 0), doubles(select(softmax, 1, 0))) < 1e-3);
  CHECK(worst_absolute(select(mixed, 1, 1), doubles(select(entmax, 1, 1))) < 1e-13);
  CHECK(worst_absolute(select(mixed, 1, 2), doubles(select(sparsemax, 1, 2))) < 1e-13);
}

TEST_CASE("multi-head attention: weights of every kind: padding changes nothing, dropout, step by step the same bits") {
  struct Kind {
    std::string_view normalise = "softmax";
    Index shared = 4;
    bool talking = false, differential = false;
    std::optional<Index> window = {};
    std::vector<Index> dilation = {};
  };
  const Kind kinds[] = {{}, {"sparsemax"}, {"entmax"}, {"hard"}, {"top-3"}, {"learned-entmax"}, {.talking = true},
                        {.shared = 1, .talking = true}, {.differential = true}, {.shared = 2, .differential = true},
                        {.normalise = "entmax", .talking = true, .differential = true, .window = 2},
                        {.shared = 2, .window = 1, .dilation = {1, 3, 2, 1}},
                        {.normalise = "entmax", .talking = true, .differential = true, .window = 1, .dilation = {2}}};
  for (const Kind& kind : kinds) {
    CAPTURE(kind.normalise);
    CAPTURE(kind.shared);
    CAPTURE(kind.talking);
    CAPTURE(kind.differential);
    const auto options = [&](double dropout, std::string_view normalise) {
      return MultiHeadAttention::Options{.width = 16,
                                         .heads = 4,
                                         .dropout = dropout,
                                         .init = normal_init(0, 0.6),
                                         .key_value_heads = kind.shared,
                                         .normalise = normalise,
                                         .talking_heads = kind.talking,
                                         .differential = kind.differential,
                                         .sliding_window = kind.window,
                                         .dilation = kind.dilation};
    };
    const Index T = 11;
    Parameters parameters(Seed{1}, DType::f64);
    const MultiHeadAttention layer(parameters.root() / "layer", options(0, kind.normalise));
    for (const auto& item : parameters.items())
      if (item->path.ends_with("_mix")) parameters.select(item->path).initialise(normal_init(0, 1));
    const Variable x = constant(normal(Key(3), {2, T, 16}, 0, 1, DType::f64));
    const Mask lengths = Mask::lengths(tensor({5, 9}, DType::i32));
    const Tensor longer = concat({x.value(), full({2, 3, 16}, 7, DType::f64)}, 1);
    CHECK(equal_bits(slice(layer.self(constant(longer), lengths).context.value(), 1, 0, T), layer.self(x, lengths).context.value()));

    // one that draws would differ anyway
    const MultiHeadAttention dropping(parameters.root() / "dropping", options(0.5, kind.normalise == "hard" ? "softmax" : kind.normalise));
    const auto trained = [&](std::uint64_t step) {
      const Tape tape(Key{1, step});
      return dropping.self(x, lengths).context.value();
    };
    CHECK(equal_bits(trained(1), trained(1)));
    CHECK_FALSE(equal_bits(trained(1), trained(2)));
    CHECK_FALSE(equal_bits(trained(1), dropping.self(x, lengths).context.value()));

    const Tensor every = layer.self(x, Mask::causal()).context.value();
    KeyValueCache cache = layer.cache(2, 4), by_threes = layer.cache(2, 4);
    for (Index t = 0; t + 3 <= T; t += 3)
      REQUIRE(equal_bits(layer.next(constant(slice(x.value(), 1, t, t + 3)), by_threes).context.value(), slice(every, 1, t, t + 3)));
    for (Index t = 0; t < T; ++t) {
      if (t == 6) cache.reorder(std::vector<Index>{0, 0, 1});            // from here on three rows of two sentences
      const auto rows = [&](const Tensor& of) { return slice(t < 6 ? of : concat({slice(of, 0, 0, 1), of}, 0), 1, t, t + 1); };
      REQUIRE(equal_bits(layer.next(constant(rows(x.value())), cache).context.value(), rows(every)));
    }
  }
}

namespace {

// u8 [1, H, T, T]: j where i sees up to `window` positions to each side, each a gap after the one before
Tensor near_ones(Index T, Index window, const std::vector<Index>& gaps) {
  const Tensor near = empty({1, Index(gaps.size()), T, T}, DType::u8);
  auto* may = near.mutable_data<std::uint8_t>();
  for (const Index gap : gaps)
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j < T; ++j) *may++ = (j - i) % gap == 0 && std::abs(j - i) <= window * gap;
  return near;
}

}  // namespace

TEST_CASE("sliding window: step by step, a few at once: the bits of all at once, and of an explicit mask") {
  for (const Index window : {0, 1, 5, 100})
    for (const Positions kind : {Positions::none, Positions::rope, Positions::alibi, Positions::shaw})
      for (const std::vector<Index>& gaps : {std::vector<Index>{}, {2}, {3, 1, 50}}) {
        CAPTURE(window);
        Parameters parameters(Seed{5});
        const Scope scope = parameters.root();
        MultiHeadAttention layer(scope, {.width = 12,
                                         .heads = 3,
                                         .positions = RelativePositions(scope, {.kind = kind, .heads = 3, .head_width = 4, .causal = true}),
                                         .sliding_window = window,
                                         .dilation = gaps});
        const Index T = 42;
        const Tensor x = normal(Key(3), {2, T, 12});
        const Tensor every = layer.self(constant(x), Mask::causal()).context.value(),
                     both_ways = layer.self(constant(x), {}).context.value();
        for (const Index n : {1, 3}) {
          KeyValueCache cache(2, {3, 4}, {3, 4}, 4, DType::f32);
          for (Index t = 0; t < T; t += n)
            REQUIRE(equal_bits(layer.next(constant(slice(x, 1, t, t + n)), cache).context.value(), slice(every, 1, t, t + n)));
        }
        layer.sliding_window.reset();
        const Tensor near = near_ones(T, window,
                                      gaps.empty()       ? std::vector<Index>(3, 1)
                                      : gaps.size() == 1 ? std::vector<Index>(3, gaps[0])
                                                         : gaps);
        CHECK(worst_absolute(layer.self(constant(x), Mask::causal() & Mask::allowed(near)).context.value(), doubles(every)) < 1e-6);
        CHECK(worst_absolute(layer.self(constant(x), Mask::allowed(near)).context.value(), doubles(both_ways)) < 1e-6);
        if (window >= T && gaps.empty()) CHECK(equal_bits(layer.self(constant(x), Mask::causal()).context.value(), every));
      }
}

TEST_CASE("sliding window: of self-attention alone: words beyond it change nothing, those of a memory do") {
  Parameters parameters(Seed{5});
  const TransformerOptions options{
      .width = 8, .heads = 2, .feed_forward = 8, .encoder_layers = 1, .decoder_layers = 1, .sliding_window = 2};
  const Transformer core(parameters.root(), options);
  const auto changed = [](const Tensor& a, const Tensor& b) {            // places of [1, T, 8] that differ
    std::vector<Index> places;
    for (Index t = 0; t < a.size(1); ++t)
      if (!equal_bits(select(a, 1, t), select(b, 1, t))) places.push_back(t);
    return places;
  };
  const Tensor x = normal(Key(3), {1, 9, 8});
  Tensor other = x.clone();
  fill_(other(all, Slice{4, 5}), 0.5);
  CHECK(changed(core.encoder(constant(x), {}).value(), core.encoder(constant(other), {}).value()) == std::vector<Index>{2, 3, 4, 5, 6});
  const auto decoded = [&](const Tensor& states, const Tensor& target) {
    return core.decoder(constant(target), core.decoder.prepare(constant(states), {})).value();
  };
  CHECK(changed(decoded(x, x), decoded(x, other)) == std::vector<Index>{4, 5, 6});
  CHECK(changed(decoded(x, x), decoded(other, x)).size() == 9);
}

TEST_CASE("global tokens: rows of their own see all by their projections, the others' windows see them, as explicit masks say") {
  for (const Index global : {1, 3, 20})
    for (const Positions kind : {Positions::none, Positions::rope, Positions::alibi, Positions::shaw})
      for (const Index shared : {3, 1})
        for (const std::string_view name : {"softmax", "entmax"}) {
          CAPTURE(global);
          CAPTURE(shared);
          CAPTURE(name);
          const Index T = 14, window = 2;
          const std::vector<Index> gaps{1, 2, 3};
          Parameters parameters(Seed{5}, DType::f64), others(Seed{5}, DType::f64);
          const auto made = [&](Parameters& in, bool slides) {
            const Scope scope = in.root();
            RelativePositions positions(scope, {.kind = kind, .heads = 3, .head_width = 4});
            MultiHeadAttention::Options options{.width = 12, .heads = 3, .init = normal_init(0, 0.6), .positions = std::move(positions),
                                                .key_value_heads = shared, .normalise = name};
            if (slides) options.sliding_window = window, options.dilation = gaps, options.global_tokens = global;
            return MultiHeadAttention(scope, std::move(options));
          };
          const MultiHeadAttention layer = made(parameters, true), plain = made(others, false);
          const auto copied = [&](const std::optional<Linear>& own, Index block) {
            return own ? own->weight.value() : slice(layer.in_proj_weight.value(), 0, 12 * block, 12 * block + 12);
          };
          CHECK(equal_bits(layer.query_global->weight.value(), copied(layer.q_proj, 0)));
          CHECK(equal_bits(layer.key_global->weight.value(), copied(layer.k_proj, 1)));
          CHECK(equal_bits(layer.value_global->weight.value(), copied(layer.v_proj, 2)));
          CHECK(equal_bits(layer.key_global->bias.value(), zeros({layer.key_global->weight.shape()[0]}, DType::f64)));

          const Variable x = constant(normal(Key(3), {2, T, 12}, 0, 1, DType::f64));
          const Tensor near = near_ones(T, window, gaps);
          fill_(slice(near, 3, 0, global), 1);
          const Mask lengths = Mask::lengths(tensor({9, 14}, DType::i32));
          const Index rows = std::min(global, T);
          for (const Mask& mask : {Mask(), lengths, Mask::causal(), lengths & Mask::allowed(bernoulli(Key(4), {2, 1, T, T}, 0.7))}) {
            // As long as the projections are copies, rows of global tokens are rows that see all.
            const Attended y = layer.self(x, mask, Want::weights), every = plain.self(x, mask, Want::weights),
                           windows = plain.self(x, mask & Mask::allowed(near), Want::weights);
            CHECK(worst_absolute(slice(y.context.value(), 1, 0, rows), doubles(slice(every.context.value(), 1, 0, rows))) < 1e-12);
            CHECK(worst_absolute(slice(y.context.value(), 1, rows), doubles(slice(windows.context.value(), 1, rows))) < 1e-12);
            CHECK(worst_absolute(slice(y.weights.value(), 2, 0, rows), doubles(slice(every.weights.value(), 2, 0, rows))) < 1e-12);
            CHECK(worst_absolute(slice(y.weights.value(), 2, rows), doubles(slice(windows.weights.value(), 2, rows))) < 1e-12);
            CHECK(equal_bits(y.context.value(), layer.self(x, mask).context.value()));
          }
          const Tensor longer = concat({x.value(), full({2, 4, 12}, 7, DType::f64)}, 1);      // padding
          CHECK(equal_bits(slice(layer.self(constant(longer), lengths).context.value(), 1, 0, T), layer.self(x, lengths).context.value()));
          {
            Tape tape;
            tape.backward(sum(square(layer.self(x, lengths).context)));
          }
          for (const auto& item : parameters.items()) {
            CAPTURE(item->path);
            const bool unread = global >= T && item->path.find("global") == std::string::npos &&
                                item->path.find("out_proj") == std::string::npos && item->path.find("rel_") == std::string::npos;
            CHECK(item->gradient->written());
            // softmax sees differences of scores only
            if (item->path.find("key_global.bias") == std::string::npos && item->path.find("k_proj.bias") == std::string::npos)
              CHECK((max(abs(item->gradient->value())).item() > 0) != unread);
          }
        }
  Parameters parameters(Seed{5});
  const MultiHeadAttention layer(parameters.root(), {.width = 8, .heads = 2, .sliding_window = 1, .global_tokens = 1});
  const auto changed = [&](Index place) {                                 // rows that see a word
    const Tensor x = normal(Key(3), {1, 9, 8}), other = x.clone();
    fill_(other(all, Slice{place, place + 1}), 0.5);
    std::vector<Index> rows;
    for (Index t = 0; t < 9; ++t)
      if (!equal_bits(select(layer.self(constant(x), {}).context.value(), 1, t),
                      select(layer.self(constant(other), {}).context.value(), 1, t)))
        rows.push_back(t);
    return rows;
  };
  CHECK(changed(0) == std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(changed(5) == std::vector<Index>{0, 4, 5, 6});
}
