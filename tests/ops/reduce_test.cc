// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/context.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/update.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// Σ, Π, max over `dims` by a loop over all positions, in long double
struct Reference { std::vector<double> sum, product, most; };
Reference by_loop(const Tensor& x, const std::vector<bool>& reduced, Index results) {
  Reference out{std::vector<double>(std::size_t(results)), std::vector<double>(std::size_t(results)),
                std::vector<double>(std::size_t(results), -kInf)};
  std::vector<long double> sum(std::size_t(results), 0), product(std::size_t(results), 1);
  const auto values = doubles(x);
  for (Index i = 0; i < x.numel(); ++i) {
    Index rest = i, at = 0, step = 1;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      const Index k = rest % x.shape()[axis];
      rest /= x.shape()[axis];
      if (!reduced[std::size_t(axis)]) at += k * step, step *= x.shape()[axis];
    }
    sum[std::size_t(at)] += values[std::size_t(i)];
    product[std::size_t(at)] *= values[std::size_t(i)];
    out.most[std::size_t(at)] = std::max(out.most[std::size_t(at)], values[std::size_t(i)]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) out.sum[i] = double(sum[i]), out.product[i] = double(product[i]);
  return out;
}

Tensor gradient(const Tensor& x, auto&& f) {
  const Variable v = variable(x);
  Tape tape;
  tape.backward(f(v));
  return v.grad();
}

}  // namespace

// A second number is no keepdim, a bool no dim.
template <class... A> concept Sums = requires(Tensor x, A... given) { sum(x, given...); };
static_assert(Sums<int> && Sums<Dims, bool> && !Sums<int, int> && !Sums<bool> && !Sums<double> && !Sums<float>);

TEST_CASE("reduce: many results, each of several chunks, are joined by several threads") {
  const Tensor tall = uniform(Key(Seed{8}), {1030, 20000}, -1, 1), wide = uniform(Key(Seed{9}), {700, 33000}, -1, 1),
               bytes = to(greater(tall, 0), DType::u8);
  std::vector<Tensor> first;
  for_threads([&] {
    const std::vector<Tensor> now{sum(tall, {0}), sum(wide, {1}), max(wide, {1}), sum(bytes, {0}),
                                  sum(reshape(tall, {1030, 2, 10000}), {0, 1})};
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) {
      CAPTURE(i);
      CHECK(equal_bits(now[i], first[i]));
    }
  }, {1, 2, 3, 2, 3});
}

TEST_CASE("reduce: every set of dims, widths around the lanes and the chunks, strided and not; threads and layout keep the bits") {
  for (Index width : {1, 3, 15, 16, 17, 33, 1025})
    for (Index deep : {1, 5, 129})
      for (unsigned bits = 1; bits < 8; ++bits) {
        const Tensor x = uniform(Key(5, width, deep), {deep, 3, width}, 0.99, 1.01, DType::f64);
        std::vector<int> list;
        std::vector<bool> reduced(3);
        Shape shape;
        for (int axis = 0; axis < 3; ++axis) {
          if (bits >> axis & 1) list.push_back(axis), reduced[std::size_t(axis)] = true;
          else shape.push_back(x.size(axis));
        }
        const Dims dims(list);
        const Reference want = by_loop(x, reduced, shape.numel());
        const double n = double(x.numel() / shape.numel());
        CAPTURE(to_string(x.shape()));
        CAPTURE(to_string(dims));
        const Tensor s = sum(x, dims);
        REQUIRE(s.shape() == shape);
        CHECK(worst_relative(s, want.sum) < 1e-15 * std::log2(n + 2) * 4);
        CHECK(worst_absolute(mean(x, dims) * n, want.sum) < 1e-14 * n);
        CHECK(worst_relative(prod(x, dims), want.product) < 1e-15 * (n + 2));
        CHECK(worst_absolute(max(x, dims), want.most) == 0);
        for (DType dtype : {DType::f32, DType::f64}) {
          const Tensor y = to(x, dtype), one = sum(y, dims), squares = norm(y, dims);
          // the same numbers in another layout
          const Tensor turned = transpose(transpose(y, 0, 2).clone(), 0, 2), backwards = flip(flip(y, {0, 2}).clone(), {0, 2});
          CHECK(equal_bits(sum(turned, dims), one));
          CHECK(equal_bits(sum(backwards, dims), one));
          CHECK(equal_bits(norm(turned, dims), squares));
          for_threads([&] { CHECK(equal_bits(sum(y, dims), one)); });
        }
      }
}

