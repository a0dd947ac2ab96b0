// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/score.h"

#include "tensor/ops/mask_rows.h"

// Outside of HWY_NAMESPACE: the same for all targets.
#ifndef HEED_TENSOR_OPS_SCORE_TYPES
#define HEED_TENSOR_OPS_SCORE_TYPES
namespace heed {
namespace {

// 16 columns (or the last n) of the gradients of one sentence.
template <class T> struct AdditiveColumns {
  size_t T_, S, A, n;
  const T *q, *k, *v, *de;        // at the first column; rows of A, of de S
  const RowMask* masks;           // null: everything
  T *dq, *dk, *dv;                // dv: n numbers, written; null: not wanted
  ptrdiff_t dq_row, dk_row;
  bool add_q, add_k;
};

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/score.cc"
#include "tensor/block-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> HWY_INLINE Block<T> TanhOf(Block<T> a) {
  HEED_EACH_REGISTER a.v[r] = math::Tanh(typename Block<T>::D(), a.v[r]);
  return a;
}

// e_s = Σ_a v_a tanh(q_a + k_sa), 0 where masked        q, v [A], k [S, A]
template <class T> void AdditiveRow(const T* q, const T* k, const T* v, size_t S, size_t A, const RowMask& mask, T* e) {
  for (size_t s = 0; s < S; ++s) {
    e[s] = 0;
    if (ptrdiff_t(s) < mask.first || ptrdiff_t(s) >= mask.last || (mask.allowed && !mask.allowed[s])) continue;
    const T* key = k + s * A;
    Block<T> sum = Set16(T(0));
    size_t a = 0;
    for (; a + 16 <= A; a += 16) sum = MulAdd16(Load16(v + a), TanhOf(Load16(q + a) + Load16(key + a)), sum);
    if (a < A) sum = MulAdd16(LoadN16(v + a, A - a), TanhOf(LoadN16(q + a, A - a) + LoadN16(key + a, A - a)), sum);
    e[s] = Sum16(sum);
  }
}

// forward was  e_ts = Σ_a v_a u_tsa, u = tanh(q + k), so now  g = de v (1 - u²)
template <class T> void AdditiveGrad(const AdditiveColumns<T>& c) {
  const size_t n = c.n;
  const Block<T> zero = Set16(T(0)), one = Set16(T(1)), v = LoadN16(c.v, n);
  if (c.dk && !c.add_k)
    for (size_t s = 0; s < c.S; ++s) StoreN16(zero, n, c.dk + ptrdiff_t(s) * c.dk_row);
  Block<T> dv = zero;
  for (size_t t = 0; t < c.T_; ++t) {
    const RowMask mask = c.masks ? c.masks[t] : RowMask{0, Index(c.S)};
    const Block<T> q = LoadN16(c.q + t * c.A, n);
    Block<T> dq = zero;
    for (auto s = size_t(mask.first); ptrdiff_t(s) < mask.last; ++s) {
      if (mask.allowed && !mask.allowed[s]) continue;
      const Block<T> de = Set16(c.de[t * c.S + s]), u = TanhOf(q + LoadN16(c.k + s * c.A, n));
      const Block<T> g = de * v * (one - u * u);
      dv = MulAdd16(de, u, dv);
      dq = dq + g;
      if (c.dk) {
        T* const to = c.dk + ptrdiff_t(s) * c.dk_row;
        StoreN16(LoadN16(to, n) + g, n, to);
      }
    }
    if (c.dq) {
      T* const to = c.dq + ptrdiff_t(t) * c.dq_row;
      StoreN16(c.add_q ? LoadN16(to, n) + dq : dq, n, to);
    }
  }
  if (c.dv) StoreN16(dv, n, c.dv);
}

void AdditiveF32(const float* q, const float* k, const float* v, size_t S, size_t A, const RowMask& mask, float* e) {
  AdditiveRow(q, k, v, S, A, mask, e);
}
void AdditiveF64(const double* q, const double* k, const double* v, size_t S, size_t A, const RowMask& mask, double* e) {
  AdditiveRow(q, k, v, S, A, mask, e);
}
void AdditiveGradF32(const AdditiveColumns<float>& c) { AdditiveGrad(c); }
void AdditiveGradF64(const AdditiveColumns<double>& c) { AdditiveGrad(c); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/unary.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(AdditiveF32);
HWY_EXPORT(AdditiveF64);
HWY_EXPORT(AdditiveGradF32);
HWY_EXPORT(AdditiveGradF64);

namespace {

struct Sizes { Index B, T, S, A; };

Sizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check<ShapeError>(q.rank() == 3 && k.rank() == 3 && v.rank() == 1, "{}: needs q [B, T, A], k [B, S, A], v [A]: q {}, k {}, v {}", op,
                    q.shape(), k.shape(), v.shape());
  check<DTypeError>(q.dtype() == k.dtype() && q.dtype() == v.dtype(), "{}: dtypes differ: q {}, k {}, v {}", op, q.dtype(), k.dtype(),
                    v.dtype());
  const Sizes n{q.size(0), q.size(1), k.size(1), q.size(2)};
  check<ShapeError>(k.size(0) == n.B && k.size(2) == n.A && v.size(0) == n.A, "{}: batch or widths differ: q {}, k {}, v {}", op, q.shape(),
                    k.shape(), v.shape());
  return n;
}

constexpr Index kTanhCost = 4;     // of one tanh with what belongs to it, in the units of row_grain

}  // namespace

Tensor additive_score(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask) {
  const char* op = "additive_score";
  const Sizes n = check_inputs(op, q, k, v);
  return visit_float(q.dtype(), op, [&]<class T>() {
    const Tensor qs = q.contiguous(), ks = k.contiguous(), vs = v.contiguous(), e = empty({n.B, n.T, n.S}, q.dtype());
    const MaskRows masks(op, mask, e.shape());
    const T *qp = qs.data<T>(), *kp = ks.data<T>(), *vp = vs.data<T>();
    T* const ep = e.mutable_data<T>();
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(AdditiveF32), HWY_DYNAMIC_POINTER(AdditiveF64));
    if (n.S > 0)
      parallel_for(n.B * n.T, row_grain(n.S * n.A * kTanhCost), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row)
          kernel(qp + row * n.A, kp + row / n.T * n.S * n.A, vp, std::size_t(n.S), std::size_t(n.A), masks(row), ep + row * n.S);
      });
    return e;
  });
}

