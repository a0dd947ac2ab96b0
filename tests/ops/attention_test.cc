// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/attention.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/dropout.h"
#include "tensor/error.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/play.h"
#include "tests/op_table.h"
#include "tests/random_mask.h"

using namespace heed;

namespace {

struct Reference { std::vector<double> output, weights, log_sum_exp, dq, dk, dv, dz; };

// Loops over all [b, h, t, s], in double. Gradients undefined: zeros.
Reference by_formulas(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options,
                      const Tensor& doutput, const Tensor& dweights, const Tensor& bias = {}) {
  const Index B = q.size(0), H = q.size(1), T = q.size(2), S = k.size(2), dk = q.size(3), dv = v.size(3);
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(double(dk));
  const auto Q = doubles(q), K = doubles(k), V = doubles(v);
  const auto allowed = mask.dense({B, H, T, S}).to_vector<std::uint8_t>();
  const auto biases = doubles(bias.defined() ? expand(bias, {B, H, T, S}) : zeros({B, H, T, S}));
  const DropoutKey dropout("test", options.dropout, options.key);
  const auto size = [](Index n) { return std::vector<double>(std::size_t(n)); };
  const auto dO = doutput.defined() ? doubles(doutput) : size(B * H * T * dv),
             G = dweights.defined() ? doubles(dweights) : size(B * H * T * S);
  Reference out{size(B * H * T * dv), size(B * H * T * S),  size(B * H * T),    size(B * H * T * dk),
                size(B * H * S * dk), size(B * H * S * dv), size(B * H * T * S)};
  auto dp = size(S);
  for (Index bh = 0; bh < B * H; ++bh)
    for (Index t = 0; t < T; ++t) {
      const Index row = bh * T + t;
      const double *const q_t = Q.data() + row * dk, *const k_s = K.data() + bh * S * dk, *const v_s = V.data() + bh * S * dv,
                          *const dO_t = dO.data() + row * dv;
      const double *const bias_t = biases.data() + row * S, *const G_t = G.data() + row * S;
      double *const output = out.output.data() + row * dv, *const p = out.weights.data() + row * S, *const dz = out.dz.data() + row * S;
      double *const dq = out.dq.data() + row * dk, *const dk_s = out.dk.data() + bh * S * dk, *const dv_s = out.dv.data() + bh * S * dv;
      const std::uint8_t* const is_allowed = allowed.data() + row * S;
      double most = -INFINITY, sum = 0, delta = 0;
      for (Index s = 0; s < S; ++s) {
        for (Index j = 0; j < dk; ++j) p[s] += scale * q_t[j] * k_s[s * dk + j];
        p[s] += bias_t[s];
        if (is_allowed[s]) most = std::max(most, p[s]);
      }
      for (Index s = 0; s < S; ++s) sum += p[s] = is_allowed[s] && p[s] > -INFINITY ? std::exp(p[s] - most) : 0;
      out.log_sum_exp[std::size_t(row)] = sum > 0 ? most + std::log(sum) : -INFINITY;
      for (Index s = 0; s < S; ++s) {
        if (sum > 0) p[s] /= sum;
        const double m = dropout_factor(dropout, (bh * ((T + 15) / 16) + t / 16) * ((S + 7) / 8 * 8) * 16 + s * 16 + t % 16);
        double& dp_s = dp[std::size_t(s)] = G_t[s];
        for (Index j = 0; j < dv; ++j) {
          output[j] += p[s] * m * v_s[s * dv + j];
          dp_s += m * dO_t[j] * v_s[s * dv + j];
          dv_s[s * dv + j] += p[s] * m * dO_t[j];
        }
        delta += p[s] * dp_s;
      }
      for (Index s = 0; s < S; ++s) {
        dz[s] = p[s] * (dp[std::size_t(s)] - delta);
        for (Index j = 0; j < dk; ++j) {
          dq[j] += scale * dz[s] * k_s[s * dk + j];
          dk_s[s * dk + j] += scale * dz[s] * q_t[j];
        }
      }
    }
  return out;
}

Tensor draw(int key, const Shape& shape, DType dtype = DType::f64) { return normal(Key(77, key), shape, 0, 1, dtype); }

struct Gradients { Tensor dq, dk, dv, dbias; };
Gradients gradients_of(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options,
                       const AttentionOutput& out, const Tensor& doutput, const Tensor& dweights = {}, const Tensor& bias = {}) {
  const Gradients d{full(q.shape(), NAN, q.dtype()), full(k.shape(), NAN, q.dtype()), full(v.shape(), NAN, q.dtype()),
                    bias.defined() ? full(bias.shape(), NAN, q.dtype()) : Tensor()};
  const Into dq{d.dq}, dk{d.dk}, dv{d.dv}, dbias{d.dbias};
  scaled_dot_product_attention_grad(q, k, v, mask, options, out, doutput, dweights, &dq, &dk, &dv, bias, bias.defined() ? &dbias : nullptr);
  return d;
}

void compare(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, AttentionOptions options, double tolerance,
             const Tensor& bias = {}) {
  const Tensor doutput = draw(9, {q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype()),
               dweights = draw(10, {q.size(0), q.size(1), q.size(2), k.size(2)}, q.dtype());
  const AttentionOutput plain = scaled_dot_product_attention(q, k, v, mask, options, bias);
  options.weights = true;
  const AttentionOutput out = scaled_dot_product_attention(q, k, v, mask, options, bias);
  CHECK(equal_bits(out.output, plain.output));
  CHECK(!plain.weights.defined());
  for (const auto& [dO, G] : {std::pair{doutput, Tensor()}, std::pair{Tensor(), dweights}, std::pair{doutput, dweights}}) {
    const Reference want = by_formulas(q, k, v, mask, options, dO, G, bias);
    CHECK(worst_absolute(out.output, want.output) < tolerance);
    CHECK(worst_absolute(out.weights, want.weights) < tolerance);
    CHECK(worst_absolute(out.log_sum_exp, want.log_sum_exp) < 10 * tolerance);
    const Gradients d = gradients_of(q, k, v, mask, options, out, dO, G, bias);
    if (bias.defined()) {
      const Tensor dz = sum_to(tensor(want.dz, {q.size(0), q.size(1), q.size(2), k.size(2)}), bias.shape());
      CHECK(worst_absolute(d.dbias, doubles(dz)) < 10 * tolerance);
    }
    CHECK(worst_absolute(d.dq, want.dq) < 10 * tolerance);
    CHECK(worst_absolute(d.dk, want.dk) < 10 * tolerance);
    CHECK(worst_absolute(d.dv, want.dv) < 10 * tolerance);
  }
}

}  // namespace

TEST_CASE("attention: value and gradient by the formulas, ragged sizes, every target") {
  const Index sizes[][4] = {{1, 1, 1, 1},    {16, 16, 32, 32}, {5, 7, 3, 2},    {17, 15, 16, 8},
                            {3, 33, 20, 17}, {40, 31, 8, 48},  {2, 130, 5, 16}, {33, 260, 4, 4}};
  for (const auto& size : sizes)
    for (DType dtype : {DType::f32, DType::f64})
      for (double p : {0.0, 0.4}) {
        const Index T = size[0], S = size[1], dk = size[2], dv = size[3];
        const Tensor q = draw(1, {2, 3, T, dk}, dtype), k = draw(2, {2, 3, S, dk}, dtype), v = draw(3, {2, 3, S, dv}, dtype);
        const Mask mask = Mask::lengths(tensor({double(S), double((S + 1) / 2)}, DType::i32));
        // P and O are sums of numbers up to about 5 with relative error about 10 roundings; sums over T rows in dK, dV
        const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-14;
        for_every_target([&] {
          CAPTURE(S);
          compare(q, k, v, {}, {.dropout = p, .key = Key(5)}, tolerance);
          compare(q, k, v, mask, {.scale = 0.3, .dropout = p, .key = Key(6)}, tolerance);
        });
      }
}

TEST_CASE("attention: random masks of every kind, empty rows and lengths 0") {
  Random random(Key(Seed{21}));
  for (int i = 0; i < 150; ++i) {
    const Index B = 1 + random.below(3), H = 1 + random.below(2), T = 1 + random.below(40),
                S = 1 + random.below(random.below(4) ? 40 : 200);
    const Index dk = 1 + random.below(20), dv = 1 + random.below(20);
    const Key key(31, i);
    const Mask mask = random_mask(random, key, B, H, T, S);
    const Tensor q = draw(3 * i, {B, H, T, dk}), k = draw(3 * i + 1, {B, H, S, dk}), v = draw(3 * i + 2, {B, H, S, dv});
    CAPTURE(i);
    compare(q, k, v, mask, {.dropout = random.below(2) ? 0.3 : 0, .key = key}, 2e-14);
  }
}

TEST_CASE("attention: bias of every shape that broadcasts, with masks, -inf in it, every target") {
  const Index sizes[][4] = {{1, 1, 3, 2}, {16, 16, 32, 32}, {3, 37, 5, 7}, {4, 300, 8, 8}, {40, 31, 8, 20}, {70, 270, 6, 4}};
  for (const auto& [T, S, dk, dv] : sizes)
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor q = draw(1, {2, 3, T, dk}, dtype), k = draw(2, {2, 3, S, dk}, dtype), v = draw(3, {2, 3, S, dv}, dtype);
      const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-14;
      const Tensor forbids = draw(5, {T, S}, dtype);
      for (Index t = 0; t < T; ++t)
        for (Index s = 0; s < S; ++s)
          if ((t * 7 + s) % 3 == 0 || t == 1) fill_(forbids[t][s], -INFINITY);                   // nothing is left of row 1
      const Tensor biases[] = {draw(4, {2, 3, T, S}, dtype), draw(4, {3, T, S}, dtype), draw(4, {2, 1, 1, S}, dtype),
                               draw(4, {3, T, 1}, dtype), draw(4, {}, dtype),
                               transpose(draw(4, {3, S, T}, dtype)), flip(draw(4, {2, 3, T, S}, dtype), {0, 2}), forbids};
      const Mask masks[] = {{},
                            Mask::causal(S / 2) & Mask::lengths(tensor({double(S), double((S + 1) / 2)}, DType::i32)),
                            Mask::allowed(bernoulli(Key(5), {2, 1, T, S}, 0.5))};
      const auto run = [&](bool all) {
        for (const Tensor& bias : biases)
          for (const Mask& mask : masks)
            if (all || (bias.rank() == 4) != mask.everything())
              compare(q, k, v, mask, {.dropout = bias.rank() == 3 ? 0.3 : 0, .key = Key(6)}, tolerance, bias);
      };
      run(dtype == DType::f32);
      if (T * S < 2000) for_every_target([&] { run(false); });
    }
}

