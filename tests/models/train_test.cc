// SPDX-License-Identifier: Apache-2.0
#include "models/train.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "tests/close.h"
#include "tests/models/pairs.h"
#include "tests/thrown.h"

using namespace heed;
using namespace heed::test;

namespace {

// The loss of a sentence is w times its first word's number; that of word 9 is infinite.
struct Slope : Seq2Seq {
  explicit Slope(Parameters& parameters) : w(parameters.root().parameter("w", {}, constant_init(1))) {}
  Loss loss(const Batch& batch, const CrossEntropyOptions&, List<AttentionMap>*) const override {
    Loss loss{.sum = w.variable() * 0.0, .tokens = batch.target_tokens};
    for (Index b = 0; b < batch.source.size(); ++b) {
      const double word = batch.source.ids(b, 0).item();
      loss.sum = loss.sum + w.variable() * (word == 9 ? HUGE_VAL : word);
    }
    return loss;
  }
  Variable features(const Batch&, List<AttentionMap>*, Variable*) const override { return {}; }
  const Linear& output_layer() const override { throw Error("no output layer"); }
  Variable next_features(const Tensor&, DecodingState&, List<AttentionMap>*) const override { return {}; }
  Encoding encode(const Sequences&) const override { return {}; }
  Index encoder_width() const override { return 0; }
  Step step(const Tensor&, DecodingState&, Want) const override { return {}; }
  Parameter w;
};

Batch of_word(std::int32_t word, int targets = 1) {
  Rows target{std::vector<std::int32_t>(std::size_t(targets - 1), 4)};
  target[0].push_back(kEnd);
  return batch_of({{word, kEnd}}, target);
}

}  // namespace

TEST_CASE("trainer: an update that is not finite changes no weight and leaves no gradient behind") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  SGD sgd(parameters, {});
  Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0});
  const Batch good = of_word(5), bad = of_word(9);
  CHECK(trainer.update(std::vector{good, bad}).skipped);
  CHECK(model.w.value().item() == 1);
  CHECK(trainer.skipped() == 1);
  const Trainer::Report next = trainer.update({&good, 1});
  CHECK_FALSE(next.skipped);
  CHECK(next.gradient_norm == 5);
  CHECK(model.w.value().item() == -4);
  CHECK(trainer.step() == 2);
  const DetectAnomaly named;
  CHECK_THROWS_WITH_AS(trainer.update({&bad, 1}), doctest::Contains("update 3: "), NumericError);
  CHECK(trainer.step() == 2);
}

TEST_CASE("trainer: gradients of parameters that the optimiser does not have do not add up") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  const Parameter other = parameters.root().parameter("other", {}, constant_init(1));
  SGD sgd(parameters.select("other"), {});
  Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0});
  const Batch batch = of_word(5);
  for (int i = 0; i < 3; ++i) CHECK(trainer.update({&batch, 1}).gradient_norm == 5);
}

TEST_CASE("trainer: micro-batches count by their tokens") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  SGD sgd(parameters, {});
  Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0});
  CHECK(trainer.update(std::vector{of_word(8), of_word(4, 3)}).loss == 3);               // (8 + 4) / (1 + 3)
  CHECK(model.w.value().item() == -2);
}

TEST_CASE("trainer: losses on attention count by the targets with links, and by all, of all micro-batches") {
  // α = (2/3, 1/3) of two source words, whatever w is
  struct Looks : Slope {
    using Slope::Slope;
    Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const override {
      const Variable e = w.variable() * constant(tensor({std::log(2.0), 0}, DType::f64));
      if (maps) maps->push_back({AttentionMap::Kind::cross, 0, expand(softmax(e), {1, batch.targets.size(1), 2})});
      if (maps) maps->push_back({AttentionMap::Kind::decoder, 0, {}});
      return Slope::loss(batch, options, maps);
    }
  };
  const auto linked = [](Batch batch, std::vector<Link> links) {
    const std::vector<Example> one{{.source = {5, kEnd},
                                    .target = std::vector<std::int32_t>(std::size_t(batch.targets.size(1)), kEnd),
                                    .links = {std::move(links), {}}}};
    add_links(batch, one, std::array<Index, 1>{0});
    return batch;
  };
  const std::vector<Batch> batches{linked(of_word(8, 3), {{0, 0}, {1, 1}}), of_word(4), linked(of_word(4, 4), {{0, 2}, {1, 2}})};
  const double first = -std::log(2 / 3.0), second = -std::log(1 / 3.0);
  for (const auto& [lambda, coverage] : {std::pair(0.0, 0.0), std::pair(0.5, 0.0), std::pair(0.5, 0.25), std::pair(0.0, 2.0)}) {
    Parameters parameters(Seed{1}, DType::f64);
    const Looks model(parameters);
    SGD sgd(parameters, {});
    Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0, .guided_alignment = lambda, .coverage_loss = coverage});
    const Trainer::Report report = trainer.update(batches);
    CHECK(report.loss == 2);                                                             // (8 + 4 + 4) / (3 + 1 + 4)
    CHECK(report.alignment_loss == doctest::Approx(lambda > 0 ? (first + second + (first + second) / 2) / 3 : 0).epsilon(1e-12));
    // 1 for each word but a sentence's first
    CHECK(report.coverage_loss == doctest::Approx(coverage > 0 ? (2 + 0 + 3) / 8.0 : 0).epsilon(1e-12));
    // d(-ln α_0)/dw = -ln 2 α_1, d(-ln α_1)/dw = ln 2 α_0
    const double guided = std::log(2.0) * (-1 / 3.0 + 2 / 3.0 + (-1 / 3.0 + 2 / 3.0) / 2) / 3;
    CHECK(model.w.value().item() == doctest::Approx(1 - 2 - lambda * guided).epsilon(1e-12));
  }
}

