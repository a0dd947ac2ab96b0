// SPDX-License-Identifier: Apache-2.0
// The rule of einsum is that of its steps.
#include "tensor/ops/einsum.h"

#include "autograd/ops.h"
#include "tensor/ops/einsum_run.h"

namespace heed {

Variable einsum(std::string_view spec, const std::vector<Variable>& operands) { return run_einsum<Variable>(spec, operands); }

}  // namespace heed
