// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#define HWY_TARGET_INCLUDE "tensor/ops/reduce.cc"
#include "tensor/simd-inl.h"

#ifndef HEED_REDUCE_KERNELS  // this file is read once for each target
#define HEED_REDUCE_KERNELS
namespace heed {
enum class Folding { sum, squares, product, max, min };
template <class T> struct FoldKernels {
  T (*row)(const T* x, size_t n);                                                      // fold of x[0 .. n)
  void (*columns)(const T* x, size_t rows, ptrdiff_t stride, size_t n, T* result);     // result[j] = fold of result[j] and x[r stride + j] over r
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class Op, class F, class T> T Row(const T* x, size_t n) { return Reduce<Op, F>(x, n); }

// 4 vectors of columns at a time, rows in order
template <class Op, class F, class T> void Columns(const T* x, size_t rows, ptrdiff_t stride, size_t n, T* result) {
  const hn::ScalableTag<T> d;
  const size_t N = hn::Lanes(d);
  size_t j = 0;
  for (; j + 4 * N <= n; j += 4 * N) {
    auto a0 = hn::LoadU(d, result + j), a1 = hn::LoadU(d, result + j + N), a2 = hn::LoadU(d, result + j + 2 * N), a3 = hn::LoadU(d, result + j + 3 * N);
    const T* row = x + j;
    for (size_t r = 0; r < rows; ++r, row += stride) {
      a0 = Op::f(d, a0, F::f(d, hn::LoadU(d, row)));
      a1 = Op::f(d, a1, F::f(d, hn::LoadU(d, row + N)));
      a2 = Op::f(d, a2, F::f(d, hn::LoadU(d, row + 2 * N)));
      a3 = Op::f(d, a3, F::f(d, hn::LoadU(d, row + 3 * N)));
    }
    hn::StoreU(a0, d, result + j);
    hn::StoreU(a1, d, result + j + N);
    hn::StoreU(a2, d, result + j + 2 * N);
    hn::StoreU(a3, d, result + j + 3 * N);
  }
  for (; j < n; j += N) {
    auto a = LoadFirst(d, result + j, n - j);
    for (size_t r = 0; r < rows; ++r) a = Op::f(d, a, F::f(d, LoadFirst(d, x + ptrdiff_t(r) * stride + j, n - j)));
    StoreFirst(a, d, result + j, n - j);
  }
}

template <class T> FoldKernels<T> Pick(Folding fold) {
  switch (fold) {
    case Folding::sum: return {Row<SumOp, Same, T>, Columns<SumOp, Same, T>};
    case Folding::squares: return {Row<SumOp, Squared, T>, Columns<SumOp, Squared, T>};
    case Folding::product: return {Row<ProductOp, Same, T>, Columns<ProductOp, Same, T>};
    case Folding::max: return {Row<MaxOp, Same, T>, Columns<MaxOp, Same, T>};
    case Folding::min: break;
  }
  return {Row<MinOp, Same, T>, Columns<MinOp, Same, T>};
}
FoldKernels<float> PickF32(Folding fold) { return Pick<float>(fold); }
FoldKernels<double> PickF64(Folding fold) { return Pick<double>(fold); }

// Σ x² in double, 16 virtual lanes of double
double SquaresF32(const float* x, size_t n) {
  double wide[16];
  Lanes16Of<SumOp, double> lanes;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) wide[j] = double(x[i + j]);
    lanes.Take<Squared>(wide);
  }
  for (size_t j = 0; j < 16; ++j) wide[j] = i + j < n ? double(x[i + j]) : 0;
  lanes.Take<Squared>(wide);
  return lanes.Fold();
}

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

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tensor/ops/walk.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(PickF32);
HWY_EXPORT(PickF64);
HWY_EXPORT(SquaresF32);
HWY_EXPORT(FirstAboveF32);
HWY_EXPORT(FirstAboveF64);

