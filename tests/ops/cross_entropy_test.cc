// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/error.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

namespace {

Tensor draw(int key, const Shape& shape, DType dtype = DType::f64) { return normal(Key(55, key), shape, 0, 2, dtype); }

// q of each form of smoothing
std::vector<long double> masses(Index V, Index target, const CrossEntropyOptions& o) {
  const long double e = o.label_smoothing;
  const bool no_pad = o.pad >= 0 && !(o.smoothing == Smoothing::uniform && o.smooth_pad);
  std::vector<long double> q;
  if (o.smoothing == Smoothing::uniform) q.assign(std::size_t(V), e / (long double)(V - no_pad));
  if (o.smoothing == Smoothing::others) q.assign(std::size_t(V), e / (long double)(V - 1));
  if (o.smoothing == Smoothing::others_not_pad) q.assign(std::size_t(V), e / (long double)(V - 1 - no_pad));
  q[std::size_t(target)] = 1 - e + (o.smoothing == Smoothing::uniform ? e / (long double)(V - no_pad) : 0);
  if (no_pad && o.smoothing != Smoothing::others) q[std::size_t(o.pad)] = 0;
  return q;
}

struct Reference { std::vector<double> losses, dlogits; Index count = 0; double weight = 0; };
Reference by_formulas(const Tensor& logits, const std::vector<Index>& targets, const CrossEntropyOptions& o) {
  const auto z = doubles(logits);
  const Index V = logits.size(-1);
  const auto w = o.weight.defined() ? doubles(o.weight) : std::vector<double>(std::size_t(V), 1);
  Reference out{std::vector<double>(targets.size()), std::vector<double>(z.size())};
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == o.ignore_index || (o.pad >= 0 && targets[row] == o.pad)) continue;
    ++out.count;
    const std::vector<long double> q = masses(V, targets[row], o);
    CHECK(double(std::accumulate(q.begin(), q.end(), 0.0L)) == doctest::Approx(1).epsilon(1e-15));
    const double* x = z.data() + row * std::size_t(V);
    long double sum = 0, loss = 0, all = 0;
    for (Index k = 0; k < V; ++k) sum += std::exp((long double)x[k]);
    for (Index k = 0; k < V; ++k) all += w[std::size_t(k)] * q[std::size_t(k)];
    for (Index k = 0; k < V; ++k) {
      const long double mass = w[std::size_t(k)] * q[std::size_t(k)];
      if (mass > 0) loss += mass * (std::log(sum) - x[k] + (o.subtract_entropy ? std::log(mass) : 0));
      out.dlogits[row * std::size_t(V) + std::size_t(k)] = double(all * std::exp((long double)x[k]) / sum - mass);
    }
    out.losses[row] = double(loss);
    out.weight += w[std::size_t(targets[row])];
  }
  return out;
}

std::vector<CrossEntropyOptions> every_form() {
  std::vector<CrossEntropyOptions> forms{{}};
  for (Smoothing smoothing : {Smoothing::uniform, Smoothing::others, Smoothing::others_not_pad})
    for (Index pad : {-1, 0, 2})
      for (bool smooth_pad : {false, true})
        forms.push_back({.label_smoothing = 0.3, .smoothing = smoothing, .pad = pad, .smooth_pad = smooth_pad});
  forms.push_back({.label_smoothing = 1});
  forms.push_back({.label_smoothing = 0.1, .subtract_entropy = true});
  forms.push_back({.label_smoothing = 0.3, .smoothing = Smoothing::others_not_pad, .pad = 2, .subtract_entropy = true});
  forms.push_back({.ignore_index = 1, .pad = 2});
  return forms;
}

}  // namespace

