// SPDX-License-Identifier: Apache-2.0
// Columns of a matrix whose rows are contiguous, turned in registers: each element is read once.
#include "tensor/simd-inl.h"

#if defined(HEED_TENSOR_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_TRANSPOSE_INL_H_
#undef HEED_TENSOR_TRANSPOSE_INL_H_
#else
#define HEED_TENSOR_TRANSPOSE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Elements of a row that are read together: half a vector, or all of one of 16 bytes.
template <class T> struct RowPart {
  static constexpr size_t kLanes = hn::MaxLanes(Lanes16<T>()), kSide = 16 / sizeof(T);
  static constexpr size_t kSize = kLanes > kSide ? kLanes / 2 : kLanes;
};

#if HWY_TARGET != HWY_SCALAR
// Transposes each 128-bit group of 16 / sizeof(T) vectors.
template <class D, class V = hn::Vec<D>> HWY_INLINE void TransposeInGroups(D d, V* x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const V first = x[0];
    x[0] = hn::InterleaveLower(d, first, x[1]);
    x[1] = hn::InterleaveUpper(d, first, x[1]);
  } else {
    const hn::Repartition<double, D> wide;
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, x[0], x[1])), low23 = hn::BitCast(wide, hn::InterleaveLower(d, x[2], x[3]));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, x[0], x[1])),
               high23 = hn::BitCast(wide, hn::InterleaveUpper(d, x[2], x[3]));
    x[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
    x[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
    x[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
    x[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
  }
}

// out[k] = element k of as many rows as a vector has lanes, k < kParts RowPart; those from n on are zero and nothing of them is read.
// row(i) points to row i. All parts are read before the first is turned: rows a power of two apart share their places in the L1 and lose
// a line soon.
template <size_t kParts, class T, class Row> HWY_INLINE void LoadColumns(const Row& row, size_t n, hn::Vec<Lanes16<T>>* out) {
  using D = Lanes16<T>;
  const D d;
  constexpr size_t kSide = RowPart<T>::kSide, kSize = RowPart<T>::kSize, kGroups = kSize / kSide;   // kSide rows make one
  const hn::CappedTag<T, kSize> part;
  hn::Vec<D> x[kParts][kGroups][kSide];
  HWY_UNROLL(4) for (size_t g = 0; g < kGroups; ++g)
    HWY_UNROLL(4) for (size_t i = 0; i < kSide; ++i)
      HWY_UNROLL(4) for (size_t p = 0; p < kParts; ++p) {
        const size_t at = p * kSize, left = n > at ? n - at : 0;
        const T* const low = row(g * kSide + i) + at;
        if constexpr (hn::MaxLanes(D()) == kSize) x[p][g][i] = LoadFirst(part, low, left);
        else x[p][g][i] = hn::Combine(d, LoadFirst(part, row((g + kGroups) * kSide + i) + at, left), LoadFirst(part, low, left));
      }
  HWY_UNROLL(4) for (size_t p = 0; p < kParts; ++p, out += kSize) {
    HWY_UNROLL(4) for (size_t g = 0; g < kGroups; ++g) TransposeInGroups(d, x[p][g]);
    // groups of 128 bits now: of two groups of rows, one of each of their lower and upper halves
    HWY_UNROLL(4) for (size_t i = 0; i < kSide; ++i) {
      if constexpr (kGroups == 1) {
        out[i] = x[p][0][i];
      } else {
        out[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(x[p][1][i]), x[p][0][i]);
        out[kSide + i] = hn::OddEvenBlocks(x[p][1][i], hn::SwapAdjacentBlocks(x[p][0][i]));
      }
    }
  }
}
#endif

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
