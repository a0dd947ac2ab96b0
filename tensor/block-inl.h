// SPDX-License-Identifier: Apache-2.0
// Block<T>: 16 neighbouring elements of a row in as many registers as the target needs. Kernels written with blocks do the same
// additions in the same order on every target: element i of a row meets lane i % 16, lanes are folded by one tree.
#include "tensor/math-inl.h"
#include "tensor/simd-inl.h"

#if defined(HEED_TENSOR_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_BLOCK_INL_H_
#undef HEED_TENSOR_BLOCK_INL_H_
#else
#define HEED_TENSOR_BLOCK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> struct Block {
  using D = hn::CappedTag<T, 16>;
  using V = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kRegisters = 16 / kLanes;
  V v[kRegisters];
  Block() {}   // g++ would make one for no target
};

#undef HEED_UNROLL_REGISTERS
#if HEED_OLD_TARGET
#define HEED_UNROLL_REGISTERS
#else
#define HEED_UNROLL_REGISTERS HWY_UNROLL(16)
#endif
#define HEED_EACH_REGISTER HEED_UNROLL_REGISTERS for (size_t r = 0; r < Block<T>::kRegisters; ++r)

template <class T> HWY_INLINE Block<T> Set16(T value) {
  Block<T> y;
  HEED_EACH_REGISTER y.v[r] = hn::Set(typename Block<T>::D(), value);
  return y;
}
template <class T> HWY_INLINE Block<T> Load16(const T* x) {
  Block<T> y;
  HEED_EACH_REGISTER y.v[r] = hn::LoadU(typename Block<T>::D(), x + r * Block<T>::kLanes);
  return y;
}
template <class T> HWY_INLINE void Store16(const Block<T>& x, T* y) {
  HEED_EACH_REGISTER hn::StoreU(x.v[r], typename Block<T>::D(), y + r * Block<T>::kLanes);
}

// x[0..n-1], then `fill`; reads nothing beyond
template <class T> HWY_INLINE Block<T> LoadN16(const T* x, size_t n, T fill = 0) {
  if (n >= 16) return Load16(x);
#if HEED_LANE_MASKS
  const typename Block<T>::D d;
  Block<T> y;
  HEED_EACH_REGISTER {
    const auto mask = hn::FirstN(d, n - HWY_MIN(n, r * Block<T>::kLanes));
    y.v[r] = hn::IfThenElse(mask, hn::MaskedLoad(mask, d, x + r * Block<T>::kLanes), hn::Set(d, fill));
  }
  return y;
#else
  T buffer[16];
  for (size_t i = 0; i < 16; ++i) buffer[i] = i < n ? x[i] : fill;
  return Load16(buffer);
#endif
}
template <class T> HWY_INLINE void StoreN16(const Block<T>& x, size_t n, T* y) {
  if (n >= 16) return Store16(x, y);
#if HEED_LANE_MASKS
  const typename Block<T>::D d;
  HEED_EACH_REGISTER hn::BlendedStore(x.v[r], hn::FirstN(d, n - HWY_MIN(n, r * Block<T>::kLanes)), d, y + r * Block<T>::kLanes);
#else
  T buffer[16];
  Store16(x, buffer);
  for (size_t i = 0; i < n; ++i) y[i] = buffer[i];
#endif
}

