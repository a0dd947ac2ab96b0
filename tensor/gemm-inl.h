// SPDX-License-Identifier: Apache-2.0
// Micro-kernel, packing and block loops of the matrix product, per target. Scratch comes from the caller.
//   tile    rows x (vectors of columns) of c in registers, all k of one block
//   strip   the rows of a tile
//   panel   width columns of b, packed k by k: [k][width]
#include <cstddef>
#include <utility>

#include "tensor/gemm.h"
#include "tensor/simd-inl.h"
#include "tensor/transpose-inl.h"

#if defined(HEED_TENSOR_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_GEMM_INL_H_
#undef HEED_TENSOR_GEMM_INL_H_
#else
#define HEED_TENSOR_GEMM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Registers: rows * vectors accumulators, the vectors of b, one broadcast of a. Rows of most products: 8 x 3 vectors reads least for
// its multiply-adds, and 8 rows that share their places in the L1 still fit its ways.
template <class T> struct Tile {
  using D = hn::ScalableTag<T>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
#if HWY_TARGET <= HWY_AVX3 || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)  // 32 registers
  static constexpr size_t kRows[5] = {0, 14, 14, 8, 6}, kVectors = 3, kThinRows = 10, kPairedRows = 0, kNear = 1024;   // kRows: most, by vectors
  static constexpr size_t kParts = 64 / sizeof(T) / RowPart<T>::kSize;   // of the rows of b that are turned: a line
#else
  static constexpr size_t kRows[5] = {0, 6, 6, 4, 2}, kVectors = 2, kThinRows = 6, kPairedRows = 3, kNear = 128, kParts = 1;
#endif
  static constexpr size_t kReach = kParts * RowPart<T>::kSize;   // elements of a row that are turned at once
  static constexpr size_t kWidest = 4 * kLanes;
  static constexpr bool kPairs = kVectors == 2;   // four vectors of few rows may be two panels
};

template <class T> HWY_INLINE const T* Beyond(const T* x, Index bytes) { return reinterpret_cast<const T*>(reinterpret_cast<const char*>(x) + bytes); }

// What moves on from k to k by a stride that is known here, a panel's or a packed strip's: an address holds any number of them.
template <class T, Index kStride> struct Packed {
  Packed(const T* start, Index = 0, Index = 0) : x(start) {}
  HWY_INLINE const T* After(size_t steps) const { return x + Index(steps) * kStride; }
  HWY_INLINE T At(size_t r, size_t steps) const { return After(steps)[r]; }
  HWY_INLINE void Step() { asm("" : "+r"(x)); }
  HWY_INLINE void Advance(size_t steps) { x += Index(steps) * kStride; }

  const T* x;
};

// By any other. Where registers are few, vectors short and so instructions many, an address holds one, two or three strides without an
// addition; elsewhere each step adds one. Step hides the values, else g++ 12 keeps sums of them for each step, in memory.
template <class T> struct Walk {
  static constexpr bool kTogether = Tile<T>::kVectors == 2;
  static constexpr size_t kEach = 1;
  Walk(const T* start, Index stride) : x(start), one(stride * Index(sizeof(T))), three(3 * one) {}
  HWY_INLINE const T* After(size_t steps) const { return !kTogether ? x : Beyond(x, steps == 3 ? three : Index(steps) * one); }
  HWY_INLINE T At(size_t r, size_t steps) const { return After(steps)[r]; }
  HWY_INLINE void Step() {
    if constexpr (kTogether) {
      asm("" : "+r"(x), "+r"(one), "+r"(three));
    } else {
      x = Beyond(x, one);
      asm("" : "+r"(x));
    }
  }
  HWY_INLINE void Advance(size_t steps) {
    if constexpr (kTogether) x = Beyond(x, Index(steps) * one);
  }

  const T* x;
  Index one, three;   // bytes
};

// Rows of a that lie in memory order.
template <class T, size_t kRows> struct TileRows {
  TileRows(const T* a, Index a_row, Index a_k) : row(a_row * Index(sizeof(T))), k(a_k) {
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) x[r / 3] = a + Index(r) * a_row;
  }
  HWY_INLINE T At(size_t r, size_t steps) const { return Beyond(x[r / 3], Index(r % 3) * row)[Index(steps) * k]; }
  HWY_INLINE void Step() {
    if constexpr (!Walk<T>::kTogether) return;
    asm("" : "+r"(row));
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) asm("" : "+r"(x[r / 3]));
  }
  HWY_INLINE void Advance(size_t steps) {
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) x[r / 3] += Index(steps) * k;
    if constexpr (!Walk<T>::kTogether) asm("" : "+r"(row));
  }

  const T* x[(kRows + 2) / 3];
  Index row, k;       // bytes, elements
};

