// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#define HWY_TARGET_INCLUDE "tensor/ops/random.cc"
#include "tensor/dropout-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// y_j (=|+=) x_j m_(start+j)
template <class T> void Dropout(const DropoutKey& dropout, Index start, const T* x, size_t n, bool add, T* y) {
  const Lanes16<T> d;
  const size_t N = hn::Lanes(d);
  T factors[256];
  for (size_t begin = 0; begin < n; begin += 256) {
    const size_t count = HWY_MIN(n - begin, size_t{256});
    DropoutFactors(dropout, start + Index(begin), count, factors);
    const T* from = x + begin;
    T* to = y + begin;
    size_t j = 0;
    for (; j + N <= count; j += N) {
      const auto value = hn::Mul(hn::LoadU(d, from + j), hn::LoadU(d, factors + j));
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to + j), value) : value, d, to + j);
    }
    for (; j < count; ++j) to[j] = add ? to[j] + from[j] * factors[j] : from[j] * factors[j];
  }
}

// draws[2 i], draws[2 i + 1]: the halves of philox(key, 16 first + i), i < 16 kGroups
template <size_t kGroups> HWY_INLINE void DrawGroups(uint64_t key, uint64_t first, uint64_t* HWY_RESTRICT draws) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 16 * kGroups; ++i) {
    const auto block = philox(Key::from_bits(key), 16 * first + i);
    for (size_t half = 0; half < 2; ++half) draws[2 * i + half] = block[2 * half] | uint64_t(block[2 * half + 1]) << 32;
  }
#else
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Repartition<uint64_t, decltype(d)> wide;
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(d)) {
    hn::Vec<decltype(d)> c[2 * kGroups][4];
    PhiloxChains(d, key, first, lane, c);
    const auto half = [&](size_t chain, size_t word) HWY_ATTR {
      return hn::BitCast(wide, hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(wide, c[chain][word + 1]))), c[chain][word]));
    };
    HWY_UNROLL(2)
    for (size_t g = 0; g < kGroups; ++g)
      hn::StoreInterleaved4(half(2 * g, 0), half(2 * g, 2), half(2 * g + 1, 0), half(2 * g + 1, 2), wide, draws + 32 * g + 2 * lane);
  }
#endif
}

// draws 64 group .. 64 group + 63 of a key
void Draws(Key key, uint64_t group, uint64_t* HWY_RESTRICT draws) {
  for (size_t g = 0; g < 2; g += HEED_PHILOX_GROUPS) DrawGroups<HEED_PHILOX_GROUPS>(key.bits(), 2 * group + g, draws + 32 * g);
}

// The same as draws 128 group .. 128 group + 127 of 32 bits
void Draws32(Key key, uint64_t group, uint32_t* HWY_RESTRICT draws) {
  uint64_t pairs[detail::kDraws];
  Draws(key, group, pairs);
  std::memcpy(draws, pairs, sizeof pairs);   // of a machine whose low half comes first
}

// x[i] = min(lo + range u, last), u of draw 64 group + i, i < 64
void Uniform(Key key, uint64_t group, double lo, double range, double last, double* HWY_RESTRICT x) {
  uint64_t draws[detail::kDraws];
  Draws(key, group, draws);
  for (size_t i = 0; i < detail::kDraws; ++i) {
    const double value = lo + range * unit_interval(draws[i]);
    x[i] = value < last ? value : last;
  }
}

// u of the 32-bit draw 128 group + i, i < 128; computed in double, rounded once
void Uniform(Key key, uint64_t group, double lo, double range, float last, float* HWY_RESTRICT x) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> df;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint32_t, decltype(d)> du;
  uint32_t draws[detail::kElements<float>];
  Draws32(key, group, draws);
  for (size_t i = 0; i < detail::kElements<float>; i += hn::Lanes(d)) {
    const auto centred = hn::PromoteTo(d, hn::BitCast(di, hn::Xor(hn::LoadU(du, draws + i), hn::Set(du, 0x80000000u))));   // the draw - 2³¹
    const auto value =
        hn::DemoteTo(df, hn::Add(hn::Set(d, lo), hn::Mul(hn::Set(d, range * 0x1p-32), hn::Add(centred, hn::Set(d, 0x1p31)))));
    hn::StoreU(hn::Min(value, hn::Set(df, last)), df, x + i);
  }
}

