// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.h"

#include "autograd/ops.h"
#include "autograd/trace.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

Parameter table(const Scope& scope, Embedding::Options& options) {
  const Inside inside(scope.path());
  const Shape shape{options.vocabulary, options.width};
  check<Error>(options.padding >= -1 && options.padding < options.vocabulary, "embedding: padding {} is not in [-1, {})", options.padding,
               options.vocabulary);
  if (options.weight.defined()) return scope.alias("weight", std::move(options.weight), shape);
  const Initializer start = options.init ? options.init : normal_init(0, 1);
  Parameter weight = scope.parameter("weight", shape, options.padding >= 0 ? zero_row(options.padding, start) : start);
  weight.data().multiplied = false;
  return weight;
}

}  // namespace

Embedding::Embedding(Scope scope, Options options)
    : weight(table(scope, options)), padding(options.padding), scale(options.scale), path(scope.path()) {}

Variable Embedding::operator()(const Tensor& ids) const {
  const Inside inside(path);
  check_not_moved_from(weight.defined(), "embedding");
  return trace("", scale == 1 ? "x = E[word]" : "x = scale E[word]", embedding(weight, ids, scale, padding));
}

}  // namespace heed