// What is fetched where four steps lie in a line.
template <class T> struct Fourth {
  static constexpr size_t kEach = 4;
  HWY_INLINE const T* After(size_t steps) const { return Beyond(x, Index(steps) * one); }
  HWY_INLINE void Step() { asm("" : "+r"(x)); }
  HWY_INLINE void Advance(size_t steps) { x = Beyond(x, Index(steps) * one); }

  const T* x;
  Index one;   // bytes
};

// So many steps of k: acc[r][v] = a[r, k] * b[k, v] + acc[r][v]. Each, or every fourth, fetches a line at `ahead`. Of four vectors in pairs
// the second two lie `half` elements behind the first. All that is no multiply-add takes the place of one where two threads share a core.
template <size_t kSteps, class T, size_t kRows, size_t kVectors, class A, class B, class V, class F>
HWY_INLINE void TileSteps(V (&acc)[kRows][kVectors], A& a, B& b, Index half, F& ahead) {
  const hn::ScalableTag<T> d;
  constexpr bool kPair = Tile<T>::kPairs && kVectors == 4;
  HWY_UNROLL(16) for (size_t k = 0; k < kSteps; ++k) {
    V bk[kVectors];
    const T* const from = b.After(k);
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) bk[v] = hn::LoadU(d, kPair && v >= 2 ? from + half + (v - 2) * Tile<T>::kLanes : from + v * Tile<T>::kLanes);
    if (k % F::kEach == 0) {
      __builtin_prefetch(ahead.After(k), 0, 2);
      if (kPair) __builtin_prefetch(ahead.After(k) + half, 0, 2);
    }
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) {
      const auto ark = hn::Set(d, a.At(r, k));
      HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) MulAddTo(ark, bk[v], acc[r][v]);
    }
    a.Step(), b.Step(), ahead.Step();
  }
  a.Advance(kSteps), b.Advance(kSteps), ahead.Advance(kSteps);
}

// Sums begin at `from` or at zero, and end plus bias if any. g++ 12 leaves these loops rolled and the sums in memory without the pragma.
template <class T, size_t kRows, size_t kVectors, class V>
HWY_INLINE void BeginTile(V (&acc)[kRows][kVectors], const T* from, Index from_row, const T* to, Index to_row) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = Tile<T>::kLanes;
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      acc[r][v] = from ? hn::LoadU(d, from + Index(r) * from_row + v * kLanes) : hn::Zero(d);
      if (from) __builtin_prefetch(from + Index(r) * from_row + (v + kVectors) * kLanes, 0, 2);
      else __builtin_prefetch(to + Index(r) * to_row + v * kLanes, 0, 2);
    }
}
template <class T, size_t kRows, size_t kVectors, class V>
HWY_INLINE void EndTile(V (&acc)[kRows][kVectors], const T* bias, T* to, Index to_row) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = Tile<T>::kLanes;
  if (bias)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      const auto bias_v = hn::LoadU(d, bias + v * kLanes);
      HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) acc[r][v] = hn::Add(acc[r][v], bias_v);
    }
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, to + Index(r) * to_row + v * kLanes);
}

// One tile, all k of one block. Where rows or columns of a lie in memory order four steps share the additions of addresses.
template <class T, size_t kRows, size_t kVectors>
HWY_NOINLINE void TileKernel(Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, Index half, const T* from,
                             Index from_row, const T* bias, T* to, Index to_row, const T* ahead, Index ahead_k) {
  hn::Vec<hn::ScalableTag<T>> acc[kRows][kVectors];
  BeginTile(acc, from, from_row, to, to_row);
  Walk<T> right(b, b_k), fetched(ahead, ahead_k);
  Index fours = a_k == 1 || a_row == 1 ? depth / 4 : 0;
  const Index done = 4 * fours;
  if (a_k == 1) {
    TileRows<T, kRows> rows(a, a_row, 1);
    for (; fours > 0; --fours) TileSteps<4, T>(acc, rows, right, half, fetched);
  } else if (a_row == 1) {
    Walk<T> columns(a, a_k);
    for (; fours > 0; --fours) TileSteps<4, T>(acc, columns, right, half, fetched);
  }
  TileRows<T, kRows> rest(a + done * a_k, a_row, a_k);
  for (Index left = depth - done; left > 0; --left) TileSteps<1, T>(acc, rest, right, half, fetched);
  EndTile(acc, bias, to, to_row);
}

