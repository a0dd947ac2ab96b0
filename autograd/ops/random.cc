// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/random.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable dropout(const Variable& x, double p) {
  const std::optional<Key> key = dropout_key(p);
  if (!key) return x;
  return record("dropout", dropout(x.value(), p, *key), {x}, [dx = x.slot(), p, key = *key](const Tensor& dy) {
    dx.gradient([&](Into out) { dropout_grad(dy, p, key, out); });
  });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void random_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.add("dropout", [](SampleTable::Variables x) { return dropout(x[0], 0.5); }, {}, {{{3, N}}});   // the identity where nothing trains
}

}  // namespace heed
