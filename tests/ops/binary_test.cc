// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/binary.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("binary: pow and atan2 agree with C at special values, every target, f32 and f64") {
  const std::vector<double> special{0., -0., 1, -1, 2, -2, 3, 0.5, -0.5, -3, kInf, -kInf, kNaN, 1e30, -1e30};
  std::vector<double> a, b;
  for (double u : special)
    for (double v : special) a.push_back(u), b.push_back(v);
  const Shape shape{Index(a.size())};
  for (DType dtype : {DType::f32, DType::f64})
    for_every_target([&] {
      const Tensor p = pow(to(tensor(a, shape), dtype), to(tensor(b, shape), dtype));
      const Tensor t = atan2(to(tensor(a, shape), dtype), to(tensor(b, shape), dtype));
      const double eps = dtype == DType::f32 ? 5e-7 : 1e-15;
      for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(a[i]);
        CAPTURE(b[i]);
        const double power = dtype == DType::f32 ? double(float(std::pow(a[i], b[i]))) : std::pow(a[i], b[i]),
                     angle = std::atan2(a[i], b[i]);
        const double got = doubles(p)[i], turned = doubles(t)[i];
        CHECK((got == power || (std::isnan(got) && std::isnan(power)) || std::abs(got - power) <= eps * std::abs(power)));
        CHECK(std::signbit(got) == (std::isnan(got) ? std::signbit(got) : std::signbit(power)));
        CHECK(((std::isnan(turned) && std::isnan(angle)) || std::abs(turned - angle) <= eps * std::max(std::abs(angle), 1e-30)));
        if (!std::isnan(turned)) CHECK(std::signbit(turned) == std::signbit(angle));
      }
    });
}

TEST_CASE("binary: logaddexp neither overflows nor loses what is infinite") {
  struct Sum { double a, b, y; };
  const Sum cases[] = {{-kInf, -kInf, -kInf}, {kInf, kInf, kInf}, {-kInf, 1, 1}, {kInf, -kInf, kInf}, {800, 800, 800 + std::log(2.0)},
                       {-800, -801, -800 + std::log1p(std::exp(-1.0))}, {0, 50, 50}};
  for (DType dtype : {DType::f32, DType::f64})
    for_every_target([&] {
      for (const Sum& sum : cases) {
        CAPTURE(sum.a);
        CHECK(worst_absolute(logaddexp(full({19}, sum.a, dtype), full({19}, sum.b, dtype)), std::vector<double>(19, sum.y)) <=
              (dtype == DType::f32 ? 1e-4 : 1e-12));
      }
      CHECK(all_nan(logaddexp(full({19}, kNaN, dtype), ones({19}, dtype))));
      CHECK(all_nan(logaddexp(full({19}, -kInf, dtype), full({19}, kNaN, dtype))));
    });
}

TEST_CASE("binary: derivatives where the rule needs care") {
  const auto gradients = [](Binary op, double a, double b) {
    const Tensor x = full({17}, a, DType::f64), y = full({17}, b, DType::f64), z = binary(op, x, y), dy = ones({17}, DType::f64);
    const Tensor dx = empty_like(x), dz = empty_like(x);
    const Into to_a{dx}, to_b{dz};
    binary_grad(op, x, y, z, dy, &to_a, &to_b);
    return std::pair(doubles(dx)[16], doubles(dz)[16]);
  };
  for_every_target([&] {
    CHECK(gradients(Binary::maximum, 2, 2) == std::pair(0.5, 0.5));         // ties share evenly
    CHECK(gradients(Binary::minimum, 2, 2) == std::pair(0.5, 0.5));
    CHECK(gradients(Binary::maximum, 3, 2) == std::pair(1.0, 0.0));
    CHECK(gradients(Binary::atan2, 0, 0) == std::pair(0.0, 0.0));
    for (const double r : {1e-300, 1e-150, 1e150, 1e300}) {                 // squares vanish or overflow
      CHECK(gradients(Binary::atan2, r, r).first * r == doctest::Approx(0.5));
      CHECK(gradients(Binary::atan2, r, r).second * r == doctest::Approx(-0.5));
    }
    CHECK(gradients(Binary::logaddexp, -kInf, -kInf) == std::pair(0.5, 0.5));  // as of other equals
    CHECK(gradients(Binary::logaddexp, -kInf, 1) == std::pair(0.0, 1.0));
    CHECK(gradients(Binary::logaddexp, 800, -800) == std::pair(1.0, 0.0));
    CHECK(gradients(Binary::pow, 0, 0) == std::pair(0.0, 0.0));
    CHECK(gradients(Binary::pow, 0, 2) == std::pair(0.0, 0.0));
    CHECK(gradients(Binary::pow, 2, 0).first == 0);
    CHECK(std::isnan(gradients(Binary::pow, -1, 0.5).first));
  });
}

