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

// sum = residual + dropout(x), elements [begin, end)
template <class T> void AddDropout(const T* x, const T* residual, const DropoutKey& key, size_t begin, size_t end, T* sum) {
  if (key.keeps_all()) {
    for (size_t i = begin; i < end; i += 16) StoreN16(LoadN16(residual + i, end - i) + LoadN16(x + i, end - i), end - i, sum + i);
    return;
  }
  RowsDropout<T> dropout(key, end);
  for (size_t i = begin; i < end; i += 16)
    StoreN16(MulAdd16(LoadN16(x + i, end - i), dropout.At(i), LoadN16(residual + i, end - i)), end - i, sum + i);
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
      if (p.weight && p.bias) v = MulAdd16(v, LoadN16(p.weight + i, n), LoadN16(p.bias + i, n));
      else if (p.weight) v = v * LoadN16(p.weight + i, n);
      else if (p.bias) v = v + LoadN16(p.bias + i, n);
      StoreN16(v, n, y + r * d + i);
    }
  }
}

// Rows taken together
template <class T> constexpr size_t kTogether = HEED_OLD_TARGET || sizeof(T) == 8 ? 1 : 4;

template <class T> void Forward(const NormRows<T>& p, size_t begin, size_t end) {
  const auto rows = [&]<size_t R>(size_t row) HWY_ATTR {
    if (p.sum) AddDropout(p.x, p.residual, p.dropout, row * p.d, (row + R) * p.d, p.sum);
    Normalise<R>(p, row);
  };
  size_t row = begin;
  for (; row + kTogether<T> <= end; row += kTogether<T>) rows.template operator()<kTogether<T>>(row);
  for (; row < end; ++row) rows.template operator()<1>(row);
}

// forward was  y = γ ⊙ x^ + β, x^ = (x - μ) rstd,  so now
//   g = dy ⊙ γ,  dx = (g - mean(g) - x^ mean(g ⊙ x^)) rstd,  dγ += dy ⊙ x^,  dβ += dy
// of R rows from `row` on, whose chains of additions overlap
template <size_t R, class T> void BackwardRows(const NormRowsGrad<T>& p, size_t row, RowsDropout<T>& dropout, T* dweight, T* dbias) {
  const size_t d = p.d, from = row * d;
  const Block<T> zero = Set16(T(0));
  Block<T> mean[R], rstd[R], g_mean[R], gx_mean[R];
  HWY_UNROLL(4)
  for (size_t r = 0; r < R; ++r) {
    mean[r] = Set16(p.centred ? p.mean[row + r] : T(0));
    rstd[r] = Set16(p.rstd[row + r]);
    g_mean[r] = gx_mean[r] = zero;
  }
  for (size_t i = 0; i < d; i += 16) {
    const size_t n = d - i;
    Block<T> dw = dweight ? LoadN16(dweight + i, n) : zero, db = dbias ? LoadN16(dbias + i, n) : zero;
    HWY_UNROLL(4)
    for (size_t r = 0; r < R; ++r) {
      const Block<T> v = LoadN16(p.dy + from + r * d + i, n), normal = (LoadN16(p.x + from + r * d + i, n) - mean[r]) * rstd[r];
      const Block<T> g = p.weight ? v * LoadN16(p.weight + i, n) : v;
      g_mean[r] = g_mean[r] + g;
      gx_mean[r] = gx_mean[r] + g * (n >= 16 ? normal : And16(normal, LanesBetween<T>(0, ptrdiff_t(n))));
      dw = MulAdd16(v, normal, dw);
      db = v + db;
    }
    if (dweight) StoreN16(dw, n, dweight + i);
    if (dbias) StoreN16(db, n, dbias + i);
  }
  if (!p.dx && !p.dresidual) return;
  HWY_UNROLL(4)
  for (size_t r = 0; r < R; ++r) {
    g_mean[r] = p.centred ? Set16(Sum16(g_mean[r]) / T(d)) : zero;
    gx_mean[r] = Set16(Sum16(gx_mean[r]) / T(d));
  }
  const bool drop = p.dx && !p.dropout.keeps_all();
  HWY_UNROLL(4)
  for (size_t r = 0; r < R; ++r)
    for (size_t i = 0; i < d; i += 16) {
      const size_t n = d - i, at = from + r * d + i;
      const Block<T> v = LoadN16(p.dy + at, n), normal = (LoadN16(p.x + at, n) - mean[r]) * rstd[r];
      Block<T> g = p.weight ? v * LoadN16(p.weight + i, n) : v;
      g = (g - g_mean[r] - normal * gx_mean[r]) * rstd[r];
      if (p.dsum) g = g + LoadN16(p.dsum + at, n);
      if (p.dx) {
        const Block<T> kept = drop ? g * dropout.At(at) : g;
        StoreN16(p.add_dx ? LoadN16(p.dx + at, n) + kept : kept, n, p.dx + at);
      }
      if (p.dresidual) StoreN16(p.add_dresidual ? LoadN16(p.dresidual + at, n) + g : g, n, p.dresidual + at);
    }
}

