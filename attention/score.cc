// SPDX-License-Identifier: Apache-2.0
#include "attention/score.h"

#include <algorithm>
#include <cmath>

#include "attention/normalise.h"
#include "attention/scores/additive.h"
#include "attention/scores/cosine.h"
#include "attention/scores/coverage.h"
#include "attention/scores/dot.h"
#include "attention/scores/gaussian.h"
#include "attention/scores/general.h"
#include "attention/scores/location.h"
#include "attention/scores/location_aware.h"
#include "attention/scores/mean.h"
#include "attention/scores/none.h"
#include "nn/init.h"
#include "tensor/chain.h"
#include "tensor/format.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

thread_local ExtraScores* extra_scores = nullptr;

const std::vector<NamedScore>& library() {
  static const std::vector<NamedScore> scores{
      named_score<None>("none"),
      named_score<Mean>("mean"),
      named_score<Additive>("additive"),
      named_score<AdditiveNormed>("additive-normed"),
      named_score<Dot>("dot"),
      named_score<ScaledDot>("scaled-dot"),
      named_score<General>("general"),
      named_score<GeneralScaled>("general-scaled"),
      named_score<Concat>("concat"),
      named_score<Location>("location"),
      named_score<Gaussian>("gaussian"),
      named_score<Cosine>("cosine"),
      named_score<LocationAware>("location-aware"),
      named_score<Coverage>("coverage"),
  };
  return scores;
}

}  // namespace

std::string hyphenated(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

struct ScoreTable {
  // Calls f(score) for every known one, until it answers true.
  template <class F> static bool any(F&& f) {
    if (std::any_of(library().begin(), library().end(), f)) return true;
    for (const ExtraScores* extra = extra_scores; extra; extra = extra->outer_)
      if (std::any_of(extra->scores_.begin(), extra->scores_.end(), f)) return true;
    return false;
  }
};

std::vector<std::string> score_names() {
  std::vector<std::string> names;
  ScoreTable::any([&](const NamedScore& score) { return names.push_back(score.name), false; });
  return names;
}

AnyScore make_score(std::string_view name, Scope scope, const ScoreOptions& options) {
  const NamedScore* found = nullptr;
  ScoreTable::any(
      [&](const NamedScore& score) { return (found = score.name == hyphenated(name) ? &score : nullptr) != nullptr; });
  check<Error>(found, "score: unknown name {}; one of {}", quote(name), fmt::join(score_names(), ", "));
  const Inside inside(scope.path());
  return found->make(scope, options);
}

ExtraScores::ExtraScores(std::vector<NamedScore> scores) : scores_(std::move(scores)), outer_(extra_scores) {
  for (auto it = scores_.begin(); it != scores_.end(); ++it) {
    it->name = hyphenated(it->name);
    check<Error>(!it->name.empty() && it->make, "extra scores: a score needs a name and what makes it: {}", quote(it->name));
    const auto same = [&](const NamedScore& other) { return other.name == it->name; };
    check<Error>(!ScoreTable::any(same) && std::none_of(scores_.begin(), it, same), "extra scores: the name exists already: {}",
                 quote(it->name));
    for (const std::string window : {"local-m", "local-p"})
      check<Error>(it->name != window && !it->name.starts_with(window + "-"), "extra scores: the name is that of a window: {}",
                   quote(it->name));
    const std::string_view normalise = normalise_in(it->name);
    check<Error>(normalise.empty(), "extra scores: the name ends with that of a normaliser: {}, {}", quote(it->name), normalise);
    check<Error>(it->name != "auto" && !it->name.starts_with('-') && !it->name.ends_with('-'),
                 "extra scores: no name for a score: {}; a word, or some with hyphens between them", quote(it->name));
  }
  extra_scores = this;
}

ExtraScores::~ExtraScores() { unchain(extra_scores, this, &ExtraScores::outer_); }

void AttentionState::reorder(std::span<const Index> rows, Index per_sentence) {
  check<Error>(per_sentence >= 1 && Index(rows.size()) % per_sentence == 0, "reorder: {} rows are no groups of {}", rows.size(),
               per_sentence);
  const Tensor ids = tensor(std::vector<std::int64_t>(rows.begin(), rows.end()), {Index(rows.size())});
  for (Variable* numbers : {&previous, &sum, &carried}) {
    if (!numbers->defined()) continue;
    const Index width = numbers->size(2);
    const Tensor old = reshape(numbers->value(), {numbers->size(0) * numbers->size(1), width});
    *numbers = constant(reshape(index_select(old, 0, ids), {Index(rows.size()) / per_sentence, per_sentence, width}));
  }
}

void check_equal_widths(std::string_view score, const ScoreOptions& options) {
  check<ShapeError>(options.query_width == options.memory_width,
                    "{}: query and memory need the same width: query {}, memory {}; general has no such need", score, options.query_width,
                    options.memory_width);
}

void check_direction(std::string_view score, const Parameter& v) {
  check<Error>(any_true(v.value()), "{}: a vector of zeros has no direction: v starts at 0, of shape {}; see v_init", score, v.shape());
}

double checked_sharpness(const ScoreOptions& options) {
  check<Error>(options.sharpness >= 0 && std::isfinite(options.sharpness), "cosine: sharpness must be finite and not negative: {}",
               options.sharpness);
  return options.sharpness;
}

Parameter score_vector(const Scope& scope, const ScoreOptions& options, std::string_view name) {
  return scope.parameter(name, {options.hidden()}, options.v_init ? options.v_init : linear_uniform(options.hidden()));
}

}  // namespace heed
