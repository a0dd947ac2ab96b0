// SPDX-License-Identifier: Apache-2.0
#include "attention/scores/location.h"

#include <algorithm>

#include "tensor/format.h"
#include "tensor/ops/binary.h"

namespace heed {

namespace {

Index checked_longest(const ScoreOptions& options) {
  check<Error>(options.longest >= 1, "location: longest must be at least 1: {}", options.longest);
  return options.longest;
}

}  // namespace

Location::Location(Scope scope, const ScoreOptions& options)
    : proj(scope / "proj", {.in = options.query_width, .out = checked_longest(options), .bias = false, .init = options.init}),
      longest(options.longest),
      truncates(options.truncate_after_softmax),
      formula(truncates ? "e_j = log softmax(W q)_j over all positions there are" : "e_j = (W q)_j") {}

Memory Location::prepare(const Variable& states, Mask mask) const {
  const Index S = states.size(1);
  if (S > longest) mask = mask & Mask::allowed(less(arange(0, double(S)), full({}, double(longest), DType::i64)));
  return {states, states, std::move(mask)};
}

Variable Location::operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
  const Index S = memory.keys.size(1), known = std::min(S, longest);
  // [B, T, min(S, S_max)]
  const Variable e =
      truncates ? slice(log_softmax(proj(query), -1), -1, 0, known) : linear(query, slice(proj.weight, 0, 0, known), Variable());
  return S > known ? pad(e, -1, 0, S - known) : e;
}

}  // namespace heed
