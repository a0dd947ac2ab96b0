// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/causal_product.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable causal_product(const Variable& q, const Variable& k, const Variable& v) {
  return record("causal_product", causal_product(q.value(), k.value(), v.value()), {q, k, v},
                [slots = std::array{q.slot(), k.slot(), v.slot()}, q = saved(q), k = saved(k), v = saved(v)](const Tensor& dy) {
                  gradients(slots, [&](const auto& d) { causal_product_grad(q, k, v, dy, d[0], d[1], d[2]); });
                });
}

Variable causal_product_by_definition(const Variable& q, const Variable& k, const Variable& v) {
  return matmul(tril(matmul(q, transpose(k))), v);
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void causal_product_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("causal_product", [](auto x) { return causal_product(x[0], x[1], x[2]); }, {{{2, 2, N, 3}}, {{2, 2, N, 3}}, {{2, 2, N, 5}}});
  table.both("causal_product wide", [](auto x) { return causal_product(x[0], x[1], x[2]); },
             {{{1, 2, 3, 6}}, {{1, 2, 3, 6}}, {{1, 2, 3, 35}}});
}

}  // namespace heed
