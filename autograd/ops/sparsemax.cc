// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sparsemax.h"

#include "autograd/ops.h"
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

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void sparsemax_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("sparsemax", [](auto x) { return sparsemax(x[0]); }, {{{2, 3, N}}});
  table.both("sparsemax masked", [](auto x) { return sparsemax(x[0], Mask::causal()); }, {{{2, 3, N}}});
  table.both("entmax", [](auto x) { return entmax(x[0]); }, {{{2, 3, N}}});
  table.both("entmax masked", [](auto x) { return entmax(x[0], Mask::causal()); }, {{{2, 3, N}}});
}

}  // namespace heed
