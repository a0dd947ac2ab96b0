// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/linear.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable linear(const Variable& x, const Variable& weight, const Variable& bias, const LinearOptions& options) {
  LinearFusion fusion{.activation = options.activation, .residual = options.residual.value()};
  if (const auto key = dropout_key(options.dropout)) {
    fusion.dropout = options.dropout;
    fusion.key = *key;
  }
  LinearResult result = linear(x.value(), weight.value(), bias.value(), fusion);
  fusion.residual = {};   // its value is not needed again; what was saved says whether it was there
  return record("linear", result.y, {x, weight, bias, options.residual},
                [&] {
                  return [x = x.slot(), w = weight.slot(), b = bias.slot(), r = options.residual.slot(), in = saved(x),
                          weight = saved(weight), kept = saved(result.saved), fusion](const Tensor& dy) {
                    r.adopt(dy);
                    const Tensor dz = linear_grad(kept, dy, fusion);
                    gradients(std::array{w, b}, [&](const std::array<const Into*, 2>& into) {
                      const auto [dw, db] = into;
                      if (dw) linear_grad_weight(dz, in, *dw, db);
                      else linear_grad_bias(dz, in->size(-1), *db);
                    });
                    x.gradient([&](Into dx) { linear_grad_x(dz, weight, dx); });
                  };
                });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void linear_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const SampleTable::Inputs deep{{{2, 3, N}}, {{5, N}}, {{5}}, {{2, 3, 5}}}, wide{{{3, 4}}, {{N, 4}}, {{N}}, {{3, N}}};
  const auto plain = [&](std::string name, const SampleTable::Inputs& inputs) {
    table.add(
        std::move(name), [](SampleTable::Variables x) { return linear(x[0], x[1], x[2]); },
        [](SampleTable::Tensors x) { return linear(x[0], x[1], x[2]).y; }, {inputs[0], inputs[1], inputs[2]});
  };
  const auto fused = [&](std::string name, const SampleTable::Inputs& inputs) {
    table.add(
        std::move(name),
        [](SampleTable::Variables x) { return linear(x[0], x[1], x[2], {.activation = Activation::gelu, .residual = x[3]}); },
        [](SampleTable::Tensors x) { return linear(x[0], x[1], x[2], {.activation = Activation::gelu, .residual = x[3]}).y; }, inputs);
  };
  plain("linear", deep);
  plain("linear wide", wide);
  fused("linear gelu", deep);
  fused("linear gelu wide", wide);
}

}  // namespace heed