TEST_CASE("binary: maximum and minimum keep NaN from either side and the first of two zeros on every target") {
  for_every_target([&] {
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor zero = full({23}, 0., dtype), below = full({23}, -0., dtype);
      for (Binary op : {Binary::maximum, Binary::minimum}) {
        CHECK(equal_bits(binary(op, zero, below), zero));
        CHECK(equal_bits(binary(op, below, zero), below));
      }
      const Tensor nans = full({23}, kNaN, dtype), numbers = full({23}, 1, dtype);
      CHECK(all_nan(maximum(nans, numbers)));
      CHECK(all_nan(maximum(numbers, nans)));
      CHECK(all_nan(minimum(nans, numbers)));
      CHECK(all_nan(minimum(numbers, nans)));
    }
  });
}

TEST_CASE("binary: broadcasting against loops over every pair of shapes of rank 3 with sizes 1 and 3, strided too") {
  const auto make = [](int bits, double start) {
    Shape shape;
    for (int axis = 0; axis < 3; ++axis) shape.push_back(bits >> axis & 1 ? 3 : 1);
    return reshape(to(arange(start, start + double(shape.numel())), DType::f64), shape);
  };
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      for (bool turned : {false, true}) {
        Tensor a = make(i, 1), b = make(j, 100);
        if (turned) a = permute(a, {2, 0, 1}), b = flip(permute(b, {2, 0, 1}), {0, 1});
        const Tensor y = a * b;
        REQUIRE(y.shape() == broadcast_shapes("test", a.shape(), b.shape()));
        for (Index p = 0; p < y.size(0); ++p)
          for (Index q = 0; q < y.size(1); ++q)
            for (Index r = 0; r < y.size(2); ++r) {
              const auto at = [&](const Tensor& t) { return t(p % t.size(0), q % t.size(1), r % t.size(2)).item(); };
              CHECK(y(p, q, r).item() == at(a) * at(b));
            }
      }
}

TEST_CASE(
    "binary: what is broadcast gives the bits of what is spread, on either side, beside any strides, written or added, every target") {
  const auto check = [](const Tensor& small, const Tensor& rows, const Tensor& x) {   // x: rows with other strides
    const Tensor spread = expand(small, rows.shape()).contiguous(), before = ones(rows.shape(), rows.dtype());
    const auto into = [&](Binary op, const Tensor& a, const Tensor& b, bool add) {
      const Tensor y = before.clone();
      binary(op, a, b, {y, add});
      return y;
    };
    const auto gradient = [&](Binary op, const Tensor& a, const Tensor& b, bool of_b) {
      const Tensor y = binary(op, a, b), dx = empty_like(y);
      const Into to{dx};
      binary_grad(op, a, b, y, rows, of_b ? nullptr : &to, of_b ? &to : nullptr);
      return dx;
    };
    for (Binary op : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::maximum, Binary::minimum, Binary::pow,
                      Binary::atan2, Binary::logaddexp}) {
      const Tensor right = binary(op, rows, spread), left = binary(op, spread, rows);
      CHECK(equal_bits(binary(op, x, small), right));
      CHECK(equal_bits(binary(op, small, x), left));
      CHECK(equal_bits(into(op, x, small, true), before + right));
      CHECK(equal_bits(into(op, small, x, false), left));
      const Tensor backwards = flip(before.clone(), {1});
      binary(op, small, x, {backwards, false});
      CHECK(equal_bits(backwards, left));
      CHECK(equal_bits(gradient(op, x, small, false), gradient(op, rows, spread, false)));
      CHECK(equal_bits(gradient(op, small, x, true), gradient(op, spread, rows, true)));
    }
  };
  for (const Shape& shape : {Shape{5, 64}, Shape{5, 71}, Shape{3, 2100}, Shape{3, 17000}, Shape{700, 3}, Shape{40, 63}})
    for (DType dtype : {DType::f32, DType::f64})
      for (const Shape& from : {Shape{shape[0], 1}, Shape{shape[1]}, Shape{}}) {
        CAPTURE(shape);
        CAPTURE(from);
        const Tensor rows = uniform(Key(Seed{1}), shape, 0.5, 2, dtype), small = uniform(Key(Seed{2}), from, 0.5, 2, dtype);
        for_every_target([&] {
          check(small, rows, rows);
          check(small, rows, transpose(transpose(rows).contiguous()));
          check(small, rows, flip(flip(rows, {1}).contiguous(), {1}));
        });
      }
}

