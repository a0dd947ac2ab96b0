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

// draws[2 i], draws[2 i + 1]: the halves of philox(key, 16 group + i), i < 16
void Draws(Key key, uint64_t group, uint64_t* HWY_RESTRICT draws) {
  uint32_t words[64];
  PhiloxGroup(key.bits(), group, words);
  for (size_t i = 0; i < 16; ++i) {
    draws[2 * i] = words[i] | uint64_t(words[16 + i]) << 32;
    draws[2 * i + 1] = words[32 + i] | uint64_t(words[48 + i]) << 32;
  }
}

// x[i] = min(lo + range u, last), u of draw 32 group + i, i < 32
template <class T> void Uniform(Key key, uint64_t group, double lo, double range, T last, T* HWY_RESTRICT x) {
  uint64_t draws[32];
  Draws(key, group, draws);
  for (size_t i = 0; i < 32; ++i) {
    const T value = T(lo + range * unit_interval(draws[i]));
    x[i] = value < last ? value : last;
  }
}

// x[i] = mean + std Φ⁻¹(u)
template <class T> void Normal(Key key, uint64_t group, double mean, double std, T* HWY_RESTRICT x) {
  uint64_t draws[32];
  double q[32];
  Draws(key, group, draws);
  for (size_t i = 0; i < 32; ++i) {
    q[i] = (double(int64_t(draws[i] >> 12)) + 0.5) * 0x1p-52 - 0.5;
    x[i] = T(mean + std * detail::central_quantile(q[i]));
  }
  for (size_t i = 0; i < 32; ++i)
    if (q[i] < -detail::kCentral || q[i] > detail::kCentral) x[i] = T(mean + std * normal_quantile((double(draws[i] >> 12) + 0.5) * 0x1p-52));
}

void UniformF32(Key key, uint64_t group, double lo, double range, float last, float* x) { Uniform(key, group, lo, range, last, x); }
void UniformF64(Key key, uint64_t group, double lo, double range, double last, double* x) { Uniform(key, group, lo, range, last, x); }
void NormalF32(Key key, uint64_t group, double mean, double std, float* x) { Normal(key, group, mean, std, x); }
void NormalF64(Key key, uint64_t group, double mean, double std, double* x) { Normal(key, group, mean, std, x); }

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
HWY_EXPORT(Draws);
HWY_EXPORT(UniformF32);
HWY_EXPORT(UniformF64);
HWY_EXPORT(NormalF32);
HWY_EXPORT(NormalF64);

namespace {

constexpr Index kGrain = 1 << 15;  // elements a chunk, a multiple of 128

// groups(group, x) makes elements 32 group .. 32 group + 31 of `into`, in row-major order.
template <class T, class Groups> void fill(const Tensor& into, const Groups& groups) {
  const Tensor dense = into.is_contiguous() ? into : empty(into.shape(), into.dtype());
  T* const values = dense.mutable_span<T>().data();
  parallel_for(dense.numel(), kGrain / 16, [&](Index begin, Index end) {
    Index i = begin;
    for (; i + 32 <= end; i += 32) groups(std::uint64_t(i / 32), values + i);
    if (i == end) return;
    T edge[32];
    groups(std::uint64_t(i / 32), edge);
    std::copy_n(edge, end - i, values + i);
  });
  if (!into.is_contiguous()) copy_into(into, dense);
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

void uniform_(const Tensor& into, Key key, double lo, double hi) {
  check<Error>(lo <= hi && std::isfinite(lo) && std::isfinite(hi), "uniform: lo must not exceed hi: lo {}, hi {}", lo, hi);
  visit_float(into.dtype(), "uniform", [&]<class T>() {
    const T last = lo < hi ? std::nextafter(T(hi), T(lo)) : T(lo);
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(UniformF32), &HWY_DYNAMIC_DISPATCH(UniformF64));
    fill<T>(into, [&](std::uint64_t group, T* x) { kernel(key, group, lo, hi - lo, last, x); });
  });
}

void normal_(const Tensor& into, Key key, double mean, double std) {
  check<Error>(std >= 0, "normal: std must not be negative: std {}", std);
  visit_float(into.dtype(), "normal", [&]<class T>() {
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(NormalF32), &HWY_DYNAMIC_DISPATCH(NormalF64));
    fill<T>(into, [&](std::uint64_t group, T* x) { kernel(key, group, mean, std, x); });
  });
}

Tensor uniform(Key key, const Shape& shape, double lo, double hi, DType dtype) {
  const Tensor out = empty(shape, dtype);
  uniform_(out, key, lo, hi);
  return out;
}

Tensor normal(Key key, const Shape& shape, double mean, double std, DType dtype) {
  const Tensor out = empty(shape, dtype);
  normal_(out, key, mean, std);
  return out;
}

Tensor bernoulli(Key key, const Shape& shape, double p) {
  check<Error>(p >= 0 && p <= 1, "bernoulli: p must be in [0, 1]: p {}", p);
  const Tensor out = empty(shape, DType::u8);
  const auto draws = HWY_DYNAMIC_DISPATCH(Draws);
  fill<std::uint8_t>(out, [&](std::uint64_t group, std::uint8_t* x) {
    std::uint64_t bits[32];
    draws(key, group, bits);
    for (int i = 0; i < 32; ++i) x[i] = std::uint8_t(unit_interval(bits[i]) < p);
  });
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
