// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "examples/tasks/generate.h"

namespace heed {

// y_i = x_(n-1-i)
Rearranged reversed(std::span<const Index> source) {
  Rearranged result = copied(source);
  std::reverse(result.target.begin(), result.target.end());
  std::reverse(result.from.begin(), result.from.end());
  return result;
}

}  // namespace heed
