// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/loss.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/record.h"

namespace heed {

Variable cross_entropy(const Variable& logits, const Tensor& targets, const CrossEntropyOptions& options, Reduction reduction) {
  CrossEntropy out = cross_entropy(logits.value(), targets, options);
  const bool empty = reduction == Reduction::mean && out.count == 0;
  const double divisor = reduction == Reduction::mean && !empty ? double(out.count) : 1;
  Tensor y = out.losses;
  if (reduction != Reduction::none) {
    const bool nan = empty && options.empty == CrossEntropyOptions::Empty::nan;
    y = full({}, nan ? std::nan("") : out.total / divisor, logits.dtype());
  }
  return record("cross_entropy", y, {logits},
                [dx = logits.slot(), logits = saved(logits), targets = saved(targets), log_sum_exp = saved(out.log_sum_exp), options, reduction,
                 divisor](const Tensor& dy) {
                  const Tensor dlosses = reduction == Reduction::none ? dy : full(log_sum_exp->shape(), dy.item() / divisor, dy.dtype());
                  dx.gradient([&](Into dlogits) { cross_entropy_grad(logits, targets, log_sum_exp, dlosses, options, dlogits); });
                });
}

Variable linear_cross_entropy(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets, const CrossEntropyOptions& options) {
  LinearCrossEntropyWants wants;
  if (Tape::current()) wants = {x.wants_gradient(), weight.wants_gradient(), bias.wants_gradient()};
  const LinearCrossEntropy out = linear_cross_entropy(x.value(), weight.value(), bias.value(), targets, options, wants);
  return record("linear_cross_entropy", full({}, out.total, x.dtype()), {x, weight, bias},
                [to_x = x.slot(), to_weight = weight.slot(), to_bias = bias.slot(), dx = out.dx, dweight = out.dweight, dbias = out.dbias](const Tensor& dy) {
                  to_x.gradient([&](Into into) { scaled_into(dx, dy.item(), into); });
                  to_weight.gradient([&](Into into) { scaled_into(dweight, dy.item(), into); });
                  to_bias.gradient([&](Into into) { scaled_into(dbias, dy.item(), into); });
                });
}

Variable linear_cross_entropy_by_definition(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
                                            const CrossEntropyOptions& options) {
  const Variable z = matmul(x, transpose(weight));                              // [N, V]
  return cross_entropy(bias.defined() ? z + bias : z, targets, options, Reduction::sum);
}

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

}  // namespace heed