// The same for many rows: of a panel, and of a strip that is packed or lies in place, eight steps at a time.
template <class T, size_t kRows, bool kStrip>
HWY_NOINLINE void PanelKernel(Index depth, const T* a, Index a_row, const T* b, const T* from, Index from_row, const T* bias, T* to, Index to_row,
                              const T* ahead, Index ahead_k) {
  constexpr size_t kVectors = Tile<T>::kVectors;
  hn::Vec<hn::ScalableTag<T>> acc[kRows][kVectors];
  BeginTile(acc, from, from_row, to, to_row);
  Packed<T, Index(kVectors * Tile<T>::kLanes)> panel{b};
  Fourth<T> fetched{ahead, ahead_k * Index(sizeof(T))};
  std::conditional_t<kStrip, Packed<T, Index(kRows)>, TileRows<T, kRows>> left(a, a_row, 1);
  for (; depth >= 8; depth -= 8) TileSteps<8, T>(acc, left, panel, 0, fetched);
  for (; depth > 0; --depth) TileSteps<1, T>(acc, left, panel, 0, fetched);
  EndTile(acc, bias, to, to_row);
}

template <class T>
using TileFunction = void (*)(Index, const T*, Index, Index, const T*, Index, Index, const T*, Index, const T*, T*, Index, const T*, Index);
template <class T> using PanelFunction = void (*)(Index, const T*, Index, const T*, const T*, Index, const T*, T*, Index, const T*, Index);

template <class T, size_t kVectors, size_t... kRow> TileFunction<T> PickTile(Index rows, std::index_sequence<kRow...>) {
  static constexpr TileFunction<T> table[] = {&TileKernel<T, kRow + 1, kVectors>...};
  return table[rows - 1];
}

// Vectors that hold these columns, at most 4.
template <class T> constexpr Index TileVectors(Index columns) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  return (columns + kLanes - 1) / kLanes;
}

template <class T> PanelFunction<T> PanelOf(Index rows, bool strip) {
  constexpr size_t kRows = Tile<T>::kRows[Tile<T>::kVectors];
  if (strip) return rows == Index(kRows) ? &PanelKernel<T, kRows, true> : &PanelKernel<T, kRows - 1, true>;
  return rows == Index(kRows) ? &PanelKernel<T, kRows, false> : &PanelKernel<T, kRows - 1, false>;
}

template <class T> TileFunction<T> TileOf(Index rows, Index vectors) {
  if (vectors == 1) return PickTile<T, 1>(rows, std::make_index_sequence<Tile<T>::kRows[1]>());
  if (vectors == 2) return PickTile<T, 2>(rows, std::make_index_sequence<Tile<T>::kRows[2]>());
  if (vectors == 3) return PickTile<T, 3>(rows, std::make_index_sequence<Tile<T>::kRows[3]>());
  return PickTile<T, 4>(rows, std::make_index_sequence<Tile<T>::kRows[4]>());
}

// By the kernel that fits.
template <class T>
HWY_INLINE void MultiplyTile(Index rows, Index vectors, Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, Index half, const T* from,
                             Index from_row, const T* bias, T* to, Index to_row, const T* ahead, Index ahead_k) {
  constexpr Index kMost = Index(Tile<T>::kRows[Tile<T>::kVectors]), kWidth = Index(Tile<T>::kVectors * Tile<T>::kLanes), kLine = Index(64 / sizeof(T));
  const bool strip = a_row == 1 && a_k == rows;
  if (rows >= kMost - 1 && vectors == Index(Tile<T>::kVectors) && b_k == kWidth && (strip || a_k == 1) && 4 * ahead_k <= kLine)
    return PanelOf<T>(rows, strip)(depth, a, a_row, b, from, from_row, bias, to, to_row, ahead, ahead_k);
  TileOf<T>(rows, vectors)(depth, a, a_row, a_k, b, b_k, half, from, from_row, bias, to, to_row, ahead, ahead_k);
}

// The same for edges and columns apart, through a buffer.
template <class T>
HWY_NOINLINE void RaggedTile(Index rows, Index columns, Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k,
                             const T* from, Index from_row, Index from_column, const T* bias, T* to, Index to_row, Index to_column) {
  const Index vectors = TileVectors<T>(columns), width = vectors * Index(Tile<T>::kLanes);
  HWY_ALIGN T buffer[Tile<T>::kRows[1] * Tile<T>::kWidest];
  HWY_ALIGN T whole_bias[Tile<T>::kWidest];
  for (Index j = 0; bias && j < width; ++j) whole_bias[j] = j < columns ? bias[j] : T(0);
  const hn::ScalableTag<T> d;
  // copy(r, j, left): a vector of row r from column j on, `left` columns before the edge
  const auto each = [&](auto copy) HWY_ATTR {
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < columns; j += Index(Tile<T>::kLanes)) copy(r, j, size_t(columns - j));
  };
  if (from && from_column == 1)
    each([&](Index r, Index j, size_t left) HWY_ATTR { hn::StoreU(LoadFirst(d, from + r * from_row + j, left), d, buffer + r * width + j); });
  else if (from)
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < width; ++j) buffer[r * width + j] = j < columns ? from[r * from_row + j * from_column] : T(0);
  TileOf<T>(rows, vectors)(depth, a, a_row, a_k, b, b_k, width / 2, from ? buffer : nullptr, width, bias ? whole_bias : nullptr, buffer, width, b, b_k);
  if (to_column == 1)
    return each([&](Index r, Index j, size_t left) HWY_ATTR { StoreFirst(hn::LoadU(d, buffer + r * width + j), d, to + r * to_row + j, left); });
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < columns; ++j) to[r * to_row + j * to_column] = buffer[r * width + j];
}

