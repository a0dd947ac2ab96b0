// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/norm.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/binary.h"

namespace heed {

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  LayerNormed out = layer_norm(x.value(), weight.value(), bias.value(), eps);
  return record("layer_norm", out.y, {x, weight, bias},
                [slots = std::array{x.slot(), weight.slot(), bias.slot()}, x = saved(x), mean = saved(out.mean), rstd = saved(out.rstd),
                 weight = saved(weight)](const Tensor& dy) {
                  gradients(slots, [&](const auto& d) { layer_norm_grad(x, mean, rstd, weight, dy, d[0], d[1], d[2]); });
                });
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  RmsNormed out = rms_norm(x.value(), weight.value(), eps);
  return record("rms_norm", out.y, {x, weight},
                [slots = std::array{x.slot(), weight.slot()}, x = saved(x), rstd = saved(out.rstd),
                 weight = saved(weight)](const Tensor& dy) {
                  gradients(slots, [&](const auto& d) { rms_norm_grad(x, rstd, weight, dy, d[0], d[1]); });
                });
}

AddedNorm add_dropout_norm(const Variable& x, const Variable& residual, const Variable& weight, const Variable& bias, double p,
                           double eps) {
  const std::optional<Key> key = dropout_key(p);
  AddDropoutNormOptions options{.eps = eps};
  if (key) options.dropout = p, options.key = *key;
  AddDropoutNormed out = add_dropout_norm(x.value(), residual.value(), weight.value(), bias.value(), options);
  auto [y, sum] = record<2>("add_dropout_norm", {out.y, out.sum}, {x, residual, weight, bias}, [&] {
    return [slots = std::array{x.slot(), residual.slot(), weight.slot(), bias.slot()}, sum = saved(out.sum), mean = saved(out.mean),
            rstd = saved(out.rstd), weight = saved(weight), options](const std::array<Tensor, 2>& d) {
      const Tensor dy = d[0].defined() ? d[0] : zeros_like(sum.get());
      gradients(slots,
                [&](const auto& to) { add_dropout_norm_grad(sum, mean, rstd, weight, dy, d[1], options, to[0], to[1], to[2], to[3]); });
    };
  });
  return {std::move(y), std::move(sum)};
}

AddedNorm add_dropout_norm_by_definition(const Variable& x, const Variable& residual, const Variable& weight, const Variable& bias,
                                         double p, double eps) {
  const Variable sum = residual + dropout(x, p);
  return {layer_norm(sum, weight, bias, eps), sum};
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void norm_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const SampleTable::Inputs rows{{{2, 3, N}}, {{N}, 0.5, 1.5}, {{N}}};
  table.add(
      "layer_norm", [](SampleTable::Variables x) { return layer_norm(x[0], x[1], x[2]); },
      [](SampleTable::Tensors x) { return layer_norm(x[0], x[1], x[2]).y; }, rows);
  table.add(
      "rms_norm", [](SampleTable::Variables x) { return rms_norm(x[0], x[1]); },
      [](SampleTable::Tensors x) { return rms_norm(x[0], x[1]).y; }, {rows[0], rows[1]});
  table.both("add_dropout_norm", [](auto x) { return add_dropout_norm(x[0], x[1], x[2], x[3]).y; }, {rows[0], rows[0], rows[1], rows[2]});
  table.both("add_dropout_norm both", [](auto x) { auto r = add_dropout_norm(x[0], x[1], x[2], x[3]); return r.y * r.sum; },
                       {rows[0], rows[0], rows[1], rows[2]});
}

}  // namespace heed
