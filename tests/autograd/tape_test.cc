// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <malloc.h>

#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

Tensor map2(const Tensor& a, const Tensor& b, double (*f)(double, double)) {
  Tensor y = empty_like(a);
  for (std::size_t i = 0; i < y.span<double>().size(); ++i) y.mutable_span<double>()[i] = f(a.span<double>()[i], b.span<double>()[i]);
  return y;
}

// y = a b, one user-made op for all tests here.   da = b dy,  db = a dy
Variable times(const Variable& a, const Variable& b) {
  const auto product = [](const Tensor& x, const Tensor& y) { return map2(x, y, [](double p, double q) { return p * q; }); };
  return record("times", product(a.value(), b.value()), {a, b},
                [product, a = a.slot(), b = b.slot(), x = saved(a), y = saved(b)](const Tensor& dy) {
                  a.adopt(product(dy, y));
                  b.adopt(product(dy, x));
                });
}

Variable scalar(double value) { return variable(tensor(value, DType::f64)); }

}  // namespace

TEST_CASE("a value used twice gets the sum of both gradients") {
  const Variable x = scalar(3);
  Tape tape;
  const Variable y = times(x, x), z = times(y, y);  // x⁴
  tape.backward(z);
  CHECK(x.grad().item() == 4 * 27);
}

TEST_CASE("an empty leaf of any strides gets an empty gradient") {
  const Tensor value(zeros({3}, DType::f64).storage(), DType::f64, {0, 4}, {-1, 0}, 0);
  const Variable x = variable(value);
  Tape tape;
  const Variable y = times(x, x);
  const Tensor dy = zeros({0, 4}, DType::f64);
  tape.backward({&y, 1}, {&dy, 1});
  CHECK(x.grad().shape() == Shape{0, 4});
}

TEST_CASE("without a tape nothing is remembered, constants want nothing") {
  const Variable x = scalar(3);
  CHECK_FALSE(times(x, x).wants_gradient());
  Tape tape;
  CHECK_FALSE(times(constant(x.value()), constant(x.value())).wants_gradient());
  CHECK(tape.size() == 0);
}

TEST_CASE("a rule given as a function that makes it is made only where it is recorded") {
  int made = 0;
  const auto doubled = [&](const Variable& x) {
    return record("doubled", x.value() * 2, {x}, [&] {
      ++made;
      return [x = x.slot()](const Tensor& dy) { x.adopt(dy * 2); };
    });
  };
  const Variable x = scalar(3);
  CHECK(doubled(x).value().item() == 6);
  CHECK(made == 0);
  Tape tape;
  CHECK_FALSE(doubled(constant(x.value())).wants_gradient());
  CHECK(made == 0);
  tape.backward(doubled(x));
  CHECK(made == 1);
  CHECK(x.grad().item() == 2);
}

TEST_CASE("leaf gradients add up over tapes until they are forgotten") {
  const Variable x = scalar(2);
  for (int i = 0; i < 2; ++i) {
    Tape tape;
    tape.backward(times(x, x));
  }
  CHECK(x.grad().item() == 8);
  x.forget_gradient();
  CHECK(x.grad().item() == 0);
}

TEST_CASE("a leaf's gradient may come back from above, or from a hook, while rules add to it") {
  const Tensor turned = tensor({1, 0}, DType::i64);
  const auto gradient = [&](auto&& give) {
    const Variable w = variable(ones({1, 2}));
    {
      Tape tape;
      tape.backward(sum(w * constant(tensor({{1, 2}}))));
    }
    Tape tape;
    give(tape, w, w.grad());
    return w.grad();
  };
  CHECK(equal_bits(gradient([&](Tape& tape, const Variable& w, const Tensor& g) {
    const Variable y = index_select(w, 1, turned);
    tape.backward({&y, 1}, {&g, 1});
  }), tensor({{3, 3}})));
  CHECK(equal_bits(gradient([&](Tape& tape, const Variable& w, const Tensor& g) {
    tape.backward(sum(gradient_hook(index_select(w, 1, turned), [g](const Tensor&) { return std::optional(g); })));
  }), tensor({{3, 3}})));
}

TEST_CASE("leaf gradients have memory of their own") {
  const Variable a = variable(ones({2})), b = variable(ones({2}));
  {
    Tape tape;
    tape.backward(sum(a + b));
  }
  fill_(a.grad(), 0);
  CHECK(worst_absolute(b.grad(), ones({2})) == 0);
  const Variable x = variable(ones({2}));
  const Tensor upstream = ones({2});
  {
    Tape tape;
    const Variable y = x + constant(ones({2}));
    tape.backward({&y, 1}, {&upstream, 1});
  }
  fill_(upstream, 7);
  CHECK(worst_absolute(x.grad(), ones({2})) == 0);
}

