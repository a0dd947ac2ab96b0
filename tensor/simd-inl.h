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

#ifndef HWY_DYNAMIC_POINTER   // not in Highway 1.0.3
#define HWY_DYNAMIC_POINTER(FUNC_NAME) (&HWY_DYNAMIC_DISPATCH(FUNC_NAME))
#endif

#if defined(HEED_TENSOR_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_SIMD_INL_H_
#undef HEED_TENSOR_SIMD_INL_H_
#else
#define HEED_TENSOR_SIMD_INL_H_
#endif

// Targets of old machines: one short form of everything, which does not take long to compile.
#undef HEED_OLD_TARGET
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4)
#define HEED_OLD_TARGET 1
#else
#define HEED_OLD_TARGET 0
#endif

// Loads and stores of some lanes, of 4 or 8 bytes, that touch no other.
#undef HEED_LANE_MASKS
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
#define HEED_LANE_MASKS 1
#else
#define HEED_LANE_MASKS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes; f64 has half as many a register.
template <class T> using Lanes16 = hn::CappedTag<T, 16>;

// The first n < Lanes(d) elements at p, the other lanes 0; nothing beyond them is read or changed.
#if HEED_LANE_MASKS
template <class D> HWY_INLINE hn::Vec<D> LoadFew(D d, const hn::TFromD<D>* p, size_t n) { return hn::MaskedLoad(hn::FirstN(d, n), d, p); }
template <class D> HWY_INLINE void StoreFew(hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t n) { hn::BlendedStore(v, hn::FirstN(d, n), d, p); }
#else
template <class D> HWY_NOINLINE hn::Vec<D> LoadFew(D d, const hn::TFromD<D>* p, size_t n) {
  hn::TFromD<D> lanes[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::LoadU(d, lanes);
}
template <class D> HWY_NOINLINE void StoreFew(hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t n) {
  hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::StoreU(v, d, lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}
#endif
// A vector of a row with n elements left: loops over i < n in steps of a vector need no other form for its end.
template <class D> HWY_INLINE hn::Vec<D> LoadFirst(D d, const hn::TFromD<D>* p, size_t n) {
  return HWY_LIKELY(n >= hn::Lanes(d)) ? hn::LoadU(d, p) : LoadFew(d, p, n);
}
template <class D> HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t n) {
  if (HWY_LIKELY(n >= hn::Lanes(d))) hn::StoreU(v, d, p);
  else StoreFew(v, d, p, n);
}

// What steps by a vector or, where step is 0, stays: the number at `at` is spread over one.
template <class T> class Stepping {
 public:
  HWY_INLINE Stepping(const T* at, size_t step) : at_(step ? at : number_), step_(step) {
    const hn::ScalableTag<T> d;
    if (!step) hn::Store(hn::Set(d, *at), d, number_);
  }
  Stepping(const Stepping&) = delete;   // may point into itself
  Stepping& operator=(const Stepping&) = delete;
  HWY_INLINE const T* operator+(size_t i) const { return at_ + i * step_; }

 private:
  HWY_ALIGN T number_[hn::MaxLanes(hn::ScalableTag<T>())];
  const T* at_;
  size_t step_;
};

// y[i] = F::f(d, x[i], more...). y may be x.
template <class F, class T, class... More> HWY_INLINE void Map(const T* x, size_t n, T* y, More... more) {
  const hn::ScalableTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) StoreFirst(F::f(d, LoadFirst(d, x + i, n - i), more...), d, y + i, n - i);
}
// z[i] = F::f(d, x[i], y[i], more...), x and y pointers or Stepping
template <class F, class X, class Y, class T, class... More> HWY_INLINE void Map2(const X& x, const Y& y, size_t n, T* z, More... more) {
  const hn::ScalableTag<T> d;
  size_t i = 0;
  for (; i + 2 * hn::Lanes(d) <= n; i += 2 * hn::Lanes(d)) {
    const auto first = F::f(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i), more...);
    const auto second = F::f(d, hn::LoadU(d, x + (i + hn::Lanes(d))), hn::LoadU(d, y + (i + hn::Lanes(d))), more...);
    hn::StoreU(first, d, z + i);
    hn::StoreU(second, d, z + i + hn::Lanes(d));
  }
  for (; i < n; i += hn::Lanes(d)) StoreFirst(F::f(d, LoadFirst(d, x + i, n - i), LoadFirst(d, y + i, n - i), more...), d, z + i, n - i);
}

