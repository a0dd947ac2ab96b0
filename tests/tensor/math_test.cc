// SPDX-License-Identifier: Apache-2.0
// The errors that tensor/math-inl.h states, against long double, on every target.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tests/close.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

using Exact = std::function<long double(long double)>;

// Largest |y - exact| in units of the last place of T, where the exact value is a normal number.
template <class T> double ulps(const Tensor& x, const Tensor& y, const Exact& exact) {
  const auto from = x.span<T>(), got = y.span<T>();
  double most = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const long double want = exact(from[i]);
    if (!(std::abs(want) >= std::numeric_limits<T>::min() && std::abs(want) <= std::numeric_limits<T>::max())) continue;
    int exponent;
    std::frexp(want, &exponent);
    const double error = double(std::abs(got[i] - want) / std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits));
    most = std::isnan(error) ? HUGE_VAL : std::max(most, error);
  }
  return most;
}

// Numbers of [low, high], and numbers of all magnitudes with their signs.
template <class T> Tensor arguments(double low, double high) {
  constexpr Index n = 40000;
  const Tensor x = uniform(Key(1), {2 * n}, low, high, dtype_of<T>);
  const auto values = x.mutable_span<T>();
  Random random(Key(2));
  for (Index i = n; i < 2 * n; ++i) {
    const double v = std::ldexp(1 + random.uniform(), int(random.below(sizeof(T) == 4 ? 250 : 2000)) - (sizeof(T) == 4 ? 125 : 1000));
    values[std::size_t(i)] = T(random.below(2) ? v : -v);
  }
  return x;
}

}  // namespace

TEST_CASE("math: every function is as exact as it says, on every target") {
  struct Case { Unary op; double low, high, f32, f64; Exact exact; };
  const Case cases[] = {
      {Unary::exp, -88, 88.7, 1.0, 1.0, [](long double x) { return std::exp(x); }},
      {Unary::log, 0, 3, 0.9, 0.9, [](long double x) { return x > 0 ? std::log(x) : 0; }},
      {Unary::log1p, -1, 2, 1.6, 1.6, [](long double x) { return x > -1 ? std::log1p(x) : 0; }},
      {Unary::tanh, -9, 9, 5.3, 2.6, [](long double x) { return std::tanh(x); }},
      {Unary::sigmoid, -80, 30, 2.3, 2.3, [](long double x) { return 1 / (1 + std::exp(-x)); }},
      {Unary::softplus, -80, 30, 2.0, 2.0, [](long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x))); }},
      {Unary::erf, -5, 5, 1.6, 1.5, [](long double x) { return std::erf(x); }},
      {Unary::sin, -100, 100, 2.0, 2.5, [](long double x) { return std::sin(x); }},
      {Unary::cos, -100, 100, 2.0, 2.5, [](long double x) { return std::cos(x); }},
      {Unary::gelu, -3, 8, 9, 9, [](long double x) { return x < -3 ? 0 : x * std::erfc(-x / std::sqrt(2.0L)) / 2; }},
  };
  for (const Case& one : cases)
    for_every_target([&] {
      CAPTURE(std::string(name(one.op)));
      const Tensor x = arguments<float>(one.low, one.high), z = arguments<double>(one.low, one.high);
      CHECK(ulps<float>(x, unary(one.op, x), one.exact) <= one.f32 + (one.op == Unary::tanh && !has_fma() ? 1 : 0));
      CHECK(ulps<double>(z, unary(one.op, z), one.exact) <= one.f64);
    });
}

TEST_CASE("math: tanh and erf are odd to the bit and never leave [-1, 1]; targets with FMA agree to the bit") {
  const Tensor x = arguments<float>(-10, 10);
  Tensor with_fma;
  for_every_target([&] {
    CHECK(equal_bits(tanh(-x), -tanh(x)));
    CHECK(equal_bits(erf(-x), -erf(x)));
    const Tensor bounded = tanh(x);
    for (float y : bounded.span<float>()) CHECK(std::abs(y) <= 1);
    if (has_fma()) {
      const Tensor y = tanh(x) + sigmoid(x) + gelu(x) + sin(x) + log(abs(x)) + erf(x) + exp(-x * x);
      if (with_fma.defined()) CHECK(equal_bits(y, with_fma));
      with_fma = y;
    }
  });
}