TEST_CASE("a gradient with a factor is taken over where nobody else has its memory, else copied or added") {
  const auto give = [](const Variable& x, Tensor dx, double factor) {
    Tape tape;
    tape.backward(record("give", zeros({}), {x}, [s = x.slot(), dx = std::move(dx), factor](const Tensor&) { s.adopt(dx, factor); }));
  };
  for (const double factor : {1.0, 2.0}) {
    CAPTURE(factor);
    const auto times = [&](std::vector<float> values) {
      for (float& value : values) value *= float(factor);
      return values;
    };
    const Variable x = variable(zeros({3}));
    Tensor dx = tensor({1, 2, 3});
    const float* const memory = dx.data<float>();
    give(x, std::move(dx), factor);
    CHECK(x.grad().to_vector<float>() == times({1, 2, 3}));
    CHECK(x.grad().data<float>() == memory);
    const Tensor kept = tensor({1, 1, 2});
    give(x, kept, factor);                                 // the second one
    CHECK(x.grad().to_vector<float>() == times({2, 3, 5}));
    x.forget_gradient();
    give(x, kept, factor);
    CHECK(x.grad().to_vector<float>() == times({1, 1, 2}));
    CHECK(kept.to_vector<float>() == std::vector<float>{1, 1, 2});
    const Variable turned = variable(transpose(zeros({2, 3})));
    give(turned, reshape(tensor({1, 2, 3, 4, 5, 6}), {3, 2}), factor);
    CHECK(turned.grad().to_vector<float>() == times({1, 2, 3, 4, 5, 6}));
    const Variable whole = variable(zeros({2, 3}));
    Tape tape;
    const Variable part = select(whole, 0, 1);
    tape.backward(
        record("give", zeros({}), {part}, [s = part.slot(), dx = tensor({1, 2, 3}), factor](const Tensor&) { s.adopt(dx, factor); }));
    CHECK(whole.grad().to_vector<float>() == times({0, 0, 0, 1, 2, 3}));
    CHECK_THROWS_AS(give(whole, ones({3, 2}), factor), ShapeError);
    CHECK_THROWS_AS(give(whole, ones({2, 3}, DType::f64), factor), DTypeError);
  }
}

TEST_CASE("parts of a gradient that nobody else has take what is added; of one that another value adopted too they are copied") {
  const auto watched = [](const Variable& x, const float** seen) {
    return record("watched", x.value().clone(), {x}, [s = x.slot(), seen](const Tensor& dy) {
      *seen = dy.data<float>();
      s.adopt(dy);
    });
  };
  for (const bool stacked : {false, true})
    for (const bool shared : {false, true}) {
      CAPTURE(stacked);
      CAPTURE(shared);
      const Variable x = variable(ones({3})), y = variable(ones({3})), z = variable(ones(stacked ? Shape{2, 3} : Shape{6}));
      const float *of_a = nullptr, *of_c = nullptr;
      Tape tape;
      const Variable a = watched(x, &of_a), b = 1 * y, e = 1 * z, more = 10 * sum(a);   // arrives when a has its part
      const Variable c = watched(stacked ? stack({a, b}) : concat({a, b}), &of_c);
      tape.backward(sum(2 * (shared ? c + e : c)) + more);
      CHECK((of_a == of_c) == !shared);
      CHECK(x.grad().to_vector<float>() == std::vector<float>(3, 12));
      CHECK(y.grad().to_vector<float>() == std::vector<float>(3, 2));
      if (shared) CHECK(z.grad().to_vector<float>() == std::vector<float>(6, 2));
    }
  const Variable x = variable(ones({2}));
  Tape tape;
  const Variable once = 1 * x;
  tape.backward(sum(concat({once, once, 3 * once}) * constant(tensor({1, 2, 3, 4, 5, 6}))));
  CHECK(x.grad().to_vector<float>() == std::vector<float>{1 + 3 + 15, 2 + 4 + 18});
}

TEST_CASE("a rule of any size takes memory while its tape lives") {
  const auto used = [] { return std::size_t(mallinfo2().uordblks) + std::size_t(mallinfo2().hblkhd); };
  const Variable x = scalar(2);
  std::size_t before = 0;
  for (int i = 0; i < 40; ++i) {
    if (i == 2) before = used();
    Tape tape;
    const std::array<double, 50'000> large{3};             // 400 kB
    tape.backward(record("large", x.value().clone(), {x}, [s = x.slot(), large](const Tensor& dy) { s.adopt(dy * large[0]); }));
  }
  CHECK(x.grad().item() == 120);
  CHECK(used() < before + (1 << 20));
}