void additive_score_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const Tensor& de, const Into* dq,
                         const Into* dk, const Into* dv) {
  const char* op = "additive_score_grad";
  const Sizes n = check_inputs(op, q, k, v);
  const auto check_like = [&](const char* name, const Tensor& a, const Shape& shape) {
    check<ShapeError>(a.shape() == shape, "{}: {} has another shape: {} {}, expected {}", op, name, name, a.shape(), shape);
    check<DTypeError>(a.dtype() == q.dtype(), "{}: dtypes differ: {} {}, q {}", op, name, a.dtype(), q.dtype());
  };
  check_like("de", de, {n.B, n.T, n.S});
  if (dq) check_like("dq", dq->tensor, q.shape());
  if (dk) check_like("dk", dk->tensor, k.shape());
  if (dv) check_like("dv", dv->tensor, v.shape());
  visit_float(q.dtype(), op, [&]<class T>() {
    const Tensor qs = q.contiguous(), ks = k.contiguous(), vs = v.contiguous(), des = de.contiguous();
    const RowDestinations<3> to({dq, dk, dv});
    const Tensor parts = dv ? empty({n.B, n.A}, q.dtype()) : Tensor();                 // of dv, a row a sentence
    const MaskRows mask_rows(op, mask, de.shape());
    List<RowMask> masks(std::size_t(mask_rows.everything() ? 0 : n.B * n.T));
    for (std::size_t row = 0; row < masks.size(); ++row) masks[row] = mask_rows(Index(row));
    const T *qp = qs.data<T>(), *kp = ks.data<T>(), *vp = vs.data<T>(), *dep = des.data<T>();
    T* const dqp = dq ? to.tensor(0).template mutable_data<T>() : nullptr;
    T* const dkp = dk ? to.tensor(1).template mutable_data<T>() : nullptr;
    T* const part = dv ? parts.mutable_data<T>() : nullptr;
    const auto row_stride = [&](std::size_t i, int axis) { return to.wanted(i) ? to.tensor(i).strides()[axis] : 0; };
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(AdditiveGradF32), HWY_DYNAMIC_POINTER(AdditiveGradF64));
    const Index blocks = divide_up(n.A, 16);
    parallel_for(n.B * blocks, row_grain(n.T * n.S * 16 * kTanhCost), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index b = i / blocks, a = i % blocks * 16;
        kernel({std::size_t(n.T), std::size_t(n.S), std::size_t(n.A), std::size_t(std::min<Index>(16, n.A - a)), qp + b * n.T * n.A + a,
                kp + b * n.S * n.A + a, vp + a, dep + b * n.T * n.S, masks.empty() ? nullptr : masks.data() + b * n.T,
                dqp ? dqp + b * row_stride(0, 0) + a : nullptr, dkp ? dkp + b * row_stride(1, 0) + a : nullptr,
                part ? part + b * n.A + a : nullptr, row_stride(0, 1), row_stride(1, 1), to.add(0), to.add(1)});
      }
    });
    if (dv) {
      T* const out = to.tensor(2).template mutable_data<T>();
      if (!to.add(2)) std::fill(out, out + n.A, T(0));
      for (Index b = 0; b < n.B; ++b)
        for (Index a = 0; a < n.A; ++a) out[a] += part[b * n.A + a];
    }
    to.finish();
  });
}

Tensor additive_score_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask) {
  const char* op = "additive_score_by_definition";
  const Sizes n = check_inputs(op, q, k, v);
  const Tensor e = matmul(tanh(add(unsqueeze(q, 2), unsqueeze(k, 1))), v);                 // [B, T, S]
  return where(mask.dense({n.B, n.T, n.S}), e, zeros({}, e.dtype()));
}

}  // namespace heed
#endif