TEST_CASE("attention: with a bias one query has the bits of all, and -inf those of a mask") {
  const Index T = 37, S = 290;
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor q = draw(1, {2, 3, T, 20}, dtype), k = draw(2, {2, 3, S, 20}, dtype), v = draw(3, {2, 3, S, 9}, dtype),
                 bias = draw(4, {3, T, S}, dtype);
    const Tensor allowed = bernoulli(Key(5), {T, S}, 0.5), forbids = where(allowed, zeros({}, dtype), full({}, -INFINITY, dtype)),
                 doutput = draw(6, {2, 3, T, 9}, dtype);
    for_every_target([&] {
      const AttentionOutput every = scaled_dot_product_attention(q, k, v, {}, {}, bias);
      for (Index t = 0; t < T; ++t) {
        const AttentionOutput one = scaled_dot_product_attention(slice(q, 2, t, t + 1), k, v, {}, {}, slice(bias, 1, t, t + 1));
        REQUIRE(equal_bits(one.output, slice(every.output, 2, t, t + 1)));
        REQUIRE(equal_bits(one.log_sum_exp, slice(every.log_sum_exp, 2, t, t + 1)));
      }
      const AttentionOutput by_mask = scaled_dot_product_attention(q, k, v, Mask::allowed(allowed), {.weights = true}),
                            by_bias = scaled_dot_product_attention(q, k, v, {}, {.weights = true}, forbids);
      CHECK(equal_bits(by_bias.output, by_mask.output));
      CHECK(equal_bits(by_bias.weights, by_mask.weights));
      const Gradients c = gradients_of(q, k, v, Mask::allowed(allowed), {}, by_mask, doutput),
                      d = gradients_of(q, k, v, {}, {}, by_bias, doutput, {}, forbids);
      CHECK(equal_bits(c.dq, d.dq));
      CHECK(equal_bits(c.dk, d.dk));
      CHECK(equal_bits(c.dv, d.dv));
    });
    std::vector<Tensor> first;
    for_threads([&] {
      const AttentionOutput out = scaled_dot_product_attention(q, k, v, Mask::causal(200), {}, bias);
      const Gradients d = gradients_of(q, k, v, Mask::causal(200), {}, out, doutput, {}, bias);
      const std::vector<Tensor> results{out.output, d.dq, d.dk, d.dv, d.dbias};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) CHECK(equal_bits(results[i], first[i]));
    });
  }
}