TEST_CASE("binary: integers wrap, division truncates and throws on 0") {
  const Tensor a = tensor({250, 6}, DType::u8), b = tensor({10, 3}, DType::u8);
  CHECK(doubles(a + b) == std::vector<double>{4, 9});
  CHECK(doubles(a * b) == std::vector<double>{196, 18});
  CHECK(doubles(b - a) == std::vector<double>{16, 253});
  CHECK(doubles(a / b) == std::vector<double>{25, 2});
  CHECK(doubles(maximum(a, b)) == std::vector<double>{250, 6});
  const Tensor least = full({2}, -2147483648.0, DType::i32);
  CHECK(doubles(least - full({2}, 1, DType::i32)) == std::vector<double>(2, 2147483647.0));
  CHECK(doubles(least / full({2}, -1, DType::i32)) == std::vector<double>(2, -2147483648.0));
  CHECK(doubles(full({1}, -7, DType::i64) / full({1}, 2, DType::i64)) == std::vector<double>{-3});
  CHECK_THROWS_WITH_AS(a / tensor({1, 0}, DType::u8), doctest::Contains("divided by 0"), Error);
  CHECK_THROWS_AS(pow(a, b), DTypeError);
  CHECK(doubles(2 * a - 3) == std::vector<double>{241, 9});
  CHECK_THROWS_WITH_AS(arange(0, 3) + 0.5, "add: 0.5 does not fit i64", DTypeError);
  CHECK_THROWS_WITH_AS(arange(0, 3) / 2.5, "divide: 2.5 does not fit i64", DTypeError);
  CHECK_THROWS_WITH_AS(arange(0, 3) / 4.0,
                       "divide: i64 by a number would truncate: to(x, DType::f32) first, or a tensor of i64 for the number", DTypeError);
  CHECK_THROWS_WITH_AS(2.0 / arange(1, 3),
                       "divide: a number by i64 would truncate: to(x, DType::f32) first, or a tensor of i64 for the number", DTypeError);
  CHECK_THROWS_WITH_AS(constant(arange(0, 3)) / 4.0,
                       "divide: i64 by a number would truncate: to(x, DType::f32) first, or a tensor of i64 for the number", DTypeError);
  CHECK_THROWS_WITH_AS(2.0 / constant(arange(1, 3)),
                       "divide: a number by i64 would truncate: to(x, DType::f32) first, or a tensor of i64 for the number", DTypeError);
  CHECK_THROWS_WITH_AS(a + -1, "add: -1 does not fit u8", DTypeError);
  CHECK_THROWS_WITH_AS(maximum(kNaN, a), "maximum: nan does not fit u8", DTypeError);
}

