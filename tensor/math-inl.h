// SPDX-License-Identifier: Apache-2.0
// Elementary functions on vectors of f32 or f64, the same polynomials on every target: the same bits on all targets with FMA.
// No libm, no table, no estimates. NaN gives NaN. Largest errors in units of the last place: of all f32 numbers / of those seen of f64:
//   Exp 1.01 / 1.0   Log 0.84 / 0.9   Log1p 1.44 / 1.5   Tanh 5.2 (6.3 without FMA) / 2.5   Sigmoid 2.5 / 2.2   Erf 1.6 (1.8 without FMA) / 1.4
//   Sin, Cos 2.4 / 2.4   Softplus 2.0 / 1.8   Gelu 7.8 (8.1 without FMA) / 8 above -3, x² below;  of those seen of both:  Expm1 1.6 / 2.0   Pow 1.5 / 1.8
// Results below the smallest normal number may become 0.
#include <cstdint>

#include "tensor/simd-inl.h"

#if defined(HEED_TENSOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_MATH_INL_H_
#undef HEED_TENSOR_MATH_INL_H_
#else
#define HEED_TENSOR_MATH_INL_H_
#endif

// What layers are made of stands in their loops; one copy is enough elsewhere.
#undef HEED_HOT
#if HEED_OLD_TARGET
#define HEED_HOT HWY_NOINLINE
#else
#define HEED_HOT HWY_INLINE
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {
namespace math {

template <class D> constexpr bool kSingle = sizeof(hn::TFromD<D>) == 4;
template <class D> constexpr int kMantissa = kSingle<D> ? 23 : 52;
template <class D> constexpr double kInfinity = __builtin_inf();

// A constant that differs by type: Set(d, single, double).
template <class D> HWY_INLINE hn::Vec<D> Constant(D d, double single, double twofold) {
  return hn::Set(d, hn::TFromD<D>(kSingle<D> ? single : twofold));
}
template <class D> HWY_INLINE hn::Vec<D> Constant(D d, double both) { return hn::Set(d, hn::TFromD<D>(both)); }

// c0 + c1 x + c2 x² + ..., Horner
template <class D> HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D>, double c0) { return hn::Set(d, hn::TFromD<D>(c0)); }
template <class D, class... C> HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, double c0, C... rest) {
  return hn::MulAdd(Polynomial(d, x, rest...), x, hn::Set(d, hn::TFromD<D>(c0)));
}

// x = n ln 2 + r, |r| <= ln 2 / 2. The low bits of `biased` hold n (1.5·2^mantissa added). r = high - low keeps more bits.
template <class D> struct Reduced { hn::Vec<D> biased, r; };
template <class D> HWY_INLINE Reduced<D> ReduceByLog2(D d, hn::Vec<D> x) {
  const auto magic = Constant(d, 0x1.8p23, 0x1.8p52);
  const auto biased = hn::MulAdd(x, Constant(d, 0x1.71547652b82fep+0), magic);
  const auto n = hn::Sub(biased, magic);
  const auto high = hn::NegMulAdd(n, Constant(d, 0x1.62e3p-1, 0x1.62e42feep-1), x);  // n ln2_high is exact
  return {biased, hn::NegMulAdd(n, Constant(d, 0x1.2fefa2p-17, 0x1.a39ef35793c76p-33), high)};
}

// e^x:  2^n (1 + r + r² q(r))
template <class D> HEED_HOT hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto [biased, r] = ReduceByLog2(d, x);
  hn::Vec<D> q;
  if constexpr (kSingle<D>) {
    q = Polynomial(d, r, 0x1.fffffap-2, 0x1.555492p-3, 0x1.555a26p-5, 0x1.12397cp-7, 0x1.694c86p-10);
  } else {
    q = Polynomial(d, r, 0x1.000000000000ap-1, 0x1.55555555554fep-3, 0x1.55555555506cp-5, 0x1.1111111126b37p-7, 0x1.6c16c18475a18p-10,
                   0x1.a01a012fec2e1p-13, 0x1.a0199963c9dc2p-16, 0x1.71df18fbcdccbp-19, 0x1.28adf7a182e4fp-22, 0x1.ad92c7cc89963p-26);
  }
  const auto p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), Constant(d, 1));
  const auto exponent = hn::ShiftLeft<kMantissa<D>>(hn::BitCast(di, biased));
  auto y = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  y = hn::IfThenElse(hn::Le(x, Constant(d, 0x1.62e42ep6, 0x1.62e42fefa39efp+9)), y, hn::Add(x, Constant(d, kInfinity<D>)));
  return hn::IfThenZeroElse(hn::Lt(x, Constant(d, -0x1.5d589ep6, -0x1.6232bdd7abcd2p+9)), y);  // ln of the smallest normal number
}

