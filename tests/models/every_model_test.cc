// SPDX-License-Identifier: Apache-2.0
// What holds for every kind of model that `heed train` makes.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/tape.h"
#include "models/train.h"
#include "nn/checkpoint.h"
#include "tensor/context.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/bench/measure.h"
#include "tests/close.h"
#include "tests/every_model.h"
#include "tests/models/pairs.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
using namespace heed::test;

namespace {

std::vector<Example> examples_for(const SmallModel& small) {
  std::vector<Example> examples;
  for (const auto& [source, target] : {std::pair("a b c d a", "d c b a"), std::pair("b", "a a b c d d"), std::pair("c d b", "a")})
    examples.push_back(small.example(source, target));
  return examples;
}

Batch batch_of_rows(const SmallModel& small, std::span<const Example> examples, std::span<const Index> rows) {
  return make_batch(examples, rows, small.run.target.vocabulary.pad, start_symbol(small.run.config, small.run.target.vocabulary));
}

Batch batch_for(const SmallModel& small) { return batch_of_rows(small, examples_for(small), std::array<Index, 3>{0, 1, 2}); }

// The loss, and the gradients of all parameters in `gradients`.
double loss_of(const SmallModel& small, const Batch& batch, Tape& tape) {
  small.parameters->forget_gradients();
  const Loss loss = small.model->loss(batch, {.ignore_index = small.run.target.vocabulary.pad});
  tape.backward(loss.sum);
  return loss.sum.value().item();
}

}  // namespace

TEST_CASE("every model: each parameter gets a gradient, padding changes nothing, dropout acts where the tape trains only") {
  for (const std::string& flags : every_model()) {
    CAPTURE(flags);
    const bool drops = flags.find("dropout") != flags.npos || !flags.starts_with("--model");
    const SmallModel small(flags);
    const Batch batch = batch_for(small);
    double still = 0, wide = 0, drawn[3];
    {
      Tape tape(evaluating);
      still = loss_of(small, batch, tape);
    }
    for (const auto& item : small.parameters->items()) {
      CAPTURE(item->path);
      REQUIRE(item->gradient->written());
      double most = 0;
      for (double g : doubles(item->gradient->value())) most = std::max(most, std::abs(g));
      CHECK(most > 0);
    }
    {
      Tape tape(evaluating);
      wide = loss_of(small, padded(batch, 3), tape);
    }
    CHECK(std::abs(wide - still) <= 1e-6 * std::abs(still));
    CHECK(std::abs(small.model->loss(batch, {.ignore_index = small.run.target.vocabulary.pad}).sum.value().item() - still) <=
          1e-6 * std::abs(still));
    for (const double smoothing : {0.0, 0.1})                    // options that name no padding: the model's
      CHECK(small.model->loss(batch, {.label_smoothing = smoothing}).sum.value().item() ==
            small.model->loss(batch, {.label_smoothing = smoothing, .ignore_index = small.run.target.vocabulary.pad}).sum.value().item());
    for (int i = 0; i < 3; ++i) {
      Tape tape(Key{1, std::uint64_t(i / 2)});
      drawn[i] = loss_of(small, batch, tape);
    }
    CHECK(drawn[0] == drawn[1]);
    if (drops) CHECK((drawn[0] != drawn[2] && drawn[0] != still));
  }
}

TEST_CASE("every model: saved and loaded it computes the same bits") {
  const TemporaryFolder folder;
  for (const std::string& flags : every_model()) {
    CAPTURE(flags);
    const SmallModel saved(flags), loaded(flags);
    for (const auto& item : loaded.parameters->items()) fill_(item->variable.value(), 0.25);
    save(*saved.parameters, folder / "weights");
    load(*loaded.parameters, folder / "weights");
    const Batch batch = batch_for(saved);
    CHECK(equal_bits(loaded.model->features(batch).value(), saved.model->features(batch).value()));
  }
}

namespace {

// Σ min(α, what was looked at before), by loops over the words of each sentence.
double looked_at_twice(const Tensor& weights, const Batch& batch) {
  double loss = 0;
  for (Index b = 0; b < weights.size(0); ++b) {
    std::vector<double> before(std::size_t(weights.size(2)));
    for (Index t = 0; t < Index(batch.lengths[b].item()); ++t)
      for (Index s = 0; s < weights.size(2); ++s) {
        const double a = weights[b][t][s].item();
        loss += std::min(a, before[std::size_t(s)]);
        before[std::size_t(s)] += a;
      }
  }
  return loss;
}

}  // namespace

