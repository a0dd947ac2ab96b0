// SPDX-License-Identifier: Apache-2.0
#include "models/ensemble.h"

#include <cmath>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"

namespace heed {

EnsembleMean ensemble_mean_named(std::string_view name) {
  if (name == "mean") return EnsembleMean::mean;
  if (name == "log-mean") return EnsembleMean::log_mean;
  fail<Error>("ensemble: unknown name {}; one of mean, log-mean", quote(name));
}

namespace {

struct EnsembleState : DecodingState {
  std::vector<std::unique_ptr<DecodingState>> states;
  void reorder(std::span<const Index> rows, Index per_sentence) override {
    for (auto& state : states) state->reorder(rows, per_sentence);
  }
};

}  // namespace

Ensemble::Ensemble(std::vector<const Translator*> models, EnsembleMean mean) : models_(std::move(models)), mean_(mean) {
  check<Error>(!models_.empty(), "ensemble: no models");
  for (const Translator* model : models_) check<Error>(model, "ensemble: one of {} models is a null pointer", models_.size());
}

std::unique_ptr<DecodingState> Ensemble::start(const Sequences& source) const {
  auto state = std::make_unique<EnsembleState>();
  for (const Translator* model : models_) state->states.push_back(model->start(source));
  return state;
}

Step Ensemble::step(const Tensor& tokens, DecodingState& base, Want want) const {
  auto& state = state_as<EnsembleState>(base);
  if (state.states.size() != models_.size()) refuse_state();
  Tensor sum, weights;                                     // of P, as log, or of log P; of weights [R, 1, S]
  double looking = 0;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const Step one = models_[i]->step(tokens, *state.states[i], want);
    const Tensor& log_p = one.log_probabilities;
    check<ShapeError>(i == 0 || log_p.shape() == sum.shape(), "ensemble: models write different words: log probabilities {} and {}",
                      sum.defined() ? sum.shape() : Shape{}, log_p.shape());
    sum = i == 0 ? log_p : mean_ == EnsembleMean::mean ? logaddexp(sum, log_p) : sum + log_p;
    if (const AttentionMap* const last = last_cross_attention(one.attention)) {
      weights = weights.defined() ? weights + mean_of_heads(*last) : mean_of_heads(*last);
      ++looking;
    }
  }
  const double n = double(models_.size());
  Step step;
  step.log_probabilities = mean_ == EnsembleMean::mean ? sum - std::log(n) : log_softmax(sum * (1 / n));
  if (weights.defined()) step.attention.push_back({AttentionMap::Kind::cross, 0, constant(weights * (1 / looking))});
  return step;
}

}  // namespace heed
