// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/kernel.h"

namespace heed {

void Destination::finish() const {
  if (direct_) return;
  if (!into_.add) return copy_into(into_.tensor, tensor_);
  const Tensor sum = into_.tensor.clone();
  visit_float(sum.dtype(), "add", [&]<class T>() {
    const auto from = tensor_.span<T>();
    const auto to = sum.mutable_span<T>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  });
  copy_into(into_.tensor, sum);
}

}  // namespace heed
