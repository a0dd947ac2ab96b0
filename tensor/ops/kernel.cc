// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/kernel.h"

#include <utility>

namespace heed {
namespace {

// First and last element, as offsets into the storage.
std::pair<Index, Index> extent(const Tensor& x) {
  Index first = x.offset(), last = x.offset();
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Index reach = (x.shape()[axis] - 1) * x.strides()[axis];
    (reach < 0 ? first : last) += reach;
  }
  return {first, last};
}

// Largest offset within a row of length `row` that an element has, its axes that step by whole rows left out; -1: unknown.
Index width(const Tensor& x, Index row) {
  Index last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Index stride = x.strides()[axis];
    if (stride % row == 0 || x.shape()[axis] == 1) continue;
    if (stride < 0) return -1;
    last += (x.shape()[axis] - 1) * stride;
  }
  return last;
}

}  // namespace

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!(a.storage() == b.storage()) || a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_first, a_last] = extent(a);
  const auto [b_first, b_last] = extent(b);
  if (a_last < b_first || b_last < a_first) return false;
  if (a.rank() < 2 || b.rank() < 2) return true;
  const Index row = a.strides()[a.rank() - 2];
  if (row <= 0 || b.strides()[b.rank() - 2] != row) return true;
  const Index a_width = width(a, row), b_width = width(b, row), apart = ((b.offset() - a.offset()) % row + row) % row;
  return a_width < 0 || b_width < 0 || apart <= a_width || apart + b_width >= row;     // columns, taken modulo the row
}

}  // namespace heed
