// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent_step.h"

#define HWY_TARGET_INCLUDE "tensor/ops/recurrent_step.cc"
#include "tensor/math-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Units j, j + 1, ... of which n are left.
struct Units {
  size_t n;
  template <class D> HWY_INLINE hn::Vec<D> Load(D d, const hn::TFromD<D>* p) const { return LoadFirst(d, p, n); }
  template <class D> HWY_INLINE void Store(D d, hn::Vec<D> v, hn::TFromD<D>* p) const { StoreFirst(v, d, p, n); }
};

// u + b of a gate, and a + (u + b)
template <class D, class T> HWY_INLINE hn::Vec<D> FromState(D d, Units m, const StepRow<T>& row, Index gate, size_t j) {
  const auto u = m.Load(d, row.u + gate * row.u_block + j);
  return row.bias ? hn::Add(u, m.Load(d, row.bias + gate * row.block + j)) : u;
}
template <class D, class T> HWY_INLINE hn::Vec<D> Sum(D d, Units m, const StepRow<T>& row, Index gate, size_t j) {
  return hn::Add(m.Load(d, row.a + gate * row.block + j), FromState(d, m, row, gate, j));
}
template <class D, class T> HWY_INLINE void Keep(D d, Units m, hn::Vec<D> v, const StepRow<T>& row, Index gate, size_t j) {
  m.Store(d, v, row.gates + gate * row.block + j);
}
template <class D, class T> HWY_INLINE void KeepState(D d, Units m, hn::Vec<D> h, const StepRow<T>& row, size_t j) {
  m.Store(d, h, row.next_h + j);
  if (row.output) m.Store(d, h, row.output + j);
}

template <class D, class T> HWY_INLINE hn::Vec<D> GateOf(D d, Units m, const StepRowGrad<T>& row, Index gate, size_t j) {
  return m.Load(d, row.gates + gate * row.block + j);
}
template <class D, class T> HWY_INLINE hn::Vec<D> GradOfState(D d, Units m, const StepRowGrad<T>& row, size_t j) {
  const auto dh = m.Load(d, row.dh + j);
  return row.dy ? hn::Add(dh, m.Load(d, row.dy + j)) : dh;
}
template <class D, class T> HWY_INLINE void Give(D d, Units m, hn::Vec<D> da, const StepRowGrad<T>& row, Index gate, size_t j) {
  m.Store(d, da, row.gates + gate * row.block + j);
  if (row.da) m.Store(d, da, row.da + gate * row.block + j);
}
template <class D> HWY_INLINE hn::Vec<D> OneMinus(D d, hn::Vec<D> x) { return hn::Sub(hn::Set(d, 1), x); }
template <class D> HWY_INLINE hn::Vec<D> SigmoidSlope(D d, hn::Vec<D> y) { return hn::Mul(y, OneMinus(d, y)); }
template <class D> HWY_INLINE hn::Vec<D> TanhSlope(D d, hn::Vec<D> y) { return hn::NegMulAdd(y, y, hn::Set(d, 1)); }

// f: the step; df: its gradient. Where the candidate waits for the product with r ⊙ h, Second is their second half.
struct TanhUnit {
  template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
    const auto h = math::Tanh(d, Sum(d, m, row, 0, j));
    Keep(d, m, h, row, 0, j);
    KeepState(d, m, h, row, j);
  }
  template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
    Give(d, m, hn::Mul(GradOfState(d, m, row, j), TanhSlope(d, GateOf(d, m, row, 0, j))), row, 0, j);
  }
};
struct ReluUnit {
  template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
    const auto s = Sum(d, m, row, 0, j), h = hn::IfThenElse(hn::Lt(s, hn::Zero(d)), hn::Zero(d), s);   // NaN stays NaN
    Keep(d, m, h, row, 0, j);
    KeepState(d, m, h, row, j);
  }
  template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
    Give(d, m, hn::IfThenZeroElse(hn::Le(GateOf(d, m, row, 0, j), hn::Zero(d)), GradOfState(d, m, row, j)), row, 0, j);
  }
};