TEST_CASE("lengths and masks that were overwritten before the gradient is computed are refused") {
  const auto refused = [](const char* op, const Tensor& changed, const Variable& y, Tape& tape) {
    fill_(changed, 1);
    CHECK_THROWS_WITH_AS(tape.backward(sum(y)),
                         doctest::Contains((std::string(op) + ": a value saved for the gradient was overwritten").c_str()), Error);
  };
  const Variable x = variable(ones({2, 3, 4})), q = variable(ones({2, 1, 3, 4})), w = variable(ones({16, 4}));
  const auto lengths = [] { return full({2}, 2, DType::i32); };
  const auto allowed = [] { return zeros({3, 4}, DType::u8); };
  {
    Tape tape;
    const Tensor kept = lengths();
    refused("recurrent_layer", kept, recurrent_layer(RecurrentUnit::lstm, x, kept, {}, {w, w, {}, {}}).outputs, tape);
  }
  {
    Tape tape;
    const Tensor kept = lengths();
    refused("scaled_dot_product_attention", kept, scaled_dot_product_attention(q, q, q, Mask::lengths(kept)).output, tape);
  }
  {
    Tape tape;
    const Tensor kept = full({1}, 2, DType::i32);
    refused("scaled_dot_product_attention", kept, scaled_dot_product_attention(q, q, q, Mask::sliding({1, 1, 0, kept})).output, tape);
  }
  {
    Tape tape;
    const Tensor kept = lengths();
    refused("additive_score", kept, additive_score(x, x, variable(ones({4})), Mask::lengths(kept)), tape);
  }
  {
    Tape tape;
    const Tensor kept = allowed();
    refused("log_softmax", kept, log_softmax(x, -1, Mask::allowed(kept)), tape);
  }
}

TEST_CASE("a chain of 100,000 operations") {
  const Variable x = scalar(1), one = constant(tensor(1, DType::f64));
  Tape tape;
  Variable y = x;
  for (int i = 0; i < 100'000; ++i) y = times(y, one);
  tape.backward(y);
  CHECK(x.grad().item() == 1);
}

TEST_CASE("misuse throws and says what to do") {
  const Variable x = scalar(2);
  {
    Tape tape;
    const Variable y = times(x, x);
    tape.backward(y);
    CHECK_THROWS_WITH_AS(tape.backward(y), doctest::Contains("already played"), Error);
  }
  {
    Tape tape;
    const Variable v = variable(zeros({2}, DType::f64)), y = times(v, v);
    CHECK_THROWS_WITH_AS(tape.backward(y), doctest::Contains("must be a scalar: loss [2]"), ShapeError);
    CHECK_THROWS_WITH_AS(tape.backward(constant(tensor(1))), doctest::Contains("nothing that wants a gradient"), Error);
  }
  {
    const Variable early = times(x, x);
    Tape tape;
    CHECK_THROWS_WITH_AS(tape.backward(early), doctest::Contains("or it was computed before this tape began"), Error);
  }
  {
    Tape tape;
    const Variable y = times(x, x);
    const Tensor dy = tensor(1);
    CHECK_THROWS_WITH_AS(tape.backward({&y, 1}, {&dy, 1}), "backward: value and gradient differ in dtype: value f64, gradient f32",
                         DTypeError);
    const Variable hooked = gradient_hook(y, [&](const Tensor&) { return std::optional(dy); });
    CHECK_THROWS_WITH_AS(tape.backward(hooked), "gradient_hook: the gradient returned differs in dtype: f32, expected f64", DTypeError);
  }
  Variable old;
  {
    Tape tape;
    old = times(x, x);
  }
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(times(old, x), doctest::Contains("tape that is gone"), Error);
  }
  {
    Tape tape;
    const Tensor value = tensor(2, DType::f64);
    const Variable y = times(variable(value), x);
    fill_(value, 5);
    CHECK_THROWS_WITH_AS(tape.backward(y), doctest::Contains("times: a value saved for the gradient was overwritten"), Error);
  }
  Variable view;
  {
    Tape tape;
    view = reshape(x, {1});
  }
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(tape.backward(view), doctest::Contains("recorded on another tape"), Error);
  }
  {
    Tape outer;
    Variable y;
    Tape tape;
    y = times(x, x);
    CHECK_THROWS_WITH_AS(tape.backward(gradient_hook(y, [](const Tensor&) -> std::optional<Tensor> { throw Error("stop"); })), "stop",
                         Error);
    CHECK_THROWS_WITH_AS(times(y, x), doctest::Contains("tape that is gone"), Error);
  }
  CHECK_THROWS_AS(variable(tensor(1, DType::i32)), DTypeError);
  Tape tape;
  CHECK_THROWS_WITH_AS(times(x, x).grad(), doctest::Contains("only leaves"), Error);
}

