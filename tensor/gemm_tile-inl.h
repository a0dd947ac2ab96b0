// SPDX-License-Identifier: Apache-2.0
// Micro-kernels of the matrix product, per target: a tile, rows x (vectors of columns) of c, stays in registers over all k of one block.
#include <cstddef>
#include <utility>

#include "tensor/dtype.h"
#include "tensor/simd-inl.h"
#include "tensor/transpose-inl.h"

#if defined(HEED_TENSOR_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_GEMM_TILE_INL_H_
#undef HEED_TENSOR_GEMM_TILE_INL_H_
#else
#define HEED_TENSOR_GEMM_TILE_INL_H_
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
  static constexpr size_t kRows[5] = {0, 14, 14, 8, 6}, kVectors = 3, kThinRows = 10, kPairedRows = 0;   // kRows: most, by vectors
  static constexpr size_t kParts = 64 / sizeof(T) / RowPart<T>::kSize;   // of the rows of b that are turned: a line
#else
  static constexpr size_t kRows[5] = {0, 6, 6, 4, 2}, kVectors = 2, kThinRows = 6, kPairedRows = 3, kParts = 1;
#endif
  static constexpr size_t kReach = kParts * RowPart<T>::kSize;   // elements of a row that are turned at once
  static constexpr size_t kWidest = 4 * kLanes;
  static constexpr bool kFromL2 = kVectors == 3;
  static constexpr bool kPairs = kVectors == 2;   // four vectors of few rows may be two panels
};

template <class T>
HWY_INLINE const T* Beyond(const T* x, Index bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(x) + bytes);
}

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
  Walk(const T* start, Index stride) : x(start), one(stride * Index(sizeof(T))), three(3 * one) {}
  HWY_INLINE const T* After(size_t steps) const { return !kTogether ? x : Beyond(x, steps == 3 ? three : Index(steps) * one); }
  HWY_INLINE T At(size_t r, size_t steps) const { return After(steps)[r]; }
  HWY_INLINE void Fetch(size_t steps) const { __builtin_prefetch(After(steps), 0, 2); }
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

// What is fetched where two steps lie in a line.
template <class T> struct Second {
  Second(const T* start, Index stride) : x(start), one(stride * Index(sizeof(T))), three(3 * one) {}
  HWY_INLINE void Fetch(size_t steps) const {
    if (steps % 2 == 0) __builtin_prefetch(Beyond(x, steps == 6 ? 2 * three : Index(steps) * one), 0, 2);
  }
  HWY_INLINE void Step() { asm("" : "+r"(x)); }
  HWY_INLINE void Advance(size_t steps) { x = Beyond(x, Index(steps) * one); }

  const T* x;
  Index one, three;   // bytes
};

// kLines lines, one behind the other, that are fetched in eight steps.
template <class T, size_t kLines> struct Following {
  static constexpr Index kLine = Index(64 / sizeof(T));
  Following(const T* start, Index) : x(start) {}
  HWY_INLINE void Fetch(size_t steps) const {
    HWY_UNROLL(3) for (size_t i = steps * kLines / 8; i < (steps + 1) * kLines / 8; ++i) __builtin_prefetch(x + Index(i) * kLine, 0, 2);
  }
  HWY_INLINE void Step() { asm("" : "+r"(x)); }
  HWY_INLINE void Advance(size_t steps) { x += Index(steps * kLines / 8) * kLine; }

  const T* x;
};

// A tile of c, fetched row after row while sums are made: all lines at once would fill what a core can have on its way.
template <class T, size_t kVectors> struct TileOfC {
  HWY_INLINE void FetchRow() {
    if (rows == 0) return;
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) __builtin_prefetch(row + v * Tile<T>::kLanes, 0, 2);
    row += step, --rows;
  }

  const T* row;
  Index step;
  size_t rows;
};

