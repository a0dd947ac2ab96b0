// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/cross_entropy.h"

#include <limits>

#include "tensor/ops/short_rows.h"

#ifndef HEED_TENSOR_OPS_CROSS_ENTROPY_SMOOTHED      // this file is read once for each target
#define HEED_TENSOR_OPS_CROSS_ENTROPY_SMOOTHED
namespace heed {
namespace {

// q of label smoothing: mass of the true label and of each other one; the label `pad` gets none (-1: no such label)
template <class T> struct Smoothed {
  T true_mass, other_mass;
  Index pad;
  const T* weight = nullptr;   // w of each class, null: 1
  T weights = 0;               // Σ w, without pad
};
// of one row: log Σ_k exp(z_k) = max + log_sum
template <class T> struct RowSum { T max, log_sum; };
// of one row: what the label gets beside softmax(z), with has_rest what else is in that softmax, and the derivatives by all
template <class T> struct RowMixture { T log_share, other, rest, dlog_share, dother, drest; bool has_rest; };

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/cross_entropy.cc"
#include "tensor/block-inl.h"
#include "tensor/ops/short_rows-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// w of the true label, Σ_k w_k q_k
template <class T> HWY_INLINE T TrueWeight(const Smoothed<T>& q, size_t target) { return q.weight ? q.weight[target] : T(1); }
template <class T> HWY_INLINE T Mass(const Smoothed<T>& q, size_t target) {
  return q.weight ? (q.true_mass - q.other_mass) * q.weight[target] + q.other_mass * q.weights : T(1);
}

// L = -log(e^g p + a) for a surprise of -log p, g log_share, a other. The label's part of dx and dg take r = e^g p / (e^g p + a); da =
// -e^L, kept finite where L is larger than anything it is worth.
// With a rest of d = rest - log Σ e^x: p becomes σ(-d) p, a σ(d) a; then all of x takes σ(-d), else r.   -> L, r, what x takes
template <class T> HWY_INLINE void MixedSurprise(T surprise, T d, RowMixture<T>* mixture, T* loss, T* r, T* words) {
  T log_words = 0, log_rest = 0;                                              // log σ(-d), log σ(d)
  if (mixture->has_rest) {
    const T tail = math::LogOf(T(1) + math::ExpOf(-HWY_MAX(d, -d)));
    log_words = -(HWY_MAX(d, T(0)) + tail), log_rest = HWY_MIN(d, T(0)) - tail;
  }
  const T u = mixture->log_share - surprise + log_words;
  *loss = -u;
  if (!(mixture->other < std::numeric_limits<T>::min())) {                    // a denormal is nothing, NaN is NaN
    const T v = math::LogOf(mixture->other) + log_rest, k = HWY_MAX(u, v);
    *loss = -(k + math::LogOf(math::ExpOf(u - k) + math::ExpOf(v - k)));
  }
  *r = math::ExpOf(u + *loss);
  *words = mixture->has_rest ? math::ExpOf(log_words) : *r;
  mixture->dlog_share = -*r;
  mixture->dother = -math::ExpOf(HWY_MIN(*loss + log_rest, T(80)));
  mixture->drest = *r - *words;
}

// loss = Σ_k w_k q_k (log Σ_j e^(x_j - m) - (x_k - m)) of one row.  passes: 1 max, 2 exp and sums, 3 with kInPlace the row becomes
// dx = softmax(x) Σ_k w_k q_k - w q.  With a bias the row is x + bias; it is stored there, so that x must be writable. With a mixture
// the true label's part of the loss is that of MixedSurprise.
template <bool kInPlace, class T>
T LossRow(T* x, const T* bias, size_t n, size_t target, const Smoothed<T>& q, RowSum<T>* row_sum, RowMixture<T>* mixture = nullptr) {
  Block<T> most = Set16(T(-__builtin_inf()));
  for (size_t i = 0; i < n; i += 16) {
    Block<T> v = LoadN16(x + i, n - i, T(-__builtin_inf()));
    if (bias) StoreN16(v = v + LoadN16(bias + i, n - i), n - i, x + i);
    most = Max16(most, v);
  }
  const T m = MaxLane16(most), x_true = x[target];
  const Block<T> shift = Set16(m), least = Set16(T(-__builtin_inf()));
  Block<T> sums = Set16(T(0)), totals = sums;
  const bool smooth = q.other_mass != 0;
  for (size_t i = 0; i < n; i += 16) {
    const bool whole = n - i >= 16;
    Block<T> t = LoadN16(x + i, n - i) - shift;
    if (smooth) {
      Block<T> counted = whole ? t : And16(t, LanesBetween<T>(0, ptrdiff_t(n - i)));
      if (q.pad >= Index(i) && q.pad < Index(i) + 16) {
        const ptrdiff_t lane = ptrdiff_t(q.pad) - ptrdiff_t(i);
        counted = Choose16(LanesBetween<T>(lane, lane + 1), Set16(T(0)), counted);
      }
      totals = totals + (q.weight ? LoadN16(q.weight + i, n - i) * counted : counted);
    }
    if (!whole) t = Choose16(LanesBetween<T>(0, ptrdiff_t(n - i)), t, least);
    const Block<T> e = Exp16(t);
    sums = sums + e;
    if (kInPlace) StoreN16(e, n - i, x + i);
  }
  const T sum = Sum16(sums), log_sum = math::LogOf(sum), w_true = TrueWeight(q, target), mass = Mass(q, target);
  // what others give the label, and x
  T loss = mass * log_sum - (q.true_mass - q.other_mass) * w_true * (x_true - m), away = 0, away_all = 0;
  if (smooth) loss -= q.other_mass * Sum16(totals);
  if (mixture) {
    const T part = (q.true_mass - q.other_mass) * w_true, surprise = log_sum - (x_true - m);
    T mixed, r, words;
    MixedSurprise(surprise, mixture->rest - m - log_sum, mixture, &mixed, &r, &words);
    loss += part * (mixed - surprise);
    away = part * (T(1) - r), away_all = part * (T(1) - words);
    mixture->dlog_share *= part, mixture->dother *= part, mixture->drest *= part;
  }
  *row_sum = {m, log_sum};
  if (kInPlace) {
    const T scale = (mass - away_all) / sum, d_true = x[target] * scale - (q.true_mass * w_true - away),
            d_pad = q.pad >= 0 ? x[q.pad] * scale : T(0);
    const Block<T> by = Set16(scale), other = Set16(q.other_mass);
    for (size_t i = 0; i < n; i += 16)
      StoreN16(LoadN16(x + i, n - i) * by - (q.weight ? other * LoadN16(q.weight + i, n - i) : other), n - i, x + i);
    if (q.pad >= 0) x[q.pad] = d_pad;
    x[target] = d_true;
  }
  return loss;
}

template <class T> T Loss(const T* x, size_t n, size_t target, const Smoothed<T>& q, RowSum<T>* row_sum) {
  return LossRow<false>(const_cast<T*>(x), static_cast<const T*>(nullptr), n, target, q, row_sum);
}

template <class T>
T LossInPlace(T* x, const T* bias, size_t n, size_t target, const Smoothed<T>& q, bool gradient, RowMixture<T>* mixture) {
  RowSum<T> row_sum;
  return gradient ? LossRow<true>(x, bias, n, target, q, &row_sum, mixture) : LossRow<false>(x, bias, n, target, q, &row_sum, mixture);
}

// dx (=|+=) dloss (exp(x - max - log_sum) Σ_k w_k q_k - w q)
template <class T>
void LossGrad(const T* x, size_t n, size_t target, const Smoothed<T>& q, const RowSum<T>& row_sum, T dloss, bool add, T* dx) {
  const auto [m, log_sum] = row_sum;
  const T mass = Mass(q, target);
  const Block<T> shift = Set16(m), logs = Set16(log_sum), masses = Set16(mass), other = Set16(q.other_mass), by = Set16(dloss);
  const T d_true = dloss * (math::ExpOf(x[target] - m - log_sum) * mass - q.true_mass * TrueWeight(q, target)) + (add ? dx[target] : T(0));
  const T d_pad = q.pad >= 0 ? dloss * math::ExpOf(x[q.pad] - m - log_sum) * mass + (add ? dx[q.pad] : T(0)) : T(0);
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> wanted = q.weight ? other * LoadN16(q.weight + i, n - i) : other;
    const Block<T> d = by * (Exp16(LoadN16(x + i, n - i) - shift - logs) * masses - wanted);
    StoreN16(add ? LoadN16(dx + i, n - i) + d : d, n - i, dx + i);
  }
  if (q.pad >= 0) dx[q.pad] = d_pad;
  dx[target] = d_true;
}

// What 16 rows want, a lane each: their labels, 0 where none counts, w of these and Σ_k w_k q_k
template <class T> struct Wanted {
  size_t label[16];
  T weight[16], mass[16];
  Wanted(const Smoothed<T>& q, const Index* labels, size_t rows) {
    for (size_t r = 0; r < 16; ++r) {
      label[r] = r < rows && labels[r] > 0 ? size_t(labels[r]) : 0;
      weight[r] = TrueWeight(q, label[r]), mass[r] = Mass(q, label[r]);
    }
  }
};

// The losses of up to kTile rows of n <= kShort logits, which are the columns of x [n, kTile], by LossRow's additions; label -1: 0.
// x is overwritten.
template <class T>
void ShortLosses(T* x, size_t n, size_t rows, const Index* labels, const Smoothed<T>& q, T minus, T* losses, T* most, T* log_sums) {
  T true_scores[16], exps[kShort * 16], counted[kShort * 16];
  for (size_t i = 0; i < rows; i += 16, x += 16) {
    Block<T> m = Load16(x);
    for (size_t k = 1; k < n; ++k) m = Max16(m, Load16(x + k * kTile));
    for (size_t k = 0; k < n; ++k) {
      const Block<T> t = Load16(x + k * kTile) - m;
      Store16(t, x + k * kTile);
      Store16(Exp16(t), exps + 16 * k);
      if (q.other_mass != 0) Store16(Index(k) == q.pad ? Set16(T(0)) : q.weight ? Set16(q.weight[k]) * t : t, counted + 16 * k);
    }
    const size_t left = HWY_MIN(rows - i, size_t{16});
    const Wanted<T> wanted(q, labels + i, left);
    for (size_t r = 0; r < 16; ++r) true_scores[r] = x[wanted.label[r] * kTile + r];
    const Block<T> log_sum = Log16(SumOfShort(exps, n));
    Block<T> loss = Load16(wanted.mass) * log_sum - Set16(q.true_mass - q.other_mass) * Load16(wanted.weight) * Load16(true_scores);
    if (q.other_mass != 0) loss = loss - Set16(q.other_mass) * SumOfShort(counted, n);
    StoreN16(loss - Set16(minus), left, losses + i);
    StoreN16(m, left, most + i);
    StoreN16(log_sum, left, log_sums + i);
    for (size_t r = i; r < i + left; ++r)
      if (labels[r] < 0) losses[r] = most[r] = log_sums[r] = 0;
  }
}

// Gradients of ShortLosses, the columns of dx [n, kTile]; label -1: 0
template <class T>
void ShortLossGrads(const T* x, size_t n, size_t rows, const Index* labels, const Smoothed<T>& q, const T* most, const T* log_sums,
                    const T* dlosses, T* dx) {
  T masses[kShort * 16];                     // w q
  for (size_t i = 0; i < rows; i += 16, x += 16, dx += 16) {
    const size_t left = HWY_MIN(rows - i, size_t{16});
    const Wanted<T> wanted(q, labels + i, left);
    for (size_t k = 0; k < n; ++k)
      Store16(Set16(Index(k) == q.pad ? T(0) : q.weight ? q.other_mass * q.weight[k] : q.other_mass), masses + 16 * k);
    for (size_t r = 0; r < 16; ++r) masses[16 * wanted.label[r] + r] = q.true_mass * wanted.weight[r];
    const Block<T> m = LoadN16(most + i, left), log_sum = LoadN16(log_sums + i, left), by = LoadN16(dlosses + i, left),
                   mass = Load16(wanted.mass);
    for (size_t k = 0; k < n; ++k)
      Store16(by * (Exp16(Load16(x + k * kTile) - m - log_sum) * mass - Load16(masses + 16 * k)), dx + k * kTile);
    for (size_t r = 0; r < left; ++r)
      for (size_t k = 0; labels[i + r] < 0 && k < n; ++k) dx[k * kTile + r] = 0;
  }
}

// One line a type: Highway 1.0.3 exports no templates.
float LossF32(const float* x, size_t n, size_t t, const Smoothed<float>& q, RowSum<float>* sum) { return Loss(x, n, t, q, sum); }
double LossF64(const double* x, size_t n, size_t t, const Smoothed<double>& q, RowSum<double>* sum) { return Loss(x, n, t, q, sum); }
float LossInPlaceF32(float* x, const float* b, size_t n, size_t t, const Smoothed<float>& q, bool g, RowMixture<float>* m) {
  return LossInPlace(x, b, n, t, q, g, m);
}
double LossInPlaceF64(double* x, const double* b, size_t n, size_t t, const Smoothed<double>& q, bool g, RowMixture<double>* m) {
  return LossInPlace(x, b, n, t, q, g, m);
}
void LossGradF32(const float* x, size_t n, size_t t, const Smoothed<float>& q, const RowSum<float>& sum, float d, bool add, float* dx) {
  LossGrad(x, n, t, q, sum, d, add, dx);
}
void LossGradF64(const double* x, size_t n, size_t t, const Smoothed<double>& q, const RowSum<double>& sum, double d, bool add,
                 double* dx) {
  LossGrad(x, n, t, q, sum, d, add, dx);
}
void ShortLossesF32(float* x, size_t n, size_t rows, const Index* l, const Smoothed<float>& q, float minus, float* losses, float* most,
                    float* log_sums) {
  ShortLosses(x, n, rows, l, q, minus, losses, most, log_sums);
}
void ShortLossesF64(double* x, size_t n, size_t rows, const Index* l, const Smoothed<double>& q, double minus, double* losses, double* most,
                    double* log_sums) {
  ShortLosses(x, n, rows, l, q, minus, losses, most, log_sums);
}
void ShortLossGradsF32(const float* x, size_t n, size_t rows, const Index* l, const Smoothed<float>& q, const float* most,
                       const float* log_sums, const float* d, float* dx) {
  ShortLossGrads(x, n, rows, l, q, most, log_sums, d, dx);
}
void ShortLossGradsF64(const double* x, size_t n, size_t rows, const Index* l, const Smoothed<double>& q, const double* most,
                       const double* log_sums, const double* d, double* dx) {
  ShortLossGrads(x, n, rows, l, q, most, log_sums, d, dx);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <cstring>
#include <numeric>

#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/targets.h"
#include "tensor/ops/total.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(LossF32);
HWY_EXPORT(LossF64);
HWY_EXPORT(LossInPlaceF32);
HWY_EXPORT(LossInPlaceF64);
HWY_EXPORT(LossGradF32);
HWY_EXPORT(LossGradF64);
HWY_EXPORT(ShortLossesF32);
HWY_EXPORT(ShortLossesF64);
HWY_EXPORT(ShortLossGradsF32);
HWY_EXPORT(ShortLossGradsF64);

namespace {

Targets read_targets(const char* op, const Tensor& targets, const Shape& rows, Index V, const CrossEntropyOptions& options) {
  check<Error>(options.label_smoothing >= 0 && options.label_smoothing <= 1, "{}: label smoothing must be in [0, 1]: {}", op,
               options.label_smoothing);
  check<IndexError>(options.pad < V, "{}: pad {} is not in [0, {})", op, options.pad, V);
  check<Error>(!options.weight.defined() || !options.subtract_entropy,
               "{}: with a weight no entropy can be subtracted: subtract_entropy = false", op);
  return read_targets(op, targets, rows, V, options.ignore_index, options.pad);
}

template <class T> Smoothed<T> smoothed(const CrossEntropyOptions& o, Index V) {
  const double e = o.label_smoothing;
  const bool pad_has_mass = o.pad < 0 || o.smoothing == Smoothing::others || (o.smoothing == Smoothing::uniform && o.smooth_pad);
  const Index labels = pad_has_mass ? V : V - 1, others = labels - 1;
  const Index pad = pad_has_mass ? -1 : o.pad;
  if (e == 0 || others <= 0) return {T(1), T(0), -1};
  if (o.smoothing == Smoothing::uniform) return {T(1 - e + e / double(labels)), T(e / double(labels)), pad};
  return {T(1 - e), T(e / double(others)), pad};
}

// The same with the weights of the classes, which are dense.
template <class T> Smoothed<T> weighted(const CrossEntropyOptions& o, Index V, const Tensor& weight) {
  Smoothed<T> q = smoothed<T>(o, V);
  if (!weight.defined()) return q;
  q.weight = weight.data<T>();
  q.weights = T(std::accumulate(q.weight, q.weight + V, 0.0) - (q.pad >= 0 ? double(q.weight[q.pad]) : 0));
  return q;
}

double entropy(const CrossEntropyOptions& o, Index V) {
  const auto q = smoothed<double>(o, V);
  const double others = double(V - 1 - (q.pad >= 0));
  const auto term = [](double p) { return p > 0 ? -p * std::log(p) : 0; };
  return term(q.true_mass) + others * term(q.other_mass);
}

// Rows whose logits are made at a time: each chunk reads the weights and their gradient once more, so it holds as many logits as
// there are weights (at V 15000, d 512: 1.6 times the bare products at 64 rows, 1.2 at 512), at least 2 Mi. Chunks are equal.
Index chunk_rows(Index rows, Index V, Index d) {
  const Index most = round_up(std::max(d, (Index{1} << 21) / std::max<Index>(V, 1)), 64),
              chunks = std::max<Index>(1, divide_up(rows, most));
  return std::clamp<Index>(round_up(divide_up(rows, chunks), 64), 1, std::max<Index>(rows, 1));
}

}  // namespace

void check_row_numbers(const char* op, const Tensor& logits, const LogSumExp& log_sum_exp, const Tensor& dlosses) {
  const Shape rows = without_last(logits.shape());
  for (const Tensor* numbers : {&log_sum_exp.max, &log_sum_exp.log_sum, &dlosses}) {
    check<ShapeError>(numbers->shape() == rows, "{}: log_sum_exp and dlosses need one number a row: {}, rows {}", op, numbers->shape(),
                      rows);
    check<DTypeError>(numbers->dtype() == logits.dtype(), "{}: dtypes differ: logits {}, log_sum_exp or dlosses {}", op, logits.dtype(),
                      numbers->dtype());
  }
}

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  check<ShapeError>(logits.rank() >= 1, "{}: logits need at least 1 dimension: {}", op, logits.shape());
  return visit_float(logits.dtype(), op, [&]<class T>() {
    const Index V = logits.size(-1);
    const Shape rows = without_last(logits.shape());
    const Targets labels = read_targets(op, targets, rows, V, options);
    CrossEntropy out{zeros(rows, logits.dtype()), {zeros(rows, logits.dtype()), zeros(rows, logits.dtype())}, labels.count, 0, 0};
    const Tensor z = logits.contiguous();
    const T* in = z.data<T>();
    T *losses = out.losses.mutable_data<T>(), *most = out.log_sum_exp.max.mutable_data<T>(),
      *log_sum = out.log_sum_exp.log_sum.mutable_data<T>();
    const Tensor weight = read_class_weight(op, options.weight, V, logits.dtype());
    const Smoothed<T> q = weighted<T>(options, V, weight);
    const T minus = options.subtract_entropy ? T(entropy(options, V)) : T(0);
    const auto N = Index(labels.label.size());
    if (labels.count > 0 && V <= Index(kShort)) {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(ShortLossesF32), HWY_DYNAMIC_POINTER(ShortLossesF64));
      for_short_rows<T>(N, V, in, nullptr, nullptr, false, [&](Index row, std::size_t count, T* x, const T*, T*) {
        kernel(x, std::size_t(V), count, labels.label.data() + row, q, minus, losses + row, most + row, log_sum + row);
      });
    } else {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LossF32), HWY_DYNAMIC_POINTER(LossF64));
      parallel_for(N, row_grain(V), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row)
          if (const Index label = labels.label[std::size_t(row)]; label >= 0) {
            RowSum<T> sum;
            losses[row] = kernel(in + row * V, std::size_t(V), std::size_t(label), q, &sum) - minus;
            most[row] = sum.max, log_sum[row] = sum.log_sum;
          }
      });
    }
    out.total = total_of<T>(out.losses);
    out.weight = weight_of(labels, weight);
    return out;
  });
}