TEST_CASE("cross_entropy: value and gradient of every form of smoothing, every target") {
  for (Index V : {4, 7, 16, 17, 50, 1000})
    for (CrossEntropyOptions options : every_form())
      for (const int form : {0, 1, 2, 3}) {
        const DType dtype = form % 2 ? DType::f64 : DType::f32;
        const bool weighted = form >= 2;
        if (weighted && options.subtract_entropy) continue;
        options.weight = weighted ? uniform(Key(4), {V}, 0, 2, dtype) : Tensor();
        const Tensor logits = draw(1, {9, V}, dtype);
        std::vector<Index> labels = randint(Key(2), {9}, 0, V).to_vector<Index>();
        labels[0] = options.ignore_index, labels[1] = 2, labels[2] = V - 1, labels[3] = 0;
        const Tensor targets = tensor(labels, {9}), dlosses = draw(3, {9}, dtype);
        Reference want = by_formulas(logits, labels, options);
        for (std::size_t i = 0; i < want.dlogits.size(); ++i) want.dlogits[i] *= doubles(dlosses)[i / std::size_t(V)];
        const double eps = dtype == DType::f32 ? 1.2e-7 : 2.3e-16;
        for_every_target([&] {
          CAPTURE(V);
          const CrossEntropy out = cross_entropy(logits, targets, options);
          CHECK(out.count == want.count);
          CHECK(out.weight == doctest::Approx(want.weight).epsilon(1e-14));
          CHECK(worst_absolute(out.losses, want.losses) < 60 * eps);             // numbers up to 15, a few roundings each
          CHECK(out.total == doctest::Approx(std::accumulate(want.losses.begin(), want.losses.end(), 0.0)).epsilon(60 * eps));
          const Tensor d = full({9, V}, NAN, dtype);
          cross_entropy_grad(logits, targets, out.log_sum_exp, dlosses, options, {d});
          CHECK(worst_absolute(d, want.dlogits) < 40 * eps);
          cross_entropy_grad(logits, targets, out.log_sum_exp, dlosses, options, {d, true});
          for (double& x : want.dlogits) x *= 2;
          CHECK(worst_absolute(d, want.dlogits) < 80 * eps);
          for (double& x : want.dlogits) x /= 2;
        });
      }
}

TEST_CASE("cross_entropy: rows of few classes are the same alone, among others and with any number of threads") {
  const Index N = 150;
  for (const Index V : {1, 2, 8, 10, 16}) {
    CAPTURE(V);
    const Tensor logits = draw(1, {N, V}, DType::f32), dlosses = draw(3, {N}, DType::f32), targets = randint(Key(2), {N}, 0, V);
    for (Index i = 0; i < N; i += 7) targets.mutable_data<Index>()[i] = -100;
    const CrossEntropyOptions options{.label_smoothing = 0.1};
    const CrossEntropy whole = cross_entropy(logits, targets, options);
    const Tensor gradient = empty({N, V});
    cross_entropy_grad(logits, targets, whole.log_sum_exp, dlosses, options, {gradient});
    for_threads([&] {
      CHECK(equal_bits(cross_entropy(logits, targets, options).losses, whole.losses));
      const Tensor again = empty({N, V});
      cross_entropy_grad(logits, targets, whole.log_sum_exp, dlosses, options, {again});
      CHECK(equal_bits(again, gradient));
    });
    for (Index i = 0; i < N; ++i) {
      const Slice row{i, i + 1};
      const CrossEntropy alone = cross_entropy(logits(row), targets(row), options);
      CHECK(equal_bits(alone.losses, whole.losses(row)));
      const Tensor d = empty({1, V});
      cross_entropy_grad(logits(row), targets(row), alone.log_sum_exp, dlosses(row), options, {d});
      CHECK(equal_bits(d, gradient(row)));
    }
    for (Index i = 0; i < N; i += 7) {
      CHECK(whole.losses[i].item() == 0);
      CHECK(equal_bits(gradient[i], zeros({V})));
    }
  }
}

