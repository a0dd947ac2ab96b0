// SPDX-License-Identifier: Apache-2.0
#include "nn/summary.h"

#include <algorithm>

#include "tensor/format.h"

namespace heed {

std::string summary(const Parameters& parameters, Index rows) {
  std::size_t wide = 9, shape_wide = 5;
  Index work = 0;
  for (const auto& item : parameters.items()) {
    wide = std::max(wide, item->path.size());
    shape_wide = std::max(shape_wide, to_string(item->variable.shape()).size());
    if (item->variable.rank() == 2 && item->multiplied) work += item->variable.numel();
  }
  for (const auto& [alias, path] : parameters.aliases()) wide = std::max(wide, alias.size());
  std::string out = fmt::format("{:<{}}  {:<{}}  {:>12}\n", "parameter", wide, "shape", shape_wide, "count");
  for (const auto& item : parameters.items())
    out += fmt::format("{:<{}}  {:<{}}  {:>12}{}\n", item->path, wide, to_string(item->variable.shape()), shape_wide,
                       with_commas(fmt::to_string(item->variable.numel())), item->frozen() ? "  frozen" : "");
  for (const auto& [alias, path] : parameters.aliases()) out += fmt::format("{:<{}}  = {}\n", alias, wide, path);
  const double weights = double(parameters.count()) * double(item_size(parameters.dtype()));
  out += fmt::format("total {} parameters, {} of weights, {} when training with two moments\n",
                     with_commas(fmt::to_string(parameters.count())), size_text(weights), size_text(4 * weights));
  if (rows > 0) out += fmt::format("{} multiply-adds forward for {} rows\n", with_commas(fmt::to_string(work * rows)), rows);
  return out;
}

}  // namespace heed