void cross_entropy_grad(const Tensor& logits, const Tensor& targets, const LogSumExp& log_sum_exp, const Tensor& dlosses,
                        const CrossEntropyOptions& options, Into dlogits) {
  const char* op = "cross_entropy_grad";
  check<ShapeError>(logits.rank() >= 1 && dlogits.tensor.shape() == logits.shape(), "{}: shapes differ: logits {}, dlogits {}", op,
                    logits.shape(), dlogits.tensor.shape());
  check<DTypeError>(dlogits.tensor.dtype() == logits.dtype(), "{}: dtypes differ: logits {}, dlogits {}", op, logits.dtype(),
                    dlogits.tensor.dtype());
  check_row_numbers(op, logits, log_sum_exp, dlosses);
  const Shape rows = without_last(logits.shape());
  visit_float(logits.dtype(), op, [&]<class T>() {
    const Index V = logits.size(-1);
    const Targets labels = read_targets(op, targets, rows, V, options);
    const Tensor z = logits.contiguous(), maxima = log_sum_exp.max.contiguous(), sums = log_sum_exp.log_sum.contiguous(),
                 ups = dlosses.contiguous();
    const Destination out(dlogits);
    const T *in = z.data<T>(), *most = maxima.data<T>(), *log_sum = sums.data<T>(), *up = ups.data<T>();
    T* to = out.tensor().mutable_data<T>();
    const Tensor weight = read_class_weight(op, options.weight, V, logits.dtype());
    const Smoothed<T> q = weighted<T>(options, V, weight);
    const auto N = Index(labels.label.size());
    if (labels.count > 0 && V <= Index(kShort)) {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(ShortLossGradsF32), HWY_DYNAMIC_POINTER(ShortLossGradsF64));
      for_short_rows<T>(N, V, in, nullptr, to, out.add(), [&](Index row, std::size_t count, const T* x, const T*, T* dx) {
        kernel(x, std::size_t(V), count, labels.label.data() + row, q, most + row, log_sum + row, up + row, dx);
      });
    } else {
      const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LossGradF32), HWY_DYNAMIC_POINTER(LossGradF64));
      parallel_for(N, row_grain(V), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row) {
          if (const Index label = labels.label[std::size_t(row)]; label >= 0)
            kernel(in + row * V, std::size_t(V), std::size_t(label), q, RowSum<T>{most[row], log_sum[row]}, up[row], out.add(),
                   to + row * V);
          else if (!out.add()) std::fill_n(to + row * V, V, T(0));
        }
      });
    }
    out.finish();
  });
}

