// SPDX-License-Identifier: Apache-2.0
// Products of few rows, and of at most a vector of columns, per target: nothing is packed.
#include "tensor/gemm.h"
#include "tensor/gemm_tile-inl.h"

#if defined(HEED_TENSOR_GEMM_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_GEMM_FEW_INL_H_
#undef HEED_TENSOR_GEMM_FEW_INL_H_
#else
#define HEED_TENSOR_GEMM_FEW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
// ---- thin products --------------------------------------------------------------------------------------------------

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
  HWY_UNROLL(16)
  for (size_t v = 0; v < kVectors; ++v) HWY_UNROLL(16) for (size_t r = 0; r < kRows; ++r) acc[v][r] =
      p.add ? hn::LoadU(d, together + Index(r) * c_row + v * kLanes) : hn::Zero(d);
  const T* ahead = b + Index(kColumns) * p.b_column;
  Index k = 0, ahead_k = 0;
  for (; k + Index(kReach) <= p.k; k += Index(kReach), b += kReach)
    HWY_UNROLL(16) for (size_t v = 0; v < kVectors; ++v) {
      const auto row = [&](size_t i) { return b + Index(v * kLanes + i) * p.b_column; };
      hn::Vec<D> w[kReach];
      HWY_UNROLL(16)
      for (size_t i = 0; i < kLanes * kReach * sizeof(T); i += 64) __builtin_prefetch(ahead + ahead_k + Index(i / sizeof(T)), 0, 2);
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
