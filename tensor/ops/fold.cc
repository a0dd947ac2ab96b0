// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/fold.h"

#include "tensor/dtype.h"

#define HWY_TARGET_INCLUDE "tensor/ops/fold.cc"
#include "tensor/simd-inl.h"

#ifndef HEED_FOLD_KERNELS  // this file is read once for each target
#define HEED_FOLD_KERNELS
namespace heed {
// Elements of a sequence of n that are folded by themselves: all up to 512, beyond that an even number of like chunks, so that two
// threads each fold across the rows that they wrote.
constexpr size_t kLongest = 512;
constexpr size_t chunk_of(size_t n) {
  if (n <= kLongest) return kLongest;
  const size_t chunks = 2 * ((n + 2 * kLongest - 1) / (2 * kLongest));
  return round_up(divide_up(n, chunks), 16);
}
// R: T where the order matters, std::uint64_t where it does not
template <class T, class R> struct FoldKernels {
  // results[r][c] = fold of chunk c, of `chunk` elements, of x[r stride .. + n)
  void (*rows)(const T* x, size_t rows, ptrdiff_t stride, size_t n, size_t chunk, R* results);
  // result = fold of one chunk in pieces x[offset[p] .. + length[p]), lengths that are multiples of 16
  void (*pieces)(const T* x, const ptrdiff_t* offset, const ptrdiff_t* length, size_t count, R* result);
  // result[j] = fold of x[offset[r] + j] over r < rows, one chunk
  void (*columns)(const T* x, const ptrdiff_t* offset, size_t rows, size_t n, R* result);
  // the same of rows of n <= 16 elements that follow one another; nullptr if there is none
  void (*narrow)(const T* x, size_t rows, size_t n, R* result) = nullptr;
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// results[r * next] = fold of x[r stride .. + n), kSome sequences side by side: each waits for itself
template <class Op, class F, size_t kSome, class T>
HWY_INLINE void Together(const T* x, ptrdiff_t stride, size_t n, T* results, size_t next) {
  Lanes16Of<Op, T> lanes[kSome];
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    HWY_UNROLL(4)
    for (size_t r = 0; r < kSome; ++r) lanes[r].template Take<F>(x + ptrdiff_t(r) * stride + i);
  }
  for (size_t r = 0; r < kSome; ++r) {
    if (i < n) lanes[r].template TakeFirst<F>(x + ptrdiff_t(r) * stride + i, n - i);
    results[r * next] = lanes[r].Fold();
  }
}

template <class Op, class F, class T> void Rows(const T* x, size_t rows, ptrdiff_t stride, size_t n, size_t chunk, T* results) {
  // registers for their lanes
  constexpr size_t kSome = HEED_OLD_TARGET ? 1 : HWY_MAX(HWY_MIN(hn::MaxLanes(Lanes16<T>()) / 2, size_t{4}), size_t{1});
  const size_t chunks = divide_up(n, chunk);
  const auto all = [&](size_t count, const T* from, ptrdiff_t distance, size_t length, T* to, size_t next) HWY_ATTR {
    for (; count >= kSome; count -= kSome, from += ptrdiff_t(kSome) * distance, to += kSome * next)
      Together<Op, F, kSome>(from, distance, length, to, next);
    for (; count > 0; --count, from += distance, to += next) *to = Reduce<Op, F>(from, length);
  };
  if (chunks == 1) return all(rows, x, stride, n, results, 1);
  for (size_t r = 0; r < rows; ++r, x += stride, results += chunks) {
    all(n / chunk, x, ptrdiff_t(chunk), chunk, results, 1);
    if (n % chunk != 0) results[n / chunk] = Reduce<Op, F>(x + n / chunk * chunk, n % chunk);
  }
}

template <class Op, class F, class T> void Pieces(const T* x, const ptrdiff_t* offset, const ptrdiff_t* length, size_t count, T* result) {
  Lanes16Of<Op, T> lanes;
  for (size_t p = 0; p < count; ++p)
    for (const T *at = x + offset[p], *end = at + length[p]; at < end; at += 16) lanes.template Take<F>(at);
  *result = lanes.Fold();
}

// A vector of columns: lane(l) of kLanes lanes, folded in halves
template <class Op, size_t kLanes, class D, class Lane> HWY_INLINE hn::Vec<D> FoldColumns(D d, const Lane& lane) {
  hn::Vec<D> v[kLanes / 2];
  HWY_UNROLL(8)
  for (size_t l = 0; l < kLanes / 2; ++l) v[l] = Op::f(d, lane(l), lane(l + kLanes / 2));
  HWY_UNROLL(3)
  for (size_t half = kLanes / 4; half > 0; half /= 2) {
    HWY_UNROLL(4)
    for (size_t l = 0; l < half; ++l) v[l] = Op::f(d, v[l], v[l + half]);
  }
  return v[0];
}

// At most 16 rows: each is a lane. Lanes without a row, the neutral element, change nothing.
template <class Op, class F, class T> HWY_INLINE void FewRows(const T* x, const ptrdiff_t* offset, size_t rows, size_t n, T* result) {
  const hn::ScalableTag<T> d;
  const auto none = hn::Set(d, T(Op::kNeutral));
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    const auto lane = [&](size_t l) HWY_ATTR { return l < rows ? F::f(d, LoadFirst(d, x + offset[l] + j, n - j)) : none; };
    const auto v = rows > 8 ? FoldColumns<Op, 16>(d, lane) : rows > 4 ? FoldColumns<Op, 8>(d, lane) : FoldColumns<Op, 4>(d, lane);
    StoreFirst(Op::f(d, none, v), d, result + j, n - j);
  }
}

