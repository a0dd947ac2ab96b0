// SPDX-License-Identifier: Apache-2.0
// Micro-kernel, packing and block loops of the matrix product, per target. Scratch comes from the caller.
//   tile    rows x (vectors of columns) of c in registers, all k of one block
//   strip   kRows rows of a, packed k by k: [k][rows]
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
  static constexpr size_t kRows = 14, kThinRows = 6;
#else
  static constexpr size_t kRows = 6, kThinRows = 2;
#endif
  static constexpr size_t kWidth = 2 * kLanes, kThinWidth = 4 * kLanes;
  static constexpr size_t kGroups = (kRows + kLanes - 1) / kLanes;
};

// The k loop of one tile: acc[r][v] = a[r, k] * b[k, v] + acc[r][v]. Rows of a are reached three to a pointer.
template <class T, size_t kRows, size_t kVectors>
HWY_NOINLINE void TileKernel(size_t depth, const T* a, Index a_row, Index a_k, const T* b, Index b_k, T* c, Index c_row, bool add) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> acc[kRows][kVectors];
  // g++ 12 leaves these loops rolled and the accumulators in memory without the pragma
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) acc[r][v] = add ? hn::LoadU(d, c + Index(r) * c_row + v * kLanes) : hn::Zero(d);
  const T* rows[(kRows + 2) / 3];
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) rows[r / 3] = a + Index(r) * a_row;
  for (size_t k = 0; k < depth; ++k) {
    hn::Vec<D> bk[kVectors];
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) bk[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) {
      const auto ark = hn::Set(d, rows[r / 3][Index(r % 3) * a_row]);
      HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(ark, bk[v], acc[r][v]);
    }
    HWY_UNROLL(16) for (size_t r = 0; r < kRows; r += 3) rows[r / 3] += a_k;
    b += b_k;
  }
  HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, c + Index(r) * c_row + v * kLanes);
}

template <class T> using TileFunction = void (*)(size_t, const T*, Index, Index, const T*, Index, T*, Index, bool);

template <class T, size_t kVectors, size_t... kRow> TileFunction<T> PickTile(size_t rows, std::index_sequence<kRow...>) {
  static constexpr TileFunction<T> table[] = {&TileKernel<T, kRow + 1, kVectors>...};
  return table[rows - 1];
}

// One tile at the pointers of p, p.m and p.n within the tile's size; edges and strided c go through a buffer.
template <class T> void MultiplyTile(const Product<T>& p) {
  using Size = Tile<T>;
  const size_t rows = size_t(p.m), columns = size_t(p.n), vectors = (columns + Size::kLanes - 1) / Size::kLanes;
  const size_t wide = vectors <= 2 ? vectors : 4, width = wide * Size::kLanes;
  const TileFunction<T> kernel = wide == 1   ? PickTile<T, 1>(rows, std::make_index_sequence<Size::kRows>())
                                 : wide == 2 ? PickTile<T, 2>(rows, std::make_index_sequence<Size::kRows>())
                                             : PickTile<T, 4>(rows, std::make_index_sequence<Size::kThinRows>());
  if (columns == width && p.c_column == 1) return kernel(size_t(p.k), p.a, p.a_row, p.a_k, p.b, p.b_k, p.c, p.c_row, p.add);
  HWY_ALIGN T buffer[Size::kRows * Size::kWidth + Size::kThinWidth] = {};
  if (p.add)
    for (Index r = 0; r < p.m; ++r)
      for (Index j = 0; j < p.n; ++j) buffer[size_t(r) * width + size_t(j)] = p.c[r * p.c_row + j * p.c_column];
  kernel(size_t(p.k), p.a, p.a_row, p.a_k, p.b, p.b_k, buffer, Index(width), p.add);
  for (Index r = 0; r < p.m; ++r)
    for (Index j = 0; j < p.n; ++j) p.c[r * p.c_row + j * p.c_column] = buffer[size_t(r) * width + size_t(j)];
}

// ---- packing: dst[k * width + j] = src[k * k_step + j * j_step],  k < depth, j < count ------------------------------
// A row may write up to kGroups vectors: rows are written in order, and dst has room for the last one.

template <class T> void PackCopy(const T* src, Index k_step, size_t depth, size_t count, size_t width, T* dst) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = Tile<T>::kLanes;
  for (size_t k = 0; k < depth; ++k, src += k_step, dst += width) {
    size_t j = 0;
    for (; j + kLanes <= count; j += kLanes) hn::StoreU(hn::LoadU(d, src + j), d, dst + j);
#if HWY_TARGET <= HWY_AVX2
    if (j < count) hn::StoreU(hn::MaskedLoad(hn::FirstN(d, count - j), d, src + j), d, dst + j), j += kLanes;
#else
    for (; j < count; ++j) dst[j] = src[j];
#endif
    for (; j < width; ++j) dst[j] = 0;
  }
}

template <class T> void PackStrided(const T* src, Index k_step, Index j_step, size_t depth, size_t count, size_t width, T* dst) {
  for (size_t k = 0; k < depth; ++k, src += k_step, dst += width)
    for (size_t j = 0; j < width; ++j) dst[j] = j < count ? src[Index(j) * j_step] : T(0);
}