TEST_CASE("cross_entropy: a number by hand, any leading shape, i32 targets, strides") {
  // F.cross_entropy(tensor([[1., 2., 3.], [0., 0., 0.]]), tensor([2, 1]), label_smoothing=0.1): (0.9 0.407606 + 0.1 1.407606 + log 3) / 2
  const Tensor logits = tensor({{1, 2, 3}, {0, 0, 0}}, DType::f64);
  const CrossEntropy out = cross_entropy(logits, tensor({2, 1}, DType::i32), {.label_smoothing = 0.1});
  CHECK(out.total / 2 == doctest::Approx(0.8031091265562451).epsilon(1e-15));
  const Tensor x = draw(1, {2, 3, 11}), t = randint(Key(1), {2, 3}, 0, 11);
  const CrossEntropy shaped = cross_entropy(x, t), flat = cross_entropy(reshape(x, {6, 11}), reshape(t, {6}));
  CHECK(shaped.losses.shape() == Shape{2, 3});
  CHECK(equal_bits(reshape(shaped.losses, {6}), flat.losses));
  CHECK(equal_bits(cross_entropy(transpose(transpose(x).clone()), transpose(transpose(t).clone())).losses, shaped.losses));
  CHECK(cross_entropy(x[0][0], t[0][0]).losses.item() == shaped.losses[0][0].item());
}

TEST_CASE("cross_entropy: edge values and wrong targets") {
  const Tensor logits = draw(1, {2, 3});
  const CrossEntropy ignored = cross_entropy(logits, tensor({-100, -100}, DType::i64));
  CHECK(ignored.count == 0);
  CHECK(ignored.total == 0);
  CHECK(cross_entropy(zeros({0, 3}), zeros({0}, DType::i64)).total == 0);
  CHECK(cross_entropy(constant(logits), tensor({-100, -100}, DType::i64)).value().item() == 0);
  CHECK(std::isnan(
      cross_entropy(constant(logits), tensor({-100, -100}, DType::i64), {.empty = CrossEntropyOptions::Empty::nan}).value().item()));
  CHECK_THROWS_WITH_AS(cross_entropy(logits, tensor({0, 3}, DType::i64)), "cross_entropy: target 3 at position [1] is not in [0, 3)",
                       IndexError);
  CHECK_THROWS_WITH_AS(cross_entropy(reshape(logits, {1, 2, 3}), tensor({{0, -1}}, DType::i32)),
                       "cross_entropy: target -1 at position [0, 1] is not in [0, 3)", IndexError);
  CHECK_THROWS_AS(cross_entropy(logits, tensor({0}, DType::i64)), ShapeError);
  CHECK_THROWS_AS(cross_entropy(logits, tensor({0, 1}, DType::f64)), DTypeError);
  CHECK_THROWS_AS(cross_entropy(logits, tensor({0, 1}, DType::i64), {.label_smoothing = 1.5}), Error);
  CHECK_THROWS_AS(cross_entropy(logits, tensor({0, 1}, DType::i64), {.pad = 3}), IndexError);
  // logits of -inf: no loss where they carry no mass, infinite where they do; extremes do not overflow
  const Tensor low = tensor({{-INFINITY, 1, 2}, {1e4, -1e4, 0}}, DType::f64);
  for_every_target([&] {
    CHECK(cross_entropy(low, tensor({1, 0}, DType::i64)).losses[0].item() == doctest::Approx(std::log(1 + std::exp(1.0))).epsilon(1e-15));
    CHECK(cross_entropy(low, tensor({1, 0}, DType::i64)).losses[1].item() == 0);
    CHECK(cross_entropy(low, tensor({1, 1}, DType::i64)).losses[1].item() == 2e4);
    CHECK(cross_entropy(low, tensor({0, 0}, DType::i64)).losses[0].item() == INFINITY);
    CHECK(std::isfinite(cross_entropy(low, tensor({1, 1}, DType::i64), {.label_smoothing = 0.1, .pad = 0}).losses[0].item()));
    CHECK(std::isnan(cross_entropy(full({1, 3}, NAN), tensor({0}, DType::i64)).total));
    CHECK(std::isnan(cross_entropy(full({1, 3}, -INFINITY), tensor({0}, DType::i64)).total));
  });
}

TEST_CASE("cross_entropy: logits of any size keep the accuracy of their differences") {
  const double p = 1 / (2 + std::exp(-1.0));
  for (const double size : {1e4, 1e6, 1e7, -1e7}) {
    const Variable z = variable(tensor({{size, size, size - 1}})), x = variable(tensor({{1}})),
                   w = constant(tensor({{size}, {size}, {size - 1}}));
    const Tensor target = tensor({0}, DType::i64);
    Tape tape;
    tape.backward(cross_entropy(z, target) + linear_cross_entropy(x, w, {}, target));
    CHECK(worst_absolute(z.grad(), std::vector<double>{p - 1, p, 1 - 2 * p}) < 2e-7);
    CHECK(std::abs(x.grad().item() - (size * (2 * p - 1) + (size - 1) * (1 - 2 * p))) < 3e-7 * std::abs(size));
  }
}

