// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/axes.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

// Sums of the weights of a row: node k has children 2k and 2k + 1, the weights are the leaves. Sums are made again where a weight is taken
// out, nothing is subtracted: where all weights are 0 their sum is, and no draw goes there.
class SumTree {
 public:
  explicit SumTree(Index n) : leaves_(std::bit_ceil(std::size_t(n))), sums_(2 * leaves_, 0.0) {}

  template <class T> void assign(const T* weights, Index n) {
    double* const sums = sums_.data();
    std::copy_n(weights, n, sums + leaves_);
    for (std::size_t k = leaves_; --k > 0;) sums[k] = sums[2 * k] + sums[2 * k + 1];
  }
  double total() const { return sums_[1]; }
  // i with  w_0 + .. + w_(i-1) <= u < w_0 + .. + w_i
  Index find(double u) const {
    std::size_t k = 1;
    while (k < leaves_) {
      k *= 2;
      if (u >= sums_[k] && sums_[k + 1] > 0) u -= sums_[k++];
    }
    return Index(k - leaves_);
  }
  void take_out(Index i) {
    std::size_t k = leaves_ + std::size_t(i);
    sums_[k] = 0;
    while ((k /= 2) > 0) sums_[k] = sums_[2 * k] + sums_[2 * k + 1];
  }

 private:
  std::size_t leaves_;
  List<double> sums_;
};

// The draws of a row, false where it has none to give
template <class T> bool draw(const T* weights, Index V, const double* u, Index n, bool replacement, SumTree& sums, Index* to) {
  sums.assign(weights, V);
  bool fits = std::all_of(weights, weights + V, [](T w) { return w >= 0; }) && sums.total() > 0 && std::isfinite(sums.total());
  for (Index i = 0; i < n && fits; ++i) {
    to[i] = sums.find(u[i] * sums.total());
    if (!replacement) sums.take_out(to[i]);
    fits = i + 1 == n || sums.total() > 0;
  }
  return fits;
}

template <class T> [[noreturn]] void refuse(const T* weights, Index V, Index n, const Shape& row) {
  for (Index i = 0; i < V; ++i)
    check<Error>(weights[i] >= 0 && std::isfinite(weights[i]),
                 "multinomial: weights must be finite and not negative: weight {} of row {} is {}", i, row, weights[i]);
  SumTree sums(V);
  sums.assign(weights, V);
  check<Error>(sums.total() > 0 && std::isfinite(sums.total()), "multinomial: a row needs a finite sum of weights above 0: row {} has {}",
               row, sums.total());
  fail<Error>("multinomial: without replacement a row has a draw for each weight above 0: row {} has {}, needs {}", row,
              std::count_if(weights, weights + V, [](T w) { return w > 0; }), n);
}

}  // namespace

Tensor multinomial(Key key, const Tensor& weights, Index n, bool replacement) {
  const char* op = "multinomial";
  check<ShapeError>(weights.rank() >= 1, "{}: weights need at least 1 dimension: {}", op, weights.shape());
  check<ShapeError>(n >= 0, "{}: the number of draws must not be negative: {}", op, n);
  const Index V = weights.size(-1);
  const Shape rows = without_last(weights.shape());
  Shape shape = weights.shape();
  shape[weights.rank() - 1] = n;
  return visit_float(weights.dtype(), op, [&]<class T>() {
    const Tensor dense = weights.contiguous(), u = uniform(key, shape, 0, 1, DType::f64), out = empty(shape, DType::i64);
    const T* const w = dense.data<T>();
    const double* const point = u.data<double>();
    Index* const to = out.mutable_data<Index>();
    List<std::uint8_t> fits(std::size_t(rows.numel()), 0);
    parallel_for(rows.numel(), std::max<Index>(4, row_grain(2 * V + 16 * n)), [&](Index begin, Index end) {
      SumTree sums(V);
      for (Index row = begin; row < end; ++row)
        fits[std::size_t(row)] = draw(w + row * V, V, point + row * n, n, replacement, sums, to + row * n);
    });
    if (const Index row = std::ranges::find(fits, 0) - fits.begin(); row < rows.numel()) refuse(w + row * V, V, n, position_of(row, rows));
    return out;
  });
}

}  // namespace heed
