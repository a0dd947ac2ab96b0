// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/binary.h"

#define HWY_TARGET_INCLUDE "tensor/ops/binary.cc"
#include "tensor/math-inl.h"
#include "tensor/ops/walk.h"
#include "tensor/simd-inl.h"

#ifndef HEED_BINARY_KERNELS  // this file is read once for each target
#define HEED_BINARY_KERNELS
namespace heed {
struct BinaryKernels {
  const char* name;
  RowKernel<float> f32, da_f32, db_f32;
  RowKernel<double> f64, da_f64, db_f64;
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Each op: f(d, a, b), and da = dy ∂y/∂a, db = dy ∂y/∂b from (d, a, b, y, dy).
#define F template <class D, class V> static HWY_INLINE V f([[maybe_unused]] D d, V a, V b)
#define DA                    \
  template <class D, class V> \
  static HWY_INLINE V da([[maybe_unused]] D d, [[maybe_unused]] V a, [[maybe_unused]] V b, [[maybe_unused]] V y, V dy)
#define DB                    \
  template <class D, class V> \
  static HWY_INLINE V db([[maybe_unused]] D d, [[maybe_unused]] V a, [[maybe_unused]] V b, [[maybe_unused]] V y, V dy)
template <class D> HWY_INLINE hn::Vec<D> C(D d, double c) { return hn::Set(d, hn::TFromD<D>(c)); }

struct Add {
  F { return hn::Add(a, b); }
  DA { return dy; }
  DB { return dy; }
};
struct Subtract {
  F { return hn::Sub(a, b); }
  DA { return dy; }
  DB { return hn::Neg(dy); }
};
struct Multiply {
  F { return hn::Mul(a, b); }
  DA { return hn::Mul(dy, b); }
  DB { return hn::Mul(dy, a); }
};
struct Divide {                        // ∂y/∂b = -y / b
  F { return hn::Div(a, b); }
  DA { return hn::Div(dy, b); }
  DB { return hn::Neg(hn::Mul(dy, hn::Div(y, b))); }
};
// dy where `mine` won, half of it at a tie; NaN took neither or both
template <class M, class D, class V> HWY_INLINE V Share(D d, M mine, M tie, V dy) {
  return hn::IfThenElseZero(hn::Or(mine, tie), hn::IfThenElse(tie, hn::Mul(dy, C(d, 0.5)), dy));
}
struct Maximum {
  F { return MaxOrNaN(d, a, b); }
  DA { return Share(d, hn::Or(hn::Gt(a, b), hn::IsNaN(a)), hn::Eq(a, b), dy); }
  DB { return Share(d, hn::Or(hn::Gt(b, a), hn::IsNaN(b)), hn::Eq(a, b), dy); }
};
struct Minimum {
  F { return MinOrNaN(d, a, b); }
  DA { return Share(d, hn::Or(hn::Lt(a, b), hn::IsNaN(a)), hn::Eq(a, b), dy); }
  DB { return Share(d, hn::Or(hn::Lt(b, a), hn::IsNaN(b)), hn::Eq(a, b), dy); }
};
struct Pow {                           // ∂y/∂a = b a^(b-1), 0 for b = 0;  ∂y/∂b = y ln a, 0 for a = 0 and b >= 0
  F { return math::Pow(d, a, b); }
  DA { return hn::IfThenZeroElse(hn::Eq(b, C(d, 0)), hn::Mul(dy, hn::Mul(b, math::Pow(d, a, hn::Sub(b, C(d, 1)))))); }
  DB {
    const auto flat = hn::And(hn::Eq(a, C(d, 0)), hn::Ge(b, C(d, 0)));
    return hn::IfThenZeroElse(flat, hn::Mul(dy, hn::Mul(y, math::Log(d, a))));
  }
};
struct Atan2 {                        // ∂y/∂a = b / (a² + b²), ∂y/∂b = -a / (a² + b²), both 0 at the origin
  template <class D, class V> static HWY_INLINE V Over(D d, V top, V a, V b, V dy) {
    // brought by a power of two to where squares neither vanish nor overflow
    const V most = hn::Max(hn::Abs(a), hn::Abs(b));
    const auto small = hn::Lt(most, math::Constant(d, 0x1p-40, 0x1p-400)), large = hn::Gt(most, math::Constant(d, 0x1p40, 0x1p400));
    const V scale =
        hn::IfThenElse(small, math::Constant(d, 0x1p100, 0x1p700), hn::IfThenElse(large, math::Constant(d, 0x1p-80, 0x1p-600), C(d, 1)));
    const V a_scaled = hn::Mul(a, scale), b_scaled = hn::Mul(b, scale),
            square = hn::MulAdd(a_scaled, a_scaled, hn::Mul(b_scaled, b_scaled));
    return hn::IfThenZeroElse(hn::Eq(square, C(d, 0)), hn::Mul(dy, hn::Mul(hn::Div(hn::Mul(top, scale), square), scale)));
  }
  F { return math::Atan2(d, a, b); }
  DA { return Over(d, b, a, b, dy); }
  DB { return Over(d, hn::Neg(a), a, b, dy); }
};
struct LogAddExp {                    // max(a, b) + ln(1 + e^-|a - b|);  ∂y/∂a = σ(a - b), ∂y/∂b = σ(b - a)
  // a - b, of equal infinities too
  template <class D, class V> static HWY_INLINE V Less(D, V a, V b) { return hn::IfThenZeroElse(hn::Eq(a, b), hn::Sub(a, b)); }
  F { return hn::Add(MaxOrNaN(d, a, b), math::Log1p(d, math::Exp(d, hn::Neg(hn::Abs(Less(d, a, b)))))); }
  DA { return hn::Mul(dy, math::Sigmoid(d, Less(d, a, b))); }
  DB { return hn::Mul(dy, math::Sigmoid(d, Less(d, b, a))); }
};
#undef F
#undef DA
#undef DB

template <class Op, class T> void Forward(const RowOperand<T>* x, size_t n, const T*, T* y) {
  Map2<Op>(Stepping(x[0].at, x[0].step), Stepping(x[1].at, x[1].step), n, y);
}
template <class Op, int kSide, class D, class V = hn::Vec<D>> HWY_INLINE V Derivative(D d, V a, V b, V y, V dy) {
  if constexpr (kSide == 0) return Op::da(d, a, b, y, dy);
  else return Op::db(d, a, b, y, dy);
}
// x: a, b, y, dy
template <class Op, int kSide, class T> void Backward(const RowOperand<T>* x, size_t n, const T*, T* out) {
  const hn::ScalableTag<T> d;
  const Stepping<T> a(x[0].at, x[0].step), b(x[1].at, x[1].step), y(x[2].at, x[2].step), dy(x[3].at, x[3].step);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const size_t left = n - i;
    const auto value = Derivative<Op, kSide>(d, LoadFirst(d, a + i, left), LoadFirst(d, b + i, left), LoadFirst(d, y + i, left),
                                             LoadFirst(d, dy + i, left));
    StoreFirst(value, d, out + i, left);
  }
}
template <class Op> BinaryKernels KernelsOf(const char* name) {
  return {name, Forward<Op, float>, Backward<Op, 0, float>, Backward<Op, 1, float>,
          Forward<Op, double>, Backward<Op, 0, double>, Backward<Op, 1, double>};
}

BinaryKernels Pick(Binary op) {
  switch (op) {
    case Binary::add: return KernelsOf<Add>("add");
    case Binary::subtract: return KernelsOf<Subtract>("subtract");
    case Binary::multiply: return KernelsOf<Multiply>("multiply");
    case Binary::divide: return KernelsOf<Divide>("divide");
    case Binary::maximum: return KernelsOf<Maximum>("maximum");
    case Binary::minimum: return KernelsOf<Minimum>("minimum");
    case Binary::pow: return KernelsOf<Pow>("pow");
    case Binary::atan2: return KernelsOf<Atan2>("atan2");
    case Binary::logaddexp: break;
  }
  return KernelsOf<LogAddExp>("logaddexp");
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "tensor/format.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/reduce.h"
#include "tensor/row.h"

namespace heed {
HWY_EXPORT(Pick);

namespace {

constexpr Index kCost = 2;

void check_defined(std::string_view name, const Tensor& a, const Tensor& b) {
  check<Error>(a.defined() && b.defined(), "{}: a tensor is empty (default constructed)", name);
}

void check_pair(std::string_view name, const Tensor& a, const Tensor& b) {
  check_defined(name, a, b);
  check<DTypeError>(a.dtype() == b.dtype(), "{}: dtypes differ: a {}, b {}", name, a.dtype(), b.dtype());
}

// use(f) with f(a, b) of the op on integers, which wrap: chosen before any loop
template <class F> void with_integer(Binary op, F use) {
  switch (op) {
    case Binary::add: return use([](auto a, auto b) { return plus(a, b); });
    case Binary::subtract: return use([]<class T>(T a, T b) { return T(std::make_unsigned_t<T>(a) - std::make_unsigned_t<T>(b)); });
    case Binary::multiply: return use([]<class T>(T a, T b) {   // u8 would become int
      using U = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
      return T(U(a) * U(b));
    });
    case Binary::maximum: return use([](auto a, auto b) { return std::max(a, b); });
    case Binary::minimum: return use([](auto a, auto b) { return std::min(a, b); });
    default:
      return use([]<class T>(T a, T b) {
        return T(-1) < T(0) && b == T(-1) ? T(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a)) : T(a / b);
      });
  }
}

Tensor integer_binary(Binary op, std::string_view name, const Tensor& a, const Tensor& b, const Shape& shape) {
  check<DTypeError>(op != Binary::pow && op != Binary::atan2 && op != Binary::logaddexp, "{}: takes f32 or f64: {}", name, a.dtype());
  check<DTypeError>(a.dtype() != DType::bf16, "{}: takes f32, f64, i32, i64 or u8: {}", name, a.dtype());
  if (op == Binary::divide)
    check<Error>(shape.numel() == 0 || all_true(b), "divide: an integer is divided by 0: a {}, b {}", a.shape(), b.shape());
  Tensor y = empty(shape, a.dtype());
  visit_any(a.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      with_integer(op, [&](auto f) { map_elements<T, T, T>(y, 1, f, a, b); });
  });
  return y;
}

}  // namespace

const char* name(Binary op) { return HWY_DYNAMIC_DISPATCH(Pick)(op).name; }

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  const BinaryKernels kernels = HWY_DYNAMIC_DISPATCH(Pick)(op);
  check_pair(kernels.name, a, b);
  const Shape shape = broadcast_shapes(kernels.name, a.shape(), b.shape());
  if (!is_float(a.dtype())) return integer_binary(op, kernels.name, a, b, shape);
  Tensor y = empty(shape, a.dtype());
  binary(op, a, b, {y, false});
  return y;
}
void binary(Binary op, const Tensor& a, const Tensor& b, const Into& y) {
  const BinaryKernels kernels = HWY_DYNAMIC_DISPATCH(Pick)(op);
  check_writable(kernels.name, y.tensor);
  visit_float(y.tensor.dtype(), kernels.name, [&]<class T>() { map<T>(pick<T>(kernels.f32, kernels.f64), {a, b}, nullptr, kCost, y); });
}