namespace {

constexpr Index kRowChunk = 4096, kColumnChunk = 128, kColumnBlock = 1024, kFewColumns = 16;

using Axes = std::array<bool, kMaxRank>;

Axes reduced_axes(std::string_view name, const Tensor& x, const Dims& dims) {
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", name);
  Axes axes{};
  if (dims.empty()) std::fill(axes.begin(), axes.begin() + x.rank(), true);
  for (int dim : dims) {
    const auto axis = std::size_t(normalize_dim(name, dim, x.shape()));
    check<IndexError>(!axes[axis], "{}: dim {} appears twice: dims {}, shape {}", name, dim, dims, x.shape());
    axes[axis] = true;
  }
  return axes;
}

void check_dtype(std::string_view name, const Tensor& x) {
  check<DTypeError>(x.dtype() != DType::bf16, "{}: takes f32, f64, i32, i64 or u8: {}", name, x.dtype());
}

Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdim) {
  Shape out;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!axes[std::size_t(axis)]) out.push_back(shape[axis]);
    else if (keepdim) out.push_back(1);
  return out;
}

// A reduced tensor, with or without its kept dims, as a view that broadcasts to `shape`.
Tensor with_kept_dims(const Tensor& reduced, const Shape& shape, const Axes& axes) {
  if (reduced.rank() == shape.rank()) return reduced;
  Strides strides = shape;
  Shape sizes = shape;
  for (int axis = 0, from = 0; axis < shape.rank(); ++axis) {
    const bool gone = axes[std::size_t(axis)];
    strides[axis] = gone ? 0 : reduced.strides()[from];
    sizes[axis] = gone ? 1 : reduced.shape()[from];
    from += !gone;
  }
  return {reduced.storage(), reduced.dtype(), sizes, strides, reduced.offset()};
}

Index count_of(const Shape& shape, const Axes& axes) {
  Index n = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (axes[std::size_t(axis)]) n *= shape[axis];
  return n;
}

// Walks positions in row-major order over some axes of one or two tensors, axes merged where the strides allow it.
struct Counter {
  int rank = 0;
  Index total = 1;
  std::array<Index, kMaxRank> size{}, at{};
  std::array<std::array<Index, 2>, kMaxRank> stride{};
  std::array<Index, 2> offset{};

  void push(Index n, Index first, Index second = 0) {
    total *= n;
    if (n == 1) return;
    const auto last = std::size_t(rank - 1);
    if (rank > 0 && stride[last][0] == n * first && stride[last][1] == n * second) {
      size[last] *= n;
      stride[last] = {first, second};
      return;
    }
    size[std::size_t(rank)] = n;
    stride[std::size_t(rank++)] = {first, second};
  }
  void seek(Index position) {
    offset = {};
    if (total == 0) return;
    for (auto axis = std::size_t(rank); axis-- > 0;) {
      at[axis] = position % size[axis];
      position /= size[axis];
      for (std::size_t i = 0; i < 2; ++i) offset[i] += at[axis] * stride[axis][i];
    }
  }
  void next() {
    for (auto axis = std::size_t(rank); axis-- > 0;) {
      for (std::size_t i = 0; i < 2; ++i) offset[i] += stride[axis][i];
      if (++at[axis] < size[axis]) return;
      for (std::size_t i = 0; i < 2; ++i) offset[i] -= size[axis] * stride[axis][i];
      at[axis] = 0;
    }
  }
  bool unit() const { return rank == 0 || (rank == 1 && stride[0][0] == 1); }

