// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

#include "tensor/tensor.h"

namespace heed {

// Where a derivative is computed to: `tensor` has the shape of the input; add: accumulate onto what is there, else overwrite.
struct Into {
  Tensor tensor;
  bool add = false;
};

// Throws where two elements of x share memory, as in an expanded view: what is written there would depend on the order.
void check_writable(std::string_view op, const Tensor& x);

}  // namespace heed