// c = a b + c in c's register: of MulAdd in a long loop g++ 12 puts sums into others, and moves them back.
template <class V> HWY_INLINE void MulAddTo(V a, V b, V& c) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(hn::TFromV<V>) == 4) asm("vfmadd231ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
  else asm("vfmadd231pd %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
#else
  c = hn::MulAdd(a, b, c);
#endif
}

// max and min of which NaN is the winner, unlike hn::Max and hn::Min; of two zeros the first one.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128   // hn::Max(b, a) is a where one is NaN, and of two zeros
template <class D, class V = hn::Vec<D>> HWY_INLINE V MaxOrNaN(D, V a, V b) { return hn::IfThenElse(hn::IsNaN(b), b, hn::Max(b, a)); }
template <class D, class V = hn::Vec<D>> HWY_INLINE V MinOrNaN(D, V a, V b) { return hn::IfThenElse(hn::IsNaN(b), b, hn::Min(b, a)); }
#else
template <class D, class V = hn::Vec<D>> HWY_INLINE V MaxOrNaN(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
}
template <class D, class V = hn::Vec<D>> HWY_INLINE V MinOrNaN(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
}
#endif

// ---- reductions --------------------------------------------------------------------------------------------------------
// A reduction over a row keeps 16 virtual lanes in 16 / Lanes registers: element i goes to lane i % 16, in rising i. Lanes are folded
// in halves: l + (l + 8), then + 4, + 2, + 1. So the bits do not depend on the vector width.
struct SumOp {
  static constexpr double kNeutral = 0;
  template <class D, class V> static HWY_INLINE V f(D, V a, V b) { return hn::Add(a, b); }
};
struct ProductOp {
  static constexpr double kNeutral = 1;
  template <class D, class V> static HWY_INLINE V f(D, V a, V b) { return hn::Mul(a, b); }
};
struct MaxOp {
  static constexpr double kNeutral = -__builtin_inf();
  template <class D, class V> static HWY_INLINE V f(D d, V a, V b) { return MaxOrNaN(d, a, b); }
};
struct MinOp {
  static constexpr double kNeutral = __builtin_inf();
  template <class D, class V> static HWY_INLINE V f(D d, V a, V b) { return MinOrNaN(d, a, b); }
};

template <class Op, class D> HWY_INLINE hn::TFromD<D> FoldLanes(D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> dh;
    return FoldLanes<Op>(dh, Op::f(dh, hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
#endif
  (void)d;
  return hn::GetLane(v);
}

// 16 virtual lanes of a running reduction.
template <class Op, class T> class Lanes16Of {
  using D = Lanes16<T>;
  static constexpr size_t kRegisters = 16 / hn::MaxLanes(D());

 public:
  HWY_INLINE Lanes16Of() {
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRegisters; ++r) v_[r] = hn::Set(D(), T(Op::kNeutral));
  }
  // The 16 elements x[0..15], each through F::f(d, x, more...).
  template <class F, class... More> HWY_INLINE void Take(const T* x, More... more) {
    const D d;
    TakeEach([&](size_t r) HWY_ATTR { return F::f(d, hn::LoadU(d, x + r * hn::MaxLanes(d)), more...); });
  }
  // 16 elements, those of register r: elements(r).
  template <class Elements> HWY_INLINE void TakeEach(const Elements& elements) {
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRegisters; ++r) v_[r] = Op::f(D(), v_[r], elements(r));
  }
  // The first n < 16 of them.
  template <class F, class... More> HWY_INLINE void TakeFirst(const T* x, size_t n, More... more) {
    const D d;
    constexpr size_t kLanes = hn::MaxLanes(D());
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRegisters; ++r) {
      const size_t left = n > r * kLanes ? HWY_MIN(n - r * kLanes, kLanes) : 0;
      v_[r] = Op::f(d, v_[r],
                    hn::IfThenElse(hn::FirstN(d, left), F::f(d, LoadFirst(d, x + r * kLanes, left), more...), hn::Set(d, T(Op::kNeutral))));
    }
  }
  HWY_INLINE T Fold() {
    const D d;
    HWY_UNROLL(4)
    for (size_t half = kRegisters / 2; half > 0; half /= 2) {
      HWY_UNROLL(8)
      for (size_t r = 0; r < half; ++r) v_[r] = Op::f(d, v_[r], v_[r + half]);
    }
    return FoldLanes<Op>(d, v_[0]);
  }

 private:
  hn::Vec<D> v_[kRegisters];
};

struct Same {  // x
  template <class D, class V> static HWY_INLINE V f(D, V x) { return x; }
};
struct Squared {  // x²
  template <class D, class V> static HWY_INLINE V f(D, V x) { return hn::Mul(x, x); }
};

// Op over F::f(d, x[i], more...), i < n
template <class Op, class F = Same, class T, class... More> HWY_INLINE T Reduce(const T* x, size_t n, More... more) {
  Lanes16Of<Op, T> lanes;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) lanes.template Take<F>(x + i, more...);
  if (i < n) lanes.template TakeFirst<F>(x + i, n - i, more...);
  return lanes.Fold();
}

// Σ F::f(d, x[i]) of floats, in double
template <class F> HWY_INLINE double SumInDouble(const float* x, size_t n) {
  double wide[16];
  Lanes16Of<SumOp, double> lanes;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) wide[j] = double(x[i + j]);
    lanes.template Take<F>(wide);
  }
  for (size_t j = 0; j < 16; ++j) wide[j] = i + j < n ? double(x[i + j]) : 0;
  lanes.template Take<F>(wide);
  return lanes.Fold();
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
