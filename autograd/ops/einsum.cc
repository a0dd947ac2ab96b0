// SPDX-License-Identifier: Apache-2.0
// The rule of einsum is that of its steps.
#include "tensor/ops/einsum.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "tensor/ops/einsum_run.h"

namespace heed {

Variable einsum(std::string_view spec, const std::vector<Variable>& operands) { return run_einsum<Variable>(spec, operands); }

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void einsum_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("einsum", [](auto x) { return einsum("bik,bkj->bij", {x[0], x[1]}); }, {{{2, 3, N}}, {{2, N, 4}}});
  table.both("einsum heads", [](auto x) { return einsum("bthd,bshd->bhts", {x[0], x[1]}); }, {{{2, 3, 2, N}}, {{2, 4, 2, N}}});
}

}  // namespace heed