  // n elements from `position` on, contiguous: where they are, or copied to `buffer`
  template <class T> const T* read(const T* x, Index position, Index n, T* buffer) const {
    if (unit() || n == 0) return x + position;
    if (rank == 1) {
      const T* from = x + position * stride[0][0];
      for (Index i = 0; i < n; ++i) buffer[i] = from[i * stride[0][0]];
      return buffer;
    }
    Counter c = *this;
    c.seek(position);
    const auto last = std::size_t(rank - 1);
    for (Index i = 0; i < n;) {
      const Index run = std::min(n - i, size[last] - c.at[last]), step = stride[last][0];
      const T* from = x + c.offset[0];
      for (Index j = 0; j < run; ++j) buffer[i + j] = from[j * step];
      i += run;
      c.at[last] += run - 1;
      c.offset[0] += (run - 1) * step;
      c.next();
    }
    return buffer;
  }
};

double combine(Folding fold, double a, double b) {
  switch (fold) {
    case Folding::sum: case Folding::squares: return a + b;
    case Folding::product: return a * b;
    case Folding::max: return b > a || std::isnan(b) ? b : a;
    case Folding::min: break;
  }
  return b < a || std::isnan(b) ? b : a;
}
double neutral(Folding fold) {
  if (fold == Folding::max || fold == Folding::min) return fold == Folding::max ? -HUGE_VAL : HUGE_VAL;
  return fold == Folding::product ? 1 : 0;
}

// out (=|+=) fold / divisor, or its root; out has x's rank with 1 at the reduced axes
struct Finish {
  double divisor = 1;
  bool root = false;
  template <class T> T of(double value) const { return T(root ? std::sqrt(value) : divisor == 1 ? value : value / divisor); }
};

