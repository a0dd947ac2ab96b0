// SPDX-License-Identifier: Apache-2.0
// Naive references in double: the executable definitions. No strides, no broadcasting tricks, no order but the obvious one.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tensor/shape.h"

namespace reference {

using heed::Index;
using heed::Shape;
using Position = std::vector<Index>;

struct Array {
  Shape shape;
  std::vector<double> values;   // row-major

  // The element at p; axes are aligned at the end and axes of size 1 stand for any index, as in broadcasting.
  double operator()(const Position& p) const {
    Index at = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const Index i = p[p.size() - std::size_t(shape.rank()) + std::size_t(axis)];
      at = at * shape[axis] + (shape[axis] == 1 ? 0 : i);
    }
    return values[std::size_t(at)];
  }
};
using Arrays = std::vector<Array>;
using Function = std::function<Array(const Arrays&)>;

// y[p] = f(p) for every position of the shape
inline Array make(const Shape& shape, const std::function<double(const Position&)>& f) {
  Array y{shape, {}};
  Position p(shape.size(), 0);
  for (Index i = 0; i < shape.numel(); ++i) {
    Index rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) p[std::size_t(axis)] = rest % shape[axis], rest /= shape[axis];
    y.values.push_back(f(p));
  }
  return y;
}

// y = f(x), element by element
template <class F> Function each(F f) {
  return [f](const Arrays& x) { return make(x[0].shape, [&](const Position& p) { return double(f(x[0](p))); }); };
}
// y = f(a, b), broadcast
template <class F> Function two(F f) {
  return [f](const Arrays& x) {
    return make(heed::broadcast_shapes("reference", x[0].shape, x[1].shape),
                [&](const Position& p) { return double(f(x[0](p), x[1](p))); });
  };
}

using Values = std::vector<double>;

// y[kept axes] = f(all x of the reduced axes); no axes named: all
template <class F> Function over(Position axes, bool keep, F f) {
  return [axes, keep, f](const Arrays& x) {
    const Shape& from = x[0].shape;
    std::vector<bool> reduced(from.size(), axes.empty());
    for (Index axis : axes) reduced[std::size_t(axis < 0 ? axis + from.rank() : axis)] = true;
    Shape shape, open;
    for (int axis = 0; axis < from.rank(); ++axis) {
      open.push_back(reduced[std::size_t(axis)] ? 1 : from[axis]);
      if (!reduced[std::size_t(axis)] || keep) shape.push_back(open[axis]);
    }
    Array y = make(open, [&](const Position& at) {
      Values group;
      make(from, [&](const Position& p) {
        bool mine = true;
        for (std::size_t axis = 0; axis < p.size(); ++axis) mine &= reduced[axis] || p[axis] == at[axis];
        if (mine) group.push_back(x[0](p));
        return 0.0;
      });
      return double(f(group));
    });
    y.shape = shape;
    return y;
  };
}

// y[.., :, ..] = f(x[.., :, ..]) along one axis
template <class F> Function along(int axis, F f) {
  return [axis, f](const Arrays& x) {
    const auto k = std::size_t(axis < 0 ? axis + x[0].shape.rank() : axis);
    return make(x[0].shape, [&](Position p) {
      const Index here = p[k];
      Values line;
      for (p[k] = 0; p[k] < x[0].shape[int(k)]; ++p[k]) line.push_back(x[0](p));
      return f(line)[std::size_t(here)];
    });
  };
}

// y = x rearranged: y[p] = x[from(p)]
template <class S, class F> Function moved(S shape, F from) {
  return [shape, from](const Arrays& x) {
    return make(shape(x[0].shape), [&](const Position& p) { return x[0](from(p, x[0].shape)); });
  };
}

inline double sum(const Values& v) {
  long double total = 0;
  for (double value : v) total += value;
  return double(total);
}
inline double mean(const Values& v) { return sum(v) / double(v.size()); }
inline double variance(const Values& v, double n) {
  double total = 0;
  for (double value : v) total += (value - mean(v)) * (value - mean(v));
  return total / n;
}
inline Values softmax(Values v) {
  const double most = *std::max_element(v.begin(), v.end());
  for (double& value : v) value = std::exp(value - most);
  const double total = sum(v);
  for (double& value : v) value /= total;
  return v;
}
inline double logsumexp(const Values& v) {
  const double most = v.empty() ? -INFINITY : *std::max_element(v.begin(), v.end());
  double total = 0;
  for (double value : v) total += std::exp(value - most);
  return most + std::log(total);
}

// c[.., m, n] = Σ_k a[.., m, k] b[.., k, n], a and b of rank 2 and more
inline Array matmul(const Arrays& x) {
  const auto batch = [](Shape s) { s.erase(s.rank() - 1), s.erase(s.rank() - 1); return s; };
  const int a = x[0].shape.rank(), b = x[1].shape.rank();
  Shape shape = heed::broadcast_shapes("reference", batch(x[0].shape), batch(x[1].shape));
  shape.push_back(x[0].shape[a - 2]), shape.push_back(x[1].shape[b - 1]);
  return make(shape, [&](const Position& p) {
    double total = 0;
    Position i = p, j = p;
    for (Index k = 0; k < x[1].shape[b - 2]; ++k) i[i.size() - 1] = k, j[j.size() - 2] = k, total += x[0](i) * x[1](j);
    return total;
  });
}

// (x - μ) / √(σ² + eps) γ + β along the last axis; centred = false: μ = 0
inline Function normalised(bool centred) {
  return [centred](const Arrays& x) {
    Array y = along(-1, [centred](Values v) {
      const double m = centred ? mean(v) : 0;
      double square = 0;
      for (double value : v) square += (value - m) * (value - m) / double(v.size());
      for (double& value : v) value = (value - m) / std::sqrt(square + 1e-5);
      return v;
    })(x);
    return make(y.shape, [&](const Position& p) { return y(p) * x[1](p) + (x.size() > 2 ? x[2](p) : 0); });
  };
}

}  // namespace reference
