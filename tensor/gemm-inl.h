// SPDX-License-Identifier: Apache-2.0
// Micro-kernel, packing and block loops of the matrix product, per target. Scratch comes from the caller.
//   tile    rows x (vectors of columns) of c in registers, all k of one block
//   strip   up to kRows rows of a
//   panel   width columns of b, packed k by k: [k][width]
#include <cstddef>
#include <utility>

#include "tensor/gemm.h"
#include "tensor/simd-inl.h"

#if defined(HEED_TENSOR_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_GEMM_INL_H_
#undef HEED_TENSOR_GEMM_INL_H_
#else
#define HEED_TENSOR_GEMM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Registers: rows * vectors accumulators, the vectors of b, one broadcast of a.
template <class T> struct Tile {
  using D = hn::ScalableTag<T>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
#if HWY_TARGET <= HWY_AVX3 || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)  // 32 registers
  static constexpr size_t kRows = 14, kWideRows = 6, kThinRows = 10, kParts = 4;
#else
  static constexpr size_t kRows = 6, kWideRows = 2, kThinRows = 6, kParts = 1;
#endif
  static constexpr size_t kWidest = 4 * kLanes;   // columns of a tile of at most kWideRows
};

// The k loop of one tile: acc[r][v] = a[r, k] * b[k, v] + acc[r][v], started at `from` or at zero. Rows of a are reached three
// to a pointer. Each step fetches one line at `ahead`.
template <class T, size_t kRows, size_t kVectors>
HWY_NOINLINE void TileKernel(Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, const T* from,
                             Index from_row, T* to, Index to_row, const T* ahead, Index ahead_k) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> acc[kRows][kVectors];
  // g++ 12 leaves these loops rolled and the accumulators in memory without the pragma
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      acc[r][v] = from ? hn::LoadU(d, from + Index(r) * from_row + v * kLanes) : hn::Zero(d);
      __builtin_prefetch(to + Index(r) * to_row + v * kLanes, 1);
    }
  const T* rows[(kRows + 2) / 3];
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) rows[r / 3] = a + Index(r) * a_row;
  for (Index k = 0; k < depth; ++k) {
    hn::Vec<D> bk[kVectors];
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) bk[v] = hn::LoadU(d, b + v * kLanes);
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_k;
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) {
      const auto ark = hn::Set(d, rows[r / 3][Index(r % 3) * a_row]);
      HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(ark, bk[v], acc[r][v]);
    }
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) rows[r / 3] += a_k;
    b += b_k;
  }
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, to + Index(r) * to_row + v * kLanes);
}

template <class T>
using TileFunction = void (*)(Index, const T*, Index, Index, const T*, Index, const T*, Index, T*, Index, const T*, Index);

template <class T, size_t kVectors, size_t... kRow> TileFunction<T> PickTile(Index rows, std::index_sequence<kRow...>) {
  static constexpr TileFunction<T> table[] = {&TileKernel<T, kRow + 1, kVectors>...};
  return table[rows - 1];
}

// 1, 2 or 4 vectors hold these columns.
template <class T> constexpr Index TileVectors(Index columns) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  return columns <= kLanes ? 1 : columns <= 2 * kLanes ? 2 : 4;
}

template <class T> TileFunction<T> TileOf(Index rows, Index vectors) {
  if (vectors == 1) return PickTile<T, 1>(rows, std::make_index_sequence<Tile<T>::kRows>());
  if (vectors == 2) return PickTile<T, 2>(rows, std::make_index_sequence<Tile<T>::kRows>());
  return PickTile<T, 4>(rows, std::make_index_sequence<Tile<T>::kWideRows>());
}