// e^x - 1:  2^n p + (2^n - 1), p = e^r - 1; computed at half scale so that 2^n does not overflow
template <class D> HEED_HOT hn::Vec<D> Expm1(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto least = Constant(d, -18, -40);
  const auto [biased, r] = ReduceByLog2(d, hn::IfThenElse(hn::Lt(x, least), least, x));
  hn::Vec<D> q;
  if constexpr (kSingle<D>) {
    q = Polynomial(d, r, 0x1.fffffep-2, 0x1.5554bp-3, 0x1.555716p-5, 0x1.12278ep-7, 0x1.6b7338p-10);
  } else {
    q = Polynomial(d, r, 0x1p-1, 0x1.5555555555559p-3, 0x1.555555555554dp-5, 0x1.111111110f65bp-7, 0x1.6c16c16c1aafdp-10,
                   0x1.a01a01afff4c4p-13, 0x1.a01a018e0d678p-16, 0x1.71ddf81d8489cp-19, 0x1.27e513450450ep-22, 0x1.af5f0e8604334p-26,
                   0x1.1f1a1554b3037p-29);
  }
  const auto p = hn::MulAdd(hn::Mul(r, r), q, r);
  const auto exponent = hn::ShiftLeft<kMantissa<D>>(hn::BitCast(di, biased));
  const auto half = hn::BitCast(d, hn::Add(hn::BitCast(di, Constant(d, 0.5)), exponent));
  const auto y = hn::MulAdd(half, p, hn::Sub(half, Constant(d, 0.5)));
  return hn::IfThenElse(hn::Le(x, Constant(d, 0x1.62e42ep6, 0x1.62e42fefa39efp+9)), hn::CopySign(hn::Add(y, y), x),
                        hn::Add(x, Constant(d, kInfinity<D>)));
}

// x = 2^k (1 + f), √½ <= 1 + f < √2, for normal positive x; subnormal ones are scaled first
template <class D> struct Fraction { hn::Vec<D> k, f; };
template <class D> HWY_INLINE Fraction<D> SplitExponent(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  using U = hn::TFromD<decltype(du)>;
  const auto tiny = hn::Lt(x, Constant(d, 0x1p-126, 0x1p-1022));
  const auto scaled = hn::IfThenElse(tiny, hn::Mul(x, Constant(d, 0x1p24, 0x1p54)), x);
  const auto root = hn::BitCast(du, Constant(d, 0x1.6a09e6p-1, 0x1.6a09e667f3bcdp-1));  // √½
  const auto bits = hn::Add(hn::BitCast(du, scaled), hn::Sub(hn::BitCast(du, Constant(d, 1)), root));
  // integer -> float through the mantissa of 2^mantissa
  const auto magic = Constant(d, 0x1p23, 0x1p52);
  const auto biased = hn::BitCast(d, hn::Or(hn::ShiftRight<kMantissa<D>>(bits), hn::BitCast(du, magic)));
  const auto bias = hn::IfThenElse(tiny, Constant(d, 0x1p23 + 127 + 24, 0x1p52 + 1023 + 54), Constant(d, 0x1p23 + 127, 0x1p52 + 1023));
  const auto fraction = hn::Add(hn::And(bits, hn::Set(du, (U{1} << kMantissa<D>) - 1)), root);
  return {hn::Sub(biased, bias), hn::Sub(hn::BitCast(d, fraction), Constant(d, 1))};
}