// c_0 rⁿ + .. + c_n and the logarithm below: the bits of tensor/random.cc, so no multiply-adds
template <class D, size_t n> HWY_INLINE hn::Vec<D> Polynomial(D d, const hn::TFromD<D> (&c)[n], hn::Vec<D> r) {
  auto sum = hn::Set(d, c[0]);
  HWY_UNROLL(7)
  for (size_t i = 1; i < n; ++i) sum = hn::Add(hn::Mul(sum, r), hn::Set(d, c[i]));
  return sum;
}

// ln x for normal x > 0
template <class D> HWY_INLINE hn::Vec<D> PortableLog(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using Bits = hn::TFromD<hn::RebindToUnsigned<D>>;
  constexpr bool wide = sizeof(T) == 8;
  constexpr int digits = wide ? 52 : 23;
  constexpr T integers = wide ? T(0x1p52) : T(0x1p23);   // from here on every number is one
  const hn::RebindToUnsigned<D> du;
  const auto one = hn::Set(d, 1);
  const auto bits = hn::BitCast(du, x);
  auto e = hn::BitCast(d, hn::Or(hn::ShiftRight<digits>(bits), hn::BitCast(du, hn::Set(d, integers))));
  e = hn::Sub(e, hn::Set(d, integers + (wide ? 1023 : 127)));
  auto m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(du, (Bits(1) << digits) - 1)), hn::BitCast(du, one)));
  const auto large = hn::Gt(m, hn::Set(d, T(1.4142135623730951)));
  m = hn::IfThenElse(large, hn::Mul(m, hn::Set(d, T(0.5))), m);
  e = hn::IfThenElse(large, hn::Add(e, one), e);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), s2 = hn::Mul(s, s);
  auto sum = hn::Zero(d);
  HWY_UNROLL(11)
  for (int k = wide ? 21 : 9; k >= 1; k -= 2) sum = hn::Add(hn::Mul(sum, s2), hn::Set(d, T(1.0 / k)));
  return hn::Add(hn::Mul(e, hn::Set(d, T(0.6931471805599453))), hn::Mul(hn::Add(s, s), sum));
}

// v = u - 1/2 and p = min(u, 1 - u) of draws
template <class D> HWY_INLINE void Centred(D d, const hn::TFromD<hn::RebindToUnsigned<D>>* draws, hn::Vec<D>& v, hn::Vec<D>& p) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::LoadU(du, draws);
  const auto half = hn::Set(d, hn::TFromD<D>(0.5));
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto whole = hn::BitCast(d, hn::Or(hn::ShiftRight<12>(bits), hn::BitCast(du, hn::Set(d, 0x1p52))));
    v = hn::Sub(hn::Mul(hn::Add(hn::Sub(whole, hn::Set(d, 0x1p52)), half), hn::Set(d, 0x1p-52)), half);
    p = hn::Sub(half, hn::Abs(v));
  } else {
    const auto centre = [&](auto number) HWY_ATTR {
      return hn::Mul(hn::Add(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), number)), half), hn::Set(d, 0x1p-32f));
    };
    v = centre(hn::Xor(bits, hn::Set(du, 0x80000000u)));
    p = centre(hn::Min(bits, hn::Not(bits)));
  }
}