TEST_CASE("reduce: many narrow rows, and strided tensors as a whole, have the bits of other layouts, every target") {
  for (const Index n : {1, 2, 3, 7, 8, 15, 16, 17})
    for (const Index rows : {1, 15, 17, 512, 1100})
      for (DType dtype : {DType::f32, DType::f64}) {
        CAPTURE(n);
        CAPTURE(rows);
        const Tensor x = uniform(Key(7, n, rows), {rows, n}, -2, 2, dtype), turned = transpose(transpose(x).clone()),
                     all = permute(x, {1, 0});
        for_every_target([&] {
          CHECK(equal_bits(sum(x, 0), sum(turned, 0)));
          CHECK(equal_bits(max(x, 0), max(turned, 0)));
          CHECK(equal_bits(prod(x, 0), prod(turned, 0)));
          CHECK(equal_bits(norm(x, 0), norm(turned, 0)));
          CHECK(equal_bits(sum(all), sum(all.clone())));
          CHECK(equal_bits(max(all), max(x)));
          Tensor spread = ones({rows, n}, dtype), written = empty({rows, n}, dtype);
          const Tensor line = sum(x, 0);
          sum_grad(line, 0, {spread, true});
          sum_grad(line, 0, {written, false});
          CHECK(equal_bits(spread, ones({rows, n}, dtype) + line));
          CHECK(equal_bits(written, zeros({rows, n}, dtype) + line));
        });
      }
}

TEST_CASE("reduce: strided tensors without elements") {
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{3, 0, 2}, Shape{3, 2, 0}, Shape{0, 0, 4}})
    for (const Dims& order : {Dims{0, 1, 2}, Dims{2, 1, 0}, Dims{1, 2, 0}, Dims{0, 2, 1}})
      for (const Tensor& x : {permute(zeros(shape), order), slice(permute(zeros(shape), order), 0, 0, Slice::kToEnd, 2),
                              flip(permute(zeros(shape), order), {1})}) {
        CHECK(sum(x).item() == 0);
        CHECK(prod(x).item() == 1);
        CHECK(sum(x, {0, 1}).numel() == x.size(2));
        CHECK(norm(x, {1, 2}).numel() == x.size(0));
        CHECK_FALSE(any_true(x));
      }
}

TEST_CASE("reduce: targets with FMA agree to the bit with those without, as sums need none") {
  const Tensor x = uniform(Key(6), {33, 1037}, -1, 1, DType::f32);
  const Tensor rows = sum(x, -1), columns = sum(x, 0), squares = norm(x, 1), product = prod(x, 0);
  const double all = sum_of_squares(x);
  for_every_target([&] {
    CHECK(equal_bits(sum(x, -1), rows));
    CHECK(equal_bits(sum(x, 0), columns));
    CHECK(equal_bits(norm(x, 1), squares));
    CHECK(equal_bits(prod(x, 0), product));
    CHECK(sum_of_squares(x) == all);
  });
}

namespace {

// Calls f(sequence of every result, in order) for a tensor of rank 2 or 3.
template <class T, class F> void for_sequences(const Tensor& x, const std::vector<bool>& reduced, F&& f) {
  std::vector<int> front, behind;
  for (int axis = 0; axis < x.rank(); ++axis) (reduced[std::size_t(axis)] ? behind : front).push_back(axis);
  Index results = 1;
  for (int axis : front) results *= x.size(axis);
  front.insert(front.end(), behind.begin(), behind.end());
  const std::vector<T> values = permute(x, Dims(front)).contiguous().to_vector<T>();
  const auto n = std::ptrdiff_t(x.numel() / results);
  for (std::ptrdiff_t i = 0; i < results; ++i) f(std::vector<T>(values.begin() + i * n, values.begin() + (i + 1) * n));
}

// One chunk, or an even number of like ones of at most 512; 16 lanes, folded in halves; the chunks in double.
template <class T> T sum_in_order(const std::vector<T>& x) {
  const std::size_t chunks = x.size() <= 512 ? 1 : 2 * ((x.size() + 1023) / 1024),
                    size = (x.size() / chunks + (x.size() % chunks != 0) + 15) / 16 * 16;
  double total = 0;
  for (std::size_t first = 0; first < x.size(); first += size) {
    T lanes[16] = {};
    for (std::size_t i = first; i < std::min(x.size(), first + size); ++i) lanes[i % 16] += x[i];
    for (std::size_t half = 8; half > 0; half /= 2)
      for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    total += double(lanes[0]);
  }
  return T(total);
}

// The same numbers as they are, with the axes stored in reverse, backwards, every second of a larger tensor
std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<int> reverse(std::size_t(x.rank()));
  std::iota(reverse.rbegin(), reverse.rend(), 0);
  Shape wide = x.shape();
  wide[x.rank() - 1] *= 2;
  const Tensor second = slice(zeros(wide, x.dtype()), -1, 0, wide[x.rank() - 1], 2);
  copy_into(second, x);
  return {x, permute(permute(x, Dims(reverse)).clone(), Dims(reverse)), flip(flip(x, Dims(reverse)).clone(), Dims(reverse)), second};
}