#if HWY_TARGET != HWY_SCALAR
// kSide x kLanes elements, kSide = 16 bytes of them: rows j of src become columns. Lane group g of part[i] takes row
// kSide * g + i, so one transposition inside 128-bit groups leaves the columns in order.
template <class T> HWY_INLINE void TransposeGroup(const T* const* rows, Index at, hn::Vec<hn::ScalableTag<T>>* out) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kLanes = Tile<T>::kLanes, kSide = 16 / sizeof(T);
  hn::Vec<D> part[kSide];
  HWY_UNROLL(16) for (size_t i = 0; i < kSide; ++i) {
    part[i] = hn::LoadDup128(d, rows[i] + at);
    HWY_UNROLL(16) for (size_t g = 1; g < kLanes / kSide; ++g) {
      const auto before = hn::FirstN(d, g * kSide);
      part[i] = hn::IfThenElse(before, part[i], hn::LoadDup128(d, rows[g * kSide + i] + at));
    }
  }
  if constexpr (sizeof(T) == 8) {
    out[0] = hn::InterleaveLower(d, part[0], part[1]);
    out[1] = hn::InterleaveUpper(d, part[0], part[1]);
  } else {
    const hn::Repartition<double, D> wide;
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, part[0], part[1]));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, part[2], part[3]));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, part[0], part[1]));
    const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, part[2], part[3]));
    out[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
    out[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
    out[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
    out[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
  }
}

// k_step = 1: kGroups vectors of columns at a time
template <class T, size_t kGroups> void PackTransposed(const T* src, Index j_step, size_t depth, size_t count, size_t width, T* dst) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr size_t kLanes = Tile<T>::kLanes, kSide = 16 / sizeof(T);
  const T* rows[kGroups * kLanes];
  for (size_t j = 0; j < kGroups * kLanes; ++j) rows[j] = src + Index(j < count ? j : count - 1) * j_step;
  size_t k = 0;
  for (; k + kSide <= depth; k += kSide) {
    hn::Vec<D> out[kGroups][kSide];
    HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) TransposeGroup<T>(rows + g * kLanes, Index(k), out[g]);
    HWY_UNROLL(16) for (size_t i = 0; i < kSide; ++i)
      HWY_UNROLL(16) for (size_t g = 0; g < kGroups; ++g) hn::StoreU(out[g][i], d, dst + (k + i) * width + g * kLanes);
  }
  for (; k < depth; ++k)
    for (size_t j = 0; j < count; ++j) dst[k * width + j] = rows[j][k];
}
#endif

template <class T> void PackStrip(const T* a, Index a_row, Index a_k, size_t depth, size_t rows, T* dst) {
  if (a_row == 1) return PackCopy(a, a_k, depth, rows, rows, dst);
#if HWY_TARGET != HWY_SCALAR
  if (a_k == 1) return PackTransposed<T, Tile<T>::kGroups>(a, a_row, depth, rows, rows, dst);
#endif
  PackStrided(a, a_k, a_row, depth, rows, rows, dst);
}

template <class T> void PackPanel(const T* b, Index b_k, Index b_column, size_t depth, size_t columns, size_t width, T* dst) {
  if (b_column == 1) return PackCopy(b, b_k, depth, columns, width, dst);
#if HWY_TARGET != HWY_SCALAR
  if (b_k == 1) {
    constexpr size_t kLanes = Tile<T>::kLanes;
    for (size_t j = 0; j < columns; j += kLanes)
      PackTransposed<T, 1>(b + Index(j) * b_column, b_column, depth, columns - j < kLanes ? columns - j : kLanes, width, dst + j);
    return;
  }
#endif
  PackStrided(b, b_k, b_column, depth, columns, width, dst);
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Strips of a block of a stand in L2, one panel of b in L1.
template <class T> void MultiplyBlock(const Product<T>& p, const GemmPlan& plan, const T* packed, Index row, Index column, T* scratch, Finish<T> finish) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  const Index strips = (p.m + plan.rows - 1) / plan.rows, padded = (p.n + plan.width - 1) / plan.width * plan.width;
  T* const panel = scratch + plan.strip_scratch;
  for (Index k = 0; k < p.k; k += plan.depth) {
    const Index depth = p.k - k < plan.depth ? p.k - k : plan.depth;
    if (plan.pack_a)
      for (Index s = 0; s < strips; ++s) {
        const Index first = p.m * s / strips, rows = p.m * (s + 1) / strips - first;
        PackStrip(p.a + first * p.a_row + k * p.a_k, p.a_row, p.a_k, size_t(depth), size_t(rows), scratch + first * depth);
      }
    Index finished = 0;
    for (Index j = 0; j < p.n; j += plan.width) {
      const Index columns = p.n - j < plan.width ? p.n - j : plan.width;
      Product<T> tile = p;
      tile.n = columns;
      tile.k = depth;
      tile.add = p.add || k > 0;
      if (packed) {
        tile.b = packed + k * padded + j * depth, tile.b_k = plan.width;
      } else {
        tile.b = p.b + k * p.b_k + j * p.b_column;
        // a kernel reads whole vectors, so ragged columns go through the panel
        if (!plan.direct_b || (columns != plan.width && columns != kLanes && columns != 2 * kLanes)) {
          PackPanel(tile.b, p.b_k, p.b_column, size_t(depth), size_t(columns), size_t(plan.width), panel);
          tile.b = panel, tile.b_k = plan.width;
        }
      }
      for (Index s = 0; s < strips; ++s) {
        const Index first = p.m * s / strips;
        tile.m = p.m * (s + 1) / strips - first;
        tile.c = p.c + first * p.c_row + j * p.c_column;
        if (plan.pack_a) tile.a = scratch + first * depth, tile.a_row = 1, tile.a_k = tile.m;
        else tile.a = p.a + first * p.a_row + k * p.a_k;
        MultiplyTile(tile);
      }
      if (finish.run && k + depth == p.k && (j + columns == p.n || (column + j + columns) % Finish<T>::kFinishColumns == 0)) {
        finish.run(finish.self, row, p.m, column + finished, j + columns - finished);
        finished = j + columns;
      }
    }
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
