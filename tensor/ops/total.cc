// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/total.h"

#define HWY_TARGET_INCLUDE "tensor/ops/total.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

double TotalF32(const float* x, size_t n) { return SumInDouble<Same>(x, n); }
double TotalF64(const double* x, size_t n) { return Reduce<SumOp, Same>(x, n); }

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