TEST_CASE("tapes end in any order: each records until it is played, keeps its own masks, and is gone when it ends") {
  const Variable x = scalar(3);
  std::unique_ptr<Tape> tape;
  for (std::uint64_t step = 0; step < 4; ++step) {          // the next one begins before the last one ends, played or not
    tape = std::make_unique<Tape>(Key{1, step});
    CHECK(Tape::current() == tape.get());
    const Variable y = times(times(x, x), x);
    if (step % 2 == 0) tape->backward(y);
  }
  CHECK(x.grad().item() == 2 * 27);
  tape.reset();
  CHECK(Tape::current() == nullptr);
  CHECK_FALSE(dropout_acts(0.5));

  auto first = std::make_unique<Tape>(Key{1}), second = std::make_unique<Tape>(evaluating);
  const Variable y = times(x, x);
  first.reset();
  CHECK(Tape::current() == second.get());
  CHECK_FALSE(dropout_acts(0.5));
  x.forget_gradient();
  second->backward(y);
  CHECK(x.grad().item() == 6);
  CHECK(Tape::current() == nullptr);
  CHECK_THROWS_WITH_AS([&] { const Tape last; times(y, x); }(), doctest::Contains("tape that is gone"), Error);

  first = std::make_unique<Tape>(Key{1});
  {
    const NoRecording unrecorded;
    CHECK(Tape::current() == nullptr);
    CHECK(dropout_acts(0.5));
    CHECK_THROWS_WITH_AS(first->backward(x), "backward: a NoRecording lives", Error);
    second = std::make_unique<Tape>();
    CHECK(Tape::current() == second.get());
    first.reset();
  }
  CHECK(Tape::current() == second.get());
  {
    const NoRecording unrecorded;
    CHECK(Tape::current() == nullptr);
  }
  CHECK(Tape::current() == second.get());
}

TEST_CASE("tapes end in any order: a view on a later tape has no gradient where the tape of what it views is gone") {
  const Variable x = variable(ones({2, 3}, DType::f64));
  auto first = std::make_unique<Tape>();
  const Variable y = times(x, x);
  Tape second;
  const Variable once = reshape(y, {3, 2}), z = reshape(once, {6}), of_leaf = reshape(x, {6});
  first.reset();
  const auto held = memory_use().in_use;
  CHECK_THROWS_WITH_AS(times(z, z), doctest::Contains("tape that is gone"), Error);
  CHECK_THROWS_WITH_AS(slice(once, 0, 0, 1), doctest::Contains("tape that is gone"), Error);
  second.backward(sum(times(of_leaf, of_leaf)));
  CHECK(equal_bits(x.grad(), full({2, 3}, 2, DType::f64)));
  CHECK(memory_use().in_use <= held + 4096);
}

TEST_CASE("dropout keys: need a key, repeat for none of the calls, off when evaluating") {
  CHECK_FALSE(dropout_key(0.5));
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(dropout_key(0.5), doctest::Contains("Tape tape(evaluating)"), Error);
    CHECK_FALSE(dropout_key(0));
    CHECK_THROWS_AS(dropout_key(1.5), Error);
  }
  {
    Tape tape(evaluating);
    CHECK_FALSE(dropout_key(0.5));
  }
  std::optional<Key> first, second;
  for (int repeat = 0; repeat < 2; ++repeat) {
    Tape tape(Key{1, 2});
    const Inside inside("layer.dropout");
    const auto a = dropout_key(0.5), b = dropout_key(0.5);
    CHECK(*a != *b);
    if (repeat == 1) CHECK((*a == *first && *b == *second));
    first = a;
    second = b;
  }
  Tape tape(Key{1, 3});
  const Inside inside("layer.dropout");
  CHECK(*dropout_key(0.5) != *first);
}

TEST_CASE("recompute gives the same gradients, masks included, and reaches what the function captured") {
  const Variable outside = scalar(5);
  std::vector<Key> keys;
  const auto piece = [&](std::span<const Variable> x) {
    if (const auto key = dropout_key(0.5)) keys.push_back(*key);
    return std::vector{times(times(x[0], x[0]), outside), times(x[0], outside)};
  };
  const Variable x = scalar(3);
  {
    Tape tape(Key{1});
    const std::vector<Variable> in{x};
    const auto y = recompute(piece, in);
    CHECK(y[0].value().item() == 45);
    tape.backward(times(y[0], y[1]));  // 5x² · 5x = 25 x³;  with o: o² x³
  }
  CHECK(x.grad().item() == 75 * 9);
  CHECK(outside.grad().item() == 2 * 5 * 27);
  REQUIRE(keys.size() == 2);
  CHECK(keys[0] == keys[1]);
}

