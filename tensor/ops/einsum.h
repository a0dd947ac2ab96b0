// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace heed {

// NumPy's einsum: "bthd,bshd->bhts" names the axes of each operand and of the result. Axes that the result lacks are summed over
// the product of the operands; a letter twice in one operand takes its diagonal; "..." stands for the axes not named, which
// are broadcast, as is a named axis of size 1. Without "->" the result has the letters that occur once, in alphabetical order.
// Operands are taken from left to right, two at a time, as matrix products: of three or more, put those first whose product is small.
// Error: the spec; ShapeError: sizes, ranks.
Tensor einsum(std::string_view spec, const std::vector<Tensor>& operands);

// How it is done, in small ops on a stack of operands; Tensors and Variables follow the same steps.
struct EinsumStep {
  enum Kind { take, diagonal, sum, permute, reshape, expand, multiply, matmul } kind;
  int depth = 0;               // 0: the last one on the stack; multiply and matmul join the last two
  std::vector<Index> values{}; // operand; dims; sizes
};
std::vector<EinsumStep> einsum_steps(std::string_view spec, std::span<const Shape> shapes);

}  // namespace heed