// R(s²) of  log(1 + f) = 2s + s R(s²),  s = f / (2 + f)
template <class D> HWY_INLINE hn::Vec<D> LogSeries(D d, hn::Vec<D> z) {
  if constexpr (kSingle<D>) return hn::Mul(z, Polynomial(d, z, 0x1.555556p-1, 0x1.99986cp-2, 0x1.24c21ep-2, 0x1.ce597p-3));
  return hn::Mul(z, Polynomial(d, z, 0x1.5555555555558p-1, 0x1.9999999995323p-2, 0x1.2492492deec37p-2, 0x1.c71c62e684aadp-3,
                               0x1.7462b4ab7b1bbp-3, 0x1.39fe5b524fd96p-3, 0x1.2b58abb5621ep-3));
}

// ln x:  k ln 2 + f - (f²/2 - s (f²/2 + R))     log 0 = -inf, log of a negative number = NaN
template <class D> HEED_HOT hn::Vec<D> Log(D d, hn::Vec<D> x) {
  const auto [k, f] = SplitExponent(d, x);
  const auto s = hn::Div(f, hn::Add(f, Constant(d, 2)));
  const auto half = hn::Mul(hn::Mul(f, f), Constant(d, 0.5));
  const auto low =
      hn::MulAdd(s, hn::Add(half, LogSeries(d, hn::Mul(s, s))), hn::Mul(k, Constant(d, 0x1.2fefa2p-17, 0x1.a39ef35793c76p-33)));
  auto y = hn::MulAdd(k, Constant(d, 0x1.62e3p-1, 0x1.62e42feep-1), hn::Sub(f, hn::Sub(half, low)));
  const auto infinity = Constant(d, kInfinity<D>);
  y = hn::IfThenElse(hn::Lt(x, infinity), y, x);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), Constant(d, __builtin_nan("")), y);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
}

// ln(1 + x) = ln u + (x - (u - 1)) / u,  u = 1 + x rounded
template <class D> HEED_HOT hn::Vec<D> Log1p(D d, hn::Vec<D> x) {
  const auto one = Constant(d, 1);
  const auto u = hn::Add(x, one);
  const auto lost = hn::Sub(x, hn::Sub(u, one));
  const auto y = hn::Add(Log(d, u), hn::Div(lost, u));
  const auto special = hn::Or(hn::Le(x, Constant(d, -1)), hn::Eq(x, Constant(d, kInfinity<D>)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::IfThenElse(special, Log(d, u), y));  // log1p(-0) = -0
}

// tanh x, odd to the last bit:  f32 x P(x²) / Q(x²), f64 m / (m + 2) with m = e^{2|x|} - 1
template <class D> HEED_HOT hn::Vec<D> Tanh(D d, hn::Vec<D> x) {
  const auto a = hn::Abs(x);
  const auto one = hn::CopySign(Constant(d, 1), x);
  if constexpr (kSingle<D>) {
    const auto t = hn::Mul(x, x);
    const auto p = Polynomial(d, t, 1, 0x1.1230c6p-3, 0x1.cb4af4p-9, 0x1.5c2064p-16, 0x1.d19936p-27);
    const auto q = Polynomial(d, t, 1, 0x1.de6daep-2, 0x1.a8801ap-6, 0x1.59fd4p-12, 0x1.a5ccc2p-21);
    const auto xp = hn::Mul(x, p);
    return hn::IfThenElse(hn::Or(hn::Gt(a, Constant(d, 9)), hn::Gt(hn::Abs(xp), q)), one, hn::Div(xp, q));  // never beyond 1
  } else {
    const auto m = Expm1(d, hn::Add(a, a));
    const auto y = hn::Div(m, hn::Add(m, Constant(d, 2)));
    return hn::IfThenElse(hn::Gt(a, Constant(d, 20)), one, hn::CopySign(y, x));
  }
}

// 1 / (1 + e^{-x})
template <class D> HEED_HOT hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  return hn::Div(Constant(d, 1), hn::Add(Exp(d, hn::Neg(x)), Constant(d, 1)));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^{-|x|})
template <class D> HEED_HOT hn::Vec<D> Softplus(D d, hn::Vec<D> x) {
  return hn::Add(hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x), Log1p(d, Exp(d, hn::Neg(hn::Abs(x)))));
}