// ln x goes with all its bits into e^{y ln x}: a large y shows what is lost near ln 1 = 0.
TEST_CASE("math: pow over all that its results may be") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double most_ln = dtype == DType::f32 ? 87 : 708, epsilon = dtype == DType::f32 ? 0x1p-23 : 0x1p-52;
    const Tensor near = to(uniform(Key(5), {20000}, 0.7, 1.42, DType::f64), dtype),
                 u = uniform(Key(6), {20000}, -most_ln, most_ln, DType::f64);
    const Tensor x = to(near, DType::f64), y = to(to(u / abs(log(x)), dtype), DType::f64);
    for_every_target([&] {
      const Tensor z = to(pow(near, to(y, dtype)), DType::f64);
      double most = 0;
      for (std::size_t i = 0; i < 20000; ++i) {
        const long double want = std::pow((long double)x.span<double>()[i], (long double)y.span<double>()[i]);
        const double error = double(std::abs(z.span<double>()[i] - want) / want);
        most = std::isnan(error) ? HUGE_VAL : std::max(most, error);
      }
      CHECK(most <= 1.9 * epsilon);
      CHECK(pow(full({17}, -1, dtype), full({17}, dtype == DType::f32 ? 0x1p127 : 0x1p1023, dtype))[16].item() == 1);
    });
  }
}

TEST_CASE("math: atan2 of the largest and the smallest numbers") {
  struct Angle { DType dtype; double y, x; };
  for_every_target([] {
    for (const auto& [dtype, y, x] : {Angle{DType::f32, 0x1.fffffep127, -0x1.1p127}, Angle{DType::f32, 0x1.8p127, 0x1p127},
                                      Angle{DType::f64, 0x1.8p1023, 0x1p1023}, Angle{DType::f64, -0x1p1023, 0x1.fp1023},
                                      Angle{DType::f32, 0x1p-126, 0x1.8p-126}, Angle{DType::f64, 0x1p-1022, 0x1.8p-1022}})
      CHECK(atan2(full({17}, y, dtype), full({17}, x, dtype))[16].item() ==
            doctest::Approx(std::atan2(y, x)).epsilon(dtype == DType::f32 ? 3e-7 : 1e-15));
  });
}

TEST_CASE("math: pow against long double") {
  const Tensor x = uniform(Key(3), {40000}, 0.01, 20, DType::f64), y = uniform(Key(4), {40000}, -60, 60, DType::f64);
  for_every_target([&] {
    const Tensor z = pow(x, y);
    double most = 0;
    for (std::size_t i = 0; i < 40000; ++i) {
      const long double want = std::pow((long double)x.span<double>()[i], (long double)y.span<double>()[i]);
      const double error = double(std::abs(z.span<double>()[i] - want) / want);
      most = std::isnan(error) ? HUGE_VAL : std::max(most, error);
    }
    CHECK(most <= 1.7 * 0x1p-52);
    // the smallest normal number
    CHECK(pow(tensor({0.5, 2, 0.25}), tensor({126, -126, 63})).to_vector<float>() == std::vector<float>(3, 0x1p-126f));
    CHECK(pow(full({}, 0.5, DType::f64), full({}, 1022, DType::f64)).item() == 0x1p-1022);
    // the largest
    CHECK(pow(tensor({0x1.fffffep127, 0x1.fffffcp127, 0x1.fffffep126}), 1).to_vector<float>() ==
          std::vector<float>{0x1.fffffep127f, 0x1.fffffcp127f, 0x1.fffffep126f});
    CHECK(pow(full({}, 0x1.44eeff3df05f8p+3, DType::f64), full({}, 0x1.323851eb851ecp+8, DType::f64)).item() ==
          doctest::Approx(std::pow(0x1.44eeff3df05f8p+3, 0x1.323851eb851ecp+8)).epsilon(1e-15));
    CHECK(std::isinf(pow(tensor(0x1.fffffep127), tensor(1.00001)).item()));
  });
}