TEST_CASE("linear_cross_entropy: equals matmul and cross_entropy, value and gradients, chunks and ignored rows") {
  // V = 5000 makes three chunks of 256 rows; bits of the products do not depend on the chunks
  for (const std::array<Index, 3>& sizes : {std::array<Index, 3>{5, 7, 3}, {600, 5000, 12}, {1, 40, 16}, {70, 33, 20}})
    for (bool with_bias : {false, true})
      for (CrossEntropyOptions options : {CrossEntropyOptions{}, CrossEntropyOptions{.label_smoothing = 0.1, .pad = 0}}) {
        const Index N = sizes[0], V = sizes[1], d = sizes[2];
        if (N != 70) options.weight = uniform(Key(5), {V}, 0, 2, DType::f64);
        const Tensor x = draw(1, {N, d}), w = draw(2, {V, d}), b = with_bias ? draw(3, {V}) : Tensor();
        const Tensor targets = randint(Key(4), {N}, 0, V);
        if (N > 3) targets.mutable_data<Index>()[3] = -100, targets.mutable_data<Index>()[1] = 0;
        const Tensor logits = matmul(x, transpose(w));
        for (Index i = 0; with_bias && i < N; ++i)
          for (Index k = 0; k < V; ++k) logits.mutable_data<double>()[i * V + k] += b.data<double>()[k];
        const CrossEntropy plain = cross_entropy(logits, targets, options);
        const Tensor dlogits = empty({N, V}, DType::f64);
        cross_entropy_grad(logits, targets, plain.log_sum_exp, ones({N}, DType::f64), options, {dlogits});
        const LinearCrossEntropy out = linear_cross_entropy(x, w, b, targets, options, {true, true, with_bias});
        CAPTURE(N);
        CHECK(out.count == plain.count);
        CHECK(equal_bits(out.losses, plain.losses));
        CHECK(out.total == plain.total);
        CHECK(worst_absolute(out.dx, matmul(dlogits, w)) < 1e-13);
        CHECK(worst_absolute(out.dweight, matmul(transpose(dlogits), x)) < 1e-12);
        if (with_bias) CHECK(worst_absolute(out.dbias, matmul(ones({N}, DType::f64), dlogits)) < 1e-12);
        const LinearCrossEntropy value = linear_cross_entropy(x, w, b, targets, options);
        CHECK(equal_bits(value.losses, out.losses));
        CHECK(!value.dx.defined());
        CHECK(equal_bits(linear_cross_entropy(x, w, b, targets, options, {.dweight = true}).dweight, out.dweight));
      }
}

TEST_CASE("linear_cross_entropy: bits for threads and FMA targets; rows that are ignored may hold anything; wrong shapes") {
  const Tensor x = draw(1, {300, 24}, DType::f32), w = draw(2, {5000, 24}, DType::f32), b = draw(3, {5000}, DType::f32);
  const Tensor targets = randint(Key(4), {300}, 0, 5000);
  for (Index i = 0; i < 300; i += 7) targets.mutable_data<Index>()[i] = -100;
  const LinearCrossEntropyWants wants{true, true, true};
  const LinearCrossEntropy first = linear_cross_entropy(x, w, b, targets, {.label_smoothing = 0.1}, wants);
  const auto run = [&] {
    const LinearCrossEntropy out = linear_cross_entropy(x, w, b, targets, {.label_smoothing = 0.1}, wants);
    CHECK(out.total == first.total);
    CHECK(equal_bits(out.dx, first.dx));
    CHECK(equal_bits(out.dweight, first.dweight));
    CHECK(equal_bits(out.dbias, first.dbias));
  };
  for_threads(run);
  for_every_fma_target(run);
  for (Index i = 0; i < 300; i += 7) fill_(x[i], NAN);
  run();
  const LinearCrossEntropy none = linear_cross_entropy(x, w, b, full({300}, -100, DType::i64), {}, wants);
  CHECK(none.total == 0);
  CHECK(worst_absolute(none.dx, std::vector<double>(300 * 24)) == 0);
  CHECK(worst_absolute(none.dweight, std::vector<double>(5000 * 24)) == 0);
  CHECK_THROWS_AS(linear_cross_entropy(x, transpose(w), {}, targets), ShapeError);
  CHECK_THROWS_AS(linear_cross_entropy(x, w, x, targets), ShapeError);
  CHECK_THROWS_AS(linear_cross_entropy(x, to(w, DType::f64), {}, targets), DTypeError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(x, w, {}, full({300}, 5000, DType::i64)),
                       "linear_cross_entropy: target 5000 at position [0] is not in [0, 5000)", IndexError);
}