TEST_CASE("recompute: values that the function hands on, ids among its values, another number of values") {
  using Values = std::span<const Variable>;
  const Variable x = scalar(3);
  const auto gradient = [&](const std::function<Variable()>& f) {
    x.forget_gradient();
    Tape tape(evaluating);
    tape.backward(f());
    return x.grad().item();
  };
  const auto itself = [](const Variable& v) { return v; };
  CHECK(gradient([&] { return recompute(itself, x); }) == 1);
  CHECK(gradient([&] { return times(recompute(itself, times(x, x)), x); }) == 27);
  CHECK(gradient([&] { const Variable outside = times(x, x); return recompute([outside](const Variable&) { return outside; }, x); }) == 6);
  const auto with_ids = [](Values v) { return std::vector{constant(tensor(1, DType::i64)), times(v[0], v[0])}; };
  CHECK(gradient([&] { return recompute(with_ids, Values(&x, 1))[1]; }) == 6);
  int runs = 0;
  const auto more = [&](Values v) { return std::vector<Variable>(std::size_t(++runs), v[0]); };
  CHECK_THROWS_WITH_AS(gradient([&] { return recompute(more, Values(&x, 1))[0]; }),
                       "recompute: the function returned 1 values when it ran first, 2 when it ran again", Error);
}

TEST_CASE("recompute notices inputs and weights that were overwritten, and goes by the precision of products then") {
  const Variable x = variable(tensor({1, 2})), w = variable(tensor({3, 4}));
  const auto square = [&](const Variable& v) { return v * v * w; };
  const auto play = [&](const Tensor& overwritten) {
    Tape tape;
    const Variable y = sum(recompute(square, x));
    if (overwritten.defined()) fill_(overwritten, 5);
    tape.backward(y);
  };
  play({});
  CHECK_THROWS_WITH_AS(play(x.value()), "recompute: a value saved for the gradient was overwritten before the tape was played: shape [2]",
                       Error);
  CHECK_THROWS_WITH_AS(play(w.value()),
                       "recompute: the function gave other values when it ran again: output 0 of shape [2]; was a weight overwritten "
                       "before the tape was played, or is something gone that f refers to?",
                       Error);
  if (!has_bfloat16_products()) return;
  const Variable a = variable(normal(Key(Seed{1}), {32, 32})), b = variable(normal(Key(Seed{2}), {32, 32}));
  Tape tape;
  const Variable y = [&] {
    const ProductPrecision use(Precision::bfloat16);
    return sum(recompute([&](const Variable& v) { return matmul(v, b); }, a));
  }();
  CHECK_NOTHROW(tape.backward(y));
}

TEST_CASE("recompute: values that are not there") {
  const Variable x = scalar(3);
  Tape tape(evaluating);
  const auto half = [](std::span<const Variable> v) { return std::vector{times(v[0], v[0]), Variable()}; };
  tape.backward(recompute(half, std::span(&x, 1))[0]);
  CHECK(x.grad().item() == 6);
}

TEST_CASE("values of operations that were played are gone: for a hook") {
  const Variable x = variable(ones({3}));
  const auto held = memory_use().in_use;
  {
    Tape tape;
    Variable late;
    const Variable y = gradient_hook(x * 1.0, [&](const Tensor&) -> std::optional<Tensor> {
      Tape in;
      in.backward(sum(late * 5.0));
      return {};
    });
    late = x * 2.0;
    CHECK_THROWS_WITH_AS(tape.backward(sum(y) + sum(late)), doctest::Contains("has been played past it"), Error);
    x.forget_gradient();
  }
  CHECK(memory_use().in_use == held);
}

TEST_CASE("values of operations that were played are gone: for what is computed again") {
  const Variable x = variable(ones({3}));
  Tape tape;
  Variable h = x * 1.0;
  const Variable y = recompute([&h](const Variable& v) { return v * h; }, x);
  h = gradient_hook(h, [](const Tensor&) -> std::optional<Tensor> { return {}; });
  CHECK_THROWS_WITH_AS(tape.backward(sum(y) + sum(h)), doctest::Contains("has been played past it"), Error);
}