template <class T> void reduce(Folding fold, const Tensor& x, const Axes& axes, const Into& out, Finish finish) {
  const FoldKernels<T> kernels = pick<T>(HWY_DYNAMIC_DISPATCH(PickF32), HWY_DYNAMIC_DISPATCH(PickF64))(fold);
  const Shape& shape = x.shape();
  if (out.tensor.numel() == 0) return;
  const T* const from = x.data<T>();
  T* const to = out.tensor.mutable_data<T>();
  const auto put = [&](Index offset, double value) {
    const T result = finish.of<T>(value);
    to[offset] = out.add ? to[offset] + result : result;
  };
  const Index n = count_of(shape, axes);

  Index columns = 1;  // trailing kept axes
  int last = shape.rank();
  while (last > 0 && !axes[std::size_t(last - 1)]) columns *= shape[--last];
  const bool by_columns = columns >= kFewColumns;

  Counter kept, inner, reduced;  // kept: results in front of the columns
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Index stride = x.strides()[axis], to_stride = out.tensor.strides()[axis];
    if (axes[std::size_t(axis)]) reduced.push(shape[axis], stride);
    else (by_columns && axis >= last ? inner : kept).push(shape[axis], stride, to_stride);
  }
  const Index results = kept.total, chunk_size = by_columns ? kColumnChunk : kRowChunk;
  const Index chunks = std::max<Index>(1, (n + chunk_size - 1) / chunk_size);

  if (!by_columns) {
    const auto fold_chunk = [&](Index base, Index chunk, T* buffer) {
      const Index first = chunk * kRowChunk, count = std::min(kRowChunk, n - first);
      return kernels.row(reduced.read(from + base, first, count, buffer), std::size_t(count));
    };
    if (chunks == 1) {
      return parallel_for(results, row_grain(std::max<Index>(n, 16)), [&](Index begin, Index end) {
        alignas(64) T buffer[kRowChunk];
        Counter at = kept;
        at.seek(begin);
        for (Index i = begin; i < end; ++i, at.next()) put(at.offset[1], double(fold_chunk(at.offset[0], 0, buffer)));
      });
    }
    const Tensor partials = empty({results * chunks}, dtype_of<T>);
    T* const partial = partials.mutable_data<T>();
    parallel_for(results * chunks, row_grain(kRowChunk), [&](Index begin, Index end) {
      alignas(64) T buffer[kRowChunk];
      Counter at = kept;
      at.seek(begin / chunks);
      for (Index i = begin; i < end; ++i) {
        partial[i] = fold_chunk(at.offset[0], i % chunks, buffer);
        if ((i + 1) % chunks == 0) at.next();
      }
    });
    kept.seek(0);
    for (Index i = 0; i < results; ++i, kept.next()) {
      double value = neutral(fold);
      for (Index c = 0; c < chunks; ++c) value = combine(fold, value, double(partial[i * chunks + c]));
      put(kept.offset[1], value);
    }
    return;
  }

  // by columns: an item is one chunk of one block of columns of one result row
  const Index blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const bool rows_are_strided = inner.unit() && reduced.rank <= 1;
  const Tensor partials = empty({chunks > 1 ? results * chunks * columns : 0}, dtype_of<T>);
  T* const partial = chunks > 1 ? partials.mutable_data<T>() : nullptr;
  const Index width = std::min(columns, kColumnBlock);
  parallel_for(results * blocks * chunks, row_grain(width * std::min(n, kColumnChunk)), [&](Index begin, Index end) {
    alignas(64) T buffer[kColumnBlock], value[kColumnBlock];
    Counter result = kept, column = inner, row = reduced;
    for (Index item = begin; item < end; ++item) {
      const Index chunk = item % chunks, block = item / chunks % blocks, i = item / chunks / blocks;
      const Index first = block * kColumnBlock, m = std::min(kColumnBlock, columns - first);
      const Index top = chunk * kColumnChunk, rows = std::min(kColumnChunk, n - top);
      result.seek(i);
      T* const sums = chunks > 1 ? partial + (i * chunks + chunk) * columns + first : value;
      std::fill(sums, sums + m, T(neutral(fold)));
      if (rows_are_strided) {
        const Index stride = reduced.rank == 1 ? reduced.stride[0][0] : 0;
        kernels.columns(from + result.offset[0] + top * stride + first, std::size_t(rows), stride, std::size_t(m), sums);
      } else {
        row.seek(top);
        for (Index r = 0; r < rows; ++r, row.next())
          kernels.columns(inner.read(from + result.offset[0] + row.offset[0], first, m, buffer), 1, 0, std::size_t(m), sums);
      }
      if (chunks > 1) continue;
      column.seek(first);
      for (Index j = 0; j < m; ++j, column.next()) put(result.offset[1] + column.offset[1], double(value[j]));
    }
  });
  if (chunks == 1) return;
  kept.seek(0);
  for (Index i = 0; i < results; ++i, kept.next()) {
    parallel_for(columns, row_grain(chunks), [&](Index begin, Index end) {
      Counter column = inner;
      column.seek(begin);
      for (Index j = begin; j < end; ++j, column.next()) {
        double value = neutral(fold);
        for (Index c = 0; c < chunks; ++c) value = combine(fold, value, double(partial[(i * chunks + c) * columns + j]));
        put(kept.offset[1] + column.offset[1], value);
      }
    });
  }
}

Tensor reduced_tensor(std::string_view name, Folding fold, const Tensor& x, const Axes& axes, bool keepdim, Finish finish = {}) {
  return visit_float(x.dtype(), name, [&]<class T>() {
    Tensor y = empty(reduced_shape(x.shape(), axes, keepdim), x.dtype());
    reduce<T>(fold, x, axes, {with_kept_dims(y, x.shape(), axes), false}, finish);
    return y;
  });
}

// Any dtype: y = f(y, element) from `start` on, one after another
template <class R, class F> Tensor accumulate(const Tensor& x, const Axes& axes, bool keepdim, DType dtype, R start, F f) {
  Tensor y = empty(reduced_shape(x.shape(), axes, keepdim), dtype);
  if (y.numel() == 0) return y;
  Counter kept, reduced;
  for (int axis = 0; axis < x.rank(); ++axis) (axes[std::size_t(axis)] ? reduced : kept).push(x.shape()[axis], x.strides()[axis]);
  R* const to = y.mutable_data<R>();
  visit_any(x.dtype(), [&]<class T>() {
    const T* const from = reduced.total == 0 ? nullptr : x.data<T>();
    parallel_for(kept.total, row_grain(std::max<Index>(reduced.total, 8)), [&](Index begin, Index end) {
      Counter at = kept, r = reduced;
      at.seek(begin);
      for (Index i = begin; i < end; ++i, at.next()) {
        R value = start;
        r.seek(0);
        for (Index j = 0; j < reduced.total; ++j, r.next()) value = f(value, from[at.offset[0] + r.offset[0]]);
        to[i] = value;
      }
    });
  });
  return y;
}

