// SPDX-License-Identifier: Apache-2.0
#include "attention/random_features.h"

#include <algorithm>
#include <cmath>

#include "attention/linear_attention.h"
#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

constexpr double kAdded = 1e-6, kAddedUnshifted = RandomFeatures::kLeast;
constexpr double kFar = -1e30;                  // exponent of padding
constexpr double kLargest = 64;                 // where exponents are cut, at most ‖w‖²/2 otherwise, so that sums stay finite

const RandomFeatures::Options& checked(const RandomFeatures::Options& o) {
  check<Error>(o.number >= 1 && o.head_width >= 1, "random features: number {} and head_width {} must be at least 1", o.number,
               o.head_width);
  check<Error>(o.scale >= 0, "random features: scale must be 0 or more: {}", o.scale);
  return o;
}

}  // namespace

RandomFeatures::RandomFeatures(const Options& options) : options_(checked(options)) {
  const Index m = options_.number, dk = options_.head_width;
  if (options_.scale == 0) options_.scale = 1 / std::sqrt(double(dk));
  const Key key = Key(Seed{0}) / "random features" / options_.draw;
  const Tensor w = normal(key / "directions", {m, dk}, 0, 1, DType::f64);
  if (options_.orthogonal) {
    const Tensor lengths = norm(w, {-1}, true);
    for (Index first = 0; first < m; first += dk) orthogonal()(w(Slice{first, std::min(first + dk, m)}), key / "orthogonal" / first);
    copy_into(w, w * lengths);
  }
  directions_ = to(w * std::sqrt(options_.scale), options_.dtype);
}

// -‖x‖²/2 is common to the features of a query.
Variable RandomFeatures::queries(const Variable& q) const {
  const Variable e = matmul(q, constant(transpose(directions_)));
  return exp(e - max(e, {-1}, true)) + kAdded;
}

Variable RandomFeatures::keys(const Variable& k, const Mask& mask) const {
  Variable e = matmul(k, constant(transpose(directions_))) - sum(square(k), {-1}, true) * (options_.scale / 2);
  if (!mask.only_lengths() || e.numel() == 0) return without_padding(exp(minimum(e, kLargest)) + kAddedUnshifted, mask);
  e = without_padding(e, mask, kFar);
  return without_padding(exp(e - max(e, {-2, -1}, true)) + kAdded, mask);
}

std::string RandomFeatures::formula(bool of_queries, bool causal) const {
  const std::string_view exponent = of_queries ? "exp(w·x - max) + 1e-6" : causal ? "exp(w·x - ‖x‖²/2)" : "exp(w·x - ‖x‖²/2 - max) + 1e-6";
  return fmt::format(", as {} with {} random w, x = {:.4g} {}", exponent, options_.number, std::sqrt(options_.scale),
                     of_queries ? "q" : "k_j");
}

}  // namespace heed