TEST_CASE("cross_entropy: rules against central differences") {
  const Tensor x = draw(1, {4, 3}), w = draw(2, {6, 3}), b = draw(3, {6}), targets = tensor({5, 0, -100, 2}, DType::i64);
  const CrossEntropyOptions options{.label_smoothing = 0.2, .pad = 0};
  CrossEntropyOptions weighted = options;
  weighted.weight = uniform(Key(6), {12}, 0, 2, DType::f64)(Slice{.step = 2});
  for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
    for (const auto& o : {options, weighted})
      CHECK(
          check_gradient([&](auto v) { return cross_entropy(matmul(v[0], transpose(v[1])), targets, o, reduction); }, {x, w}).holds(1e-8));
  {
    Tape tape;
    const Variable loss = cross_entropy(variable(x), tensor({0, 1, 2, 0}, DType::i64), {.weight = b(Slice{0, 3})});
    const Tensor kept = b.clone();
    fill_(b, 1);
    CHECK_THROWS_WITH_AS(tape.backward(loss), doctest::Contains("cross_entropy: a value saved for the gradient was overwritten"), Error);
    copy_into(b, kept);
  }
  for (const auto& o : {options, weighted})
    CHECK(check_gradient([&](auto v) { return linear_cross_entropy(v[0], v[1], v[2], targets, o); }, {x, w, b}).holds(1e-8));
  CHECK(check_gradient([&](auto v) { return linear_cross_entropy(v[0], v[1], {}, targets); }, {x, w}).holds(1e-8));
  CHECK(check_gradient([&](auto v) { return linear_cross_entropy(v[0], v[0], {}, tensor({3, 0, 1, 2}, DType::i64)); }, {x}).holds(1e-8));
}

TEST_CASE("linear_cross_entropy: fused = definition in value and gradient") {
  const Tensor x = draw(1, {40, 9}), w = draw(2, {30, 9}), b = draw(3, {30}), targets = randint(Key(4), {40}, 0, 30);
  const CrossEntropyOptions options{.label_smoothing = 0.1, .pad = 1};
  const Played fused = play([&](auto v) { return linear_cross_entropy(v[0], v[1], v[2], targets, options) * 0.37; }, {x, w, b});
  const Played plain =
      play([&](auto v) { return linear_cross_entropy_by_definition(v[0], v[1], v[2], targets, options) * 0.37; }, {x, w, b});
  CHECK(fused.value.item() == doctest::Approx(plain.value.item()).epsilon(1e-14));
  for (std::size_t i = 0; i < 3; ++i) CHECK(worst_absolute(fused.gradients[i], plain.gradients[i]) < 1e-12);
}

namespace {

// A share in (0, 1) of the words and what comes from elsewhere, nothing for every third row;
// the words of every fifth have no share, as log.
struct Shares {
  Tensor log_share, other;
  explicit Shares(Index N, DType dtype = DType::f64)
      : log_share(log(uniform(Key(7), {N}, 0.1, 0.9, dtype))), other(uniform(Key(8), {N}, 0.1, 0.9, dtype)) {
    for (Index i = 0; i < N; i += 3) fill_(other[i], 0);
    for (Index i = 1; i < N; i += 15) fill_(log_share[i], -INFINITY);
  }
};

}  // namespace