TEST_CASE("every model: losses on attention are of the words with links and of all words, whatever the padding, and are learned") {
  for (const std::string& flags : every_model()) {
    if (flags.find("-exp") != flags.npos) continue;                                       // no probabilities: refused
    CAPTURE(flags);
    const SmallModel small(flags);
    std::vector<Example> examples = examples_for(small);
    examples[0].links.sure = {{3, 0}, {2, 1}, {1, 2}, {4, 3}, {0, 3}}, examples[1].links.sure = {{0, 2}};
    const std::array<Index, 3> rows{0, 1, 2};
    Batch batch = batch_of_rows(small, examples, rows);
    add_links(batch, examples, rows);
    CHECK(batch.linked_tokens == 5);
    struct Measured { double alignment, coverage; };
    const auto measured = [&](const Batch& of) -> Measured {
      List<AttentionMap> maps;
      small.model->loss(of, {}, &maps);
      if (maps.empty() || maps.back().kind != AttentionMap::Kind::cross) return {NAN, NAN};
      const double coverage = coverage_loss(maps.back(), of).value().item();
      CHECK(coverage == doctest::Approx(looked_at_twice(mean_of_heads(maps.back()), of)).epsilon(1e-5));
      return {alignment_loss(maps.back(), of).value().item(), coverage};
    };
    const auto [before, twice] = measured(batch);
    CHECK(std::isnan(before) == (flags.find("attention none") != flags.npos));
    const auto optimizer = make_optimizer(small.run.config, *small.parameters);
    Trainer trainer(*small.model, *small.parameters, *optimizer, Schedule({.peak = 0.01}), {.guided_alignment = 2, .coverage_loss = 0.1});
    if (std::isnan(before)) {
      CHECK(message_of([&] {
              trainer.update({&batch, 1});
            }) == "trainer: guided_alignment, coverage_loss: the model looks at no source word");
      continue;
    }
    Batch wide = padded(batch, 3);
    add_links(wide, examples, rows);
    CHECK(std::abs(measured(wide).alignment - before) <= 1e-5 * before);
    CHECK(std::abs(measured(wide).coverage - twice) <= 1e-5 * twice);
    for (int i = 0; i < 100; ++i) trainer.update({&batch, 1});
    // beyond the top 2 nothing is learned
    const bool can_learn =
        flags.find("mean") == flags.npos && flags.find("local-m") == flags.npos && flags.find("additive-top") == flags.npos;
    if (can_learn) CHECK(measured(batch).alignment < 0.7 * before);
  }
}

namespace {

// Times that memory was asked for in a step of training that makes its two batches itself: the median of 9 steps.
double mallocs_of_step(const std::string& flags, const std::vector<Index>& rows, double guided_alignment = 0) {
  const SmallModel small(flags);
  auto examples = examples_for(small);
  examples[0].links.sure = {{3, 0}, {2, 1}};
  const auto optimizer = make_optimizer(small.run.config, *small.parameters);
  Trainer trainer(*small.model, *small.parameters, *optimizer, make_schedule(small.run.config),
                  {.loss = {.label_smoothing = 0.1, .pad = small.run.target.vocabulary.pad}, .guided_alignment = guided_alignment,
                   .coverage_loss = guided_alignment, .average = 0.9});
  std::vector<double> counts(9);
  for (int i = -3; i < int(counts.size()); ++i) {
    const long before = bench::calls().mallocs;
    Batch batches[] = {batch_of_rows(small, examples, rows), batch_of_rows(small, examples, std::span(rows).first(2))};
    if (guided_alignment > 0) add_links(batches[0], examples, rows);
    trainer.update(batches);
    if (i >= 0) counts[std::size_t(i)] = double(bench::calls().mallocs - before);
  }
  return bench::median(counts);
}

}  // namespace

TEST_CASE("every model: a steady step of training asks the system for no memory" * doctest::skip(!bench::counts_calls())) {
  const long before = bench::calls().mallocs;
  CHECK(std::make_unique<int>(1));
  CHECK(bench::calls().mallocs > before);
  for (const std::string& flags : every_model()) {
    CAPTURE(flags);
    CHECK(mallocs_of_step(flags, {0, 1, 2}) == 0);
    if (flags.find("attention none") == flags.npos) CHECK(mallocs_of_step(flags, {0, 1, 2}, 1) == 0);
  }
  const int threads_before = threads();
  set_threads(2);
  std::vector<Index> many(96);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = Index(i % 3);
  for (const char* flags :
       {"--width 64 --feed-forward 128 --layers 2", "--model lstm --attention dot --width 64 --layers 2 --input-feeding",
        "--model gru --attention additive --width 64"}) {
    CAPTURE(std::string(flags));
    CHECK(mallocs_of_step(flags, many) == 0);
  }
  set_threads(threads_before);
}