// The same for edges and columns apart, through a buffer.
template <class T>
HWY_NOINLINE void RaggedTile(Index rows, Index columns, Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k,
                             const T* from, Index from_row, Index from_column, T* to, Index to_row, Index to_column) {
  const Index vectors = TileVectors<T>(columns), width = vectors * Index(Tile<T>::kLanes);
  HWY_ALIGN T buffer[Tile<T>::kRows * Tile<T>::kWidest] = {};
  if (from)
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < width; ++j) buffer[r * width + j] = j < columns ? from[r * from_row + j * from_column] : T(0);
  TileOf<T>(rows, vectors)(depth, a, a_row, a_k, b, b_k, from ? buffer : nullptr, width, buffer, width, b, b_k);
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < columns; ++j) to[r * to_row + j * to_column] = buffer[r * width + j];
}

// ---- packing --------------------------------------------------------------------------------------------------------

// dst[j] = src[j], j < count. May write a whole vector at the end. `ahead` is where a later row lies: rows are too short for
// the hardware to run ahead of them.
template <class T> HWY_INLINE void CopyRow(const T* src, size_t count, Index ahead, T* dst) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = Tile<T>::kLanes;
  size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    __builtin_prefetch(src + ahead + Index(j));
    hn::StoreU(hn::LoadU(d, src + j), d, dst + j);
  }
#if HWY_TARGET <= HWY_AVX2
  if (j < count) hn::StoreU(hn::MaskedLoad(hn::FirstN(d, count - j), d, src + j), d, dst + j);
#else
  for (; j < count; ++j) dst[j] = src[j];
#endif
}

#if HWY_TARGET != HWY_SCALAR
// out[i] = column `at + i` of kLanes rows, which are given as one pointer for each kSide = 16 bytes of elements.
// Lane group g of part[q][i] takes row kSide g + i, so one transposition inside 128-bit groups leaves the columns in order.
// kParts * 16 bytes of each row are read at once: rows a power of two apart share their places in the L1 and lose a line soon.
template <class T, size_t kParts> HWY_INLINE void TransposeGroup(const T* const* rows, Index row, hn::Vec<hn::ScalableTag<T>>* out) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kSide = 16 / sizeof(T), kGroups = hn::MaxLanes(D()) / kSide;
  hn::Vec<D> part[kParts][kSide];
  HWY_UNROLL(16) for (size_t i = 0; i < kSide; ++i) {
    HWY_UNROLL(16) for (size_t q = 0; q < kParts; ++q) part[q][i] = hn::LoadDup128(d, rows[0] + Index(i) * row + q * kSide);
    HWY_UNROLL(16) for (size_t g = 1; g < kGroups; ++g)
      HWY_UNROLL(16) for (size_t q = 0; q < kParts; ++q)
        part[q][i] = hn::IfThenElse(hn::FirstN(d, g * kSide), part[q][i], hn::LoadDup128(d, rows[g] + Index(i) * row + q * kSide));
  }
  HWY_UNROLL(16) for (size_t q = 0; q < kParts; ++q, out += kSide) {
    if constexpr (sizeof(T) == 8) {
      out[0] = hn::InterleaveLower(d, part[q][0], part[q][1]);
      out[1] = hn::InterleaveUpper(d, part[q][0], part[q][1]);
    } else {
      const hn::Repartition<double, D> wide;
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, part[q][0], part[q][1]));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, part[q][2], part[q][3]));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, part[q][0], part[q][1]));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, part[q][2], part[q][3]));
      out[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
      out[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
      out[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
      out[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
    }
  }
}
#endif

// dst[k * width + j] = src[j * j_step + k],  k < depth, j < count
template <class T> void Transpose(const T* src, Index j_step, Index depth, Index count, Index width, T* dst) {
  Index j = 0;
#if HWY_TARGET != HWY_SCALAR
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kSide = 16 / sizeof(T), kGroups = hn::MaxLanes(D()) / kSide, kParts = Tile<T>::kParts;
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  for (; j + kLanes <= count; j += kLanes) {
    const T* rows[kGroups];
    HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) rows[g] = src + (j + Index(g * kSide)) * j_step;
    Index k = 0;
    for (; k + Index(kParts * kSide) <= depth; k += Index(kParts * kSide)) {
      hn::Vec<D> out[kParts * kSide];
      TransposeGroup<T, kParts>(rows, j_step, out);
      HWY_UNROLL(16) for (size_t i = 0; i < kParts * kSide; ++i) hn::StoreU(out[i], d, dst + (k + Index(i)) * width + j);
      HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) rows[g] += kParts * kSide;
    }
    for (; k < depth; ++k)
      for (Index l = j; l < j + kLanes; ++l) dst[k * width + l] = src[l * j_step + k];
  }
