// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#define HWY_TARGET_INCLUDE "tensor/ops/random.cc"
#include "tensor/dropout-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// y_j (=|+=) x_j m_(start+j); start is a multiple of 128
template <class T> void Dropout(const DropoutKey& dropout, Index start, const T* x, size_t n, bool add, T* y) {
  const Lanes16<T> d;
  const size_t N = hn::Lanes(d);
  T factors[128];
  for (size_t begin = 0; begin < n; begin += 128) {
    DropoutGroup(dropout, uint64_t(start + Index(begin)) / 128, factors);
    const size_t count = n - begin < 128 ? n - begin : 128;
    const T* from = x + begin;
    T* to = y + begin;
    size_t j = 0;
    for (; j + N <= count; j += N) {
      const auto value = hn::Mul(hn::LoadU(d, from + j), hn::LoadU(d, factors + j));
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to + j), value) : value, d, to + j);
    }
    for (; j < count; ++j) to[j] = add ? to[j] + from[j] * factors[j] : from[j] * factors[j];
  }
}

void DropoutF32(const DropoutKey& key, Index start, const float* x, size_t n, bool add, float* y) { Dropout(key, start, x, n, add, y); }
void DropoutF64(const DropoutKey& key, Index start, const double* x, size_t n, bool add, double* y) { Dropout(key, start, x, n, add, y); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <numeric>

#include "tensor/format.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(DropoutF32);
HWY_EXPORT(DropoutF64);

namespace {

constexpr Index kGrain = 1 << 15;  // elements a chunk, a multiple of 128

// out[i] = f(draw i) with the draws of Random(key): draw i is half i % 2 of philox(key, i / 2).
template <class T, class F> void fill(Key key, const Tensor& out, F&& f) {
  T* values = out.mutable_span<T>().data();
  parallel_for(out.numel(), kGrain / 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; i += 2) {
      const auto block = philox(key, std::uint64_t(i / 2));
      values[i] = f(block[0] | std::uint64_t(block[1]) << 32);
      if (i + 1 < end) values[i + 1] = f(block[2] | std::uint64_t(block[3]) << 32);
    }
  });
}

void multiply(const char* op, const Tensor& x, double p, Key key, bool add, const Tensor& y) {
  const DropoutKey dropout(op, p, key);
  visit_float(x.dtype(), op, [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutable_data<T>();
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(DropoutF32), &HWY_DYNAMIC_DISPATCH(DropoutF64));
    parallel_for(x.numel(), kGrain, [&](Index begin, Index end) {
      kernel(dropout, begin, from + begin, std::size_t(end - begin), add, to + begin);
    });
  });
}

}  // namespace

Tensor uniform(Key key, const Shape& shape, double lo, double hi, DType dtype) {
  check<Error>(lo <= hi && std::isfinite(lo) && std::isfinite(hi), "uniform: lo must not exceed hi: lo {}, hi {}", lo, hi);
  const Tensor out = empty(shape, dtype);
  visit_float(dtype, "uniform", [&]<class T>() {
    const T last = lo < hi ? std::nextafter(T(hi), T(lo)) : T(lo);
    fill<T>(key, out, [&](std::uint64_t bits) { return std::min(T(lo + (hi - lo) * unit_interval(bits)), last); });
  });
  return out;
}

Tensor normal(Key key, const Shape& shape, double mean, double std, DType dtype) {
  check<Error>(std >= 0, "normal: std must not be negative: std {}", std);
  const Tensor out = empty(shape, dtype);
  visit_float(dtype, "normal", [&]<class T>() {
    fill<T>(key, out, [&](std::uint64_t bits) { return T(mean + std * normal_quantile((double(bits >> 12) + 0.5) * 0x1p-52)); });
  });
  return out;
}

Tensor bernoulli(Key key, const Shape& shape, double p) {
  check<Error>(p >= 0 && p <= 1, "bernoulli: p must be in [0, 1]: p {}", p);
  const Tensor out = empty(shape, DType::u8);
  fill<std::uint8_t>(key, out, [&](std::uint64_t bits) { return std::uint8_t(unit_interval(bits) < p); });
  return out;
}

Tensor randint(Key key, const Shape& shape, Index lo, Index hi) {
  check<Error>(lo < hi, "randint: lo must be below hi: lo {}, hi {}", lo, hi);
  const Tensor out = empty(shape, DType::i64);
  Random random(key);
  for (Index& value : out.mutable_span<Index>()) value = lo + random.below(hi - lo);
  return out;
}

Tensor permutation(Key key, Index n) {
  const Tensor out = empty({n}, DType::i64);
  const auto order = out.mutable_span<Index>();
  std::iota(order.begin(), order.end(), Index{0});
  Random(key).shuffle(order);
  return out;
}

Tensor dropout(const Tensor& x, double p, Key key) {
  if (DropoutKey("dropout", p, key).keeps_all()) return x;
  const Tensor y = empty(x.shape(), x.dtype());
  multiply("dropout", x.contiguous(), p, key, false, y);
  return y;
}

void dropout_grad(const Tensor& dy, double p, Key key, Into dx) {
  check<ShapeError>(dy.shape() == dx.tensor.shape(), "dropout_grad: shapes differ: dy {}, dx {}", dy.shape(), dx.tensor.shape());
  check<DTypeError>(dy.dtype() == dx.tensor.dtype(), "dropout_grad: dtypes differ: dy {}, dx {}", dy.dtype(), dx.tensor.dtype());
  Destination out(dx);
  multiply("dropout_grad", dy.contiguous(), p, key, out.add(), out.tensor());
  out.finish();
}

}  // namespace heed
#endif