// e^{z²} erfc(z) = P(z) / Q(z) for 0 <= z <= 28
template <class D> HWY_INLINE hn::Vec<D> ScaledErfc(D d, hn::Vec<D> z) {
  if constexpr (kSingle<D>) {
    return hn::Div(Polynomial(d, z, 1.000000006, 1.236756825, 0.7298689146, 0.2283903574, 0.03262212932),
                   Polynomial(d, z, 1, 2.365136549, 2.398630699, 1.322128862, 0.4048385759, 0.05782049167));
  }
  return hn::Div(Polynomial(d, z, 1, 2.3432123846299255, 2.721723381830688, 2.0250394337782938, 1.0588625815440043, 0.4047353932188964,
                            0.11437996553608289, 0.023628359263597253, 0.0034278552266456363, 0.0003176028044683348, 1.444962892840718e-05),
                 Polynomial(d, z, 1, 3.4715915517254383, 5.63899496546244, 5.668625102501159, 3.9277404769027866, 1.9751457822555296,
                            0.7380334285943885, 0.20575826223091517, 0.042161644527380096, 0.006088520846965948, 0.0005629363138391894,
                            2.5611300438305635e-05));
}

// 2/√π ∫_0^x e^{-t²} dt:  |x| < 1: x + x R(x²), else ±(1 - e^{-x²} erfcx |x|)
template <class D> HEED_HOT hn::Vec<D> Erf(D d, hn::Vec<D> x) {
  const auto a = hn::Abs(x), most = Constant(d, 9, 27);
  const auto z = hn::IfThenElse(hn::Gt(a, most), most, a);
  const auto t = hn::Mul(z, z);
  hn::Vec<D> small;
  if constexpr (kSingle<D>) {
    small = Polynomial(d, t, 0x1.06eba2p-3, -0x1.81268p-2, 0x1.ce0af8p-4, -0x1.b5b7c4p-6, 0x1.42a6f6p-8, -0x1.28787ap-11);
  } else {
    small = Polynomial(d, t, 0x1.06eba8214db68p-3, -0x1.812746b0379b5p-2, 0x1.ce2f21a040b02p-4, -0x1.b82ce311f7069p-6, 0x1.565bccf908894p-8,
                       -0x1.c02db03ff6859p-11, 0x1.f9a2bb4bba0e4p-14, -0x1.f4ca5bb2856d7p-17, 0x1.b9807f233887fp-20, -0x1.5c0bc3130e26fp-23,
                       0x1.d73d744d56d18p-27, -0x1.ac1a4196e3b8fp-31);
  }
  const auto large = hn::CopySign(hn::NegMulAdd(Exp(d, hn::Neg(t)), ScaledErfc(d, z), Constant(d, 1)), x);
  return hn::IfThenElse(hn::Lt(a, Constant(d, 1)), hn::MulAdd(x, small, x), large);
}

// Normal distribution:  a = |x| (at most 14 / 39, where the tail is 0), density = e^{-a²/2} / √(2π), tail = Φ(-a)
template <class D> struct Normal { hn::Vec<D> a, density, tail; };
template <class D> HWY_INLINE Normal<D> NormalTail(D d, hn::Vec<D> x) {
  const auto most = Constant(d, 14, 39);
  auto a = hn::Abs(x);
  a = hn::IfThenElse(hn::Gt(a, most), most, a);
  const auto e = hn::Mul(Exp(d, hn::Mul(hn::Mul(a, a), Constant(d, -0.5))), Constant(d, 0.5));
  return {a, hn::Mul(e, Constant(d, 0x1.9884533d43651p-1)), hn::Mul(e, ScaledErfc(d, hn::Mul(a, Constant(d, 0x1.6a09e667f3bcdp-1))))};
}

// x Φ(x) = max(x, 0) - |x| Φ(-|x|)
template <class D> HEED_HOT hn::Vec<D> Gelu(D d, hn::Vec<D> x) {
  const auto normal = NormalTail(d, x);
  return hn::NegMulAdd(normal.a, normal.tail, hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x));
}
// d/dx = Φ(x) + x φ(x)
template <class D> HEED_HOT hn::Vec<D> GeluDerivative(D d, hn::Vec<D> x) {
  const auto normal = NormalTail(d, x);
  const auto cdf = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(Constant(d, 1), normal.tail), normal.tail);
  return hn::MulAdd(hn::CopySign(normal.a, x), normal.density, cdf);
}

