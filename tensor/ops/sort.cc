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
#include <atomic>
#include <bit>
#include <limits>

#include "tensor/format.h"
#include "tensor/lines.h"
#include "tensor/list.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(FindAboveF32);
HWY_EXPORT(FindAboveF64);

namespace {

// a < b with NaN above everything
template <class T> bool below(T a, T b) { return a < b || (b != b && a == a); }

// The k largest of a line: a short sorted list that a value enters only by beating its last entry.
template <class T> void topk_line(const T* x, Index n, Index k, T* best, Index* indices) {
  const auto find_above = pick<T>(HWY_DYNAMIC_DISPATCH(FindAboveF32), HWY_DYNAMIC_DISPATCH(FindAboveF64));
  Index filled = 0;
  for (Index i = 0; i < n; ++i) {
    if (filled == k) {
      i = Index(find_above(x, size_t(i), size_t(n), best[k - 1]));
      if (i == n) return;
      if (!below(best[k - 1], x[i])) continue;
    }
    Index at = filled < k ? filled++ : k - 1;
    for (; at > 0 && below(best[at - 1], x[i]); --at) {
      best[at] = best[at - 1];
      indices[at] = indices[at - 1];
    }
    best[at] = x[i];
    indices[at] = i;
  }
}

// Unsigned numbers in the order of x: NaN, of any bits, above everything, -0 = 0.
template <class K, class T> K key(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return key<K>(float(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits kSign = Bits(1) << (8 * sizeof(T) - 1);
    if (x != x) return std::numeric_limits<Bits>::max();
    const auto bits = std::bit_cast<Bits>(x == 0 ? T(0) : x);
    return bits ^ (Bits(-(bits >> (8 * sizeof(T) - 1))) | kSign);   // all bits of a negative number, the sign of another
  } else {
    using Bits = std::make_unsigned_t<T>;
    return Bits(Bits(x) - Bits(std::numeric_limits<T>::min()));
  }
}

constexpr Index kChunk = 1 << 14;

// The elements of a line as (key, index), to be sorted by key and then by index. K holds both.
template <class K> class Line {
 public:
  struct Item {
    K key, index;
  };

  template <class T> void load(const T* x, Index n, bool descending) {
    n_ = n;
    items_.resize(size_t(n));
    other_.resize(size_t(n));
    const K flip = descending ? K(~K(0)) : K(0), first = key<K>(x[0]);
    std::atomic<K> differ{0};
    parallel_for(n, kChunk, [&](Index begin, Index end) {
      Item* const items = items_.data();
      K differs = 0;
      for (Index i = begin; i < end; ++i) {
        const K k = key<K>(x[i]);
        differs |= k ^ first;
        items[i] = {K(k ^ flip), K(i)};
      }
      differ |= differs;
    });
    differ_ = differ;
  }

  // Drops items that are not among the first k, as far as the highest bits that differ tell.
  void keep_first(Index k) {
    constexpr K kDigits = 2048;
    const int shift = std::max(0, int(std::bit_width(differ_)) - 11);
    Item* const items = items_.data();
    K counts[kDigits] = {}, last = 0;
    for (Index i = 0; i < n_; ++i) ++counts[(items[i].key >> shift) % kDigits];
    for (Index sum = Index(counts[0]); sum < k; sum += Index(counts[last])) ++last;
    Index kept = 0;
    for (Index i = 0; i < n_; ++i) {
      items[kept] = items[i];
      kept += (items[i].key >> shift) % kDigits <= last;
    }
    n_ = kept;
  }

  // Radix sort from the lowest digit of 8 bits on, each stable; digits that all keys share are left out.
  const Item* sort() {
    if (n_ <= 32) return insertion_sort();
    const Index chunks = divide_up(n_, kChunk);
    for (int shift = 0; shift < int(std::bit_width(differ_)); shift += 8) {
      if ((differ_ >> shift) % 256 == 0) continue;
      places_.assign(size_t(chunks) * 256, 0);                   // [chunk, digit]: how many, then where they go
      const Item* const from = items_.data();
      Item* const to = other_.data();
      parallel_for(n_, kChunk, [&](Index begin, Index end) {
        K* const count = places_.data() + begin / kChunk * 256;
        for (Index i = begin; i < end; ++i) ++count[(from[i].key >> shift) % 256];
      });
      K place = 0;
      for (Index digit = 0; digit < 256; ++digit)
        for (Index chunk = 0; chunk < chunks; ++chunk) place += std::exchange(places_[size_t(chunk * 256 + digit)], place);
      parallel_for(n_, kChunk, [&](Index begin, Index end) {
        K* const next = places_.data() + begin / kChunk * 256;
        for (Index i = begin; i < end; ++i) to[next[(from[i].key >> shift) % 256]++] = from[i];
      });
      items_.swap(other_);
    }
    return items_.data();
  }

 private:
  const Item* insertion_sort() {
    Item* const items = items_.data();
    for (Index i = 1; i < n_; ++i) {
      const Item item = items[i];
      Index at = i;
      for (; at > 0 && item.key < items[at - 1].key; --at) items[at] = items[at - 1];
      items[at] = item;
    }
    return items;
  }

  Index n_ = 0;
  List<Item> items_, other_;
  List<K> places_;
  K differ_ = 0;                                                   // bits in which not all keys agree
};

// The first k of a line in order.
template <class K, class T> void sort_line(Line<K>& line, const T* x, Index n, Index k, bool descending, T* values, Index* indices) {
  line.load(x, n, descending);
  if (k < n / 2) line.keep_first(k);
  const auto* const items = line.sort();
  parallel_for(k, kChunk, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      indices[i] = Index(items[i].index);
      values[i] = x[items[i].index];
    }
  });
}

