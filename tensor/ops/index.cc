// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/index.h"
#define HWY_TARGET_INCLUDE "tensor/ops/index.cc"
#include "tensor/simd-inl.h"

#ifndef HEED_INDEX_KERNELS  // this file is read once for each target
#define HEED_INDEX_KERNELS
namespace heed {
template <class T> struct IndexKernels {
  void (*embed_rows)(const T* table, size_t stride, const int64_t* ids, size_t begin, size_t end, size_t n, T scale,
                     const T* positions, size_t position_stride, size_t period, T* y);
  void (*sum_rows)(const T* dy, size_t stride, const int64_t* at, size_t count, T scale, bool add, size_t n, T* dx);
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// y[p] = scale table[ids[p]] (+ positions[p % period]); product and sum are rounded apart, as in the composition of two ops
template <class T>
void EmbedRows(const T* table, size_t stride, const int64_t* ids, size_t begin, size_t end, size_t n, T scale,
               const T* positions, size_t position_stride, size_t period, T* y) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, scale);
  for (size_t p = begin; p < end; ++p) {
    const T* row = table + size_t(ids[p]) * stride;
    const T* add = positions ? positions + p % period * position_stride : nullptr;
    T* out = y + p * n;
    size_t i = 0;
    if (add) {
      for (; i + lanes <= n; i += lanes)
        hn::StoreU(hn::Add(hn::Mul(by, hn::LoadU(d, row + i)), hn::LoadU(d, add + i)), d, out + i);
      for (; i < n; ++i) out[i] = scale * row[i] + add[i];
    } else {
      for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(by, hn::LoadU(d, row + i)), d, out + i);
      for (; i < n; ++i) out[i] = scale * row[i];
    }
  }
}

// dx[i] (=|+=) scale Σ_p dy[at[p]][i], one chain of additions per element in rising p
template <class T>
void SumRows(const T* dy, size_t stride, const int64_t* at, size_t count, T scale, bool add, size_t n, T* dx) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, scale), zero = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    auto a0 = add ? hn::LoadU(d, dx + i) : zero, a1 = add ? hn::LoadU(d, dx + i + lanes) : zero;
    auto a2 = add ? hn::LoadU(d, dx + i + 2 * lanes) : zero, a3 = add ? hn::LoadU(d, dx + i + 3 * lanes) : zero;
    for (size_t p = 0; p < count; ++p) {
      const T* row = dy + size_t(at[p]) * stride + i;
      a0 = hn::Add(a0, hn::Mul(by, hn::LoadU(d, row)));
      a1 = hn::Add(a1, hn::Mul(by, hn::LoadU(d, row + lanes)));
      a2 = hn::Add(a2, hn::Mul(by, hn::LoadU(d, row + 2 * lanes)));
      a3 = hn::Add(a3, hn::Mul(by, hn::LoadU(d, row + 3 * lanes)));
    }
    hn::StoreU(a0, d, dx + i);
    hn::StoreU(a1, d, dx + i + lanes);
    hn::StoreU(a2, d, dx + i + 2 * lanes);
    hn::StoreU(a3, d, dx + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) {
    auto a = add ? hn::LoadU(d, dx + i) : zero;
    for (size_t p = 0; p < count; ++p) a = hn::Add(a, hn::Mul(by, hn::LoadU(d, dy + size_t(at[p]) * stride + i)));
    hn::StoreU(a, d, dx + i);
  }
  for (; i < n; ++i) {
    T a = add ? dx[i] : T(0);
    for (size_t p = 0; p < count; ++p) a += scale * dy[size_t(at[p]) * stride + i];
    dx[i] = a;
  }
}