// x[i] = mean + std Φ⁻¹(u)
template <class T> void Normal(Key key, uint64_t group, T mean, T std, T* HWY_RESTRICT x) {
  using Quotients = detail::Quantile<T>;
  constexpr size_t n = detail::kElements<T>;
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const size_t N = hn::Lanes(d);
  hn::TFromD<hn::RebindToUnsigned<decltype(d)>> draws[n];
  T v[n], p[n], z[n];                              // of all: u - 1/2, min(u, 1 - u), Φ⁻¹(u)
  T tail_v[n + 16], tail_p[n + 16], tail_z[n + 16];   // of those beyond kQuantileCentral
  size_t places[n], count = 0;                     // where they stand
  uint64_t in_tails[n / 64] = {};
  if constexpr (sizeof(T) == 8) Draws(key, group, draws);
  else Draws32(key, group, draws);
  for (size_t i = 0; i < n; i += N) {
    hn::Vec<decltype(d)> centre, end;
    Centred(d, draws + i, centre, end);
    const auto r = hn::Sub(hn::Set(d, T(0.180625)), hn::Mul(centre, centre));
    hn::StoreU(centre, d, v + i);
    hn::StoreU(end, d, p + i);
    hn::StoreU(hn::Div(hn::Mul(centre, Polynomial(d, Quotients::kCentral.num, r)), Polynomial(d, Quotients::kCentral.den, r)), d, z + i);
    uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Gt(hn::Abs(centre), hn::Set(d, detail::kQuantileCentral<T>)), bits);
    in_tails[i / 64] |= uint64_t(bits[0] | bits[1] << 8) << i % 64;
  }
  for (size_t word = 0; word < n / 64; ++word)
    for (; in_tails[word]; in_tails[word] &= in_tails[word] - 1) {
      const size_t i = places[count] = 64 * word + size_t(__builtin_ctzll(in_tails[word]));
      tail_v[count] = v[i];
      tail_p[count++] = p[i];
    }
  for (size_t i = count; i < count + N; ++i) tail_v[i] = tail_p[i] = T(0.05);
  for (size_t i = 0; i < count; i += N) {
    const auto r = hn::Sqrt(hn::Neg(PortableLog(d, hn::LoadU(d, tail_p + i)))), from = hn::Sub(r, hn::Set(d, T(1.6)));
    const auto distance = hn::Div(Polynomial(d, Quotients::kMiddle.num, from), Polynomial(d, Quotients::kMiddle.den, from));
    hn::StoreU(hn::CopySign(distance, hn::LoadU(d, tail_v + i)), d, tail_z + i);
    if constexpr (sizeof(T) == 8)                  // the 2³² numbers of f32 do not reach further
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(r, hn::Set(d, detail::kQuantileMiddle<T>)))))
        for (size_t j = i; j < i + N; ++j) tail_z[j] = tail_v[j] < 0 ? normal_quantile(tail_p[j]) : -normal_quantile(tail_p[j]);
  }
  for (size_t i = 0; i < count; ++i) z[places[i]] = tail_z[i];
  for (size_t i = 0; i < n; i += N) hn::StoreU(hn::Add(hn::Set(d, mean), hn::Mul(hn::Set(d, std), hn::LoadU(d, z + i))), d, x + i);
}

void UniformF32(Key key, uint64_t group, double lo, double range, float last, float* x) { Uniform(key, group, lo, range, last, x); }
void UniformF64(Key key, uint64_t group, double lo, double range, double last, double* x) { Uniform(key, group, lo, range, last, x); }
void NormalF32(Key key, uint64_t group, float mean, float std, float* x) { Normal(key, group, mean, std, x); }
void NormalF64(Key key, uint64_t group, double mean, double std, double* x) { Normal(key, group, mean, std, x); }

