// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/norm.h"

#include "tensor/dropout.h"

#ifndef HEED_TENSOR_OPS_NORM_ROWS      // this file is read once for each target
#define HEED_TENSOR_OPS_NORM_ROWS
namespace heed {
namespace {

// One piece of rows; unused parts are null.
template <class T> struct NormRows {
  size_t d;
  T eps;
  bool centred;                       // layer norm; else the mean is taken as 0
  const T *x, *weight, *bias;
  T *y, *mean, *rstd;
  const T* residual;                  // with it the rows normalised are residual + dropout(x), stored to sum
  T* sum;
  DropoutKey dropout;
};

// One chunk of rows of the derivative. x holds the rows that were normalised.
template <class T> struct NormRowsGrad {
  size_t d;
  bool centred;
  const T *x, *weight, *mean, *rstd, *dy, *dsum;
  T *dx, *dresidual;
  bool add_dx, add_dresidual;
  DropoutKey dropout;                 // of dx
};

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/norm.cc"
#include "tensor/block-inl.h"
#include "tensor/dropout-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Dropout factors of elements [., end), rows after rows, made 256 at a time.
template <class T> struct RowsDropout {
  RowsDropout(const DropoutKey& k, size_t e) : key(k), end(e) {}
  HWY_INLINE Block<T> At(size_t i) {                     // of 16 elements or those up to the end, i rising
    if (i + 16 > last && last < end) {
      first = i;
      last = end - i < 256 ? end : i + 256;
      DropoutFactors(key, Index(first), last - first, factors);
    }
    return Load16(factors + (i - first));
  }
  const DropoutKey& key;
  size_t first = 0, last = 0, end;
  T factors[256 + 16] = {};
};

// sum = residual + dropout(x), elements [begin, end); as many behind them are fetched
template <class T> void AddDropout(const T* x, const T* residual, const DropoutKey& key, size_t begin, size_t end, T* sum) {
  RowsDropout<T> dropout(key, end);
  const bool drop = !key.keeps_all();
  const size_t ahead = end - begin;
  for (size_t i = begin; i < end; i += 16) {
    __builtin_prefetch(x + i + ahead, 0, 2);
    __builtin_prefetch(residual + i + ahead, 0, 2);
    __builtin_prefetch(sum + i + ahead, 0, 2);
    const Block<T> v = LoadN16(x + i, end - i), r = LoadN16(residual + i, end - i);
    StoreN16(drop ? MulAdd16(v, dropout.At(i), r) : r + v, end - i, sum + i);
  }
}

// R rows from `row` on: more than one only so that their chains of additions overlap.
// passes: 1 mean (from the first element on, so that a constant row is exact), 2 variance, 3 scale
template <size_t R, class T> void Normalise(const NormRows<T>& p, size_t row) {
  const size_t d = p.d;
  const T* x = (p.sum ? p.sum : p.x) + row * d;
  T* y = p.y + row * d;
  Block<T> centre[R], squares[R], rstd[R];
  HWY_UNROLL(4)
  for (size_t r = 0; r < R; ++r) centre[r] = squares[r] = Set16(T(0));
  if (p.centred) {
    for (size_t i = 0; i < d; i += 16) {
      HWY_UNROLL(4)
      for (size_t r = 0; r < R; ++r) centre[r] = centre[r] + (LoadN16(x + r * d + i, d - i, x[r * d]) - Set16(x[r * d]));
    }
    HWY_UNROLL(4)
    for (size_t r = 0; r < R; ++r) {
      p.mean[row + r] = x[r * d] + Sum16(centre[r]) / T(d);
      centre[r] = Set16(p.mean[row + r]);
    }
  }
  for (size_t i = 0; i < d; i += 16) {
    HWY_UNROLL(4)
    for (size_t r = 0; r < R; ++r) {
      const Block<T> c = LoadN16(x + r * d + i, d - i, p.centred ? p.mean[row + r] : T(0)) - centre[r];
      squares[r] = MulAdd16(c, c, squares[r]);
    }
  }
  HWY_UNROLL(4)
  for (size_t r = 0; r < R; ++r) {
    rstd[r] = Set16(T(1)) / Sqrt16(Set16(Sum16(squares[r]) / T(d) + p.eps));
    StoreN16(rstd[r], 1, p.rstd + row + r);
  }
  for (size_t i = 0; i < d; i += 16) {
    const size_t n = d - i;
    HWY_UNROLL(4)
    for (size_t r = 0; r < R; ++r) {
      Block<T> v = (LoadN16(x + r * d + i, n) - centre[r]) * rstd[r];
      __builtin_prefetch(y + (R + r) * d + i, 0, 2);
      if (p.weight && p.bias) v = MulAdd16(v, LoadN16(p.weight + i, n), LoadN16(p.bias + i, n));
      else if (p.weight) v = v * LoadN16(p.weight + i, n);
      else if (p.bias) v = v + LoadN16(p.bias + i, n);
      StoreN16(v, n, y + r * d + i);
    }
  }
}

template <class T> void Forward(const NormRows<T>& p, size_t begin, size_t end) {
  constexpr size_t kTogether = HEED_OLD_TARGET || sizeof(T) == 8 ? 1 : 4;
  const auto add = [&](size_t row, size_t rows) {
    if (p.sum) AddDropout(p.x, p.residual, p.dropout, row * p.d, (row + rows) * p.d, p.sum);
  };
  size_t row = begin;
  for (; row + kTogether <= end; row += kTogether) {
    add(row, kTogether);
    Normalise<kTogether>(p, row);
  }
  for (; row < end; ++row) {
    add(row, 1);
    Normalise<1>(p, row);
  }
}

// forward was  y = γ ⊙ x^ + β, x^ = (x - μ) rstd,  so now
//   g = dy ⊙ γ,  dx = (g - mean(g) - x^ mean(g ⊙ x^)) rstd,  dγ += dy ⊙ x^,  dβ += dy
template <class T> void Backward(const NormRowsGrad<T>& p, size_t begin, size_t end, T* dweight, T* dbias) {
  const size_t d = p.d;
  const Block<T> zero = Set16(T(0));
  const bool drop = p.dx && !p.dropout.keeps_all();
  RowsDropout<T> dropout(p.dropout, end * d);
  const size_t ahead = 4 * d;                            // of each stream so much is fetched before
  for (size_t row = begin; row < end; ++row) {
    const T *x = p.x + row * d, *dy = p.dy + row * d;
    const Block<T> mean = Set16(p.centred ? p.mean[row] : T(0)), rstd = Set16(p.rstd[row]);
    Block<T> g_lanes = zero, gx_lanes = zero;
    for (size_t i = 0; i < d; i += 16) {
      const size_t n = d - i;
      __builtin_prefetch(x + i + ahead, 0, 2);
      __builtin_prefetch(dy + i + ahead, 0, 2);
      const Block<T> v = LoadN16(dy + i, n), normal = (LoadN16(x + i, n) - mean) * rstd;
      const Block<T> g = p.weight ? v * LoadN16(p.weight + i, n) : v;
      g_lanes = g_lanes + g;
      gx_lanes = gx_lanes + g * (n >= 16 ? normal : And16(normal, LanesBetween<T>(0, ptrdiff_t(n))));
      if (dweight) StoreN16(MulAdd16(v, normal, LoadN16(dweight + i, n)), n, dweight + i);
      if (dbias) StoreN16(v + LoadN16(dbias + i, n), n, dbias + i);
    }
    if (!p.dx && !p.dresidual) continue;
    const Block<T> g_mean = p.centred ? Set16(Sum16(g_lanes) / T(d)) : zero, gx_mean = Set16(Sum16(gx_lanes) / T(d));
    for (size_t i = 0; i < d; i += 16) {
      const size_t n = d - i, at = row * d + i;
      const Block<T> v = LoadN16(dy + i, n), normal = (LoadN16(x + i, n) - mean) * rstd;
      Block<T> g = p.weight ? v * LoadN16(p.weight + i, n) : v;
      g = (g - g_mean - normal * gx_mean) * rstd;
      if (p.dsum) __builtin_prefetch(p.dsum + at + ahead, 0, 2);
      if (p.dx) __builtin_prefetch(p.dx + at + ahead, 0, 2);
      if (p.dresidual) __builtin_prefetch(p.dresidual + at + ahead, 0, 2);
      if (p.dsum) g = g + LoadN16(p.dsum + at, n);
      if (p.dx) {
        const Block<T> kept = drop ? g * dropout.At(at) : g;
        StoreN16(p.add_dx ? LoadN16(p.dx + at, n) + kept : kept, n, p.dx + at);
      }
      if (p.dresidual) StoreN16(p.add_dresidual ? LoadN16(p.dresidual + at, n) + g : g, n, p.dresidual + at);
    }
  }
}

void ForwardF32(const NormRows<float>& p, size_t begin, size_t end) { Forward(p, begin, end); }
void ForwardF64(const NormRows<double>& p, size_t begin, size_t end) { Forward(p, begin, end); }
void BackwardF32(const NormRowsGrad<float>& p, size_t begin, size_t end, float* dw, float* db) { Backward(p, begin, end, dw, db); }
void BackwardF64(const NormRowsGrad<double>& p, size_t begin, size_t end, double* dw, double* db) { Backward(p, begin, end, dw, db); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <optional>

#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardF64);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardF64);

namespace {

constexpr Index kChunk = 32;  // rows whose dγ and dβ are summed first

void check_part(const char* op, const char* name, const Tensor& part, const Tensor& x) {
  if (!part.defined()) return;
  check<ShapeError>(part.shape() == Shape{x.size(-1)}, "{}: {} is not [d]: {} {}, x {}", op, name, name, part.shape(), x.shape());
  check<DTypeError>(part.dtype() == x.dtype(), "{}: dtypes differ: {} {}, x {}", op, name, part.dtype(), x.dtype());
}

Tensor dense(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

AddDropoutNormed forward(const char* op, bool centred, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                       const AddDropoutNormOptions& options) {
  check<ShapeError>(x.rank() >= 1, "{}: needs at least 1 dimension: x {}", op, x.shape());
  check<Error>(options.eps >= 0, "{}: eps must be 0 or more: {}", op, options.eps);
  check_part(op, "weight", weight, x);
  check_part(op, "bias", bias, x);
  if (residual.defined()) check_like(op, "residual", residual, x);
  const DropoutKey dropout(op, options.dropout, options.key);
  return visit_float(x.dtype(), op, [&]<class T>() {
    AddDropoutNormed out{.y = empty(x.shape(), x.dtype()), .sum = {}, .mean = {}, .rstd = empty(without_last(x.shape()), x.dtype())};
    if (residual.defined()) out.sum = empty(x.shape(), x.dtype());
    if (centred) out.mean = empty(without_last(x.shape()), x.dtype());
    const Tensor from = x.contiguous(), to_add = dense(residual), gamma = dense(weight), beta = dense(bias);
    if (x.numel() == 0) {
      fill_(out.rstd, NAN);                          // of rows without elements, as their mean
      if (centred) fill_(out.mean, NAN);
      return out;
    }
    const Index d = x.size(-1);
    const NormRows<T> p{std::size_t(d), T(options.eps), centred, from.data<T>(), data_or_null<T>(gamma), data_or_null<T>(beta),
                        out.y.mutable_data<T>(), mutable_data_or_null<T>(out.mean), out.rstd.mutable_data<T>(), data_or_null<T>(to_add),
                        mutable_data_or_null<T>(out.sum), dropout};
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(ForwardF32), HWY_DYNAMIC_POINTER(ForwardF64));
    parallel_for(x.numel() / d, row_grain(d), [&](Index begin, Index end) { kernel(p, std::size_t(begin), std::size_t(end)); });
    return out;
  });
}

void backward(const char* op, bool centred, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
              const Tensor& dsum, const AddDropoutNormOptions& options, const Into* dx, const Into* dresidual, const Into* dweight,
              const Into* dbias) {
  check<ShapeError>(x.rank() >= 1 && rstd.shape() == without_last(x.shape()), "{}: rstd does not fit x: rstd {}, x {}", op, rstd.shape(),
                    x.shape());
  if (centred) check_like(op, "mean", mean, rstd);
  check_part(op, "weight", weight, x);
  check_like(op, "dy", dy, x);
  if (dsum.defined()) check_like(op, "dsum", dsum, x);
  if (dx) check_like(op, "dx", dx->tensor, x);
  if (dresidual) check_like(op, "dresidual", dresidual->tensor, x);
  if (dweight) check_part(op, "dweight", dweight->tensor, x);
  if (dbias) check_part(op, "dbias", dbias->tensor, x);
  const DropoutKey dropout(op, options.dropout, options.key);
  visit_float(x.dtype(), op, [&]<class T>() {
    const Tensor xs = x.contiguous(), means = dense(mean), rstds = rstd.contiguous(), gamma = dense(weight), dys = dy.contiguous(),
                 dsums = dense(dsum);
    std::optional<Destination> to_x, to_residual;
    if (dx) to_x.emplace(*dx);
    if (dresidual) to_residual.emplace(*dresidual, dx && may_overlap(dx->tensor, dresidual->tensor));
    const Index d = x.size(-1), rows = d ? x.numel() / d : 0, chunks = divide_up(rows, kChunk);
    const NormRowsGrad<T> p{std::size_t(d), centred, xs.data<T>(), data_or_null<T>(gamma), data_or_null<T>(means), rstds.data<T>(),
                            dys.data<T>(), data_or_null<T>(dsums), to_x ? to_x->tensor().template mutable_data<T>() : nullptr,
                            to_residual ? to_residual->tensor().template mutable_data<T>() : nullptr, to_x && to_x->add(),
                            to_residual && to_residual->add(), dropout};
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(BackwardF32), HWY_DYNAMIC_POINTER(BackwardF64));
    const Tensor partials = dweight || dbias ? empty({2, chunks, d}, x.dtype()) : Tensor();
    T* const dw = dweight ? partials.mutable_data<T>() : nullptr;
    T* const db = dbias ? partials.mutable_data<T>() + chunks * d : nullptr;
    parallel_for(chunks, row_grain(kChunk * d), [&](Index begin, Index end) {
      for (T* part : {dw, db})
        if (part) std::fill(part + begin * d, part + end * d, T(0));
      for (Index chunk = begin; chunk < end; ++chunk)
        kernel(p, std::size_t(chunk * kChunk), std::size_t(std::min(rows, (chunk + 1) * kChunk)), dw ? dw + chunk * d : nullptr,
               db ? db + chunk * d : nullptr);
    });
    if (to_x) to_x->finish();
    if (to_residual) to_residual->finish();
    const auto collect = [&](const Into& into, const T* from) {         // Σ over the chunks, in order
      const Destination out(into);
      T* to = out.tensor().mutable_data<T>();
      if (!out.add()) std::fill(to, to + d, T(0));
      for (Index chunk = 0; chunk < chunks; ++chunk)
        for (Index i = 0; i < d; ++i) to[i] += from[chunk * d + i];
      out.finish();
    };
    if (dweight) collect(*dweight, dw);
    if (dbias) collect(*dbias, db);
  });
}

}  // namespace

LayerNormed layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  AddDropoutNormed out = forward("layer_norm", true, x, {}, weight, bias, {.eps = eps});
  return {std::move(out.y), std::move(out.mean), std::move(out.rstd)};
}

void layer_norm_grad(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy, const Into* dx,
                     const Into* dweight, const Into* dbias) {
  backward("layer_norm_grad", true, x, mean, rstd, weight, dy, {}, {}, dx, nullptr, dweight, dbias);
}

RmsNormed rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  AddDropoutNormed out = forward("rms_norm", false, x, {}, weight, {}, {.eps = eps});
  return {std::move(out.y), std::move(out.rstd)};
}

void rms_norm_grad(const Tensor& x, const Tensor& rstd, const Tensor& weight, const Tensor& dy, const Into* dx, const Into* dweight) {
  backward("rms_norm_grad", false, x, {}, rstd, weight, dy, {}, {}, dx, nullptr, dweight, nullptr);
}

AddDropoutNormed add_dropout_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                const AddDropoutNormOptions& options) {
  check<Error>(residual.defined(), "add_dropout_norm: the residual is empty (default constructed); layer_norm has none");
  return forward("add_dropout_norm", true, x, residual, weight, bias, options);
}

void add_dropout_norm_grad(const Tensor& sum, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
                           const Tensor& dsum, const AddDropoutNormOptions& options, const Into* dx, const Into* dresidual,
                           const Into* dweight, const Into* dbias) {
  backward("add_dropout_norm_grad", true, sum, mean, rstd, weight, dy, dsum, options, dx, dresidual, dweight, dbias);
}

}  // namespace heed
#endif