TEST_CASE(
    "linear_mixture_cross_entropy: fused = definition in value and gradient, with every smoothing, weights, ignored rows and chunks") {
  for (const auto& sizes : {std::pair<Index, Index>{1, 4}, {3, 1}, {3, 2}, {40, 30}, {600, 5000}})
    for (const Smoothing kind : {Smoothing::uniform, Smoothing::others, Smoothing::others_not_pad})
      for (const bool weighted : {false, true})
        for (const double smoothing : {0.0, 0.1}) {
          const Index N = sizes.first, V = sizes.second;
          CAPTURE(V);
          const Tensor x = draw(1, {N, 5}) * 0.05, w = draw(2, {V, 5}), b = draw(3, {V}) * 0.1, targets = randint(Key(4), {N}, 0, V);
          if (N > 3) targets.mutable_data<Index>()[3] = -100, targets.mutable_data<Index>()[2] = 1;
          const Shares shares(N);
          CrossEntropyOptions options{.label_smoothing = smoothing, .smoothing = kind, .pad = V > 1 ? 1 : -1};
          if (weighted) options.weight = uniform(Key(5), {V}, 0, 2, DType::f64);
          for (const bool beside : {false, true}) {
            std::vector<Tensor> inputs{x, w, b, shares.log_share, shares.other};
            if (beside) inputs.push_back(draw(6, {N}) + 3);
            const auto rest = [&](auto v) { return beside ? v[5] : Variable(); };
            const auto of = [&](auto loss) {
              return play([&](auto v) { return loss(v[0], v[1], v[2], v[3], v[4], targets, options, rest(v)) * 0.37; }, inputs);
            };
            const Played fused = of(linear_mixture_cross_entropy), plain = of(linear_mixture_cross_entropy_by_definition);
            CAPTURE(N);
            CHECK(fused.value.item() == doctest::Approx(plain.value.item()).epsilon(1e-13));
            for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(worst_absolute(fused.gradients[i], plain.gradients[i]) < 1e-10);
          }
        }
}

TEST_CASE(
    "linear_mixture_cross_entropy: all of the words' share is the plain loss; a label beyond them costs what it gets from elsewhere") {
  const Tensor x = draw(1, {3, 5}, DType::f32), w = draw(2, {7, 5}, DType::f32), targets = tensor({0, 6, 2}, DType::i64);
  const auto losses = [&](double share, double other, const CrossEntropyOptions& options = {}) {
    const Mixture mixture{full({3}, std::log(share), DType::f32), full({3}, other, DType::f32)};
    return linear_cross_entropy(x, w, {}, targets, options, {}, mixture);
  };
  const LinearCrossEntropy plain = linear_cross_entropy(x, w, {}, targets);
  CHECK(worst_absolute(losses(1, 0).losses, plain.losses) < 1e-6);
  CHECK(worst_absolute(losses(0, 0.25).losses, std::vector<double>(3, std::log(4))) < 1e-6);
  CHECK(worst_absolute(losses(0, 0.25).dother, std::vector<double>(3, -4)) < 1e-5);
  CHECK(worst_absolute(losses(0, 0.25).dlog_share, std::vector<double>(3)) == 0);
  const LinearCrossEntropy least = losses(0, 1e-20);                                        // what no weight may make infinite
  CHECK(worst_absolute(least.losses, std::vector<double>(3, 20 * std::log(10))) < 1e-4);
  for (const Tensor& number : least.dother) CHECK(std::isfinite(number.item()));
  const Tensor far = x * 1e3;                                                              // a label of probability e^-1000 or less
  const LinearCrossEntropy lost =
      linear_cross_entropy(far, w, {}, targets, {}, {true, true, false}, {full({3}, -0.5, DType::f32), zeros({3})});
  CHECK(worst_absolute(lost.losses, linear_cross_entropy(far, w, {}, targets).losses + 0.5) < 1e-3);
  for (const Tensor& gradient : {lost.dx, lost.dweight, lost.dlog_share, lost.dother})
    for (const float number : gradient.to_vector<float>()) CHECK(std::isfinite(number));
}

