// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace heed {

// Where a derivative is computed to: `tensor` has the shape of the input; add: accumulate onto what is there, else overwrite.
struct Into {
  Tensor tensor;
  bool add = false;
};

// Throws where two elements of x share memory, as in an expanded view: what is written there would depend on the order.
void check_writable(std::string_view op, const Tensor& x);
// ShapeError, DTypeError unless a, of this name, has x's shape and dtype.
void check_like(std::string_view op, std::string_view name, const Tensor& a, const Tensor& x);
// Whether an element of a may be one of b. Slices of one buffer, as heads and parts of a packed projection, are told apart.
bool may_overlap(const Tensor& a, const Tensor& b);
// to = from for each pair, as if all were read before any is written.
void copy_each(std::vector<std::pair<Tensor, Tensor>> to_from);

}  // namespace heed