TEST_CASE("attention: a NaN in the bias is not hidden, as -inf would be") {
  const Tensor q = full({1, 1, 2, 2}, 0.5), k = full({1, 1, 3, 2}, 0.5), v = ones({1, 1, 3, 2});
  const Tensor bias = tensor({{0, NAN, 0}, {0, -INFINITY, 0}});
  for (const Tensor& y : {scaled_dot_product_attention(q, k, v, {}, {}, bias).output,
                          scaled_dot_product_attention_by_definition(q, k, v, {}, {}, bias).output}) {
    CHECK(std::isnan(y(0, 0, 0, 0).item()));
    CHECK(y(0, 0, 1, 0).item() == doctest::Approx(1));
  }
}

TEST_CASE("attention: heads that share keys and values have the bits of repeated ones; their gradients are summed") {
  const Index heads[][2] = {{4, 2}, {6, 3}, {8, 8}, {12, 6}, {5, 5}}, sizes[][2] = {{1, 40}, {3, 130}, {1, 300}, {20, 37}};
  for (const auto& head : heads)
    for (DType dtype : {DType::f32, DType::f64})
      for (const auto& size : sizes) {
        const Index B = 2, H = head[0], group = head[1], T = size[0], S = size[1];
        const Tensor q = draw(1, {B, H, T, 20}, dtype), k = draw(2, {B, H / group, S, 20}, dtype), v = draw(3, {B, H / group, S, 9}, dtype),
                     doutput = draw(4, {B, H, T, 9}, dtype), bias = draw(5, {H, T, S}, dtype);
        const Tensor every_k = with_heads(k, H), every_v = with_heads(v, H), by_columns = transpose(transpose(k).clone());
        for (const Mask& mask : {Mask(), Mask::causal(S / 2) & Mask::lengths(tensor({double(S), double(S / 3)}, DType::i32)),
                                 Mask::allowed(bernoulli(Key(5), {B, H, T, S}, 0.5))})
          for_every_target([&] {
            const AttentionOptions options{.dropout = 0.2, .key = Key(3), .weights = true};
            const AttentionOutput shared = scaled_dot_product_attention(q, k, v, mask, options, bias),
                                  every = scaled_dot_product_attention(q, every_k, every_v, mask, options, bias);
            CHECK(equal_bits(shared.output, every.output));
            CHECK(equal_bits(shared.weights, every.weights));
            CHECK(equal_bits(scaled_dot_product_attention(q, by_columns, v, mask, options, bias).output, every.output));
            const Gradients one = gradients_of(q, k, v, mask, options, shared, doutput, {}, bias),
                            all_of = gradients_of(q, every_k, every_v, mask, options, every, doutput, {}, bias);
            CHECK(equal_bits(one.dq, all_of.dq));
            CHECK(equal_bits(one.dbias, all_of.dbias));
            const auto summed = [&](const Tensor& d) { return doubles(sum(reshape(d, {B, H / group, group, S, d.size(3)}), {2})); };
            CHECK(worst_absolute(one.dk, summed(all_of.dk)) < (dtype == DType::f32 ? 1e-5 : 1e-14));
            CHECK(worst_absolute(one.dv, summed(all_of.dv)) < (dtype == DType::f32 ? 1e-5 : 1e-14));
          });
      }
  // added to what is there
  const Tensor q = draw(1, {2, 4, 5, 6}), k = draw(2, {2, 2, 7, 6}), dq = ones(q.shape(), DType::f64), dk = ones(k.shape(), DType::f64),
               doutput = draw(4, {2, 4, 5, 6});
  const AttentionOutput out = scaled_dot_product_attention(q, k, k);
  const Gradients apart = gradients_of(q, k, k, {}, {}, out, doutput);
  const Into into_q{dq, true}, into_k{dk, true}, then{dk, true};
  scaled_dot_product_attention_grad(q, k, k, {}, {}, out, doutput, {}, &into_q, &into_k, &then);
  CHECK(worst_absolute(dq, doubles(apart.dq + 1.0)) < 1e-14);
  CHECK(worst_absolute(dk, doubles(apart.dk + apart.dv + 1.0)) < 1e-14);
  // rows that share their past, as a search has them
  const Tensor places = tensor(std::vector<std::int64_t>{1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0}, {2, 7}), one = slice(q, 2, 0, 1);
  CHECK(equal_bits(scaled_dot_product_attention(one, k, k, {}, {.places = places}).output,
                   scaled_dot_product_attention(one, gather_places(k, places), gather_places(k, places)).output));
}

TEST_CASE("attention: more than one block of keys and one tile of rows, masks that skip blocks") {
  const Index T = 70, S = 600;
  const Tensor q = draw(1, {2, 2, T, 6}), k = draw(2, {2, 2, S, 6}), v = draw(3, {2, 2, S, 9});
  const Tensor loud = k.clone();                            // the greatest score of a row comes late
  fill_(slice(loud, 2, 530, 531), 4);
  const Mask lengths = Mask::lengths(tensor({600, 300}, DType::i32)), explicit_mask = Mask::allowed(bernoulli(Key(5), {T, S}, 0.02));
  const Mask masks[] = {{}, Mask::causal(500), Mask::causal(200) & lengths, Mask::window(20, 3, 280) & lengths, explicit_mask};
  for_every_target([&] {
    for (const Mask& mask : masks) {
      compare(q, k, v, mask, {.dropout = 0.2, .key = Key(7)}, 2e-14);
      compare(q, loud, v, mask, {}, 2e-14);
    }
  });
  // step by step, and a part of the rows
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = to(q, dtype), b = to(k, dtype), c = to(v, dtype), by_columns = transpose(transpose(b).clone());
    for_every_target([&] {
      const AttentionOutput all = scaled_dot_product_attention(a, b, c, Mask::causal(500));
      CHECK(equal_bits(scaled_dot_product_attention(a, by_columns, c, Mask::causal(500)).output, all.output));
      for (Index t : {0, 1, 11, 12, 69}) {
        const AttentionOutput one = scaled_dot_product_attention(slice(a, 2, t, t + 1), slice(b, 2, 0, t + 501), slice(c, 2, 0, t + 501));
        REQUIRE(equal_bits(one.output, slice(all.output, 2, t, t + 1)));
        REQUIRE(equal_bits(one.log_sum_exp, slice(all.log_sum_exp, 2, t, t + 1)));
      }
      const Tensor some = scaled_dot_product_attention(slice(a, 2, 5, 40), b, c).output;
      CHECK(equal_bits(some, slice(scaled_dot_product_attention(a, b, c).output, 2, 5, 40)));
    });
  }
}