// Whether an id is not in [0, n): then id or n - 1 - id is negative. i32 ids are widened on the way.
template <class T> bool AnyOutside(const T* ids, size_t count, int64_t n, int64_t* wide) {
  const hn::ScalableTag<int64_t> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto last = hn::Set(d, n - 1);
  auto signs = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto id = hn::Zero(d);
    if constexpr (sizeof(T) == 8) {
      id = hn::LoadU(d, ids + i);
    } else {
      id = hn::PromoteTo(d, hn::LoadU(narrow, ids + i));
      hn::StoreU(id, d, wide + i);
    }
    signs = hn::Or(signs, hn::Or(id, hn::Sub(last, id)));
  }
  bool outside = !hn::AllFalse(d, hn::Lt(signs, hn::Zero(d)));
  for (; i < count; ++i) {
    if constexpr (sizeof(T) == 4) wide[i] = ids[i];
    outside |= ids[i] < 0 || ids[i] >= n;
  }
  return outside;
}
bool AnyOutsideI32(const int32_t* ids, size_t count, int64_t n, int64_t* wide) { return AnyOutside(ids, count, n, wide); }
bool AnyOutsideI64(const int64_t* ids, size_t count, int64_t n, int64_t*) { return AnyOutside(ids, count, n, nullptr); }

IndexKernels<float> KernelsF32() { return {EmbedRows<float>, SumRows<float>}; }
IndexKernels<double> KernelsF64() { return {EmbedRows<double>, SumRows<double>}; }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "tensor/convert.h"
#include "tensor/format.h"
#include "tensor/lines.h"
#include "tensor/list.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/view.h"
#include "tensor/ops/walk.h"
#include "tensor/parallel.h"
#include "tensor/row.h"

namespace heed {
HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);
HWY_EXPORT(AnyOutsideI32);
HWY_EXPORT(AnyOutsideI64);

