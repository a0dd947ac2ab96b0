// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/total.h"

#define HWY_TARGET_INCLUDE "tensor/ops/total.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Σ x in double, n <= 4096: element i in lane i % 16
template <class T> double Total(const T* x, size_t n) {
  double lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t j = 0; j < 16; ++j) lanes[j] += double(x[i + j]);
  for (size_t j = 0; i + j < n; ++j) lanes[j] += double(x[i + j]);
  return Fold<double>::Sum(lanes);
}

// One line a type: Highway 1.0.3 exports no templates.
double TotalF32(const float* x, size_t n) { return Total(x, n); }
double TotalF64(const double* x, size_t n) { return Total(x, n); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
HWY_EXPORT(TotalF32);
HWY_EXPORT(TotalF64);

double total(const float* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(TotalF32)(x, n); }
double total(const double* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(TotalF64)(x, n); }

}  // namespace heed
#endif