#endif
  for (; j < count; ++j)
    for (Index k = 0; k < depth; ++k) dst[k * width + j] = src[j * j_step + k];
}

// Panels of b, [columns / width][depth][width]; what a ragged last panel lacks is zero.
template <class T> void PackPanels(const T* b, Index b_k, Index b_column, Index depth, Index columns, Index width, T* dst) {
  const Index ragged = columns % width;
  if (ragged)
    for (Index k = 0; k < depth; ++k)
      for (Index j = ragged; j < width; ++j) dst[(columns - ragged) * depth + k * width + j] = 0;
  if (b_column == 1) {
    for (Index k = 0; k < depth; ++k)
      for (Index j = 0; j < columns; j += width)
        CopyRow(b + k * b_k + j, size_t(columns - j < width ? columns - j : width), 4 * b_k, dst + j * depth + k * width);
    return;
  }
  for (Index j = 0; j < columns; j += width) {
    const Index count = columns - j < width ? columns - j : width;
    const T* from = b + j * b_column;
    T* to = dst + j * depth;
    if (b_k == 1) {
      Transpose(from, b_column, depth, count, width, to);
    } else {
      for (Index k = 0; k < depth; ++k)
        for (Index l = 0; l < count; ++l) to[k * width + l] = from[k * b_k + l * b_column];
    }
  }
}

// m rows in strips of nearly equal height, at most `most`.
struct Strips {
  Index count, height, higher;   // the first `higher` strips have one row more
  Strips(Index m, Index most) : count((m + most - 1) / most), height(m / count), higher(m % count) {}
  Index start(Index s) const { return s * height + (s < higher ? s : higher); }
  Index rows(Index s) const { return height + (s < higher); }
};

// A block of a: its rows as rows, [m][plan.a_row], or where a lies by columns its strips, [strips][depth][whole vectors].
template <class T>
void PackStrips(const Product<T>& p, const GemmPlan& plan, const Strips& strips, Index depth, const T* a, T* dst) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  if (p.a_row == 1) {
    const Index pitch = (plan.rows + kLanes - 1) / kLanes * kLanes;
    for (Index k = 0; k < depth; ++k)
      for (Index s = 0; s < strips.count; ++s) {
        const Index first = strips.start(s), count = p.m - first < pitch ? p.m - first : pitch;
        CopyRow(a + k * p.a_k + first, size_t(count), 4 * p.a_k, dst + (s * depth + k) * pitch);
      }
  } else if (p.a_k == 1) {
    for (Index r = 0; r < p.m; ++r) CopyRow(a + r * p.a_row, size_t(depth), 4 * p.a_row, dst + r * plan.a_row);
  } else {
    for (Index r = 0; r < p.m; ++r)
      for (Index k = 0; k < depth; ++k) dst[r * plan.a_row + k] = a[r * p.a_row + k * p.a_k];
  }
}