struct LstmUnit {
  // c' = f c + i g,  h' = o tanh c'
  template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
    const auto i = math::Sigmoid(d, Sum(d, m, row, 0, j)), f = math::Sigmoid(d, Sum(d, m, row, 1, j));
    const auto g = math::Tanh(d, Sum(d, m, row, 2, j)), o = math::Sigmoid(d, Sum(d, m, row, 3, j));
    const auto c = hn::MulAdd(f, m.Load(d, row.c + j), hn::Mul(i, g));
    Keep(d, m, i, row, 0, j);
    Keep(d, m, f, row, 1, j);
    Keep(d, m, g, row, 2, j);
    Keep(d, m, o, row, 3, j);
    m.Store(d, c, row.next_c + j);
    KeepState(d, m, hn::Mul(o, math::Tanh(d, c)), row, j);
  }
  template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
    const auto i = GateOf(d, m, row, 0, j), f = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j), o = GateOf(d, m, row, 3, j);
    const auto c = m.Load(d, row.c + j), t = math::Tanh(d, hn::MulAdd(f, c, hn::Mul(i, g))), dh = GradOfState(d, m, row, j);
    const auto dc = hn::MulAdd(hn::Mul(dh, o), TanhSlope(d, t), m.Load(d, row.dc + j));
    Give(d, m, hn::Mul(hn::Mul(dc, g), SigmoidSlope(d, i)), row, 0, j);
    Give(d, m, hn::Mul(hn::Mul(dc, c), SigmoidSlope(d, f)), row, 1, j);
    Give(d, m, hn::Mul(hn::Mul(dc, i), TanhSlope(d, g)), row, 2, j);
    Give(d, m, hn::Mul(hn::Mul(dh, t), SigmoidSlope(d, o)), row, 3, j);
    m.Store(d, hn::Mul(dc, f), row.dc + j);
  }
};

struct CudnnUnit {
  // h' = (1-z) g + z h = g + z (h - g)
  template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
    const auto r = math::Sigmoid(d, Sum(d, m, row, 0, j)), z = math::Sigmoid(d, Sum(d, m, row, 1, j));
    const auto u = FromState(d, m, row, 2, j), g = math::Tanh(d, hn::MulAdd(r, u, m.Load(d, row.a + 2 * row.block + j)));
    const auto h = m.Load(d, row.h + j);
    Keep(d, m, r, row, 0, j);
    Keep(d, m, z, row, 1, j);
    Keep(d, m, g, row, 2, j);
    if (row.kept) m.Store(d, u, row.kept + j);
    KeepState(d, m, hn::MulAdd(z, hn::Sub(h, g), g), row, j);
  }
  template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
    const auto r = GateOf(d, m, row, 0, j), z = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j);
    const auto h = m.Load(d, row.h + j), u = m.Load(d, row.kept + j), dh = GradOfState(d, m, row, j);
    const auto da_g = hn::Mul(hn::Mul(dh, OneMinus(d, z)), TanhSlope(d, g)), du = hn::Mul(da_g, r);
    Give(d, m, hn::Mul(hn::Mul(da_g, u), SigmoidSlope(d, r)), row, 0, j);
    Give(d, m, hn::Mul(hn::Mul(dh, hn::Sub(h, g)), SigmoidSlope(d, z)), row, 1, j);
    m.Store(d, da_g, row.gates + 2 * row.block + j);
    m.Store(d, du, row.kept + j);
    if (row.da) m.Store(d, du, row.da + 2 * row.block + j);
    m.Store(d, hn::Mul(dh, z), row.dh + j);
  }
};
template <bool kCho> struct PaperUnit {
  // next_h takes r ⊙ h
  template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
    const auto r = math::Sigmoid(d, Sum(d, m, row, 0, j)), q = hn::Mul(r, m.Load(d, row.h + j));
    Keep(d, m, r, row, 0, j);
    Keep(d, m, math::Sigmoid(d, Sum(d, m, row, 1, j)), row, 1, j);
    m.Store(d, q, row.next_h + j);
    if (row.kept) m.Store(d, q, row.kept + j);
  }
  // dh = dh' ⊙ (the part of h that stays)
  template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
    const auto z = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j), h = m.Load(d, row.h + j), dh = GradOfState(d, m, row, j);
    const auto new_part = kCho ? OneMinus(d, z) : z, old_part = kCho ? z : OneMinus(d, z);
    const auto change = kCho ? hn::Sub(h, g) : hn::Sub(g, h);
    Give(d, m, hn::Mul(hn::Mul(dh, change), SigmoidSlope(d, z)), row, 1, j);
    Give(d, m, hn::Mul(hn::Mul(dh, new_part), TanhSlope(d, g)), row, 2, j);
    m.Store(d, hn::Mul(dh, old_part), row.dh + j);
  }
  struct Second {
    template <class D, class T> static HWY_INLINE void f(D d, Units m, const StepRow<T>& row, size_t j) {
      const auto g = math::Tanh(d, hn::Add(m.Load(d, row.a + 2 * row.block + j), m.Load(d, row.u + j)));
      const auto h = m.Load(d, row.h + j), z = m.Load(d, row.gates + row.block + j);
      Keep(d, m, g, row, 2, j);
      KeepState(d, m, kCho ? hn::MulAdd(z, hn::Sub(h, g), g) : hn::MulAdd(z, hn::Sub(g, h), h), row, j);
    }
    template <class D, class T> static HWY_INLINE void df(D d, Units m, const StepRowGrad<T>& row, size_t j) {
      const auto r = GateOf(d, m, row, 0, j), dq = m.Load(d, row.dq + j);
      Give(d, m, hn::Mul(hn::Mul(dq, m.Load(d, row.h + j)), SigmoidSlope(d, r)), row, 0, j);
      m.Store(d, hn::MulAdd(dq, r, m.Load(d, row.dh + j)), row.dh + j);
    }
  };
};