// So many steps of k: acc[r][v] = a[r, k] * b[k, v] + acc[r][v]. Each, or every second, fetches a line at `ahead`, several together a row
// of c. Of four vectors in pairs the second two lie `half` elements behind the first. All that is no multiply-add takes the place of one
// where two threads share a core.
template <size_t kSteps, class T, size_t kRows, size_t kVectors, class A, class B, class V, class F>
HWY_INLINE void TileSteps(V (&acc)[kRows][kVectors], A& a, B& b, Index half, F& ahead, TileOfC<T, kVectors>& c) {
  const hn::ScalableTag<T> d;
  constexpr bool kPair = Tile<T>::kPairs && kVectors == 4;
  HWY_UNROLL(16) for (size_t k = 0; k < kSteps; ++k) {
    V bk[kVectors];
    const T* const from = b.After(k);
    HWY_UNROLL(16)
    for (size_t v = 0; v < kVectors; ++v) bk[v] =
        hn::LoadU(d, kPair && v >= 2 ? from + half + (v - 2) * Tile<T>::kLanes : from + v * Tile<T>::kLanes);
    ahead.Fetch(k);
    if constexpr (kPair) __builtin_prefetch(ahead.After(k) + half, 0, 2);
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) {
      const auto ark = hn::Set(d, a.At(r, k));
      HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) MulAddTo(ark, bk[v], acc[r][v]);
    }
    a.Step(), b.Step(), ahead.Step();
  }
  a.Advance(kSteps), b.Advance(kSteps), ahead.Advance(kSteps);
  if (kSteps > 1) c.FetchRow();
}

// Sums begin at `from` or at zero, and end plus bias if any. g++ 12 leaves these loops rolled and the sums in memory without the pragma.
template <class T, size_t kRows, size_t kVectors, class V>
HWY_INLINE void BeginTile(V (&acc)[kRows][kVectors], const T* from, Index from_row) {
  const hn::ScalableTag<T> d;
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) acc[r][v] =
      from ? hn::LoadU(d, from + Index(r) * from_row + v * Tile<T>::kLanes) : hn::Zero(d);
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

// One tile, all k of one block. `next`, to be fetched: `to`, or where the next sums begin. Where rows or columns of a lie in memory order
// four steps share the additions of addresses.
template <class T, size_t kRows, size_t kVectors>
HWY_NOINLINE void TileKernel(Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, Index half, const T* from,
                             Index from_row, const T* bias, T* to, Index to_row, const T* next, const T* ahead, Index ahead_k) {
  hn::Vec<hn::ScalableTag<T>> acc[kRows][kVectors];
  BeginTile(acc, from, from_row);
  TileOfC<T, kVectors> c{next, next == to ? to_row : from_row, kRows};
  Walk<T> right(b, b_k), fetched(ahead, ahead_k);
  Index fours = a_k == 1 || a_row == 1 ? depth / 4 : 0;
  const Index done = 4 * fours;
  if (a_k == 1) {
    TileRows<T, kRows> rows(a, a_row, 1);
    for (; fours > 0; --fours) TileSteps<4, T>(acc, rows, right, half, fetched, c);
  } else if (a_row == 1) {
    Walk<T> columns(a, a_k);
    for (; fours > 0; --fours) TileSteps<4, T>(acc, columns, right, half, fetched, c);
  }
  TileRows<T, kRows> rest(a + done * a_k, a_row, a_k);
  for (Index left = depth - done; left > 0; --left) TileSteps<1, T>(acc, rest, right, half, fetched, c);
  EndTile(acc, bias, to, to_row);
}

// The same for many rows: of a panel, and of a strip that is packed or lies in place, eight steps at a time.
template <class T, size_t kRows, bool kStrip, class F>
HWY_NOINLINE void PanelKernel(Index depth, const T* a, Index a_row, const T* b, const T* from, Index from_row, const T* bias, T* to,
                              Index to_row, const T* next, const T* ahead, Index ahead_k) {
  constexpr size_t kVectors = Tile<T>::kVectors;
  hn::Vec<hn::ScalableTag<T>> acc[kRows][kVectors];
  BeginTile(acc, from, from_row);
  TileOfC<T, kVectors> c{next, next == to ? to_row : from_row, kRows};
  Packed<T, Index(kVectors * Tile<T>::kLanes)> panel{b};
  F fetched(ahead, ahead_k);
  std::conditional_t<kStrip, Packed<T, Index(kRows)>, TileRows<T, kRows>> left(a, a_row, 1);
  for (; depth >= 8; depth -= 8) TileSteps<8, T>(acc, left, panel, 0, fetched, c);
  for (; depth > 0; --depth) TileSteps<1, T>(acc, left, panel, 0, fetched, c);
  EndTile(acc, bias, to, to_row);
}

template <class T>
using TileFunction = void (*)(Index, const T*, Index, Index, const T*, Index, Index, const T*, Index, const T*, T*, Index, const T*,
                              const T*, Index);
