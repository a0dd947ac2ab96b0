// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sort.h"

#define HWY_TARGET_INCLUDE "tensor/ops/sort.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// First i in [begin, n) with x[i] > bound or x[i] NaN, n if there is none
template <class T> size_t FindAbove(const T* x, size_t begin, size_t n, T bound) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, bound);
  size_t i = begin;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    if (!hn::AllTrue(d, hn::Le(v, limit))) break;   // false for NaN as well
  }
  while (i < n && x[i] <= bound) ++i;
  return i;
}
size_t FindAboveF32(const float* x, size_t begin, size_t n, float bound) { return FindAbove(x, begin, n, bound); }
size_t FindAboveF64(const double* x, size_t begin, size_t n, double bound) { return FindAbove(x, begin, n, bound); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "tensor/format.h"
#include "tensor/lines.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(FindAboveF32);
HWY_EXPORT(FindAboveF64);

namespace {

template <class T> struct Ranked {
  T value;
  Index index;
};
template <class T> auto key(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) return float(x);
  else return x;
}
// a < b with NaN above everything
template <class T> bool below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (b != b && a == a);
  else return a < b;
}

// Order of the result: by value, then by index.
template <class T> bool earlier(const Ranked<T>& a, const Ranked<T>& b, bool descending) {
  if (descending ? below(b.value, a.value) : below(a.value, b.value)) return true;
  if (descending ? below(a.value, b.value) : below(b.value, a.value)) return false;
  return a.index < b.index;
}

// The k largest of a dense line: a short sorted list that a value enters only by beating its last entry.
template <class T> void topk_line(const T* x, Index n, Index k, Ranked<T>* best) {
  const auto find_above = pick<T>(HWY_DYNAMIC_DISPATCH(FindAboveF32), HWY_DYNAMIC_DISPATCH(FindAboveF64));
  Index filled = 0;
  for (Index i = 0; i < n; ++i) {
    if (filled == k) {
      i = Index(find_above(x, size_t(i), size_t(n), best[k - 1].value));
      if (i == n) return;
      if (!below(best[k - 1].value, x[i])) continue;
    }
    Index at = filled < k ? filled++ : k - 1;
    for (; at > 0 && below(best[at - 1].value, x[i]); --at) best[at] = best[at - 1];
    best[at] = {x[i], i};
  }
}

// The first k in order along an axis.
Sorted sort_lines(const Tensor& x, int axis, Index k, bool descending) {
  Shape shape = x.shape();
  shape[axis] = k;
  Sorted y{empty(shape, x.dtype()), empty(shape, DType::i64)};
  if (y.values.numel() == 0) return y;
  const Index n = x.shape()[axis], step = x.strides()[axis], out_step = y.values.strides()[axis];
  const Lines<2> lines(shape, axis, {x.strides(), y.values.strides()});
  visit_any(x.dtype(), [&]<class T>() {
    using K = decltype(key(T{}));
    const T* from = x.data<T>();
    T* values = y.values.mutable_data<T>();
    Index* indices = y.indices.mutable_data<Index>();
    parallel_for(lines.count(), row_grain(k < 64 ? n / 4 + 1 : 8 * n), [&](Index begin, Index end) {
      List<Ranked<K>> line;
      lines(begin, end, [&](const std::array<Index, 2>& at) {
        bool ready = false;
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
          if (descending && k < n && k <= 64 && step == 1) {
            line.resize(size_t(k));
            topk_line(from + at[0], n, k, line.data());
            ready = true;
          }
        if (!ready) {
          line.resize(size_t(n));
          for (Index i = 0; i < n; ++i) line[size_t(i)] = {key(from[at[0] + i * step]), i};
          std::partial_sort(line.begin(), line.begin() + k, line.end(),
                            [&](const auto& a, const auto& b) { return earlier(a, b, descending); });
        }
        for (Index i = 0; i < k; ++i) {
          const Index index = line[size_t(i)].index;
          values[at[1] + i * out_step] = from[at[0] + index * step];
          indices[at[1] + i * out_step] = index;
        }
      });
    });
  });
  return y;
}

}  // namespace

Sorted sort(const Tensor& x, int dim, bool descending) {
  if (x.rank() == 0) {
    Sorted y = sort(reshape(x, {1}), dim, descending);
    return {reshape(y.values, {}), reshape(y.indices, {})};
  }
  const int axis = normalize_dim("sort", dim, x.shape());
  return sort_lines(x, axis, x.shape()[axis], descending);
}

Tensor argsort(const Tensor& x, int dim, bool descending) { return sort(x, dim, descending).indices; }

Sorted topk(const Tensor& x, Index k, int dim) {
  const int axis = normalize_dim("topk", dim, x.shape());
  check<IndexError>(k >= 0 && k <= x.shape()[axis], "topk: k {} is not in [0, {}]: x {}, dim {}", k, x.shape()[axis], x.shape(),
                    dim);
  return sort_lines(x, axis, k, true);
}

}  // namespace heed
#endif