TEST_CASE("attention: gaps of heads and global positions, with blocks that no one looks at between") {
  const Index T = 70, S = 900;
  const Tensor q = draw(1, {2, 3, T, 6}), k = draw(2, {2, 3, S, 6}), v = draw(3, {2, 3, S, 9}), gaps = tensor({1, 7, 2}, DType::i32);
  const Mask lengths = Mask::lengths(tensor({900, 830}, DType::i32));
  const Mask masks[] = {Mask::sliding({5, 3, 800, gaps}),
                        Mask::sliding({5, 3, 800, {}, 2}) & lengths,
                        Mask::sliding({4, 4, 790, gaps, 3}) & lengths & Mask::causal(790),
                        Mask::sliding({0, 0, 830, gaps, 300}) & Mask::causal(780),
                        Mask::sliding({200, 2, 300, gaps, 1}) & lengths,
                        Mask::sliding({2, 2, 2000, gaps, 1}),
                        Mask::sliding({3, 3, 500, gaps, 4}) & Mask::allowed(bernoulli(Key(5), {2, 1, T, S}, 0.5))};
  for_every_target([&] {
    for (const Mask& mask : masks) {
      compare(q, k, v, mask, {}, 2e-14);
      compare(q, k, v, mask, {.dropout = 0.2, .key = Key(7)}, 2e-14);
    }
  });
  compare(q, k, v, masks[2], {.dropout = 0.2, .key = Key(7)}, 2e-14, draw(4, {3, T, S}));
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = to(q, dtype), b = to(k, dtype), c = to(v, dtype), doutput = to(draw(5, {2, 3, T, 9}), dtype);
    for (const Index global : {0, 3}) {
      const auto mask = [&](Index first) { return Mask::sliding({4, 4, 790 + first, gaps, global}); };
      std::vector<Tensor> first;
      const auto run = [&] {
        const AttentionOutput every = scaled_dot_product_attention(a, b, c, mask(0), {.weights = true});
        const Gradients d = gradients_of(a, b, c, mask(0), {}, every, doutput);
        const std::vector<Tensor> results{every.output, every.weights, every.log_sum_exp, d.dq, d.dk, d.dv};
        if (first.empty()) first = results;
        for (std::size_t i = 0; i < results.size(); ++i) CHECK(equal_bits(results[i], first[i]));
      };
      for_threads(run);
      for_every_fma_target(run);
      for_every_target([&] {
        const AttentionOutput every = scaled_dot_product_attention(a, b, c, mask(0), {.weights = true});
        for (const Index n : {1, 3, 20})                   // so many rows at once
          for (const Index t : {0, 17, 50}) {
            const AttentionOutput some = scaled_dot_product_attention(slice(a, 2, t, t + n), b, c, mask(t), {.weights = true});
            REQUIRE(equal_bits(some.output, slice(every.output, 2, t, t + n)));
            REQUIRE(equal_bits(some.weights, slice(every.weights, 2, t, t + n)));
            REQUIRE(equal_bits(some.log_sum_exp, slice(every.log_sum_exp, 2, t, t + n)));
          }
      });
    }
  }
  for (const Index rows : {1, 2, 17, 33})                  // the last of them alone in its group
    for (const Index offset : {15, 31, 40})
      for (const Index global : {0, 2})
        for_every_target([&] {
          compare(slice(q, 2, 0, rows), slice(k, 2, 0, 80), slice(v, 2, 0, 80),
                  Mask::sliding({3, 0, offset, tensor({5, 3, 2}, DType::i32), global}), {}, 2e-14);
        });
  // The same for the heads that a search reads together, and for a cache that ends where a row stands.
  const Tensor k_short = slice(k, 2, 0, 40), v_short = slice(v, 2, 0, 40);
  for (const Mask& mask : {Mask::sliding({3, 3, 36, {}, 2}), Mask::sliding({3, 3, 36, gaps, 2})}) {
    const AttentionOutput few = scaled_dot_product_attention(slice(q, 2, 0, 3), k_short, v_short, mask & Mask::causal(36)),
                          many = scaled_dot_product_attention(slice(q, 2, 0, 30), k_short, v_short, mask & Mask::causal(36));
    CHECK(equal_bits(few.output, slice(many.output, 2, 0, 3)));
  }
}

TEST_CASE("attention: a few long heads, cut into parts of their rows") {
  const Index T = 600, S = 300, d = 8;
  const Tensor q = draw(1, {1, 2, T, d}), k = draw(2, {1, 2, S, d}), v = draw(3, {1, 2, S, d});
  const Mask seldom = Mask::allowed(bernoulli(Key(5), {T, S}, 0.1));
  for (const Mask& mask : {Mask(), Mask::causal(-40), Mask::causal() & Mask::lengths(tensor({290.0}, DType::i32)), seldom}) {
    const AttentionOptions options{.dropout = 0.2, .key = Key(7)};
    compare(q, k, v, mask, options, 2e-14);
    const Tensor all = scaled_dot_product_attention(q, k, v, mask, options).output;
    for_threads([&] { CHECK(equal_bits(scaled_dot_product_attention(q, k, v, mask, options).output, all)); });
  }
  // a last part of three rows, wide ones
  const Tensor wide_q = draw(4, {1, 2, 515, 300}, DType::f32), wide_k = draw(5, {1, 2, 40, 300}, DType::f32),
               wide_v = draw(6, {1, 2, 40, 7}, DType::f32);
  const Tensor wide = scaled_dot_product_attention(wide_q, wide_k, wide_v).output;
  CHECK(equal_bits(slice(wide, 2, 510, 515), scaled_dot_product_attention(slice(wide_q, 2, 510, 515), wide_k, wide_v).output));
}

TEST_CASE("attention: what the mask hides may hold anything") {
  const Index S = 37;
  const Tensor q = draw(1, {2, 2, 20, 8}), k = draw(2, {2, 2, S, 8}), v = draw(3, {2, 2, S, 8}), doutput = draw(4, {2, 2, 20, 8});
  const Tensor k_nan = k.clone(), v_nan = v.clone();
  const Mask lengths = Mask::lengths(tensor({21, 0}, DType::i32));
  for (const Tensor& x : {k_nan, v_nan}) {
    fill_(slice(x[0], 1, 21), NAN);
    fill_(x[1], INFINITY);
  }
  const Tensor dweights = draw(5, {2, 2, 20, S});
  for (const Mask& mask : {lengths & Mask::window(3, 2), lengths & Mask::sliding({3, 2, 4, tensor({2, 3}, DType::i32), 2})})
    for_every_target([&] {
      const Tensor dweights_nan = where(mask.dense(dweights.shape()), dweights, full({}, NAN, DType::f64));
      const AttentionOptions options{.dropout = 0.2, .key = Key(1), .weights = true};
      const AttentionOutput a = scaled_dot_product_attention(q, k, v, mask, options),
                            b = scaled_dot_product_attention(q, k_nan, v_nan, mask, options);
      CHECK(equal_bits(a.output, b.output));
      CHECK(equal_bits(a.weights, b.weights));
      CHECK(worst_absolute(b.output[1], std::vector<double>(2 * 20 * 8)) == 0);
      const Gradients c = gradients_of(q, k, v, mask, options, a, doutput, dweights),
                      d = gradients_of(q, k_nan, v_nan, mask, options, b, doutput, dweights_nan);
      CHECK(equal_bits(c.dq, d.dq));
      CHECK(equal_bits(c.dk, d.dk));
      CHECK(equal_bits(c.dv, d.dv));
      CHECK(worst_absolute(d.dk[1], std::vector<double>(2 * S * 8)) == 0);
    });
  // NaN where it may be seen reaches exactly the rows that see it
  const Tensor q_nan = q.clone();
  fill_(q_nan[0][1][5], NAN);
  const Tensor o = scaled_dot_product_attention(q_nan, k, v).output;
  CHECK(all_nan(o[0][1][5]));
  CHECK(equal_bits(o[0][1][4], scaled_dot_product_attention(q, k, v).output[0][1][4]));
}

