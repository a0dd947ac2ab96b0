// SPDX-License-Identifier: Apache-2.0
#include "tensor/convert.h"

#define HWY_TARGET_INCLUDE "tensor/convert.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// g++ 12 -O2 makes vectors only of loops of a constant count whose pointers are parameters with restrict.
template <class To, class From> HWY_INLINE void ConvertBlock(const From* HWY_RESTRICT x, To* HWY_RESTRICT y) {
  for (size_t i = 0; i < 64; ++i) y[i] = convert<To>(x[i]);
}

template <class To, class From> void Convert(const void* from, size_t n, void* to) {
  auto x = static_cast<const From*>(from);
  auto y = static_cast<To*>(to);
  for (; n >= 64; n -= 64, x += 64, y += 64) ConvertBlock(x, y);
  for (size_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

template <class T> HWY_INLINE void ReverseBlock(const T* HWY_RESTRICT x, T* HWY_RESTRICT y) {
  for (size_t i = 0; i < 64; ++i) y[i] = x[63 - i];
}
template <class T> void Reverse(const void* from, size_t n, void* to) {
  auto x = static_cast<const T*>(from) + 1;
  auto y = static_cast<T*>(to);
  for (; n >= 64; n -= 64, y += 64) ReverseBlock(x -= 64, y);
  for (size_t i = 0; i < n; ++i) y[i] = *--x;
}

template <class To> ConvertRow From(DType from) {
  switch (from) {
    case DType::f32: return Convert<To, float>;
    case DType::f64: return Convert<To, double>;
    case DType::bf16: return Convert<To, BFloat16>;
    case DType::i32: return Convert<To, int32_t>;
    case DType::i64: return Convert<To, int64_t>;
    case DType::u8: return Convert<To, uint8_t>;
  }
  return nullptr;
}

ConvertRow Conversion(DType to, DType from) {
  switch (to) {
    case DType::f32: return From<float>(from);
    case DType::f64: return From<double>(from);
    case DType::bf16: return From<BFloat16>(from);
    case DType::i32: return From<int32_t>(from);
    case DType::i64: return From<int64_t>(from);
    case DType::u8: return From<uint8_t>(from);
  }
  return nullptr;
}

ConvertRow Reversal(size_t item) {
  switch (item) {
    case 1: return Reverse<uint8_t>;
    case 2: return Reverse<uint16_t>;
    case 4: return Reverse<uint32_t>;
    default: return Reverse<uint64_t>;
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
HWY_EXPORT(Conversion);
HWY_EXPORT(Reversal);

ConvertRow conversion(DType to, DType from) { return HWY_DYNAMIC_DISPATCH(Conversion)(to, from); }

ConvertRow reversal(std::size_t item) { return HWY_DYNAMIC_DISPATCH(Reversal)(item); }

}  // namespace heed
#endif
