// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/fold.h"
#include "tensor/ops/short_rows.h"
#include "tensor/ops/walk.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

Tensor reduced_tensor(std::string_view name, Folding folding, const Tensor& x, const Axes& axes, bool keepdim, FoldEnding ending = {}) {
  if (!is_float(x.dtype())) throw_not_float(name, x.dtype());
  const Tensor y = empty(reduced_shape(x.shape(), axes, keepdim), x.dtype());
  fold(folding, x, axes, {with_kept_dims(y, x.shape(), axes), false}, ending);
  return y;
}

// dtype i64 of a sum, u8 of a question
Tensor exact(Folding folding, const Tensor& x, const Axes& axes, bool keepdim) {
  const Tensor y = empty(reduced_shape(x.shape(), axes, keepdim), folding == Folding::sum ? DType::i64 : DType::u8);
  fold_exact(folding, x, axes, with_kept_dims(y, x.shape(), axes));
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, Flag keepdim) {
  const Axes axes = reduced_axes("sum", x, dims);
  check_dtype("sum", x);
  return is_float(x.dtype()) ? reduced_tensor("sum", Folding::sum, x, axes, keepdim) : exact(Folding::sum, x, axes, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, Flag keepdim) {
  const Axes axes = reduced_axes("mean", x, dims);
  const double n = double(count_of(x.shape(), axes));
  return reduced_tensor("mean", Folding::sum, x, axes, keepdim, {.divisor = n});
}

Tensor prod(const Tensor& x, const Dims& dims, Flag keepdim) {
  return reduced_tensor("prod", Folding::product, x, reduced_axes("prod", x, dims), keepdim);
}

namespace {

Tensor extremum(std::string_view name, Folding folding, const Tensor& x, const Dims& dims, bool keepdim) {
  const Axes axes = reduced_axes(name, x, dims);
  check<ShapeError>(count_of(x.shape(), axes) > 0 || reduced_shape(x.shape(), axes, false).numel() == 0,
                    "{}: nothing to choose from: shape {}, dims {}", name, x.shape(), dims);
  return reduced_tensor(name, folding, x, axes, keepdim);
}

}  // namespace

Tensor max(const Tensor& x, const Dims& dims, Flag keepdim) { return extremum("max", Folding::max, x, dims, keepdim); }
Tensor min(const Tensor& x, const Dims& dims, Flag keepdim) { return extremum("min", Folding::min, x, dims, keepdim); }

namespace {

// x - mean, and what the mean lost when it was rounded: far from 0 that is as large as the differences
Tensor centred(const Tensor& x, const Dims& dims) {
  const Tensor near = x - mean(x, dims, true);
  return near - mean(near, dims, true);
}

Tensor variance(std::string_view name, const Tensor& x, const Dims& dims, bool unbiased, bool keepdim, bool root) {
  const Axes axes = reduced_axes(name, x, dims);
  if (!is_float(x.dtype())) throw_not_float(name, x.dtype());
  const double n = double(count_of(x.shape(), axes)) - (unbiased ? 1 : 0);
  return reduced_tensor(name, Folding::squares, centred(x, dims), axes, keepdim, {.divisor = n > 0 ? n : 0, .root = root});
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, Flag unbiased, Flag keepdim) { return variance("var", x, dims, unbiased, keepdim, false); }
Tensor stddev(const Tensor& x, const Dims& dims, Flag unbiased, Flag keepdim) {
  return variance("stddev", x, dims, unbiased, keepdim, true);
}

Tensor norm(const Tensor& x, const Dims& dims, Flag keepdim) {
  return reduced_tensor("norm", Folding::squares, x, reduced_axes("norm", x, dims), keepdim, {.root = true});
}

// ---- derivatives -------------------------------------------------------------------------------------------------------

namespace {

// dx (=|+=) dy, broadcast
void spread(const Tensor& dy, const Into& dx) {
  if (dx.add) binary(Binary::add, dx.tensor, dy, {dx.tensor, false});
  else copy_into(dx.tensor, dy);
}

}  // namespace

void sum_grad(const Tensor& dy, const Dims& dims, const Into& dx) {
  spread(with_kept_dims(dy, dx.tensor.shape(), reduced_axes("sum", dx.tensor, dims)), dx);
}

void mean_grad(const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("mean", dx.tensor, dims);
  spread(with_kept_dims(dy * (1 / double(count_of(dx.tensor.shape(), axes))), dx.tensor.shape(), axes), dx);
}

namespace {

// forward was  y = Π_j x_j,  so now  dx_j = (dy x_0 .. x_(j-1)) (x_(j+1) .. x_(n-1)),  W sequences at a time, products in double.
// Element j of sequence w is x[w][offset[j]], its derivative dx[w][to[j]]; after [n + 1, W].
template <int W, class T>
void prod_grad_of(const T* const* x, const std::ptrdiff_t* offset, Index n, const double* dy, double* after, bool add, T* const* dx,
                  const std::ptrdiff_t* to) {
  double before[W];
  for (int w = 0; w < W; ++w) before[w] = dy[w], after[n * W + w] = 1;
  for (Index j = n; j-- > 0;)
    for (int w = 0; w < W; ++w) after[j * W + w] = double(x[w][offset[j]]) * after[(j + 1) * W + w];
  for (Index j = 0; j < n; ++j)
    for (int w = 0; w < W; ++w) {
      const double value = double(x[w][offset[j]]);
      const T gradient = T(before[w] * after[(j + 1) * W + w]);
      T& out = dx[w][to[j]];
      out = add ? out + gradient : gradient;
      before[w] *= value;
    }
}

}  // namespace

void prod_grad(const Tensor& x, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("prod", x, dims);
  check_like("prod_grad", "dx", dx.tensor, x);
  check_writable("prod_grad", dx.tensor);
  const Tensor upstream = with_kept_dims(dy, x.shape(), axes);
  visit_float(x.dtype(), "prod", [&]<class T>() {
    if (x.numel() == 0) return;
    Counter kept, to_kept, reduced;  // over (x, dy), (dx) and (x, dx)
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (axes[std::size_t(axis)]) {
        reduced.push(x.shape()[axis], x.strides()[axis], dx.tensor.strides()[axis]);
      } else {
        kept.push(x.shape()[axis], x.strides()[axis], upstream.strides()[axis]);
        to_kept.push(x.shape()[axis], dx.tensor.strides()[axis]);
      }
    }
    const Index n = reduced.total;
    List<std::ptrdiff_t> offset(std::size_t(n), 0), to_offset(std::size_t(n), 0);
    reduced.seek(0);
    for (Index j = 0; j < n; ++j, reduced.next()) {
      offset[std::size_t(j)] = reduced.offset[0];
      to_offset[std::size_t(j)] = reduced.offset[1];
    }
    constexpr Index kTogether = 8, kFew = 4096;
    const T *from = x.data<T>(), *up = upstream.data<T>();
    T* const to = dx.tensor.mutable_data<T>();
    parallel_for(kept.total, std::max<Index>(n <= kFew ? kTogether : 1, row_grain(4 * n)), [&](Index begin, Index end) {
      Counter at = kept, to_at = to_kept;
      at.seek(begin);
      to_at.seek(begin);
      List<double> after(std::size_t((n + 1) * (n <= kFew ? kTogether : 1)), 0.0);
      while (begin < end) {
        const bool together = n <= kFew && end - begin >= kTogether;
        const T* sequence[kTogether];
        T* to_sequence[kTogether];
        double dys[kTogether];
        for (Index w = 0; w < (together ? kTogether : 1); ++w, ++begin, at.next(), to_at.next()) {
          sequence[w] = from + at.offset[0];
          to_sequence[w] = to + to_at.offset[0];
          dys[w] = double(up[at.offset[1]]);
        }
        (together ? prod_grad_of<int(kTogether), T> : prod_grad_of<1, T>)(sequence, offset.data(), n, dys, after.data(), dx.add,
                                                                          to_sequence, to_offset.data());
      }
    });
  });
}

namespace {

// forward was  y = max_j x_j  (or min),  so now  dx_j = [x_j = y] dy / ties  of rows side by side; where y is NaN, it won by every NaN.
template <class T> void max_grad_of(const T* x, std::size_t n, const T* y, const T* dy, T* dx) {   // x, dx [n, kTile], y, dy [kTile]
  T share[kTile] = {};
  const auto won = [&](std::size_t j, std::size_t w) {
    return x[j * kTile + w] == y[w] || (y[w] != y[w] && x[j * kTile + w] != x[j * kTile + w]);
  };
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t w = 0; w < kTile; ++w) share[w] += choose(won(j, w), T(1), T(0));
  for (std::size_t w = 0; w < kTile; ++w) share[w] = dy[w] / share[w];
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t w = 0; w < kTile; ++w) dx[j * kTile + w] = choose(won(j, w), share[w], T(0));
}