namespace {

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Mixture& mixture) {
  check<ShapeError>(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1), "{}: inner sizes differ: x {}, weight {}", op,
                    x.shape(), weight.shape());
  check<DTypeError>(x.dtype() == weight.dtype(), "{}: dtypes differ: x {}, weight {}", op, x.dtype(), weight.dtype());
  if (bias.defined()) {
    check<ShapeError>(bias.shape() == Shape{weight.size(0)}, "{}: bias is not [V]: bias {}, weight {}", op, bias.shape(), weight.shape());
    check<DTypeError>(bias.dtype() == x.dtype(), "{}: dtypes differ: x {}, bias {}", op, x.dtype(), bias.dtype());
  }
  const auto& [log_share, other, rest] = mixture;
  check<Error>(other.defined() || (!log_share.defined() && !rest.defined()), "{}: log_share and rest belong to a mixture with other", op);
  if (!other.defined()) return;
  const Shape each = without_last(x.shape());
  check<ShapeError>(log_share.shape() == each && other.shape() == each,
                    "{}: log_share and other need one number a row: log_share {}, other {}, rows {}", op, log_share.shape(), other.shape(),
                    each);
  check<DTypeError>(log_share.dtype() == x.dtype() && other.dtype() == x.dtype(), "{}: dtypes differ: x {}, log_share {}, other {}", op,
                    x.dtype(), log_share.dtype(), other.dtype());
  check<ShapeError>(!rest.defined() || rest.shape() == each, "{}: rest needs one number a row: rest {}, rows {}", op,
                    rest.defined() ? rest.shape() : each, each);
  check<DTypeError>(!rest.defined() || rest.dtype() == x.dtype(), "{}: dtypes differ: x {}, rest {}", op, x.dtype(),
                    rest.defined() ? rest.dtype() : x.dtype());
}

}  // namespace