template <class T> void Backward(const NormRowsGrad<T>& p, size_t begin, size_t end, T* dweight, T* dbias) {
  RowsDropout<T> dropout(p.dropout, end * p.d);
  size_t row = begin;
  for (; row + kTogether<T> <= end; row += kTogether<T>) BackwardRows<kTogether<T>>(p, row, dropout, dweight, dbias);
  for (; row < end; ++row) BackwardRows<1>(p, row, dropout, dweight, dbias);
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

void check_like(const char* op, const char* name, const Tensor& a, const Tensor& x) {
  check<ShapeError>(a.shape() == x.shape(), "{}: shapes differ: {} {}, x {}", op, name, a.shape(), x.shape());
  check<DTypeError>(a.dtype() == x.dtype(), "{}: dtypes differ: {} {}, x {}", op, name, a.dtype(), x.dtype());
}

Tensor dense(const Tensor& x) { return x.defined() ? x.contiguous() : x; }
template <class T> const T* data(const Tensor& x) { return x.defined() ? x.data<T>() : nullptr; }
template <class T> T* mutable_data(const Tensor& x) { return x.defined() ? x.mutable_data<T>() : nullptr; }

Shape without_last(const Tensor& x) { return Shape(std::span(x.shape().begin(), std::size_t(x.rank() - 1))); }

AddDropoutNormed forward(const char* op, bool centred, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                       const AddDropoutNormOptions& options) {
  check<ShapeError>(x.rank() >= 1, "{}: needs at least 1 dimension: x {}", op, x.shape());
  check<Error>(options.eps >= 0, "{}: eps must not be negative: {}", op, options.eps);
  check_part(op, "weight", weight, x);
  check_part(op, "bias", bias, x);
  if (residual.defined()) check_like(op, "residual", residual, x);
  const DropoutKey dropout(op, options.dropout, options.key);
  return visit_float(x.dtype(), op, [&]<class T>() {
    AddDropoutNormed out{.y = empty(x.shape(), x.dtype()), .sum = {}, .mean = {}, .rstd = empty(without_last(x), x.dtype())};
    if (residual.defined()) out.sum = empty(x.shape(), x.dtype());
    if (centred) out.mean = empty(without_last(x), x.dtype());
    const Tensor from = x.contiguous(), to_add = dense(residual), gamma = dense(weight), beta = dense(bias);
    if (x.numel() == 0) return out;
    const Index d = x.size(-1);
    const NormRows<T> p{std::size_t(d), T(options.eps), centred, from.data<T>(), data<T>(gamma), data<T>(beta), out.y.mutable_data<T>(),
                        mutable_data<T>(out.mean), out.rstd.mutable_data<T>(), data<T>(to_add), mutable_data<T>(out.sum), dropout};
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(ForwardF32), &HWY_DYNAMIC_DISPATCH(ForwardF64));
    parallel_for(x.numel() / d, row_grain(d), [&](Index begin, Index end) { kernel(p, std::size_t(begin), std::size_t(end)); });
    return out;
  });
}

void backward(const char* op, bool centred, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
              const Tensor& dsum, const AddDropoutNormOptions& options, const Into* dx, const Into* dresidual, const Into* dweight,
              const Into* dbias) {
  check<ShapeError>(x.rank() >= 1 && rstd.shape() == without_last(x), "{}: rstd does not fit x: rstd {}, x {}", op, rstd.shape(), x.shape());
  check_part(op, "weight", weight, x);
  check_like(op, "dy", dy, x);
  if (dsum.defined()) check_like(op, "dsum", dsum, x);
  if (dx) check_like(op, "dx", dx->tensor, x);
  if (dresidual) check_like(op, "dresidual", dresidual->tensor, x);
  if (dweight) check_part(op, "dweight", dweight->tensor, x);
  if (dbias) check_part(op, "dbias", dbias->tensor, x);
  const DropoutKey dropout(op, options.dropout, options.key);
  visit_float(x.dtype(), op, [&]<class T>() {
    const Tensor xs = x.contiguous(), means = dense(mean), rstds = rstd.contiguous(), gamma = dense(weight), dys = dy.contiguous(), dsums = dense(dsum);
    std::optional<Destination> to_x, to_residual;
    if (dx) to_x.emplace(*dx);
    if (dresidual) to_residual.emplace(*dresidual, dx && may_overlap(dx->tensor, dresidual->tensor));
    const Index d = x.size(-1), rows = d ? x.numel() / d : 0, chunks = (rows + kChunk - 1) / kChunk;
    const NormRowsGrad<T> p{std::size_t(d), centred, xs.data<T>(), data<T>(gamma), data<T>(means), rstds.data<T>(), dys.data<T>(),
                            data<T>(dsums), to_x ? to_x->tensor().template mutable_data<T>() : nullptr,
                            to_residual ? to_residual->tensor().template mutable_data<T>() : nullptr, to_x && to_x->add(),
                            to_residual && to_residual->add(), dropout};
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(BackwardF32), &HWY_DYNAMIC_DISPATCH(BackwardF64));
    const Tensor partials = dweight || dbias ? zeros({2, chunks, d}, x.dtype()) : Tensor();
    T* const dw = dweight ? partials.mutable_data<T>() : nullptr;
    T* const db = dbias ? partials.mutable_data<T>() + chunks * d : nullptr;
    parallel_for(chunks, row_grain(kChunk * d), [&](Index begin, Index end) {
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
  return forward("add_dropout_norm", true, x, residual, weight, bias, options);
}

void add_dropout_norm_grad(const Tensor& sum, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy, const Tensor& dsum,
                           const AddDropoutNormOptions& options, const Into* dx, const Into* dresidual, const Into* dweight, const Into* dbias) {
  backward("add_dropout_norm_grad", true, sum, mean, rstd, weight, dy, dsum, options, dx, dresidual, dweight, dbias);
}

}  // namespace heed
#endif