TEST_CASE("linear_mixture_cross_entropy: a rest is more of one softmax, however far apart they are") {
  const Tensor x = draw(1, {3, 5}, DType::f32), w = draw(2, {7, 5}, DType::f32), b = draw(3, {7}, DType::f32),
               targets = tensor({0, 6, 2}, DType::i64);
  for (const float rest : {-1e4f, -200.0f, -3.0f, 0.0f, 2.0f, 200.0f, 1e4f}) {
    CAPTURE(rest);
    const Mixture mixture{zeros({3}), tensor({0.5f, 0.0f, 1.0f}), full({3}, rest, DType::f32)};
    const LinearCrossEntropy out = linear_cross_entropy(x, w, b, targets, {}, {true, true, true}, mixture);
    for (Index n = 0; n < 3; ++n) {
      const Tensor z = to(matmul(x, transpose(w)) + b, DType::f64)[n];
      const double whole = logsumexp(z).item(), label = z[targets[n].item()].item(), share = mixture.other[n].item();
      const double all = std::max(whole, double(rest)) + std::log1p(std::exp(-std::abs(whole - rest))), copied = rest + std::log(share);
      const double loss = all - std::max(label, copied) - std::log1p(std::exp(-std::abs(label - copied)));
      CHECK(out.losses[n].item() == doctest::Approx(loss).epsilon(1e-5));
      CHECK(out.drest[n].item() ==
            doctest::Approx(std::exp(rest - all) - std::exp(std::min(copied, 1e9) - (all - loss))).epsilon(1e-5).scale(1));
    }
    for (const Tensor& gradient : {out.dx, out.dweight, out.dbias, out.dlog_share, out.dother, out.drest})
      for (const float number : gradient.to_vector<float>()) CHECK(std::isfinite(number));
  }
}

TEST_CASE("linear_mixture_cross_entropy: bits for threads and FMA targets; wrong shapes") {
  const Tensor x = draw(1, {300, 24}, DType::f32), w = draw(2, {5000, 24}, DType::f32), b = draw(3, {5000}, DType::f32),
               targets = randint(Key(4), {300}, 0, 5000);
  const Shares shares(300, DType::f32);
  const Mixture mixture{shares.log_share, shares.other};
  const LinearCrossEntropyWants wants{true, true, true};
  const LinearCrossEntropy first = linear_cross_entropy(x, w, b, targets, {.label_smoothing = 0.1}, wants, mixture);
  const auto run = [&] {
    const LinearCrossEntropy out = linear_cross_entropy(x, w, b, targets, {.label_smoothing = 0.1}, wants, mixture);
    CHECK(out.total == first.total);
    for (const auto part : {&LinearCrossEntropy::dx, &LinearCrossEntropy::dweight, &LinearCrossEntropy::dbias,
                            &LinearCrossEntropy::dlog_share, &LinearCrossEntropy::dother})
      CHECK(equal_bits(out.*part, first.*part));
  };
  for_threads(run);
  for_every_fma_target(run);
  CHECK(equal_bits(linear_cross_entropy(x, w, b, targets, {.label_smoothing = 0.1}, {}, mixture).losses, first.losses));
  CHECK_THROWS_WITH_AS(linear_cross_entropy(x, w, b, targets, {}, {}, {zeros({300}), zeros({299})}),
                       "linear_mixture_cross_entropy: log_share and other need one number a row: log_share [300], other [299], rows [300]",
                       ShapeError);
  CHECK_THROWS_AS(linear_cross_entropy(x, w, b, targets, {}, {}, {zeros({300}), zeros({300}, DType::f64)}), DTypeError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(x, w, b, targets, {}, {}, {zeros({300}), zeros({300}), zeros({1})}),
                       "linear_mixture_cross_entropy: rest needs one number a row: rest [1], rows [300]", ShapeError);
  CHECK_THROWS_AS(linear_cross_entropy(x, w, b, targets, {}, {}, {zeros({300}), zeros({300}), zeros({300}, DType::f64)}), DTypeError);
}