// Whether x ends with the reduced axes, n numbers of them.
bool of_short_rows(const Tensor& x, const Axes& axes, Index n) {
  return x.is_contiguous() && n >= 1 && n <= Index(kShort) && std::is_sorted(axes.begin(), axes.begin() + x.rank());
}

template <class T> void max_grad_of_short_rows(const Tensor& x, Index n, const Tensor& y, const Tensor& dy, const Into& dx) {
  const Tensor best = y.contiguous(), upstream = dy.contiguous();
  const Destination out(dx);
  for_short_rows<T>(y.numel(), n, x.data<T>(), nullptr, out.tensor().mutable_data<T>(), out.add(),
                    [&](Index first, std::size_t rows, const T* tile, const T*, T* gradients) {
                      T won[kTile] = {}, up[kTile] = {};
                      std::copy_n(best.data<T>() + first, rows, won);
                      std::copy_n(upstream.data<T>() + first, rows, up);
                      max_grad_of(tile, std::size_t(n), won, up, gradients);
                    });
  out.finish();
}

}  // namespace

void max_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("max", x, dims);
  const Index n = count_of(x.shape(), axes);
  check_like("max_grad", "dx", dx.tensor, x);
  check_like("max_grad", "dy", dy, y);
  if (of_short_rows(x, axes, n)) return visit_float(x.dtype(), "max", [&]<class T>() { max_grad_of_short_rows<T>(x, n, y, dy, dx); });
  const Tensor best = with_kept_dims(y, x.shape(), axes), upstream = with_kept_dims(dy, x.shape(), axes);
  Tensor wins = equal(x, best);
  // NaN wins
  if (const Tensor nan = not_equal(best, best); any_true(nan)) wins = logical_or(wins, logical_and(not_equal(x, x), nan));
  const Tensor ties = upstream / to(with_kept_dims(sum(wins, dims, true), x.shape(), axes), x.dtype());
  visit_float(x.dtype(), "max", [&]<class T>() {
    const bool direct = !dx.add && dx.tensor.is_contiguous();
    const Tensor shares = direct ? dx.tensor : empty(x.shape(), x.dtype());
    map_elements<T, std::uint8_t, T>(shares, 1, [](std::uint8_t won, T share) { return choose(won != 0, share, T(0)); }, wins, ties);
    if (!direct) add_into(shares, dx);
  });
}