TEST_CASE("every model: special words stand where the vocabulary has them") {
  const Vocabulary usual, other({"a", "b", "<s>", "<pad>", "</s>", "<unk>", "c"});
  for (const char* name : {"transformer", "gru", "lstm"})
    for (const bool copies : {false, true}) {
      CAPTURE(name);
      RunConfig config = default_config(name);
      config.width = 8, config.heads = 2, config.feed_forward = 8, config.max_length = 12, config.copy = copies;
      Parameters parameters(Seed{3});
      const auto model = make_model(config, parameters.root(), other, other);
      const Batch batch = make_batch(std::vector<Example>{{.source = {0, 1, 4}, .target = {0, 6, 4}}, {.source = {6, 4}, .target = {4}}},
                                     other.pad, other.bos);
      const Loss loss = model->loss(batch, {}), named = model->loss(batch, {.pad = other.pad});
      CHECK(loss.sum.value().item() == named.sum.value().item());
      for (const char* table : {"*source_embedding.weight", "*target_embedding.weight"})
        for (const auto& item : parameters.select(table)) {
          CHECK(!any_true(item->variable.value()[other.pad]));
          CHECK(any_true(item->variable.value()[0]));
        }
      CHECK(message_of([&] { Parameters none(Seed{1}); make_model(config, none.root(), usual, other); }) ==
            "the vocabularies have different ids of <pad>: source 0, target 3; one id for both");
    }
}

TEST_CASE("every model: losses on attention reach every parameter that makes the weights: numeric gradient, and they are learned") {
  Batch batch = batch_of({{4, 5, 6, kEnd}, {7, kEnd}}, {{5, 6, 7, kEnd}, {8, kEnd}});
  batch.links = stack(std::vector<Tensor>{eye(4), pad(pad(eye(2), 0, 0, 2), 1, 0, 2)});          // word t belongs to source word t
  const auto loss = [&](const Seq2Seq& model) {
    List<AttentionMap> maps;
    model.features(batch, &maps);
    return alignment_loss(maps.back(), batch) + coverage_loss(maps.back(), batch) * 0.3;
  };
  for (const char* name : {"transformer", "gru", "lstm", "lstm with coverage and input feeding"}) {
    CAPTURE(name);
    const std::string kind(name);
    RunConfig config = default_config(kind.substr(0, kind.find(' ')));
    config.width = 12, config.heads = 3, config.feed_forward = 16, config.max_length = 12;
    if (kind.ends_with("feeding")) config.attention = "coverage", config.input_feeding = true;
    Parameters parameters(Seed{3}, DType::f64);
    const auto model = make_model(config, parameters.root(), kVocabulary, kVocabulary);
    std::vector<Tensor> gradients;
    {
      Tape tape(evaluating);
      tape.backward(loss(*model));
      for (const auto& item : parameters.items())
        gradients.push_back(item->gradient->written() ? item->gradient->value().clone() : zeros(item->variable.shape(), DType::f64));
      parameters.forget_gradients();
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto& item = parameters.items()[i];
      CAPTURE(item->path);
      const Tensor value = item->variable.value(), before = value.clone(),
                   direction = normal(Key(std::int64_t(i)), value.shape(), 0, 1, DType::f64);
      const auto at = [&](double h) {
        copy_into(value, before + h * direction);
        return loss(*model).value().item();
      };
      const double h = 1e-5, difference = (at(h) - at(-h)) / (2 * h), tape = sum(gradients[i] * direction).item();
      copy_into(value, before);
      CHECK(std::abs(tape - difference) < 1e-6 * std::max(1.0, std::abs(difference)));
    }
    const double first = loss(*model).value().item();
    Adam adam(parameters, {.learning_rate = 0.01});
    for (int i = 0; i < 150; ++i) {
      Tape tape(evaluating);
      tape.backward(loss(*model));
      adam.step();
    }
    CHECK(loss(*model).value().item() < 0.2 * first);
  }
}
