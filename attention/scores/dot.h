// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "attention/score.h"
#include "autograd/ops.h"

namespace heed {

// e_ts = q_t·h_s             Luong et al. 2015, arXiv 1508.04025, 3.1; needs n = M
struct Dot {
  static constexpr std::string_view formula = "e_j = q·h_j";
  Dot(Scope, const ScoreOptions& options) { check_equal_widths("dot", options); }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return matmul(query, transpose(memory.keys));
  }
};
static_assert(Score<Dot>);

// e_ts = q_t·h_s / √n        Vaswani et al. 2017, arXiv 1706.03762, Eq. 1; needs n = M
struct ScaledDot {
  static constexpr std::string_view formula = "e_j = q·h_j / √n";
  ScaledDot(Scope, const ScoreOptions& options) { check_equal_widths("scaled-dot", options); }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return matmul(query * (1 / std::sqrt(double(query.size(2)))), transpose(memory.keys));
  }
};
static_assert(Score<ScaledDot>);

}  // namespace heed
