// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/softmax.h"

#include "tensor/ops/mask_rows.h"
#include "tensor/ops/short_rows.h"

#ifndef HEED_SOFTMAX_COLUMNS  // this file is read once for each target
#define HEED_SOFTMAX_COLUMNS
namespace heed {
template <class T> struct ColumnKernels {
  void (*softmax)(bool log, const T* x, size_t n, ptrdiff_t stride, size_t width, T* y);
  void (*softmax_grad)(bool log, const T* y, const T* dy, size_t n, ptrdiff_t stride, size_t width, bool add, T* dx);
  bool (*logsumexp)(const T* x, size_t n, ptrdiff_t stride, size_t width, T* y);
  void (*logsumexp_grad)(const T* x, const T* y, const T* dy, size_t n, ptrdiff_t stride, size_t width, bool add, T* dx);
};
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/softmax.cc"
#include "tensor/block-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> HWY_INLINE Block<T> Allowed(const RowMask& mask, ptrdiff_t i) {
  return LanesAllowed<T>(mask.first, mask.last, mask.allowed, i);
}

constexpr double kInfinity = __builtin_inf();

// max_j x_j over allowed j
template <class T> T MaxOfRow(const T* x, const RowMask& mask) {
  const Block<T> least = Set16(T(-kInfinity));
  Block<T> most = least;
  for (ptrdiff_t i = mask.first / 16 * 16; i < mask.last; i += 16) {
    const auto n = size_t(mask.last - i);
    if (!mask.allowed && i >= mask.first && n >= 16) most = Max16(most, Load16(x + i));
    else most = Max16(most, Choose16(Allowed<T>(mask, i), LoadN16(x + i, n), least));
  }
  return MaxLane16(most);
}

// Σ_j exp(x_j - m) over allowed j; y_j = exp(x_j - m) where asked for
template <class T> T SumOfExp(const T* x, const RowMask& mask, T m, T* y) {
  const Block<T> shift = Set16(m);
  Block<T> sum = Set16(T(0));
  for (ptrdiff_t i = mask.first / 16 * 16; i < mask.last; i += 16) {
    const auto n = size_t(mask.last - i);
    Block<T> e;
    if (!mask.allowed && i >= mask.first && n >= 16) e = Exp16(Load16(x + i) - shift);
    else e = And16(Exp16(LoadN16(x + i, n) - shift), Allowed<T>(mask, i));
    sum = sum + e;
    if (y) StoreN16(e, n, y + i);
  }
  return Sum16(sum);
}

// passes: 1 max, 2 exp(x - m) and its sum, 3 scale
template <class T> void SoftmaxRow(const T* x, size_t n, const RowMask& mask, bool none, T* y) {
  const T m = none ? T(0) : MaxOfRow(x, mask);
  for (ptrdiff_t i = 0; i < (none ? ptrdiff_t(n) : mask.first / 16 * 16); ++i) y[i] = 0;
  if (none) return;
  const Block<T> scale = Set16(T(1) / SumOfExp(x, mask, m, y));
  for (ptrdiff_t i = mask.first / 16 * 16; i < mask.last; i += 16) {
    const auto count = size_t(mask.last - i);
    StoreN16(LoadN16(y + i, count) * scale, count, y + i);
  }
  for (size_t i = size_t(mask.last); i < n; ++i) y[i] = 0;
}

// y_i = x_i - (m + log Σ_j exp(x_j - m)),  -inf where masked
template <class T> void LogSoftmaxRow(const T* x, size_t n, const RowMask& mask, bool none, T* y) {
  if (none) {
    for (size_t i = 0; i < n; ++i) y[i] = 0;
    return;
  }
  const T m = MaxOfRow(x, mask);
  const Block<T> most = Set16(m), log_sum = Set16(math::LogOf(SumOfExp<T>(x, mask, m, nullptr))), least = Set16(T(-kInfinity));
  for (ptrdiff_t i = 0; i < mask.first / 16 * 16; ++i) y[i] = T(-kInfinity);
  for (ptrdiff_t i = mask.first / 16 * 16; i < mask.last; i += 16) {
    const auto count = size_t(mask.last - i);
    StoreN16(Choose16(Allowed<T>(mask, i), LoadN16(x + i, count) - most - log_sum, least), count, y + i);
  }
  for (size_t i = size_t(mask.last); i < n; ++i) y[i] = T(-kInfinity);
}

