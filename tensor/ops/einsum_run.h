// SPDX-License-Identifier: Apache-2.0
// The steps of einsum on Tensors or Variables, whose ops are declared before this is used.
#pragma once
#include "tensor/ops/einsum.h"

namespace heed {

template <class X> X run_einsum(std::string_view spec, std::span<const X> operands) {
  std::vector<Shape> shapes;
  for (const X& operand : operands) shapes.push_back(operand.shape());
  std::vector<X> stack;
  for (const EinsumStep& step : einsum_steps(spec, shapes)) {
    if (step.kind == EinsumStep::take) {
      stack.push_back(operands[std::size_t(step.values[0])]);
      continue;
    }
    X& x = stack[stack.size() - 1 - std::size_t(step.depth)];
    const auto sizes = [&] { return Shape(std::span<const Index>(step.values)); };
    const auto dims = [&] {
      const std::vector<int> list(step.values.begin(), step.values.end());
      return Dims(std::span<const int>(list));
    };
    switch (step.kind) {
      case EinsumStep::take: break;
      case EinsumStep::diagonal: x = slice(x, -1, 0, Slice::kToEnd, step.values[0] + 1); break;
      case EinsumStep::sum: x = sum(x, dims()); break;
      case EinsumStep::permute: x = permute(x, dims()); break;
      case EinsumStep::reshape: x = reshape(x, sizes()); break;
      case EinsumStep::expand: x = expand(x, sizes()); break;
      case EinsumStep::multiply:
      case EinsumStep::matmul: {
        X& a = stack[stack.size() - 2];
        a = step.kind == EinsumStep::matmul ? matmul(a, x) : multiply(a, x);
        stack.pop_back();
      }
    }
  }
  return stack.back();
}

}  // namespace heed
