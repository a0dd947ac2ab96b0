// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/score.h"

namespace heed {

// No attention: nothing is allowed, the context is zeros. The baseline.
struct None {
  static constexpr std::string_view formula = "e_j = 0, nothing is allowed";
  None(Scope, const ScoreOptions&) {}
  Memory prepare(const Variable& states, Mask mask) const { return {states, states, mask & Mask::allowed(zeros({1}, DType::u8))}; }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return constant(zeros({query.size(0), query.size(1), memory.keys.size(1)}, query.dtype()));
  }
};
static_assert(Score<None>);

}  // namespace heed
