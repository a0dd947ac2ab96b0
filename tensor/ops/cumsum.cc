// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#include <cstdint>
#include <type_traits>

#ifndef HEED_CUMSUM_KERNELS  // this file is read once for each target
#define HEED_CUMSUM_KERNELS
namespace heed {
constexpr size_t kColumns = 256;   // of one task
template <class T> struct CumsumKernels {
  void (*sequences)(const T* x, size_t rows, size_t n, bool backwards, T* y);
  void (*side_by_side)(const T* x, size_t columns, size_t n, ptrdiff_t stride, bool backwards, T* y);
};
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/cumsum.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;   // integers wrap

// y_k = the sum of x_0 .. x_k, one chain of additions a sequence. Sequence r starts at r row; its elements are `step` apart.
template <size_t kRows, class T> HWY_INLINE void Chains(const T* x, ptrdiff_t row, ptrdiff_t step, size_t n, T* y) {
  Total<T> sum[kRows];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) sum[r] = Total<T>(-0.0);   // -0 + x = x
  for (size_t k = 0; k < n; ++k, x += step, y += step) {
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) y[ptrdiff_t(r) * row] = T(sum[r] += Total<T>(x[ptrdiff_t(r) * row]));
  }
}
// `rows` sequences of n > 0 neighbours, from the front or the back
template <class T> void Sequences(const T* x, size_t rows, size_t n, bool backwards, T* y) {
  const ptrdiff_t row = ptrdiff_t(n), step = backwards ? -1 : 1;
  if (backwards) x += n - 1, y += n - 1;
  for (; rows >= 8; rows -= 8, x += 8 * row, y += 8 * row) Chains<8>(x, row, step, n, y);
  for (; rows > 0; --rows, x += row, y += row) Chains<1>(x, row, step, n, y);
}
// Loops of a constant count become vectors.
template <class T> HWY_INLINE void AddRow(const T* HWY_RESTRICT x, size_t n, Total<T>* HWY_RESTRICT sums, T* HWY_RESTRICT y) {
  for (; n >= 16; n -= 16, x += 16, sums += 16, y += 16)
    for (size_t i = 0; i < 16; ++i) y[i] = T(sums[i] += Total<T>(x[i]));
  for (size_t i = 0; i < n; ++i) y[i] = T(sums[i] += Total<T>(x[i]));
}
// At most kColumns sequences side by side, their elements `stride` apart
template <class T> void SideBySide(const T* x, size_t columns, size_t n, ptrdiff_t stride, bool backwards, T* y) {
  if (backwards) {
    x += ptrdiff_t(n - 1) * stride;
    y += ptrdiff_t(n - 1) * stride;
    stride = -stride;
  }
  Total<T> sums[kColumns];
  for (Total<T>& sum : sums) sum = Total<T>(-0.0);
  for (size_t k = 0; k < n; ++k, x += stride, y += stride) AddRow(x, columns, sums, y);
}

template <class T> CumsumKernels<T> Kernels() { return {Sequences<T>, SideBySide<T>}; }
CumsumKernels<float> KernelsF32() { return Kernels<float>(); }
CumsumKernels<double> KernelsF64() { return Kernels<double>(); }
CumsumKernels<int64_t> KernelsI64() { return Kernels<int64_t>(); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);
HWY_EXPORT(KernelsI64);

namespace {

// y[.., i, ..] = x[.., i, ..] + y[.., i - 1, ..], backwards: + y[.., i + 1, ..]; y contiguous
template <class T> void accumulate_along(const Tensor& x, int axis, bool backwards, const Tensor& y) {
  if (x.numel() == 0) return;
  const Tensor source = x.contiguous();
  const Index n = x.shape()[axis];
  Index inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  const Index outer = x.numel() / n / inner;
  const T* const from = source.data<T>();
  T* const to = y.mutable_data<T>();
  const auto kernels = [] {
    if constexpr (std::is_integral_v<T>) return HWY_DYNAMIC_DISPATCH(KernelsI64)();
    else return pick<T>(HWY_DYNAMIC_POINTER(KernelsF32), HWY_DYNAMIC_POINTER(KernelsF64))();
  }();
  if (inner == 1) {
    return parallel_for(outer, std::max<Index>(8, row_grain(n)), [&](Index begin, Index end) {
      kernels.sequences(from + begin * n, std::size_t(end - begin), std::size_t(n), backwards, to + begin * n);
    });
  }
  constexpr Index kBlock = kColumns;
  const Index blocks = divide_up(inner, kBlock);
  parallel_for(outer * blocks, row_grain(n * std::min(inner, kBlock)), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index first = i % blocks * kBlock, at = i / blocks * n * inner + first;
      kernels.side_by_side(from + at, std::size_t(std::min(kBlock, inner - first)), std::size_t(n), inner, backwards, to + at);
    }
  });
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  check<Error>(x.defined(), "cumsum: the tensor is empty (default constructed)");
  const int axis = normalize_dim("cumsum", dim, x.shape());
  check_dtype("cumsum", x);
  if (!is_float(x.dtype())) {
    const Tensor wide = x.dtype() == DType::i64 ? x : to(x, DType::i64), y = empty(x.shape(), DType::i64);
    accumulate_along<Index>(wide, axis, false, y);
    return y;
  }
  Tensor y = empty(x.shape(), x.dtype());
  visit_float(x.dtype(), "cumsum", [&]<class T>() { accumulate_along<T>(x, axis, false, y); });
  return y;
}

void cumsum_grad(const Tensor& dy, int dim, const Into& dx) {
  const int axis = normalize_dim("cumsum", dim, dy.shape());
  check_like("cumsum_grad", "dx", dx.tensor, dy);
  const Destination out(dx, dx.add);
  visit_float(dy.dtype(), "cumsum", [&]<class T>() { accumulate_along<T>(dy, axis, true, out.tensor()); });
  out.finish();
}

}  // namespace heed
#endif