TEST_CASE("binary: comparisons, logic and where") {
  const Tensor a = tensor({1, 2, kNaN, 4}, DType::f32), b = tensor({1, 3, kNaN, 0}, DType::f32);
  CHECK(doubles(equal(a, b)) == std::vector<double>{1, 0, 0, 0});
  CHECK(doubles(not_equal(a, b)) == std::vector<double>{0, 1, 1, 1});
  CHECK(doubles(less(a, b)) == std::vector<double>{0, 1, 0, 0});
  CHECK(doubles(less_equal(a, b)) == std::vector<double>{1, 1, 0, 0});
  CHECK(doubles(greater(a, b)) == std::vector<double>{0, 0, 0, 1});
  CHECK(doubles(greater_equal(a, 2.0)) == std::vector<double>{0, 1, 0, 1});
  CHECK(doubles(equal(full({1}, 0.1), 0.1)) == std::vector<double>{1});    // 0.1 takes the dtype f32
  CHECK(doubles(less(arange(0, 4), 2.5)) == std::vector<double>{1, 1, 1, 0});
  CHECK(doubles(equal(reshape(arange(0, 3), {3, 1}), arange(0, 2))) == std::vector<double>{1, 0, 0, 1, 0, 0});
  const Tensor p = tensor({0, 0, 1, 7}, DType::u8), q = tensor({0, 1, 0, 2}, DType::u8);
  CHECK(doubles(logical_and(p, q)) == std::vector<double>{0, 0, 0, 1});
  CHECK(doubles(logical_or(p, q)) == std::vector<double>{0, 1, 1, 1});
  CHECK(doubles(logical_xor(p, q)) == std::vector<double>{0, 1, 1, 0});
  CHECK(doubles(logical_not(p)) == std::vector<double>{1, 1, 0, 0});
  CHECK(doubles(where(p, arange(0, 4), arange(10, 14))) == std::vector<double>{10, 11, 2, 3});
  CHECK(doubles(where(tensor({1, 0}, DType::u8), tensor({5, 5}), full({2}, kNaN)))[0] == 5);   // picks, does not multiply
}

TEST_CASE(
    "binary: integers, comparisons, logic and where against loops, whole blocks and their rests, every dtype, strided and broadcast") {
  using Function = double (*)(double, double);
  const std::pair<Binary, Function> arithmetic[] = {{Binary::add, [](double a, double b) { return a + b; }},
                                                    {Binary::subtract, [](double a, double b) { return a - b; }},
                                                    {Binary::multiply, [](double a, double b) { return a * b; }},
                                                    {Binary::divide, [](double a, double b) { return double(int(a / b)); }},
                                                    {Binary::maximum, [](double a, double b) { return std::max(a, b); }},
                                                    {Binary::minimum, [](double a, double b) { return std::min(a, b); }}};
  const std::pair<Comparison, Function> comparisons[] = {{Comparison::equal, [](double a, double b) { return double(a == b); }},
                                                         {Comparison::not_equal, [](double a, double b) { return double(a != b); }},
                                                         {Comparison::less, [](double a, double b) { return double(a < b); }},
                                                         {Comparison::less_equal, [](double a, double b) { return double(a <= b); }},
                                                         {Comparison::greater, [](double a, double b) { return double(a > b); }},
                                                         {Comparison::greater_equal, [](double a, double b) { return double(a >= b); }}};
  for (const Index n : {1, 63, 64, 65, 200})
    for (DType dtype : {DType::u8, DType::i32, DType::i64, DType::f32, DType::f64, DType::bf16}) {
      CAPTURE(n);
      CAPTURE(dtype);
      const Tensor big = to(randint(Key(Seed{1}), {3, n}, 5, 12), dtype), small = to(randint(Key(Seed{2}), {3, n}, 1, 6), dtype);
      const Tensor other[] = {small, transpose(transpose(small).contiguous()), flip(small, {1}), slice(small, 1, 0, 1), select(small, 0, 1),
                              select(select(small, 0, 2), 0, 0)};
      for (const Tensor& b : other) {
        const auto x = doubles(big), y = doubles(expand(b, big.shape()));
        const auto agrees = [&](const Tensor& got, const Function& f) {
          const auto z = doubles(got);
          bool same = z.size() == x.size();
          for (std::size_t i = 0; same && i < z.size(); ++i) same = z[i] == f(x[i], y[i]);
          return same;
        };
        for (const auto& [op, f] : arithmetic)
          if (!is_float(dtype) && dtype != DType::bf16 && (dtype != DType::u8 || op != Binary::subtract))
            CHECK(agrees(binary(op, big, b), f));
        for (const auto& [op, f] : comparisons) {
          CHECK(agrees(compare(op, big, b), f));
          if (b.rank() == 0) CHECK(agrees(compare(op, big, b.item()), f));
        }
        const Tensor bits = greater(big, b);
        CHECK(agrees(where(bits, big, b), [](double u, double v) { return std::max(u, v); }));
        CHECK(agrees(logical_or(bits, less_equal(big, b)), [](double, double) { return 1.0; }));
        CHECK(agrees(logical_and(logical_not(bits), bits), [](double, double) { return 0.0; }));
      }
    }
}