// x where y is not 0, else 0: what is masked takes no part, whatever x holds there
template <class T> HWY_INLINE Block<T> WhereWeighted(const Block<T>& y, Block<T> x) {
  const typename Block<T>::D d;
  HEED_EACH_REGISTER x.v[r] = hn::IfThenZeroElse(hn::Eq(y.v[r], hn::Zero(d)), x.v[r]);
  return x;
}

// forward was  y_i = e_i / Σ_j e_j,  so now  dx_i = y_i (dy_i - Σ_j y_j dy_j)
template <class T> void SoftmaxRowGrad(const T* y, const T* dy, size_t n, bool add, T* dx) {
  Block<T> dot = Set16(T(0));
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> weight = LoadN16(y + i, n - i);
    dot = MulAdd16(weight, WhereWeighted(weight, LoadN16(dy + i, n - i)), dot);
  }
  const Block<T> sum = Set16(Sum16(dot));
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> weight = LoadN16(y + i, n - i), g = weight * WhereWeighted(weight, LoadN16(dy + i, n - i) - sum);
    StoreN16(add ? LoadN16(dx + i, n - i) + g : g, n - i, dx + i);
  }
}

// forward was  y_i = x_i - log Σ_j e^(x_j),  so now  dx_i = dy_i - exp(y_i) Σ_j dy_j
template <class T> void LogSoftmaxRowGrad(const T* y, const T* dy, size_t n, const RowMask& mask, bool none, bool add, T* dx) {
  const Block<T> zero = Set16(T(0));
  Block<T> lanes = zero;
  if (!none)
    for (size_t i = 0; i < n; i += 16) lanes = lanes + And16(LoadN16(dy + i, n - i), Allowed<T>(mask, ptrdiff_t(i)));
  const Block<T> sum = Set16(Sum16(lanes));
  for (size_t i = 0; i < n; i += 16) {
    Block<T> g = zero;
    if (!none) g = And16(LoadN16(dy + i, n - i) - Exp16(LoadN16(y + i, n - i)) * sum, Allowed<T>(mask, ptrdiff_t(i)));
    StoreN16(add ? LoadN16(dx + i, n - i) + g : g, n - i, dx + i);
  }
}

template <class T> T LogSumExpRow(const T* x, size_t n) {
  const RowMask all{0, Index(n)};
  const T m = MaxOfRow(x, all);
  if (m > T(-kInfinity) && m < T(kInfinity)) return m + math::LogOf(SumOfExp<T>(x, all, m, nullptr));
  for (size_t i = 0; i < n; ++i)
    if (x[i] != x[i]) return x[i];
  return m;
}

// forward was  y = log Σ_j e^(x_j),  so now  dx_i = dy exp(x_i - y)
template <class T> void LogSumExpRowGrad(const T* x, size_t n, T y, T dy, bool add, T* dx) {
  const bool infinite = y == T(kInfinity), none = y == T(-kInfinity);
  T count = 0;
  if (infinite)
    for (size_t i = 0; i < n; ++i) count += x[i] == y;
  const Block<T> shift = Set16(y), scale = Set16(dy);
  for (size_t i = 0; i < n; i += 16) {
    Block<T> g;
    if (infinite || none) {
      T share[16];
      for (size_t j = 0; j < 16; ++j) share[j] = infinite && i + j < n && x[i + j] == y ? dy / count : T(0);
      g = Load16(share);
    } else {
      g = Exp16(LoadN16(x + i, n - i) - shift) * scale;
    }
    StoreN16(add ? LoadN16(dx + i, n - i) + g : g, n - i, dx + i);
  }
}

// ---- columns: the same for 64 sequences that lie side by side, x[i stride + j] element i of sequence j; i goes to lane i % 16 --------

// The lanes of a tile, folded
template <class T> HWY_INLINE Block<T> FoldTile(const T* lanes) {
  Block<T> v[8];
  HEED_UNROLL_REGISTERS
  for (size_t l = 0; l < 8; ++l) v[l] = Load16(lanes + l * kTile) + Load16(lanes + (l + 8) * kTile);
  for (size_t half = 4; half > 0; half /= 2)
    for (size_t l = 0; l < half; ++l) v[l] = v[l] + v[l + half];
  return v[0];
}
template <class T> HWY_INLINE void FillTile(T value, size_t rows, T* tile) {
  for (size_t i = 0; i < rows * kTile; i += 16) Store16(Set16(value), tile + i);
}

