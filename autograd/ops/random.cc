// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#include "autograd/ops.h"
#include "autograd/record.h"

namespace heed {

Variable dropout(const Variable& x, double p) {
  const std::optional<Key> key = dropout_key(p);
  if (!key) return x;
  return record("dropout", dropout(x.value(), p, *key), {x}, [dx = x.slot(), p, key = *key](const Tensor& dy) {
    dx.gradient([&](Into out) { dropout_grad(dy, p, key, out); });
  });
}

}  // namespace heed
