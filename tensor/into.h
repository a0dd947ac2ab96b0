// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tensor/tensor.h"

namespace heed {

// Where a derivative is computed to: `tensor` has the shape of the input; add: accumulate onto what is there, else overwrite.
struct Into {
  Tensor tensor;
  bool add = false;
};

}  // namespace heed
