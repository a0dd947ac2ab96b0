// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/soft_cross_entropy.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable soft_cross_entropy(const Variable& logits, const Variable& probabilities, Reduction reduction) {
  const SoftCrossEntropy out = soft_cross_entropy(logits.value(), probabilities.value());
  const double divisor = reduction == Reduction::mean ? double(std::max<Index>(out.losses.numel(), 1)) : 1;
  return record("soft_cross_entropy", reduction == Reduction::none ? out.losses : full({}, out.total / divisor, logits.dtype()),
                {logits, probabilities},
                [slots = std::array{logits.slot(), probabilities.slot()}, logits = saved(logits), probabilities = saved(probabilities),
                 max = saved(out.log_sum_exp.max), log_sum = saved(out.log_sum_exp.log_sum), reduction, divisor](const Tensor& dy) {
                  const Tensor dlosses = reduction == Reduction::none ? dy : full(max->shape(), dy.item() / divisor, dy.dtype());
                  gradients(slots, [&](const auto& d) {
                    soft_cross_entropy_grad(logits, probabilities, {max, log_sum}, dlosses, d[0], d[1]);
                  });
                });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void soft_cross_entropy_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.add("soft_cross_entropy", [](SampleTable::Variables x) { return soft_cross_entropy(x[0], x[1], Reduction::none); },
                   [](SampleTable::Tensors x) { return soft_cross_entropy(x[0], x[1]).losses; }, {{{2, 3, N}}, {{2, 3, N}, 0.1, 1}});
}

}  // namespace heed
