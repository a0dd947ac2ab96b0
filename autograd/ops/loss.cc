// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/loss.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/random.h"

namespace heed {

Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction) {
  return record("mse_loss", mse_loss(x.value(), target.value(), reduction), {x, target},
                [slots = std::array{x.slot(), target.slot()}, x = saved(x), target = saved(target), reduction](const Tensor& dy) {
                  gradients(slots, [&](const auto& d) { mse_loss_grad(x, target, reduction, dy, d[0], d[1]); });
                });
}

Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight, Reduction reduction) {
  return record("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits(x.value(), target, weight, pos_weight, reduction), {x},
                [dx = x.slot(), x = saved(x), target = saved(target), weight = saved(weight), pos_weight = saved(pos_weight), reduction](const Tensor& dy) {
                  dx.gradient([&](Into into) { binary_cross_entropy_with_logits_grad(x, target, weight, pos_weight, reduction, dy, into); });
                });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void loss_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("mse_loss", [](auto x) { return mse_loss(x[0], x[1]); }, {{{3, N}}, {{3, N}}});
  table.both("mse_loss each", [](auto x) { return mse_loss(x[0], x[1], Reduction::none); }, {{{3, N}}, {{3, N}}});
  table.both("binary_cross_entropy_with_logits", [](auto x) {
    return binary_cross_entropy_with_logits(x[0], to(uniform(Key(5), x[0].shape()), x[0].dtype()), {}, {}, Reduction::none);
  }, {{{3, N}, -4, 4}});
}

}  // namespace heed
