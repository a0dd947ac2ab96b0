// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/rotary.h"

#define HWY_TARGET_INCLUDE "tensor/ops/rotary.cc"
#include "tensor/block-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Neighbours 2p, 2p + 1 change places
template <class T> HWY_INLINE Block<T> SwapPairs16(const Block<T>& x) {
  Block<T> y;
#if HWY_TARGET == HWY_SCALAR
  for (size_t r = 0; r < Block<T>::kRegisters; ++r) y.v[r] = x.v[r ^ 1];
#else
  HEED_EACH_REGISTER y.v[r] = hn::Reverse2(typename Block<T>::D(), x.v[r]);
#endif
  return y;
}

// y = x c + partner s, or turned back: x c - partner s; product and sum are rounded apart
template <class T>
HWY_INLINE void TurnBlock(const Block<T>& x, const Block<T>& partner, const T* c, const T* s, size_t n, bool back, bool add, T* y) {
  const Block<T> own = x * LoadN16(c, n), other = partner * LoadN16(s, n), value = back ? own - other : own + other;
  StoreN16(add ? LoadN16(y, n) + value : value, n, y);
}

template <class T> void Rotary(const T* x, const T* c, const T* s, size_t d, bool half, bool back, bool add, T* y) {
  if (!half) {
    for (size_t j = 0; j < d; j += 16) {
      const Block<T> v = LoadN16(x + j, d - j);
      TurnBlock(v, SwapPairs16(v), c + j, s + j, d - j, back, add, y + j);
    }
    return;
  }
  const size_t h = d / 2;
  for (size_t j = 0; j < h; j += 16) {
    const Block<T> a = LoadN16(x + j, h - j), b = LoadN16(x + h + j, h - j);
    TurnBlock(a, b, c + j, s + j, h - j, back, add, y + j);
    TurnBlock(b, a, c + h + j, s + h + j, h - j, back, add, y + h + j);
  }
}

void RotaryF32(const float* x, const float* c, const float* s, size_t d, bool half, bool back, bool add, float* y) {
  Rotary(x, c, s, d, half, back, add, y);
}
void RotaryF64(const double* x, const double* c, const double* s, size_t d, bool half, bool back, bool add, double* y) {
  Rotary(x, c, s, d, half, back, add, y);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(RotaryF32);
HWY_EXPORT(RotaryF64);

namespace {

void check_fits(const char* op, const Tensor& x, const Rotations& r) {
  check<ShapeError>(x.rank() >= 2, "{}: needs at least 2 dimensions [.., T, d]: x {}", op, x.shape());
  for (const Tensor* table : {&r.cosines, &r.sines}) {
    check<DTypeError>(x.dtype() == table->dtype(), "{}: dtypes differ: x {}, rotations {}", op, x.dtype(), table->dtype());
    check<ShapeError>(table->shape() == Shape{x.size(-2), x.size(-1)}, "{}: rotations do not fit the last two axes: x {}, rotations {}", op,
                      x.shape(), table->shape());
  }
  check<ShapeError>(x.size(-1) % 2 == 0, "{}: needs an even width: x {}", op, x.shape());
}

// y (=|+=) x turned, or turned back; y has contiguous rows
void turn(const char* op, const Tensor& given, const Rotations& rotations, bool back, bool add, const Tensor& y) {
  const Tensor x = with_dense_rows(given), cosines = rotations.cosines.contiguous(), sines = rotations.sines.contiguous();
  const Index T = x.size(-2), d = x.size(-1);
  Counter rows;                                        // of x and y
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows.push(x.shape()[axis], x.strides()[axis], y.strides()[axis]);
  visit_float(x.dtype(), op, [&]<class E>() {
    const E *const from = x.data<E>(), *const c = cosines.data<E>(), *const s = sines.data<E>();
    E* const to = y.mutable_data<E>();
    const auto kernel = pick<E>(HWY_DYNAMIC_POINTER(RotaryF32), HWY_DYNAMIC_POINTER(RotaryF64));
    parallel_for(rows.total, row_grain(d), [&](Index begin, Index end) {
      Counter at = rows;
      at.seek(begin);
      for (Index row = begin; row < end; ++row, at.next())
        kernel(from + at.offset[0], c + row % T * d, s + row % T * d, std::size_t(d), rotations.layout == RotaryLayout::half, back, add,
               to + at.offset[1]);
    });
  });
}

}  // namespace

Rotations rotations(Index length, Index width, DType dtype, RotaryLayout layout, Index first, double base) {
  check<ShapeError>(length >= 0 && width >= 2 && width % 2 == 0, "rotary: needs length >= 0 and an even width: [{}, {}]", length, width);
  check<Error>(base > 0, "rotary: base must be positive: {}", base);
  if (!is_float(dtype)) throw_not_float("rotary", dtype);
  const Tensor cosines = empty({length, width}, DType::f64), sines = empty({length, width}, DType::f64);
  double *const c = cosines.mutable_data<double>(), *const s = sines.mutable_data<double>();
  for (Index p = 0; p < width / 2; ++p) {
    const double frequency = std::pow(base, -2.0 * double(p) / double(width));
    const bool half = layout == RotaryLayout::half;
    const Index a = half ? p : 2 * p, b = half ? p + width / 2 : 2 * p + 1;
    for (Index t = 0; t < length; ++t) {
      const double angle = double(first + t) * frequency;
      c[t * width + a] = c[t * width + b] = std::cos(angle);
      s[t * width + b] = std::sin(angle);
      s[t * width + a] = -s[t * width + b];
    }
  }
  return {to(cosines, dtype), to(sines, dtype), layout};
}

Tensor rotary(const Tensor& x, const Rotations& rotations) {
  check_fits("rotary", x, rotations);
  const Tensor y = empty(x.shape(), x.dtype());
  turn("rotary", x, rotations, false, false, y);
  return y;
}

void rotary_grad(const Tensor& dy, const Rotations& rotations, Into dx) {
  check_fits("rotary_grad", dy, rotations);
  check<ShapeError>(dy.shape() == dx.tensor.shape(), "rotary_grad: shapes differ: dy {}, dx {}", dy.shape(), dx.tensor.shape());
  check<DTypeError>(dy.dtype() == dx.tensor.dtype(), "rotary_grad: dtypes differ: dy {}, dx {}", dy.dtype(), dx.tensor.dtype());
  const RowDestinations<1> out({&dx});
  turn("rotary_grad", dy, rotations, true, out.add(0), out.tensor(0));
  out.finish();
}

}  // namespace heed
#endif
