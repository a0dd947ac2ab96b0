// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/softmax.h"

#include "autograd/ops.h"
#include "autograd/record.h"

namespace heed {

Variable softmax(const Variable& x, int dim, const Mask& mask) {
  Tensor y = softmax(x.value(), dim, mask);
  return record("softmax", y, {x}, [dx = x.slot(), y = saved(y), dim](const Tensor& dy) {
    dx.gradient([&](Into out) { softmax_grad(y, dy, dim, out); });
  });
}

Variable log_softmax(const Variable& x, int dim, const Mask& mask) {
  Tensor y = log_softmax(x.value(), dim, mask);
  return record("log_softmax", y, {x}, [dx = x.slot(), y = saved(y), dim, mask = saved(mask)](const Tensor& dy) {
    dx.gradient([&](Into out) { log_softmax_grad(y, dy, dim, mask, out); });
  });
}

Variable logsumexp(const Variable& x, const Dims& dims, bool keepdim) {
  Tensor y = logsumexp(x.value(), dims, keepdim);
  return record("logsumexp", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { logsumexp_grad(x, y, dy, dims, out); });
  });
}

}  // namespace heed