// x = n π/2 + r exactly for any finite x (Payne and Hanek 1983): the bits of 2/π around x's exponent, in integers.
template <class T> HWY_NOINLINE int64_t ReduceLargeAngle(T x, T* r) {
  // 1280 bits after the point
  static constexpr uint64_t kTwoOverPi[] = {
      0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
      0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
      0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
      0x56033046fc7b6bab, 0xf0cfbc209af4361d};
  __extension__ using Wide = unsigned __int128;
  const double magnitude = x < 0 ? -double(x) : double(x);
  if (!(magnitude < __builtin_inf())) {
    *r = T(__builtin_nan(""));
    return 0;
  }
  uint64_t bits;
  __builtin_memcpy(&bits, &magnitude, sizeof bits);
  const int exponent = int(bits >> 52) - 1075;  // x = mantissa 2^exponent, exponent > -53
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);
  // Bits of 2/π above weight 2^{-first} count whole turns, 4 · π/2; three words follow.
  const int first = exponent > 2 ? exponent - 2 : 0, word = first / 64, shift = first % 64;
  uint64_t w[3];
  for (int i = 0; i < 3; ++i)
    w[i] = shift == 0 ? kTwoOverPi[word + i] : (kTwoOverPi[word + i] << shift) | (kTwoOverPi[word + i + 1] >> (64 - shift));
  // mantissa w = high 2^128 + low, as a number times 2^{-point}; fraction as a multiple of 2^{-128}
  const Wide p2 = Wide(mantissa) * w[2], p1 = Wide(mantissa) * w[1] + uint64_t(p2 >> 64), high = Wide(mantissa) * w[0] + uint64_t(p1 >> 64);
  const Wide low = (Wide(uint64_t(p1)) << 64) | uint64_t(p2);
  const int over = 192 - (exponent - first) - 128;  // fraction bits in `high`, 62 .. 103
  const uint64_t turns = uint64_t(high >> over);
  Wide fraction = (high << (128 - over)) | (low >> over);
  int64_t n = int64_t(turns & 3);
  const bool round_up = (fraction >> 127) != 0;
  if (round_up) {
    fraction = -fraction;
    ++n;
  }
  double angle = (double(uint64_t(fraction >> 64)) * 0x1p-64 + double(uint64_t(fraction)) * 0x1p-128) * 0x1.921fb54442d18p0;
  if (round_up) angle = -angle;
  if (x < 0) { angle = -angle; n = -n; }
  *r = T(angle);
  return n;
}

// x = n π/2 + r, |r| <= π/4
template <class D> struct Angle { hn::Vec<hn::RebindToSigned<D>> n; hn::Vec<D> r; };
template <class D> HWY_INLINE Angle<D> ReduceAngle(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  using TI = hn::TFromD<decltype(di)>;
  const auto magic = Constant(d, 0x1.8p23, 0x1.8p52);
  const auto biased = hn::MulAdd(x, Constant(d, 0x1.45f306dc9c883p-1), magic);
  const auto n = hn::Sub(biased, magic);
  auto r = hn::NegMulAdd(n, Constant(d, 0x1.92p0, 0x1.921fb544p0), x);  // n part is exact for all parts but the last
  r = hn::NegMulAdd(n, Constant(d, 0x1.fb4p-12, 0x1.0b4611a6p-34), r);
  r = hn::NegMulAdd(n, Constant(d, 0x1.444p-24, 0x1.3198a2e037073p-69), r);
  if constexpr (kSingle<D>) r = hn::NegMulAdd(n, Constant(d, 0x1.68c234p-39), r);
  auto quadrant = hn::BitCast(di, biased);
  constexpr T most = kSingle<D> ? 8192 : 1e6;  // n has at most 13 / 20 bits
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, most))))) {
    alignas(64) T values[hn::MaxLanes(d)];
    alignas(64) TI turns[hn::MaxLanes(d)];
    alignas(64) T rest[hn::MaxLanes(d)];
    hn::Store(x, d, values);
    hn::Store(r, d, rest);
    hn::Store(quadrant, di, turns);
    for (size_t i = 0; i < hn::Lanes(d); ++i)
      if (!(values[i] >= -most && values[i] <= most)) turns[i] = TI(ReduceLargeAngle(values[i], &rest[i]));
    r = hn::Load(d, rest);
    quadrant = hn::Load(di, turns);
  }
  return {quadrant, r};
}

