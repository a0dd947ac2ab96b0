// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>

#include "attention/score.h"
#include "nn/linear.h"

namespace heed {

// e_ts = β cos(q_t, h_s) = β q_t·h_s / (‖q_t‖ ‖h_s‖)        Graves et al. 2014, arXiv 1410.5401, Eq. 5-6; needs n = M
// β = options.sharpness, or where that is 0 softplus(sharpness(q_t)), learned. A vector of zeros has the cosine 0.
struct Cosine {
  static constexpr std::string_view formula = "e_j = β cos(q, h_j)";
  Cosine(Scope scope, const ScoreOptions& options) : beta(checked_sharpness(options)) {
    check_equal_widths("cosine", options);
    if (beta == 0) sharpness.emplace(scope / "sharpness", Linear::Options{.in = options.query_width, .out = 1});
  }
  Memory prepare(const Variable& states, Mask mask) const { return {unit(states), states, std::move(mask)}; }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    const Variable cosines = matmul(unit(query), transpose(memory.keys));                // [B, T, S]
    return sharpness ? softplus((*sharpness)(query)) * cosines : cosines * beta;
  }
  static Variable unit(const Variable& x) { return x / sqrt(sum(square(x), -1, true) + 1e-16); }
  double beta;
  std::optional<Linear> sharpness;
};
static_assert(Score<Cosine>);

}  // namespace heed