TEST_CASE("binary: errors name the op, the rule and both sides") {
  CHECK_THROWS_WITH_AS(zeros({2, 3}) + zeros({4, 3}), doctest::Contains("add: shapes do not broadcast: a [2, 3], b [4, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(zeros({2}) * zeros({2}, DType::f64), doctest::Contains("multiply: dtypes differ: a f32, b f64"), DTypeError);
  CHECK_THROWS_WITH_AS(less(zeros({2}), zeros({3})), doctest::Contains("less: shapes do not broadcast: a [2], b [3]"), ShapeError);
  CHECK_THROWS_AS(where(zeros({2}), zeros({2}), zeros({2})), DTypeError);
  CHECK_THROWS_AS(logical_and(zeros({2}), zeros({2})), DTypeError);
  CHECK_THROWS_AS(Tensor() + 1.0, Error);
  CHECK_THROWS_AS(zeros({2}) + Tensor(), Error);
}

TEST_CASE("add_into: any strides, writing and adding") {
  const Tensor x = reshape(to(arange(0, 12), DType::f32), {3, 4});
  const Tensor out = full({4, 3}, 1);
  add_into(x, {transpose(out), false});
  CHECK(worst_absolute(transpose(out), x) == 0);
  add_into(expand(full({1, 3}, 10), {4, 3}), {out, true});
  CHECK(worst_absolute(transpose(out), x + 10.0) == 0);
  CHECK_THROWS_WITH_AS(add_into(x, {zeros({4, 4}), true}), doctest::Contains("[4, 4]"), ShapeError);
}

static const InTable rows{
    {.name = "add", .reference = reference::two([](double a, double b) { return a + b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "operator+", .reference = reference::two([](double a, double b) { return a + b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "subtract", .reference = reference::two([](double a, double b) { return a - b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "multiply", .reference = reference::two([](double a, double b) { return a * b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "operator*", .reference = reference::two([](double a, double b) { return a * b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "divide", .reference = reference::two([](double a, double b) { return a / b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "operator/", .reference = reference::two([](double a, double b) { return a / b; }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "maximum", .reference = reference::two([](double a, double b) { return std::max(a, b); }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "minimum", .reference = reference::two([](double a, double b) { return std::min(a, b); }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "pow", .reference = reference::two([](double a, double b) { return std::pow(a, b); }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "logaddexp",
     .reference = reference::two([](double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }),
     .wrong = {{{{2, 3}, {4, 3}}}}},
    {.name = "atan2", .reference = reference::two([](double a, double b) { return std::atan2(a, b); }), .wrong = {{{{2, 3}, {4, 3}}}}},
    {"operator-",
     [](const reference::Arrays& x) {
       return x.size() == 1 ? reference::each([](double v) { return -v; })(x) : reference::two([](double a, double b) { return a - b; })(x);
     }},
    {"add number", reference::each([](double x) { return x + 1.5; })},
    {"add to number", reference::each([](double x) { return x + 1.5; })},
    {"subtract number", reference::each([](double x) { return x - 1.5; })},
    {"subtract from number", reference::each([](double x) { return 1.5 - x; })},
    {"multiply number", reference::each([](double x) { return x * 1.5; })},
    {"multiply by number", reference::each([](double x) { return x * 1.5; })},
    {"divide by number", reference::each([](double x) { return x / 1.5; })},
    {"divide number", reference::each([](double x) { return 1.5 / x; })},
    {"maximum number", reference::each([](double x) { return std::max(x, 0.5); })},
    {"maximum of number", reference::each([](double x) { return std::max(x, 0.5); })},
    {"minimum number", reference::each([](double x) { return std::min(x, 0.5); })},
    {"minimum of number", reference::each([](double x) { return std::min(x, 0.5); })},
    {"pow of number", reference::each([](double x) { return std::pow(1.5, x); })},
    {"where",
     [](const reference::Arrays& x) {
       const auto bits = doubles(less(uniform(Key(9), x[0].shape, 0, 1), 0.5));
       std::size_t i = 0;
       return reference::make(x[0].shape, [&](const reference::Position& p) { return bits[i++] != 0 ? x[0](p) : x[1](p); });
     }},
};
