// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/score.h"
#include "nn/init.h"
#include "nn/linear.h"

namespace heed {

// e_ts = q_tᵀ W_a h_s        Luong et al. 2015, arXiv 1508.04025, 3.1
struct General {
  static constexpr std::string_view formula = "e_j = qᵀ W h_j";
  General(Scope scope, const ScoreOptions& options)
      : key_proj(scope / "key_proj", {.in = options.memory_width, .out = options.query_width, .bias = false, .init = options.init}) {}
  Memory prepare(const Variable& states, Mask mask) const { return {key_proj(states), states, std::move(mask)}; }   // W_a h_s [B, S, n]
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return matmul(query, transpose(memory.keys));
  }
  Linear key_proj;
};
static_assert(Score<General>);

// e_ts = g q_tᵀ W_a h_s, g starts at 1        tf/nmt, `scaled_luong`
struct GeneralScaled : General {
  static constexpr std::string_view formula = "e_j = g qᵀ W h_j";
  GeneralScaled(Scope scope, const ScoreOptions& options) : General(scope, options), g(scope.parameter("g", {}, constant_init(1))) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
    return General::operator()(query * g, memory, state);
  }
  Parameter g;
};
static_assert(Score<GeneralScaled>);

}  // namespace heed