namespace {

template <class T> IndexKernels<T> kernels() {
  return pick<T>(HWY_DYNAMIC_POINTER(KernelsF32), HWY_DYNAMIC_POINTER(KernelsF64))();
}

// ids as contiguous i64, each within [0, n).
Tensor checked_ids(std::string_view op, std::string_view what, const Tensor& ids, Index n) {
  check<Error>(ids.defined(), "{}: its {} tensor is empty (default constructed)", op, what);
  check<DTypeError>(ids.dtype() == DType::i32 || ids.dtype() == DType::i64, "{}: takes ids of i32 or i64: {}", op, ids.dtype());
  const Tensor dense = ids.contiguous(), wide = ids.dtype() == DType::i64 ? dense : empty(ids.shape(), DType::i64);
  std::atomic<bool> all_in{true};
  const auto take = [&](auto kernel, const auto* from, Index* to) {
    parallel_for(wide.numel(), 32768, [&](Index begin, Index end) {
      if (kernel(from + begin, size_t(end - begin), n, to ? to + begin : nullptr)) all_in = false;
    });
  };
  if (ids.dtype() == DType::i64) take(HWY_DYNAMIC_DISPATCH(AnyOutsideI64), dense.data<Index>(), static_cast<Index*>(nullptr));
  else take(HWY_DYNAMIC_DISPATCH(AnyOutsideI32), dense.data<std::int32_t>(), wide.mutable_data<Index>());
  if (all_in) return wide;
  const auto values = wide.span<Index>();
  const auto wrong = std::find_if(values.begin(), values.end(), [n](Index id) { return id < 0 || id >= n; });
  fail<IndexError>("{}: {} {} at position {} is not in [0, {})", op, what, *wrong, position_of(wrong - values.begin(), ids.shape()), n);
}

// An index of gather or scatter_add likewise. What was expanded is checked once and stays expanded.
Tensor checked_index(std::string_view op, const Tensor& index, Index n) {
  Tensor once = index;
  for (int axis = 0; axis < index.rank(); ++axis)
    if (index.strides()[axis] == 0 && index.shape()[axis] > 1) once = slice(once, axis, 0, 1);
  return expand(checked_ids(op, "index", once, n), index.shape());
}

void check_same_dtype(std::string_view op, std::string_view a_name, const Tensor& a, std::string_view b_name, const Tensor& b) {
  check<DTypeError>(a.dtype() == b.dtype(), "{}: dtypes differ: {} {}, {} {}", op, a_name, a.dtype(), b_name, b.dtype());
}

// The tensor itself if the axes from `axis` on have no gaps among them, else a copy: [.., inner] blocks can be moved whole.
Tensor with_dense_tail(const Tensor& x, int axis) {
  Index step = 1;
  for (int i = x.rank() - 1; i >= axis; --i) {
    if (x.shape()[i] != 1 && x.strides()[i] != step) return x.clone();
    step *= x.shape()[i];
  }
  return x;
}

// dx[o, ids[p], :] (=|+=) scale Σ dy[o, p, :] in rising p.      dx [O, V, n] contiguous, dy [O, P, n] with dense n
// Counting sort by id; rows are then cut into ranges of ids and columns, and every element is one chain in one chunk.
template <class T>
void add_rows(std::span<const Index> ids, const T* dy, Index dy_outer, Index dy_row, Index outer, Index rows, Index n,
              double scale, Index skip, bool add, T* dx) {
  const auto count = Index(ids.size());
  if (n < 16) {                                                   // rows too short for it: one addition after the other
    return parallel_for(outer, row_grain((rows + count) * n), [&](Index begin, Index end) {
      for (Index o = begin; o < end; ++o) {
        T* const to = dx + o * rows * n;
        if (!add) std::fill_n(to, rows * n, T(0));
        const T* from = dy + o * dy_outer;
        for (Index id : ids) {
          if (id != skip)
            for (Index i = 0; i < n; ++i) to[id * n + i] += T(scale) * from[i];
          from += dy_row;
        }
      }
    });
  }
  Tensor scratch = zeros({rows + 1 + count}, DType::i64);
  Index* const first = scratch.mutable_data<Index>();            // first[v] = where the positions of id v begin
  Index* const order = first + rows + 1;
  for (Index id : ids) ++first[id];
  std::exclusive_scan(first, first + rows + 1, first, Index{0});
  for (Index p = 0; p < count; ++p) order[first[ids[size_t(p)]]++] = p;
  std::copy_backward(first, first + rows, first + rows + 1);      // first[v] had moved to the end of v
  first[0] = 0;

  const Index width = 256, blocks = divide_up(n, width);
  const Index per_range = row_grain(1 + width * count / std::max<Index>(rows, 1)), ranges = divide_up(rows, per_range);
  const Index chunks = outer * ranges * blocks, work = outer * (rows * (add ? 1 : n) + count * n);
  const auto kernel = kernels<T>().sum_rows;
  parallel_for(chunks, row_grain(work / std::max<Index>(chunks, 1)), [&](Index begin, Index end) {
    for (Index chunk = begin; chunk < end; ++chunk) {
      const Index o = chunk / (ranges * blocks), range = chunk / blocks % ranges, column = chunk % blocks * width;
      for (Index v = range * per_range; v < std::min(rows, (range + 1) * per_range); ++v) {
        const Index positions = v == skip ? 0 : first[v + 1] - first[v];
        if (positions == 0 && add) continue;
        kernel(dy + o * dy_outer + column, size_t(dy_row), order + first[v], size_t(positions), T(scale), add,
               size_t(std::min(width, n - column)), dx + (o * rows + v) * n + column);
      }
    }
  });
}

Shape with_size(Shape shape, int axis, Index size) {
  shape[axis] = size;
  return shape;
}

// x's shape and index's fit along all axes but one.
int check_gather(std::string_view op, const Tensor& x, int dim, const Tensor& index) {
  const int axis = normalize_dim(op, dim, x.shape());
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.shape()[i] <= x.shape()[i];
  check<ShapeError>(fits, "{}: index must have x's rank and, beside dim {}, at most x's sizes: x {}, index {}", op, dim,
                    x.shape(), index.shape());
  return axis;
}

// y[.., j, ..] = x[.., index[.., j, ..], ..]; index over y's shape
void gather_into(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
  Strides beside = x.strides();            // to the element at position 0 of the axis
  beside[axis] = 0;
  visit_any(x.dtype(), [&]<class T>() {
    const T* x0 = x.data<T>();
    const Index* index0 = index.data<Index>();
    T* y0 = y.mutable_data<T>();
    walk(y.shape(), {beside, index.strides(), y.strides()}, 2, [=, step = x.strides()[axis]](const Piece& piece) {
      const auto [from_next, id_next, to_next] = std::array{piece.step[0], piece.step[1], piece.step[2]};
      for (Index r = 0; r < piece.rows; ++r) {
        const T* from = x0 + piece.offset[0] + r * piece.row[0];
        const Index* ids = index0 + piece.offset[1] + r * piece.row[1];
        T* to = y0 + piece.offset[2] + r * piece.row[2];
        if (from_next == 1 && to_next == 1 && id_next == 0) {
          std::copy_n(from + *ids * step, piece.n, to);
          continue;
        }
        HWY_UNROLL(4)
        for (Index c = 0; c < piece.n; ++c) to[c * to_next] = from[ids[c * id_next] * step + c * from_next];
      }
    });
  });
}

// Elements of x's rows beyond the axis where the index only changes along it, so that they go together; else, and where they are few, 0.
Index whole_row(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  Index n = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis && (index.shape()[i] != x.shape()[i] || (index.shape()[i] > 1 && index.strides()[i] != 0))) return 0;
    if (i > axis) n *= x.shape()[i];
  }
  return n >= 16 && x.is_contiguous() && src.is_contiguous() ? n : 0;
}