template <class Unit, class T> HWY_NOINLINE void ForUnits(const StepRow<T>& row) {
  const Lanes16<T> d;
  for (size_t j = 0; j < row.n; j += hn::Lanes(d)) Unit::f(d, Units{row.n - j}, row, j);
}
template <class Unit, class T> HWY_NOINLINE void ForUnitsGrad(const StepRowGrad<T>& row) {
  const Lanes16<T> d;
  for (size_t j = 0; j < row.n; j += hn::Lanes(d)) Unit::df(d, Units{row.n - j}, row, j);
}

template <class Unit, class T> RecurrentKernels<T> KernelsOf() {
  if constexpr (requires { typename Unit::Second; })
    return {&ForUnits<Unit>, &ForUnits<typename Unit::Second>, &ForUnitsGrad<Unit>, &ForUnitsGrad<typename Unit::Second>};
  else return {&ForUnits<Unit>, nullptr, &ForUnitsGrad<Unit>, nullptr};
}
template <class T> RecurrentKernels<T> Kernels(RecurrentUnit unit) {
  switch (unit) {
    case RecurrentUnit::tanh: return KernelsOf<TanhUnit, T>();
    case RecurrentUnit::relu: return KernelsOf<ReluUnit, T>();
    case RecurrentUnit::lstm: return KernelsOf<LstmUnit, T>();
    case RecurrentUnit::gru_bahdanau: return KernelsOf<PaperUnit<false>, T>();
    case RecurrentUnit::gru_cho: return KernelsOf<PaperUnit<true>, T>();
    case RecurrentUnit::gru_cudnn: break;
  }
  return KernelsOf<CudnnUnit, T>();
}
RecurrentKernels<float> KernelsF32(RecurrentUnit unit) { return Kernels<float>(unit); }
RecurrentKernels<double> KernelsF64(RecurrentUnit unit) { return Kernels<double>(unit); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);

template <> RecurrentKernels<float> recurrent_kernels(RecurrentUnit unit) { return HWY_DYNAMIC_DISPATCH(KernelsF32)(unit); }
template <> RecurrentKernels<double> recurrent_kernels(RecurrentUnit unit) { return HWY_DYNAMIC_DISPATCH(KernelsF64)(unit); }

}  // namespace heed
#endif
