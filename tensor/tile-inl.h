// SPDX-License-Identifier: Apache-2.0
// Products of small matrices that lie in L1, for kernels that make many of them: no packing of the left side, any strides, one
// chain of multiply-adds in rising k an element. What follows is fetched meanwhile, by each step of k a part: more at once would fill
// what a core can have on its way, and the product would wait. Large products: tensor/ops/matmul.h.
#include "tensor/block-inl.h"
#include "tensor/dtype.h"
#include "tensor/simd-inl.h"
#include "tensor/transpose-inl.h"

#if defined(HEED_TENSOR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_TILE_INL_H_
#undef HEED_TENSOR_TILE_INL_H_
#else
#define HEED_TENSOR_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Rows and blocks of a register tile: (MR + 1) NB blocks and one broadcast fit the register file.
template <class T> struct TileSize {
  static constexpr size_t kRegisters = Block<T>::kRegisters;
  static constexpr bool kMany = HWY_TARGET <= HWY_AVX3;                     // 32 registers
  static constexpr size_t kRows = kMany ? 8 : kRegisters <= 2 ? 6 : kRegisters == 4 ? 2 : 1;
  static constexpr size_t kBlocks = kMany && kRegisters == 1 ? 2 : 1;
  static constexpr size_t kFewRows = kBlocks == 2 ? 4 : kRegisters == 2 ? 1 : 0;   // whose four blocks at once fit as well
};

// b [K, 16 NB]: rows of a matrix, or panels of 16 columns one after another
template <class T> struct Right {
  const T* data;
  Index row, block;                        // strides
  size_t columns;                          // of the matrix
};

// Sums of a tile, of which `left` columns are left in c: they begin with c or with zero.
template <class T, size_t MR, size_t NB>
HWY_INLINE void LoadSums(const T* HWY_RESTRICT c, Index c_row, size_t left, bool add, Block<T> (&sum)[MR][NB]) {
  HWY_UNROLL(8)
  for (size_t i = 0; i < MR; ++i) {
    HWY_UNROLL(4)
    for (size_t m = 0; m < NB; ++m) sum[i][m] = add ? LoadN16(c + Index(i) * c_row + 16 * m, left - 16 * m) : Set16(T(0));
  }
}
template <class T, size_t MR, size_t NB>
HWY_INLINE void StoreSums(const Block<T> (&sum)[MR][NB], size_t left, T* HWY_RESTRICT c, Index c_row) {
  HWY_UNROLL(8)
  for (size_t i = 0; i < MR; ++i) {
    HWY_UNROLL(4)
    for (size_t m = 0; m < NB; ++m) StoreN16(sum[i][m], left - 16 * m, c + Index(i) * c_row + 16 * m);
  }
}

// 128 bytes of the next row that is needed later, into L2: what a core can have on its way to L1 is less.
template <class Ahead> struct Fetching {
  Ahead& ahead;
  decltype(ahead.at) at = ahead.at;
  Index stride = ahead.stride;
  size_t left = ahead.left;
  HWY_INLINE void Step() {
    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + 64 / sizeof(*at), 0, 2);
    at += stride;
    if (HWY_LIKELY(--left > 0)) return;
    ahead.next_run();
    at = ahead.at, stride = ahead.stride, left = ahead.left;
  }
  HWY_INLINE ~Fetching() { ahead.at = at, ahead.left = left; }
};