// x[.., index[.., j, ..], ..] += src[.., j, ..] in rising j. Lines along the axis do not touch one another; 64 neighbours are
// walked side by side, since their elements share cache lines. Lines along the last axis are walked one by one: i is j.
template <class T> void add_lines(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  if (index.numel() == 0) return;
  if constexpr (std::is_floating_point_v<T>)
    if (const Index n = whole_row(x, axis, index, src); n > 0) {
      const Index count = index.shape()[axis];
      const Tensor ids = Tensor(index.storage(), DType::i64, {count}, {index.strides()[axis]}, index.offset()).contiguous();
      return add_rows<T>(ids.span<Index>(), src.data<T>(), count * n, n, src.numel() / (count * n), x.shape()[axis], n, 1, -1, true,
                         x.mutable_data<T>());
    }
  T* to = x.mutable_data<T>();
  const T* from = src.data<T>();
  const Index* ids = index.data<Index>();
  const int last = index.rank() - 1;
  const bool along = axis == last;
  const Index n = along ? 1 : index.shape()[axis], width = index.shape()[last], block = along ? width : 64;
  const Index to_step = x.strides()[axis], from_step = src.strides()[axis], id_step = index.strides()[axis];
  const Index to_next = along ? 0 : x.strides()[last], from_next = src.strides()[last], id_next = index.strides()[last];
  const Index blocks = divide_up(width, block);
  const Lines<3> lines(with_size(index.shape(), last, 1), axis, {x.strides(), src.strides(), index.strides()});
  parallel_for(lines.count() * blocks, row_grain(n * block), [&](Index begin, Index end) {
    for (Index chunk = begin; chunk < end; ++chunk)
      lines(chunk / blocks, chunk / blocks + 1, [&](const std::array<Index, 3>& at) {
        const Index first = chunk % blocks * block, stop = std::min(width, first + block);
        for (Index j = 0; j < n; ++j) {
          T* const sums = to + at[0];
          const T* const values = from + at[1] + j * from_step;
          const Index* const id = ids + at[2] + j * id_step;
          if (!along && id_next == 0 && to_next == 1 && from_next == 1) {
            add_row(values + first, stop - first, sums + *id * to_step + first);
            continue;
          }
          for (Index i = first; i < stop; ++i) {
            T& sum = sums[id[i * id_next] * to_step + i * to_next];
            sum = plus(sum, values[i * from_next]);
          }
        }
      });
  });
}