struct NotZero {
  template <class T> bool operator()(T value) const {
    if constexpr (std::is_same_v<T, BFloat16>) return float(value) != 0;
    else return value != T(0);
  }
};

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  const Axes axes = reduced_axes("sum", x, dims);
  check_dtype("sum", x);
  if (!is_float(x.dtype())) {
    return accumulate(x, axes, keepdim, DType::i64, Index{0}, []<class T>(Index total, T value) -> Index {
      if constexpr (std::is_integral_v<T>) return Index(std::uint64_t(total) + std::uint64_t(value));
      else return total;
    });
  }
  return reduced_tensor("sum", Folding::sum, x, axes, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  const Axes axes = reduced_axes("mean", x, dims);
  const double n = double(count_of(x.shape(), axes));
  return reduced_tensor("mean", Folding::sum, x, axes, keepdim, {.divisor = n});
}

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduced_tensor("prod", Folding::product, x, reduced_axes("prod", x, dims), keepdim);
}

namespace {

Tensor extremum(std::string_view name, Folding fold, const Tensor& x, const Dims& dims, bool keepdim) {
  const Axes axes = reduced_axes(name, x, dims);
  check<ShapeError>(count_of(x.shape(), axes) > 0 || reduced_shape(x.shape(), axes, false).numel() == 0, "{}: nothing to choose from: shape {}, dims {}",
                    name, x.shape(), dims);
  return reduced_tensor(name, fold, x, axes, keepdim);
}

}  // namespace

Tensor max(const Tensor& x, const Dims& dims, bool keepdim) { return extremum("max", Folding::max, x, dims, keepdim); }
Tensor min(const Tensor& x, const Dims& dims, bool keepdim) { return extremum("min", Folding::min, x, dims, keepdim); }