TEST_CASE("a view of a leaf has no gradient of its own to ask for or to forget") {
  const Variable x = variable(ones({2, 3}));
  Tape tape;
  const Variable row = x[0];
  tape.backward(sum(x * x));
  CHECK(!row.has_grad());
  row.forget_gradient();
  CHECK(equal_bits(x.grad(), full({2, 3}, 2)));
}

TEST_CASE("a hook sees and may replace the gradient") {
  const Variable x = scalar(3);
  double seen = 0;
  Tape tape;
  const Variable y = gradient_hook(times(x, x), [&](const Tensor& dy) -> std::optional<Tensor> {
    seen = dy.item();
    return tensor(10, DType::f64);
  });
  tape.backward(times(y, constant(tensor(2, DType::f64))));
  CHECK(seen == 2);
  CHECK(x.grad().item() == 60);
}

TEST_CASE("anomaly mode names op and module path, forwards and backwards") {
  const DetectAnomaly detect;
  const Inside inside("encoder.layers.0");
  const double infinity = std::numeric_limits<double>::infinity();
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(times(scalar(infinity), scalar(0)), doctest::Contains("in encoder.layers.0: times: the result"), NumericError);
  }
  Tape tape;
  CHECK_THROWS_WITH_AS(log(variable(tensor({{1, 0, 2}, {3, -1, 0}}))),
                       "in encoder.layers.0: log: the result has a NaN or infinity: shape [2, 3]; -inf at [0, 1], the first of 3",
                       NumericError);
  const Variable x = scalar(1), y = times(x, constant(tensor(1, DType::f64)));
  const Variable bad = gradient_hook(y, [&](const Tensor&) { return std::optional(tensor(infinity, DType::f64)); });
  CHECK_THROWS_WITH_AS(tape.backward(bad), doctest::Contains("gradient_hook: a gradient computed backwards"), NumericError);
  // What is refused from above ends the tape as well.
  Tape second;
  const Variable z = times(scalar(1), scalar(1));
  const Tensor above = tensor(infinity, DType::f64);
  CHECK_THROWS_AS(second.backward({&z, 1}, {&above, 1}), NumericError);
  CHECK(!z.alive());
}

TEST_CASE("split: parts share one gradient buffer, parts not reached count as zero") {
  const Variable x = variable(tensor({{1, 2, 3}, {4, 5, 6}}, DType::f64));
  Tape tape;
  const auto parts = record_split("split", x, [](const Tensor& v) { return List<Tensor>{v(all, Slice{0, 1}), v(all, Slice{1, 3})}; });
  const Variable ones = constant(heed::ones({2, 2}, DType::f64));
  const Variable y = record("copy", parts[1].value().clone(), {parts[1]}, [p = parts[1].slot()](const Tensor& dy) {
    p.gradient([&](Into d) { copy_into(d.tensor, dy); });
  });
  const Variable z = times(y, ones);
  const Tensor dz = tensor({{1, 2}, {3, 4}}, DType::f64);
  tape.backward({&z, 1}, {&dz, 1});
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 1, 2, 0, 3, 4});
}

TEST_CASE("views and parts that are copies, or do not cover, are refused") {
  const Variable x = variable(ones({2, 3}));
  Tape tape;
  const auto copied = [](const Tensor& t) { return t.clone(); };
  CHECK_THROWS_WITH_AS(record_view("mine", x, copied), "mine: not a view of its input's memory, but a copy: shape [2, 3], input [2, 3]", Error);
  CHECK_THROWS_WITH_AS(record_split("mine", x, [](const Tensor& t) { return List<Tensor>{t[0]}; }),
                       "mine: the views together must cover the input once: 3 elements of 6", ShapeError);
}

TEST_CASE("views: their gradients are views of the parent's, whole or part, chained or used twice") {
  const Variable x = variable(tensor({{1, 2, 3}, {4, 5, 6}}, DType::f64));
  const auto turned = [](const Tensor& t) {
    return Tensor(t.storage(), t.dtype(), {t.size(1), t.size(0)}, {t.strides()[1], t.strides()[0]}, t.offset());
  };
  const auto copied = [](const Variable& v) {
    return record("copy", v.value().clone(), {v}, [v = v.slot()](const Tensor& dy) { v.adopt(dy); });
  };
  Tape tape;
  const Variable t = record_view("transpose", x, turned);                                                 // [3, 2]
  const Variable row = record_view("select", t, [](const Tensor& v) { return v[1]; });                   // column 1 of x
  const Variable a = copied(t), b = copied(row), c = copied(x);
  const Tensor da = tensor({{1, 2}, {3, 4}, {5, 6}}, DType::f64), db = tensor({10, 20}, DType::f64), dc = ones({2, 3}, DType::f64);
  tape.backward(std::vector{a, b, c}, std::vector{da, db, dc});
  CHECK(x.grad().to_vector<double>() == std::vector<double>{2, 14, 6, 3, 25, 7});
}