template <class T>
using PanelFunction = void (*)(Index, const T*, Index, const T*, const T*, Index, const T*, T*, Index, const T*, const T*, Index);

template <class T, size_t kVectors, size_t... kRow> TileFunction<T> PickTile(Index rows, std::index_sequence<kRow...>) {
  static constexpr TileFunction<T> table[] = {&TileKernel<T, kRow + 1, kVectors>...};
  return table[rows - 1];
}

// Vectors that hold these columns, at most 4.
template <class T> constexpr Index TileVectors(Index columns) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  return divide_up(columns, kLanes);
}

template <class T, bool kStrip, class F> PanelFunction<T> PanelOfRows(Index rows) {
  constexpr size_t kRows = Tile<T>::kRows[Tile<T>::kVectors];
  return rows == Index(kRows) ? &PanelKernel<T, kRows, kStrip, F> : &PanelKernel<T, kRows - 1, kStrip, F>;
}
// strip: packed. Where two steps fetch more than a line, lines follow one another.
template <class T> PanelFunction<T> PanelOf(Index rows, bool strip, Index ahead_k) {
  constexpr Index kLine = Index(64 / sizeof(T));
  if (strip) return PanelOfRows<T, true, Second<T>>(rows);
  if (2 * ahead_k <= kLine) return PanelOfRows<T, false, Second<T>>(rows);
  if (ahead_k <= kLine) return PanelOfRows<T, false, Following<T, 8>>(rows);
  return PanelOfRows<T, false, Following<T, 12>>(rows);
}

template <class T> TileFunction<T> TileOf(Index rows, Index vectors) {
  if (vectors == 1) return PickTile<T, 1>(rows, std::make_index_sequence<Tile<T>::kRows[1]>());
  if (vectors == 2) return PickTile<T, 2>(rows, std::make_index_sequence<Tile<T>::kRows[2]>());
  if (vectors == 3) return PickTile<T, 3>(rows, std::make_index_sequence<Tile<T>::kRows[3]>());
  return PickTile<T, 4>(rows, std::make_index_sequence<Tile<T>::kRows[4]>());
}

// By the kernel that fits. Of lines that follow one another most kernels fetch one a step: of more they would leave some out between them,
// which costs more than an end that the hardware finds.
template <class T>
HWY_INLINE void MultiplyTile(Index rows, Index vectors, Index depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, Index half,
                             const T* from, Index from_row, const T* bias, T* to, Index to_row, const T* next, const T* ahead,
                             Index ahead_k) {
  constexpr Index kMost = Index(Tile<T>::kRows[Tile<T>::kVectors]), kWidth = Index(Tile<T>::kVectors * Tile<T>::kLanes),
                  kLine = Index(64 / sizeof(T));
  const bool strip = a_row == 1 && a_k == rows;
  if (rows >= kMost - 1 && vectors == Index(Tile<T>::kVectors) && b_k == kWidth && (strip || a_k == 1) &&
      2 * ahead_k <= (strip ? 1 : 3) * kLine)
    return PanelOf<T>(rows, strip, ahead_k)(depth, a, a_row, b, from, from_row, bias, to, to_row, next, ahead, ahead_k);
  if (2 * ahead_k <= 3 * kLine) ahead_k = HWY_MIN(ahead_k, kLine);
  TileOf<T>(rows, vectors)(depth, a, a_row, a_k, b, b_k, half, from, from_row, bias, to, to_row, next, ahead, ahead_k);
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
    each([&](Index r, Index j, size_t left)
             HWY_ATTR { hn::StoreU(LoadFirst(d, from + r * from_row + j, left), d, buffer + r * width + j); });
  else if (from)
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < width; ++j) buffer[r * width + j] = j < columns ? from[r * from_row + j * from_column] : T(0);
  TileOf<T>(rows, vectors)(depth, a, a_row, a_k, b, b_k, width / 2, from ? buffer : nullptr, width, bias ? whole_bias : nullptr, buffer,
                           width, buffer, b, b_k);
  if (to_column == 1)
    return each([&](Index r, Index j, size_t left)
                    HWY_ATTR { StoreFirst(hn::LoadU(d, buffer + r * width + j), d, to + r * to_row + j, left); });
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < columns; ++j) to[r * to_row + j * to_column] = buffer[r * width + j];
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
