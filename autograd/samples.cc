// SPDX-License-Identifier: Apache-2.0
#include "autograd/samples.h"

#include "autograd/ops/samples.h"
#include "tensor/ops/random.h"

namespace heed {

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = [] {
    SampleTable table;
    for (auto add : {unary_samples,    binary_samples,    reduce_samples,         matmul_samples,        einsum_samples,
                     linear_samples,   softmax_samples,   sparsemax_samples,      norm_samples,          view_samples,
                     rotary_samples,   index_samples,     sort_samples,           cross_entropy_samples, soft_cross_entropy_samples,
                     loss_samples,     attention_samples, causal_product_samples, score_samples,         random_samples,
                     recurrent_samples})
      add(table);
    return std::move(table.rows);
  }();
  return all;
}

std::vector<Tensor> sample_inputs(const Sample& sample, Index any, DType dtype) {
  constexpr double kDistance = 0.002;
  std::vector<Tensor> inputs;
  for (const Sample::Input& input : sample.inputs) {
    Shape shape = input.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == Sample::kAny) shape[axis] = any;
    const Tensor x = to(uniform(Key(Seed{1}) / sample.name / inputs.size(), shape, input.low, input.high), DType::f64);
    for (double& value : x.mutable_span<double>())
      for (double kink : input.kinks)
        if (std::abs(value - kink) < kDistance) value = double(float(kink + 2 * kDistance));
    inputs.push_back(to(x, dtype));
  }
  return inputs;
}

}  // namespace heed