template <class T> HWY_INLINE Block<T> operator+(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Add(a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> operator-(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Sub(a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> operator*(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Mul(a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> operator/(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Div(a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> MulAdd16(Block<T> a, const Block<T>& b, const Block<T>& c) {  // a b + c
  HEED_EACH_REGISTER a.v[r] = hn::MulAdd(a.v[r], b.v[r], c.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> Sqrt16(Block<T> a) {
  HEED_EACH_REGISTER a.v[r] = hn::Sqrt(a.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> Exp16(Block<T> a) {
  HEED_EACH_REGISTER a.v[r] = math::Exp(typename Block<T>::D(), a.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> Log16(Block<T> a) {
  HEED_EACH_REGISTER a.v[r] = math::Log(typename Block<T>::D(), a.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> Max16(Block<T> a, const Block<T>& b) {   // either one if one is NaN
  HEED_EACH_REGISTER a.v[r] = hn::Max(a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> Min16(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Min(a.v[r], b.v[r]);
  return a;
}
// lanes where bits is set keep a, others take b; bits are all ones or all zeros a lane
template <class T> HWY_INLINE Block<T> Choose16(const Block<T>& bits, Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::IfVecThenElse(bits.v[r], a.v[r], b.v[r]);
  return a;
}
template <class T> HWY_INLINE Block<T> And16(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::And(a.v[r], b.v[r]);
  return a;
}

template <class T> HWY_INLINE Block<T> Or16(Block<T> a, const Block<T>& b) {
  HEED_EACH_REGISTER a.v[r] = hn::Or(a.v[r], b.v[r]);
  return a;
}

// Not Iota: of floats g++ 12 makes it one number after another, in memory.
template <class T> alignas(64) constexpr T kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// All ones in the lanes where first <= lane < last
template <class T> HWY_INLINE Block<T> LanesBetween(ptrdiff_t first, ptrdiff_t last) {
  const typename Block<T>::D d;
  Block<T> y;
  HEED_EACH_REGISTER {
    const auto lane = hn::Load(d, kLaneNumbers<T> + r * Block<T>::kLanes);
    y.v[r] = hn::VecFromMask(d, hn::And(hn::Ge(lane, hn::Set(d, T(first))), hn::Lt(lane, hn::Set(d, T(last)))));
  }
  return y;
}
// All ones in the lanes where first <= value < last
template <class T> HWY_INLINE Block<T> Within16(const Block<T>& first, const Block<T>& last, T value) {
  const typename Block<T>::D d;
  Block<T> y;
  HEED_EACH_REGISTER y.v[r] = hn::VecFromMask(d, hn::And(hn::Le(first.v[r], hn::Set(d, value)), hn::Gt(last.v[r], hn::Set(d, value))));
  return y;
}
// All ones in the lanes where x is a multiple of n; whole numbers both
template <class T> HWY_INLINE Block<T> Multiple16(const Block<T>& x, const Block<T>& n) {
  const typename Block<T>::D d;
  Block<T> y;
  HEED_EACH_REGISTER y.v[r] = hn::VecFromMask(d, hn::Eq(hn::Mul(hn::Floor(hn::Div(x.v[r], n.v[r])), n.v[r]), x.v[r]));
  return y;
}
// All ones in the lanes where x > 0
template <class T> HWY_INLINE Block<T> Positive16(Block<T> x) {
  const typename Block<T>::D d;
  HEED_EACH_REGISTER x.v[r] = hn::VecFromMask(d, hn::Gt(x.v[r], hn::Zero(d)));
  return x;
}
// All ones in the lanes of the block at element i that lie in [first, last) and whose byte, if there are bytes, is not 0
template <class T> HWY_INLINE Block<T> LanesAllowed(ptrdiff_t first, ptrdiff_t last, const uint8_t* bytes, ptrdiff_t i) {
  const Block<T> range = LanesBetween<T>(first - i, last - i);
  if (!bytes) return range;
  T lanes[16];
  for (ptrdiff_t lane = 0; lane < 16; ++lane) lanes[lane] = i + lane < last && bytes[i + lane] ? T(1) : T(0);
  return And16(range, Positive16(Load16(lanes)));
}

struct LargerOp {   // either one if one is NaN
  template <class D, class V> static HWY_INLINE V f(D, V a, V b) { return hn::Max(a, b); }
};
// The fold: halves are combined until one lane is left.
template <class Op, class T> HWY_INLINE T Fold16(Block<T> x) {
  const typename Block<T>::D d;
  HWY_UNROLL(4)
  for (size_t half = Block<T>::kRegisters / 2; half > 0; half /= 2) {
    HWY_UNROLL(8)
    for (size_t r = 0; r < half; ++r) x.v[r] = Op::f(d, x.v[r], x.v[r + half]);
  }
  return FoldLanes<Op>(d, x.v[0]);
}
template <class T> HWY_INLINE T Sum16(const Block<T>& x) { return Fold16<SumOp>(x); }
template <class T> HWY_INLINE T MaxLane16(const Block<T>& x) { return Fold16<LargerOp>(x); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