// c[i][j] (=|+=) Σ_k a[i, k] b[k, j]: one chain of multiply-adds in rising k an element, for MR rows and NB blocks from column j
template <size_t MR, size_t NB, class T, class Ahead>
HWY_INLINE void TileProduct(const T* HWY_RESTRICT a, Index a_row, Index a_k, const Right<T>& b, size_t j, size_t K, T* HWY_RESTRICT c,
                            Index c_row, bool add, Ahead& ahead) {
  Block<T> sum[MR][NB];
  const size_t left = b.columns - j;
  LoadSums(c, c_row, left, add, sum);
  const T* from = b.data + Index(j / 16) * b.block;
  Fetching<Ahead> next{ahead};
  if (left >= 16 * NB) {
    for (size_t k = K; k > 0; --k, from += b.row, a += a_k) {
      next.Step();
      Block<T> right[NB];
      HWY_UNROLL(4)
      for (size_t m = 0; m < NB; ++m) right[m] = Load16(from + Index(m) * b.block);
      HWY_UNROLL(8)
      for (size_t i = 0; i < MR; ++i) {
        const Block<T> left_value = Set16(a[Index(i) * a_row]);
        HWY_UNROLL(4)
        for (size_t m = 0; m < NB; ++m) sum[i][m] = MulAdd16(left_value, right[m], sum[i][m]);
      }
    }
  } else {
    for (size_t k = 0; k < K; ++k, from += b.row, a += a_k) {
      next.Step();
      HWY_UNROLL(4)
      for (size_t m = 0; m < NB; ++m) {
        const Block<T> right = LoadN16(from + Index(m) * b.block, left - 16 * m);
        HWY_UNROLL(8)
        for (size_t i = 0; i < MR; ++i) sum[i][m] = MulAdd16(Set16(a[Index(i) * a_row]), right, sum[i][m]);
      }
    }
  }
  StoreSums(sum, left, c, c_row);
}

// NB blocks of columns from j on, all rows, up to MR at a time
template <size_t NB, size_t MR, class T, class Ahead>
HWY_INLINE void ColumnsProduct(const T* a, Index a_row, Index a_k, const Right<T>& b, size_t j, size_t rows, size_t K, T* c, Index c_row,
                               bool add, Ahead& ahead) {
  size_t i = 0;
  for (; i + MR <= rows; i += MR)
    TileProduct<MR, NB>(a + Index(i) * a_row, a_row, a_k, b, j, K, c + Index(i) * c_row + j, c_row, add, ahead);
  if constexpr (MR > 4)
    for (; i + 4 <= rows; i += 4)
      TileProduct<4, NB>(a + Index(i) * a_row, a_row, a_k, b, j, K, c + Index(i) * c_row + j, c_row, add, ahead);
  if constexpr (MR > 2)
    for (; i + 2 <= rows; i += 2)
      TileProduct<2, NB>(a + Index(i) * a_row, a_row, a_k, b, j, K, c + Index(i) * c_row + j, c_row, add, ahead);
  for (; i < rows; ++i) TileProduct<1, NB>(a + Index(i) * a_row, a_row, a_k, b, j, K, c + Index(i) * c_row + j, c_row, add, ahead);
}

// c [rows, columns] from column `first` (a multiple of 16) on; K products an element.
// All rows meet some columns of b while these lie in L1.
template <class T, class Ahead>
void Product(const T* a, Index a_row, Index a_k, const Right<T>& b, size_t first, size_t rows, size_t K, T* c, Index c_row, bool add,
             Ahead& ahead) {
  constexpr size_t kRows = TileSize<T>::kRows, kFew = TileSize<T>::kFewRows, kBlocks = TileSize<T>::kBlocks;
  size_t j = first;
  if constexpr (kFew > 0)
    for (; rows <= kFew && j + 48 < b.columns; j += 64) ColumnsProduct<4, kFew>(a, a_row, a_k, b, j, rows, K, c, c_row, add, ahead);
  if constexpr (kBlocks == 2 || kFew > 0)
    for (; (kBlocks == 2 || rows <= kFew) && j + 16 < b.columns; j += 32)
      ColumnsProduct<2, kBlocks == 2 ? kRows : kFew>(a, a_row, a_k, b, j, rows, K, c, c_row, add, ahead);
  for (; j < b.columns; j += 16) ColumnsProduct<1, kRows>(a, a_row, a_k, b, j, rows, K, c, c_row, add, ahead);
}