// Row r in lane r % 16 of each column, kLanes lanes of kVectors vectors at a time. Rows may lie a page apart, which the hardware does not
// run ahead of.
template <class Op, class F, size_t kLanes, size_t kVectors, class T>
HWY_INLINE void ManyRows(const T* x, const ptrdiff_t* offset, size_t rows, size_t n, T* result) {
  const hn::ScalableTag<T> d;
  constexpr size_t N = hn::MaxLanes(d), kWidth = kVectors * N;
  T lanes[16 * kWidth];
  for (size_t lane = 0; lane < 16; lane += kLanes) {
    hn::Vec<decltype(d)> sum[kLanes][kVectors];
    HWY_UNROLL(16)
    for (size_t l = 0; l < kLanes; ++l) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) sum[l][v] = hn::Set(d, T(Op::kNeutral));
    }
    size_t r = lane;
    for (; r + kLanes <= rows; r += 16) {
      HWY_UNROLL(16)
      for (size_t l = 0; l < kLanes; ++l) {
        const T* row = x + offset[r + l];
        __builtin_prefetch(row + 2 * kWidth);
        HWY_UNROLL(4)
        for (size_t v = 0; v < kVectors; ++v)
          sum[l][v] = Op::f(d, sum[l][v], F::f(d, kVectors > 1 ? hn::LoadU(d, row + v * N) : LoadFirst(d, row, n)));
      }
    }
    T* const at = lanes + lane * kWidth;
    HWY_UNROLL(16)
    for (size_t l = 0; l < kLanes; ++l) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[l][v], d, at + l * kWidth + v * N);
    }
    for (size_t l = 0; r + l < rows && l < kLanes; ++l)      // the rest, less than kLanes rows
      for (size_t v = 0; v < kVectors; ++v) {
        T* const to = at + l * kWidth + v * N;
        hn::StoreU(Op::f(d, hn::LoadU(d, to), F::f(d, LoadFirst(d, x + offset[r + l] + v * N, n - v * N))), d, to);
      }
  }
  for (size_t j = 0; j < kWidth && j < n; j += N) {
    const auto lane = [&](size_t l) HWY_ATTR { return hn::LoadU(d, lanes + l * kWidth + j); };
    StoreFirst(FoldColumns<Op, 16>(d, lane), d, result + j, n - j);
  }
}