// ---- packing --------------------------------------------------------------------------------------------------------

// dst[j] = src[j], j < count. From AVX2 on the last vector is written whole, zeros behind. `ahead` is where a later row lies: rows are
// too short for the hardware to run ahead of them.
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

// dst[k * width + j] = src[j * j_step + k],  k < depth, j < count
template <class T> void Transpose(const T* src, Index j_step, Index depth, Index count, Index width, T* dst) {
  Index j = 0;
#if HWY_TARGET != HWY_SCALAR
  const Lanes16<T> d;
  constexpr Index kLanes = Index(Tile<T>::kLanes), kReach = Index(Tile<T>::kReach);
  for (; j + kLanes <= count; j += kLanes) {
    const T* from = src + j * j_step;
    const auto row = [&](size_t i) { return from + Index(i) * j_step; };
    // The next kLanes rows are fetched one after the other, as memory is read fastest.
    const T* ahead = src + (j + kLanes) * j_step;
    Index ahead_k = 0, k = 0;
    for (; k + kReach <= depth; k += kReach, from += kReach) {
      HWY_UNROLL(16) for (Index i = 0; i < kLanes * kReach * Index(sizeof(T)); i += 64) __builtin_prefetch(ahead + ahead_k + i / Index(sizeof(T)), 0, 2);
      if ((ahead_k += kLanes * kReach) >= depth) ahead_k = 0, ahead += j_step;
      hn::Vec<Lanes16<T>> out[kReach];
      LoadColumns<Tile<T>::kParts, T>(row, size_t(kReach), out);
      HWY_UNROLL(16) for (Index i = 0; i < kReach; ++i) hn::StoreU(out[i], d, dst + (k + i) * width + j);
    }
    if (k == depth) continue;
    hn::Vec<Lanes16<T>> rest[kReach];
    LoadColumns<Tile<T>::kParts, T>(row, size_t(depth - k), rest);
    for (Index i = 0; k < depth; ++k, ++i) hn::StoreU(rest[i], d, dst + k * width + j);
  }
#endif
  for (; j < count; ++j)
    for (Index k = 0; k < depth; ++k) dst[k * width + j] = src[j * j_step + k];
}