Tensor number_like(double value, const Tensor& x, Binary op, bool before) {
  check_defined(name(op), x, x);
  check_fits(name(op), value, x.dtype());
  const std::string_view number = "a number", integers = name(x.dtype());
  check<DTypeError>(op != Binary::divide || is_float(x.dtype()) || x.dtype() == DType::bf16,
                    "divide: {} by {} would truncate: to(x, DType::f32) first, or a tensor of {} for the number",
                    before ? number : integers, before ? integers : number, integers);
  return full({}, value, x.dtype());
}

Tensor binary(Binary op, const Tensor& a, double b) { return binary(op, a, number_like(b, a, op)); }
Tensor binary(Binary op, double a, const Tensor& b) { return binary(op, number_like(a, b, op, true), b); }

void binary_grad(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy, const Into* da, const Into* db) {
  const BinaryKernels kernels = HWY_DYNAMIC_DISPATCH(Pick)(op);
  const bool linear = op == Binary::add || op == Binary::subtract;
  for (const Tensor* x : {&a, &b, &y})
    check<ShapeError>(!x->defined() || broadcasts_to(x->shape(), dy.shape()), "{}: an operand does not broadcast to dy: {}, dy {}",
                      kernels.name, x->shape(), dy.shape());
  visit_float(dy.dtype(), kernels.name, [&]<class T>() {
    const auto side = [&](const Into* into, RowKernel<T> kernel, bool passes_dy) {
      if (!into) return;
      if (passes_dy) return sum_to(dy, *into);
      check_writable(kernels.name, into->tensor);
      const Tensor& u = a.defined() ? a : dy;  // dy stands in for what is not read
      const Tensor& v = b.defined() ? b : dy;
      const Tensor& w = y.defined() ? y : dy;
      if (into->tensor.shape() == dy.shape()) return map<T>(kernel, {u, v, w, dy}, nullptr, kCost, *into);
      const Tensor whole = empty_like(dy);
      map<T>(kernel, {u, v, w, dy}, nullptr, kCost, {whole, false});
      sum_to(whole, *into);
    };
    side(da, pick<T>(kernels.da_f32, kernels.da_f64), linear);
    side(db, pick<T>(kernels.db_f32, kernels.db_f64), op == Binary::add);
  });
}