template <class Op, class F, class T> void Columns(const T* x, const ptrdiff_t* offset, size_t rows, size_t n, T* result) {
  if (rows <= 16) return FewRows<Op, F>(x, offset, rows, n, result);
  constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
  constexpr size_t kVectors = HEED_OLD_TARGET ? 1 : kManyRegisters ? 4 : 2, N = hn::MaxLanes(hn::ScalableTag<T>());
  size_t j = 0;
  for (; j + kVectors * N <= n; j += kVectors * N) ManyRows<Op, F, 4, kVectors>(x + j, offset, rows, n - j, result + j);
  for (; j < n; j += N) ManyRows<Op, F, kManyRegisters ? 16 : 4, 1>(x + j, offset, rows, n - j, result + j);
}

// 16 rows are one of 16 n elements: row r stands in lane r % 16 of each column.
template <class Op, class F, class T> void Narrow(const T* x, size_t rows, size_t n, T* result) {
  const Lanes16<T> d;
  HWY_ALIGN T lanes[16 * 16];
  for (size_t i = 0; i < 16 * n; i += hn::Lanes(d)) hn::Store(hn::Set(d, T(Op::kNeutral)), d, lanes + i);
  for (; rows > 0; rows -= HWY_MIN(rows, size_t{16}), x += 16 * n)
    for (size_t i = 0, count = HWY_MIN(rows, size_t{16}) * n; i < count; i += hn::Lanes(d))
      StoreFirst(Op::f(d, hn::Load(d, lanes + i), F::f(d, LoadFirst(d, x + i, count - i))), d, lanes + i, count - i);
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t i = 0; i < half * n; i += hn::Lanes(d))
      StoreFirst(Op::f(d, hn::Load(d, lanes + i), LoadFirst(d, lanes + i + half * n, half * n - i)), d, lanes + i, half * n - i);
  for (size_t j = 0; j < n; ++j) result[j] = lanes[j];
}

// y (=|+=) x / divisor, or its root
template <class T> HWY_INLINE void Finish(const T* x, size_t n, T divisor, bool root, bool add, T* y) {
  const hn::ScalableTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    auto v = LoadFirst(d, x + i, n - i);
    if (divisor != 1) v = hn::Div(v, hn::Set(d, divisor));
    if (root) v = hn::Sqrt(v);
    StoreFirst(add ? hn::Add(LoadFirst(d, y + i, n - i), v) : v, d, y + i, n - i);
  }
}
void FinishF32(const float* x, size_t n, float divisor, bool root, bool add, float* y) { Finish(x, n, divisor, root, add, y); }
void FinishF64(const double* x, size_t n, double divisor, bool root, bool add, double* y) { Finish(x, n, divisor, root, add, y); }

// results[s] = Σ_i a[s chunk + i] b[s chunk + i], i < n; kSome sums side by side
template <size_t kSome, class T> HWY_INLINE void ProductsTogether(const T* a, const T* b, size_t chunk, size_t n, T* results) {
  const Lanes16<T> d;
  Lanes16Of<SumOp, T> lanes[kSome];
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    HWY_UNROLL(4)
    for (size_t s = 0; s < kSome; ++s)
      lanes[s].TakeEach([=](size_t r) HWY_ATTR {
        const size_t at = s * chunk + i + r * hn::MaxLanes(d);
        return hn::Mul(hn::LoadU(d, a + at), hn::LoadU(d, b + at));
      });
  }
  for (size_t s = 0; s < kSome; ++s) {
    T rest[16] = {};
    for (size_t j = i; j < n; ++j) rest[j - i] = a[s * chunk + j] * b[s * chunk + j];
    if (i < n) lanes[s].template Take<Same>(rest);
    results[s] = lanes[s].Fold();
  }
}
// results[c] = Σ a[i] b[i] over chunk c
template <class T> HWY_INLINE void Products(const T* a, const T* b, size_t n, size_t chunk, T* results) {
  constexpr size_t kSome = HEED_OLD_TARGET ? 1 : 4;
  for (; n >= kSome * chunk; n -= kSome * chunk, a += kSome * chunk, b += kSome * chunk, results += kSome)
    ProductsTogether<kSome>(a, b, chunk, chunk, results);
  for (; n > 0; n -= HWY_MIN(n, chunk), a += chunk, b += chunk) ProductsTogether<1>(a, b, chunk, HWY_MIN(n, chunk), results++);
}
void ProductsF32(const float* a, const float* b, size_t n, size_t chunk, float* results) { Products(a, b, n, chunk, results); }
void ProductsF64(const double* a, const double* b, size_t n, size_t chunk, double* results) { Products(a, b, n, chunk, results); }