// Panels of b, [columns / width][depth][width]; what a ragged last panel lacks is zero.
template <class T> void PackPanels(const T* b, Index b_k, Index b_column, Index depth, Index columns, Index width, T* dst) {
  const Index ragged = columns % width;
  const Index copied = b_column == 1 && HWY_TARGET <= HWY_AVX2 ? TileVectors<T>(ragged) * Index(Tile<T>::kLanes) : ragged;   // and zeros behind
  if (ragged && copied < width)
    for (Index k = 0; k < depth; ++k)
      for (Index j = copied; j < width; ++j) dst[(columns - ragged) * depth + k * width + j] = 0;
  if (b_column == 1) {
    for (Index k = 0; k < depth; ++k)
      for (Index j = 0; j < columns; j += width)
        CopyRow(b + k * b_k + j, size_t(columns - j < width ? columns - j : width), 16 * b_k, dst + j * depth + k * width);
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

// A block of a by columns, [m / rows][depth][rows], a line between strips. Whole vectors write beyond their row; the next k comes after.
template <class T> void PackStrips(const Product<T>& p, const GemmPlan& plan, Index depth, const T* a, T* dst) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  const hn::ScalableTag<T> d;
  const Index m = p.m, rows = plan.rows, reach = (rows + kLanes - 1) / kLanes * kLanes, strip = plan.strip(depth), ahead = 16 * p.a_k;
  const auto fetch = [m](const T* row) {
    for (Index j = 0; j < m; j += Index(64 / sizeof(T))) __builtin_prefetch(row + j);
  };
  Index k = 0;
#if HWY_TARGET != HWY_SCALAR
  // two rows of k and two strips at once where these fill a vector
  if (p.a_row == 1 && 2 * rows == kLanes)
    for (; k + 2 <= depth; k += 2, a += 2 * p.a_k) {
      T* to = dst + k * rows;
      const T* const next = a + p.a_k;
      fetch(a + ahead);
      fetch(next + ahead);
      Index i = 0;
      for (; i + kLanes <= m; i += kLanes, to += 2 * strip) {
        const auto first = hn::LoadU(d, a + i), second = hn::LoadU(d, next + i);
        hn::StoreU(hn::ConcatLowerLower(d, second, first), d, to);
        hn::StoreU(hn::ConcatUpperUpper(d, second, first), d, to + strip);
      }
      for (; i < m; i += rows, to += strip)
        for (Index r = 0; r < rows && i + r < m; ++r) to[r] = a[i + r], to[rows + r] = next[i + r];
    }
#endif
  for (; k < depth; ++k, a += p.a_k) {
    T* to = dst + k * rows;
    Index i = 0;
    if (p.a_row == 1) {
      fetch(a + ahead);
      for (; i + reach <= m; i += rows, to += strip)
        for (Index j = 0; j < rows; j += kLanes) hn::StoreU(hn::LoadU(d, a + i + j), d, to + j);
      for (; i < m; i += rows, to += strip) CopyRow(a + i, size_t(m - i < rows ? m - i : rows), ahead, to);
    }
    for (; i < m; i += rows, to += strip)
      for (Index r = 0; r < rows && i + r < m; ++r) to[r] = a[(i + r) * p.a_row];
  }
}

// While a panel meets its strips the next one is fetched, evenly: a burst would fill what a core can have on its way. The elements
// that go with one strip, and those from step to step, at most a line.
template <class T> Index AheadPart(Index width, Index depth, Index strips, Index& step) {
  constexpr Index kLine = Index(64 / sizeof(T));
  step = strips > width ? 1 : width / strips < kLine ? width / strips : kLine;
  return width * depth / strips;
}

// A panel of another kernel's making, for a few rows.
template <class T>
void MultiplyPanel(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row) {
  constexpr Index kLanes = Index(Tile<T>::kLanes), kDepth = 384;   // of a panel at a time: half of a small L1
  const Index vectors = width / kLanes, most = Index(Tile<T>::kRows[vectors]), strips = (rows + most - 1) / most;
  for (Index k = 0; k < depth; k += kDepth) {
    const Index some = depth - k < kDepth ? depth - k : kDepth;
    Index ahead_k;
    const Index part = AheadPart<T>(width, some, strips, ahead_k);
    const T* ahead = panel + (depth + k) * width;
    for (Index s = 0; s < strips; ++s, ahead += part) {
      const Index i = rows * s / strips;
      T* const to = c + i * c_row;
      MultiplyTile<T>(rows * (s + 1) / strips - i, vectors, some, a + i * a_row + k, a_row, 1, panel + k * width, width, width / 2,
                      add || k ? to : nullptr, c_row, nullptr, to, c_row, ahead, ahead_k);
    }
  }
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Of n columns from `column` on, so many may be finished once j have been made: up to a multiple of kFinishColumns, or all.
template <class T> Index FinishedBefore(Index column, Index j, Index n) {
  const Index aligned = (column + j) / Finish<T>::kFinishColumns * Finish<T>::kFinishColumns - column;
  return j == n ? n : aligned < 0 ? 0 : aligned;
}

// A product in one thread. A group of panels stands in L2, one strip of a in L1. Between blocks of k, and where c lies by columns, sums
// stand in scratch, tile after tile.
template <class T> struct BlockProduct {
  static constexpr Index kLanes = Index(Tile<T>::kLanes), kLine = Index(64 / sizeof(T));
  const Product<T>& p;
  const GemmPlan& plan;
  const T* packed;
  Index packed_column, row, column;   // row, column: where p lies in the whole
  T* scratch;
  const Finish<T>& finish;
  T* sums = scratch + plan.sums;
  Index strips = (p.m + plan.rows - 1) / plan.rows;
  // of the block of k
  Index k = 0, depth = 0, share = 0, rows_left = 0;
  bool first = false, last = false, from_sums = false, to_sums = false;
  const T *bias = nullptr, *next_a = nullptr;

  void Run() {
    if (plan.transposed && p.add)
      for (Index j = 0; j < p.n; j += plan.width)
        Transpose(p.c + j * p.c_column, p.c_column, p.m, Width(j, p.n, plan.width), plan.width, sums + j * p.m);
    for (k = 0; k < p.k; k += plan.depth) {
      BeginDepth();
      for (Index begin = 0; begin < p.n; begin += plan.group) {
        Group group = GroupFrom(begin);
        for (Index s = 0; s < strips; ++s) MultiplyStrip(group, s);
      }
    }
    if (!plan.transposed) return;
    for (Index j = 0; j < p.n; j += plan.width)
      Transpose(sums + j * p.m, plan.width, Width(j, p.n, plan.width), p.m, p.c_column, p.c + j * p.c_column);
    finish(p.c, p.c_column, column, p.n, row, p.m);
  }

  // Panels that meet all strips one after the other.
  struct Group {
    Index begin, end;         // columns
    bool direct;              // b is read in place
    Index panel_depth, b_k;
    const T* b;
    Index tiles;              // made so far
    const T* next;            // panel of the next group that is fetched
    Index next_part, next_k;  // of it, while a tile is made
    Index parts;              // so far
  };

  static Index Width(Index from, Index end, Index most) { return end - from < most ? end - from : most; }
  // Where a strip begins; where none is packed all are of like height: a low one would wait for its own sums.
  Index RowOf(Index s) const { return !plan.pack_a ? p.m * s / strips : s < strips ? s * plan.rows : p.m; }

  void BeginDepth() {
    depth = Width(k, p.k, plan.depth);
    first = k == 0, last = k + depth == p.k, from_sums = plan.transposed || !first, to_sums = plan.transposed || !last;
    bias = last && !plan.transposed && finish.bias ? finish.bias + column : nullptr;
    rows_left = 0;
    if (!plan.pack_a) return;
    PackStrips(p, plan, depth, p.a + k * p.a_k, scratch);
    if (p.a_row != 1) return;
    // while tiles are made a is fetched that is packed next, so many rows of k a tile: of the next block of k, or the columns behind
    next_a = p.a + (last ? p.m * p.a_row : (k + depth) * p.a_k);
    const Index tiles = strips * ((p.n + plan.width - 1) / plan.width);
    share = (depth + tiles - 1) / tiles;
    rows_left = depth;
  }

  Group GroupFrom(Index begin) const {
    Group g{begin, begin + Width(begin, p.n, plan.group), false, depth, plan.width, p.b + k * p.b_k + begin * p.b_column, 0, nullptr, 0, 0, 0};
    if (packed) {
      if (plan.whole_panels) g.panel_depth = p.k;
      g.b = packed + k * (plan.whole_panels ? plan.width : plan.packed_columns) + (packed_column + begin) * g.panel_depth;
      g.next = g.b + (g.end - begin) * g.panel_depth;
      g.next_part = AheadPart<T>(plan.width, depth, strips, g.next_k);
    } else if (plan.direct_b && (g.end - begin) % kLanes == 0) {   // a kernel reads whole vectors of b
      g.direct = true, g.b_k = p.b_k;
    } else {
      PackPanels(g.b, p.b_k, p.b_column, depth, g.end - begin, plan.width, scratch + plan.panels);
      g.b = scratch + plan.panels;
    }
    return g;
  }

  // Only scalars in this loop: a wider load of narrow stores would wait until the last tile has reached the cache.
  void MultiplyStrip(Group& g, Index s) {
    const Index a_row = plan.pack_a ? 1 : p.a_row, a_k = plan.pack_a ? plan.rows : p.a_k, i = RowOf(s), rows = RowOf(s + 1) - i;
    const T* const strip = plan.pack_a ? scratch + s * plan.strip(depth) : p.a + i * p.a_row + k * p.a_k;
    for (Index j = g.begin, step; j < g.end; j += step, ++g.tiles) {
      const T* const panel = g.direct ? g.b + (j - g.begin) : g.b + (j - g.begin) * g.panel_depth;
      // two panels packed before, for rows that would wait for their own sums
      const bool pair = packed && Tile<T>::kPairs && p.m <= Index(Tile<T>::kRows[4]) && g.end - j >= 2 * plan.width && depth == p.k && p.c_column == 1;
      step = pair ? 2 * plan.width : plan.width;
      const Index columns = Width(j, g.end, step), vectors = TileVectors<T>(columns), width = vectors * kLanes;
      T* const sum = sums + j * p.m + i * plan.width;
      T* const c = p.c + i * p.c_row + j * p.c_column;
      const T* const from = first && !p.add ? nullptr : from_sums ? sum : c;
      T* const to = to_sums ? sum : c;
      const Index from_row = from_sums ? plan.width : p.c_row, to_row = to_sums ? plan.width : p.c_row;
      Index ahead_k = 0;
      const T* const ahead = AheadOf(g, s, j, strip + rows * p.a_row, panel, c + rows * p.n, ahead_k);
      if (packed && ++g.parts == strips) g.next += plan.width * g.panel_depth, g.parts = 0;
      FetchShareOfA();
      if ((!from_sums || !to_sums) && (columns != width || p.c_column != 1))
        RaggedTile<T>(rows, columns, depth, strip, a_row, a_k, panel, g.b_k, from, from_row, from_sums ? 1 : p.c_column, bias ? bias + j : nullptr, to,
                      to_row, to_sums ? 1 : p.c_column);
      else
        MultiplyTile(rows, vectors, depth, strip, a_row, a_k, panel, g.b_k, pair ? plan.width * g.panel_depth : width / 2, from, from_row,
                     bias ? bias + j : nullptr, to, to_row, ahead, ahead_k);
    }
    if (finish.run && last && !plan.transposed) {
      const Index from = FinishedBefore<T>(column, g.begin, p.n), to = FinishedBefore<T>(column, g.end, p.n);
      if (from < to) finish.run(finish.self, row + i, rows, column + from, to - from);
    }
  }

  // What a tile fetches, one line a step: the next strip where its rows follow one another, rows of b further down, the columns that will
  // be packed next, the first strip's own panel further down, the next strip's part of c, or the next group's panels.
  const T* AheadOf(const Group& g, Index s, Index j, const T* next_strip, const T* panel, const T* next_c, Index& ahead_k) const {
    if (j == g.begin && plan.group > plan.width && !plan.pack_a && p.a_k == 1 && p.a_row == depth) return ahead_k = kLanes, next_strip;
    if (g.direct) return ahead_k = g.b_k, panel + 8 * g.b_k;
    if (!packed && g.end < p.n) {
      ahead_k = p.b_column == 1 ? p.b_k : p.b_column;
      return p.b + k * p.b_k + g.end * p.b_column + g.tiles * kLanes;
    }
    if (!packed) return panel;
    if (s == 0) return ahead_k = plan.width, panel + 64 * plan.width;
    if (g.end == p.n && p.c_row == p.n) return ahead_k = kLine / 4, next_c;
    ahead_k = g.next_k;
    return g.next + g.parts * g.next_part;
  }

  void FetchShareOfA() {
    for (Index r = 0; r < share && rows_left > 0; ++r, --rows_left, next_a += p.a_k)
      for (Index l = 0; l < p.m; l += kLine) __builtin_prefetch(next_a + l, 0, 2);
  }
};

template <class T>
void MultiplyBlock(const Product<T>& p, const GemmPlan& plan, const T* packed, Index packed_column, Index row, Index column,
                   T* scratch, Finish<T> finish) {
  BlockProduct<T>{p, plan, packed, packed_column, row, column, scratch, finish}.Run();
}

// ---- thin products --------------------------------------------------------------------------------------------------

#if HWY_TARGET != HWY_SCALAR
// Some vectors of columns: w [columns, depth] is turned in registers, each of its elements read once. Its rows are too many for the
// hardware to run ahead of them all: those of the next columns are fetched one after the other, as memory is read fastest.
template <class T, size_t kRows, size_t kVectors> HWY_NOINLINE void ThinColumns(const Product<T>& p, Index column) {
  using D = Lanes16<T>;
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D()), kReach = Tile<T>::kReach, kColumns = kVectors * kLanes;
  const T* b = p.b + column * p.b_column;
  T* const c = p.c + column * p.c_column;
  HWY_ALIGN T apart[kRows * kColumns];   // c, where its columns are
  if (p.c_column != 1 && p.add)
    for (size_t i = 0; i < kRows * kColumns; ++i) apart[i] = c[Index(i / kColumns) * p.c_row + Index(i % kColumns) * p.c_column];
  T* const together = p.c_column == 1 ? c : apart;
  const Index c_row = p.c_column == 1 ? p.c_row : Index(kColumns);
  hn::Vec<D> acc[kVectors][kRows];
  HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v)
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) acc[v][r] = p.add ? hn::LoadU(d, together + Index(r) * c_row + v * kLanes) : hn::Zero(d);
  const T* ahead = b + Index(kColumns) * p.b_column;
  Index k = 0, ahead_k = 0;
  for (; k + Index(kReach) <= p.k; k += Index(kReach), b += kReach)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      const auto row = [&](size_t i) { return b + Index(v * kLanes + i) * p.b_column; };
      hn::Vec<D> w[kReach];
      HWY_UNROLL(16) for (size_t i = 0; i < kLanes * kReach * sizeof(T); i += 64) __builtin_prefetch(ahead + ahead_k + Index(i / sizeof(T)), 0, 2);
      if ((ahead_k += Index(kLanes * kReach)) >= p.k) ahead_k = 0, ahead += p.b_column;
      LoadColumns<Tile<T>::kParts, T>(row, kReach, w);
      HWY_UNROLL(16) for (size_t i = 0; i < kReach; ++i)
        HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
          acc[v][r] = hn::MulAdd(hn::Set(d, p.a[Index(r) * p.a_row + k + Index(i)]), w[i], acc[v][r]);
    }
  constexpr size_t kPart = RowPart<T>::kSize;
  for (; k < p.k; k += Index(kPart), b += kPart) {
    const size_t rest = HWY_MIN(kPart, size_t(p.k - k));
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Vec<D> w[kPart];
      LoadColumns<1, T>([&](size_t i) { return b + Index(v * kLanes + i) * p.b_column; }, rest, w);
      for (size_t i = 0; i < rest; ++i)
        HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
          acc[v][r] = hn::MulAdd(hn::Set(d, p.a[Index(r) * p.a_row + k + Index(i)]), w[i], acc[v][r]);
    }
  }
  HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v)
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) hn::StoreU(acc[v][r], d, together + Index(r) * c_row + v * kLanes);
  if (p.c_column != 1)
    for (size_t i = 0; i < kRows * kColumns; ++i) c[Index(i / kColumns) * p.c_row + Index(i % kColumns) * p.c_column] = apart[i];
}

