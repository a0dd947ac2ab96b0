// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/loss.h"

#define HWY_TARGET_INCLUDE "tensor/ops/loss.cc"
#include "tensor/activation-inl.h"
#include "tensor/block-inl.h"

#ifndef HEED_PAIR_KERNELS
#define HEED_PAIR_KERNELS
namespace heed {
template <class T> struct PairKernels {
  void (*f)(const T* x, const T* y, T p, size_t n, T* out);
  void (*grad)(const T* x, const T* y, T p, bool of_target, const T* dloss, size_t step, T factor, size_t n, bool add, T* to);
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Losses of pairs: f(d, x, y, p), its derivatives dx and dy; p the loss's parameter. A new one is a struct here, its line in Pick, its name
// in the enum, and its line in loss.h.
#define F template <class D, class V, class P> static HWY_INLINE V f([[maybe_unused]] D d, V x, V y, [[maybe_unused]] P p)
#define DX                             \
  template <class D, class V, class P> \
  static HWY_INLINE V dx([[maybe_unused]] D d, [[maybe_unused]] V x, V y, [[maybe_unused]] P p)
#define DY template <class D, class V, class P> static HWY_INLINE V dy([[maybe_unused]] D d, V x, V y, [[maybe_unused]] P p)

template <class Op> struct OfDifference {
  DY { return hn::Neg(Op::dx(d, x, y, p)); }
};
struct SquaredError : OfDifference<SquaredError> {
  F { return hn::Mul(hn::Sub(x, y), hn::Sub(x, y)); }
  DX { return hn::Add(hn::Sub(x, y), hn::Sub(x, y)); }
};
struct AbsoluteError : OfDifference<AbsoluteError> {             // dx = sign(x - y)
  F { return hn::Abs(hn::Sub(x, y)); }
  DX {
    const V e = hn::Sub(x, y);
    return hn::IfThenElse(hn::Or(hn::Gt(e, hn::Zero(d)), hn::Lt(e, hn::Zero(d))), hn::CopySign(hn::Set(d, P(1)), e), e);
  }
};
struct Huber : OfDifference<Huber> {                   // m (|x - y| - m/2),  m = min(|x - y|, δ);  dx = x - y cut to ±δ
  F {
    const V e = hn::Abs(hn::Sub(x, y)), m = math::AtMost(d, p, e);
    return hn::Mul(m, hn::NegMulAdd(hn::Set(d, P(0.5)), m, e));
  }
  DX { return math::AtMost(d, p, math::AtLeast(d, -p, hn::Sub(x, y))); }
};
struct SmoothL1 : OfDifference<SmoothL1> {             // Huber's of δ = β, divided by β: m/β first, β |x - y| may be beyond T
  F {
    const V e = hn::Abs(hn::Sub(x, y)), m = math::AtMost(d, p, e);
    return hn::Mul(hn::Div(m, hn::Set(d, p)), hn::NegMulAdd(hn::Set(d, P(0.5)), m, e));
  }
  DX { return hn::Div(Huber::dx(d, x, y, p), hn::Set(d, p)); }
};
struct Divergence {                                    // y (log y - x);  dx = -y, dy = log y + 1 - x; 0 where y is
  F { return hn::IfThenZeroElse(hn::Eq(y, hn::Zero(d)), hn::Mul(y, hn::Sub(math::Log(d, y), x))); }
  DX { return hn::Neg(y); }
  DY { return hn::IfThenZeroElse(hn::Eq(y, hn::Zero(d)), hn::Sub(hn::Add(math::Log(d, y), hn::Set(d, P(1))), x)); }
};
#undef F
#undef DX
#undef DY

template <class Op, class T> void Pairs(const T* x, const T* y, T p, size_t n, T* out) {
  for (size_t i = 0; i < n; i += 16) {
    Block<T> a = LoadN16(x + i, n - i);
    const Block<T> b = LoadN16(y + i, n - i);
    HEED_EACH_REGISTER a.v[r] = Op::f(typename Block<T>::D(), a.v[r], b.v[r], p);
    StoreN16(a, n - i, out + i);
  }
}
// to[i] (=|+=) ∂f dloss[i * step] factor, of the target or of x
template <class Op, class T>
void PairsGrad(const T* x, const T* y, T p, bool of_target, const T* dloss, size_t step, T factor, size_t n, bool add, T* to) {
  const typename Block<T>::D d;
  const Block<T> by = Set16(factor);
  for (size_t i = 0; i < n; i += 16) {
    const Block<T> up = step ? LoadN16(dloss + i, n - i) : Set16(*dloss), b = LoadN16(y + i, n - i);
    Block<T> a = LoadN16(x + i, n - i);
    HEED_EACH_REGISTER a.v[r] = of_target ? Op::dy(d, a.v[r], b.v[r], p) : Op::dx(d, a.v[r], b.v[r], p);
    a = a * (by * up);
    StoreN16(add ? LoadN16(to + i, n - i) + a : a, n - i, to + i);
  }
}

template <class T> PairKernels<T> PickOf(PairLoss op) {
  switch (op) {
    case PairLoss::mse_loss: return {Pairs<SquaredError, T>, PairsGrad<SquaredError, T>};
    case PairLoss::l1_loss: return {Pairs<AbsoluteError, T>, PairsGrad<AbsoluteError, T>};
    case PairLoss::smooth_l1_loss: return {Pairs<SmoothL1, T>, PairsGrad<SmoothL1, T>};
    case PairLoss::huber_loss: return {Pairs<Huber, T>, PairsGrad<Huber, T>};
    case PairLoss::kl_div: break;
  }
  return {Pairs<Divergence, T>, PairsGrad<Divergence, T>};
}

// w ((1 - y) x + (1 + (p - 1) y) log(1 + e^-x)),  log(1 + e^-x) = max(-x, 0) + log1p(e^-|x|)
template <class T> void LogisticLoss(const T* x, const T* y, const T* w, const T* p, size_t n, T* out) {
  const Block<T> one = Set16(T(1)), zero = Set16(T(0));
  for (size_t i = 0; i < n; i += 16) {
    const size_t k = n - i;
    const Block<T> v = LoadN16(x + i, k), t = LoadN16(y + i, k), minus = zero - v;
    Block<T> soft = Exp16(Min16(v, minus));
    HEED_EACH_REGISTER soft.v[r] = math::Log1p(typename Block<T>::D(), soft.v[r]);
    soft = soft + Max16(minus, zero);
    Block<T> loss = p ? MulAdd16(LoadN16(p + i, k) - one, t, one) * soft : soft;
    loss = MulAdd16(one - t, v, loss);
    StoreN16(w ? LoadN16(w + i, k) * loss : loss, k, out + i);
  }
}
// w ((1 - y) - (1 + (p - 1) y) σ(-x)) dloss
template <class T>
void LogisticLossGrad(const T* x, const T* y, const T* w, const T* p, const T* dloss, size_t step, T factor, size_t n, bool add, T* dx) {
  const Block<T> one = Set16(T(1)), zero = Set16(T(0)), by = Set16(factor);
  for (size_t i = 0; i < n; i += 16) {
    const size_t k = n - i;
    const Block<T> t = LoadN16(y + i, k), up = by * (step ? LoadN16(dloss + i, k) : Set16(*dloss));
    Block<T> sigmoid = zero - LoadN16(x + i, k);
    HEED_EACH_REGISTER sigmoid.v[r] = math::Sigmoid(typename Block<T>::D(), sigmoid.v[r]);
    Block<T> d = (one - t) - (p ? MulAdd16(LoadN16(p + i, k) - one, t, one) * sigmoid : sigmoid);
    if (w) d = d * LoadN16(w + i, k);
    d = d * up;
    StoreN16(add ? LoadN16(dx + i, k) + d : d, k, dx + i);
  }
}

// One line a type: Highway 1.0.3 exports no templates.
PairKernels<float> PickF32(PairLoss op) { return PickOf<float>(op); }
PairKernels<double> PickF64(PairLoss op) { return PickOf<double>(op); }
void LogisticLossF32(const float* x, const float* y, const float* w, const float* p, size_t n, float* out) {
  LogisticLoss(x, y, w, p, n, out);
}
void LogisticLossF64(const double* x, const double* y, const double* w, const double* p, size_t n, double* out) {
  LogisticLoss(x, y, w, p, n, out);
}
void LogisticLossGradF32(const float* x, const float* y, const float* w, const float* p, const float* d, size_t step, float f, size_t n,
                         bool add, float* dx) {
  LogisticLossGrad(x, y, w, p, d, step, f, n, add, dx);
}
void LogisticLossGradF64(const double* x, const double* y, const double* w, const double* p, const double* d, size_t step, double f,
                         size_t n, bool add, double* dx) {
  LogisticLossGrad(x, y, w, p, d, step, f, n, add, dx);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/targets.h"
#include "tensor/ops/total.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(PickF32);
HWY_EXPORT(PickF64);
HWY_EXPORT(LogisticLossF32);
HWY_EXPORT(LogisticLossF64);
HWY_EXPORT(LogisticLossGradF32);
HWY_EXPORT(LogisticLossGradF64);

namespace {

constexpr Index kElements = 1 << 14;   // a chunk

void check_pair(const char* op, const Tensor& x, const Tensor& y, const char* name) {
  check<ShapeError>(x.shape() == y.shape(), "{}: shapes differ: x {}, {} {}", op, x.shape(), name, y.shape());
  check<DTypeError>(x.dtype() == y.dtype(), "{}: dtypes differ: x {}, {} {}", op, x.dtype(), name, y.dtype());
}

// Losses of this shape, or their sum or mean, Σ / divisor; kernel(begin, count, to) makes some of them. The mean over no elements is 0 / 0.
template <class T, class Kernel> Tensor element_losses(const Shape& shape, double divisor, Reduction reduction, Kernel&& kernel) {
  if (reduction == Reduction::none) {
    const Tensor losses = empty(shape, dtype_of<T>);
    T* const to = losses.mutable_data<T>();
    parallel_for(shape.numel(), kElements, [&](Index begin, Index end) { kernel(begin, std::size_t(end - begin), to + begin); });
    return losses;
  }
  const double total = total_of<T>(shape.numel(), [&](Index begin, std::size_t count, T* buffer) {
    kernel(begin, count, buffer);
    return buffer;
  });
  return full({}, reduction == Reduction::sum ? total : total / divisor, dtype_of<T>);
}

// The upstream gradient of each element: data[i * step] times factor
template <class T> struct Upstream {
  Upstream(const char* op, const Tensor& dloss, Reduction reduction, const Shape& shape, double divisor)
      : values(dloss.contiguous()), step(reduction == Reduction::none), factor(reduction == Reduction::mean ? T(1 / divisor) : T(1)) {
    const Shape loss = reduction == Reduction::none ? shape : Shape{};
    check<ShapeError>(dloss.shape() == loss, "{}: dloss does not fit the loss: dloss {}, loss {}", op, dloss.shape(), loss);
    check<DTypeError>(dloss.dtype() == dtype_of<T>, "{}: dtypes differ: dloss {}, x {}", op, dloss.dtype(), dtype_of<T>);
  }
  const T* at(Index i) const { return values.template data<T>() + (step ? i : 0); }
  Tensor values;
  std::size_t step;
  T factor;
};

Tensor like(const char* op, const char* name, const Tensor& weight, const Tensor& x) {
  if (!weight.defined()) return weight;
  check<ShapeError>(broadcasts_to(weight.shape(), x.shape()), "{}: {} does not broadcast to x: {} {}, x {}", op, name,
                    name, weight.shape(), x.shape());
  check<DTypeError>(weight.dtype() == x.dtype(), "{}: dtypes differ: {} {}, x {}", op, name, weight.dtype(), x.dtype());
  return expand(weight, x.shape()).contiguous();
}

}  // namespace

const char* name(PairLoss op) {
  constexpr const char* names[] = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"};
  return names[int(op)];
}

namespace {

void check_parameter(PairLoss op, double parameter) {
  check<Error>(op != PairLoss::smooth_l1_loss || parameter >= 0, "smooth_l1_loss: beta must be 0 or more: {}", parameter);
  check<Error>(op != PairLoss::huber_loss || parameter > 0, "huber_loss: delta must be greater than 0: {}", parameter);
}

// smooth_l1_loss of β = 0 is l1_loss.
template <class T> PairKernels<T> kernels_of(PairLoss op, double parameter) {
  if (op == PairLoss::smooth_l1_loss && T(parameter) == 0) op = PairLoss::l1_loss;
  return pick<T>(HWY_DYNAMIC_DISPATCH(PickF32), HWY_DYNAMIC_DISPATCH(PickF64))(op);
}

}  // namespace

Tensor pair_loss(PairLoss op, const Tensor& x, const Tensor& target, Reduction reduction, double parameter) {
  check_pair(name(op), x, target, "target");
  check_parameter(op, parameter);
  return visit_float(x.dtype(), name(op), [&]<class T>() {
    const Tensor xs = x.contiguous(), ys = target.contiguous();
    const T *a = xs.data<T>(), *b = ys.data<T>();
    const auto kernel = kernels_of<T>(op, parameter).f;
    return element_losses<T>(x.shape(), double(x.numel()), reduction,
                             [&](Index begin, std::size_t n, T* to) { kernel(a + begin, b + begin, T(parameter), n, to); });
  });
}

void pair_loss_grad(PairLoss op, const Tensor& x, const Tensor& target, Reduction reduction, double parameter, const Tensor& dloss,
                    const Into* dx, const Into* dtarget) {
  check_pair(name(op), x, target, "target");
  check_parameter(op, parameter);
  visit_float(x.dtype(), name(op), [&]<class T>() {
    const Upstream<T> up(name(op), dloss, reduction, x.shape(), double(x.numel()));
    const Tensor xs = x.contiguous(), ys = target.contiguous();
    const T *a = xs.data<T>(), *b = ys.data<T>();
    const auto kernel = kernels_of<T>(op, parameter).grad;
    for (const Into* into : {dx, dtarget}) {
      if (!into) continue;
      check_pair(name(op), x, into->tensor, into == dx ? "dx" : "dtarget");
      const Destination out(*into);
      T* to = out.tensor().mutable_data<T>();
      parallel_for(x.numel(), kElements, [&](Index begin, Index end) {
        kernel(a + begin, b + begin, T(parameter), into == dtarget, up.at(begin), up.step, up.factor, std::size_t(end - begin), out.add(),
               to + begin);
      });
      out.finish();
    }
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight,
                                        Reduction reduction) {
  const char* op = "binary_cross_entropy_with_logits";
  check_pair(op, x, target, "target");
  const Tensor w = like(op, "weight", weight, x), p = like(op, "pos_weight", pos_weight, x);
  return visit_float(x.dtype(), op, [&]<class T>() {
    const Tensor xs = x.contiguous(), ys = target.contiguous();
    const T *a = xs.data<T>(), *b = ys.data<T>(), *ws = data_or_null<T>(w), *ps = data_or_null<T>(p);
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogisticLossF32), HWY_DYNAMIC_POINTER(LogisticLossF64));
    return element_losses<T>(x.shape(), double(x.numel()), reduction, [&](Index begin, std::size_t n, T* to) {
      kernel(a + begin, b + begin, ws ? ws + begin : nullptr, ps ? ps + begin : nullptr, n, to);
    });
  });
}

void binary_cross_entropy_with_logits_grad(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight,
                                           Reduction reduction, const Tensor& dloss, Into dx) {
  const char* op = "binary_cross_entropy_with_logits_grad";
  check_pair(op, x, target, "target");
  check_pair(op, x, dx.tensor, "dx");
  const Tensor w = like(op, "weight", weight, x), p = like(op, "pos_weight", pos_weight, x);
  visit_float(x.dtype(), op, [&]<class T>() {
    const Upstream<T> up(op, dloss, reduction, x.shape(), double(x.numel()));
    const Tensor xs = x.contiguous(), ys = target.contiguous();
    const Destination out(dx);
    const T *a = xs.data<T>(), *b = ys.data<T>(), *ws = data_or_null<T>(w), *ps = data_or_null<T>(p);
    T* to = out.tensor().mutable_data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(LogisticLossGradF32), HWY_DYNAMIC_POINTER(LogisticLossGradF64));
    parallel_for(x.numel(), kElements, [&](Index begin, Index end) {
      kernel(a + begin, b + begin, ws ? ws + begin : nullptr, ps ? ps + begin : nullptr, up.at(begin), up.step, up.factor,
             std::size_t(end - begin), out.add(), to + begin);
    });
    out.finish();
  });
}

namespace {

// Of rows [.., V] the labels, weights of classes, and what the mean divides by
struct Labelled {
  Labelled(const char* op, const Tensor& x, const Tensor& targets, const Tensor& weight, Index ignore_index)
      : rows(rows_of(op, x)),
        labels(read_targets(op, targets, rows, x.size(-1), ignore_index)),
        weights(read_class_weight(op, weight, x.size(-1), x.dtype())),
        divisor(labels.count > 0 ? weight_of(labels, weights) : 1) {}
  static Shape rows_of(const char* op, const Tensor& x) {
    check<ShapeError>(x.rank() >= 1, "{}: x needs at least 1 dimension: {}", op, x.shape());
    return without_last(x.shape());
  }
  template <class T> T weight(Index label) const { return weights.defined() ? weights.data<T>()[label] : T(1); }

  Shape rows;
  Targets labels;
  Tensor weights;
  double divisor;
};

}  // namespace

Tensor nll_loss(const Tensor& x, const Tensor& targets, const Tensor& weight, Index ignore_index, Reduction reduction) {
  const Labelled of("nll_loss", x, targets, weight, ignore_index);
  return visit_float(x.dtype(), "nll_loss", [&]<class T>() {
    const Tensor xs = x.contiguous();
    const T* const a = xs.data<T>();
    const Index V = x.size(-1);
    return element_losses<T>(of.rows, of.divisor, reduction, [&](Index begin, std::size_t n, T* to) {
      for (Index row = begin; row < begin + Index(n); ++row) {
        const Index label = of.labels.label[std::size_t(row)];
        to[row - begin] = label < 0 ? T(0) : -of.weight<T>(label) * a[row * V + label];
      }
    });
  });
}

void nll_loss_grad(const Tensor& targets, const Tensor& weight, Index ignore_index, Reduction reduction, const Tensor& dloss, Into dx) {
  const Labelled of("nll_loss_grad", dx.tensor, targets, weight, ignore_index);
  visit_float(dx.tensor.dtype(), "nll_loss_grad", [&]<class T>() {
    const Upstream<T> up("nll_loss_grad", dloss, reduction, of.rows, of.divisor);
    const Destination out(dx);
    const Index V = dx.tensor.size(-1);
    T* const to = out.tensor().mutable_data<T>();
    parallel_for(of.rows.numel(), row_grain(V), [&](Index begin, Index end) {
      if (!out.add()) std::fill(to + begin * V, to + end * V, T(0));
      for (Index row = begin; row < end; ++row)
        if (const Index label = of.labels.label[std::size_t(row)]; label >= 0)
          to[row * V + label] -= of.weight<T>(label) * (*up.at(row) * up.factor);
    });
    out.finish();
  });
}

}  // namespace heed
#endif