namespace {

// -Σ_k q_k log softmax(z)_k of each row, q = (1 - ε) one-hot + ε / V, the targets 0, 1, ... modulo V
reference::Array entropies(const reference::Array& z, double smoothing) {
  Shape shape = z.shape;
  const Index labels = shape[shape.rank() - 1];
  shape.erase(shape.rank() - 1);
  Index row = 0;
  return reference::make(shape, [&](const reference::Position&) {
    reference::Values line(z.values.begin() + row * labels, z.values.begin() + (row + 1) * labels);
    double loss = 0;
    for (Index k = 0; k < labels; ++k)
      loss -= ((k == row % labels) * (1 - smoothing) + smoothing / double(labels)) * (line[std::size_t(k)] - reference::logsumexp(line));
    ++row;
    return loss;
  });
}

// Of row n of x Wᵀ + b: its number at the target 0, 4 or 2, and log Σ e^z
struct Logits { double label, whole; };
Logits linear_logits(const reference::Arrays& x, Index n) {
  const std::size_t targets[] = {0, 4, 2};
  reference::Values z;
  for (Index v = 0; v < 5; ++v) {
    z.push_back(x[2]({v}));
    for (Index i = 0; i < x[0].shape[1]; ++i) z.back() += x[0]({n, i}) * x[1]({v, i});
  }
  return {z[targets[n]], reference::logsumexp(z)};
}
double linear_log_softmax(const reference::Arrays& x, Index n) { return linear_logits(x, n).label - linear_logits(x, n).whole; }

}  // namespace

static const InTable rows{
    {.name = "cross_entropy",
     .reference = [](const reference::Arrays& x) { return entropies(x[0], 0.1); },
     .definition =
         [](std::span<const Variable> x) {
           const Index labels = x[0].size(-1);
           std::vector<Index> ids;
           for (Index i = 0; i < 6; ++i) ids.push_back(i % labels);
           const Tensor q = one_hot(tensor(ids, {2, 3}), labels, x[0].dtype());
           return -sum(log_softmax(x[0]) * constant(q * 0.9 + 0.1 / double(labels)), -1);
         },
     .ulp = 40},
    {.name = "cross_entropy mean",
     .reference = [](const reference::Arrays& x) { return reference::over({}, false, reference::mean)({entropies(x[0], 0)}); },
     .ulp = 40},
    {.name = "linear_cross_entropy",
     .reference =
         [](const reference::Arrays& x) {
           double total = 0;
           for (Index n = 0; n < 3; ++n) total -= linear_log_softmax(x, n);
           return reference::Array{Shape(), {total}};
         },
     .definition =
         [](std::span<const Variable> x) {
           return linear_cross_entropy_by_definition(x[0], x[1], x[2], tensor({0, 4, 2}, DType::i64));
         },
     .wrong = {{{{3, 4}, {5, 2}, {5}}}},
     .ulp = 100},
    {.name = "linear_mixture_cross_entropy",
     .reference =
         [](const reference::Arrays& x) {
           double total = 0;
           for (Index n = 0; n < 3; ++n) total -= std::log(std::exp(x[3]({n}) + linear_log_softmax(x, n)) + x[4]({n}));
           return reference::Array{Shape(), {total}};
         },
     .definition =
         [](std::span<const Variable> x) {
           return linear_mixture_cross_entropy_by_definition(x[0], x[1], x[2], x[3], x[4], tensor({0, 4, 2}, DType::i64));
         },
     .wrong = {{{{3, 4}, {5, 2}, {5}, {3}, {3}}}},
     .ulp = 100},
    {.name = "linear_mixture_cross_entropy rest",
     .reference =
         [](const reference::Arrays& x) {
           double total = 0;
           for (Index n = 0; n < 3; ++n) {
             const double words = std::exp(linear_logits(x, n).whole), rest = std::exp(x[5]({n}));
             total -= std::log((std::exp(x[3]({n}) + linear_logits(x, n).label) + x[4]({n}) * rest) / (words + rest));
           }
           return reference::Array{Shape(), {total}};
         },
     .definition =
         [](std::span<const Variable> x) {
           return linear_mixture_cross_entropy_by_definition(x[0], x[1], x[2], x[3], x[4], tensor({0, 4, 2}, DType::i64), {}, x[5]);
         },
     .wrong = {{{{3, 4}, {5, 2}, {5}, {3}, {3}, {3}}}},
     .ulp = 100},
};