void add_into(const Tensor& x, const Into& out) {
  check<ShapeError>(broadcasts_to(out.tensor.shape(), x.shape()),
                    "add_into: x has to be as large as what it is added to, or larger and is summed: x {}, into {}", x.shape(),
                    out.tensor.shape());
  sum_to(x, out);
}

// ---- where -------------------------------------------------------------------------------------------------------------

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_pair("where", a, b);
  check<DTypeError>(condition.defined() && condition.dtype() == DType::u8, "where: the condition needs dtype u8: {}", condition.dtype());
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()), "condition", "a and b");
  Tensor y = empty(shape, a.dtype());
  visit_any(a.dtype(), [&]<class T>() {
    map_elements<T, std::uint8_t, T, T>(y, 2, [](std::uint8_t c, T u, T v) { return choose(c != 0, u, v); }, condition, a, b);
  });
  return y;
}

void where_grad(const Tensor& condition, const Tensor& dy, const Into* da, const Into* db) {
  const Tensor nothing = zeros({}, dy.dtype());
  if (da) sum_to(where(condition, dy, nothing), *da);
  if (db) sum_to(where(condition, nothing, dy), *db);
}

// ---- questions ---------------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kComparisons[] = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"};

// f(compare) with compare(a, b) of the op, chosen before any loop
template <class F> Tensor with_comparison(Comparison op, F f) {
  switch (op) {
    case Comparison::equal: return f([](auto a, auto b) { return a == b; });
    case Comparison::not_equal: return f([](auto a, auto b) { return a != b; });
    case Comparison::less: return f([](auto a, auto b) { return a < b; });
    case Comparison::less_equal: return f([](auto a, auto b) { return a <= b; });
    case Comparison::greater: return f([](auto a, auto b) { return a > b; });
    case Comparison::greater_equal: break;
  }
  return f([](auto a, auto b) { return a >= b; });
}