template <class F> void for_reductions(const Shape& shape, F&& f) {
  for (unsigned bits = 1; bits < 1u << shape.rank(); ++bits) {
    std::vector<int> dims;
    std::vector<bool> reduced(std::size_t(shape.rank()));
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (bits >> axis & 1) dims.push_back(axis), reduced[std::size_t(axis)] = true;
    CAPTURE(to_string(shape));
    CAPTURE(bits);
    f(Dims(dims), reduced);
  }
}

}  // namespace

TEST_CASE("reduce: the order of additions, to the bit, in every layout, on every target") {
  for (const Shape& shape : {Shape{3, 1300}, Shape{1300, 200}, Shape{40, 9}, Shape{9, 140}, Shape{600, 5, 7}, Shape{70, 3, 48},
                             Shape{700, 2, 64}, Shape{2, 33000}, Shape{33000, 2}})
    for_reductions(shape, [&](const Dims& dims, const std::vector<bool>& reduced) {
      const auto check = [&]<class T>(DType dtype) {
        const Tensor x = uniform(Key(31), shape, -1, 1, dtype);
        std::vector<T> want;
        for_sequences<T>(x, reduced, [&](const std::vector<T>& sequence) { want.push_back(sum_in_order(sequence)); });
        for_every_target([&] {
          for (const Tensor& y : layouts(x)) CHECK(sum(y, dims).to_vector<T>() == want);
        });
      };
      check.operator()<float>(DType::f32);
      check.operator()<double>(DType::f64);
    });
}

TEST_CASE("reduce: a mean and a norm of short sequences are those of their f64 sums, rounded once") {
  const Tensor x = uniform(Key(32), {300, 7}, 0, 1), total = sum(x, -1), squares = sum(x * x, -1);
  for (Index i = 0; i < 300; ++i) {
    CHECK(mean(x, -1)[i].item() == double(float(total[i].item() / 7)));
    CHECK(norm(x, -1)[i].item() == double(float(std::sqrt(squares[i].item()))));
  }
}

TEST_CASE("reduce: integer sums, questions and positions are those of a loop, in every layout, on every target") {
  for (const Shape& shape : {Shape{3, 1300}, Shape{1300, 70}, Shape{40, 9}, Shape{9, 5, 130}, Shape{70, 3, 48}, Shape{33000, 2}})
    for (DType dtype : {DType::i64, DType::i32, DType::u8, DType::f32, DType::f64, DType::bf16})
      for (double rate : {0.0, 0.004, 0.5, 1.0}) {
        const Tensor flags = bernoulli(Key(33), shape, rate), x = to(flags * to(randint(Key(34), shape, 1, 200), flags.dtype()), dtype);
        const Tensor values = to(x, DType::i64);
        for_reductions(shape, [&](const Dims& dims, const std::vector<bool>& reduced) {
          std::vector<Index> totals, largest, smallest;
          std::vector<std::uint8_t> some, every;
          for_sequences<Index>(values, reduced, [&](const std::vector<Index>& v) {
            totals.push_back(std::accumulate(v.begin(), v.end(), Index(0)));
            some.push_back(std::any_of(v.begin(), v.end(), [](Index i) { return i != 0; }));
            every.push_back(std::all_of(v.begin(), v.end(), [](Index i) { return i != 0; }));
            largest.push_back(std::max_element(v.begin(), v.end()) - v.begin());
            smallest.push_back(std::min_element(v.begin(), v.end()) - v.begin());
          });
          for_every_target([&] {
            for (const Tensor& y : layouts(x)) {
              CHECK(any_true(y, dims).to_vector<std::uint8_t>() == some);
              CHECK(all_true(y, dims).to_vector<std::uint8_t>() == every);
              if (dtype == DType::bf16) continue;
              if (!is_float(dtype)) CHECK(sum(y, dims).to_vector<Index>() == totals);
              if (dims.size() != 1) continue;
              CHECK(argmax(y, dims[0]).to_vector<Index>() == largest);
              CHECK(argmin(y, dims[0]).to_vector<Index>() == smallest);
            }
          });
        });
      }
  CHECK(sum(full({3000}, 0x1p62, DType::i64)).item<Index>() == 0);                                   // wraps
  CHECK(sum(full({3000}, -2147483648.0, DType::i32)).item<Index>() == -2147483648 * Index(3000));
}

