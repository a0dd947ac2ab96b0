// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/causal_product.h"

// Outside of HWY_NAMESPACE: the same for all targets.
#ifndef HEED_TENSOR_OPS_CAUSAL_PRODUCT_TYPES
#define HEED_TENSOR_OPS_CAUSAL_PRODUCT_TYPES
namespace heed {
namespace {

// 16 columns (or the last n) of one head.
template <class T> struct CausalColumns {
  size_t steps, m, n;
  const T *q, *k, *v;             // at the first row; k and q whole rows, the others at the first column
  T *y, *state;
  ptrdiff_t q_row, k_row, v_row, y_row, state_row;   // from a row to the next one
  bool add;                       // y += ..
};

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/causal_product.cc"
#include "tensor/block-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// S_r += k_r v,  y += q_r S_r
template <class T> HWY_INLINE void Row(const CausalColumns<T>& c, const Block<T>& v, const T* q, const T* k, size_t r, Block<T>& y) {
  T* const s = c.state + ptrdiff_t(r) * c.state_row;
  const Block<T> sum = MulAdd16(Set16(k[r]), v, LoadN16(s, c.n));
  StoreN16(sum, c.n, s);
  y = MulAdd16(Set16(q[r]), sum, y);
}

template <class T> void CausalProduct(const CausalColumns<T>& c) {
  for (size_t i = 0; i < c.steps; ++i) {
    const T *const q = c.q + ptrdiff_t(i) * c.q_row, *const k = c.k + ptrdiff_t(i) * c.k_row;
    T* const to = c.y + ptrdiff_t(i) * c.y_row;
    const Block<T> v = LoadN16(c.v + ptrdiff_t(i) * c.v_row, c.n);
    Block<T> a = Set16(T(0)), b = a, e = a, f = a;               // four sums that do not wait for each other
    size_t r = 0;
    for (; r + 4 <= c.m; r += 4) {
      Row(c, v, q, k, r, a);
      Row(c, v, q, k, r + 1, b);
      Row(c, v, q, k, r + 2, e);
      Row(c, v, q, k, r + 3, f);
    }
    for (; r < c.m; ++r) Row(c, v, q, k, r, a);
    const Block<T> y = (a + b) + (e + f);
    StoreN16(c.add ? LoadN16(to, c.n) + y : y, c.n, to);
  }
}

void CausalProductF32(const CausalColumns<float>& c) { CausalProduct(c); }
void CausalProductF64(const CausalColumns<double>& c) { CausalProduct(c); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(CausalProductF32);
HWY_EXPORT(CausalProductF64);

namespace {

void check_sizes(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check<ShapeError>(q.rank() == 4 && k.shape() == q.shape() && v.rank() == 4 && v.size(0) == q.size(0) && v.size(1) == q.size(1) &&
                        v.size(2) == q.size(2),
                    "{}: needs q, k [B, H, T, m] and v [B, H, T, n]: q {}, k {}, v {}", op, q.shape(), k.shape(), v.shape());
  check<DTypeError>(k.dtype() == q.dtype() && v.dtype() == q.dtype(), "{}: dtypes differ: q {}, k {}, v {}", op, q.dtype(), k.dtype(),
                    v.dtype());
}

// y (=|+=) causal_product(q, k, v) after state, or from the last row to the first; y and state have dense rows
void run(const char* op, const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, const Tensor& state, const Tensor& y,
         bool add, bool back) {
  const Tensor q = with_dense_rows(given_q), k = with_dense_rows(given_k), v = with_dense_rows(given_v);
  const Index H = q.size(1), T = q.size(2), m = q.size(3), n = v.size(3), blocks = divide_up(n, 16), first = back ? T - 1 : 0,
              way = back ? -1 : 1;
  if (T == 0) return;
  visit_float(q.dtype(), op, [&]<class E>() {
    const auto kernel = pick<E>(HWY_DYNAMIC_POINTER(CausalProductF32), HWY_DYNAMIC_POINTER(CausalProductF64));
    E *const to = y.mutable_data<E>(), *const sums = state.mutable_data<E>();
    parallel_for(q.size(0) * H * blocks, row_grain(T * m * 16), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index column = i % blocks * 16, h = i / blocks % H, b = i / blocks / H;
        const auto at = [&](const Tensor& x, Index row) { return b * x.strides()[0] + h * x.strides()[1] + row * x.strides()[2]; };
        kernel({.steps = std::size_t(T),
                .m = std::size_t(m),
                .n = std::size_t(std::min<Index>(16, n - column)),
                .q = q.data<E>() + at(q, first),
                .k = k.data<E>() + at(k, first),
                .v = v.data<E>() + at(v, first) + column,
                .y = to + at(y, first) + column,
                .state = sums + at(state, 0) + column,
                .q_row = way * q.strides()[2],
                .k_row = way * k.strides()[2],
                .v_row = way * v.strides()[2],
                .y_row = way * y.strides()[2],
                .state_row = state.strides()[2],
                .add = add});
      }
    });
  });
}

Tensor no_sums(const Tensor& k, const Tensor& v) { return zeros({k.size(0), k.size(1), k.size(3), v.size(3)}, k.dtype()); }

}  // namespace

Tensor causal_product(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_sizes("causal_product", q, k, v);
  const Tensor y = empty(v.shape(), v.dtype());
  run("causal_product", q, k, v, no_sums(k, v), y, false, false);
  return y;
}

Tensor causal_product_next(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state) {
  check_sizes("causal_product_next", q, k, v);
  const Shape expected{k.size(0), k.size(1), k.size(3), v.size(3)};
  check<ShapeError>(state.shape() == expected && state.is_contiguous(),
                    "causal_product_next: the state needs {}, contiguous: shape {}, strides {}", expected, state.shape(), state.strides());
  check<DTypeError>(state.dtype() == q.dtype(), "causal_product_next: dtypes differ: q {}, state {}", q.dtype(), state.dtype());
  const Tensor y = empty(v.shape(), v.dtype());
  run("causal_product_next", q, k, v, state, y, false, false);
  return y;
}

Tensor causal_product_by_definition(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_sizes("causal_product", q, k, v);
  return matmul(tril(matmul(q, transpose(k))), v);
}

void causal_product_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy, const Into* dq, const Into* dk,
                         const Into* dv) {
  check_sizes("causal_product_grad", q, k, v);
  check<ShapeError>(dy.shape() == v.shape(), "causal_product_grad: shapes differ: v {}, dy {}", v.shape(), dy.shape());
  check<DTypeError>(dy.dtype() == v.dtype(), "causal_product_grad: dtypes differ: v {}, dy {}", v.dtype(), dy.dtype());
  if (dq) check_like("causal_product_grad", "dq", dq->tensor, q);
  if (dk) check_like("causal_product_grad", "dk", dk->tensor, k);
  if (dv) check_like("causal_product_grad", "dv", dv->tensor, v);
  const RowDestinations<3> out({dq, dk, dv});
  if (dq) run("causal_product_grad", dy, v, k, no_sums(v, k), out.tensor(0), out.add(0), false);
  if (dk) run("causal_product_grad", v, dy, q, no_sums(v, q), out.tensor(1), out.add(1), true);
  if (dv) run("causal_product_grad", k, q, dy, no_sums(q, dy), out.tensor(2), out.add(2), true);
  out.finish();
}

}  // namespace heed
#endif