template <class T> HWY_INLINE void MaxOfColumns(const T* x, size_t n, ptrdiff_t stride, size_t width, T* most) {
  FillTile(T(-kInfinity), 1, most);
  for (size_t i = 0; i < n; ++i, x += stride)
    for (size_t j = 0; j < width; j += 16) Store16(Max16(Load16(most + j), LoadN16(x + j, width - j)), most + j);
}
// sum_j = Σ_i exp(x_ij - m_j); y_ij = exp(x_ij - m_j) where asked for
template <class T> HWY_INLINE void SumsOfExp(const T* x, size_t n, ptrdiff_t stride, size_t width, const T* m, T* y, T* sum) {
  T lanes[16 * kTile];
  FillTile(T(0), 16, lanes);
  for (size_t i = 0; i < n; ++i, x += stride) {
    T* const lane = lanes + i % 16 * kTile;
    for (size_t j = 0; j < width; j += 16) {
      const Block<T> e = Exp16(LoadN16(x + j, width - j) - Load16(m + j));
      Store16(Load16(lane + j) + e, lane + j);
      if (y) StoreN16(e, width - j, y + ptrdiff_t(i) * stride + ptrdiff_t(j));
    }
  }
  for (size_t j = 0; j < width; j += 16) Store16(FoldTile(lanes + j), sum + j);
}

template <class T> void SoftmaxOfColumns(bool log, const T* x, size_t n, ptrdiff_t stride, size_t width, T* y) {
  T most[kTile], sum[kTile];
  MaxOfColumns(x, n, stride, width, most);
  SumsOfExp(x, n, stride, width, most, log ? nullptr : y, sum);
  for (size_t j = 0; j < width; j += 16) Store16(log ? Log16(Load16(sum + j)) : Set16(T(1)) / Load16(sum + j), sum + j);
  for (size_t i = 0; i < n; ++i, x += stride, y += stride)
    for (size_t j = 0; j < width; j += 16) {
      if (log) StoreN16(LoadN16(x + j, width - j) - Load16(most + j) - Load16(sum + j), width - j, y + j);
      else StoreN16(LoadN16(y + j, width - j) * Load16(sum + j), width - j, y + j);
    }
}

template <class T> void SoftmaxOfColumnsGrad(bool log, const T* y, const T* dy, size_t n, ptrdiff_t stride, size_t width, bool add, T* dx) {
  T lanes[16 * kTile];
  FillTile(T(0), 16, lanes);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < width; j += 16) {
      const ptrdiff_t at = ptrdiff_t(i) * stride + ptrdiff_t(j);
      T* const lane = lanes + i % 16 * kTile + j;
      const Block<T> weight = LoadN16(y + at, width - j), up = LoadN16(dy + at, width - j);
      Store16(log ? Load16(lane) + up : MulAdd16(weight, WhereWeighted(weight, up), Load16(lane)), lane);
    }
  for (size_t j = 0; j < width; j += 16) Store16(FoldTile(lanes + j), lanes + j);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < width; j += 16) {
      const ptrdiff_t at = ptrdiff_t(i) * stride + ptrdiff_t(j);
      const Block<T> weight = LoadN16(y + at, width - j), up = LoadN16(dy + at, width - j), sum = Load16(lanes + j);
      const Block<T> g = log ? up - Exp16(weight) * sum : weight * WhereWeighted(weight, up - sum);
      StoreN16(add ? LoadN16(dx + at, width - j) + g : g, width - j, dx + at);
    }
}

// False where a maximum is not finite: then the sequences need a look one by one.
template <class T> bool LogSumExpOfColumns(const T* x, size_t n, ptrdiff_t stride, size_t width, T* y) {
  T most[kTile], sum[kTile];
  MaxOfColumns(x, n, stride, width, most);
  for (size_t j = 0; j < width; ++j)
    if (!(most[j] > T(-kInfinity) && most[j] < T(kInfinity))) return false;
  SumsOfExp<T>(x, n, stride, width, most, nullptr, sum);
  for (size_t j = 0; j < width; j += 16) StoreN16(Load16(most + j) + Log16(Load16(sum + j)), width - j, y + j);
  return true;
}
// y finite or NaN
template <class T>
void LogSumExpOfColumnsGrad(const T* x, const T* y, const T* dy, size_t n, ptrdiff_t stride, size_t width, bool add, T* dx) {
  for (size_t i = 0; i < n; ++i, x += stride, dx += stride)
    for (size_t j = 0; j < width; j += 16) {
      const Block<T> g = Exp16(LoadN16(x + j, width - j) - LoadN16(y + j, width - j)) * LoadN16(dy + j, width - j);
      StoreN16(add ? LoadN16(dx + j, width - j) + g : g, width - j, dx + j);
    }
}