TEST_CASE("attention: step by step, alone or in a batch, with longer padding, keys by rows or by columns: the same bits") {
  const Index B = 3, H = 2, T = 37, d = 20;
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor q = draw(1, {B, H, T, d}, dtype), k = draw(2, {B, H, T, d}, dtype), v = draw(3, {B, H, T, d}, dtype);
    const Tensor k_by_columns = transpose(transpose(k).clone());
    for_every_target([&] {
      const AttentionOutput all = scaled_dot_product_attention(q, k, v, Mask::causal(), {.weights = true});
      CHECK(equal_bits(scaled_dot_product_attention(q, k_by_columns, v, Mask::causal()).output, all.output));
      for (Index t = 0; t < T; ++t) {                       // a cache of t + 1 positions
        const AttentionOutput one = scaled_dot_product_attention(slice(q, 2, t, t + 1), slice(k, 2, 0, t + 1), slice(v, 2, 0, t + 1));
        const Tensor by_columns =
            scaled_dot_product_attention(slice(q, 2, t, t + 1), slice(k_by_columns, 2, 0, t + 1), slice(v, 2, 0, t + 1)).output;
        REQUIRE(equal_bits(one.output, slice(all.output, 2, t, t + 1)));
        REQUIRE(equal_bits(by_columns, one.output));
        REQUIRE(equal_bits(one.log_sum_exp, slice(all.log_sum_exp, 2, t, t + 1)));
      }
      const Mask lengths = Mask::lengths(tensor({37, 20, 5}, DType::i32));
      const Tensor together = scaled_dot_product_attention(q, k, v, lengths).output;
      const Tensor alone =
          scaled_dot_product_attention(slice(q, 0, 1, 2), slice(slice(k, 0, 1, 2), 2, 0, 20), slice(slice(v, 0, 1, 2), 2, 0, 20)).output;
      CHECK(equal_bits(slice(together, 0, 1, 2), alone));
    });
  }
}

TEST_CASE("attention: slices of one packed projection, in and out, without copies") {
  const Index B = 2, T = 19, H = 3, d = 8, width = H * d;
  const Tensor packed = draw(1, {B, T, 3 * width}), doutput = transpose(draw(2, {B, T, H, d}), 1, 2);
  const auto head = [&](const Tensor& x, int part) {
    return transpose(reshape(slice(x, 2, part * width, (part + 1) * width), {B, T, H, d}), 1, 2);
  };
  const Tensor q = head(packed, 0), k = head(packed, 1), v = head(packed, 2);
  REQUIRE(q.storage() == packed.storage());
  const AttentionOptions options{.dropout = 0.1, .key = Key(3)};
  const AttentionOutput out = scaled_dot_product_attention(q, k, v, Mask::causal(), options);
  CHECK(equal_bits(out.output, scaled_dot_product_attention(q.clone(), k.clone(), v.clone(), Mask::causal(), options).output));
  CHECK(transpose(out.output, 1, 2).is_contiguous());
  const Gradients want = gradients_of(q, k, v, Mask::causal(), options, out, doutput);
  const Tensor dpacked = full(packed.shape(), NAN, DType::f64);
  const Into dq{head(dpacked, 0)}, dk{head(dpacked, 1)}, dv{head(dpacked, 2)};
  scaled_dot_product_attention_grad(q, k, v, Mask::causal(), options, out, doutput, {}, &dq, &dk, &dv);
  CHECK(equal_bits(dq.tensor, want.dq));
  CHECK(equal_bits(dk.tensor, want.dk));
  CHECK(equal_bits(dv.tensor, want.dv));

  // adding; columns that are not contiguous
  const Tensor turned = transpose(ones({B, H, d, T}, DType::f64)), sum = ones(k.shape(), DType::f64);
  const Into more_q{turned, true}, more_k{sum, true};
  scaled_dot_product_attention_grad(q, transpose(transpose(k).clone()), v, Mask::causal(), options, out, doutput, {}, &more_q, &more_k,
                                    nullptr);
  std::vector<double> q_plus = doubles(want.dq), k_plus = doubles(want.dk);
  for (double& x : q_plus) ++x;
  for (double& x : k_plus) ++x;
  CHECK(worst_absolute(turned, q_plus) < 1e-14);
  CHECK(worst_absolute(sum, k_plus) < 1e-14);

  // one tensor as q, k and v: three gradients into one buffer
  const AttentionOutput self = scaled_dot_product_attention(q, q, q, {}, options);
  const Gradients three = gradients_of(q, q, q, {}, options, self, doutput);
  const Tensor one = full(q.shape(), NAN, DType::f64);
  const Into first{one}, then{one, true};
  scaled_dot_product_attention_grad(q, q, q, {}, options, self, doutput, {}, &first, &then, &then);
  std::vector<double> total = doubles(three.dq);
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += doubles(three.dk)[i] + doubles(three.dv)[i];
  CHECK(worst_absolute(one, total) < 1e-14);
}

TEST_CASE("attention: equals its definition, dropout included") {
  for (const Index T : {4, 30, 300}) {
    const Tensor q = draw(1, {2, 2, T, 12}), k = draw(2, {2, 2, 150, 12}), v = draw(3, {2, 2, 150, 10});
    const Mask mask = Mask::lengths(tensor({150, 70}, DType::i32)) & Mask::causal(90);
    const AttentionOptions options{.dropout = 0.25, .key = Key(8), .weights = true};
    const AttentionOutput fused = scaled_dot_product_attention(q, k, v, mask, options);
    const AttentionOutput plain = scaled_dot_product_attention_by_definition(q, k, v, mask, options);
    CHECK(worst_absolute(fused.output, plain.output) < 1e-14);
    CHECK(worst_absolute(fused.weights, plain.weights) < 1e-14);
    CHECK(worst_absolute(fused.log_sum_exp, plain.log_sum_exp) < 1e-14);
    const Tensor bias = draw(4, {2, T, 150});
    fill_(bias[1][3], -INFINITY), fill_(slice(bias, 2, 2, 9), -INFINITY);
    const AttentionOutput biased = scaled_dot_product_attention(q, k, v, mask, options, bias),
                          small_steps = scaled_dot_product_attention_by_definition(q, k, v, mask, options, bias);
    CHECK(worst_absolute(biased.output, small_steps.output) < 1e-14);
    CHECK(worst_absolute(biased.weights, small_steps.weights) < 1e-14);
    CHECK(equal_bits(biased.log_sum_exp[1][1][3], full({}, -INFINITY, DType::f64)));
    CHECK(equal_bits(small_steps.log_sum_exp[1][1][3], full({}, -INFINITY, DType::f64)));
  }
}

