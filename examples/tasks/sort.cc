// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "examples/tasks/generate.h"

namespace heed {

// y_i = x_from(i) with x_from(i) <= x_from(i+1), equal ones in source order
Rearranged sorted(std::span<const Index> source) {
  Rearranged result = copied(source);
  std::stable_sort(result.from.begin(), result.from.end(),
                   [&](Index a, Index b) { return source[std::size_t(a)] < source[std::size_t(b)]; });
  for (std::size_t i = 0; i < source.size(); ++i) result.target[i] = source[std::size_t(result.from[i])];
  return result;
}

}  // namespace heed