// The i < n with keep(i), in rising order: allocate(count), then write(place, begin, rest, k) for the k of them that are
// begin + rest[0], begin + rest[1], ... and stand at `place` and behind.
template <class Keep, class Allocate, class Write> void compact(Index n, Keep&& keep, Allocate&& allocate, Write&& write) {
  constexpr Index kChunk = 1 << 14, kBlock = 1 << 10;
  const Index chunks = divide_up(n, kChunk);
  List<Index> before(size_t(chunks) + 1);                         // how many stand in the chunks before
  parallel_for(n, kChunk, [&](Index begin, Index end) {
    Index count = 0;
    for (Index i = begin; i < end; ++i) count += keep(i);
    before[size_t(begin / kChunk) + 1] = count;
  });
  std::partial_sum(before.begin(), before.end(), before.begin());
  allocate(before.back());
  parallel_for(n, kChunk, [&](Index begin, Index end) {
    std::uint16_t rest[kBlock];
    Index place = before[size_t(begin / kChunk)];
    for (; begin < end; begin += kBlock) {
      Index count = 0;
      for (Index i = 0; i < std::min(kBlock, end - begin); ++i) {  // no branch on what nobody can predict
        rest[count] = std::uint16_t(i);
        count += keep(begin + i);
      }
      write(place, begin, rest, count);
      place += count;
    }
  });
}

void check_mask(std::string_view op, const Tensor& x, const Tensor& mask) {
  check<DTypeError>(mask.dtype() == DType::u8, "{}: takes a mask of u8: {}", op, mask.dtype());
  check<ShapeError>(broadcasts_to(mask.shape(), x.shape()), "{}: mask does not broadcast to x: x {}, mask {}", op, x.shape(), mask.shape());
}

// g++ 12 -O2 makes vectors only of loops of a constant count whose pointers are parameters with restrict.
template <class T, class F>
HWY_INLINE void masked_block(const T* HWY_RESTRICT x, const std::uint8_t* HWY_RESTRICT mask, T* HWY_RESTRICT y, F f) {
  for (int i = 0; i < 16; ++i) y[i] = f(x[i], mask[i] != 0, y[i]);
}

