// SPDX-License-Identifier: Apache-2.0
// Sums of the short rows of short_rows.h, which lie side by side.
#include "tensor/block-inl.h"
#include "tensor/ops/short_rows.h"

#if defined(HEED_TENSOR_OPS_SHORT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_OPS_SHORT_ROWS_INL_H_
#undef HEED_TENSOR_OPS_SHORT_ROWS_INL_H_
#else
#define HEED_TENSOR_OPS_SHORT_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Σ_k x[k] of n <= kShort blocks, in Sum16's order; x is overwritten
template <class T> HWY_INLINE Block<T> SumOfShort(T* x, size_t n) {
  for (size_t half = kShort / 2; half > 0; half /= 2)
    for (size_t k = half; k < HWY_MIN(2 * half, n); ++k) Store16(Load16(x + 16 * (k - half)) + Load16(x + 16 * k), x + 16 * (k - half));
  return Load16(x);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
