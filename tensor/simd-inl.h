// SPDX-License-Identifier: Apache-2.0
// Per-target prelude of every kernel file: foreach_target, highway, and the 16 virtual lanes. A kernel file reads
//   #define HWY_TARGET_INCLUDE "tensor/ops/softmax.cc"
//   #include "tensor/simd-inl.h"
//   HWY_BEFORE_NAMESPACE(); namespace heed::HWY_NAMESPACE { namespace { ... } } HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE ... HWY_EXPORT, dispatch, shape checks ... #endif
// The unnamed namespace is needed: two families' `struct Tanh` would merge silently otherwise.
#include <cstddef>

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#if defined(HEED_TENSOR_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_SIMD_INL_H_
#undef HEED_TENSOR_SIMD_INL_H_
#else
#define HEED_TENSOR_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes; f64 has half as many a register.
template <class T> using Lanes16 = hn::CappedTag<T, 16>;

// A reduction over lanes always keeps 16 virtual lanes (kRegisters registers of D) and folds them by one tree, so that the
// bits do not depend on the vector width. Element i of a row goes to lane i % 16.
template <class T> struct Fold {
  static constexpr size_t kLanes = 16;
  // lanes[16] -> sum:  ((0+8)+(4+12)) + ((2+10)+(6+14)) + ... : halves are added until one is left
  static T Sum(T* lanes) {
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
  }
  static T Max(T* lanes) {  // NaN wins
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i + half] > lanes[i] || lanes[i + half] != lanes[i + half] ? lanes[i + half] : lanes[i];
    return lanes[0];
  }
};

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
