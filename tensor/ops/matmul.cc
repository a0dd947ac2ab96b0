// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/matmul.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/ops/fold.h"
#include "tensor/ops/kernel.h"

namespace heed {
namespace {

// An operand as matrices [rows, columns] along batch axes.
struct Matrices {
  Shape batch;
  Strides strides;                   // of the batch axes
  Index rows, columns, row, column;  // sizes, strides
};

enum class Vector { row, column };

Matrices matrices(const Tensor& x, Vector vector) {
  if (x.rank() == 1 && vector == Vector::row) return {{}, {}, 1, x.shape()[0], 0, x.strides()[0]};
  if (x.rank() == 1) return {{}, {}, x.shape()[0], 1, x.strides()[0], 0};
  const int r = x.rank();
  return {Shape(std::span(x.shape().begin(), std::size_t(r - 2))),
          Strides(std::span(x.strides().begin(), std::size_t(r - 2))),
          x.shape()[r - 2],
          x.shape()[r - 1],
          x.strides()[r - 2],
          x.strides()[r - 1]};
}

Matrices transposed(Matrices x) {
  std::swap(x.rows, x.columns);
  std::swap(x.row, x.column);
  return x;
}

// One axis of the batch: its size and the strides of the three operands, 0 where an operand lacks the axis.
struct Axis {
  Index size, a, b, c;
};

// c (=|+=) Σ a b over k and over the batch axes that c lacks. Axes are joined with the rows or with k where strides allow.
template <class T>
void contract(const Tensor& a, const Matrices& am, const Tensor& b, const Matrices& bm, const Into& c, const Matrices& cm) {
  Product<T> p{cm.rows,   cm.columns,  am.columns, a.data<T>(), am.row,
               am.column, b.data<T>(), bm.row,     bm.column,   c.tensor.mutable_data<T>(),
               cm.row,    cm.column,   c.add};
  std::array<Axis, kMaxRank> kept, summed;
  int kept_count = 0, summed_count = 0;
  Index count = 1;
  const int rank = std::max({am.batch.rank(), bm.batch.rank(), cm.batch.rank()});
  for (int back = 1; back <= rank; ++back) {
    Axis axis{1, 0, 0, 0};
    const auto read = [&](const Matrices& x, Index& stride) {
      const int i = x.batch.rank() - back;
      if (i < 0 || x.batch[i] == 1) return false;
      axis.size = x.batch[i];
      stride = x.strides[i];
      return true;
    };
    const bool in_a = read(am, axis.a), in_b = read(bm, axis.b), in_c = read(cm, axis.c);
    if (!in_a && !in_b) continue;
    if (in_c && !in_b && kept_count == 0 && (p.m == 1 || (axis.a == p.m * p.a_row && axis.c == p.m * p.c_row))) {
      if (p.m == 1) p.a_row = axis.a, p.c_row = axis.c;
      p.m *= axis.size;
    } else if (!in_c && summed_count == 0 && (p.k == 1 || (axis.a == p.k * p.a_k && axis.b == p.k * p.b_k))) {
      if (p.k == 1) p.a_k = axis.a, p.b_k = axis.b;
      p.k *= axis.size;
    } else if (in_c) {
      kept[std::size_t(kept_count++)] = axis;
      count *= axis.size;
    } else if (axis.size == 0) {
      p.k = 0;
    } else {
      summed[std::size_t(summed_count++)] = axis;
    }
  }
  Index sums = 1;
  for (int i = 0; i < summed_count; ++i) sums *= summed[std::size_t(i)].size;
  for (Index s = 0; s < sums; ++s) {
    Product<T> first = p;
    first.add = p.add || s > 0;
    for (Index i = 0, rest = s; i < summed_count; ++i) {
      const Axis& axis = summed[std::size_t(i)];
      first.a += rest % axis.size * axis.a;
      first.b += rest % axis.size * axis.b;
      rest /= axis.size;
    }
    const auto item = [&](Index i) {
      Product<T> one = first;
      for (int k = 0; k < kept_count; ++k) {
        const Axis& axis = kept[std::size_t(k)];
        one.a += i % axis.size * axis.a;
        one.b += i % axis.size * axis.b;
        one.c += i % axis.size * axis.c;
        i /= axis.size;
      }
      return one;
    };
    multiply(count, FunctionRef<Product<T>(Index)>(item));
  }
}

// Shape of matmul(a, b); throws as documented.
Shape result_shape(const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.rank() > 0 && b.rank() > 0, "matmul: operands need at least 1 axis: a {}, b {}", a.shape(), b.shape());
  check<DTypeError>(a.dtype() == b.dtype(), "matmul: dtypes differ: a {}, b {}", a.dtype(), b.dtype());
  const Matrices am = matrices(a, Vector::row), bm = matrices(b, Vector::column);
  check<ShapeError>(am.columns == bm.rows, "matmul: inner sizes differ: a {}, b {} ({} and {})", a.shape(), b.shape(),
                    am.columns, bm.rows);
  Shape shape = am.batch.rank() >= bm.batch.rank() ? am.batch : bm.batch;
  for (int i = 1; i <= std::min(am.batch.rank(), bm.batch.rank()); ++i) {
    const Index x = am.batch[am.batch.rank() - i], y = bm.batch[bm.batch.rank() - i];
    check<ShapeError>(x == y || x == 1 || y == 1, "matmul: batch axes do not broadcast: a {}, b {} ({} and {})", a.shape(),
                      b.shape(), x, y);
    shape[shape.rank() - i] = x == 1 ? y : x;
  }
  if (a.rank() > 1) shape.push_back(am.rows);
  if (b.rank() > 1) shape.push_back(bm.columns);
  return shape;
}

// The result of matmul(a, b) as matrices, axes of size 1 put back.
Matrices result_matrices(const Tensor& a, const Tensor& b, const Tensor& c) {
  const int batch = c.rank() - (a.rank() > 1) - (b.rank() > 1);
  Matrices m{Shape(std::span(c.shape().begin(), std::size_t(batch))),
             Strides(std::span(c.strides().begin(), std::size_t(batch))),
             1,
             1,
             0,
             0};
  if (a.rank() > 1) m.rows = c.shape()[batch], m.row = c.strides()[batch];
  if (b.rank() > 1) m.columns = c.shape()[c.rank() - 1], m.column = c.strides()[c.rank() - 1];
  return m;
}

void run(const Tensor& a, const Matrices& am, const Tensor& b, const Matrices& bm, const Into& c, const Matrices& cm) {
  visit_float(a.dtype(), "matmul", [&]<class T>() { contract<T>(a, am, b, bm, c, cm); });
}

// c (=|+=) a b, of shapes that fit
void product_into(const Tensor& a, const Tensor& b, const Into& c) {
  if (a.rank() == 1 && b.rank() == 1 && is_float(a.dtype())) return fold_products(a, b, c);
  run(a, matrices(a, Vector::row), b, matrices(b, Vector::column), c, result_matrices(a, b, c.tensor));
}

void check_gradients(const char* op, const Tensor& a, const Tensor& b, const Tensor& dc, const Into& into) {
  const Shape shape = result_shape(a, b);
  check<ShapeError>(dc.shape() == shape, "{}: dc has another shape than the result: a {}, b {}, dc {}", op, a.shape(),
                    b.shape(), dc.shape());
  check<DTypeError>(dc.dtype() == a.dtype(), "{}: dtypes differ: a {}, dc {}", op, a.dtype(), dc.dtype());
  check_writable(op, into.tensor);
}

void check_sums(const char* op, const Tensor& a, const Tensor& sums) {
  check<ShapeError>(sums.shape() == Shape{a.size(1)}, "{}: sums are of another number of columns: a {}, sums {}", op, a.shape(),
                    sums.shape());
  check<DTypeError>(sums.dtype() == a.dtype(), "{}: dtypes differ: a {}, sums {}", op, a.dtype(), sums.dtype());
  check_writable(op, sums);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const Tensor c = empty(result_shape(a, b), a.dtype());
  product_into(a, b, {c});
  return c;
}

void matmul(const Tensor& a, const Tensor& b, Into c) {
  const Shape shape = result_shape(a, b);
  check<ShapeError>(c.tensor.shape() == shape, "matmul: the result has another shape: result {}, into {}", shape,
                    c.tensor.shape());
  check<DTypeError>(c.tensor.dtype() == a.dtype(), "matmul: dtypes differ: result {}, into {}", a.dtype(), c.tensor.dtype());
  check_writable("matmul", c.tensor);
  product_into(a, b, c);
}

void matmul_over_rows(const Tensor& a, const Tensor& b, Into c, const Into* sums) {
  check<ShapeError>(a.rank() == 2 && b.rank() == 2 && a.size(0) == b.size(0), "matmul_over_rows: needs as many rows of both: a {}, b {}",
                    a.shape(), b.shape());
  check<ShapeError>(c.tensor.shape() == Shape{a.size(1), b.size(1)}, "matmul_over_rows: the result has another shape: result {}, into {}",
                    Shape{a.size(1), b.size(1)}, c.tensor.shape());
  check<DTypeError>(a.dtype() == b.dtype() && a.dtype() == c.tensor.dtype(), "matmul_over_rows: dtypes differ: a {}, b {}, into {}",
                    a.dtype(), b.dtype(), c.tensor.dtype());
  check_writable("matmul_over_rows", c.tensor);
  std::optional<Destination> to;
  if (sums) {
    check_sums("matmul_over_rows", a, sums->tensor);
    to.emplace(*sums, may_overlap(c.tensor, sums->tensor));
  }
  visit_float(a.dtype(), "matmul_over_rows", [&]<class T>() {
    const RowSums<T> row_sums = to ? RowSums<T>{to->tensor().mutable_data<T>(), to->add()} : RowSums<T>();
    multiply_by_halves(Product<T>{a.size(1), b.size(1), a.size(0), a.data<T>(), a.strides()[1], a.strides()[0], b.data<T>(), b.strides()[0],
                                  b.strides()[1], c.tensor.mutable_data<T>(), c.tensor.strides()[0], c.tensor.strides()[1], c.add},
                       row_sums);
  });
  if (to) to->finish();
}

void sum_over_rows(const Tensor& a, Index n, Into sums) {
  check<ShapeError>(a.rank() == 2, "sum_over_rows: needs 2 dimensions: {}", a.shape());
  check_sums("sum_over_rows", a, sums.tensor);
  const Destination to(sums);
  visit_float(a.dtype(), "sum_over_rows", [&]<class T>() {
    sum_by_halves(Product<T>{a.size(1), n, a.size(0), a.data<T>(), a.strides()[1], a.strides()[0], nullptr, 0, 0, nullptr, 0, 0, false},
                  {to.tensor().template mutable_data<T>(), to.add()});
  });
  to.finish();
}

void matmul_grad_a(const Tensor& b, const Tensor& dc, Into da) {
  check_gradients("matmul_grad_a", da.tensor, b, dc, da);
  run(dc, result_matrices(da.tensor, b, dc), b, transposed(matrices(b, Vector::column)), da, matrices(da.tensor, Vector::row));
}

void matmul_grad_b(const Tensor& a, const Tensor& dc, Into db) {
  check_gradients("matmul_grad_b", a, db.tensor, dc, db);
  run(a, transposed(matrices(a, Vector::row)), dc, result_matrices(a, db.tensor, dc), db, matrices(db.tensor, Vector::column));
}

}  // namespace heed