TEST_CASE("attention: the same bits for any number of threads and on all targets with FMA") {
  for (const Index S : {50, 600}) {
    const Tensor q = draw(1, {5, 7, 40, 24}, DType::f32), k = draw(2, {5, 7, S, 24}, DType::f32), v = draw(3, {5, 7, S, 24}, DType::f32);
    const Tensor doutput = draw(4, {5, 7, 40, 24}, DType::f32), dweights = draw(5, {5, 7, 40, S}, DType::f32);
    const Mask mask = Mask::lengths(tensor({double(S), 49, 30, 0, 1}, DType::i32)) & Mask::causal(S - 45);
    const AttentionOptions options{.dropout = 0.1, .key = Key(8)};
    std::vector<Tensor> first;
    const auto run = [&] {
      const AttentionOutput out = scaled_dot_product_attention(q, k, v, mask, options);
      const Gradients d = gradients_of(q, k, v, mask, options, out, doutput),
                      more = gradients_of(q, k, v, mask, options, out, doutput, dweights);
      const AttentionOutput all = scaled_dot_product_attention(q, k, v, mask, {.weights = true}),
                            few = scaled_dot_product_attention(slice(q, 2, 0, 3), k, v, mask, {.weights = true});
      CHECK(equal_bits(few.output, slice(all.output, 2, 0, 3)));
      CHECK(equal_bits(few.weights, slice(all.weights, 2, 0, 3)));
      CHECK(equal_bits(few.log_sum_exp, slice(all.log_sum_exp, 2, 0, 3)));
      const std::vector<Tensor> results{out.output, out.log_sum_exp, d.dq, d.dk, d.dv, more.dq, more.dk, more.dv, few.output, few.weights};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) CHECK(equal_bits(results[i], first[i]));
    };
    for_threads(run);
    for_every_fma_target(run);
  }
}

TEST_CASE("attention: keys and values read by places have the bits of the same ones gathered") {
  const Index P = 4, B = 7, H = 3;
  Random random(Key(Seed{5}));
  for (DType dtype : {DType::f32, DType::f64})
    for (const Index T : {1, 3})
      for (const Index S : {0, 1, 15, 16, 37, 130})
        for (const bool runs : {false, true}) {              // a long shared past, or another place at each position
          const Index d = 20, e = 9;
          const Tensor q = draw(1, {B, H, T, d}, dtype), k = draw(2, {P, H, S + 3, d}, dtype)(all, all, Slice{2, S + 2}),
                       v = draw(3, {P, H, S, e}, dtype);
          const Tensor places = zeros({B, S}, DType::i64), gathered_k = empty({B, H, S, d}, dtype), gathered_v = empty({B, H, S, e}, dtype);
          for (Index b = 0; b < B; ++b)
            for (Index s = 0; s < S; ++s) {
              const Index place = runs && s % 11 ? places.data<std::int64_t>()[b * S + s - 1] : random.below(P);
              places.mutable_data<std::int64_t>()[b * S + s] = place;
              copy_into(gathered_k(b, all, s), k(place, all, s)), copy_into(gathered_v(b, all, s), v(place, all, s));
            }
          std::vector<std::int32_t> lengths;
          for (Index b = 0; b < B; ++b) lengths.push_back(std::int32_t(random.below(S + 1)));
          for (const Mask& mask : {Mask(), Mask::causal(std::max<Index>(S - T, 0)), Mask::lengths(tensor(lengths, {B}))})
            for_every_target([&] {
              const AttentionOutput one = scaled_dot_product_attention(q, k, v, mask, {.weights = true, .places = places});
              const AttentionOutput other = scaled_dot_product_attention(q, gathered_k, gathered_v, mask, {.weights = true});
              CHECK(equal_bits(one.output, other.output));
              CHECK(equal_bits(one.weights, other.weights));
              CHECK(equal_bits(one.log_sum_exp, other.log_sum_exp));
              const Tensor strided = zeros({B, 2 * S}, DType::i64)(all, Slice{0, Slice::kToEnd, 2});
              copy_into(strided, places);
              CHECK(equal_bits(scaled_dot_product_attention(q, k, v, mask, {.places = strided}).output, other.output));
            });
          CHECK(equal_bits(scaled_dot_product_attention_by_definition(q, k, v, {}, {.places = places}).output,
                           scaled_dot_product_attention_by_definition(q, gathered_k, gathered_v).output));
        }
}

