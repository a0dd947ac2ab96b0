// SPDX-License-Identifier: Apache-2.0
#include "attention/scores/coverage.h"

#include "tensor/ops/view.h"

namespace heed {

Variable additive_score_with(const Additive& score, const Variable& query, const Memory& memory, const Variable& f) {
  const Index B = query.size(0), T = query.size(1), S = memory.keys.size(1), A = memory.keys.size(2), rows = B * T;
  const Variable keys = reshape(unsqueeze(memory.keys, 1) + f, {rows, S, A});
  const Mask mask = T == 1 ? memory.mask : Mask::allowed(reshape(memory.mask.dense({B, T, S}), {rows, 1, S}));
  return reshape(traced_additive_score(reshape(score.query_proj(query), {rows, 1, A}), keys, score.v, mask, score.hidden), {B, T, S});
}

Variable traced_past(std::string_view name, std::string_view formula, const Variable& past, const Variable& query, const Memory& memory) {
  constexpr Trace::Axes over{.columns = Along::source, .rows = Along::target};
  if (past.defined()) return trace(name, formula, past, over);
  trace(name, formula, [&] { return zeros({query.size(0), query.size(1), memory.keys.size(1)}, query.dtype()); }, over);
  return {};
}

}  // namespace heed