template <class Op, class F, class T>
FoldKernels<T, T> Kernels() {
  return {Rows<Op, F, T>, Pieces<Op, F, T>, Columns<Op, F, T>, Narrow<Op, F, T>};
}
template <class T> FoldKernels<T, T> Pick(Folding folding) {
  switch (folding) {
    case Folding::squares: return Kernels<SumOp, Squared, T>();
    case Folding::product: return Kernels<ProductOp, Same, T>();
    case Folding::max: return Kernels<MaxOp, Same, T>();
    case Folding::min: return Kernels<MinOp, Same, T>();
    default: return Kernels<SumOp, Same, T>();
  }
}
FoldKernels<float, float> PickF32(Folding folding) { return Pick<float>(folding); }
FoldKernels<double, double> PickF64(Folding folding) { return Pick<double>(folding); }

// ---- folds that are exact in any order: loops of constant length, which the compiler turns into vectors ----

template <class T> HWY_INLINE bool NotZero(T x) { return x != T(0); }
HWY_INLINE bool NotZero(BFloat16 x) { return (x.bits & 0x7fff) != 0; }

struct Total {   // integers wrap
  static constexpr uint64_t kNeutral = 0;
  template <class T> using Lane = uint64_t;
  template <class T> static HWY_INLINE uint64_t value(T x) { return uint64_t(int64_t(x)); }
  template <class A> static HWY_INLINE A f(A a, A b) { return A(a + b); }
};
struct Any {
  static constexpr uint64_t kNeutral = 0;
  template <class T> using Lane = BitsOf<T>;
  template <class T> static HWY_INLINE BitsOf<T> value(T x) { return NotZero(x); }
  template <class A> static HWY_INLINE A f(A a, A b) { return A(a | b); }
};
struct All : Any {
  static constexpr uint64_t kNeutral = 1;
  template <class A> static HWY_INLINE A f(A a, A b) { return A(a & b); }
};

