// SPDX-License-Identifier: Apache-2.0
#include "models/ensemble.h"

#include <doctest/doctest.h>

#include "models/translate.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_model.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

struct Three {
  SmallModel transformer{"--layers 2 --heads 2"}, gru{"--model gru --attention dot"}, cho{"--model gru --attention none --decoder cho"};
  std::vector<const Translator*> models() const { return {transformer.model.get(), gru.model.get(), cho.model.get()}; }
};

Batch batch_for(const SmallModel& small) {
  return make_batch(std::vector<Example>{small.example("a b c d", "d c b a"), small.example("b", "a a b c d"), small.example("c d", "a")},
                    0, 2);
}

}  // namespace

TEST_CASE("every model: losses step by step are those of all steps at once") {
  for (const std::string& flags : every_model()) {
    CAPTURE(flags);
    const SmallModel small(flags);
    const Batch batch = make_batch(std::vector<Example>{small.example("a b c d x", "d x b a"), small.example("b", "a a b y d")}, 0,
                                   start_symbol(small.run.config, small.run.target.vocabulary));
    const Tensor at_once = small.model->token_losses(batch, 0);
    // what no weight reaches cannot be copied; its loss is 46
    const auto most = [](const Tensor& losses) { return minimum(losses, 40.0); };
    CHECK(worst_absolute(most(small.model->Translator::token_losses(batch, 0)), most(at_once)) < 1e-4);
    CHECK(sum(at_once).item() == doctest::Approx(small.model->loss(batch, {}).sum.value().item()).epsilon(1e-6));
  }
}

TEST_CASE("ensemble: the mean of the probabilities, or of the logarithms and normalised, by definition; attention of those that look") {
  const Three three;
  const Batch batch = batch_for(three.gru);
  for (const EnsembleMean kind : {EnsembleMean::mean, EnsembleMean::log_mean}) {
    const Ensemble all(three.models(), kind);
    const auto state = all.start(batch.source);
    std::vector<std::unique_ptr<DecodingState>> states;
    for (const Translator* model : three.models()) states.push_back(model->start(batch.source));
    Tensor tokens = full({3}, 2, DType::i32);
    for (int t = 0; t < 2; ++t) {
      const Step step = all.step(tokens, *state, Want::weights);
      Tensor sum, weights;
      for (std::size_t i = 0; i < states.size(); ++i) {
        const Step one = three.models()[i]->step(tokens, *states[i], Want::weights);
        const Tensor p = to(one.log_probabilities, DType::f64), part = kind == EnsembleMean::mean ? exp(p) : p;
        sum = i == 0 ? part : sum + part;
        if (const AttentionMap* const map = last_cross_attention(one.attention))
          weights = weights.defined() ? weights + mean_of_heads(*map) : mean_of_heads(*map);
      }
      const Tensor expected = kind == EnsembleMean::mean ? log(sum * (1.0 / 3)) : log_softmax(sum * (1.0 / 3));
      CHECK(worst_absolute(step.log_probabilities, expected) < 1e-6);
      CHECK(worst_absolute(step.attention.at(0).weights.value(), weights * 0.5) < 1e-6);
      if (t > 0) continue;
      const std::vector<Index> rows{2, 2, 0, 0};                    // two hypotheses each of sentences 2 and 0
      state->reorder(rows, 2);
      for (const auto& one : states) one->reorder(rows, 2);
      tokens = tensor(std::vector<std::int32_t>{4, 5, 6, 7}, {4});
    }
  }
}

TEST_CASE("ensemble: one model alone is that model, bit for bit; several find the same alone and in company") {
  const Three three;
  const std::vector<std::string> lines{"a b c d", "b", "c d a"};
  const TranslateOptions options{.search = {.beam = 3, .nbest = 3}, .links = true};
  const Ensemble alone({three.gru.model.get()}), all(three.models());
  const auto expected = translate(three.gru.run, *three.gru.model, lines, options), same = translate(three.gru.run, alone, lines, options),
             together = translate(three.gru.run, all, lines, options);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    REQUIRE(same[i].size() == expected[i].size());
    for (std::size_t n = 0; n < same[i].size(); ++n)
      CHECK((same[i][n].tokens == expected[i][n].tokens && same[i][n].score == expected[i][n].score &&
             same[i][n].links == expected[i][n].links));
    const auto one = translate(three.gru.run, all, std::span(lines).subspan(i, 1), options);
    for (std::size_t n = 0; n < one[0].size(); ++n)
      CHECK((one[0][n].tokens == together[i][n].tokens && one[0][n].score == together[i][n].score));
  }
  // -log of the mean is below the mean of -log
  const std::vector<Example> examples{three.gru.example("a b c d", "d c b a"), three.gru.example("b", "a a b c d")};
  const std::vector<double> mixed = negative_log_likelihoods(three.gru.run, all, examples);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    double mean = 0;
    for (const Translator* model : three.models()) mean += negative_log_likelihoods(three.gru.run, *model, examples)[i] / 3;
    CHECK(mixed[i] < mean);
  }
}

TEST_CASE("ensemble: nothing, other words, another's state") {
  const Three three;
  CHECK(message_of([] { const Ensemble none({}); }) == "ensemble: no models");
  CHECK(message_of([] { const Ensemble none({nullptr}); }) == "ensemble: one of 1 models is a null pointer");
  CHECK(message_of([] { ensemble_mean_named("median"); }) == "ensemble: unknown name \"median\"; one of mean, log-mean");
  const SmallModel copying("--model gru --copy");
  const Ensemble mixed({three.gru.model.get(), copying.model.get()}), all(three.models());
  const Sequences source = batch_for(three.gru).source;
  const Tensor tokens = full({3}, 2, DType::i32);
  CHECK(message_of([&] { mixed.step(tokens, *mixed.start(source)); }) ==
        "ensemble: models write different words: log probabilities [3, 8] and [3, 13]");
  CHECK(message_of([&] { all.step(tokens, *mixed.start(source)); }) ==
        "step: a model of another kind made this state; start() of this one");
}