TEST_CASE("trainer: losses on attention: a linked word without any weight costs ln 10^6 and pulls at none") {
  Batch batch = of_word(5);
  batch.links = tensor({{{0.25, 0.75}}}, DType::f64);
  const Variable weights = variable(tensor({{{0, 1}}}, DType::f64));
  Tape tape(evaluating);
  const Variable loss = alignment_loss({AttentionMap::Kind::cross, 0, weights}, batch);
  CHECK(loss.value().item() == doctest::Approx(0.25 * std::log(1e6)).epsilon(1e-12));
  tape.backward(loss);
  CHECK(doubles(weights.grad()) == std::vector<double>{0, -0.75});
}

TEST_CASE("trainer: losses on attention: that of coverage by its weight") {
  struct LooksBack : Slope {                                                             // α_0 = (2/3, 1/3), α_1 = (1/2, 1/2)
    using Slope::Slope;
    Loss loss(const Batch& batch, const CrossEntropyOptions& options, List<AttentionMap>* maps) const override {
      const Variable first = softmax(w.variable() * constant(tensor({std::log(2.0), 0}, DType::f64)));
      if (maps)
        maps->push_back({AttentionMap::Kind::cross, 0, concat({expand(first, {1, 1, 2}), constant(full({1, 1, 2}, 0.5, DType::f64))}, 1)});
      return Slope::loss(batch, options, maps);
    }
  };
  Parameters parameters(Seed{1}, DType::f64);
  const LooksBack model(parameters);
  SGD sgd(parameters, {});
  Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0, .coverage_loss = 3});
  const Batch batch = of_word(5, 2);
  CHECK(trainer.update({&batch, 1}).coverage_loss == doctest::Approx((1 / 2.0 + 1 / 3.0) / 2).epsilon(1e-12));
  // d(1/3)/dw = -ln 2 · 2/9
  CHECK(model.w.value().item() == doctest::Approx(1 - 5 / 2.0 + 3 * std::log(2.0) * (2 / 9.0) / 2).epsilon(1e-12));
}

TEST_CASE("trainer: the gradient of all micro-batches together is clipped, once") {
  for (const double clip : {0.0, 1.0, 100.0}) {
    Parameters parameters(Seed{1}, DType::f64);
    const Slope model(parameters);
    SGD sgd(parameters, {});
    Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = clip});
    CHECK(trainer.update(std::vector{of_word(8), of_word(4, 3)}).gradient_norm == 3);
    CHECK(model.w.value().item() == doctest::Approx(clip == 1 ? 0 : -2).epsilon(1e-6));
  }
}

TEST_CASE("trainer: each micro-batch of each update drops others, by the seed") {
  struct Masked : Slope {                                                                // its gradient is the mask of its dropout, times 2
    explicit Masked(Parameters& parameters) : Slope(parameters), many(parameters.root().parameter("many", {64}, constant_init(0))) {}
    Loss loss(const Batch& batch, const CrossEntropyOptions&, List<AttentionMap>*) const override {
      return {heed::sum(dropout(many.variable(), 0.5)), batch.target_tokens};
    }
    Parameter many;
  };
  const auto updates = [](std::uint64_t seed, std::size_t micro_batches) {              // the weights after one and after two
    Parameters parameters(Seed{1}, DType::f64);
    const Masked model(parameters);
    SGD sgd(parameters, {});
    Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0, .seed = seed});
    std::vector<std::vector<double>> after;
    for (int step = 0; step < 2; ++step) {
      trainer.update(std::vector(micro_batches, of_word(5)));
      after.push_back(model.many.value().to_vector<double>());
    }
    return after;
  };
  const auto one = updates(1, 1);
  CHECK(one == updates(1, 1));
  CHECK(one != updates(2, 1));
  const auto has = [](const std::vector<double>& x, double value) { return std::find(x.begin(), x.end(), value) != x.end(); };
  CHECK_FALSE(has(one[0], -1));                                                         // 0 or -2
  CHECK(has(one[1], -2));                                                               // dropped once, kept once
  CHECK(has(updates(1, 2)[0], -1));                                                     // the same of micro-batches
}