void SoftmaxF32(const float* x, size_t n, const RowMask& mask, bool none, float* y) { SoftmaxRow(x, n, mask, none, y); }
void SoftmaxF64(const double* x, size_t n, const RowMask& mask, bool none, double* y) { SoftmaxRow(x, n, mask, none, y); }
void LogSoftmaxF32(const float* x, size_t n, const RowMask& mask, bool none, float* y) { LogSoftmaxRow(x, n, mask, none, y); }
void LogSoftmaxF64(const double* x, size_t n, const RowMask& mask, bool none, double* y) { LogSoftmaxRow(x, n, mask, none, y); }
void SoftmaxGradF32(const float* y, const float* dy, size_t n, bool add, float* dx) { SoftmaxRowGrad(y, dy, n, add, dx); }
void SoftmaxGradF64(const double* y, const double* dy, size_t n, bool add, double* dx) { SoftmaxRowGrad(y, dy, n, add, dx); }
void LogSoftmaxGradF32(const float* y, const float* dy, size_t n, const RowMask& mask, bool none, bool add, float* dx) {
  LogSoftmaxRowGrad(y, dy, n, mask, none, add, dx);
}
void LogSoftmaxGradF64(const double* y, const double* dy, size_t n, const RowMask& mask, bool none, bool add, double* dx) {
  LogSoftmaxRowGrad(y, dy, n, mask, none, add, dx);
}
float LogSumExpF32(const float* x, size_t n) { return LogSumExpRow(x, n); }
double LogSumExpF64(const double* x, size_t n) { return LogSumExpRow(x, n); }
void LogSumExpGradF32(const float* x, size_t n, float y, float dy, bool add, float* dx) { LogSumExpRowGrad(x, n, y, dy, add, dx); }
void LogSumExpGradF64(const double* x, size_t n, double y, double dy, bool add, double* dx) { LogSumExpRowGrad(x, n, y, dy, add, dx); }
template <class T>
ColumnKernels<T> Columns() {
  return {SoftmaxOfColumns<T>, SoftmaxOfColumnsGrad<T>, LogSumExpOfColumns<T>, LogSumExpOfColumnsGrad<T>};
}
ColumnKernels<float> ColumnsF32() { return Columns<float>(); }
ColumnKernels<double> ColumnsF64() { return Columns<double>(); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <cmath>

#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/list.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(SoftmaxF32);
HWY_EXPORT(SoftmaxF64);
HWY_EXPORT(LogSoftmaxF32);
HWY_EXPORT(LogSoftmaxF64);
HWY_EXPORT(SoftmaxGradF32);
HWY_EXPORT(SoftmaxGradF64);
HWY_EXPORT(LogSoftmaxGradF32);
HWY_EXPORT(LogSoftmaxGradF64);
HWY_EXPORT(LogSumExpF32);
HWY_EXPORT(LogSumExpF64);
HWY_EXPORT(LogSumExpGradF32);
HWY_EXPORT(LogSumExpGradF64);
HWY_EXPORT(ColumnsF32);
HWY_EXPORT(ColumnsF64);

namespace {

void check_like(const char* op, const char* name, const Tensor& y, const Tensor& dy) {
  check<ShapeError>(y.shape() == dy.shape(), "{}: shapes differ: {} {}, dy {}", op, name, y.shape(), dy.shape());
  check<DTypeError>(y.dtype() == dy.dtype(), "{}: dtypes differ: {} {}, dy {}", op, name, y.dtype(), dy.dtype());
}

// Tensors of x's shape turned so that dim is last, the mask with them.
struct Turned {
  Turned(const char* op, const Tensor& x, int dim)
      : axis(x.rank() ? normalize_dim(op, dim, x.shape()) : 0), last(x.rank() ? x.rank() - 1 : 0) {}
  Tensor view(const Tensor& x) const { return axis == last ? x : transpose(x, axis, last); }
  Tensor dense(const Tensor& x) const { return view(x).contiguous(); }   // and back again
  Mask mask(const char* op, const Mask& m, const Shape& shape) const {
    if (m.everything() || axis == last) return m;
    m.check_fits(op, shape);
    return Mask::allowed(view(m.dense(shape)));
  }
  int axis, last;
};

template <class T>
ColumnKernels<T> column_kernels() {
  return pick<T>(HWY_DYNAMIC_DISPATCH(ColumnsF32), HWY_DYNAMIC_DISPATCH(ColumnsF64))();
}

// A shape seen as [outer, n, inner], n the axes first .. last. Enough sequences side by side are read as they lie.
struct Columns {
  Columns(const Shape& shape, int first, int last) {
    for (int axis = 0; axis < shape.rank(); ++axis) (axis < first ? outer : axis <= last ? n : inner) *= shape[axis];
  }
  bool side_by_side() const { return inner >= 8 && n > 0; }
  bool short_rows() const { return inner == 1 && n > 0 && n <= Index(kShort) && outer >= Index(kShort); }
  // f(index of the first of `width` sequences, offset of its first element, width)
  template <class F> void for_tiles(F&& f) const {
    const Index tiles = divide_up(inner, Index(kTile));
    parallel_for(outer * tiles, row_grain(n * std::min(inner, Index(kTile))), [&](Index begin, Index end) {
      for (Index tile = begin; tile < end; ++tile) {
        const Index o = tile / tiles, j = tile % tiles * Index(kTile);
        f(o * inner + j, o * n * inner + j, std::size_t(std::min(inner - j, Index(kTile))));
      }
    });
  }
  Index outer = 1, n = 1, inner = 1;
};

// f(row, offset of its first element) for all rows of x [..., n] in parallel
template <class F> void for_rows(const Tensor& x, F&& f) {
  const Index n = x.rank() ? x.size(-1) : 1;
  if (x.numel() == 0) return;
  parallel_for(x.numel() / n, row_grain(n), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) f(row, row * n);
  });
}