TEST_CASE("reduce: cumsum adds one after another in double, in every layout, on every target") {
  for (const Shape& shape : {Shape{19, 37}, Shape{37, 300}, Shape{3, 11, 5}})
    for (int axis = 0; axis < shape.rank(); ++axis)
      for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8}) {
        const bool real = is_float(dtype);
        const Tensor x = real ? uniform(Key(35), shape, -1, 1, dtype) : to(randint(Key(35), shape, 0, 200), dtype), y = cumsum(x, axis);
        const Tensor terms = to(x, real ? DType::f64 : DType::i64);
        Tensor total = select(terms, axis, 0);
        for (Index i = 0; i < shape[axis]; ++i) {
          if (i > 0) total = total + select(terms, axis, i);
          CHECK(equal_bits(select(y, axis, i), real ? to(total, dtype) : total));
        }
        for_every_target([&] {
          for (const Tensor& other : layouts(x)) CHECK(equal_bits(cumsum(other, axis), y));
        });
        if (!real) continue;
        const Tensor dx = full(shape, 1, dtype), turned = flip(cumsum(flip(x, {axis}), axis), {axis});
        cumsum_grad(x, axis, {dx, true});
        CHECK(equal_bits(dx, turned + 1.0));
        cumsum_grad(x, axis, {dx, false});
        CHECK(equal_bits(dx, turned));
      }
  CHECK(std::signbit(cumsum(tensor({-0.0, 1.0}), 0)[0].item()));
  CHECK(cumsum(full({1000000}, 0.1), 0)[-1].item() == doctest::Approx(1e6 * double(0.1f)).epsilon(1e-7));
}

TEST_CASE("reduce: the gradient of a product is the product of the others, also far beyond f32 and with zeros") {
  for (const Shape& shape : {Shape{40, 21}, Shape{2, 5000}})
    for (int axis = 0; axis < 2; ++axis) {
      const Tensor x = uniform(Key(36), shape, 0.5, 1.5, DType::f64);
      for (Index i = 0; i < shape[1 - axis]; i += 3) fill_(select(select(x, 1 - axis, i), 0, shape[axis] / 2), i % 2 ? 0 : 1);
      const Tensor dy = uniform(Key(37), {shape[1 - axis]}, 0.5, 1.5, DType::f64), dx = empty(shape, DType::f64);
      prod_grad(x, dy, axis, {dx});
      for (Index j = 0; j < shape[axis]; j += 1 + shape[axis] / 40) {
        const Tensor others = x.clone();
        copy_into(select(others, axis, j), dy);
        CHECK(worst_relative(select(dx, axis, j), doubles(prod(others, axis))) < 1e-11);
      }
      const Tensor narrow = empty(shape, DType::f32), wide = empty(shape, DType::f64);
      prod_grad(to(x, DType::f32), to(dy, DType::f32), axis, {narrow});
      prod_grad(to(to(x, DType::f32), DType::f64), to(to(dy, DType::f32), DType::f64), axis, {wide});
      CHECK(equal_bits(narrow, to(wide, DType::f32)));
    }
}

TEST_CASE("reduce: a long f32 sum keeps its accuracy") {
  const Tensor x = full({3000000}, 0.1);
  CHECK(sum(x).item() == doctest::Approx(3000000 * double(0.1f)).epsilon(32 * 0x1p-24));   // 32 additions a lane
  CHECK(sum_of_squares(x) == doctest::Approx(3000000 * double(0.1f) * double(0.1f)).epsilon(1e-12));
}