// The first k in order along an axis.
Sorted sort_along(const Tensor& x, int axis, Index k, bool descending) {
  const int last = x.rank() - 1;
  const Index n = x.shape()[axis];
  const Tensor rows = axis == last && (n == 1 || x.strides()[axis] == 1) ? x : transpose(x, axis, last).contiguous();
  Shape shape = rows.shape();
  shape[last] = k;
  Sorted y{empty(shape, x.dtype()), empty(shape, DType::i64)};
  const Lines<2> lines(shape, last, {rows.strides(), y.values.strides()});
  if (y.values.numel() > 0) visit_any(x.dtype(), [&]<class T>() {
    const T* from = rows.data<T>();
    T* values = y.values.mutable_data<T>();
    Index* indices = y.indices.mutable_data<Index>();
    const bool few = std::is_floating_point_v<T> && descending && k < n && k <= 64;
    const bool one_by_one = !few && n > kChunk && lines.count() < 16;   // and each on all threads
    parallel_for(lines.count(), one_by_one ? lines.count() : row_grain(few ? n / 4 + 1 : 8 * n), [&](Index begin, Index end) {
      Line<std::uint32_t> narrow;
      Line<std::uint64_t> wide;
      lines(begin, end, [&](const std::array<Index, 2>& at) {
        if constexpr (std::is_floating_point_v<T>)
          if (few) return topk_line(from + at[0], n, k, values + at[1], indices + at[1]);
        if constexpr (sizeof(T) <= 4)
          if (n <= Index(UINT32_MAX)) return sort_line(narrow, from + at[0], n, k, descending, values + at[1], indices + at[1]);
        sort_line(wide, from + at[0], n, k, descending, values + at[1], indices + at[1]);
      });
    });
  });
  return axis == last ? y : Sorted{transpose(y.values, axis, last).contiguous(), transpose(y.indices, axis, last).contiguous()};
}

}  // namespace

Sorted sort(const Tensor& x, int dim, bool descending) {
  if (x.rank() == 0) {
    Sorted y = sort(reshape(x, {1}), dim, descending);
    return {reshape(y.values, {}), reshape(y.indices, {})};
  }
  const int axis = normalize_dim("sort", dim, x.shape());
  return sort_along(x, axis, x.shape()[axis], descending);
}

Tensor argsort(const Tensor& x, int dim, bool descending) { return sort(x, dim, descending).indices; }

Sorted topk(const Tensor& x, Index k, int dim) {
  if (x.rank() == 0) return k == 1 ? sort(x, dim) : topk(reshape(x, {1}), k, dim);
  const int axis = normalize_dim("topk", dim, x.shape());
  check<IndexError>(k >= 0 && k <= x.shape()[axis], "topk: k {} is not in [0, {}]: x {}, dim {}", k, x.shape()[axis], x.shape(),
                    dim);
  return sort_along(x, axis, k, true);
}

}  // namespace heed
#endif