// All columns. Of the fewest rows two vectors go side by side: one alone would wait for its own sums.
template <class T, size_t kRows> void ThinRows(const Product<T>& p) {
  constexpr size_t kVectors = kRows <= Tile<T>::kPairedRows ? 2 : 1;
  constexpr Index kLanes = Index(Tile<T>::kLanes), kStep = kLanes * Index(kVectors);
  Index j = 0;
  for (; j + kStep <= p.n; j += kStep) ThinColumns<T, kRows, kVectors>(p, j);
  for (; j < p.n; j += kLanes) ThinColumns<T, kRows, 1>(p, j);
}

template <class T, size_t... kRow> void PickThin(const Product<T>& p, std::index_sequence<kRow...>) {
  static constexpr void (*table[])(const Product<T>&) = {&ThinRows<T, kRow + 1>...};
  table[p.m - 1](p);
}

template <class T> void MultiplyThin(const Product<T>& p) { PickThin(p, std::make_index_sequence<Tile<T>::kThinRows>()); }

// ---- small products -------------------------------------------------------------------------------------------------

// kRows rows of c, at most a vector wide: nothing is packed. Rows of b are read in place, columns are turned in registers.
template <class T, size_t kRows> HWY_INLINE void SmallRows(const Product<T>& p, Index row) {
  const Lanes16<T> d;
  constexpr size_t kPart = RowPart<T>::kSize;
  const auto n = size_t(p.n);
  const T* a = p.a + row * p.a_row;
  T* const c = p.c + row * p.c_row;
  hn::Vec<Lanes16<T>> acc[kRows];
  HWY_UNROLL(8) for (size_t r = 0; r < kRows; ++r) acc[r] = p.add ? LoadFirst(d, c + Index(r) * p.c_row, n) : hn::Zero(d);
  const auto step = [&](hn::Vec<Lanes16<T>> bk) HWY_ATTR {
    HWY_UNROLL(8) for (size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(hn::Set(d, a[Index(r) * p.a_row]), bk, acc[r]);
    a += p.a_k;
  };
  if (p.b_column == 1)
    for (Index k = 0; k < p.k; ++k) step(LoadFirst(d, p.b + k * p.b_k, n));
  else
    for (Index k = 0; k < p.k; k += Index(kPart)) {
      hn::Vec<Lanes16<T>> columns[kPart];
      const size_t count = HWY_MIN(kPart, size_t(p.k - k));
      LoadColumns<1, T>([&](size_t i) { return p.b + Index(HWY_MIN(i, n - 1)) * p.b_column + k; }, count, columns);
      for (size_t i = 0; i < count; ++i) step(columns[i]);
    }
  HWY_UNROLL(8) for (size_t r = 0; r < kRows; ++r) StoreFirst(acc[r], d, c + Index(r) * p.c_row, n);
}

template <class T> void MultiplySmall(const Product<T>& p) {
  constexpr Index kMost = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  Index i = 0;
  for (; i + kMost <= p.m; i += kMost) SmallRows<T, size_t(kMost)>(p, i);
  if constexpr (kMost == 8)
    if (i + 4 <= p.m) SmallRows<T, 4>(p, i), i += 4;
  if (i + 2 <= p.m) SmallRows<T, 2>(p, i), i += 2;
  if (i < p.m) SmallRows<T, 1>(p, i);
}
#endif

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
