// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/loss.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/random.h"

namespace heed {
namespace {

Variable pair(PairLoss op, const Variable& x, const Variable& target, Reduction reduction, double parameter = 0) {
  return record(
      name(op), pair_loss(op, x.value(), target.value(), reduction, parameter), {x, target},
      [slots = std::array{x.slot(), target.slot()}, x = saved(x), target = saved(target), op, reduction, parameter](const Tensor& dy) {
        gradients(slots, [&](const auto& d) { pair_loss_grad(op, x, target, reduction, parameter, dy, d[0], d[1]); });
      });
}

}  // namespace

Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction) { return pair(PairLoss::mse_loss, x, target, reduction); }
Variable l1_loss(const Variable& x, const Variable& target, Reduction reduction) { return pair(PairLoss::l1_loss, x, target, reduction); }
Variable smooth_l1_loss(const Variable& x, const Variable& target, Reduction reduction, double beta) {
  return pair(PairLoss::smooth_l1_loss, x, target, reduction, beta);
}
Variable huber_loss(const Variable& x, const Variable& target, Reduction reduction, double delta) {
  return pair(PairLoss::huber_loss, x, target, reduction, delta);
}
Variable kl_div(const Variable& x, const Variable& target, Reduction reduction) { return pair(PairLoss::kl_div, x, target, reduction); }

Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& target, const Tensor& weight, const Tensor& pos_weight,
                                          Reduction reduction) {
  return record(
      "binary_cross_entropy_with_logits", binary_cross_entropy_with_logits(x.value(), target, weight, pos_weight, reduction), {x},
      [dx = x.slot(), x = saved(x), target = saved(target), weight = saved(weight), pos_weight = saved(pos_weight),
       reduction](const Tensor& dy) {
        dx.gradient([&](Into into) { binary_cross_entropy_with_logits_grad(x, target, weight, pos_weight, reduction, dy, into); });
      });
}

Variable nll_loss(const Variable& x, const Tensor& targets, const Tensor& weight, Index ignore_index, Reduction reduction) {
  return record("nll_loss", nll_loss(x.value(), targets, weight, ignore_index, reduction), {x},
                [dx = x.slot(), targets = saved(targets), weight = saved(weight), ignore_index, reduction](const Tensor& dy) {
                  dx.gradient([&](Into into) { nll_loss_grad(targets, weight, ignore_index, reduction, dy, into); });
                });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void loss_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("mse_loss", [](auto x) { return mse_loss(x[0], x[1]); }, {{{3, N}}, {{3, N}}});
  table.both("mse_loss each", [](auto x) { return mse_loss(x[0], x[1], Reduction::none); }, {{{3, N}}, {{3, N}}});
  table.both("l1_loss", [](auto x) { return l1_loss(x[0], x[1], Reduction::none); }, {{{3, N}, 0, 1}, {{3, N}, 1.1, 2}});
  table.both("smooth_l1_loss", [](auto x) { return smooth_l1_loss(x[0], x[1], Reduction::none, 0.7); }, {{{3, N}}, {{3, N}}});
  table.both("huber_loss", [](auto x) { return huber_loss(x[0], x[1], Reduction::none, 0.7); }, {{{3, N}}, {{3, N}}});
  table.both("kl_div", [](auto x) { return kl_div(x[0], x[1], Reduction::none); }, {{{3, N}, -3, 0}, {{3, N}, 0.1, 1}});
  table.both("binary_cross_entropy_with_logits", [](auto x) {
    return binary_cross_entropy_with_logits(x[0], to(uniform(Key(5), x[0].shape()), x[0].dtype()), {}, {}, Reduction::none);
  }, {{{3, N}, -4, 4}});
  table.both("nll_loss", [](auto x) { return nll_loss(x[0], tensor({{0, 3, -100}, {2, 1, 2}}, DType::i64)); }, {{{2, 3, 4}, -5, 0}});
  table.both("nll_loss each", [](auto x) { return nll_loss(x[0], tensor({{0, 3, -100}, {2, 1, 2}}, DType::i64), {}, -100,
                                                           Reduction::none); }, {{{2, 3, 4}, -5, 0}});
}

}  // namespace heed