Tensor softmax_of(const char* op, bool log, const Tensor& x, int dim, const Mask& mask) {
  const Turned turned(op, x, dim);
  return visit_float(x.dtype(), op, [&]<class T>() {
    if (const Columns columns(x.shape(), turned.axis, turned.axis); mask.everything() && (columns.side_by_side() || columns.short_rows())) {
      const Tensor from = x.contiguous(), to = empty(x.shape(), x.dtype());
      const T* in = from.data<T>();
      T* out = to.mutable_data<T>();
      const auto kernel = column_kernels<T>().softmax;
      const auto n = std::size_t(columns.n);
      if (columns.short_rows())
        for_short_rows<T>(columns.outer, columns.n, in, nullptr, out, false,
                          [&](Index, std::size_t width, const T* a, const T*, T* y) { kernel(log, a, n, kTile, width, y); });
      else columns.for_tiles([&](Index, Index at, std::size_t width) { kernel(log, in + at, n, columns.inner, width, out + at); });
      return to;
    }
    const Tensor from = turned.dense(x), to = empty(from.shape(), x.dtype());
    const MaskRows rows(op, turned.mask(op, mask, x.shape()), from.shape());
    const auto n = std::size_t(x.rank() ? from.size(-1) : 1);
    const T* in = from.data<T>();
    T* out = to.mutable_data<T>();
    const auto kernel = log ? pick<T>(HWY_DYNAMIC_POINTER(LogSoftmaxF32), HWY_DYNAMIC_POINTER(LogSoftmaxF64))
                            : pick<T>(HWY_DYNAMIC_POINTER(SoftmaxF32), HWY_DYNAMIC_POINTER(SoftmaxF64));
    for_rows(from, [&](Index row, Index at) {
      const RowMask row_mask = rows(row);
      kernel(in + at, n, row_mask, row_mask.nothing(), out + at);
    });
    return turned.dense(to);
  });
}

// true where the gradient of unmasked softmax or log_softmax could be made as the sequences lie
template <class T> bool softmax_grad_of_columns(bool log, const Tensor& y, const Tensor& dy, int axis, const Into& into) {
  const Columns columns(y.shape(), axis, axis);
  if (!columns.side_by_side() && !columns.short_rows()) return false;
  const Tensor ys = y.contiguous(), dys = dy.contiguous();
  const Destination out(into);
  const T *ya = ys.data<T>(), *dya = dys.data<T>();
  T* to = out.tensor().mutable_data<T>();
  const auto kernel = column_kernels<T>().softmax_grad;
  const auto n = std::size_t(columns.n);
  if (columns.short_rows()) {
    for_short_rows<T>(columns.outer, columns.n, ya, dya, to, out.add(), [&](Index, std::size_t width, const T* a, const T* b, T* tile) {
      kernel(log, a, b, n, kTile, width, false, tile);
    });
  } else {
    columns.for_tiles(
        [&](Index, Index at, std::size_t width) { kernel(log, ya + at, dya + at, n, columns.inner, width, out.add(), to + at); });
  }
  out.finish();
  return true;
}

