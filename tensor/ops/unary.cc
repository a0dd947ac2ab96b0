// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/unary.h"

#define HWY_TARGET_INCLUDE "tensor/ops/unary.cc"
#include "tensor/activation-inl.h"
#include "tensor/math-inl.h"
#include "tensor/ops/walk.h"
#include "tensor/simd-inl.h"

#ifndef HEED_UNARY_KERNELS  // this file is read once for each target
#define HEED_UNARY_KERNELS
namespace heed {
struct UnaryKernels {
  const char* name;
  Saves saves;
  RowKernel<float> f32, grad_f32;
  RowKernel<double> f64, grad_f64;
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Each op: f(d, x, p) and df(d, s, p) = f' with s what it saves; p points to the parameters a, b.
// A new op is one struct here, its line in Pick, its name in the enum, and its line in unary.h.
#define F                              \
  template <class D, class V, class P> \
  static HWY_INLINE V f([[maybe_unused]] D d, [[maybe_unused]] V x, [[maybe_unused]] const P* p)
#define DF                             \
  template <class D, class V, class P> \
  static HWY_INLINE V df([[maybe_unused]] D d, [[maybe_unused]] V s, [[maybe_unused]] const P* p)
template <class D, class P> HWY_INLINE hn::Vec<D> C(D d, P c) { return hn::Set(d, hn::TFromD<D>(c)); }

template <Saves kSaved, bool kSelecting = false> struct Saving {
  static constexpr Saves kSaves = kSaved;
  static constexpr bool kSelects = kSelecting;   // f' is 0 or 1: dy is taken or left, so that an infinite one leaves 0
  template <class P> static bool IsFlat(const P*) { return false; }   // f' = 0 everywhere, with these parameters
};
using FromNothing = Saving<Saves::nothing>;
using FromInput = Saving<Saves::input>;
using FromOutput = Saving<Saves::output>;
struct Flat : Saving<Saves::nothing, true> { DF { return C(d, 0); } };  // f' = 0

struct Negative : FromNothing {                        // -x
  F { return hn::Neg(x); }
  DF { return C(d, -1); }
};
struct Sign : Flat { F { return hn::IfThenElse(hn::Or(hn::Gt(x, C(d, 0)), hn::Lt(x, C(d, 0))), hn::CopySign(C(d, 1), x), x); } };
struct Abs : FromInput {                               // f' = sign x
  F { return hn::Abs(x); }
  DF { return Sign::f(d, s, p); }
};
struct Exp : FromOutput {
  F { return math::Exp(d, x); }
  DF { return s; }
};
struct Expm1 : FromOutput {                            // f' = y + 1
  F { return math::Expm1(d, x); }
  DF { return hn::Add(s, C(d, 1)); }
};
struct Log : FromInput {
  F { return math::Log(d, x); }
  DF { return hn::Div(C(d, 1), s); }
};
struct Log1p : FromInput {
  F { return math::Log1p(d, x); }
  DF { return hn::Div(C(d, 1), hn::Add(s, C(d, 1))); }
};
struct Sqrt : FromOutput {                             // f' = 1 / 2y
  F { return hn::Sqrt(x); }
  DF { return hn::Div(C(d, 0.5), s); }
};
struct Square : FromInput {
  F { return hn::Mul(x, x); }
  DF { return hn::Add(s, s); }
};
struct Reciprocal : FromOutput {                       // f' = -y²
  F { return hn::Div(C(d, 1), x); }
  DF { return hn::Neg(hn::Mul(s, s)); }
};
struct Sin : FromInput {
  F { return math::Sin(d, x); }
  DF { return math::Cos(d, s); }
};
struct Cos : FromInput {
  F { return math::Cos(d, x); }
  DF { return hn::Neg(math::Sin(d, s)); }
};
struct Tanh : FromOutput {                             // f' = 1 - y²
  F { return math::Tanh(d, x); }
  DF { return hn::NegMulAdd(s, s, C(d, 1)); }
};
struct Sigmoid : FromOutput {                          // f' = y (1 - y)
  F { return math::Sigmoid(d, x); }
  DF { return hn::Mul(s, hn::Sub(C(d, 1), s)); }
};
struct LogSigmoid : FromInput {                        // f' = σ(-x)
  F { return hn::Neg(math::Softplus(d, hn::Neg(x))); }
  DF { return math::Sigmoid(d, hn::Neg(s)); }
};
struct Relu : Saving<Saves::output, true> {            // of NaN 1
  F { return hn::IfThenZeroElse(hn::Lt(x, C(d, 0)), x); }
  DF { return hn::IfThenZeroElse(hn::Le(s, C(d, 0)), C(d, 1)); }
};
struct Gelu : FromInput {                              // f' = Φ(x) + x φ(x)
  F { return math::Gelu(d, x); }
  DF { return math::GeluDerivative(d, s); }
};
struct GeluTanh : FromInput {
  F { return math::GeluTanh(d, x); }
  DF { return math::GeluTanhDerivative(d, s); }
};
struct Silu : FromInput {
  F { return math::Silu(d, x); }
  DF { return math::SiluDerivative(d, s); }
};
struct Softplus : FromInput {                          // f' = σ(x)
  F { return math::Softplus(d, x); }
  DF { return math::Sigmoid(d, s); }
};
struct Erf : FromInput {                               // f' = 2/√π e^{-x²}
  F { return math::Erf(d, x); }
  DF { return hn::Mul(math::Exp(d, hn::Neg(hn::Mul(s, s))), C(d, 1.1283791670955126)); }
};
struct Floor : Flat { F { return hn::CopySign(hn::Floor(x), x); } };   // floor(-0) = -0 on every target
struct Ceil : Flat { F { return hn::Ceil(x); } };
struct Round : Flat { F { return hn::Round(x); } };
struct Elu : FromInput {                               // f' = x > 0 ? 1 : α e^x
  F { return hn::IfThenElse(hn::Gt(x, C(d, 0)), x, hn::Mul(C(d, p[0]), math::Expm1(d, x))); }
  DF { return hn::IfThenElse(hn::Gt(s, C(d, 0)), C(d, 1), hn::Mul(C(d, p[0]), math::Exp(d, s))); }
};
struct LeakyRelu : FromInput {
  F { return hn::IfThenElse(hn::Gt(x, C(d, 0)), x, hn::Mul(C(d, p[0]), x)); }
  DF { return hn::IfThenElse(hn::Gt(s, C(d, 0)), C(d, 1), C(d, p[0])); }
};
struct Clamp : Saving<Saves::input, true> {
  F { return math::AtMost(d, p[1], math::AtLeast(d, p[0], x)); }
  DF { return hn::IfThenElseZero(hn::And(hn::Ge(s, C(d, p[0])), hn::Le(s, C(d, p[1]))), C(d, 1)); }
};
struct Pow : FromInput {                               // f' = c x^(c-1)
  template <class P> static bool IsFlat(const P* p) { return p[0] == 0; }
  F {
    if (p[0] == 2) return hn::Mul(x, x);
    if (p[0] == 3) return hn::Mul(hn::Mul(x, x), x);
    return math::Pow(d, x, C(d, p[0]));
  }
  DF {
    if (p[0] == 2) return hn::Add(s, s);
    if (p[0] == 3) return hn::Mul(hn::Mul(s, s), C(d, 3));
    return hn::Mul(C(d, p[0]), math::Pow(d, s, C(d, p[0] - 1)));
  }
};
#undef F
#undef DF

// df · dy
template <class Op> struct Chained {
  template <class D, class V, class P> static HWY_INLINE V f(D d, V s, V dy, const P* p) {
    if (Op::IsFlat(p)) return hn::Zero(d);
    const V slope = Op::df(d, s, p);
    return Op::kSelects ? hn::IfThenZeroElse(hn::Eq(slope, hn::Zero(d)), dy) : hn::Mul(dy, slope);
  }
};
template <class Op, class T> void Forward(const RowOperand<T>* x, size_t n, const T* p, T* y) {
  Map<Op>(x[0].at, x[0].step ? n : 1, y, p);
  for (size_t i = 1; !x[0].step && i < n; ++i) y[i] = y[0];
}
template <class Op, class T> void Backward(const RowOperand<T>* x, size_t n, const T* p, T* y) {
  Map2<Chained<Op>>(Stepping(x[0].at, x[0].step), Stepping(x[1].at, x[1].step), n, y, p);
}
template <class Op> UnaryKernels KernelsOf(const char* name) {
  return {name, Op::kSaves, Forward<Op, float>, Backward<Op, float>, Forward<Op, double>, Backward<Op, double>};
}

UnaryKernels Pick(Unary op) {
  switch (op) {
    case Unary::negative: return KernelsOf<Negative>("negative");
    case Unary::abs: return KernelsOf<Abs>("abs");
    case Unary::exp: return KernelsOf<Exp>("exp");
    case Unary::expm1: return KernelsOf<Expm1>("expm1");
    case Unary::log: return KernelsOf<Log>("log");
    case Unary::log1p: return KernelsOf<Log1p>("log1p");
    case Unary::sqrt: return KernelsOf<Sqrt>("sqrt");
    case Unary::square: return KernelsOf<Square>("square");
    case Unary::reciprocal: return KernelsOf<Reciprocal>("reciprocal");
    case Unary::sin: return KernelsOf<Sin>("sin");
    case Unary::cos: return KernelsOf<Cos>("cos");
    case Unary::tanh: return KernelsOf<Tanh>("tanh");
    case Unary::sigmoid: return KernelsOf<Sigmoid>("sigmoid");
    case Unary::logsigmoid: return KernelsOf<LogSigmoid>("logsigmoid");
    case Unary::relu: return KernelsOf<Relu>("relu");
    case Unary::gelu: return KernelsOf<Gelu>("gelu");
    case Unary::gelu_tanh: return KernelsOf<GeluTanh>("gelu_tanh");
    case Unary::silu: return KernelsOf<Silu>("silu");
    case Unary::softplus: return KernelsOf<Softplus>("softplus");
    case Unary::erf: return KernelsOf<Erf>("erf");
    case Unary::floor: return KernelsOf<Floor>("floor");
    case Unary::ceil: return KernelsOf<Ceil>("ceil");
    case Unary::round: return KernelsOf<Round>("round");
    case Unary::sign: return KernelsOf<Sign>("sign");
    case Unary::elu: return KernelsOf<Elu>("elu");
    case Unary::leaky_relu: return KernelsOf<LeakyRelu>("leaky_relu");
    case Unary::clamp: return KernelsOf<Clamp>("clamp");
    case Unary::pow: break;
  }
  return KernelsOf<Pow>("pow");
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>

#include "tensor/format.h"
#include "tensor/ops/kernel.h"

namespace heed {
HWY_EXPORT(Pick);

namespace {

constexpr Index kCost = 2;

}  // namespace

const char* name(Unary op) { return HWY_DYNAMIC_DISPATCH(Pick)(op).name; }
Saves saves(Unary op) { return HWY_DYNAMIC_DISPATCH(Pick)(op).saves; }

namespace {

Tensor unary_of(Unary op, const Tensor& x, double a, double b, bool in_place) {
  const UnaryKernels kernels = HWY_DYNAMIC_DISPATCH(Pick)(op);
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", kernels.name);
  if (in_place) check_writable(kernels.name, x);
  return visit_float(x.dtype(), kernels.name, [&]<class T>() {
    const Tensor y = in_place ? x : empty_like(x);
    const T parameters[] = {T(a), T(b)};
    if (op == Unary::clamp && (std::isnan(a) || std::isnan(b))) fill_(y, NAN);
    else map<T>(pick<T>(kernels.f32, kernels.f64), {x}, parameters, kCost, {y, false});
    return y;
  });
}

}  // namespace

Tensor unary(Unary op, const Tensor& x, double a, double b) { return unary_of(op, x, a, b, false); }
void clamp_(const Tensor& x, double low, double high) { unary_of(Unary::clamp, x, low, high, true); }

void unary_grad(Unary op, const Tensor& saved, const Tensor& dy, Into dx, double a, double b) {
  const UnaryKernels kernels = HWY_DYNAMIC_DISPATCH(Pick)(op);
  visit_float(dy.dtype(), kernels.name, [&]<class T>() {
    const Tensor& read = kernels.saves == Saves::nothing ? dy : saved;
    check<DTypeError>(read.dtype() == dy.dtype() && dx.tensor.dtype() == dy.dtype(), "{}: dtypes differ: saved {}, dy {}, dx {}",
                      kernels.name, read.dtype(), dy.dtype(), dx.tensor.dtype());
    check<ShapeError>(read.shape() == dy.shape() && dx.tensor.shape() == dy.shape(), "{}: shapes differ: saved {}, dy {}, dx {}",
                      kernels.name, read.shape(), dy.shape(), dx.tensor.shape());
    check_writable(kernels.name, dx.tensor);
    const T parameters[] = {T(a), T(b)};
    map<T>(pick<T>(kernels.grad_f32, kernels.grad_f64), {read, dy}, parameters, kCost, dx);
  });
}

// ---- questions ---------------------------------------------------------------------------------------------------------

namespace {

template <class F> Tensor question(const char* name, const Tensor& x, bool of_integers, F f) {
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", name);
  if (!is_float(x.dtype()) && x.dtype() != DType::bf16) return full(x.shape(), of_integers, DType::u8);
  Tensor y = empty(x.shape(), DType::u8);
  visit_any(x.dtype(), [&]<class T>() {
    using Read = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
    map_elements<std::uint8_t, T>(y, 1, [f](T v) { return std::uint8_t(f(Read(v))); }, x);
  });
  return y;
}

}  // namespace

Tensor isnan(const Tensor& x) {
  return question("isnan", x, false, [](auto v) { return v != v; });
}
Tensor isfinite(const Tensor& x) {
  return question("isfinite", x, true, [](auto v) { return v - v == 0; });
}

bool all_finite(const Tensor& x) {
  if (!is_float(x.dtype())) return x.dtype() != DType::bf16 || all_finite(to(x, DType::f32));
  std::atomic<bool> finite{true};
  visit_float(x.dtype(), "all_finite", [&]<class T>() {
    const T* const data = x.data<T>();
    walk(x.shape(), {broadcast_strides(x, x.shape())}, 1, [&](const Piece& piece) {
      for (Index r = 0; r < piece.rows && finite.load(std::memory_order_relaxed); ++r) {
        const T* const row = data + piece.offset[0] + r * piece.row[0];
        T sum = 0;  // of x - x: 0, or NaN once an infinity or a NaN was met; order does not matter
        if (piece.step[0] == 1) for (Index i = 0; i < piece.n; ++i) sum += row[i] - row[i];
        else for (Index i = 0; i < piece.n; ++i) sum += row[i * piece.step[0]] - row[i * piece.step[0]];
        if (!(sum == 0)) finite.store(false, std::memory_order_relaxed);
      }
    });
  });
  return finite;
}

}  // namespace heed
#endif
