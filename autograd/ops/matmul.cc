// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/matmul.h"

#include "autograd/ops.h"
#include "autograd/record.h"

namespace heed {

Variable matmul(const Variable& a, const Variable& b) {
  const auto needed = [](const Variable& x, const Variable& other) {
    return saved(other.wants_gradient() ? x.value() : Tensor());
  };
  return record("matmul", matmul(a.value(), b.value()), {a, b},
                [da = a.slot(), db = b.slot(), a = needed(a, b), b = needed(b, a)](const Tensor& dc) {
                  da.gradient([&](Into out) { matmul_grad_a(b, dc, out); });
                  db.gradient([&](Into out) { matmul_grad_b(a, dc, out); });
                });
}

}  // namespace heed