template <class D> HWY_INLINE hn::Vec<D> SinOfQuadrant(D d, hn::Vec<hn::RebindToSigned<D>> n, hn::Vec<D> r) {
  const hn::RebindToSigned<D> di;
  const auto t = hn::Mul(r, r);
  hn::Vec<D> s, c;
  if constexpr (kSingle<D>) {
    s = Polynomial(d, t, -0x1.555546p-3, 0x1.110778p-7, -0x1.995404p-13);
    c = Polynomial(d, t, 0x1.55554ap-5, -0x1.6c0c2ap-10, 0x1.99e912p-16);
  } else {
    s = Polynomial(d, t, -0x1.5555555555548p-3, 0x1.111111110f75fp-7, -0x1.a01a019bf2852p-13, 0x1.71de355f6db2p-19, -0x1.ae5e54ce810f8p-26,
                   0x1.5d8e525b465a8p-33);
    c = Polynomial(d, t, 0x1.555555555554bp-5, -0x1.6c16c16c15017p-10, 0x1.a01a019c8f6aep-16, -0x1.27e4f7f1c8162p-22, 0x1.1ee9dbf429a04p-29,
                   -0x1.8fa696f064de4p-37);
  }
  const auto sine = hn::MulAdd(hn::Mul(t, r), s, r);
  const auto cosine = hn::MulAdd(hn::Mul(t, t), c, hn::NegMulAdd(t, Constant(d, 0.5), Constant(d, 1)));
  const auto one = hn::Set(di, 1);
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(n, one))));  // all bits set
  const auto y = hn::IfThenElse(odd, cosine, sine);
  const auto sign = hn::ShiftLeft<kMantissa<D> == 23 ? 30 : 62>(hn::And(n, hn::Set(di, 2)));
  return hn::Xor(y, hn::BitCast(d, sign));
}

template <class D> HWY_NOINLINE hn::Vec<D> Sin(D d, hn::Vec<D> x) {
  const auto angle = ReduceAngle(d, x);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, SinOfQuadrant(d, angle.n, angle.r));  // sin(-0) = -0
}
// cos x = sin(x + π/2)
template <class D> HWY_NOINLINE hn::Vec<D> Cos(D d, hn::Vec<D> x) {
  const auto angle = ReduceAngle(d, x);
  return SinOfQuadrant(d, hn::Add(angle.n, hn::Set(hn::RebindToSigned<D>(), 1)), angle.r);
}