TEST_CASE("views of views and of parts: where each begins, and whether it is the whole") {
  const Tensor x = reshape(to(arange(1, 13), DType::f64), {6, 2});
  const auto loss = [](std::span<const Variable> v) {
    const Variable later = slice(v[0], 0, 1), inner = slice(later, 0, 1, 4), turned = transpose(inner);
    const auto parts = split(later, {2, 3});
    return sum(square(turned)) + 3 * sum(square(parts[1])) + 5 * sum(square(transpose(slice(parts[1], 0, 1, 3)))) +
           7 * sum(square(parts[0]));
  };
  CHECK(check_gradient(loss, {x}).holds());
  const Variable leaf = variable(x);
  Tape tape;
  tape.backward(loss({&leaf, 1}));
  const std::vector<double> factor{0, 7, 8, 4, 9, 8};                       // of each row: what looks at it, times 2 x
  std::vector<double> expected;
  for (std::size_t row = 0; row < 6; ++row)
    for (std::size_t column = 0; column < 2; ++column) expected.push_back(2 * factor[row] * double(2 * row + column + 1));
  CHECK(leaf.grad().to_vector<double>() == expected);
}

TEST_CASE("check_gradient names the worst element") {
  const auto right = check_gradient([](std::span<const Variable> x) { return times(x[0], x[1]); },
                                    {tensor({1.5, -2}, DType::f64), tensor({0.5, 3}, DType::f64)});
  CHECK(right.holds());
  const auto wrong = check_gradient(
      [](std::span<const Variable> x) {
        return record("wrong", x[0].value().clone(), {x[0]}, [s = x[0].slot()](const Tensor& dy) {
          s.gradient([&](Into d) { copy_into(d.tensor, dy); fill_(d.tensor[1], 7); });
        });
      },
      {tensor({1.5, -2, 4}, DType::f64)});
  CHECK_FALSE(wrong.holds());
  CHECK(wrong.worst.find("d/d input 0 at [1]: tape 7") != std::string::npos);
}

TEST_CASE("check_gradient: a step fits the size of x, along random directions too") {
  for (const Index count : {200, 201}) {
    const Tensor x = full({count}, 1e6, DType::f64);
    CHECK(check_gradient([](std::span<const Variable> v) { return sum(v[0]); }, {x}).holds());
    CHECK(check_gradient([](std::span<const Variable> v) { return sum(square(v[0])); }, {x}).holds());
  }
}

TEST_CASE("check_gradient notices a rule that writes where it should add") {
  const auto twice = [](std::span<const Variable> x) {
    return record("twice", x[0].value() * 2.0, {x[0]},
                  [s = x[0].slot()](const Tensor& dy) { s.gradient([&](Into dx) { copy_into(dx.tensor, dy * 2.0); }); });
  };
  for (const Tensor& x : {tensor({1.5, -2, 4}, DType::f64), full({300}, 0.1, DType::f64)}) {
    const auto report = check_gradient(twice, {x});
    CHECK_FALSE(report.holds());
    CHECK_MESSAGE(report.worst.find(", added to a gradient: tape ") != std::string::npos, report.worst);
  }
  CHECK(check_gradient([](std::span<const Variable> x) { return x[0]; }, {tensor({1.5, -2}, DType::f64)}).holds());
}

TEST_CASE("check_gradient refuses what no gradient reaches") {
  const Variable other = variable(tensor({2}, DType::f64));
  const Tensor x = tensor({1.5, -2.5}, DType::f64);
  const char* message = "check_gradient: no gradient reaches any of the 1 inputs";
  CHECK_THROWS_WITH_AS(check_gradient([](std::span<const Variable>) { return constant(ones({2}, DType::f64)); }, {x}), message, Error);
  CHECK_THROWS_WITH_AS(check_gradient([&](std::span<const Variable>) { return square(other); }, {x}), message, Error);
  CHECK(check_gradient([&](std::span<const Variable> v) { return floor(v[0]); }, {x}).holds());
}