TEST_CASE("attention: keys that stand turned have the bits of the same ones in rows") {
  const Index P = 3, B = 5, H = 4;
  Random random(Key(Seed{6}));
  for (DType dtype : {DType::f32, DType::f64})
    for (const Index d : {1, 20, 32})
      for (const Index S : {16, 37, 130, 300})
        for (const Index shared : {4, 2, 1}) {                // heads of keys
          const Tensor k = draw(2, {P, shared, S, d}, dtype), v = draw(3, {P, shared, S, 9}, dtype), places = empty({B, S}, DType::i64);
          for (Index b = 0; b < B; ++b)
            for (Index s = 0; s < S; ++s) places.mutable_data<std::int64_t>()[b * S + s] = s < S / 2 ? b % P : random.below(P);
          for (const Index turned : {Index(16), S / 16 * 16}) {
            const Tensor stored = empty({P, shared, S + 8, d}, dtype)(all, all, Slice{0, S});
            copy_into(stored, k);
            turn_keys_(stored, 0, turned);
            CHECK(equal_bits(keys_in_rows(stored, turned), k));
            for (const Index T : {1, 3, 6}) {
              const Tensor q = draw(1, {B, H, T, d}, dtype), own = slice(q, 0, 0, P);
              for (const Mask& mask : {Mask(), Mask::causal(std::max<Index>(S - T, 0)), Mask::window(20, 0, S - T)})
                for_every_target([&] {
                  const AttentionOptions of_turned{.weights = true, .places = places, .turned = turned};
                  const AttentionOutput by_places = scaled_dot_product_attention(q, stored, v, mask, of_turned),
                                        rows = scaled_dot_product_attention(q, k, v, mask, {.weights = true, .places = places});
                  CHECK(equal_bits(by_places.output, rows.output));
                  CHECK(equal_bits(by_places.weights, rows.weights));
                  CHECK(equal_bits(by_places.log_sum_exp, rows.log_sum_exp));
                  CHECK(equal_bits(scaled_dot_product_attention(own, stored, v, mask, {.turned = turned}).output,
                                   scaled_dot_product_attention(own, k, v, mask).output));
                });
              CHECK(equal_bits(scaled_dot_product_attention_by_definition(q, stored, v, {}, {.places = places, .turned = turned}).output,
                               scaled_dot_product_attention_by_definition(q, k, v, {}, {.places = places}).output));
            }
          }
        }
  const Tensor q = zeros({2, 3, 1, 5}), k = zeros({2, 3, 40, 5}), wide = zeros({2, 3, 40, 6})(all, all, all, Slice{0, 5});
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, k, {}, {.turned = 20}),
                       "scaled_dot_product_attention: keys stand turned 16 by 16: [0, 20) of k [2, 3, 40, 5]", ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, k, {}, {.turned = 48}), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, k, {}, {.turned = -16}), ShapeError);
  CHECK_THROWS_WITH_AS(
      scaled_dot_product_attention(q, wide, wide, {}, {.turned = 16}),
      "scaled_dot_product_attention: keys that stand turned need rows side by side: k [2, 3, 40, 5], strides [720, 240, 6, 1]", ShapeError);
  CHECK_THROWS_AS(turn_keys_(wide, 0, 16), ShapeError);
  CHECK_THROWS_AS(turn_keys_back_(k, 16, 0), ShapeError);
  CHECK_THROWS_AS(keys_in_rows(k, 17), ShapeError);
  const AttentionOutput out = scaled_dot_product_attention(q, k, k);
  CHECK_THROWS_WITH_AS(gradients_of(q, k, k, {}, {.turned = 16}, out, zeros(out.output.shape())),
                       "scaled_dot_product_attention_grad: there is no gradient where keys and values are read by places or stand turned; "
                       "gather_places and keys_in_rows first",
                       Error);
}

TEST_CASE("attention: empty sizes, wrong shapes and dtypes") {
  const Tensor q = zeros({2, 3, 4, 5}), k = zeros({2, 3, 6, 5}), v = zeros({2, 3, 6, 7});
  const AttentionOutput none = scaled_dot_product_attention(q, zeros({2, 3, 0, 5}), zeros({2, 3, 0, 7}), {}, {.weights = true});
  CHECK(doubles(none.output) == std::vector<double>(2 * 3 * 4 * 7, 0.0));
  CHECK(none.weights.shape() == Shape{2, 3, 4, 0});
  CHECK(doubles(none.log_sum_exp) == std::vector<double>(24, -INFINITY));
  CHECK(scaled_dot_product_attention(zeros({0, 3, 4, 5}), zeros({0, 3, 6, 5}), zeros({0, 3, 6, 7})).output.shape() == Shape{0, 3, 4, 7});
  for (const Index T : {1, 3, 4, 16, 70}) {                       // heads of width 0: every score is 0
    const AttentionOutput even = scaled_dot_product_attention(zeros({1, 4, T, 0}), zeros({1, 4, 3, 0}), ones({1, 4, 3, 8}));
    CHECK(worst_absolute(even.output, std::vector<double>(std::size_t(4 * T * 8), 1.0)) < 1e-6);
  }
  CHECK(scaled_dot_product_attention(zeros({2, 3, 0, 5}), k, v).output.shape() == Shape{2, 3, 0, 7});
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, zeros({2, 3, 6, 4}), v),
                       "scaled_dot_product_attention: widths of queries and keys differ: q [2, 3, 4, 5], k [2, 3, 6, 4]", ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, zeros({2, 3, 5, 7})), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, zeros({2, 1, 6, 5}), v), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q[0], k[0], v[0]), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, to(v, DType::f64)), DTypeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, v, Mask::lengths(tensor({6}, DType::i32))), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, v, Mask::allowed(ones({5, 6}, DType::u8))), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, v, {}, {.dropout = 1.1}), Error);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, v, {}, {}, zeros({4, 5})),
                       "scaled_dot_product_attention: bias does not broadcast to the scores: bias [4, 5], scores [2, 3, 4, 6]", ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, v, {}, {}, zeros({1, 2, 3, 4, 6})), ShapeError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, v, {}, {}, zeros({6}, DType::f64)),
                       "scaled_dot_product_attention: dtypes differ: bias f64, q f32", DTypeError);
  const AttentionOutput out = scaled_dot_product_attention(q, k, v);
  CHECK_THROWS_WITH_AS(gradients_of(q, k, v, {}, {}, out, {}, zeros({2, 3, 4, 5})),
                       "scaled_dot_product_attention_grad: dweights has another shape: dweights [2, 3, 4, 5], expected [2, 3, 4, 6]",
                       ShapeError);
}

TEST_CASE("attention: rule against central differences, also where q, k and v are slices of one projection or one value") {
  const Index B = 2, T = 5, H = 2, d = 3;
  const Tensor q = draw(1, {B, H, T, d}), k = draw(2, {B, H, 7, d}), v = draw(3, {B, H, 7, 4}), packed = draw(4, {B, T, 3 * H * d});
  const Mask lengths = Mask::lengths(tensor({7, 0}, DType::i32));
  CHECK(
      check_gradient([&](std::span<const Variable> x) { return scaled_dot_product_attention(x[0], x[1], x[2], lengths).output; }, {q, k, v})
          .holds(1e-8));
  CHECK(check_gradient([&](std::span<const Variable> x) { return scaled_dot_product_attention(x[0], x[0], x[0], Mask::causal()).output; },
                       {q})
            .holds(1e-8));
  const Tensor some = draw(5, {B, H, T, 7});
  const auto with_weights = [&](std::span<const Variable> x) {
    const AttentionVariable y = scaled_dot_product_attention(x[0], x[1], x[2], lengths, {.weights = true});
    return concat({sum(y.weights * constant(some), {3}, true), y.output}, 3);
  };
  CHECK(check_gradient(with_weights, {q, k, v}).holds(1e-8));
  const auto weights_alone = [&](std::span<const Variable> x) {
    return scaled_dot_product_attention(x[0], x[1], x[2], lengths, {.weights = true}).weights * constant(some) + 0 * sum(x[2]);
  };
  CHECK(check_gradient(weights_alone, {q, k, v}).holds(1e-8));
  const auto self = [&](std::span<const Variable> x) {
    const auto parts = split(x[0], 3, 2);
    const auto heads = [&](int i) { return transpose(reshape(parts[std::size_t(i)], {B, T, H, d}), 1, 2); };
    return reshape(transpose(scaled_dot_product_attention(heads(0), heads(1), heads(2), Mask::causal()).output, 1, 2), {B, T, H * d});
  };
  CHECK(check_gradient(self, {packed}).holds(1e-8));
}

