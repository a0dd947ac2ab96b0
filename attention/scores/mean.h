// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/score.h"

namespace heed {

// e_ts = 0: α = 1 / length, the mean of the states, whatever the query. A baseline.
struct Mean {
  static constexpr std::string_view formula = "e_j = 0";
  Mean(Scope, const ScoreOptions&) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return constant(zeros({query.size(0), query.size(1), memory.keys.size(1)}, query.dtype()));
  }
};
static_assert(Score<Mean>);

}  // namespace heed