TEST_CASE("trainer: averages of the weights, with a decay that rises to its value") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  SGD sgd(parameters, {});
  Trainer trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0, .average = 0.4});
  const Batch batch = of_word(5);
  double w = 1, average = 0;
  for (int t = 1; t <= 12; ++t) {
    trainer.update({&batch, 1});
    w -= 5;
    const double decay = std::min(0.4, (1.0 + t) / (10.0 + t));
    average = t == 1 ? w : decay * average + (1 - decay) * w;
    CHECK(trainer.average()->state().at("w").item() == doctest::Approx(average).epsilon(1e-12));
  }
  CHECK(model.w.value().item() == w);
  const auto tensors = trainer.tensors();
  const auto scalars = trainer.scalars();
  const double moved = trainer.average()->state().at("w").item();
  {
    const WeightAverage::InPlace use(*trainer.average());                     // refused before anything changes
    CHECK(message_of([&] { trainer.update({&batch, 1}); }) ==
          "weight average: update() while the averages are in place of the weights");
    CHECK(message_of([&] { trainer.restore(tensors, scalars); }) ==
          "trainer: restore() while the averages are in place of the weights");
    CHECK((trainer.step() == 12 && model.w.value().item() == moved));
  }
  CHECK((model.w.value().item() == w && trainer.average()->state().at("w").item() == moved));
}

TEST_CASE("mean_weights: the mean of each weight, in f64") {
  const auto of = [](float a, float b) {
    return std::map<std::string, Tensor>{{"a", tensor(std::vector<float>{a, 3}, {2})}, {"b", tensor(std::vector<float>{b}, {})}};
  };
  const auto mean = mean_weights(std::vector{of(1, 1e8f), of(2, 1), of(6, -1e8f)});
  CHECK(mean.at("a").to_vector<float>() == std::vector<float>{3, 3});
  CHECK(mean.at("b").item() == doctest::Approx(1.0 / 3).epsilon(1e-7));                  // 0 in f32
}

TEST_CASE("trainer: a state of updates that were all skipped is taken, although it has no averages") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  SGD sgd(parameters, {});
  const auto trainer = [&] { return Trainer(model, parameters, sgd, Schedule({.peak = 1}), {.clip = 0, .average = 0.9}); };
  Trainer first = trainer(), second = trainer();
  const Batch bad = of_word(9), good = of_word(5);
  CHECK(first.update({&bad, 1}).skipped);
  second.restore(first.tensors(), first.scalars());
  CHECK(second.step() == 1);
  CHECK(second.skipped() == 1);
  CHECK_FALSE(second.update({&good, 1}).skipped);
  CHECK_THROWS_WITH_AS(first.restore(first.tensors(), second.scalars()), "weight average: the state has no w that is f64 []", FileError);
}

TEST_CASE("mean_weights: of other weights there is none") {
  const Tensor x = ones({2});
  CHECK_THROWS_AS(mean_weights(std::vector<std::map<std::string, Tensor>>{{{"a", x}}, {{"a", x}, {"b", x}}}), FileError);
  CHECK_THROWS_AS(mean_weights(std::vector<std::map<std::string, Tensor>>{{{"a", x}, {"b", x}}, {{"a", x}}}), FileError);
}

TEST_CASE("loss: the mean over no tokens is 0") {
  CHECK(Loss{.sum = constant(tensor(0)), .tokens = 0}.mean().value().item() == 0);
  CHECK(Loss{.sum = constant(tensor(6)), .tokens = 4}.mean().value().item() == 1.5);
}

TEST_CASE("trainer: a plateau goes on from a state as if nothing had been between") {
  Parameters parameters(Seed{1}, DType::f64);
  const Slope model(parameters);
  SGD sgd(parameters, {});
  const auto trainer = [&] {
    return Trainer(model, parameters, sgd, Schedule({.kind = Schedule::Kind::plateau, .peak = 1, .patience = 1}), {.clip = 0});
  };
  Trainer first = trainer(), second = trainer();
  for (const double score : {3.0, 2.0, 2.0, 2.0}) first.observe(score);      // falls at the third, waits at the fourth
  second.restore(first.tensors(), first.scalars());
  const Batch batch = of_word(5);
  for (Trainer* each : {&first, &second}) {
    each->observe(2.5);
    CHECK(each->update({&batch, 1}).learning_rate == 0.25);
    CHECK(sgd.learning_rate() == 0.25);
  }
}