TEST_CASE("attention: dropout acts under a training tape only; a gradient that is not wanted costs nothing") {
  const Tensor q = draw(1, {2, 2, 9, 4}), k = draw(2, {2, 2, 8, 4}), v = draw(3, {2, 2, 8, 4}), dy = draw(4, {2, 2, 9, 4});
  const Variable leaf = variable(k);
  const AttentionOptions options{.dropout = 0.5};
  const Tensor still = scaled_dot_product_attention(constant(q), leaf, constant(v), {}, options).output.value();
  CHECK(equal_bits(still, scaled_dot_product_attention(q, k, v).output));
  Tape tape(Key(4));
  const Variable out = scaled_dot_product_attention(constant(q), leaf, constant(v), {}, options).output;
  const AttentionOptions drawn{.dropout = 0.5, .key = Key(4) / "" / 0};
  CHECK(equal_bits(out.value(), scaled_dot_product_attention(q, k, v, {}, drawn).output));
  tape.backward({&out, 1}, {&dy, 1});
  CHECK(equal_bits(leaf.grad(), gradients_of(q, k, v, {}, drawn, scaled_dot_product_attention(q, k, v, {}, drawn), dy).dk));
}

TEST_CASE("attention: fused = definition in value and gradient, dropout and mask included") {
  const Tensor q = draw(1, {2, 2, 21, 6}), k = draw(2, {2, 2, 34, 6}), v = draw(3, {2, 2, 34, 5});
  const Mask mask = Mask::lengths(tensor({34, 0}, DType::i32)) & Mask::window(9, 12) & Mask::allowed(bernoulli(Key(1), {21, 34}, 0.7));
  const AttentionOptions options{.dropout = 0.3};
  const Played a = play([&](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2], mask, options).output; }, {q, k, v});
  const Played b =
      play([&](auto x) { return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], mask, options).output; }, {q, k, v});
  CHECK(worst_absolute(a.value, b.value) < 1e-14);
  for (std::size_t i = 0; i < 3; ++i) CHECK(worst_absolute(a.gradients[i], b.gradients[i]) < 1e-13);
}

namespace {

// Z = q kᵀ / √dk, P = softmax over the s that are allowed, O = P v, by loops
template <class Allowed> reference::Function attended(Allowed allowed, double given_scale = 0) {
  return [=](const reference::Arrays& x) {
    const reference::Array &q = x[0], &k = x[1], &v = x[2];                       // x[3]: a bias [B, 1, T, S], of some
    const double scale = given_scale > 0 ? given_scale : 1 / std::sqrt(double(q.shape[3]));
    const Index group = q.shape[1] / k.shape[1];
    return reference::make({q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, [&](const reference::Position& p) {
      double total = 0, sum = 0;
      for (Index s = 0; s < k.shape[2]; ++s) {
        if (!allowed(p[0], p[1], p[2], s)) continue;
        double score = 0;
        for (Index i = 0; i < q.shape[3]; ++i) score += q({p[0], p[1], p[2], i}) * k({p[0], p[1] / group, s, i});
        const double e = std::exp(scale * score + (x.size() > 3 ? x[3]({p[0], 0, p[2], s}) : 0));
        total += e;
        sum += e * v({p[0], p[1] / group, s, p[3]});
      }
      return total == 0 ? 0 : sum / total;
    });
  };
}

// P itself, s <= t + 1: O for values that are the rows of the identity
reference::Array looked_at(const reference::Arrays& x) {
  const Index S = x[1].shape[2];
  const auto identity =
      reference::make({x[1].shape[0], x[1].shape[1], S, S}, [](const reference::Position& p) { return p[2] == p[3] ? 1.0 : 0.0; });
  return attended([](Index, Index, Index t, Index s) { return s <= t + 1; })({x[0], x[1], identity});
}

}  // namespace

static const InTable rows{
    {.name = "scaled_dot_product_attention", .reference = attended([](Index, Index, Index, Index) { return true; }),
     .definition = [](std::span<const Variable> x) { return scaled_dot_product_attention_by_definition(x[0], x[1], x[2]).output; },
     .wrong = {{{{2, 2, 3, 4}, {2, 2, 5, 3}, {2, 2, 5, 4}}}}, .ulp = 60},
    {.name = "scaled_dot_product_attention masked",
     .reference = attended([](Index b, Index, Index t, Index s) { return s <= t + 1 && s < (b == 0 ? 2 : 5); }),
     .definition = [](std::span<const Variable> x) {
       const Mask mask = Mask::causal(1) & Mask::lengths(tensor({2, 5}, DType::i32));
       return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], mask).output;
     }, .ulp = 60},
    {.name = "scaled_dot_product_attention sliding",
     .reference = attended([](Index b, Index h, Index t, Index s) {
       return s < (b == 0 ? 2 : 5) && (s == 0 || std::abs(s - (t + 2)) == (h == 0 ? 1 : 2) || s == t + 2);
     }),
     .definition = [](std::span<const Variable> x) {
       const Mask mask = Mask::sliding({.left = 1, .right = 1, .offset = 2, .dilation = tensor({1, 2}, DType::i32),
                                        .global = 1}) & Mask::lengths(tensor({2, 5}, DType::i32));
       return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], mask).output;
     }, .ulp = 60},
    {.name = "scaled_dot_product_attention bias", .reference = attended([](Index, Index, Index t, Index s) { return s <= t + 1; }, 0.7),
     .definition = [](std::span<const Variable> x) {
       return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], Mask::causal(1), {.scale = 0.7}, x[3]).output;
     }, .ulp = 60},
    {.name = "scaled_dot_product_attention groups", .reference = attended([](Index, Index, Index t, Index s) { return s <= t + 1; }),
     .definition = [](std::span<const Variable> x) {
       return scaled_dot_product_attention_by_definition(x[0], x[1], x[2], Mask::causal(1)).output;
     },
     .wrong = {{{{2, 4, 3, 4}, {2, 3, 5, 4}, {2, 3, 5, 4}}}, {{{2, 4, 3, 4}, {2, 8, 5, 4}, {2, 8, 5, 4}}}}, .ulp = 60},
    {"with_heads", [](const reference::Arrays& x) {
       return reference::make({2, 6, 2, x[0].shape[3]}, [&](const reference::Position& p) { return x[0]({p[0], p[1] / 2, p[2], p[3]}); });
     }},
    {.name = "scaled_dot_product_attention weights", .reference = looked_at,
     .definition = [](std::span<const Variable> x) {
       return scaled_dot_product_attention_by_definition(x[0], x[1], x[1], Mask::causal(1), {.weights = true}).weights;
     }, .ulp = 60},
};