namespace {

// x - mean, and what the mean lost when it was rounded: far from 0 that is as large as the differences
Tensor centred(const Tensor& x, const Dims& dims) {
  const Tensor near = x - mean(x, dims, true);
  return near - mean(near, dims, true);
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, bool unbiased, bool keepdim) {
  const Axes axes = reduced_axes("var", x, dims);
  const double n = double(count_of(x.shape(), axes)) - (unbiased ? 1 : 0);
  return reduced_tensor("var", Folding::squares, centred(x, dims), axes, keepdim, {.divisor = n > 0 ? n : 0});
}

Tensor norm(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduced_tensor("norm", Folding::squares, x, reduced_axes("norm", x, dims), keepdim, {.root = true});
}

// ---- derivatives -------------------------------------------------------------------------------------------------------

namespace {

template <class T> void copy_row(const T* const* x, size_t n, const T* p, T* y) {
  if (p) for (size_t i = 0; i < n; ++i) y[i] = x[0][i] * p[0];
  else std::copy(x[0], x[0] + n, y);
}
template <class T> void add_rows(const T* const* x, size_t n, const T*, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = x[0][i] + x[1][i];
}
// dx_i (=|+=) scale dy, dy broadcast
void spread(std::string_view name, const Tensor& dy, double scale, const Into& dx) {
  visit_float(dy.dtype(), name, [&]<class T>() {
    const T factor = T(scale);
    if (scale == 1 && dx.add) map<T>(add_rows<T>, {dx.tensor, dy}, nullptr, 1, {dx.tensor, false});
    else map<T>(copy_row<T>, {dy}, scale == 1 ? nullptr : &factor, 1, dx);
  });
}

}  // namespace

void sum_grad(const Tensor& dy, const Dims& dims, const Into& dx) {
  spread("sum", with_kept_dims(dy, dx.tensor.shape(), reduced_axes("sum", dx.tensor, dims)), 1, dx);
}

void mean_grad(const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("mean", dx.tensor, dims);
  spread("mean", with_kept_dims(dy, dx.tensor.shape(), axes), 1 / double(count_of(dx.tensor.shape(), axes)), dx);
}

void prod_grad(const Tensor& x, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("prod", x, dims);
  const Tensor upstream = with_kept_dims(dy, x.shape(), axes);
  visit_float(x.dtype(), "prod", [&]<class T>() {
    if (x.numel() == 0) return;
    Counter kept, to_kept, reduced;  // over (x, dy) and (dx)
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (axes[std::size_t(axis)]) {
        reduced.push(x.shape()[axis], x.strides()[axis], dx.tensor.strides()[axis]);
      } else {
        kept.push(x.shape()[axis], x.strides()[axis], upstream.strides()[axis]);
        to_kept.push(x.shape()[axis], dx.tensor.strides()[axis]);
      }
    }
    const Index n = reduced.total;
    const T *from = x.data<T>(), *up = upstream.data<T>();
    T* const to = dx.tensor.mutable_data<T>();
    parallel_for(kept.total, row_grain(4 * n), [&](Index begin, Index end) {
      List<T> after(std::size_t(n) + 1, T(1));  // after[j] = x_j x_{j+1} ...
      Counter at = kept, to_at = to_kept, r = reduced;
      at.seek(begin);
      to_at.seek(begin);
      for (Index i = begin; i < end; ++i, at.next(), to_at.next()) {
        for (Index j = n; j-- > 0;) {
          r.seek(j);
          after[std::size_t(j)] = from[at.offset[0] + r.offset[0]] * after[std::size_t(j) + 1];
        }
        T before = up[at.offset[1]];
        r.seek(0);
        for (Index j = 0; j < n; ++j, r.next()) {
          T& out = to[to_at.offset[0] + r.offset[1]];
          const T value = from[at.offset[0] + r.offset[0]], gradient = before * after[std::size_t(j) + 1];
          out = dx.add ? out + gradient : gradient;
          before *= value;
        }
      }
    });
  });
}

void max_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("max", x, dims);
  const Tensor best = with_kept_dims(y, x.shape(), axes), upstream = with_kept_dims(dy, x.shape(), axes);
  visit_float(x.dtype(), "max", [&]<class T>() {
    const auto wins = [](T value, T best) { return value == best || (value != value && best != best); };
    Tensor winners = empty_like(x);
    for_each_element<T, T, T>(x.shape(), 1, [&](T& value, T& most, T& w) { w = wins(value, most); }, x, best, winners);
    const Tensor ties = upstream / with_kept_dims(sum(winners, dims, true), x.shape(), axes);
    map<T>([](const T* const* in, size_t n, const T*, T* out) { for (size_t i = 0; i < n; ++i) out[i] = in[0][i] != 0 ? in[1][i] : T(0); },
           {winners, ties}, nullptr, 1, dx);
  });
}

void var_grad(const Tensor& x, const Tensor& dy, const Dims& dims, bool unbiased, const Into& dx) {
  const Axes axes = reduced_axes("var", x, dims);
  const double n = double(count_of(x.shape(), axes)) - (unbiased ? 1 : 0);
  add_into(centred(x, dims) * (with_kept_dims(dy, x.shape(), axes) * (2 / n)), dx);
}

void norm_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("norm", x, dims);
  const Tensor length = with_kept_dims(y, x.shape(), axes), upstream = with_kept_dims(dy, x.shape(), axes);
  const Tensor zero = zeros({}, x.dtype());
  add_into(x * where(equal(length, zero), zero, upstream / length), dx);
}