void var_grad(const Tensor& x, const Tensor& dy, const Dims& dims, bool unbiased, const Into& dx) {
  const Axes axes = reduced_axes("var", x, dims);
  const double n = double(count_of(x.shape(), axes)) - (unbiased ? 1 : 0);
  add_into(centred(x, dims) * (with_kept_dims(dy, x.shape(), axes) * (2 / n)), dx);
}

void stddev_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, bool unbiased, const Into& dx) {
  const Tensor zero = zeros({}, x.dtype());
  var_grad(x, where(equal(y, zero), zero, dy / (2 * y)), dims, unbiased, dx);
}

void norm_grad(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, const Into& dx) {
  const Axes axes = reduced_axes("norm", x, dims);
  const Tensor length = with_kept_dims(y, x.shape(), axes), upstream = with_kept_dims(dy, x.shape(), axes);
  const Tensor zero = zeros({}, x.dtype());
  add_into(x * where(equal(length, zero), zero, upstream / length), dx);
}

// ---- sum_to ------------------------------------------------------------------------------------------------------------

void sum_to(const Tensor& x, const Into& out) {
  check<DTypeError>(x.dtype() == out.tensor.dtype(), "sum_to: dtypes differ: x {}, out {}", x.dtype(), out.tensor.dtype());
  check_writable("sum_to", out.tensor);
  const Shape& to = out.tensor.shape();
  if (to == x.shape()) return spread(x, out);
  const int lead = x.rank() - to.rank();
  bool fits = lead >= 0;
  Axes axes{};
  Shape sizes = x.shape();
  Strides strides = x.shape();
  for (int axis = 0; axis < x.rank() && fits; ++axis) {
    const Index size = axis < lead ? 1 : to[axis - lead];
    fits = size == x.shape()[axis] || size == 1;
    axes[std::size_t(axis)] = size != x.shape()[axis];
    sizes[axis] = size;
    strides[axis] = axis < lead ? 0 : out.tensor.strides()[axis - lead];
  }
  check<ShapeError>(fits, "sum_to: {} does not broadcast to {}", to, x.shape());
  const Tensor kept(out.tensor.storage(), out.tensor.dtype(), sizes, strides, out.tensor.offset());
  if (!is_float(x.dtype())) throw_not_float("sum_to", x.dtype());
  fold(Folding::sum, x, axes, {kept, out.add});
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check<Error>(x.defined(), "sum_to: the tensor is empty (default constructed)");
  const Tensor y = empty(shape, x.dtype());
  sum_to(x, {y, false});
  return y;
}

void sum_to_grad(const Tensor& dy, const Into& dx) { spread(dy, dx); }

// ---- questions ---------------------------------------------------------------------------------------------------------

Tensor any_true(const Tensor& x, const Dims& dims, Flag keepdim) {
  return exact(Folding::any, x, reduced_axes("any_true", x, dims), keepdim);
}
Tensor all_true(const Tensor& x, const Dims& dims, Flag keepdim) {
  return exact(Folding::all, x, reduced_axes("all_true", x, dims), keepdim);
}
bool any_true(const Tensor& x) { return any_true(x, {}).item<std::uint8_t>() != 0; }
bool all_true(const Tensor& x) { return all_true(x, {}).item<std::uint8_t>() != 0; }

}  // namespace heed