// y = f(x, mask != 0, y) on every element; mask broadcast to x's shape, y not x
template <class T, class F> void map_masked(const Tensor& x, const Tensor& mask, const Tensor& y, const F& f) {
  const T* x0 = x.data<T>();
  const std::uint8_t* mask0 = mask.data<std::uint8_t>();
  T* y0 = y.mutable_data<T>();
  walk(x.shape(), {x.strides(), broadcast_strides(mask, x.shape()), y.strides()}, 1, [&](const Piece& piece) {
    const Index x_step = piece.step[0], mask_step = piece.step[1], y_step = piece.step[2];
    for (Index r = 0; r < piece.rows; ++r) {
      const T* from = x0 + piece.offset[0] + r * piece.row[0];
      const std::uint8_t* set = mask0 + piece.offset[1] + r * piece.row[1];
      T* to = y0 + piece.offset[2] + r * piece.row[2];
      Index c = 0;
      if (x_step == 1 && mask_step == 1 && y_step == 1)
        for (; c + 16 <= piece.n; c += 16) masked_block(from + c, set + c, to + c, f);
      for (; c < piece.n; ++c) to[c * y_step] = f(from[c * x_step], set[c * mask_step] != 0, to[c * y_step]);
    }
  });
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, double scale, const Tensor& positions) {
  check<ShapeError>(table.rank() == 2, "embedding: table needs 2 axes [ids, width]: table {}", table.shape());
  const Index n = table.size(1), period = ids.rank() ? ids.size(-1) : 1;
  if (positions.defined()) {
    check_same_dtype("embedding", "table", table, "positions", positions);
    check<ShapeError>(positions.shape() == Shape{period, n},
                      "embedding: positions do not fit: table {}, ids {}, positions {}, expected {}", table.shape(),
                      ids.shape(), positions.shape(), Shape{period, n});
  }
  const Tensor wide = checked_ids("embedding", "id", ids, table.size(0));
  Shape shape = ids.shape();
  shape.push_back(n);
  const Tensor from = with_dense_tail(table, 1), add = positions.defined() ? with_dense_tail(positions, 1) : positions;
  return visit_float(table.dtype(), "embedding", [&]<class T>() {
    Tensor y = empty(shape, table.dtype());
    const T* rows = from.data<T>();
    const T* plus = data_or_null<T>(add);
    T* out = y.mutable_data<T>();
    const auto kernel = kernels<T>().embed_rows;
    parallel_for(wide.numel(), row_grain(n), [&](Index begin, Index end) {
      kernel(rows, size_t(from.strides()[0]), wide.data<Index>(), size_t(begin), size_t(end), size_t(n), T(scale), plus,
             plus ? size_t(add.strides()[0]) : 0, size_t(period), out);
    });
    return y;
  });
}

void embedding_grad(const Tensor& ids, const Tensor& dy, double scale, Index padding_idx, Into dtable) {
  const Index rows = dtable.tensor.size(0), n = dtable.tensor.size(1);
  Shape expected = ids.shape();
  expected.push_back(n);
  check<ShapeError>(dy.shape() == expected, "embedding_grad: dy does not fit ids: dy {}, ids {}, dtable {}", dy.shape(),
                    ids.shape(), dtable.tensor.shape());
  check_same_dtype("embedding_grad", "dy", dy, "dtable", dtable.tensor);
  const Tensor wide = checked_ids("embedding_grad", "id", ids, rows), from = dy.contiguous();
  visit_float(dy.dtype(), "embedding_grad", [&]<class T>() {
    const Destination to(dtable);
    add_rows<T>(wide.span<Index>(), from.data<T>(), 0, n, 1, rows, n, scale, padding_idx, to.add(),
                to.tensor().mutable_data<T>());
    to.finish();
  });
}

Tensor index_select(const Tensor& x, int dim, const Tensor& ids) {
  const int axis = normalize_dim("index_select", dim, x.shape());
  check<ShapeError>(ids.rank() == 1, "index_select: ids need 1 axis: x {}, ids {}", x.shape(), ids.shape());
  const Tensor wide = checked_ids("index_select", "id", ids, x.shape()[axis]);
  const Index count = wide.numel();
  Tensor y = empty(with_size(x.shape(), axis, count), x.dtype());
  if (axis == x.rank() - 1) {
    Strides strides = y.shape();
    for (int i = 0; i < axis; ++i) strides[i] = 0;
    strides[axis] = 1;
    gather_into(x, axis, Tensor(wide.storage(), DType::i64, y.shape(), strides, wide.offset()), y);
    return y;
  }
  const Tensor from = with_dense_tail(x, axis + 1);
  Shape outer;
  Strides from_strides, to_strides;
  Index inner = Index(item_size(x.dtype()));
  const Index item = inner;
  for (int i = 0; i < axis; ++i) {
    outer.push_back(x.shape()[i]);
    from_strides.push_back(from.strides()[i] * item);
    to_strides.push_back(y.strides()[i] * item);
  }
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  outer.push_back(1);
  from_strides.push_back(0);
  to_strides.push_back(0);
  if (y.numel() == 0) return y;
  const std::byte* source = from.storage().data() + from.offset() * item;
  std::byte* target = y.storage().data();
  const Index* id = wide.data<Index>();
  const Index step = from.strides()[axis] * item, out_step = y.strides()[axis] * item;
  const Lines<2> lines(outer, axis, {from_strides, to_strides});
  parallel_for(lines.count() * count, row_grain(inner / 4 + 4), [&](Index begin, Index end) {
    for (Index first = begin; first < end;) {
      const Index line = first / count, last = std::min(end, (line + 1) * count);
      lines(line, line + 1, [&](const std::array<Index, 2>& at) {
        for (Index p = first - line * count; p < last - line * count; ++p)
          std::memcpy(target + at[1] + p * out_step, source + at[0] + id[p] * step, size_t(inner));
      });
      first = last;
    }
  });
  return y;
}