LinearCrossEntropy linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                                        const CrossEntropyOptions& options, const LinearCrossEntropyWants& wants, const Mixture& mixture) {
  const bool mixes = mixture.other.defined();
  const char* op = mixes ? "linear_mixture_cross_entropy" : "linear_cross_entropy";
  check_linear(op, x, weight, bias, mixture);
  const Index V = weight.size(0), d = weight.size(1);
  const Shape each = without_last(x.shape());                    // a number a row
  return visit_float(x.dtype(), op, [&]<class T>() {
    const Targets labels = read_targets(op, targets, each, V, options);
    const auto N = Index(labels.label.size());
    List<Index> active;                                            // rows that take part
    for (Index row = 0; row < N; ++row)
      if (labels.label[std::size_t(row)] >= 0) active.push_back(row);
    const bool all = labels.count == N, gradient = wants.dx || wants.dweight || wants.dbias;
    const Index height = chunk_rows(labels.count, V, d);

    LinearCrossEntropy out{zeros(each, x.dtype()), labels.count, 0, {}, {}, {}, {}, {}, {}};
    const bool has_rest = mixes && mixture.rest.defined();
    if (mixes) out.dlog_share = zeros(each, x.dtype()), out.dother = zeros(each, x.dtype());
    if (has_rest) out.drest = zeros(each, x.dtype());
    const Tensor log_shares = mixes ? mixture.log_share.contiguous() : Tensor(), others = mixes ? mixture.other.contiguous() : Tensor(),
                 rests = has_rest ? mixture.rest.contiguous() : Tensor();
    const Tensor rows = reshape(x, {N, d}).contiguous(), biases = bias.defined() ? bias.contiguous() : bias;
    if (wants.dx) out.dx = all ? empty(x.shape(), x.dtype()) : zeros(x.shape(), x.dtype());
    if (wants.dweight) out.dweight = labels.count ? empty(weight.shape(), x.dtype()) : zeros(weight.shape(), x.dtype());
    if (wants.dbias) out.dbias = labels.count ? empty({V}, x.dtype()) : zeros({V}, x.dtype());
    const Tensor drows = wants.dx ? reshape(out.dx, {N, d}) : Tensor();
    const Tensor logits = empty({height, V}, x.dtype()), gathered = all ? Tensor() : empty({height, d}, x.dtype());
    const Tensor class_weight = read_class_weight(op, options.weight, V, x.dtype());
    const Smoothed<T> q = weighted<T>(options, V, class_weight);
    const T minus = options.subtract_entropy ? T(entropy(options, V)) : T(0);
    T* const losses = out.losses.mutable_data<T>();
    const auto row_loss = pick<T>(HWY_DYNAMIC_POINTER(LossInPlaceF32), HWY_DYNAMIC_POINTER(LossInPlaceF64));
    const auto bytes = std::size_t(d) * sizeof(T);

    for (Index first = 0; first < labels.count; first += height) {
      const Index n = std::min(height, labels.count - first);
      const Index* const row_of = active.data() + first;
      const Tensor z = slice(logits, 0, 0, n), part = slice(all ? rows : gathered, 0, all ? first : 0, all ? first + n : n);
      for (Index i = 0; !all && i < n; ++i) std::memcpy(part.mutable_data<T>() + i * d, rows.data<T>() + row_of[i] * d, bytes);
      matmul(part, transpose(weight), {z});                                                    // [n, V]
      T* const to = z.mutable_data<T>();
      const T* const b = data_or_null<T>(biases);
      parallel_for(n, row_grain(V), [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          const Index row = row_of[i];
          RowMixture<T> mixed{};
          if (mixes) mixed.log_share = log_shares.data<T>()[row], mixed.other = others.data<T>()[row];
          if (has_rest) mixed.rest = rests.data<T>()[row], mixed.has_rest = true;
          losses[row] =
              row_loss(to + i * V, b, std::size_t(V), std::size_t(labels.label[std::size_t(row)]), q, gradient, mixes ? &mixed : nullptr) -
              minus;
          if (mixes) out.dlog_share.mutable_data<T>()[row] = mixed.dlog_share, out.dother.mutable_data<T>()[row] = mixed.dother;
          if (has_rest) out.drest.mutable_data<T>()[row] = mixed.drest;
        }
      });
      const Into dbias{out.dbias, first > 0};
      if (wants.dweight) matmul_over_rows(z, part, {out.dweight, first > 0}, wants.dbias ? &dbias : nullptr);
      else if (wants.dbias) sum_over_rows(z, d, dbias);
      if (wants.dx && all) matmul(z, weight, {slice(drows, 0, first, first + n)});
      if (wants.dx && !all) {
        matmul(z, weight, {part});
        for (Index i = 0; i < n; ++i) std::memcpy(drows.mutable_data<T>() + row_of[i] * d, part.data<T>() + i * d, bytes);
      }
    }
    out.total = total_of<T>(out.losses);
    return out;
  });
}

}  // namespace heed
#endif
