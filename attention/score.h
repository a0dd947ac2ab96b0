// SPDX-License-Identifier: Apache-2.0
// A score says how well every query row fits every memory position: e [B, T, S]. Attention = score x mask x normalise x combine:
// see normalise.h, window.h, attend.h; the scores stand in scores/, one idea a file. A user's own is a struct like these:
//
//   struct Distance {                                                   // e_ts = -‖q_t - h_s‖
//     Distance(Scope, const ScoreOptions&) {}
//     Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
//       return -norm(unsqueeze(query, 2) - unsqueeze(memory.keys, 1), -1);                           // [B, T, S]
//     }
//   };
//   int main(int argc, char** argv) { return heed::main(argc, argv, {named_score<Distance>("distance")}); }
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/memory.h"
#include "nn/scope.h"

namespace heed {

// What a score may know beside query and memory. The attention moves it on after each call.
struct AttentionState {
  Index position = 0;       // target position of query row 0, from 0
  Index advance = 1;        // row t stands at position + t advance; 0: all rows stand at one step, as the hypotheses of a beam do
  // weights of the step before (of local-p α f)   [B, T, S]; undefined at the first step, and for scores that do not look back
  Variable previous = {};
  Variable sum = {};        // their sum over all steps before  [B, T, S]; the same
  Variable carried = {};    // what the score's `carry` made  [B, T, K]; undefined before the first step, and where there is none

  // Row i goes on from old row rows[i], rows in groups of `per_sentence` of one sentence, as in DecodingState.
  void reorder(std::span<const Index> rows, Index per_sentence);
};

// Needed: the call, query [B, T, n] -> e [B, T, S]; where memory.mask forbids, e may be anything.
// Optional: `Memory prepare(const Variable& states, Mask mask) const`, once per sentence; default: keys = values = states.
//           `static constexpr bool looks_back = true` for a score that reads state.previous, state.sum or state.carried;
//           `Variable carry(const Variable& query, const AttentionState& state) const`, what it takes along from step to step: made of what
//           it carried before, and there as state.carried when it is called;
//           `static constexpr std::string_view formula` or a member of that name, what explanations print.
template <class S> concept Score = requires(const S& score, const Variable& query, const Memory& memory, const AttentionState& state) {
  { score(query, memory, state) } -> std::same_as<Variable>;
};

// Any score, by value.
class AnyScore {
 public:
  template <Score S> requires(!std::same_as<S, AnyScore>) AnyScore(S score) : held_(std::make_unique<Held<S>>(std::move(score))) {}
  Memory prepare(const Variable& states, Mask mask) const { return held().prepare(states, std::move(mask)); }
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState& state) const {
    return held().call(query, memory, state);
  }
  bool looks_back() const { return held().looks_back(); }
  Variable carry(const Variable& query, const AttentionState& state) const { return held().carry(query, state); }   // undefined: nothing
  std::string_view formula() const { return held().formula(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual Memory prepare(const Variable& states, Mask mask) const = 0;
    virtual Variable call(const Variable& query, const Memory& memory, const AttentionState& state) const = 0;
    virtual bool looks_back() const = 0;
    virtual Variable carry(const Variable& query, const AttentionState& state) const = 0;
    virtual std::string_view formula() const = 0;
  };
  template <class S> struct Held final : Interface {
    explicit Held(S score) : score(std::move(score)) {}
    Memory prepare(const Variable& states, Mask mask) const override {
      if constexpr (requires { score.prepare(states, mask); }) return score.prepare(states, std::move(mask));
      else return {states, states, std::move(mask)};
    }
    Variable call(const Variable& query, const Memory& memory, const AttentionState& state) const override {
      return score(query, memory, state);
    }
    bool looks_back() const override {
      if constexpr (requires { S::looks_back; }) return S::looks_back;
      else return false;
    }
    Variable carry(const Variable& query, const AttentionState& state) const override {
      if constexpr (requires { score.carry(query, state); }) return score.carry(query, state);
      else return {};
    }
    std::string_view formula() const override {
      if constexpr (requires { score.formula; }) return score.formula;
      else return "e_j = score(q, h_j)";
    }
    S score;
  };
  const Interface& held() const {
    check_not_moved_from(held_ != nullptr, "score");
    return *held_;
  }
  std::unique_ptr<const Interface> held_;
};

struct ScoreOptions {
  Index query_width;              // n
  Index memory_width;             // M, of one encoder state
  Index hidden_width = 0;         // A of additive, concat and local-p; 0: query_width
  // additive, concat: one in the key projection, which the papers do not print; location-aware, coverage: their b
  bool bias = false;
  Index longest = 100;            // S_max of location
  bool truncate_after_softmax = false;   // location, with make_attention: softmax over all S_max, then those beyond the sentence are cut
  double sharpness = 1;           // β of cosine; 0: learned
  Index window = 10;              // w of local-m and local-p: at most 2w + 1 positions
  bool clamp_position = false;    // local-m: beyond the end look at the last word instead of at nothing
  Initializer init = {};          // of query_proj, key_proj, proj and position_proj; default PyTorch's: U(±1/√in)
  Initializer v_init = {};        // of v; default U(±1/√A)
  Index hidden() const { return hidden_width ? hidden_width : query_width; }
};

std::string hyphenated(std::string_view name);   // "local_p" -> "local-p"

// A score by name. Names are written with hyphens; underscores are read as hyphens.
using ScoreMaker = std::function<AnyScore(Scope scope, const ScoreOptions& options)>;
struct NamedScore {
  std::string name;
  ScoreMaker make;
};
template <Score S> NamedScore named_score(std::string name) {
  return {std::move(name), [](Scope scope, const ScoreOptions& options) { return AnyScore(S(std::move(scope), options)); }};
}

AnyScore make_score(std::string_view name, Scope scope, const ScoreOptions& options);   // Error lists the names
std::vector<std::string> score_names();                                                 // the library's, then the extra ones

// While it lives, this thread knows the names of these scores too. Error: a name that means something already, or none, and no maker.
class [[nodiscard]] ExtraScores {
 public:
  explicit ExtraScores(std::vector<NamedScore> scores);
  ~ExtraScores();
  ExtraScores(const ExtraScores&) = delete;
  ExtraScores& operator=(const ExtraScores&) = delete;

 private:
  friend struct ScoreTable;
  std::vector<NamedScore> scores_;
  ExtraScores* outer_;
};

// ShapeError unless query and memory are equally wide.
void check_equal_widths(std::string_view score, const ScoreOptions& options);
// Error where v is 0: its length divides.
void check_direction(std::string_view score, const Parameter& v);
// β; Error unless it is finite and not negative.
double checked_sharpness(const ScoreOptions& options);
// [A], started by options.v_init or U(±1/√A)
Parameter score_vector(const Scope& scope, const ScoreOptions& options, std::string_view name = "v");

}  // namespace heed