TEST_CASE("reduce: NaN wins, wherever it stands, on every target") {
  for_every_target([&] {
    for (Index n : {1, 15, 16, 17, 40, 5000})
      for (Index at : {Index{0}, n / 2, n - 1})
        for (DType dtype : {DType::f32, DType::f64}) {
          const Tensor x = ones({n}, dtype);
          fill_(x[at], kNaN);
          CHECK(std::isnan(max(x).item()));
          CHECK(std::isnan(min(x).item()));
          CHECK(std::isnan(sum(x).item()));
          CHECK(argmax(x).item<Index>() == at);
          CHECK(argmin(x).item<Index>() == at);
          const Tensor table = ones({n, 20}, dtype);
          fill_(table(at, 7), kNaN);
          CHECK(std::isnan(max(table, 0)[7].item()));
          CHECK(max(table, 0)[6].item() == 1);
        }
  });
}

TEST_CASE("reduce: nothing to reduce") {
  const Tensor x = empty({2, 0, 3});
  CHECK(doubles(sum(x, 1)) == std::vector<double>(6, 0));
  CHECK(all_nan(mean(x, 1)));
  CHECK(mean(x, 1).numel() == 6);
  CHECK(doubles(prod(x, {0, 1})) == std::vector<double>(3, 1));
  CHECK(norm(x).item() == 0);
  CHECK(doubles(sum(empty({2, 0, 20}), {0, 1})) == std::vector<double>(20, 0));       // whole columns
  CHECK(doubles(sum(transpose(empty({0, 20, 3})), 0)) == std::vector<double>(60, 0));
  CHECK(sum(x, 0).shape() == Shape{0, 3});
  CHECK(max(x, 0).shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(max(x, 1), doctest::Contains("max: nothing to choose from: shape [2, 0, 3], dims [1]"), ShapeError);
  CHECK_THROWS_AS(argmax(x, 1), ShapeError);
  CHECK(argmax(x, 0).shape() == Shape{0, 3});
  // as PyTorch's
  for (const bool keepdim : {false, true})
    CHECK((argmax(tensor(4), -1, keepdim).item<Index>() == 0 && argmin(tensor(4), 0, keepdim).shape() == Shape{}));
  CHECK_THROWS_AS(argmax(tensor(4), 1), IndexError);
  CHECK(all_true(empty({0})));
  CHECK_FALSE(any_true(empty({0})));
}

TEST_CASE("reduce: gradients at ties, zeros and constants") {
  const Tensor x = tensor({3, 1, 3, 2}, DType::f64);
  CHECK(doubles(gradient(x, [](const Variable& v) { return max(v); })) == std::vector<double>{0.5, 0, 0.5, 0});
  CHECK(doubles(gradient(x, [](const Variable& v) { return min(v); })) == std::vector<double>{0, 1, 0, 0});
  for (const Index n : {4, 67, 130}) {   // two NaN share it
    const Tensor some = ones({n}, DType::f64), expected = zeros({n}, DType::f64);
    for (const Index at : {Index{1}, n - 1}) fill_(some[at], kNaN), fill_(expected[at], 0.5);
    CHECK(doubles(gradient(some, [](const Variable& v) { return max(v); })) == doubles(expected));
  }
  for (const DType dtype : {DType::f32, DType::f64})   // short rows and others, values 0 to 3, one in eight NaN
    for (const Index n : {1, 2, 3, 16, 17})
      for (const Index rows : {1, 63, 64, 130}) {
        Random random(Key(Seed{std::uint64_t(100 * n + rows)}));
        std::vector<double> values(std::size_t(n * rows));
        for (double& v : values) v = random.below(8) == 0 ? kNaN : double(random.below(4));
        const Tensor x = to(tensor(values, {rows, n}), dtype), turned = transpose(transpose(x).contiguous());
        const Variable weight = constant(to(arange(1, double(rows) + 1), dtype));
        std::vector<double> expected;
        for (Index r = 0; r < rows; ++r) {
          const auto row = std::span(values).subspan(std::size_t(r * n), std::size_t(n));
          const bool nan = std::any_of(row.begin(), row.end(), [](double v) { return std::isnan(v); });
          const auto won = [&, best = *std::max_element(row.begin(), row.end())](double v) { return nan ? std::isnan(v) : v == best; };
          const double ties = double(std::count_if(row.begin(), row.end(), won)),
                       share = dtype == DType::f32 ? double(float(r + 1) / float(ties)) : double(r + 1) / ties;
          for (const double v : row) expected.push_back(won(v) ? share : 0);
        }
        const auto largest = [&](const Variable& v) { return sum(max(v, {1}) * weight); };
        CHECK(doubles(gradient(x, largest)) == expected);
        CHECK(doubles(gradient(turned, largest)) == expected);
        const auto both = [&](const Variable& v) { return sum((max(v, {1}) + min(v, {1}) * 0.5) * weight); };
        CHECK(equal_bits(gradient(x, both), gradient(turned, both)));
      }
  const auto product = [](const Variable& v) { return prod(v); };
  CHECK(doubles(gradient(tensor({0, 2, 3}, DType::f64), product)) == std::vector<double>{6, 0, 0});
  CHECK(doubles(gradient(tensor({0, 2, 0}, DType::f64), product)) == std::vector<double>{0, 0, 0});
  CHECK(doubles(gradient(zeros({3}, DType::f64), [](const Variable& v) { return norm(v); })) == std::vector<double>{0, 0, 0});
  CHECK(doubles(gradient(full({3}, 2, DType::f64), [](const Variable& v) { return var(v); })) == std::vector<double>{0, 0, 0});
  const Tensor one = tensor({5}, DType::f64);
  CHECK(all_nan(var(one)));
  CHECK(all_nan(gradient(one, [](const Variable& v) { return var(v); })));
  CHECK(var(one, {}, false).item() == 0);
  const Tensor far = arange(10000000, 10000004, 1, DType::f32);   // their mean is no f32
  CHECK(var(far).item() == doctest::Approx(5.0 / 3));
  CHECK(stddev(far).item() == doctest::Approx(std::sqrt(5.0 / 3)));
  CHECK(worst_absolute(gradient(far, [](const Variable& v) { return var(v); }), tensor({-1, -1 / 3., 1 / 3., 1})) < 1e-6);
}

TEST_CASE("reduce: integers, questions, cumsum, argmax, sum_to") {
  CHECK(sum(full({300}, 255, DType::u8)).item<Index>() == 76500);
  CHECK(doubles(sum(reshape(arange(0, 6), {2, 3}), 0)) == std::vector<double>{3, 5, 7});
  CHECK_THROWS_AS(mean(arange(0, 3)), DTypeError);
  const Tensor flags = tensor({{1, 0, 3}, {0, 0, 0}}, DType::u8);
  CHECK(doubles(any_true(flags, 1)) == std::vector<double>{1, 0});
  CHECK(doubles(all_true(flags, 0)) == std::vector<double>{0, 0, 0});
  CHECK(any_true(flags));
  CHECK_FALSE(all_true(flags));
  CHECK(doubles(cumsum(tensor({{1, 2, 3}, {4, 5, 6}}), 1)) == std::vector<double>{1, 3, 6, 4, 9, 15});
  CHECK(doubles(cumsum(tensor({{1, 2, 3}, {4, 5, 6}}), 0)) == std::vector<double>{1, 2, 3, 5, 7, 9});
  CHECK(doubles(cumsum(full({3}, 200, DType::u8), 0)) == std::vector<double>{200, 400, 600});
  CHECK(doubles(cumsum(full({2}, 2147483647, DType::i32), 0)) == std::vector<double>{2147483647, 4294967294});
  CHECK(cumsum(full({2}, 0x1p62, DType::i64), 0).to_vector<Index>() == std::vector<Index>{Index{1} << 62, INT64_MIN});
  const Tensor x = tensor({{1, 7, 7}, {9, 2, 9}}, DType::f32);
  CHECK(doubles(argmax(x, 1)) == std::vector<double>{1, 0});       // ties: the lowest index
  CHECK(doubles(argmax(x, 0)) == std::vector<double>{1, 0, 1});
  CHECK(doubles(argmin(x, -1)) == std::vector<double>{0, 1});
  CHECK(argmax(x, 1, true).shape() == Shape{2, 1});
  CHECK(doubles(argmax(to(x, DType::i32), 1)) == std::vector<double>{1, 0});
  std::vector<double> saw(3000);
  for (std::size_t i = 0; i < saw.size(); ++i) saw[i] = double((i + 7) % 30);
  for (DType dtype : {DType::u8, DType::i32, DType::i64}) {
    CHECK(argmin(to(tensor(saw, {3000}), dtype)).item<Index>() == 23);
    CHECK(argmax(to(tensor(saw, {3000}), dtype)).item<Index>() == 22);
  }
  CHECK(doubles(sum_to(x, {3})) == std::vector<double>{10, 9, 16});
  CHECK(doubles(sum_to(x, {2, 1})) == std::vector<double>{15, 20});
  CHECK(sum_to(x, Shape()).item() == 35);
  CHECK_THROWS_WITH_AS(sum_to(x, {2}), doctest::Contains("sum_to: [2] does not broadcast to [2, 3]"), ShapeError);
  const Tensor out = full({3, 1}, 1);
  sum_to(ones({4, 3, 2}), {out, true});
  CHECK(doubles(out) == std::vector<double>(3, 9));
}

TEST_CASE("reduce: the first element above a threshold, from anywhere, ties and NaN not, on every target") {
  for_every_target([] {
    for (Index n : {0, 1, 7, 64, 65, 300}) {
      std::vector<float> x(std::size_t(n), 1.0f);
      for (Index at = 0; at < n; at += 1 + n / 20) {
        x[std::size_t(at)] = 2;
        x[0] = at > 0 ? NAN : 2;
        const std::vector<double> wide(x.begin(), x.end());
        for (Index from : {Index(0), at / 2, at, at + 1}) {
          const Index expected = from <= at ? at : n;
          CHECK(first_above(std::span<const float>(x), from, 1) == expected);
          CHECK(first_above(std::span<const double>(wide), from, 1) == expected);
        }
        CHECK(first_above(std::span<const float>(x), 0, 2) == n);
        x[std::size_t(at)] = 1;
      }
      CHECK(first_above(std::span<const float>(x), n, 0) == n);
    }
  });
}

TEST_CASE("reduce: a threshold below the largest is just below the maximum that its definition says, NaN left out, on every target") {
  for_every_target([] {
    for (Index n : {0, 1, 7, 63, 64, 65, 200, 1000}) {
      std::vector<float> x;
      Random random(Key(5, n));
      for (Index i = 0; i < n; ++i) x.push_back(i % 11 == 3 ? NAN : i % 7 == 2 ? -INFINITY : -float(1 + random.below(300)));
      std::map<Index, float> largest;
      for (Index i = 0; i < n; ++i)
        if (const float value = x[std::size_t(i)]; !std::isnan(value))
          largest[i % 64] = largest.count(i % 64) ? std::max(largest[i % 64], value) : value;
      std::set<float, std::greater<>> different;
      for (const auto& [remainder, value] : largest) different.insert(value);
      different.erase(-INFINITY);
      const std::vector<double> wide(x.begin(), x.end());
      for (std::size_t count : {1, 2, 10, 64, 65}) {
        const float reached = count <= different.size() ? *std::next(different.begin(), std::ptrdiff_t(count) - 1) : -INFINITY;
        CHECK(below_largest(std::span<const float>(x), Index(count)) == std::nextafter(reached, -INFINITY));
        CHECK(below_largest(std::span<const double>(wide), Index(count)) == std::nextafter(double(reached), -HUGE_VAL));
        if (count <= different.size())
          CHECK(std::ranges::count_if(x, [&](float value) { return value >= reached; }) >= std::ptrdiff_t(count));
      }
    }
  });
}

TEST_CASE("reduce: dims out of range or named twice") {
  CHECK_THROWS_WITH_AS(sum(zeros({2, 3}), 2), doctest::Contains("sum: dim 2 is not in [-2, 2): shape [2, 3]"), IndexError);
  CHECK_THROWS_WITH_AS(sum(zeros({2, 3}), {1, -1}), doctest::Contains("dim -1 appears twice"), IndexError);
}

namespace {

double product_of(const reference::Values& v) { return std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>()); }
double maximum_of(const reference::Values& v) { return *std::max_element(v.begin(), v.end()); }
double minimum_of(const reference::Values& v) { return *std::min_element(v.begin(), v.end()); }
double length_of(const reference::Values& v) { return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0)); }
reference::Values running(reference::Values v) {
  std::partial_sum(v.begin(), v.end(), v.begin());
  return v;
}

}  // namespace