// Angle of the point (x, y) in [-π, π]; atan2(±0, +0) = ±0.
// q = small / large in [0, 1], atan q = π/4 + atan((q - 1) / (q + 1)) for q > tan π/8
template <class D> HWY_NOINLINE hn::Vec<D> Atan2(D d, hn::Vec<D> y, hn::Vec<D> x) {
  const auto zero = hn::Zero(d), one = Constant(d, 1), infinity = Constant(d, kInfinity<D>);
  const auto ax = hn::Abs(x), ay = hn::Abs(y);
  const auto steep = hn::Gt(ay, ax);
  auto small = hn::IfThenElse(steep, ax, ay), large = hn::IfThenElse(steep, ay, ax);
  // by a power of two where large + small may overflow, or numbers near the subnormal ones lose bits when multiplied
  const auto scale = hn::IfThenElse(hn::Gt(large, Constant(d, 0x1p100, 0x1p1000)), Constant(d, 0.25),
                                    hn::IfThenElse(hn::Lt(large, Constant(d, 0x1p-60, 0x1p-900)), Constant(d, 0x1p30, 0x1p60), one));
  small = hn::Mul(small, scale), large = hn::Mul(large, scale);
  const auto far = hn::Or(hn::Gt(small, hn::Mul(large, Constant(d, 0x1.a8279ap-2))), hn::Eq(small, infinity));
  const auto top = hn::IfThenElse(far, hn::Sub(small, large), small), bottom = hn::IfThenElse(far, hn::Add(small, large), large);
  auto q = hn::Div(top, bottom);
  q = hn::IfThenElse(hn::Eq(large, zero), zero, q);
  q = hn::IfThenElse(hn::Eq(small, infinity), zero, q);
  const auto t = hn::Mul(q, q);
  hn::Vec<D> p;
  if constexpr (kSingle<D>) {
    p = Polynomial(d, t, -0x1.55554ap-2, 0x1.9991e4p-3, -0x1.23b9d2p-3, 0x1.b22736p-4, -0x1.f2f3dcp-5);
  } else {
    p = Polynomial(d, t, -0x1.5555555555555p-2, 0x1.99999999998c5p-3, -0x1.249249248bea1p-3, 0x1.c71c71c3da312p-4, -0x1.745d16c306ac6p-4,
                   0x1.3b13a3ac4af45p-4, -0x1.1110186612c5fp-4, 0x1.e1c89f06c5451p-5, -0x1.ae3cd4745eab4p-5, 0x1.7ff0e14ee794dp-5,
                   -0x1.47068f4b1f7e1p-5, 0x1.d0e6128e2d1a9p-6, -0x1.8618a505a7a9dp-7);
  }
  auto angle = hn::MulAdd(hn::Mul(t, q), p, q);
  const auto pi = Constant(d, 0x1.921fb54442d18p+1);
  angle = hn::IfThenElse(far, hn::Add(angle, Constant(d, 0x1.921fb54442d18p-1)), angle);
  angle = hn::IfThenElse(steep, hn::Sub(Constant(d, 0x1.921fb54442d18p+0), angle), angle);
  const auto left = hn::Lt(hn::CopySign(one, x), zero);  // also x = -0
  angle = hn::CopySign(hn::IfThenElse(left, hn::Sub(pi, angle), angle), y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), angle);
}

// low of  a b = high + low,  high = a b rounded
template <class D> HWY_INLINE hn::Vec<D> ProductError(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> high) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulSub(a, b, high);
#else  // Dekker 1971: halves of 12 / 26 bits
  const auto splitter = Constant(d, 0x1p12 + 1, 0x1p27 + 1);
  const auto wide_a = hn::Mul(a, splitter), wide_b = hn::Mul(b, splitter);
  const auto a1 = hn::Sub(wide_a, hn::Sub(wide_a, a)), b1 = hn::Sub(wide_b, hn::Sub(wide_b, b));
  const auto a2 = hn::Sub(a, a1), b2 = hn::Sub(b, b1);
  return hn::Add(hn::Add(hn::Add(hn::Sub(hn::Mul(a1, b1), high), hn::Mul(a1, b2)), hn::Mul(a2, b1)), hn::Mul(a2, b2));
#endif
}

