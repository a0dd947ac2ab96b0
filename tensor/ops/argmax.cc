// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#define HWY_TARGET_INCLUDE "tensor/ops/argmax.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// First position of the largest (smallest) of n; the first NaN if there is one. The best block of 256, then the place in it.
template <class Op, class T> size_t PositionOf(const T* x, size_t n) {
  constexpr size_t kBlock = 256;
  size_t start = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const hn::CappedTag<T, 1> d;
    T best = x[0];
    for (size_t i = 0; i < n && best == best; i += kBlock) {
      const T value = Reduce<Op>(x + i, HWY_MIN(n - i, kBlock));
      if (hn::GetLane(Op::f(d, hn::Set(d, best), hn::Set(d, value))) == best) continue;
      best = value;
      start = i;
    }
    if (best == best) while (x[start] != best) ++start;
    else while (x[start] == x[start]) ++start;
  } else {
    T best = x[0];
    for (size_t i = 0; i < n; i += kBlock) {
      T value = x[i];
      for (size_t j = i; j < HWY_MIN(n, i + kBlock); ++j)
        if constexpr (std::is_same_v<Op, MaxOp>) value = x[j] > value ? x[j] : value;
        else value = x[j] < value ? x[j] : value;
      if (std::is_same_v<Op, MaxOp> ? value <= best : value >= best) continue;
      best = value;
      start = i;
    }
    while (x[start] != best) ++start;
  }
  return start;
}
template <class T>
size_t Position(const T* x, size_t n, bool largest) {
  return largest ? PositionOf<MaxOp>(x, n) : PositionOf<MinOp>(x, n);
}
size_t PositionF32(const float* x, size_t n, bool largest) { return Position(x, n, largest); }
size_t PositionF64(const double* x, size_t n, bool largest) { return Position(x, n, largest); }
size_t PositionI32(const int32_t* x, size_t n, bool largest) { return Position(x, n, largest); }
size_t PositionI64(const int64_t* x, size_t n, bool largest) { return Position(x, n, largest); }
size_t PositionU8(const uint8_t* x, size_t n, bool largest) { return Position(x, n, largest); }

// First j with x_j > threshold, n if there is none
template <class T> size_t FirstAbove(const T* x, size_t n, T threshold) {
  const hn::ScalableTag<T> d;
  const size_t N = hn::Lanes(d);
  const auto above = [&](size_t j) HWY_ATTR { return hn::Gt(hn::LoadU(d, x + j), hn::Set(d, threshold)); };
  size_t j = 0;
  while (j + 4 * N <= n && hn::AllFalse(d, hn::Or(hn::Or(above(j), above(j + N)), hn::Or(above(j + 2 * N), above(j + 3 * N))))) j += 4 * N;
  for (; j + N <= n; j += N)
    if (const auto lane = hn::FindFirstTrue(d, above(j)); lane >= 0) return j + size_t(lane);
  while (j < n && !(x[j] > threshold)) ++j;
  return j;
}
size_t FirstAboveF32(const float* x, size_t n, float threshold) { return FirstAbove(x, n, threshold); }
size_t FirstAboveF64(const double* x, size_t n, double threshold) { return FirstAbove(x, n, threshold); }

