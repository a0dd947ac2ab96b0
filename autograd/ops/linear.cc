// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/linear.h"

#include "autograd/ops.h"
#include "autograd/record.h"

namespace heed {

Variable linear(const Variable& x, const Variable& weight, const Variable& bias, const LinearOptions& options) {
  LinearFusion fusion{.activation = options.activation, .residual = options.residual.value()};
  if (const auto key = dropout_key(options.dropout)) {
    fusion.dropout = options.dropout;
    fusion.key = *key;
  }
  LinearResult result = linear(x.value(), weight.value(), bias.value(), fusion);
  fusion.residual = {};   // its value is not needed again; what was saved says whether it was there
  return record("linear", result.y, {x, weight, bias, options.residual},
                [x = x.slot(), w = weight.slot(), b = bias.slot(), r = options.residual.slot(), in = saved(x), weight = saved(weight), kept = saved(result.saved), fusion](const Tensor& dy) {
                  r.adopt(dy);
                  const Tensor dz = linear_grad(kept, dy, fusion);
                  b.gradient([&](Into db) { linear_grad_bias(dz, db); });
                  w.gradient([&](Into dw) { linear_grad_weight(dz, in, dw); });
                  x.gradient([&](Into dx) { linear_grad_x(dz, weight, dx); });
                });
}

}  // namespace heed
