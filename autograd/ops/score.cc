// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/score.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable additive_score(const Variable& q, const Variable& k, const Variable& v, const Mask& mask) {
  Tensor e = additive_score(q.value(), k.value(), v.value(), mask);
  return record(
      "additive_score", std::move(e), {q, k, v},
      [slots = std::array{q.slot(), k.slot(), v.slot()}, q = saved(q), k = saved(k), v = saved(v), mask = saved(mask)](const Tensor& de) {
        gradients(slots, [&](const auto& d) { additive_score_grad(q, k, v, mask, de, d[0], d[1], d[2]); });
      });
}

Variable additive_score_by_definition(const Variable& q, const Variable& k, const Variable& v, const Mask& mask) {
  const Variable e = matmul(tanh(unsqueeze(q, 2) + unsqueeze(k, 1)), v);                   // [B, T, S]
  return where(mask.dense(e.shape()), e, constant(zeros({}, e.dtype())));
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void score_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const auto limits = [] { return Mask::lengths(tensor({4, 2}, DType::i32)); };
  table.both("additive_score", [](auto x) { return additive_score(x[0], x[1], x[2]); }, {{{2, 3, N}}, {{2, 4, N}}, {{N}}});
  table.both("additive_score long", [](auto x) { return additive_score(x[0], x[1], x[2]); }, {{{2, 1, 5}}, {{2, N, 5}}, {{5}}});
  table.both("additive_score masked", [limits](auto x) { return additive_score(x[0], x[1], x[2], limits() & Mask::causal(1)); },
                       {{{2, 3, N}}, {{2, 4, N}}, {{N}}});
}

}  // namespace heed
