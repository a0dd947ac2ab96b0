// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/soft_cross_entropy.h"

#define HWY_TARGET_INCLUDE "tensor/ops/soft_cross_entropy.cc"
#include "tensor/block-inl.h"
#include "tensor/ops/short_rows-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// q t, nothing where q is 0
template <class T> HWY_INLINE Block<T> SoftPart(const Block<T>& q, const Block<T>& t) {
  const Block<T> zero = Set16(T(0));
  Block<T> part = q * t;
  HEED_EACH_REGISTER part.v[r] = hn::IfThenZeroElse(hn::Eq(q.v[r], zero.v[r]), part.v[r]);
  return part;
}

// loss = Σ_k q_k (log Σ_j e^(x_j - m) - (x_k - m)) of one row.  passes: 1 max, 2 exp and sums
template <class T> T SoftLoss(const T* x, const T* q, size_t n, T* max, T* log_sum) {
  const T least = T(-__builtin_inf());
  Block<T> most = Set16(least);
  for (size_t i = 0; i < n; i += 16) most = Max16(most, LoadN16(x + i, n - i, least));
  const T m = MaxLane16(most);
  const Block<T> shift = Set16(m), zero = Set16(T(0));
  Block<T> sums = zero, masses = zero, totals = zero;
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> t = LoadN16(x + i, n - i, least) - shift, mass = LoadN16(q + i, n - i);
    sums = sums + Exp16(t);
    masses = masses + mass;
    totals = totals + SoftPart(mass, t);
  }
  *max = m, *log_sum = math::LogOf(Sum16(sums));
  return Sum16(masses) * *log_sum - Sum16(totals);
}

// dx (=|+=) dloss (e^t Σ_k q_k - q), or of q: dq (=|+=) -dloss t;  t = x - max - log_sum
template <class T> void SoftLossGrad(const T* x, const T* q, size_t n, T max, T log_sum, bool of_q, T dloss, bool add, T* to) {
  const Block<T> shift = Set16(max), logs = Set16(log_sum), zero = Set16(T(0)), by = Set16(dloss);
  Block<T> masses = zero;
  for (size_t i = 0; !of_q && i < n; i += 16) masses = masses + LoadN16(q + i, n - i);
  masses = Set16(Sum16(masses));
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> t = LoadN16(x + i, n - i) - shift - logs, d = by * (of_q ? zero - t : Exp16(t) * masses - LoadN16(q + i, n - i));
    StoreN16(add ? LoadN16(to + i, n - i) + d : d, n - i, to + i);
  }
}

// The losses of up to kTile rows of n <= kShort logits and probabilities, which are the columns of x and q
// [n, kTile], by SoftLoss' additions
template <class T> void ShortSoftLosses(const T* x, const T* q, size_t n, size_t rows, T* losses, T* most, T* log_sums) {
  T exps[kShort * 16], masses[kShort * 16], parts[kShort * 16];
  for (size_t i = 0; i < rows; i += 16, x += 16, q += 16) {
    Block<T> m = Load16(x);
    for (size_t k = 1; k < n; ++k) m = Max16(m, Load16(x + k * kTile));
    for (size_t k = 0; k < n; ++k) {
      const Block<T> t = Load16(x + k * kTile) - m, mass = Load16(q + k * kTile);
      Store16(Exp16(t), exps + 16 * k);
      Store16(mass, masses + 16 * k);
      Store16(SoftPart(mass, t), parts + 16 * k);
    }
    const size_t left = HWY_MIN(rows - i, size_t{16});
    const Block<T> log_sum = Log16(SumOfShort(exps, n));
    StoreN16(SumOfShort(masses, n) * log_sum - SumOfShort(parts, n), left, losses + i);
    StoreN16(m, left, most + i);
    StoreN16(log_sum, left, log_sums + i);
  }
}

