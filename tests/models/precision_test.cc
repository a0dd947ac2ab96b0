// SPDX-License-Identifier: Apache-2.0
// Mixed precision: updates whose products take their factors in bfloat16.
#include <doctest/doctest.h>

#include <cmath>

#include "models/search.h"
#include "models/train.h"
#include "models/transformer.h"
#include "tensor/test_hooks.h"
#include "tests/bfloat16.h"
#include "tests/every_target.h"
#include "tests/models/pairs.h"

using namespace heed;
using namespace heed::test;

namespace {

struct Learner {
  Parameters parameters{Seed{1}};
  TranslationModel model;
  Adam adam;
  Trainer trainer;

  explicit Learner(Precision precision, double dropout = 0, double smoothing = 0)
      : model(parameters.root(), {.source_vocabulary = kVocabulary,
                                  .target_vocabulary = kVocabulary,
                                  .core = {.width = 32, .heads = 4, .feed_forward = 64, .encoder_layers = 2, .decoder_layers = 2,
                                           .dropout = dropout},
                                  .max_positions = 80}),
        adam(parameters, {.beta2 = 0.98}),
        trainer(model, parameters, adam, Schedule({.kind = Schedule::Kind::inverse_sqrt, .peak = 3e-3, .warmup = 20}),
                {.loss = {.label_smoothing = smoothing, .ignore_index = kPad}, .average = 0.9, .precision = precision}) {}

  std::vector<float> weights() const {
    std::vector<float> all;
    for (const auto& item : parameters.items()) {
      const auto values = item->variable.value().to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

const Rows& sources() {
  static const Rows rows = random_rows(Key(Seed{1}), 10, 6);
  return rows;
}
const Rows& targets() {
  static const Rows rows = random_rows(Key(Seed{2}), 10, 6);
  return rows;
}

}  // namespace

TEST_CASE("mixed precision: a Transformer learns as fast as in float32, its weights stay float32") {
  if (!bfloat16_there()) return;
  const Batch batch = batch_of(sources(), targets());
  Learner plain(Precision::float32), mixed(Precision::bfloat16), smooth_plain(Precision::float32, 0, 0.1),
      smooth_mixed(Precision::bfloat16, 0, 0.1);
  double loss = 0, mixed_loss = 0;
  for (int i = 0; i < 150; ++i) {
    loss = plain.trainer.update({&batch, 1}).loss;
    mixed_loss = mixed.trainer.update({&batch, 1}).loss;
    if (i < 20) CHECK(std::abs(mixed_loss - loss) < 0.02 * loss);   // factors are off by 2^-9 at most
  }
  CHECK(loss < 0.01);
  CHECK(mixed_loss < 0.01);
  CHECK(plain.weights() != mixed.weights());
  const auto answers = search(mixed.model, sources(), {.pad = kPad, .start = kStart, .eos = kEnd});
  for (std::size_t i = 0; i < sources().size(); ++i)
    CHECK(answers[i][0].ids == std::vector<std::int32_t>(targets()[i].begin(), targets()[i].end() - 1));
  for (const auto& item : mixed.parameters.items()) CHECK(item->variable.value().dtype() == DType::f32);
  for (const auto& [name, value] : mixed.trainer.tensors()) CHECK(value.dtype() != DType::bf16);

  for (int i = 0; i < 150; ++i) {
    loss = smooth_plain.trainer.update({&batch, 1}).loss;
    mixed_loss = smooth_mixed.trainer.update({&batch, 1}).loss;
  }
  CHECK(std::abs(mixed_loss - loss) < 0.01 * loss);   // both near the entropy of the smoothed targets
  // the guard ends with the update
  CHECK(product_precision() == Precision::float32);
}

TEST_CASE("mixed precision: the same bits for 1, 2 and 3 threads, and after going on from the state of a trainer") {
  if (!bfloat16_there()) return;
  const Batch batch = batch_of(sources(), targets());
  std::vector<float> first;
  for_threads([&] {
    Learner learner(Precision::bfloat16, 0.2, 0.1);
    for (int i = 0; i < 6; ++i) learner.trainer.update({&batch, 1});
    if (first.empty()) first = learner.weights();
    CHECK(learner.weights() == first);
  });
  Learner before(Precision::bfloat16, 0.2, 0.1), after(Precision::bfloat16, 0.2, 0.1);
  for (int i = 0; i < 3; ++i) before.trainer.update({&batch, 1});
  for (const auto& item : after.parameters.items())
    for (const auto& other : before.parameters.items())
      if (item->path == other->path) copy_into(item->variable.value(), other->variable.value());
  after.trainer.restore(before.trainer.tensors(), before.trainer.scalars());
  for (int i = 0; i < 3; ++i) after.trainer.update({&batch, 1});
  CHECK(after.weights() == first);
}

TEST_CASE("mixed precision: what a trainer refuses") {
  CHECK_THROWS_WITH_AS(Learner{Precision::int8}, "product precision: int8 is for inference; float32 or bfloat16", Error);
  hide_bfloat16_products(true);
  CHECK_THROWS_WITH_AS(Learner{Precision::bfloat16}, "product precision: bfloat16 needs AVX512-BF16, which this processor lacks; float32",
                       Error);
  hide_bfloat16_products(false);
}
