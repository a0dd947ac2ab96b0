// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sparsemax.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable sparsemax(const Variable& x, const Mask& mask) {
  Tensor p = sparsemax(x.value(), mask);
  return record("sparsemax", p, {x}, [dx = x.slot(), p = saved(p)](const Tensor& dp) {
    dx.gradient([&](Into out) { sparsemax_grad(p, dp, out); });
  });
}

Variable entmax(const Variable& x, const Mask& mask) {
  Tensor p = entmax(x.value(), mask);
  return record("entmax", p, {x}, [dx = x.slot(), p = saved(p)](const Tensor& dp) {
    dx.gradient([&](Into out) { entmax_grad(p, dp, out); });
  });
}

Variable alpha_entmax(const Variable& x, const Variable& alpha, const Mask& mask) {
  Tensor p = alpha_entmax(x.value(), alpha.value(), mask);
  return record("alpha_entmax", p, {x, alpha},
                [slots = std::array{x.slot(), alpha.slot()}, p = saved(p), alpha = saved(alpha)](const Tensor& dp) {
                  gradients(slots, [&](const auto& into) { alpha_entmax_grad(p, alpha, dp, into[0], into[1]); });
                });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void sparsemax_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("sparsemax", [](auto x) { return sparsemax(x[0]); }, {{{2, 3, N}}});
  table.both("sparsemax masked", [](auto x) { return sparsemax(x[0], Mask::causal()); }, {{{2, 3, N}}});
  table.both("entmax", [](auto x) { return entmax(x[0]); }, {{{2, 3, N}}});
  table.both("entmax masked", [](auto x) { return entmax(x[0], Mask::causal()); }, {{{2, 3, N}}});
  table.both("alpha_entmax", [](auto x) { return alpha_entmax(x[0], x[1]); }, {{{2, 3, N}}, {{3}, 1.1, 1.9}});
  table.both("alpha_entmax masked", [](auto x) { return alpha_entmax(x[0], x[1], Mask::causal()); }, {{{2, 3, N}}, {{}, 1.1, 1.9}});
}

}  // namespace heed
