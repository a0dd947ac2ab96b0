// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sort.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/index.h"

namespace heed {
namespace {

SortedVariable record_sorted(const char* op, const Variable& x, Sorted y, int dim) {
  return {record(op, y.values, {x}, [dx = x.slot(), dim, indices = saved(y.indices)](const Tensor& dy) {
            dx.gradient([&](Into out) { gather_grad(indices, dy, dim, out); });
          }), y.indices};
}

}  // namespace

SortedVariable sort(const Variable& x, int dim, bool descending) {
  return record_sorted("sort", x, sort(x.value(), dim, descending), dim);
}
SortedVariable topk(const Variable& x, Index k, int dim) { return record_sorted("topk", x, topk(x.value(), k, dim), dim); }

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void sort_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  table.both("sort", [](auto x) { return sort(x[0], -1).values; }, {{{3, N}}});
  table.both("topk", [](auto x) { return topk(x[0], 2, 0).values; }, {{{3, N}}});
}

}  // namespace heed