// ---- cumsum ------------------------------------------------------------------------------------------------------------

namespace {

template <class T> using Summand = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;   // integers wrap

// y[.., i, ..] = x[.., i, ..] + y[.., i - step, ..], from the front (step 1) or the back (-1); y contiguous
template <class T> void accumulate_along(const Tensor& x, int axis, bool backwards, const Tensor& y) {
  const Tensor source = x.contiguous();
  const Index n = x.shape()[axis];
  Index inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  if (x.numel() == 0) return;
  const Index outer = x.numel() / n / inner;
  const T* const from = source.data<T>();
  T* const to = y.mutable_data<T>();
  parallel_for(outer, row_grain(2 * n * inner), [&](Index begin, Index end) {
    for (Index o = begin; o < end; ++o) {
      for (Index k = 0; k < n; ++k) {
        const Index at = (o * n + (backwards ? n - 1 - k : k)) * inner, previous = at + (backwards ? inner : -inner);
        for (Index j = 0; j < inner; ++j)
          to[at + j] = k == 0 ? from[at + j] : T(Summand<T>(to[previous + j]) + Summand<T>(from[at + j]));
      }
    }
  });
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  check<Error>(x.defined(), "cumsum: the tensor is empty (default constructed)");
  const int axis = normalize_dim("cumsum", dim, x.shape());
  check_dtype("cumsum", x);
  if (!is_float(x.dtype())) {
    const Tensor wide = to(x, DType::i64), y = empty(x.shape(), DType::i64);
    accumulate_along<Index>(wide, axis, false, y);
    return y;
  }
  Tensor y = empty(x.shape(), x.dtype());
  visit_float(x.dtype(), "cumsum", [&]<class T>() { accumulate_along<T>(x, axis, false, y); });
  return y;
}

void cumsum_grad(const Tensor& dy, int dim, const Into& dx) {
  const int axis = normalize_dim("cumsum", dim, dy.shape());
  const Tensor sums = empty(dy.shape(), dy.dtype());
  visit_float(dy.dtype(), "cumsum", [&]<class T>() { accumulate_along<T>(dy, axis, true, sums); });
  add_into(sums, dx);
}

// ---- sum_to ------------------------------------------------------------------------------------------------------------

void sum_to(const Tensor& x, const Into& out) {
  check<DTypeError>(x.dtype() == out.tensor.dtype(), "sum_to: dtypes differ: x {}, out {}", x.dtype(), out.tensor.dtype());
  const Shape& to = out.tensor.shape();
  if (to == x.shape()) return out.add ? spread("sum_to", x, 1, out) : copy_into(out.tensor, x);
  const int lead = x.rank() - to.rank();
  bool fits = lead >= 0;
  Axes axes{};
  Shape sizes = x.shape();
  Strides strides = x.shape();
  for (int axis = 0; axis < x.rank() && fits; ++axis) {
    const Index size = axis < lead ? 1 : to[axis - lead];
    fits = size == x.shape()[axis] || size == 1;
    axes[std::size_t(axis)] = size != x.shape()[axis];
    sizes[axis] = size;
    strides[axis] = axis < lead ? 0 : out.tensor.strides()[axis - lead];
  }
  check<ShapeError>(fits, "sum_to: {} does not broadcast to {}", to, x.shape());
  const Tensor kept(out.tensor.storage(), out.tensor.dtype(), sizes, strides, out.tensor.offset());
  visit_float(x.dtype(), "sum_to", [&]<class T>() { reduce<T>(Folding::sum, x, axes, {kept, out.add}, {}); });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check<Error>(x.defined(), "sum_to: the tensor is empty (default constructed)");
  const Tensor y = empty(shape, x.dtype());
  sum_to(x, {y, false});
  return y;
}

void sum_to_grad(const Tensor& dy, const Into& dx) { spread("sum_to", dy, 1, dx); }

double sum_of_squares(const Tensor& x) {
  return visit_float(x.dtype(), "sum_of_squares", [&]<class T>() {
    const auto kernel = [] {
      if constexpr (std::is_same_v<T, float>) return HWY_DYNAMIC_DISPATCH(SquaresF32);
      else return HWY_DYNAMIC_DISPATCH(PickF64)(Folding::squares).row;
    }();
    const Tensor values = x.contiguous();
    const Index n = x.numel(), chunks = (n + kRowChunk - 1) / kRowChunk;
    const T* const data = n > 0 ? values.data<T>() : nullptr;
    const Tensor partials = empty({chunks}, DType::f64);
    double* const partial = partials.mutable_data<double>();
    parallel_for(chunks, 4, [&](Index begin, Index end) {
      for (Index c = begin; c < end; ++c)
        partial[c] = kernel(data + c * kRowChunk, std::size_t(std::min(kRowChunk, n - c * kRowChunk)));
    });
    return std::accumulate(partial, partial + chunks, 0.0);
  });
}

// ---- argmax ------------------------------------------------------------------------------------------------------------

namespace {

// First position of the largest (smallest) of n; the first NaN if there is one.
template <class T> Index position_of(const T* x, Index n, bool largest) {
  if constexpr (std::is_floating_point_v<T>) {
    const T best = pick<T>(HWY_DYNAMIC_DISPATCH(PickF32), HWY_DYNAMIC_DISPATCH(PickF64))(largest ? Folding::max : Folding::min).row(x, std::size_t(n));
    if (best != best) return std::find_if(x, x + n, [](T v) { return v != v; }) - x;
    return std::find(x, x + n, best) - x;
  } else {
    return (largest ? std::max_element(x, x + n) : std::min_element(x, x + n)) - x;
  }
}

Tensor arg_extremum(std::string_view name, const Tensor& x, int dim, bool keepdim, bool largest) {
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", name);
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
      parallel_for(shape.numel(), row_grain(n), [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) to[i] = position_of(from + i * n, n, largest);
      });
    }
  });
  return y;
}

}  // namespace