void DropoutF32(const DropoutKey& key, Index start, const float* x, size_t n, bool add, float* y) { Dropout(key, start, x, n, add, y); }
void DropoutF64(const DropoutKey& key, Index start, const double* x, size_t n, bool add, double* y) { Dropout(key, start, x, n, add, y); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <cmath>
#include <numeric>

#include "tensor/format.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(DropoutF32);
HWY_EXPORT(DropoutF64);
HWY_EXPORT(Draws);
HWY_EXPORT(UniformF32);
HWY_EXPORT(UniformF64);
HWY_EXPORT(NormalF32);
HWY_EXPORT(NormalF64);

namespace {

constexpr Index kDrawGrain = 2048, kDropoutGrain = 16384;   // elements a chunk, multiples of 128

// groups(group, x) makes elements kCount group .. kCount group + kCount - 1 of `into`, in row-major order.
template <class T, Index kCount = detail::kDraws, class Groups> void fill(const Tensor& into, const Groups& groups) {
  const Tensor dense = into.is_contiguous() ? into : empty(into.shape(), into.dtype());
  T* const values = dense.mutable_span<T>().data();
  parallel_for(dense.numel(), kDrawGrain, [&](Index begin, Index end) {
    Index i = begin;
    for (; i + kCount <= end; i += kCount) groups(std::uint64_t(i / kCount), values + i);
    if (i == end) return;
    T edge[kCount];
    groups(std::uint64_t(i / kCount), edge);
    std::copy_n(edge, end - i, values + i);
  });
  if (!into.is_contiguous()) copy_into(into, dense);
}

// Random::below(n) of a draw x: x mod n, refused if x < 2⁶⁴ mod n.
struct Below {
  explicit Below(std::uint64_t range) : n(range), inverse(~std::uint64_t(0) / range) {}
  bool refuses(std::uint64_t x) const { return x < n && x < (0 - n) % n; }
  std::uint64_t operator()(std::uint64_t x) const {
    const auto quotient = std::uint64_t((Wide(x) * inverse) >> 64);   // or one less than that
    const std::uint64_t rest = x - quotient * n;
    return rest < n ? rest : rest - n;
  }
  __extension__ using Wide = unsigned __int128;
  std::uint64_t n, inverse;
};

// x[k] = lo + below(k) of draw k; false if one is refused, which moves all that follow.
template <class BelowOf> bool fill_below(const Tensor& into, Key key, Index lo, const BelowOf& below_of) {
  const auto draws = HWY_DYNAMIC_DISPATCH(Draws);
  const Index n = into.numel();
  std::atomic<bool> refused{false};
  fill<Index>(into, [&](std::uint64_t group, Index* x) {
    std::uint64_t bits[detail::kDraws];
    draws(key, group, bits);
    bool any = false;
    const Index first = Index(group) * detail::kDraws;
    for (Index i = 0; i < std::min(detail::kDraws, n - first); ++i) {
      const auto below = below_of(first + i);
      any |= below.refuses(bits[i]);
      x[i] = lo + Index(below(bits[i]));
    }
    if (any) refused = true;
  });
  return !refused;
}

void drop(const char* op, const Tensor& x, double p, Key key, bool add, const Tensor& y) {
  const DropoutKey dropout(op, p, key);
  visit_float(x.dtype(), op, [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutable_data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(DropoutF32), HWY_DYNAMIC_POINTER(DropoutF64));
    parallel_for(x.numel(), kDropoutGrain, [&](Index begin, Index end) {
      kernel(dropout, begin, from + begin, std::size_t(end - begin), add, to + begin);
    });
  });
}

}  // namespace

void uniform_(const Tensor& into, Key key, double lo, double hi) {
  check<Error>(lo <= hi, "uniform: lo must not exceed hi: lo {}, hi {}", lo, hi);
  check<Error>(std::isfinite(hi - lo), "uniform: hi - lo must be finite: lo {}, hi {}", lo, hi);
  visit_float(into.dtype(), "uniform", [&]<class T>() {
    const T last = lo < hi ? std::nextafter(T(hi), T(lo)) : T(lo);
    check<Error>(lo == hi || double(last) < hi, "uniform: no {} lies between: lo {}, hi {}", into.dtype(), lo, hi);
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(UniformF32), HWY_DYNAMIC_POINTER(UniformF64));
    fill<T, detail::kElements<T>>(into, [&](std::uint64_t group, T* x) { kernel(key, group, lo, hi - lo, last, x); });
  });
}