template <class F, class T> HWY_INLINE uint64_t ExactRow(const T* x, size_t n) {
  using Lane = typename F::template Lane<T>;
  Lane value = Lane(F::kNeutral);
  size_t i = 0;
  if (n >= 128) {
    Lane lanes[32];
    for (Lane& lane : lanes) lane = Lane(F::kNeutral);
    for (; i + 128 <= n; i += 128) {
      const T* HWY_RESTRICT from = x + i;
      for (size_t l = 0; l < 32; ++l)
        lanes[l] =
            F::f(lanes[l], F::f(F::f(F::value(from[l]), F::value(from[l + 32])), F::f(F::value(from[l + 64]), F::value(from[l + 96]))));
    }
    for (const Lane lane : lanes) value = F::f(value, lane);
  }
  for (; i < n; ++i) value = F::f(value, F::value(x[i]));
  return value;
}
template <class F, class T> void ExactRows(const T* x, size_t rows, ptrdiff_t stride, size_t n, size_t chunk, uint64_t* results) {
  for (size_t r = 0; r < rows; ++r, x += stride)
    for (size_t i = 0; i < n; i += chunk) *results++ = ExactRow<F>(x + i, HWY_MIN(n - i, chunk));
}
template <class F, class T> void ExactPieces(const T* x, const ptrdiff_t* offset, const ptrdiff_t* length, size_t count, uint64_t* result) {
  *result = F::kNeutral;
  for (size_t p = 0; p < count; ++p) *result = F::f(*result, ExactRow<F>(x + offset[p], size_t(length[p])));
}
template <class F, class T> void ExactColumns(const T* x, const ptrdiff_t* offset, size_t rows, size_t n, uint64_t* result) {
  using Lane = typename F::template Lane<T>;
  for (size_t j = 0; j < n; j += 64) {
    const size_t count = HWY_MIN(n - j, size_t{64});
    Lane lanes[64];
    for (Lane& lane : lanes) lane = Lane(F::kNeutral);
    for (size_t r = 0; r < rows; ++r) {
      const T* HWY_RESTRICT row = x + offset[r] + j;
      if (count == 64) for (size_t i = 0; i < 64; ++i) lanes[i] = F::f(lanes[i], F::value(row[i]));
      else for (size_t i = 0; i < count; ++i) lanes[i] = F::f(lanes[i], F::value(row[i]));
    }
    for (size_t i = 0; i < count; ++i) result[j + i] = lanes[i];
  }
}
template <class T> FoldKernels<T, uint64_t> PickExact(Folding folding) {
  if (folding == Folding::any) return {ExactRows<Any, T>, ExactPieces<Any, T>, ExactColumns<Any, T>};
  if constexpr (std::is_integral_v<T>)
    if (folding == Folding::sum) return {ExactRows<Total, T>, ExactPieces<Total, T>, ExactColumns<Total, T>};
  return {ExactRows<All, T>, ExactPieces<All, T>, ExactColumns<All, T>};
}
FoldKernels<float, uint64_t> ExactF32(Folding folding) { return PickExact<float>(folding); }
FoldKernels<double, uint64_t> ExactF64(Folding folding) { return PickExact<double>(folding); }
FoldKernels<BFloat16, uint64_t> ExactBF16(Folding folding) { return PickExact<BFloat16>(folding); }
FoldKernels<int32_t, uint64_t> ExactI32(Folding folding) { return PickExact<int32_t>(folding); }
FoldKernels<int64_t, uint64_t> ExactI64(Folding folding) { return PickExact<int64_t>(folding); }
FoldKernels<uint8_t, uint64_t> ExactU8(Folding folding) { return PickExact<uint8_t>(folding); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "tensor/gemm.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(PickF32);
HWY_EXPORT(PickF64);
HWY_EXPORT(ExactF32);
HWY_EXPORT(ExactF64);
HWY_EXPORT(ExactBF16);
HWY_EXPORT(ExactI32);
HWY_EXPORT(ExactI64);
HWY_EXPORT(ExactU8);
HWY_EXPORT(FinishF32);
HWY_EXPORT(FinishF64);
HWY_EXPORT(ProductsF32);
HWY_EXPORT(ProductsF64);

namespace {

constexpr Index kColumnBlock = 128, kFewChunks = 64, kShort = 16;

template <class T>
FoldKernels<T, T> kernels_of(Folding folding) {
  return pick<T>(HWY_DYNAMIC_DISPATCH(PickF32), HWY_DYNAMIC_DISPATCH(PickF64))(folding);
}
template <class T> FoldKernels<T, std::uint64_t> exact_kernels(Folding folding) {
  if constexpr (std::is_same_v<T, BFloat16>) return HWY_DYNAMIC_DISPATCH(ExactBF16)(folding);
  else if constexpr (std::is_same_v<T, std::int32_t>) return HWY_DYNAMIC_DISPATCH(ExactI32)(folding);
  else if constexpr (std::is_same_v<T, Index>) return HWY_DYNAMIC_DISPATCH(ExactI64)(folding);
  else if constexpr (std::is_same_v<T, std::uint8_t>) return HWY_DYNAMIC_DISPATCH(ExactU8)(folding);
  else return pick<T>(HWY_DYNAMIC_DISPATCH(ExactF32), HWY_DYNAMIC_DISPATCH(ExactF64))(folding);
}

// Result of the chunks so far and one more.
double join(Folding folding, double a, double b) {
  switch (folding) {
    case Folding::product: return a * b;
    case Folding::max: return b > a || std::isnan(b) ? b : a;
    case Folding::min: return b < a || std::isnan(b) ? b : a;
    default: return a + b;
  }
}
std::uint64_t join(Folding folding, std::uint64_t a, std::uint64_t b) {
  return folding == Folding::any ? a | b : folding == Folding::all ? a & b : a + b;
}

template <class Total> Total neutral(Folding folding) {
  if (folding == Folding::product || folding == Folding::all) return 1;
  if constexpr (std::is_floating_point_v<Total>)
    if (folding == Folding::max || folding == Folding::min) return folding == Folding::max ? -HUGE_VAL : HUGE_VAL;
  return 0;
}

// A fold of sequences: calls put(offset of a result, fold of its sequence), or put(offset, step, folds, count) for several of one chunk,
// until every result is there. R is the type of a chunk's fold, Total of all of them.
template <class T, class R, class Total, class Put> struct Sequences {
  Folding folding;
  const FoldKernels<T, R>& kernels;
  const T* from;
  Counter kept, reduced;                           // of kept the second strides are those of the results
  const Put& put;
  Index n = reduced.total, size = Index(chunk_of(std::size_t(n))), chunks = std::max<Index>(1, divide_up(n, size));   // of size elements

  static Tensor partials_of(Index count) { return empty({(count * Index(sizeof(R)) + 7) / 8}, DType::i64); }

  // Chunks of results that are worth tasks of their own go through memory. partials: [results][chunks][width]
  void join_partials(const R* partials, Index results, Index width, const Counter& results_at, const Counter& columns_at) const {
    parallel_for(results * width, row_grain(chunks), [&](Index begin, Index end) {
      Counter result = results_at, column = columns_at;
      result.seek(begin / width);
      column.seek(begin % width);
      for (Index i = begin; i < end; ++i) {
        Total total = neutral<Total>(folding);
        for (Index c = 0; c < chunks; ++c) total = join(folding, total, Total(partials[(i / width * chunks + c) * width + i % width]));
        put(result.offset[1] + column.offset[1], total);
        column.next();
        if ((i + 1) % width == 0) result.next();
      }
    });
  }

  // Across sequences: along the kept axis `across` elements lie side by side.
  void side_by_side(int across) const {
    Counter column, result;
    for (int axis = 0; axis < kept.rank; ++axis) {
      const auto [first, second] = kept.stride[std::size_t(axis)];
      (axis == across ? column : result).push(kept.size[std::size_t(axis)], first, second);
    }
    const Index width = column.total, blocks = divide_up(width, kColumnBlock);
    const bool narrow = kernels.narrow && width <= 16 && reduced.rank == 1 && reduced.step() == width;
    const Tensor memory = chunks > 1 ? partials_of(result.total * chunks * width) : Tensor();
    R* const partials = chunks > 1 ? reinterpret_cast<R*>(memory.mutable_data<Index>()) : nullptr;
    parallel_for(result.total * chunks * blocks, row_grain(std::min(width, kColumnBlock) * std::min(n, size)), [&](Index begin, Index end) {
      R values[kColumnBlock];
      std::ptrdiff_t offset[kLongest];
      Counter at = result, row = reduced;
      Index rows = 0, chunk_at = -1;
      for (Index item = begin; item < end; ++item) {
        const Index block = item % blocks, chunk = item / blocks % chunks, i = item / blocks / chunks;
        const Index first = block * kColumnBlock, count = std::min(kColumnBlock, width - first);
        if (chunk != chunk_at) {
          row.seek(chunk * size);
          rows = std::min(size, n - chunk * size);
          if (!narrow) row.offsets(rows, offset);
          chunk_at = chunk;
        }
        at.seek(i);
        R* const out = partials ? partials + (i * chunks + chunk) * width + first : values;
        if (narrow) kernels.narrow(from + at.offset[0] + row.offset[0], std::size_t(rows), std::size_t(width), out);
        else kernels.columns(from + at.offset[0] + first, offset, std::size_t(rows), std::size_t(count), out);
        if (!partials) put(at.offset[1] + first * column.step(1), column.step(1), values, count);
      }
    });
    if (partials) join_partials(partials, result.total, width, result, column);
  }

  void fold_chunk(const T* sequence, Index chunk, T* buffer, R* to) const {
    const bool in_pieces = reduced.rank > 1 && reduced.step() == 1 && reduced.size[std::size_t(reduced.rank - 1)] % 16 == 0;
    const Index first = chunk * size, count = std::min(size, n - first);
    if (!in_pieces)
      return kernels.rows(reduced.read(sequence, first, count, buffer), 1, 0, std::size_t(count), std::size_t(size), to);
    std::ptrdiff_t offset[kLongest / 16], length[kLongest / 16];
    Counter at = reduced;
    at.seek(first);
    std::size_t pieces = 0;
    for (Index left = count; left > 0; left -= length[pieces++]) {
      offset[pieces] = at.offset[0];
      length[pieces] = std::min(left, at.run());
      at.next(length[pieces]);
    }
    kernels.pieces(sequence, offset, length, pieces, to);
  }

  // Along sequences of so many chunks that these are tasks of their own
  void of_many_chunks() const {
    const Tensor memory = partials_of(kept.total * chunks);
    R* const partials = reinterpret_cast<R*>(memory.mutable_data<Index>());
    parallel_for(kept.total * chunks, row_grain(size), [&](Index begin, Index end) {
      T buffer[kLongest];
      Counter at = kept;
      at.seek(begin / chunks);
      for (Index i = begin; i < end;) {
        const Index chunk = i % chunks, some = reduced.unit() ? std::min(end - i, chunks - chunk) : 1;
        if (reduced.unit())
          kernels.rows(from + at.offset[0] + chunk * size, 1, 0, std::size_t(std::min(some * size, n - chunk * size)), std::size_t(size),
                       partials + i);
        else fold_chunk(from + at.offset[0], chunk, buffer, partials + i);
        i += some;
        if (i % chunks == 0) at.next();
      }
    });
    join_partials(partials, kept.total, 1, kept, {});
  }

  // Along sequences, each by one thread
  void of_few_chunks() const {
    parallel_for(kept.total, row_grain(std::max<Index>(n, 16)), [&](Index begin, Index end) {
      T buffer[kShort * kColumnBlock];
      R values[kColumnBlock];
      std::ptrdiff_t offset[kShort];
      Counter at = kept;
      at.seek(begin);
      while (begin < end) {
        const Index rows = reduced.unit() && n > 0 ? std::min({end - begin, at.run(), kColumnBlock / chunks}) : 1;
        const T* const x0 = n == 0 ? nullptr : from + at.offset[0];
        if (n == 0) {
          values[0] = R(neutral<Total>(folding));
        } else if (!reduced.unit()) {
          for (Index c = 0; c < chunks; ++c) fold_chunk(x0, c, buffer, values + c);
        } else if (std::is_floating_point_v<T> && n <= kShort && rows >= kShort) {   // turned, so that they lie side by side
          if constexpr (std::is_floating_point_v<T>) gemm_kernels<T>().turn(x0, at.step(), n, rows, kColumnBlock, buffer);
          for (Index k = 0; k < n; ++k) offset[k] = k * kColumnBlock;
          kernels.columns(buffer, offset, std::size_t(n), std::size_t(rows), values);
        } else {
          kernels.rows(x0, std::size_t(rows), at.step(), std::size_t(n), std::size_t(size), values);
        }
        if (chunks == 1) put(at.offset[1], at.step(1), values, rows);
        for (Index r = 0; chunks > 1 && r < rows; ++r) {
          Total total(values[r * chunks]);
          for (Index c = 1; c < chunks; ++c) total = join(folding, total, Total(values[r * chunks + c]));
          put(at.offset[1] + r * at.step(1), total);
        }
        begin += rows;
        at.next(rows);
      }
    });
  }
};

// x's strides choose the loop; to: the results' strides over x's shape.
template <class T, class R, class Total, class Put>
void fold_sequences(Folding folding, const FoldKernels<T, R>& kernels, const Tensor& x, const Axes& axes, const Strides& to,
                    const Put& put) {
  Counter kept, reduced;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axes[std::size_t(axis)]) reduced.push(x.shape()[axis], x.strides()[axis]);
    else kept.push(x.shape()[axis], x.strides()[axis], to[axis]);
  }
  if (kept.total == 0) return;
  int across = -1;   // the kept axis whose results lie side by side
  for (int axis = 0; axis < kept.rank; ++axis)
    if (kept.stride[std::size_t(axis)][0] == 1) across = axis;
  const bool turned = !x.is_contiguous() && across < 0 && reduced.rank > 1 && reduced.step() != 1;
  bool repeated = false;   // broadcast: a copy would be larger
  for (int axis = 0; axis < reduced.rank; ++axis) repeated |= reduced.stride[std::size_t(axis)][0] == 0;
  if (turned && !repeated) return fold_sequences<T, R, Total>(folding, kernels, x.contiguous(), axes, to, put);
  const Sequences<T, R, Total, Put> all{.folding = folding,
                                        .kernels = kernels,
                                        .from = reduced.total > 0 ? x.data<T>() : nullptr,
                                        .kept = kept,
                                        .reduced = reduced,
                                        .put = put};
  if (across >= 0 && all.n > 0 && (reduced.rank == 0 || reduced.step() != 1)) return all.side_by_side(across);
  all.chunks > kFewChunks ? all.of_many_chunks() : all.of_few_chunks();
}