// One line a type: Highway 1.0.3 exports no templates.
float SoftLossF32(const float* x, const float* q, size_t n, float* max, float* log_sum) { return SoftLoss(x, q, n, max, log_sum); }
double SoftLossF64(const double* x, const double* q, size_t n, double* max, double* log_sum) { return SoftLoss(x, q, n, max, log_sum); }
void SoftLossGradF32(const float* x, const float* q, size_t n, float max, float log_sum, bool of_q, float d, bool add, float* to) {
  SoftLossGrad(x, q, n, max, log_sum, of_q, d, add, to);
}
void SoftLossGradF64(const double* x, const double* q, size_t n, double max, double log_sum, bool of_q, double d, bool add, double* to) {
  SoftLossGrad(x, q, n, max, log_sum, of_q, d, add, to);
}
void ShortSoftLossesF32(const float* x, const float* q, size_t n, size_t rows, float* losses, float* most, float* log_sums) {
  ShortSoftLosses(x, q, n, rows, losses, most, log_sums);
}
void ShortSoftLossesF64(const double* x, const double* q, size_t n, size_t rows, double* losses, double* most, double* log_sums) {
  ShortSoftLosses(x, q, n, rows, losses, most, log_sums);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/total.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(SoftLossF32);
HWY_EXPORT(SoftLossF64);
HWY_EXPORT(SoftLossGradF32);
HWY_EXPORT(SoftLossGradF64);
HWY_EXPORT(ShortSoftLossesF32);
HWY_EXPORT(ShortSoftLossesF64);

namespace {

void check_soft(const char* op, const Tensor& logits, const Tensor& other, const char* name) {
  check<ShapeError>(logits.rank() >= 1, "{}: logits need at least 1 dimension: {}", op, logits.shape());
  check<ShapeError>(logits.shape() == other.shape(), "{}: shapes differ: logits {}, {} {}", op, logits.shape(), name, other.shape());
  check<DTypeError>(logits.dtype() == other.dtype(), "{}: dtypes differ: logits {}, {} {}", op, logits.dtype(), name, other.dtype());
}

}  // namespace

SoftCrossEntropy soft_cross_entropy(const Tensor& logits, const Tensor& probabilities) {
  const char* op = "soft_cross_entropy";
  check_soft(op, logits, probabilities, "probabilities");
  return visit_float(logits.dtype(), op, [&]<class T>() {
    const Index V = logits.size(-1);
    const Shape rows = without_last(logits.shape());
    const Tensor z = logits.contiguous(), q = probabilities.contiguous();
    SoftCrossEntropy out{zeros(rows, logits.dtype()), {zeros(rows, logits.dtype()), zeros(rows, logits.dtype())}, 0};
    const T *in = z.data<T>(), *masses = q.data<T>();
    T *losses = out.losses.mutable_data<T>(), *most = out.log_sum_exp.max.mutable_data<T>(),
      *log_sum = out.log_sum_exp.log_sum.mutable_data<T>();
    if (V > 0 && V <= Index(kShort)) {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(ShortSoftLossesF32), HWY_DYNAMIC_POINTER(ShortSoftLossesF64));
      for_short_rows<T>(rows.numel(), V, in, masses, nullptr, false, [&](Index row, std::size_t count, const T* x, const T* p, T*) {
        kernel(x, p, std::size_t(V), count, losses + row, most + row, log_sum + row);
      });
    } else if (V > 0) {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(SoftLossF32), HWY_DYNAMIC_POINTER(SoftLossF64));
      parallel_for(rows.numel(), row_grain(V), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row)
          losses[row] = kernel(in + row * V, masses + row * V, std::size_t(V), most + row, log_sum + row);
      });
    }
    out.total = total_of<T>(out.losses);
    return out;
  });
}

void soft_cross_entropy_grad(const Tensor& logits, const Tensor& probabilities, const LogSumExp& log_sum_exp, const Tensor& dlosses,
                             const Into* dlogits, const Into* dprobabilities) {
  const char* op = "soft_cross_entropy_grad";
  check_soft(op, logits, probabilities, "probabilities");
  check_row_numbers(op, logits, log_sum_exp, dlosses);
  visit_float(logits.dtype(), op, [&]<class T>() {
    const Index V = logits.size(-1);
    const Tensor z = logits.contiguous(), q = probabilities.contiguous(), maxima = log_sum_exp.max.contiguous(),
                 sums = log_sum_exp.log_sum.contiguous(), ups = dlosses.contiguous();
    const T *in = z.data<T>(), *masses = q.data<T>(), *most = maxima.data<T>(), *log_sum = sums.data<T>(), *up = ups.data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(SoftLossGradF32), HWY_DYNAMIC_POINTER(SoftLossGradF64));
    for (const Into* into : {dlogits, dprobabilities}) {
      if (!into) continue;
      check_soft(op, logits, into->tensor, into == dlogits ? "dlogits" : "dprobabilities");
      const Destination out(*into);
      T* const to = out.tensor().mutable_data<T>();
      parallel_for(dlosses.numel(), row_grain(V), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row)
          kernel(in + row * V, masses + row * V, std::size_t(V), most[row], log_sum[row], into == dprobabilities, up[row], out.add(),
                 to + row * V);
      });
      out.finish();
    }
  });
}

}  // namespace heed
#endif