// x^y = e^{y ln|x|} with ln|x| as a sum of two numbers; signs, zeros and infinities as in C (Annex F): pow(x, 0) = pow(1, y) = 1.
template <class D> HWY_NOINLINE hn::Vec<D> Pow(D d, hn::Vec<D> x, hn::Vec<D> y) {
  const auto zero = hn::Zero(d), one = Constant(d, 1), two = Constant(d, 2), infinity = Constant(d, kInfinity<D>);
  const auto a = hn::Abs(x);
  const auto [k, f] = SplitExponent(d, a);
  // s + s_low = f / (2 + f)
  const auto sum = hn::Add(f, two), sum_low = hn::Sub(f, hn::Sub(sum, two));
  const auto s = hn::Div(f, sum), product = hn::Mul(s, sum);
  const auto s_low = hn::Div(hn::Sub(hn::Sub(hn::Sub(f, product), ProductError(d, s, sum, product)), hn::Mul(s, sum_low)), sum);
  // ln|x| = k ln2_high + 2s + 2/3 s³ + (2 s_low (1 + s²) + s⁵ (2/5 + 2/7 s² + ..) + k ln2_low); y may be large: so 2/3 s³ goes with
  // what it lost
  const auto two_thirds = Constant(d, 0x1.555556p-1, 0x1.5555555555555p-1),
             two_thirds_low = Constant(d, -0x1.555556p-26, 0x1.5555555555555p-55);
  const auto z = hn::Mul(s, s), cube = hn::Mul(s, z), cube_low = hn::MulAdd(s, ProductError(d, s, s, z), ProductError(d, s, z, cube));
  const auto third = hn::Mul(cube, two_thirds),
             third_low = hn::Add(ProductError(d, cube, two_thirds, third), hn::MulAdd(cube, two_thirds_low, hn::Mul(cube_low, two_thirds)));
  hn::Vec<D> series;
  if constexpr (kSingle<D>) series = Polynomial(d, z, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11);
  else series = Polynomial(d, z, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23);
  const auto high1 = hn::Mul(k, Constant(d, 0x1.62e3p-1, 0x1.62e42feep-1)), twice = hn::Add(s, s);
  const auto high2 = hn::Add(high1, twice), lost2 = hn::Sub(twice, hn::Sub(high2, high1));  // |high1| > |twice| or high1 = 0
  const auto high = hn::Add(high2, third), lost3 = hn::Sub(third, hn::Sub(high, high2));    // |high2| > |third|
  const auto rest = hn::MulAdd(hn::Mul(cube, z), series, hn::MulAdd(k, Constant(d, 0x1.2fefa2p-17, 0x1.a39ef35793c76p-33),
                                                                  hn::Mul(hn::Add(s_low, s_low), hn::Add(z, one))));
  const auto tail = hn::Add(hn::Add(lost2, lost3), hn::Add(rest, third_low));
  const auto log = hn::Add(high, tail), log_low = hn::Add(tail, hn::Sub(high, log));
  // e^{p + p_low} = e^p (1 + p_low)
  const auto p = hn::Mul(y, log);
  // p may have been rounded just beyond the ln of the smallest normal or of the largest number, where Exp ends
  const auto least = Constant(d, -0x1.5d589ep6, -0x1.6232bdd7abcd2p+9), most = Constant(d, 0x1.62e42ep6, 0x1.62e42fefa39efp+9);
  const auto within = hn::Min(hn::Max(p, least), most), beyond = hn::Sub(p, within);
  const auto near = hn::Lt(hn::Abs(beyond), Constant(d, 0x1p-10));
  const auto p_low = hn::Add(hn::MulAdd(y, log_low, ProductError(d, y, log, p)), hn::IfThenElseZero(near, beyond));
  const auto e = Exp(d, hn::IfThenElse(near, within, p));
  auto r = hn::IfThenElse(hn::Lt(hn::Abs(p), Constant(d, 90, 720)), hn::IfThenElse(hn::Lt(e, infinity), hn::MulAdd(e, p_low, e), e), e);
  // |x| = 0 or inf: 0 or inf by the sign of y
  const auto at_zero = hn::IfThenElse(hn::Lt(y, zero), infinity, zero), at_infinity = hn::IfThenElse(hn::Lt(y, zero), zero, infinity);
  r = hn::IfThenElse(hn::Eq(a, zero), at_zero, hn::IfThenElse(hn::Eq(a, infinity), at_infinity, r));
  r = hn::IfThenElse(hn::Eq(a, one), one, r);   // whatever a large y made of ln 1 = 0
  // negative x: NaN unless y is an integer, the sign of x if y is odd
  const auto half = hn::Mul(y, Constant(d, 0.5));
  const auto integer = hn::Eq(hn::Round(y), y), odd = hn::AndNot(hn::Eq(hn::Round(half), half), integer);
  r = hn::IfThenElse(hn::And(hn::Lt(x, zero), hn::AndNot(hn::Eq(a, infinity), hn::Not(integer))), Constant(d, __builtin_nan("")), r);
  r = hn::IfThenElse(odd, hn::CopySign(r, x), r);
  r = hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), r);
  return hn::IfThenElse(hn::Or(hn::Eq(x, one), hn::Eq(y, zero)), one, r);
}

// Of one number. Inline: a call would leave the upper halves of registers in use (no vzeroupper), which costs the caller 300 ns.
template <class T> HWY_INLINE T ExpOf(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(Exp(d, hn::Set(d, x)));
}
template <class T> HWY_INLINE T LogOf(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(Log(d, hn::Set(d, x)));
}

}  // namespace math
}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