// x with the dims moved behind the others, in their order; no dims: all of them
struct Gathered {
  Gathered(const char* op, const Tensor& x, const Dims& dims, bool keepdim) {
    const Axes axes = reduced_axes(op, x, dims);
    result = reduced_shape(x.shape(), axes, keepdim);
    rows = result.numel();
    width = count_of(x.shape(), axes);
    List<int> front, behind;
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (!axes[std::size_t(axis)]) {
        front.push_back(axis);
        continue;
      }
      behind.push_back(axis);
      first = count++ ? first : axis;
      last = axis;
    }
    front.insert(front.end(), behind.begin(), behind.end());
    order = Dims(std::span<const int>(front));
  }
  // the axes in one piece, as they lie
  Columns columns(const Shape& shape) const {
    Columns seen(shape, first, last);
    if (last - first + 1 != count) seen.inner = 0;
    return seen;
  }
  Dims order;
  Shape result;
  Index rows, width;
  int first = 0, last = -1, count = 0;
};

}  // namespace

Tensor softmax(const Tensor& x, int dim, const Mask& mask) { return softmax_of("softmax", false, x, dim, mask); }
Tensor log_softmax(const Tensor& x, int dim, const Mask& mask) { return softmax_of("log_softmax", true, x, dim, mask); }

void log_softmax_(const Tensor& x) {
  if (!x.is_contiguous()) return copy_into(x, log_softmax(x));
  visit_float(x.dtype(), "log_softmax", [&]<class T>() {
    const Index n = x.rank() ? x.size(-1) : 1;
    T* const values = x.mutable_data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogSoftmaxF32), HWY_DYNAMIC_POINTER(LogSoftmaxF64));
    for_rows(x, [&](Index, Index at) { kernel(values + at, std::size_t(n), {0, n}, false, values + at); });
  });
}

void softmax_grad(const Tensor& y, const Tensor& dy, int dim, Into dx) {
  check_like("softmax_grad", "y", y, dy);
  check_like("softmax_grad", "dx", dx.tensor, dy);
  const Turned turned("softmax_grad", y, dim);
  visit_float(y.dtype(), "softmax_grad", [&]<class T>() {
    if (softmax_grad_of_columns<T>(false, y, dy, turned.axis, dx)) return;
    const Tensor a = turned.dense(y), b = turned.dense(dy);
    const Destination out({turned.view(dx.tensor), dx.add});
    const T *ya = a.data<T>(), *dya = b.data<T>();
    T* to = out.tensor().mutable_data<T>();
    const auto n = std::size_t(a.rank() ? a.size(-1) : 1);
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(SoftmaxGradF32), HWY_DYNAMIC_POINTER(SoftmaxGradF64));
    for_rows(a, [&](Index, Index at) { kernel(ya + at, dya + at, n, out.add(), to + at); });
    out.finish();
  });
}

void log_softmax_grad(const Tensor& y, const Tensor& dy, int dim, const Mask& mask, Into dx) {
  const char* op = "log_softmax_grad";
  check_like(op, "y", y, dy);
  check_like(op, "dx", dx.tensor, dy);
  const Turned turned(op, y, dim);
  visit_float(y.dtype(), op, [&]<class T>() {
    if (mask.everything() && softmax_grad_of_columns<T>(true, y, dy, turned.axis, dx)) return;
    const Tensor a = turned.dense(y), b = turned.dense(dy);
    const MaskRows rows(op, turned.mask(op, mask, y.shape()), a.shape());
    const Destination out({turned.view(dx.tensor), dx.add});
    const T *ya = a.data<T>(), *dya = b.data<T>();
    T* to = out.tensor().mutable_data<T>();
    const auto n = std::size_t(a.rank() ? a.size(-1) : 1);
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogSoftmaxGradF32), HWY_DYNAMIC_POINTER(LogSoftmaxGradF64));
    for_rows(a, [&](Index row, Index at) {
      const RowMask row_mask = rows(row);
      kernel(ya + at, dya + at, n, row_mask, row_mask.nothing(), out.add(), to + at);
    });
    out.finish();
  });
}