template <class T> struct Put {
  T* to;
  bool add;
  FoldEnding ending;
  void operator()(Index offset, double value) const {
    value /= ending.divisor;
    const T result = T(ending.root ? std::sqrt(value) : value);
    to[offset] = add ? to[offset] + result : result;
  }
  void operator()(Index offset, Index step, const T* values, Index count) const {
    if (step == 1) finish(values, std::size_t(count), T(ending.divisor), ending.root, add, to + offset);
    else for (Index i = 0; i < count; ++i) (*this)(offset + i * step, double(values[i]));
  }
  decltype(pick<T>(HWY_DYNAMIC_POINTER(FinishF32), HWY_DYNAMIC_POINTER(FinishF64))) finish =
      pick<T>(HWY_DYNAMIC_POINTER(FinishF32), HWY_DYNAMIC_POINTER(FinishF64));
};

struct PutExact {
  Index* sums;               // or, of any and all:
  std::uint8_t* answers;
  void operator()(Index offset, std::uint64_t value) const {
    sums ? void(sums[offset] = Index(value)) : void(answers[offset] = std::uint8_t(value));
  }
  void operator()(Index offset, Index step, const std::uint64_t* values, Index count) const {
    for (Index i = 0; i < count; ++i) (*this)(offset + i * step, values[i]);
  }
};

}  // namespace