void normal_(const Tensor& into, Key key, double mean, double std) {
  check<Error>(std >= 0, "normal: std must be 0 or more: std {}", std);
  visit_float(into.dtype(), "normal", [&]<class T>() {
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(NormalF32), HWY_DYNAMIC_POINTER(NormalF64));
    fill<T, detail::kElements<T>>(into, [&](std::uint64_t group, T* x) { kernel(key, group, T(mean), T(std), x); });
  });
}

Tensor uniform(Key key, const Shape& shape, double lo, double hi, DType dtype) {
  const Tensor out = empty(shape, dtype);
  uniform_(out, key, lo, hi);
  return out;
}

Tensor normal(Key key, const Shape& shape, double mean, double std, DType dtype) {
  const Tensor out = empty(shape, dtype);
  normal_(out, key, mean, std);
  return out;
}

Tensor bernoulli(Key key, const Shape& shape, double p) {
  check<Error>(p >= 0 && p <= 1, "bernoulli: p must be in [0, 1]: p {}", p);
  const Tensor out = empty(shape, DType::u8);
  const auto draws = HWY_DYNAMIC_DISPATCH(Draws);
  fill<std::uint8_t>(out, [&](std::uint64_t group, std::uint8_t* x) {
    std::uint64_t bits[detail::kDraws];
    draws(key, group, bits);
    for (Index i = 0; i < detail::kDraws; ++i) x[i] = std::uint8_t(unit_interval(bits[i]) < p);
  });
  return out;
}

Tensor randint(Key key, const Shape& shape, Index lo, Index hi) {
  check<Error>(lo < hi, "randint: lo must be below hi: lo {}, hi {}", lo, hi);
  const Tensor out = empty(shape, DType::i64);
  Index range;
  const bool overflows = __builtin_sub_overflow(hi, lo, &range);   // then every second draw or more lies in [lo, hi)
  if (!overflows && fill_below(out, key, lo, [below = Below(std::uint64_t(range))](Index) { return below; })) return out;
  Random random(key);
  for (Index& value : out.mutable_span<Index>()) {
    if (!overflows) value = lo + random.below(range);
    else do value = Index(random.next_u64()); while (value < lo || value >= hi);
  }
  return out;
}

Tensor permutation(Key key, Index n) {
  const Tensor out = empty({n}, DType::i64), with = empty({n}, DType::i64);
  const auto order = out.mutable_span<Index>();
  std::iota(order.begin(), order.end(), Index{0});
  // Random::shuffle swaps item n - 1 - k with its k-th below(n - k)
  if (fill_below(with, key, 0, [n](Index k) { return Below(std::uint64_t(n - k)); })) {
    const Index* other = with.data<Index>();
    Index* const items = order.data();
    for (Index k = 0; k + 1 < n; ++k) std::swap(items[n - 1 - k], items[other[k]]);
  } else {
    Random(key).shuffle(order);
  }
  return out;
}

Tensor dropout(const Tensor& x, double p, Key key) {
  if (DropoutKey("dropout", p, key).keeps_all()) return x;
  const Tensor y = empty(x.shape(), x.dtype());
  drop("dropout", x.contiguous(), p, key, false, y);
  return y;
}

void dropout_grad(const Tensor& dy, double p, Key key, Into dx) {
  check<ShapeError>(dy.shape() == dx.tensor.shape(), "dropout_grad: shapes differ: dy {}, dx {}", dy.shape(), dx.tensor.shape());
  check<DTypeError>(dy.dtype() == dx.tensor.dtype(), "dropout_grad: dtypes differ: dy {}, dx {}", dy.dtype(), dx.tensor.dtype());
  Destination out(dx);
  drop("dropout_grad", dy.contiguous(), p, key, out.add(), out.tensor());
  out.finish();
}

}  // namespace heed
#endif
