// SPDX-License-Identifier: Apache-2.0
#include "attention/differential.h"

#include <cmath>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {

DifferentialHeads::DifferentialHeads(Scope scope, Options options) : options_(options) {
  const Inside inside(scope.path());
  check<ShapeError>(options.heads % 2 == 0, "differential attention: needs pairs of heads: heads {}", options.heads);
  check<Error>(options.layer >= 1, "differential attention: layers count from 1: layer {}", options.layer);
  const Shape shape{options.head_width};
  lambda_q1 = scope.parameter("lambda_q1", shape, normal_init(0, 0.1));
  lambda_k1 = scope.parameter("lambda_k1", shape, normal_init(0, 0.1));
  lambda_q2 = scope.parameter("lambda_q2", shape, normal_init(0, 0.1));
  lambda_k2 = scope.parameter("lambda_k2", shape, normal_init(0, 0.1));
  norm_weight = (scope / "norm").parameter("weight", {2 * options.head_width}, constant_init(1));
}

double DifferentialHeads::start() const { return 0.8 - 0.6 * std::exp(-0.3 * double(options_.layer - 1)); }

Variable DifferentialHeads::lambda() const { return exp(sum(lambda_q1 * lambda_k1)) - exp(sum(lambda_q2 * lambda_k2)) + start(); }

Variable DifferentialHeads::weights(const Variable& p) const {
  return slice(p, 1, 0, Slice::kToEnd, 2) - slice(p, 1, 1, Slice::kToEnd, 2) * lambda();
}

Variable DifferentialHeads::context(const Variable& c) const { return rms_norm(c, norm_weight, kEps) * (1 - start()); }

}  // namespace heed
