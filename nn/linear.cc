// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "nn/init.h"

namespace heed {

Linear::Linear(Scope scope, Options options)
    : weight(options.weight.defined() ? scope.alias("weight", std::move(options.weight), {options.out, options.in})
                                      : scope.parameter("weight", {options.out, options.in}, options.init ? options.init : linear_uniform(options.in))),
      bias(options.bias ? scope.parameter("bias", {options.out}, options.init ? constant_init(0) : linear_uniform(options.in)) : Parameter()),
      path(scope.path()) {
  weight.data().multiplied = true;
}

Variable Linear::operator()(const Variable& x, const LinearOptions& fused) const {
  const Inside inside(path);
  return linear(x, weight, bias, fused);
}

}  // namespace heed