// A panel of another kernel's making, for a few rows.
template <class T>
void MultiplyPanel(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row) {
  constexpr Index kLanes = Index(Tile<T>::kLanes), kDepth = 384;   // of a panel at a time: half of a small L1
  const Index vectors = width / kLanes;
  const Strips strips(rows, vectors == 4 ? Index(Tile<T>::kWideRows) : Index(Tile<T>::kRows));
  for (Index k = 0; k < depth; k += kDepth) {
    const Index some = depth - k < kDepth ? depth - k : kDepth;
    for (Index s = 0; s < strips.count; ++s) {
      const Index i = strips.start(s);
      T* const to = c + i * c_row;
      const T* const ahead = panel + depth * width + k * width + s * some * kLanes;   // the same part of the next panel
      TileOf<T>(strips.rows(s), vectors)(some, a + i * a_row + k, a_row, 1, panel + k * width, width, add || k ? to : nullptr, c_row, to, c_row, ahead,
                                         s < vectors ? kLanes : 0);
    }
  }
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// A block of a stands in L2, one panel of b in L1. Between blocks of k, and where c lies by columns, sums stand in scratch,
// tile after tile: rows of c that are a power of two apart would share their places in the caches.
template <class T>
void MultiplyBlock(const Product<T>& p, const GemmPlan& plan, const T* packed, Index packed_column, Index row, Index column,
                   T* scratch, Finish<T> finish) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  const Strips strips(p.m, plan.rows);
  const Index pitch = (plan.rows + kLanes - 1) / kLanes * kLanes;
  T* const sums = scratch + plan.sums;
  const bool by_columns = plan.pack_a && p.a_row == 1;
  const Index a_row = by_columns ? 1 : plan.pack_a ? plan.a_row : p.a_row, a_k = by_columns ? pitch : plan.pack_a ? 1 : p.a_k;
  if (plan.transposed && p.add)
    for (Index j = 0; j < p.n; j += plan.width)
      Transpose(p.c + j * p.c_column, p.c_column, p.m, p.n - j < plan.width ? p.n - j : plan.width, plan.width, sums + j * p.m);
  for (Index k = 0; k < p.k; k += plan.depth) {
    const Index depth = p.k - k < plan.depth ? p.k - k : plan.depth;
    const bool first = k == 0, last = k + depth == p.k;
    Index finished = 0;
    if (plan.pack_a) PackStrips(p, plan, strips, depth, p.a + k * p.a_k, scratch);
    for (Index begin = 0; begin < p.n; begin += plan.group) {
      const Index end = p.n - begin < plan.group ? p.n : begin + plan.group;
      const T* b = p.b + k * p.b_k + begin * p.b_column;
      Index line = 0;
      // a kernel reads 1, 2 or 4 whole vectors of b, so other columns cannot be read in place
      const Index over = (end - begin) % plan.width;
      const bool direct = !packed && plan.direct_b && (over == 0 || over == kLanes || over == 2 * kLanes);
      const Index panel_depth = packed && plan.whole_panels ? p.k : depth;
      if (packed) {
        b = packed + k * (plan.whole_panels ? plan.width : plan.packed_columns) + (packed_column + begin) * panel_depth;
      } else if (!direct) {
        PackPanels(b, p.b_k, p.b_column, depth, end - begin, plan.width, scratch + plan.panels);
        b = scratch + plan.panels;
      }
      for (Index j = begin; j < end; j += plan.width) {
        const T* panel = direct ? b + (j - begin) : b + (j - begin) * panel_depth;
        const Index b_k = direct ? p.b_k : plan.width, columns = end - j < plan.width ? end - j : plan.width;
        const Index vectors = TileVectors<T>(columns), width = vectors * kLanes;
        const bool from_sums = plan.transposed || !first, to_sums = plan.transposed || !last;
        const bool ragged = (!from_sums || !to_sums) && (columns != width || p.c_column != 1);
        // only scalars here: a wider load of narrow stores would wait until the last tile has reached the cache
        for (Index s = 0; s < strips.count; ++s) {
          const Index i = strips.start(s), rows = strips.rows(s);
          const T* strip = p.a + i * p.a_row + k * p.a_k;
          if (plan.pack_a) strip = scratch + (by_columns ? s * depth * pitch : i * plan.a_row);
          T* const sum = sums + j * p.m + i * plan.width;
          T* const c = p.c + i * p.c_row + j * p.c_column;
          const T* const from = first && !p.add ? nullptr : from_sums ? sum : c;
          const Index from_row = from_sums ? plan.width : p.c_row, to_row = to_sums ? plan.width : p.c_row;
          // fetch ahead, one line a step: the next strip where rows lie one after another, rows of b further down, the next panel, or
          // the columns that will be packed next
          const T* ahead = panel;
          Index ahead_k = 0;
          if (j == 0 && s > 0 && s + 1 < strips.count && !plan.pack_a && p.a_k == 1 && p.a_row == depth)
            ahead = strip + rows * p.a_row, ahead_k = kLanes;
          else if (direct) ahead = panel + 8 * b_k, ahead_k = b_k;
          else if (packed && s < 2) ahead = panel + (2 * panel_depth + s * depth) * kLanes, ahead_k = kLanes;
          else if (!packed && end < p.n)
            ahead = p.b + k * p.b_k + end * p.b_column + line++ * kLanes, ahead_k = p.b_column == 1 ? p.b_k : p.b_column;
          if (ragged)
            RaggedTile<T>(rows, columns, depth, strip, a_row, a_k, panel, b_k, from, from_row, from_sums ? 1 : p.c_column,
                          to_sums ? sum : c, to_row, to_sums ? 1 : p.c_column);
          else
            TileOf<T>(rows, vectors)(depth, strip, a_row, a_k, panel, b_k, from, from_row, to_sums ? sum : c, to_row, ahead,
                                     ahead_k);
        }
      }
      if (finish.run && !plan.transposed && last && (end == p.n || (column + end) % Finish<T>::kFinishColumns == 0)) {
        finish.run(finish.self, row, p.m, column + finished, end - finished);
        finished = end;
      }
    }
  }
  if (plan.transposed) {
    for (Index j = 0; j < p.n; j += plan.width)
      Transpose(sums + j * p.m, plan.width, p.n - j < plan.width ? p.n - j : plan.width, p.m, p.c_column, p.c + j * p.c_column);
    if (finish.run) finish.run(finish.self, column, p.n, row, p.m);
  }
}