TEST_CASE("check_gradient of leaves that the function reads by itself") {
  const Variable w = variable(tensor({1.5, 0, 0.1}, DType::f64)), other = variable(tensor({2}, DType::f64));
  const auto cube = [](const Variable& x, double factor) {
    return record("cube", x.value() * x.value() * x.value(), {x},
                  [s = x.slot(), v = saved(x.value()), factor](const Tensor& dy) { s.adopt(dy * v.get() * v.get() * factor); });
  };
  CHECK(check_gradient([&] { return cube(w, 3) * other; }, {w, other}).holds());
  const GradientReport wrong = check_gradient([&] { return cube(w, 2); }, {w});
  CHECK_FALSE(wrong.holds());
  CHECK(wrong.worst.starts_with("d/d input 0 at [0]: tape "));
  CHECK(w.value().to_vector<double>() == std::vector<double>{1.5, 0, 0.1});
  CHECK_FALSE(w.has_grad());
  // What was moved is put back where the function throws.
  const auto narrow = [&] {
    check<Error>(w.value()[2].item() == 0.1, "moved");
    return square(w);
  };
  CHECK_THROWS_WITH_AS(check_gradient(narrow, {w}), "moved", Error);
  CHECK(w.value()[2].item() == 0.1);
}

TEST_CASE("what silences tapes or looks for NaN may end in any order") {
  const Variable x = variable(tensor({1, 2}));
  {
    const Tape tape;
    auto first = std::make_unique<NoRecording>(), second = std::make_unique<NoRecording>();
    first.reset();
    CHECK_FALSE(square(x).wants_gradient());
    second.reset();
    CHECK(square(x).wants_gradient());
  }
  auto first = std::make_unique<DetectAnomaly>(), second = std::make_unique<DetectAnomaly>();
  first.reset();
  CHECK_THROWS_AS(log(constant(zeros({1}))), NumericError);
  second.reset();
  CHECK_NOTHROW(log(constant(zeros({1}))));
}

TEST_CASE("a tape is played by the thread that it records on") {
  const Variable x = variable(tensor({1, 2}));
  Tape tape;
  const Variable y = sum(x);
  std::string said;
  std::thread([&] { said = message_of<Error>([&] { tape.backward(y); }); }).join();
  CHECK(said == "backward: this tape records on another thread");
  tape.backward(y);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("a rule that gives a gradient of another shape or dtype is named, through views too") {
  const auto refused = [](const Variable& x, const Tensor& given, const char* message) {
    Tape tape;
    const Variable seen = reshape(x * 1.0, {6}), part = slice(reshape(x * 1.0, {6}), 0, 2, 4);
    for (const Variable& input : {x, seen, part}) {
      Tape inner;
      const Variable y = record("mine", input.value().clone(), {input}, [s = input.slot(), given](const Tensor&) { s.adopt(given); });
      CHECK_THROWS_WITH_AS(inner.backward(sum(y)), doctest::Contains(message), Error);
    }
  };
  const Variable x = variable(ones({2, 3}));
  refused(x, tensor({1, 2, 3, 4}), "mine: the gradient that its rule gives differs in shape: [4], expected [");
  refused(x, ones({5, 3}), "mine: the gradient that its rule gives differs in shape: [5, 3], expected [");
  refused(x, Tensor(), "mine: the gradient that its rule gives is empty (default constructed)");
  CHECK_THROWS_WITH_AS(variable(Tensor()), "variable: the tensor is empty (default constructed)", Error);
  Tape tape;
  const Variable y = record("mine", ones({2, 3}), {x}, [s = x.slot()](const Tensor& dy) { s.adopt(to(dy, DType::f64)); });
  CHECK_THROWS_WITH_AS(tape.backward(sum(y)), "mine: the gradient that its rule gives differs in dtype: f64, expected f32", DTypeError);
}

TEST_CASE("anomaly mode: a scope within another one ends alone") {
  const auto multiply = [] {
    const Tape tape;
    times(scalar(std::numeric_limits<double>::infinity()), scalar(0));
  };
  {
    const DetectAnomaly detect;
    { const DetectAnomaly inner; }
    CHECK_THROWS_AS(multiply(), NumericError);
  }
  CHECK_NOTHROW(multiply());
}

TEST_CASE("a tape that is played within a rule leaves that rule its name") {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = record("outer", x.value().clone(), {x}, [s = x.slot()](const Tensor& dy) {
    {
      const Variable inside = scalar(3);
      Tape inner;
      inner.backward(times(inside, inside));
    }
    s.adopt(dy(newaxis));
  });
  CHECK_THROWS_WITH_AS(tape.backward(y), "outer: the gradient that its rule gives differs in shape: [1], expected []", ShapeError);
}

TEST_CASE("dropout keys go by the letters of a path, wherever they stand") {
  std::string path = "layers.0";
  const auto key = [&] {
    const Tape tape(Key{1, 2});
    const Inside inside(path);
    return *dropout_key(0.5);
  };
  const Key first = key();
  path.back() = '1';
  CHECK(key() != first);
  path.back() = '0';
  CHECK(key() == first);
}