void fold(Folding folding, const Tensor& x, const Axes& axes, const Into& out, FoldEnding ending) {
  if (out.tensor.numel() == 0) return;
  visit_float(x.dtype(), "fold", [&]<class T>() {
    fold_sequences<T, T, double>(folding, kernels_of<T>(folding), x, axes, out.tensor.strides(),
                                 Put<T>{out.tensor.mutable_data<T>(), out.add, ending});
  });
}

void fold_products(const Tensor& a, const Tensor& b, const Into& out) {
  visit_float(a.dtype(), "fold_products", [&]<class T>() {
    const Tensor left = a.contiguous(), right = b.contiguous();
    const T *const x = left.data<T>(), *const y = right.data<T>();
    const Index n = left.numel(), size = Index(chunk_of(std::size_t(n))), chunks = divide_up(n, size);
    const Tensor partials = empty({chunks}, a.dtype());
    T* const sums = partials.mutable_data<T>();
    const auto products = pick<T>(HWY_DYNAMIC_POINTER(ProductsF32), HWY_DYNAMIC_POINTER(ProductsF64));
    parallel_for(chunks, row_grain(size), [&](Index begin, Index end) {
      products(x + begin * size, y + begin * size, std::size_t(std::min(end * size, n) - begin * size), std::size_t(size), sums + begin);
    });
    double total = 0;
    for (Index c = 0; c < chunks; ++c) total += double(sums[c]);
    Put<T>{out.tensor.mutable_data<T>(), out.add, {}}(0, total);
  });
}

void fold_exact(Folding folding, const Tensor& x, const Axes& axes, const Tensor& out) {
  if (out.numel() == 0) return;
  const bool sums = folding == Folding::sum;
  const PutExact put{sums ? out.mutable_data<Index>() : nullptr, sums ? nullptr : out.mutable_data<std::uint8_t>()};
  visit_any(x.dtype(), [&]<class T>() {
    fold_sequences<T, std::uint64_t, std::uint64_t>(folding, exact_kernels<T>(folding), x, axes, out.strides(), put);
  });
}

}  // namespace heed
#endif
