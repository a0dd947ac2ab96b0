// SPDX-License-Identifier: Apache-2.0
#include "attention/attend.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/trace.h"
#include "tensor/format.h"

namespace heed {
namespace {

// "local-p-dot-sparsemax" -> local-p, dot, sparsemax. Whole names of scores come first: "general-scaled" is no "general" + "scaled".
struct Parts {
  std::string window, score, normalise = "softmax";
};

bool starts(std::string_view text, std::string_view with) { return text == with || (text.starts_with(with) && text[with.size()] == '-'); }

Parts parts_of(std::string_view name) {
  std::string rest = hyphenated(name);
  Parts parts;
  const std::vector<std::string> names = score_names();
  const auto known = [&] { return std::find(names.begin(), names.end(), rest) != names.end(); };
  if (!known())
    for (const char* window : {"local-m", "local-p"})
      if (starts(rest, window)) {
        parts.window = window;
        rest = rest == window ? "general" : rest.substr(parts.window.size() + 1);
        break;
      }
  if (!known())
    if (const std::string_view normalise = normalise_in(rest); !normalise.empty()) {
      parts.normalise = normalise;
      rest = rest == normalise ? "general" : rest.substr(0, rest.size() - normalise.size() - 1);
    }
  check<Error>(known(), "attention: unknown name {}; one of {}", quote(name), attention_choices());
  check<Error>(rest != "none" || (parts.window.empty() && parts.normalise == "softmax"),
               "attention: none looks nowhere: {}; none alone, or another score", quote(name));
  parts.score = rest;
  return parts;
}

}  // namespace

Attention::Attention(Scope scope, AnyScore score, Normalise normalise, Window window)
    : score(std::move(score)), normalise(std::move(normalise)), window(std::move(window)), path(scope.path()) {}

Memory Attention::prepare(const Variable& states, Mask mask) const {
  const Inside inside(path);
  check<ShapeError>(states.rank() == 3, "attention: memory states need 3 dimensions [B, S, M]: {}", states.shape());
  Memory memory = score.prepare(states, mask);
  if (memory.mask.everything()) memory.mask = std::move(mask);   // a score may forbid more, and need not hand it on
  return memory;
}

Attended Attention::operator()(const Variable& query, const Memory& memory, AttentionState& state, Want want) const {
  const Inside inside(path);
  check<ShapeError>(query.rank() == 3 && query.size(0) == memory.values.size(0),
                    "attention: query and memory need [B, T, n] and [B, S, M]: query {}, memory {}", query.shape(), memory.values.shape());
  const Index T = query.size(1);
  check<Error>(!looks_back() || T <= 1 || state.advance == 0, "attention: a score that looks back takes one step at a time: query {}",
               query.shape());
  const Shape expected{query.size(0), T, memory.values.size(1)};
  check<ShapeError>(!state.previous.defined() || state.previous.shape() == expected || expected.numel() == 0,
                    "attention: the weights of the step before have another shape than [B, T, S]: {}, expected {}; AttentionState::reorder "
                    "takes their rows along",
                    state.previous.shape(), expected);
  const Focus focus = window ? window(query, memory, state) : Focus{};
  const Memory seen = window ? Memory{memory.keys, memory.values, memory.mask & focus.mask} : memory;
  const Trace::Axes over{.columns = Along::source, .rows = Along::target}, rows{.rows = Along::target};
  if (focus.position.defined() && !focus.formula.empty()) trace("position", focus.formula, focus.position);
  if (Variable carried = score.carry(query, state); carried.defined()) state.carried = std::move(carried);
  Variable scores = score(query, seen, state);                                                           // [B, T, S]
  const std::string in_window = Trace::current() && window ? fmt::format("{}, of the words in the window", score.formula()) : std::string();
  scores = trace("scores", window ? std::string_view(in_window) : score.formula(), scores, over);
  check<ShapeError>(scores.shape() == expected, "attention: the score has another shape than [B, T, S]: {}, expected {}", scores.shape(),
                    expected);
  Variable weights = trace("weights", normalise.formula, normalise(scores, seen.mask), over);
  const bool damped = focus.factor.defined();
  if (damped)                                                                                           // Eq. 10: not normalised again
    weights = trace("damped", "a_j = α_j f_j", weights * trace("factor", "f_j = exp(-(j - p)² / 2σ²), σ = w/2", focus.factor, over), over);
  Attended out{.context = matmul(weights, memory.values)};                                               // [B, T, M]
  if (Trace::current()) {
    // [B, T, S, M]
    const Variable weighted =
        trace("weighted", damped ? "a_j h_j" : "α_j h_j", unsqueeze(weights, -1) * unsqueeze(memory.values, 1), {.rows = Along::source});
    out.context =
        trace("context", damped ? "c = Σ_j a_j h_j" : "c = Σ_j α_j h_j", with_value(sum(weighted, {2}), out.context.value()), rows);
  }
  if (want == Want::weights) {
    out.weights = weights;
    out.scores = scores;
    out.position = focus.position;
  }
  state.position += state.advance == 0 ? 1 : T * state.advance;
  if (looks_back()) {
    state.sum = state.sum.defined() ? state.sum + weights : weights;
    state.previous = std::move(weights);
  }
  return out;
}

Attended Attention::operator()(const Variable& query, const Memory& memory, Want want) const {
  AttentionState state;
  return (*this)(query, memory, state, want);
}

Attention make_attention(std::string_view name, Scope scope, const ScoreOptions& options) {
  const Parts parts = parts_of(name);
  AnyScore score = make_score(parts.score, scope, options);
  const Inside inside(scope.path());
  Window window = parts.window == "local-m" ? local_m(options) : parts.window == "local-p" ? local_p(scope, options) : Window();
  check<Error>(!options.truncate_after_softmax || (parts.score == "location" && parts.normalise == "softmax"),
               "attention: truncate_after_softmax is of location and softmax: {}", quote(name));
  Normalise normalise = make_normalise(options.truncate_after_softmax ? "exp" : parts.normalise, scope);
  return Attention(std::move(scope), std::move(score), std::move(normalise), std::move(window));
}

std::vector<std::string> attention_names() {
  std::vector<std::string> names = score_names();
  names.insert(names.end(), {"local-m", "local-p"});
  return names;
}

std::string attention_choices() {
  std::string choices = fmt::format("{}; also local-m-SCORE, local-p-SCORE", fmt::join(attention_names(), ", "));
  for (const std::string_view name : normalise_names())
    if (name != "softmax") choices += fmt::format(", SCORE-{}", name);
  return choices + ", SCORE-top-K";
}

void check_attention_name(std::string_view name) { parts_of(name); }

std::string window_of(std::string_view name) { return parts_of(name).window; }

std::string score_of(std::string_view name) { return parts_of(name).score; }

std::string normalise_of(std::string_view name) { return parts_of(name).normalise; }

}  // namespace heed
