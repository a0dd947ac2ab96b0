// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "examples/tasks/generate.h"

namespace heed {

// y_i = x_i
Rearranged copied(std::span<const Index> source) {
  Rearranged result{{source.begin(), source.end()}, std::vector<Index>(source.size())};
  std::iota(result.from.begin(), result.from.end(), Index{0});
  return result;
}

}  // namespace heed