void index_select_grad(const Tensor& ids, const Tensor& dy, int dim, Into dx) {
  const int axis = normalize_dim("index_select_grad", dim, dx.tensor.shape());
  const Index rows = dx.tensor.shape()[axis];
  check_same_dtype("index_select_grad", "dy", dy, "dx", dx.tensor);
  check<ShapeError>(dy.shape() == with_size(dx.tensor.shape(), axis, ids.numel()),
                    "index_select_grad: dy does not fit: dy {}, dx {}, {} ids", dy.shape(), dx.tensor.shape(), ids.numel());
  const Tensor wide = checked_ids("index_select_grad", "id", ids, rows), from = dy.contiguous();
  Index outer = 1, n = 1;
  for (int i = 0; i < axis; ++i) outer *= dy.shape()[i];
  for (int i = axis + 1; i < dy.rank(); ++i) n *= dy.shape()[i];
  visit_float(dy.dtype(), "index_select_grad", [&]<class T>() {
    const Destination to(dx);
    add_rows<T>(wide.span<Index>(), from.data<T>(), wide.numel() * n, n, outer, rows, n, 1, -1, to.add(),
                to.tensor().mutable_data<T>());
    to.finish();
  });
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  const int axis = check_gather("gather", x, dim, index);
  const Tensor wide = checked_index("gather", index, x.shape()[axis]);
  Tensor y = empty(index.shape(), x.dtype());
  gather_into(x, axis, wide, y);
  return y;
}

void gather_grad(const Tensor& index, const Tensor& dy, int dim, Into dx) {
  if (index.rank() == 0 && dx.tensor.rank() == 0)
    return gather_grad(reshape(index, {1}), reshape(dy, {1}), dim, {reshape(dx.tensor, {1}), dx.add});
  const int axis = check_gather("gather_grad", dx.tensor, dim, index);
  check_same_dtype("gather_grad", "dy", dy, "dx", dx.tensor);
  check<ShapeError>(dy.shape() == index.shape(), "gather_grad: dy and index differ: dy {}, index {}", dy.shape(),
                    index.shape());
  const Tensor wide = checked_index("gather_grad", index, dx.tensor.shape()[axis]);
  visit_float(dy.dtype(), "gather_grad", [&]<class T>() {
    if (!dx.add) fill_(dx.tensor, 0);
    add_lines<T>(dx.tensor, axis, wide, dy);
  });
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const int axis = check_gather("scatter_add", x, dim, index);
  check_same_dtype("scatter_add", "x", x, "src", src);
  check<ShapeError>(src.shape() == index.shape(), "scatter_add: index and src differ: index {}, src {}", index.shape(),
                    src.shape());
  check<DTypeError>(x.dtype() != DType::bf16, "scatter_add: takes no {}", x.dtype());
  const Tensor wide = checked_index("scatter_add", index, x.shape()[axis]);
  Tensor y = x.clone();
  visit_any(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, BFloat16>) add_lines<T>(y, axis, wide, src);
  });
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_mask("masked_fill", x, mask);
  check_fits("masked_fill", value, x.dtype());
  Tensor y = empty(x.shape(), x.dtype());
  visit_any(x.dtype(), [&]<class T>() {
    const T filling = convert<T>(value);
    map_masked<T>(x, mask, y, [filling](T v, bool set, T) { return choose(set, filling, v); });
  });
  return y;
}