// Up to 200 additions of numbers up to 2.
static const InTable rows{
    {.name = "sum", .reference = reference::over({}, false, [](const reference::Values& v) { return reference::sum(v); }), .ulp = 60},
    {.name = "sum last",
     .reference = reference::over({-1}, false, [](const reference::Values& v) { return reference::sum(v); }),
     .ulp = 60},
    {.name = "sum middle",
     .reference = reference::over({1}, true, [](const reference::Values& v) { return reference::sum(v); }),
     .ulp = 60},
    {.name = "sum outer",
     .reference = reference::over({0, 2}, false, [](const reference::Values& v) { return reference::sum(v); }),
     .ulp = 60},
    {.name = "mean", .reference = reference::over({}, false, [](const reference::Values& v) { return reference::mean(v); }), .ulp = 60},
    {.name = "mean last",
     .reference = reference::over({-1}, false, [](const reference::Values& v) { return reference::mean(v); }),
     .ulp = 60},
    {.name = "mean middle",
     .reference = reference::over({1}, true, [](const reference::Values& v) { return reference::mean(v); }),
     .ulp = 60},
    {.name = "mean outer",
     .reference = reference::over({0, 2}, false, [](const reference::Values& v) { return reference::mean(v); }),
     .ulp = 60},
    {.name = "prod", .reference = reference::over({}, false, product_of), .ulp = 60},
    {.name = "prod last", .reference = reference::over({-1}, false, product_of), .ulp = 60},
    {.name = "prod middle", .reference = reference::over({1}, true, product_of), .ulp = 60},
    {.name = "prod outer", .reference = reference::over({0, 2}, false, product_of), .ulp = 60},
    {.name = "max", .reference = reference::over({}, false, maximum_of), .ulp = 60},
    {.name = "max last", .reference = reference::over({-1}, false, maximum_of), .ulp = 60},
    {.name = "max middle", .reference = reference::over({1}, true, maximum_of), .ulp = 60},
    {.name = "max outer", .reference = reference::over({0, 2}, false, maximum_of), .ulp = 60},
    {.name = "max of short rows", .reference = reference::over({1, 2}, false, maximum_of), .ulp = 60},
    {.name = "min", .reference = reference::over({}, false, minimum_of), .ulp = 60},
    {.name = "min last", .reference = reference::over({-1}, false, minimum_of), .ulp = 60},
    {.name = "min middle", .reference = reference::over({1}, true, minimum_of), .ulp = 60},
    {.name = "min outer", .reference = reference::over({0, 2}, false, minimum_of), .ulp = 60},
    {.name = "norm", .reference = reference::over({}, false, length_of), .ulp = 60},
    {.name = "norm last", .reference = reference::over({-1}, false, length_of), .ulp = 60},
    {.name = "norm middle", .reference = reference::over({1}, true, length_of), .ulp = 60},
    {.name = "norm outer", .reference = reference::over({0, 2}, false, length_of), .ulp = 60},
    {.name = "var",
     .reference = reference::over({}, false, [](const reference::Values& v) { return reference::variance(v, double(v.size())); }),
     .ulp = 60},
    {.name = "var last",
     .reference = reference::over({-1}, false, [](const reference::Values& v) { return reference::variance(v, double(v.size())); }),
     .ulp = 60},
    {.name = "var middle",
     .reference = reference::over({1}, true, [](const reference::Values& v) { return reference::variance(v, double(v.size())); }),
     .ulp = 60},
    {.name = "var outer",
     .reference = reference::over({0, 2}, false, [](const reference::Values& v) { return reference::variance(v, double(v.size())); }),
     .ulp = 60},
    {.name = "var unbiased",
     .reference = reference::over({0}, false, [](const reference::Values& v) { return reference::variance(v, double(v.size()) - 1); })},
    {.name = "stddev",
     .reference =
         reference::over({0}, false, [](const reference::Values& v) { return std::sqrt(reference::variance(v, double(v.size()) - 1)); }),
     .ulp = 60},
    {.name = "stddev middle",
     .reference =
         reference::over({1}, true, [](const reference::Values& v) { return std::sqrt(reference::variance(v, double(v.size()))); }),
     .ulp = 60},
    {.name = "cumsum", .reference = reference::along(-1, running), .ulp = 60},
    {.name = "cumsum dim 0", .reference = reference::along(0, running)},
    {.name = "sum_to",
     .reference =
         [](const reference::Arrays& x) {
           auto y = reference::over({0, 2}, true, reference::sum)(x);
           y.shape = {3, 1};
           return y;
         },
     .wrong = {{{{2, 3, 4, 5}}, {"[3, 1]"}}},
     .ulp = 60},
};