// f over two tensors of one dtype, read as floats where they are bf16
template <class F> Tensor ask(std::string_view name, const Tensor& a, const Tensor& b, F f) {
  const Shape shape = broadcast_shapes(name, a.shape(), b.shape());
  Tensor y = empty(shape, DType::u8);
  visit_any(a.dtype(), [&]<class T>() {
    using Read = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
    map_elements<std::uint8_t, T, T>(y, 2, [f](T u, T v) { return std::uint8_t(f(Read(u), Read(v))); }, a, b);
  });
  return y;
}

template <class F> Tensor logical(std::string_view name, const Tensor& a, const Tensor& b, F f) {
  check_pair(name, a, b);
  check<DTypeError>(a.dtype() == DType::u8, "{}: takes u8: {}", name, a.dtype());
  return ask(name, a, b, [&](auto u, auto v) { return f(u != 0, v != 0); });
}

}  // namespace

Tensor compare(Comparison op, const Tensor& a, const Tensor& b) {
  const std::string_view name = kComparisons[std::size_t(op)];
  check_pair(name, a, b);
  return with_comparison(op, [&](auto holds) { return ask(name, a, b, holds); });
}

Tensor compare(Comparison op, const Tensor& a, double b) {
  const std::string_view name = kComparisons[std::size_t(op)];
  check_defined(name, a, a);
  Tensor y = empty(a.shape(), DType::u8);
  return with_comparison(op, [&](auto holds) {
    visit_any(a.dtype(), [&]<class T>() {
      using Read = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
      // b takes the float type; integers are compared as doubles
      using Number = std::conditional_t<std::is_floating_point_v<Read>, Read, double>;
      map_elements<std::uint8_t, T>(y, 2, [holds, b = Number(b)](T u) { return std::uint8_t(holds(Number(Read(u)), b)); }, a);
    });
    return y;
  });
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return logical("logical_and", a, b, [](bool u, bool v) { return u && v; });
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return logical("logical_or", a, b, [](bool u, bool v) { return u || v; });
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return logical("logical_xor", a, b, [](bool u, bool v) { return u != v; });
}
Tensor logical_not(const Tensor& a) {
  return logical("logical_not", a, a, [](bool u, bool) { return !u; });
}

}  // namespace heed
#endif