Tensor argmax(const Tensor& x, int dim, bool keepdim) { return arg_extremum("argmax", x, dim, keepdim, true); }
Tensor argmin(const Tensor& x, int dim, bool keepdim) { return arg_extremum("argmin", x, dim, keepdim, false); }

Index first_above(std::span<const float> x, Index from, float threshold) {
  return from + Index(HWY_DYNAMIC_DISPATCH(FirstAboveF32)(x.data() + from, x.size() - std::size_t(from), threshold));
}
Index first_above(std::span<const double> x, Index from, double threshold) {
  return from + Index(HWY_DYNAMIC_DISPATCH(FirstAboveF64)(x.data() + from, x.size() - std::size_t(from), threshold));
}

// ---- questions ---------------------------------------------------------------------------------------------------------

Tensor any_true(const Tensor& x, const Dims& dims, bool keepdim) {
  return accumulate(x, reduced_axes("any_true", x, dims), keepdim, DType::u8, std::uint8_t{0},
                    [](std::uint8_t found, auto value) -> std::uint8_t { return found | std::uint8_t(NotZero()(value)); });
}
Tensor all_true(const Tensor& x, const Dims& dims, bool keepdim) {
  return accumulate(x, reduced_axes("all_true", x, dims), keepdim, DType::u8, std::uint8_t{1},
                    [](std::uint8_t all_so_far, auto value) -> std::uint8_t { return all_so_far & std::uint8_t(NotZero()(value)); });
}
bool any_true(const Tensor& x) { return any_true(x, {}).item<std::uint8_t>() != 0; }
bool all_true(const Tensor& x) { return all_true(x, {}).item<std::uint8_t>() != 0; }

}  // namespace heed
#endif
