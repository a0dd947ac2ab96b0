// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/score.h"
#include "nn/linear.h"

namespace heed {

// e_ts = (W_a q_t)_s        Luong et al. 2015, arXiv 1508.04025, Eq. 8: the query alone says where to look
// W_a has S_max = options.longest rows; a shorter sentence uses the first of them, positions beyond S_max get the weight 0. Rows of
// positions that no sentence of the training reached stay as they started. `heed` has S_max = --max-length + 51, and cuts sources
// at --max-length.
// truncate_after_softmax, the other reading of footnote 6: e_ts = log softmax(W_a q_t)_s, whose exp sum to less than 1 over a sentence.
struct Location {
  Location(Scope scope, const ScoreOptions& options);      // Error: longest < 1
  Memory prepare(const Variable& states, Mask mask) const;
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const;
  Linear proj;
  Index longest;
  bool truncates;
  std::string_view formula;
};
static_assert(Score<Location>);

}  // namespace heed
