// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/softmax.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable softmax(const Variable& x, int dim, const Mask& mask) {
  Tensor y = softmax(x.value(), dim, mask);
  return record("softmax", y, {x}, [dx = x.slot(), y = saved(y), dim](const Tensor& dy) {
    dx.gradient([&](Into out) { softmax_grad(y, dy, dim, out); });
  });
}

Variable log_softmax(const Variable& x, int dim, const Mask& mask) {
  Tensor y = log_softmax(x.value(), dim, mask);
  return record("log_softmax", y, {x}, [dx = x.slot(), y = saved(y), dim, mask = saved(mask)](const Tensor& dy) {
    dx.gradient([&](Into out) { log_softmax_grad(y, dy, dim, mask, out); });
  });
}

Variable logsumexp(const Variable& x, const Dims& dims, Flag keepdim) {
  Tensor y = logsumexp(x.value(), dims, keepdim);
  return record("logsumexp", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { logsumexp_grad(x, y, dy, dims, out); });
  });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void softmax_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("softmax", [](auto x) { return softmax(x[0]); }, {{{2, 3, N}}});
  table.both("softmax dim 1", [](auto x) { return softmax(x[0], 1); }, {{{2, 3, N}}});
  table.both("softmax masked", [](auto x) { return softmax(x[0], -1, Mask::causal()); }, {{{2, 3, N}}});
  table.both("log_softmax", [](auto x) { return log_softmax(x[0]); }, {{{2, 3, N}}});
  table.both("log_softmax dim 0", [](auto x) { return log_softmax(x[0], 0); }, {{{2, 3, N}}});
  table.both("logsumexp", [](auto x) { return logsumexp(x[0]); }, {{{2, 3, N}}});
  table.both("logsumexp outer", [](auto x) { return logsumexp(x[0], {0, 2}, true); }, {{{2, 3, N}}});
}

}  // namespace heed