// c_i[j] (=|+=) Σ_k a_i[k] b_i[k, j]: MR rows, each with a matrix of its own, `apart` from the next. A chain waits for itself: those of
// several rows go on side by side.
template <size_t MR, size_t NB, class T>
HWY_INLINE void RowsTile(const T* HWY_RESTRICT a, Index a_row, const Right<T>& b, Index apart, size_t j, size_t K, T* HWY_RESTRICT c,
                         Index c_row, bool add) {
  Block<T> sum[MR][NB];
  const size_t left = b.columns - j;
  LoadSums(c, c_row, left, add, sum);
  const T* from = b.data + Index(j / 16) * b.block;
  for (size_t k = 0; k < K; ++k, from += b.row, ++a) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < MR; ++i) {
      const Block<T> left_value = Set16(a[Index(i) * a_row]);
      HWY_UNROLL(4)
      for (size_t m = 0; m < NB; ++m)
        sum[i][m] = MulAdd16(left_value, LoadN16(from + Index(i) * apart + Index(m) * b.block, left - 16 * m), sum[i][m]);
    }
  }
  StoreSums(sum, left, c, c_row);
}
template <size_t NB, class T>
HWY_INLINE void RowsColumns(const T* a, Index a_row, const Right<T>& b, Index apart, size_t j, size_t rows, size_t K, T* c, Index c_row,
                            bool add) {
  size_t i = 0;
  const auto of = [&](size_t row) { return Right<T>{b.data + Index(row) * apart, b.row, b.block, b.columns}; };
  for (; i + 4 <= rows; i += 4) RowsTile<4, NB>(a + Index(i) * a_row, a_row, of(i), apart, j, K, c + Index(i) * c_row + j, c_row, add);
  for (; i < rows; ++i) RowsTile<1, NB>(a + Index(i) * a_row, a_row, of(i), apart, j, K, c + Index(i) * c_row + j, c_row, add);
}
// The same for all rows and columns from `first` (a multiple of 16) on
template <class T>
void RowsProduct(const T* a, Index a_row, const Right<T>& b, Index apart, size_t first, size_t rows, size_t K, T* c, Index c_row,
                 bool add) {
  size_t j = first;
  if constexpr (TileSize<T>::kBlocks == 2)
    for (; j + 16 < b.columns; j += 32) RowsColumns<2>(a, a_row, b, apart, j, rows, K, c, c_row, add);
  for (; j < b.columns; j += 16) RowsColumns<1>(a, a_row, b, apart, j, rows, K, c, c_row, add);
}

// panels[j / 16][k][j % 16] = x[j][k]: x [rows, width] turned, to stand on the right of a product. x[j] points to row j; the last row
// stands for those that the last panel lacks.
template <class T, class Rows> void Turn(const Rows& x, size_t rows, size_t width, T* HWY_RESTRICT panels) {
  for (size_t j = 0; j < rows; j += 16, panels += 16 * width) {
    const T* from[16];
    for (size_t i = 0; i < 16; ++i) from[i] = x[HWY_MIN(j + i, rows - 1)];
#if HWY_TARGET == HWY_SCALAR
    for (size_t k = 0; k < width; ++k)
      for (size_t i = 0; i < 16; ++i) panels[16 * k + i] = from[i][k];
#else
    constexpr size_t kPart = RowPart<T>::kSize;
    const typename Block<T>::D d;
    for (size_t k = 0; k < width; k += kPart)
      for (size_t i = 0; i < 16; i += Block<T>::kLanes) {
        const auto row = [&](size_t r) { return from[i + r] + k; };
        T* const to = panels + 16 * k + i;
        if (HWY_LIKELY(k + kPart <= width)) {
          hn::Vec<typename Block<T>::D> columns[kPart];
          LoadColumns<1, T>(row, kPart, columns);
          HWY_UNROLL(16) for (size_t c = 0; c < kPart; ++c) hn::StoreU(columns[c], d, to + 16 * c);
        } else {
          hn::Vec<typename Block<T>::D> rest[kPart];
          LoadColumns<1, T>(row, width - k, rest);
          for (size_t c = 0; k + c < width; ++c) hn::StoreU(rest[c], d, to + 16 * c);
        }
      }
#endif
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
