// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <string>

#include "attention/score.h"
#include "autograd/trace.h"
#include "nn/init.h"
#include "nn/linear.h"

namespace heed {

// vᵀ tanh(q_t + k_s), fused; a Trace sees what stands inside as well
inline Variable traced_additive_score(const Variable& q, const Variable& k, const Variable& v, const Mask& mask, std::string_view hidden) {
  const Variable scores = additive_score(q, k, v, mask);
  if (!Trace::current()) return scores;
  const Variable inside = trace("hidden", hidden, tanh(unsqueeze(q, 2) + unsqueeze(k, 1)), {.rows = Along::source});   // [B, T, S, A]
  return with_value(matmul(inside, v), scores.value());
}

// e_ts = vᵀ tanh(W q_t + U h_s)        Bahdanau et al. 2015, arXiv 1409.0473, A.1.2
struct Additive {
  // more: what a score that is built on this one adds inside of the tanh, for its formula
  Additive(Scope scope, const ScoreOptions& options, const std::string& more = {})
      : hidden(std::string("tanh(W q + U h_j") + (options.bias ? " + b_U" : "") + more + ")"),
        formula("e_j = vᵀ " + hidden),
        query_proj(scope / "query_proj", {.in = options.query_width, .out = options.hidden(), .bias = false, .init = options.init}),
        key_proj(scope / "key_proj", {.in = options.memory_width, .out = options.hidden(), .bias = options.bias, .init = options.init}),
        v(score_vector(scope, options)) {}
  Memory prepare(const Variable& states, Mask mask) const { return {key_proj(states), states, std::move(mask)}; }   // U h_s [B, S, A]
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return traced_additive_score(query_proj(query), memory.keys, v, memory.mask, hidden);
  }
  std::string hidden, formula;
  Linear query_proj, key_proj;      // W [A, n], U [A, M]
  Parameter v;                      // [A]
};
static_assert(Score<Additive>);

// e_ts = vᵀ tanh(W_a [q_t; h_s])        Luong et al. 2015, arXiv 1508.04025, 3.1
// The same functions as Additive: W and U are the two column blocks of W_a.
struct Concat : Additive {
  Concat(Scope scope, const ScoreOptions& options) : Additive(scope, options) {
    hidden = options.bias ? "tanh(W [q; h_j] + b_U)" : "tanh(W [q; h_j])";
    formula = "e_j = vᵀ " + hidden;
  }
};
static_assert(Score<Concat>);

// e_ts = g vᵀ/‖v‖ tanh(W q_t + U h_s + b), g starts at √(1/A), b at 0        tf/nmt, `normed_bahdanau`; Salimans and Kingma 2016
struct AdditiveNormed : Additive {
  AdditiveNormed(Scope scope, const ScoreOptions& options)
      : Additive(scope, options, " + b"),
        g(scope.parameter("g", {}, constant_init(std::sqrt(1 / double(options.hidden()))))),
        b(scope.parameter("b", {options.hidden()}, constant_init(0))) {
    formula = "e_j = g vᵀ/‖v‖ " + hidden;
    check_direction("additive-normed", v);
  }
  Memory prepare(const Variable& states, Mask mask) const { return {key_proj(states) + b, states, std::move(mask)}; }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return traced_additive_score(query_proj(query), memory.keys, v * (g / norm(v)), memory.mask, hidden);
  }
  Parameter g, b;
};
static_assert(Score<AdditiveNormed>);

}  // namespace heed