void masked_fill_grad(const Tensor& mask, const Tensor& dy, Into dx) {
  check_mask("masked_fill_grad", dy, mask);
  check_same_dtype("masked_fill_grad", "dy", dy, "dx", dx.tensor);
  check<ShapeError>(dy.shape() == dx.tensor.shape(), "masked_fill_grad: shapes differ: dy {}, dx {}", dy.shape(),
                    dx.tensor.shape());
  visit_float(dy.dtype(), "masked_fill_grad", [&]<class T>() {
    if (dx.add) map_masked<T>(dy, mask, dx.tensor, [](T v, bool set, T sum) { return sum + choose(set, T(0), v); });
    else map_masked<T>(dy, mask, dx.tensor, [](T v, bool set, T) { return T(0) + choose(set, T(0), v); });
  });
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check<DTypeError>(mask.dtype() == DType::u8, "masked_select: takes a mask of u8: {}", mask.dtype());
  check<ShapeError>(mask.shape() == x.shape(), "masked_select: shapes differ: x {}, mask {}", x.shape(), mask.shape());
  const Tensor flat = mask.contiguous(), from = x.contiguous();
  const std::uint8_t* set = flat.data<std::uint8_t>();
  Tensor y;
  visit_any(x.dtype(), [&]<class T>() {
    const T* values = from.data<T>();
    T* to = nullptr;
    compact(x.numel(), [set](Index i) { return set[i] != 0; },
            [&](Index count) { y = empty({count}, x.dtype()); to = y.mutable_data<T>(); },
            [&](Index place, Index begin, const std::uint16_t* rest, Index count) {
              for (Index k = 0; k < count; ++k) to[place + k] = values[begin + rest[k]];
            });
  });
  return y;
}

Tensor nonzero(const Tensor& x) {
  const Tensor flat = x.contiguous();
  const int rank = x.rank();
  Tensor y;
  visit_any(x.dtype(), [&]<class T>() {
    const T* values = flat.data<T>();
    Index* to = nullptr;
    compact(x.numel(),
            [values](Index i) {
              if constexpr (std::is_same_v<T, BFloat16>) return float(values[i]) != 0;
              else return values[i] != 0;
            },
            [&](Index count) { y = empty({count, rank}, DType::i64); to = y.mutable_data<Index>(); },
            [&](Index place, Index begin, const std::uint16_t* rest, Index count) {
              if (rank == 0) return;
              const Index n = x.shape()[rank - 1];
              Index first = begin / n * n;                        // of the row of the element
              Shape at = position_of(begin, x.shape());
              Index* out = to + place * rank;
              for (Index k = 0; k < count; ++k, out += rank) {
                const Index i = begin + rest[k];
                for (; i - first >= n; first += n)
                  for (int axis = rank - 2; axis >= 0 && ++at[axis] == x.shape()[axis]; --axis) at[axis] = 0;
                for (int axis = 0; axis < rank - 1; ++axis) out[axis] = at[axis];
                out[rank - 1] = i - first;
              }
            });
  });
  return y;
}

Tensor one_hot(const Tensor& ids, Index classes, DType dtype) {
  check<ShapeError>(classes >= 0, "one_hot: classes must not be negative: {}", classes);
  const Tensor wide = checked_ids("one_hot", "id", ids, classes);
  Shape shape = ids.shape();
  shape.push_back(classes);
  Tensor y = zeros(shape, dtype);
  visit_any(dtype, [&]<class T>() {
    T* to = y.mutable_data<T>();
    const T set = convert<T>(1);
    for (Index id : wide.span<Index>()) { to[id] = set; to += classes; }
  });
  return y;
}

}  // namespace heed
#endif
