// SPDX-License-Identifier: Apache-2.0
#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

struct Fans {
  double in, out;
};

Fans fans(std::string_view op, const Shape& shape) {
  check<ShapeError>(shape.rank() >= 2, "{}: needs at least 2 dimensions: {}", op, shape);
  double rest = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) rest *= double(shape[axis]);
  return {double(shape[1]) * rest, double(shape[0]) * rest};
}

}  // namespace

Initializer constant_init(double value) {
  return [=](const Tensor& into, Key) { fill_(into, value); };
}

Initializer identity_init() {
  return [](const Tensor& into, Key) {
    check<ShapeError>(into.rank() == 2, "identity_init: needs 2 dimensions: {}", into.shape());
    fill_(into, 0);
    for (Index i = 0; i < std::min(into.size(0), into.size(1)); ++i) fill_(into(i, i), 1);
  };
}

Initializer uniform_init(double low, double high) {
  return [=](const Tensor& into, Key key) { uniform_(into, key, low, high); };
}

Initializer normal_init(double mean, double deviation) {
  return [=](const Tensor& into, Key key) { normal_(into, key, mean, deviation); };
}

Initializer xavier_uniform(double gain) {
  return [=](const Tensor& into, Key key) {
    const auto [in, out] = fans("xavier_uniform", into.shape());
    const double bound = gain * std::sqrt(6 / (in + out));
    uniform_init(-bound, bound)(into, key);
  };
}

Initializer xavier_normal(double gain) {
  return [=](const Tensor& into, Key key) {
    const auto [in, out] = fans("xavier_normal", into.shape());
    normal_init(0, gain * std::sqrt(2 / (in + out)))(into, key);
  };
}

Initializer kaiming_uniform(double gain) {
  return [=](const Tensor& into, Key key) {
    const double bound = gain * std::sqrt(3 / fans("kaiming_uniform", into.shape()).in);
    uniform_init(-bound, bound)(into, key);
  };
}

Initializer kaiming_normal(double gain) {
  return [=](const Tensor& into, Key key) { normal_init(0, gain / std::sqrt(fans("kaiming_normal", into.shape()).in))(into, key); };
}

Initializer orthogonal(double gain) {
  return [=](const Tensor& into, Key key) {
    const Shape& shape = into.shape();
    fans("orthogonal", shape);
    // Gram-Schmidt on Gaussian rows v_i, as many as the shorter side: q_i = v_i - Qᵀ Q v_i with the q before it in Q, twice for full
    // precision, then divided by its norm; f64.
    const Index rows = shape[0], columns = into.numel() / std::max<Index>(rows, 1), count = std::min(rows, columns),
                length = std::max(rows, columns);
    const Tensor basis = normal(key, {count, length}, 0, 1, DType::f64);
    for (Index i = 0; i < count; ++i) {
      const Tensor q = basis(Slice{0, i}), v = basis[i];
      for (int pass = 0; pass < 2; ++pass) copy_into(v, v - matmul(matmul(q, v), q));
      copy_into(v, v / norm(v));
    }
    copy_into(into, to(reshape((rows <= columns ? basis : transpose(basis)) * gain, shape), into.dtype()));
  };
}

Initializer linear_uniform(Index fan_in) {
  const double bound = 1 / std::sqrt(double(std::max<Index>(fan_in, 1)));
  return uniform_init(-bound, bound);
}

Initializer stacked(Index blocks, Initializer one) {
  check<Error>(blocks >= 1, "stacked: blocks must be at least 1: {}", blocks);
  check<Error>(one != nullptr, "stacked: no initializer of a block");
  return [=](const Tensor& into, Key key) {
    check<ShapeError>(into.rank() > 0 && into.size(0) % blocks == 0, "stacked: the first axis does not divide into {} blocks: {}", blocks, into.shape());
    const Index rows = into.size(0) / blocks;
    for (Index block = 0; block < blocks; ++block) one(into.indexed({Slice{block * rows, (block + 1) * rows}}), key / block);
  };
}

Initializer zero_row(Index index, Initializer rest) {
  check<Error>(rest != nullptr, "zero_row: no initializer of the other rows");
  return [=](const Tensor& into, Key key) {
    rest(into, key);
    fill_(into[index], 0);
  };
}

}  // namespace heed
