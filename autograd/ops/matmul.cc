// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/matmul.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
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

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void matmul_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const auto product = [](auto x) { return matmul(x[0], x[1]); };
  table.both("matmul", product, {{{3, N}}, {{N, 4}}});
  table.both("matmul wide", product, {{{3, 4}}, {{4, N}}});
  table.both("matmul tall", product, {{{N, 2}}, {{2, 3}}});
  table.both("matmul batch", product, {{{2, 1, 3, N}}, {{3, N, 2}}});
  table.both("matmul vector", product, {{{N}}, {{N, 2}}});
  table.both("matmul dot", product, {{{N}}, {{N}}});
}

}  // namespace heed
