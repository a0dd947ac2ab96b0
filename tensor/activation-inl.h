// SPDX-License-Identifier: Apache-2.0
// Activations whose limits need care, for the ops and for what is fused into a layer: x σ(..) at ±inf is 0 or x, not NaN.
#include "tensor/math-inl.h"

#if defined(HEED_TENSOR_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_ACTIVATION_INL_H_
#undef HEED_TENSOR_ACTIVATION_INL_H_
#else
#define HEED_TENSOR_ACTIVATION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {
namespace math {

template <class D> HWY_INLINE hn::Vec<D> AtLeast(D d, double low, hn::Vec<D> x) {   // NaN stays NaN, here and below
  return hn::IfThenElse(hn::Lt(x, Constant(d, low)), Constant(d, low), x);
}
template <class D> HWY_INLINE hn::Vec<D> AtMost(D d, double high, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Gt(x, Constant(d, high)), Constant(d, high), x);
}

// x σ(2u), u = √(2/π) (x + 0.044715 x³);   σ + x σ (1 - σ) 2u'.   Beyond ±60 the sigmoid is 0 or 1.
constexpr double kGeluScale = 1.5957691216057308, kGeluCubic = 0.044715;   // 2 √(2/π)
template <class D> HWY_INLINE hn::Vec<D> GeluGate(D d, hn::Vec<D> x) {
  return Sigmoid(d, hn::Mul(x, hn::MulAdd(hn::Mul(x, x), Constant(d, kGeluScale * kGeluCubic), Constant(d, kGeluScale))));
}
template <class D> HEED_HOT hn::Vec<D> GeluTanh(D d, hn::Vec<D> x) {
  const auto above = AtLeast(d, -60, x);
  return hn::Mul(above, GeluGate(d, above));
}
template <class D> HEED_HOT hn::Vec<D> GeluTanhDerivative(D d, hn::Vec<D> s) {
  const auto x = AtMost(d, 60, AtLeast(d, -60, s)), gate = GeluGate(d, x);
  const auto slope = hn::MulAdd(hn::Mul(x, x), Constant(d, 3 * kGeluScale * kGeluCubic), Constant(d, kGeluScale));
  return hn::MulAdd(hn::Mul(x, gate), hn::Mul(hn::Sub(Constant(d, 1), gate), slope), gate);
}

// x σ(x);   σ + x σ (1 - σ)
template <class D> HEED_HOT hn::Vec<D> Silu(D d, hn::Vec<D> x) { return hn::Mul(AtLeast(d, -1000, x), Sigmoid(d, x)); }
template <class D> HEED_HOT hn::Vec<D> SiluDerivative(D d, hn::Vec<D> s) {
  const auto e = Exp(d, hn::Neg(s)), gate = hn::Div(Constant(d, 1), hn::Add(e, Constant(d, 1)));
  // 1 - σ(x), exact for large x
  const auto rest = hn::IfThenElse(hn::Gt(s, hn::Zero(d)), hn::Mul(e, gate), hn::Sub(Constant(d, 1), gate));
  return hn::MulAdd(hn::Mul(AtMost(d, 1000, AtLeast(d, -1000, s)), gate), rest, gate);
}

}  // namespace math
}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