// ---- thin products --------------------------------------------------------------------------------------------------

#if HWY_TARGET != HWY_SCALAR
// One vector of columns: w [columns, depth] is turned in registers, each of its elements read once.
template <class T, size_t kRows> HWY_NOINLINE void ThinColumns(const Product<T>& p, Index column) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D()), kSide = 16 / sizeof(T), kGroups = kLanes / kSide, kParts = Tile<T>::kParts;
  constexpr Index kStep = Index(kParts * kSide);
  const T* const b = p.b + column * p.b_column;
  T* const c = p.c + column;
  const T* rows[kGroups];
  HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) rows[g] = b + Index(g * kSide) * p.b_column;
  hn::Vec<D> acc[kRows];
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) acc[r] = p.add ? hn::LoadU(d, c + Index(r) * p.c_row) : hn::Zero(d);
  Index k = 0;
  for (; k + kStep <= p.k; k += kStep) {
    hn::Vec<D> w[kParts * kSide];
    TransposeGroup<T, kParts>(rows, p.b_column, w);
    HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) rows[g] += kStep;
    HWY_UNROLL(16) for (size_t i = 0; i < kParts * kSide; ++i)
      HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
        acc[r] = hn::MulAdd(hn::Set(d, p.a[Index(r) * p.a_row + k + Index(i)]), w[i], acc[r]);
  }
  for (; k < p.k; ++k) {
    HWY_ALIGN T bk[kLanes];
    for (size_t j = 0; j < kLanes; ++j) bk[j] = b[Index(j) * p.b_column + k];
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
      acc[r] = hn::MulAdd(hn::Set(d, p.a[Index(r) * p.a_row + k]), hn::Load(d, bk), acc[r]);
  }
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) hn::StoreU(acc[r], d, c + Index(r) * p.c_row);
}

template <class T, size_t... kRow> void PickThin(const Product<T>& p, std::index_sequence<kRow...>) {
  static constexpr void (*table[])(const Product<T>&, Index) = {&ThinColumns<T, kRow + 1>...};
  for (Index j = 0; j < p.n; j += Index(Tile<T>::kLanes)) table[p.m - 1](p, j);
}

template <class T> void MultiplyThin(const Product<T>& p) { PickThin(p, std::make_index_sequence<Tile<T>::kThinRows>()); }
#endif

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