Tensor logsumexp(const Tensor& x, const Dims& dims, Flag keepdim) {
  const Gathered gathered("logsumexp", x, dims, keepdim);
  return visit_float(x.dtype(), "logsumexp", [&]<class T>() {
    const Tensor y = empty(gathered.result, x.dtype());
    T* out = y.mutable_data<T>();
    if (const Columns columns = gathered.columns(x.shape()); columns.side_by_side() || columns.short_rows()) {
      const Tensor from = x.contiguous();
      const T* in = from.data<T>();
      const auto kernel = column_kernels<T>().logsumexp;
      std::atomic<bool> finite = true;
      const auto tile = [&](const T* from, Index stride, std::size_t width, T* to) {
        if (!kernel(from, std::size_t(columns.n), stride, width, to)) finite.store(false, std::memory_order_relaxed);
      };
      if (columns.short_rows())
        for_short_rows<T>(columns.outer, columns.n, in, nullptr, nullptr, false,
                          [&](Index j, std::size_t width, const T* a, const T*, T*) { tile(a, kTile, width, out + j); });
      else columns.for_tiles([&](Index j, Index at, std::size_t width) { tile(in + at, columns.inner, width, out + j); });
      if (finite) return y;
    }
    const Tensor from = permute(x, gathered.order).contiguous();
    const T* in = from.data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogSumExpF32), HWY_DYNAMIC_POINTER(LogSumExpF64));
    parallel_for(gathered.rows, row_grain(gathered.width), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) out[row] = kernel(in + row * gathered.width, std::size_t(gathered.width));
    });
    return y;
  });
}

void logsumexp_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, Into dx) {
  const char* op = "logsumexp_grad";
  const Gathered gathered(op, x, dims, false);
  check_like(op, "y", y, dy);
  check<ShapeError>(y.numel() == gathered.rows, "{}: y does not fit x without dims {}: x {}, y {}", op, to_string(dims), x.shape(),
                    y.shape());
  check<ShapeError>(dx.tensor.shape() == x.shape(), "{}: shapes differ: x {}, dx {}", op, x.shape(), dx.tensor.shape());
  check<DTypeError>(x.dtype() == y.dtype() && x.dtype() == dx.tensor.dtype(), "{}: dtypes differ: x {}, y {}, dx {}", op, x.dtype(),
                    y.dtype(), dx.tensor.dtype());
  visit_float(x.dtype(), op, [&]<class T>() {
    const Tensor ys = y.contiguous(), dys = dy.contiguous();
    const T *yv = ys.data<T>(), *dyv = dys.data<T>();
    if (const Columns columns = gathered.columns(x.shape());
        (columns.side_by_side() || columns.short_rows()) && std::none_of(yv, yv + y.numel(), [](T v) { return std::isinf(v); })) {
      const Tensor from = x.contiguous();
      const Destination out(dx);
      const T* in = from.data<T>();
      T* to = out.tensor().mutable_data<T>();
      const auto kernel = column_kernels<T>().logsumexp_grad;
      const auto n = std::size_t(columns.n);
      if (columns.short_rows()) {
        for_short_rows<T>(
            columns.outer, columns.n, in, nullptr, to, out.add(),
            [&](Index j, std::size_t width, const T* a, const T*, T* tile) { kernel(a, yv + j, dyv + j, n, kTile, width, false, tile); });
      } else {
        columns.for_tiles(
            [&](Index j, Index at, std::size_t width) { kernel(in + at, yv + j, dyv + j, n, columns.inner, width, out.add(), to + at); });
      }
      return out.finish();
    }
    const Tensor from = permute(x, gathered.order).contiguous();
    const Destination out({permute(dx.tensor, gathered.order), dx.add});
    const T* in = from.data<T>();
    T* to = out.tensor().mutable_data<T>();
    const Index n = gathered.width;
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogSumExpGradF32), HWY_DYNAMIC_POINTER(LogSumExpGradF64));
    parallel_for(gathered.rows, row_grain(n), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) kernel(in + row * n, std::size_t(n), yv[row], dyv[row], out.add(), to + row * n);
    });
    out.finish();
  });
}

}  // namespace heed
#endif
