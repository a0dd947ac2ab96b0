// SPDX-License-Identifier: Apache-2.0
// Attention for recurrent decoders:  e = score(q, memory),  α = normalise(e, mask ∧ window),  c_t = Σ_s α_ts h_s
#pragma once
#include "attention/normalise.h"
#include "attention/score.h"
#include "attention/window.h"

namespace heed {

struct Attention {
  Attention(Scope scope, AnyScore score, Normalise normalise = normalise_named("softmax"), Window window = {});

  // Projected keys of encoder states [B, S, M], once per sentence. States at padding must be finite: their weight is 0, and 0 · NaN is NaN.
  Memory prepare(const Variable& states, Mask mask) const;
  // query [B, T, n] -> context [B, T, M]. The rows are target positions state.position, + 1, ..., and the state moves on by T; where
  // state.advance = 0 they are one step of T hypotheses. Error: several positions at once for a score that looks back.
  Attended operator()(const Variable& query, const Memory& memory, AttentionState& state, Want want = Want::context) const;
  // All positions from 0.
  Attended operator()(const Variable& query, const Memory& memory, Want want = Want::context) const;
  // Whether a step needs the weights of the step before: then no [B, T, n] at once.
  bool looks_back() const { return score.looks_back(); }

  AnyScore score;
  Normalise normalise;
  Window window;                 // none: everywhere
  Path path;
};

// [local-m-|local-p-]SCORE[-exp|-sparsemax|-entmax|-hard|-learned-entmax|-top-K]; what names no score has general.
// Error lists the names.
Attention make_attention(std::string_view name, Scope scope, const ScoreOptions& options);
std::vector<std::string> attention_names();                 // those that stand for themselves: score_names(), local-m, local-p
std::string attention_choices();                            // those, and how more are put together, for a help or a message
void check_attention_name(std::string_view name);           // Error unless make_attention knows it
std::string window_of(std::string_view name);               // local-p-dot-hard -> local-p, dot -> "". The same Error
std::string score_of(std::string_view name);                // the SCORE in it: local-p-dot-hard -> dot. The same Error
std::string normalise_of(std::string_view name);            // local-p-dot-hard -> hard, dot -> softmax. The same Error

}  // namespace heed