// The count-th largest of the different numbers among m_r = max x_j of j % 64 = r, NaN left out; -infinity if there are fewer
template <class T> T LargeMaximum(const T* x, size_t n, size_t count) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = hn::MaxLanes(d), kVectors = 64 / kLanes;
  const auto least = hn::Set(d, T(MaxOp::kNeutral));
  hn::Vec<decltype(d)> m[kVectors];
  HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) m[v] = least;
  const auto take = [&](const T* some) HWY_ATTR {
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      const auto value = hn::LoadU(d, some + v * kLanes);
      m[v] = hn::IfThenElse(hn::Gt(value, m[v]), value, m[v]);
    }
  };
  for (; n >= 64; x += 64, n -= 64) take(x);
  T rest[64];
  for (size_t r = 0; r < 64; ++r) rest[r] = r < n ? x[r] : T(MaxOp::kNeutral);
  take(rest);
  for (;;) {
    auto all = m[0];
    HWY_UNROLL(16) for (size_t v = 1; v < kVectors; ++v) all = hn::Max(all, m[v]);
    const T largest = FoldLanes<MaxOp>(d, all);
    if (--count == 0 || largest == T(MaxOp::kNeutral)) return largest;
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) m[v] = hn::IfThenElse(hn::Eq(m[v], hn::Set(d, largest)), least, m[v]);
  }
}
float LargeMaximumF32(const float* x, size_t n, size_t count) { return LargeMaximum(x, n, count); }
double LargeMaximumF64(const double* x, size_t n, size_t count) { return LargeMaximum(x, n, count); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>

#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(PositionF32);
HWY_EXPORT(PositionF64);
HWY_EXPORT(PositionI32);
HWY_EXPORT(PositionI64);
HWY_EXPORT(PositionU8);
HWY_EXPORT(FirstAboveF32);
HWY_EXPORT(FirstAboveF64);
HWY_EXPORT(LargeMaximumF32);
HWY_EXPORT(LargeMaximumF64);

namespace {

template <class T> auto position_kernel() {
  if constexpr (std::is_same_v<T, std::int32_t>) return HWY_DYNAMIC_DISPATCH(PositionI32);
  else if constexpr (std::is_same_v<T, Index>) return HWY_DYNAMIC_DISPATCH(PositionI64);
  else if constexpr (std::is_same_v<T, std::uint8_t>) return HWY_DYNAMIC_DISPATCH(PositionU8);
  else return pick<T>(HWY_DYNAMIC_DISPATCH(PositionF32), HWY_DYNAMIC_DISPATCH(PositionF64));
}

Tensor arg_extremum(std::string_view name, const Tensor& x, int dim, bool keepdim, bool largest) {
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", name);
  if (x.rank() == 0) return reshape(arg_extremum(name, reshape(x, {1}), dim, false, largest), {});
  const int axis = normalize_dim(name, dim, x.shape());
  const Index n = x.shape()[axis];
  Axes axes{};
  axes[std::size_t(axis)] = true;
  const Shape shape = reduced_shape(x.shape(), axes, false);
  check<ShapeError>(n > 0 || shape.numel() == 0, "{}: nothing to choose from: shape {}, dim {}", name, x.shape(), dim);
  check_dtype(name, x);
  List<int> order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  const Tensor rows = permute(x, Dims(order)).contiguous();  // the chosen axis last
  Tensor y = empty(reduced_shape(x.shape(), axes, keepdim), DType::i64);
  if (y.numel() == 0) return y;
  Index* const to = y.mutable_data<Index>();
  visit_any(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, BFloat16>) {
      const T* const from = rows.data<T>();
      const auto position_of = position_kernel<T>();
      parallel_for(shape.numel(), row_grain(n), [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) to[i] = Index(position_of(from + i * n, std::size_t(n), largest));
      });
    }
  });
  return y;
}

template <class T> T below_largest_of(std::span<const T> x, Index count) {
  const T reached =
      pick<T>(HWY_DYNAMIC_DISPATCH(LargeMaximumF32), HWY_DYNAMIC_DISPATCH(LargeMaximumF64))(x.data(), x.size(), std::size_t(count));
  return std::nextafter(reached, -std::numeric_limits<T>::infinity());
}

}  // namespace

Tensor argmax(const Tensor& x, int dim, Flag keepdim) { return arg_extremum("argmax", x, dim, keepdim, true); }
Tensor argmin(const Tensor& x, int dim, Flag keepdim) { return arg_extremum("argmin", x, dim, keepdim, false); }

Index first_above(std::span<const float> x, Index from, float threshold) {
  return from + Index(HWY_DYNAMIC_DISPATCH(FirstAboveF32)(x.data() + from, x.size() - std::size_t(from), threshold));
}
Index first_above(std::span<const double> x, Index from, double threshold) {
  return from + Index(HWY_DYNAMIC_DISPATCH(FirstAboveF64)(x.data() + from, x.size() - std::size_t(from), threshold));
}

float below_largest(std::span<const float> x, Index count) { return below_largest_of(x, count); }
double below_largest(std::span<const double> x, Index count) { return below_largest_of(x, count); }

}  // namespace heed
#endif
