// SPDX-License-Identifier: Apache-2.0
#include "models/transformer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "autograd/tape.h"
#include "autograd/trace.h"
#include "models/search.h"
#include "models/train.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/models/pairs.h"

using namespace heed;
using namespace heed::test;

namespace {

TranslationModel::Options small(NormAt norm = NormAt::after, Tie tie = Tie::none, Positions positions = Positions::sinusoidal) {
  return {.source_vocabulary = kVocabulary,
          .target_vocabulary = kVocabulary,
          .core = {.width = 16, .heads = 4, .feed_forward = 24, .encoder_layers = 2, .decoder_layers = 2, .dropout = 0.1, .norm = norm},
          .tie = tie,
          .positions = positions,
          .max_positions = 80};
}

const CrossEntropyOptions kLoss{.label_smoothing = 0.1, .ignore_index = kPad};

}  // namespace

TEST_CASE("transformer: a later target word changes no earlier feature, padding changes nothing") {
  for (NormAt norm : {NormAt::after, NormAt::before}) {
    Parameters parameters(Seed{1}, DType::f64);
    const TranslationModel model(parameters.root(), small(norm));
    const Rows source = random_rows(Key(Seed{1}), 3, 6);
    Rows target = random_rows(Key(Seed{2}), 3, 7);
    target[0] = {5, 6, 7, 8, 9, kEnd};
    const Batch batch = batch_of(source, target);
    const Tensor before = model.features(batch).value();
    target[0][3] = 4;   // read at position 4
    const Tensor after = model.features(batch_of(source, target)).value();
    CHECK(worst_absolute(before[0](Slice{0, 4}), after[0](Slice{0, 4})) == 0);
    CHECK(worst_absolute(before[0][4], after[0][4]) > 1e-6);
    CHECK(worst_absolute(before[1], after[1]) == 0);

    const Batch wide = padded(batch, 5);
    CHECK(worst_absolute(model.features(wide).value()(all, Slice{0, batch.inputs.size(1)})(2, Slice{0, 2}), before(2, Slice{0, 2})) <
          1e-12);
    CHECK(std::abs(model.loss(wide, kLoss).sum.value().item() - model.loss(batch, kLoss).sum.value().item()) < 1e-9);
  }
}

TEST_CASE("transformer: dropout of embeddings and sublayers only, of weights and activations where it is asked for") {
  CHECK(TransformerOptions().attention_dropout == 0);
  CHECK(TransformerOptions().activation_dropout == 0);
  Parameters parameters(Seed{1});
  TransformerOptions options = small().core;
  options.dropout = 0.1, options.attention_dropout = 0.2, options.activation_dropout = 0.3;
  const Transformer core(parameters.root(), options);
  const TransformerEncoderLayer& reader = core.encoder.layers[1];
  const TransformerDecoderLayer& writer = core.decoder.layers[1];
  for (const Residual* residual : {&reader.residual1, &reader.residual2, &writer.residual1, &*writer.residual2, &writer.residual3})
    CHECK(residual->dropout == 0.1);
  for (const MultiHeadAttention* attention : {&reader.self_attn, &writer.self_attn, &*writer.multihead_attn})
    CHECK(attention->dropout == 0.2);
  for (const FeedForward* inner : {&reader.feed_forward, &writer.feed_forward}) CHECK(inner->dropout == 0.3);
}

TEST_CASE("transformer: options of positions and norms reach all layers") {
  Parameters parameters(Seed{1});
  TransformerOptions options = small(NormAt::before).core;
  options.positions = Positions::t5, options.eps = 0.25;
  const Transformer core(parameters.root(), options);
  const TransformerEncoderLayer& reader = core.encoder.layers[1];
  const TransformerDecoderLayer& writer = core.decoder.layers[1];
  for (const MultiHeadAttention* attention : {&reader.self_attn, &writer.self_attn, &*writer.multihead_attn})
    CHECK(attention->scale == 1);
  const auto eps = [](const Norm& norm) { return std::get<LayerNorm>(norm.form).eps; };
  for (const Residual* residual : {&reader.residual1, &reader.residual2, &writer.residual1, &*writer.residual2, &writer.residual3})
    CHECK(eps(residual->norm) == 0.25);
  for (const auto* norm : {&core.encoder.norm, &core.decoder.norm}) CHECK(eps(**norm) == 0.25);
}

TEST_CASE("transformer: keys and values of the sources are computed once a sentence") {
  Parameters parameters(Seed{1});
  const TranslationModel model(parameters.root(), small());
  const auto projections = [](const Trace& trace) {
    Index count = 0;
    for (const Trace::Entry& entry : trace.entries())
      count += entry.path.find("multihead_attn") != std::string::npos && (entry.name == "keys" || entry.name == "values");
    return count;
  };
  const Trace once;
  const auto state = model.start(pad_sequences(Rows{{4, 5, kEnd}, {6, kEnd}}, kPad));
  CHECK(projections(once) == 4);                                                    // of both layers
  for (int step = 0; step < 3; ++step) {
    const Trace trace;
    model.step(tensor(std::vector<std::int32_t>{kStart, kStart}, {2}), *state);
    CHECK(projections(trace) == 0);
  }
}

TEST_CASE("transformer: initial values: words as strong as positions, Glorot for each projection or for the packed three") {
  for (const bool packed : {false, true}) {
    TranslationModel::Options options = small();
    options.source_vocabulary = 300, options.core.width = 64, options.core.packed_qkv_init = packed;
    const double d = 64, F = double(options.core.feed_forward), V = double(kVocabulary);
    Parameters parameters(Seed{1}, DType::f64);
    const TranslationModel model(parameters.root(), options);
    for (const auto& item : parameters.items()) {
      CAPTURE(item->path);
      const auto ends = [&](std::string_view name) { return item->path.ends_with(name); };
      const double largest = max(abs(item->variable.value())).item();
      const double fans = ends("in_proj_weight")                             ? (packed ? 4 * d : 2 * d)
                          : ends("out_proj.weight")                          ? 2 * d
                          : ends("linear1.weight") || ends("linear2.weight") ? d + F
                          : ends("output.weight")                            ? d + V
                                                                             : 0;
      if (fans > 0) CHECK(largest <= std::sqrt(6 / fans));
      if (fans > 0) CHECK(largest > 0.98 * std::sqrt(6 / fans));
      if (ends("bias")) CHECK(largest == 0);
    }
    const Tensor words = model.source_embedding(arange(0, 300)).value();             // √d E
    CHECK(mean(square(words(Slice{1, 300}))).item() == doctest::Approx(1).epsilon(0.05));
    CHECK(mean(square(sinusoids(50, 64, DType::f64))).item() == doctest::Approx(0.5));
    CHECK(equal_bits(words[kPad], zeros({64}, DType::f64)));
  }
}

TEST_CASE("transformer: stacks end in a norm where the norms stand before, or always") {
  for (const auto& [norm, final_norm, there] : {std::tuple(NormAt::before, FinalNorm::automatic, true),
                                                {NormAt::after, FinalNorm::automatic, false},
                                                {NormAt::after, FinalNorm::always, true}}) {
    Parameters parameters(Seed{1});
    const Transformer core(
        parameters.root(),
        {.width = 8, .heads = 2, .feed_forward = 8, .encoder_layers = 1, .decoder_layers = 1, .norm = norm, .final_norm = final_norm});
    for (const char* path : {"encoder.norm.weight", "decoder.norm.weight"}) CHECK((parameters.find(path) != nullptr) == there);
    CHECK(core.encoder.norm.has_value() == there);
  }
}

TEST_CASE(
    "transformer: base and big are those of the paper (table 3: 65 and 213 million parameters with one vocabulary of about 37,000 "
    "pieces)") {
  const auto parameters_of = [](TransformerOptions core) {
    CHECK((core.encoder_layers == 6 && core.decoder_layers == 6));
    core.encoder_layers = core.decoder_layers = 1;   // the six of a stack are alike
    Parameters parameters(Seed{1});
    const TranslationModel model(parameters.root(),
                                 {.source_vocabulary = 37000, .target_vocabulary = 37000, .core = core, .tie = Tie::all});
    return parameters.count() + 5 * parameters.select("core.*").count();
  };
  const TransformerOptions base = TranslationModel::Options::base(), big = TranslationModel::Options::big();
  CHECK((base.heads == 8 && base.dropout == 0.1 && big.heads == 16 && big.dropout == 0.3));
  CHECK(parameters_of(base) == 63'082'496);
  CHECK(parameters_of(big) == 214'245'376);
}

TEST_CASE("transformer: the loss equals cross-entropy of the logits, by definition") {
  Parameters parameters(Seed{3}, DType::f64);
  const TranslationModel model(parameters.root(), small());
  const Batch batch = batch_of(random_rows(Key(Seed{1}), 4, 5), random_rows(Key(Seed{2}), 4, 5));
  const Tensor p = log_softmax(model.logits(model.features(batch)).value());   // [B, T, V]
  double sum = 0;
  for (Index b = 0; b < 4; ++b)
    for (Index t = 0; t < batch.targets.size(1); ++t) {
      const auto y = Index(batch.targets(b, t).item());
      if (y != kPad) sum -= p(b, t, y).item();
    }
  const Loss loss = model.loss(batch, {.ignore_index = kPad});
  CHECK(loss.sum.value().item() == doctest::Approx(sum).epsilon(1e-12));
  CHECK(loss.tokens == batch.target_tokens);
}

TEST_CASE("transformer: every parameter gets a gradient, tied ones once") {
  for (Tie tie : {Tie::none, Tie::output, Tie::all})
    for (Positions positions : {Positions::sinusoidal, Positions::learned}) {
      Parameters parameters(Seed{5});
      const TranslationModel model(parameters.root(), small(NormAt::before, tie, positions));
      const Batch batch = batch_of(random_rows(Key(Seed{1}), 8, 6), random_rows(Key(Seed{2}), 8, 6));
      Tape tape(Key{1, 1});
      tape.backward(model.loss(batch, kLoss).sum);
      for (const auto& item : parameters.items()) {
        CAPTURE(item->path);
        REQUIRE(item->gradient->written());
        CHECK(max(abs(item->gradient->value())).item() > 0);
      }
      if (positions == Positions::sinusoidal) {
        const Index embeddings = (tie == Tie::all      ? 1
                                  : tie == Tie::output ? 2
                                                       : 3) *
                                     kVocabulary * 16 +
                                 (tie == Tie::none ? kVocabulary : 0);
        CHECK(parameters.select("core.*").count() + embeddings == parameters.count());
      }
    }
}

TEST_CASE("transformer: decoding step by step equals teacher forcing, and rows follow their beam") {
  Parameters parameters(Seed{7}, DType::f64);
  const TranslationModel model(parameters.root(), small());
  const Rows source = random_rows(Key(Seed{1}), 3, 6), target = {{5, 6, 7, kEnd}, {8, 9, 10, kEnd}, {4, 5, 4, kEnd}};
  const Batch batch = batch_of(source, target);
  const Tensor forced = log_softmax(model.logits(model.features(batch)).value());
  const auto after = [&](Index steps) {
    auto state = model.start(batch.source);
    for (Index t = 0; t < steps; ++t) {
      const Step step = model.step(batch.inputs(all, t).contiguous(), *state);
      for (Index b = 0; b < 3; ++b) CHECK(worst_absolute(step.log_probabilities[b], forced(b, t)) < 1e-12);
    }
    return state;
  };
  after(4);
  const auto state = after(2);   // then sentence 1 is dropped, the others change places, two rows each
  const std::vector<Index> rows{2, 2, 0, 0};
  state->reorder(rows, 2);
  const Step next = model.step(tensor(std::vector<std::int32_t>{5, 4, 6, 7}, {4}), *state);
  CHECK(worst_absolute(next.log_probabilities[0], forced(2, 2)) < 1e-12);
  CHECK(worst_absolute(next.log_probabilities[2], forced(0, 2)) < 1e-12);
  CHECK(worst_absolute(next.log_probabilities[1], forced(2, 2)) > 1e-6);
}

TEST_CASE("transformer: a memory that the second layer refuses leaves every cache as it was") {
  Parameters parameters(Seed{7});
  const TransformerDecoder decoder(parameters.root(), {.width = 8, .heads = 2, .feed_forward = 8, .decoder_layers = 2});
  const Variable x = constant(normal(Key(1), {2, 1, 8}));
  const List<Memory> memories = decoder.prepare(constant(normal(Key(2), {2, 3, 8})), {});
  std::vector<KeyValueCache> caches;
  for (const TransformerDecoderLayer& layer : decoder.layers) caches.push_back(layer.self_attn.cache(2, 4));
  const Tensor once = decoder.next(x, memories, caches).value();
  const Memory narrow{constant(zeros({2, 2, 3, 5})), memories[1].values, {}};
  const std::vector<Memory> refused{memories[0], narrow};
  CHECK_THROWS_AS(decoder.next(x, refused, caches), ShapeError);
  for (const KeyValueCache& cache : caches) CHECK(cache.length() == 1);
  CHECK_THROWS_AS(decoder.layers[1].next(x, &narrow, caches[1]), ShapeError);
  KeyValueCache three = decoder.layers[1].self_attn.cache(3, 4);
  CHECK_THROWS_WITH_AS(decoder.layers[1].next(constant(zeros({3, 1, 8})), &memories[1], three),
                       doctest::Contains("next takes one position of rows in groups of like size, one a sentence: x [3, 1, 8], sentences 2"),
                       ShapeError);
  CHECK(caches[1].length() == 1);
  caches[1].truncate(0);
  CHECK_THROWS_WITH_AS(decoder.next(x, memories, caches),
                       "transformer decoder: the caches of its layers hold different numbers of positions: 1 and others", Error);
  for (KeyValueCache& cache : caches) cache.truncate(0);
  CHECK(equal_bits(decoder.next(x, memories, caches).value(), once));
}

TEST_CASE("transformer: rows of a state go on in whole groups of one sentence, or nothing changes; no sentence may be left") {
  Parameters parameters(Seed{7}, DType::f64);
  const TranslationModel model(parameters.root(), small());
  const Sequences source = pad_sequences(Rows{{4, 5, kEnd}, {4, kEnd}}, kPad);
  const auto state = model.start(source), fresh = model.start(source);
  const auto reorder = [&](DecodingState& s, std::vector<Index> rows, Index per_sentence) { s.reorder(rows, per_sentence); };
  const Tensor first = tensor({kStart, kStart}, DType::i32), words = tensor({5, 8}, DType::i32);
  model.step(first, *state), model.step(first, *fresh);
  CHECK_THROWS_WITH_AS(reorder(*state, {0, 1}, 2), "reorder: rows 0 and 1 in one group belong to sentences 0 and 1", Error);
  CHECK_THROWS_WITH_AS(reorder(*state, {0, 0, 1}, 2), "reorder: 3 rows are no groups of 2", Error);
  CHECK_THROWS_WITH_AS(reorder(*state, {1, 2}, 1), "reorder: row 2 is not in [0, 2)", IndexError);
  CHECK(equal_bits(model.step(words, *state).log_probabilities, model.step(words, *fresh).log_probabilities));
  for (int i = 0; i < 2; ++i) {
    reorder(*state, {}, 2);
    CHECK(model.step(zeros({0}, DType::i32), *state).log_probabilities.shape() == Shape{0, kVocabulary});
  }
}

TEST_CASE("search: beam 1 is greedy by definition; results do not depend on batch, order or threads; n-best is sorted and distinct") {
  Parameters parameters(Seed{9});
  const TranslationModel model(parameters.root(), small());
  const Rows sources = random_rows(Key(Seed{4}), 40, 20);
  SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .extra_length = 6};
  const auto greedy = search(model, sources, options);
  for (std::size_t i = 0; i < 10; ++i) {   // argmax over full recomputation
    std::vector<std::int32_t> ids;
    double log_probability = 0;
    const Index longest = Index(sources[i].size()) - 1 + 6;
    bool ended = false;
    while (Index(ids.size()) < longest && !ended) {
      std::vector<std::int32_t> target = ids;
      target.push_back(kEnd);
      const Tensor p = log_softmax(model.logits(model.features(batch_of({sources[i]}, {target}))).value())(0, -1);
      std::int32_t best = -1;
      for (std::int32_t w = 0; w < kVocabulary; ++w)
        if (w != kPad && w != kStart && (best < 0 || p[w].item() > p[best].item())) best = w;
      log_probability += p[best].item();
      ended = best == kEnd;
      if (!ended) ids.push_back(best);
    }
    CHECK(greedy[i][0].ids == ids);
    CHECK(greedy[i][0].finished == ended);
    CHECK(greedy[i][0].log_probability == doctest::Approx(log_probability).epsilon(1e-5));
  }
  options.attention = true, options.coverage = 0.2;
  for (Index beam : {1, 4}) {
    options.beam = options.nbest = beam;
    const auto together = search(model, sources, options);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      SearchOptions single = options;
      single.batch = 1;
      const auto alone = search(model, std::span(sources).subspan(i, 1), single);
      REQUIRE(alone[0].size() == together[i].size());
      for (std::size_t n = 0; n < alone[0].size(); ++n) {
        CHECK(alone[0][n].ids == together[i][n].ids);
        CHECK(alone[0][n].score == together[i][n].score);   // bit for bit
        CHECK(alone[0][n].attention == together[i][n].attention);
        if (n > 0) {
          CHECK(alone[0][n].score <= alone[0][n - 1].score);
          CHECK(alone[0][n].ids != alone[0][n - 1].ids);
        }
      }
    }
  }
  const Tape tape(Key(Seed{5}));   // dropout does not act
  for_threads([&] {
    const auto again = search(model, sources, options);
    for (std::size_t i = 0; i < sources.size(); ++i)
      CHECK(again[i][0].score == search(model, std::span(sources).subspan(i, 1), options)[0][0].score);
  });
}

TEST_CASE("search: every thread multiplies in the caller's precision") {
  if (!has_bfloat16_products()) return;
  Parameters parameters(Seed{9});
  const TranslationModel model(parameters.root(), small());
  const Rows sources = random_rows(Key(Seed{4}), 48, 9);
  const SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .extra_length = 4, .batch = 16};
  const auto total = [&] {
    double sum = 0;
    for (const auto& best : search(model, sources, options)) sum += best[0].log_probability;
    return sum;
  };
  const double in_float32 = total();
  const ProductPrecision use(Precision::bfloat16);
  std::set<double> totals;
  for_threads([&] { totals.insert(total()); });
  CHECK(totals.size() == 1);
  CHECK(*totals.begin() != in_float32);
}

TEST_CASE("search: forced prefix, sampling, lengths, attention rows") {
  Parameters parameters(Seed{9});
  const TranslationModel model(parameters.root(), small());
  const Rows sources = random_rows(Key(Seed{4}), 6, 9), prefixes(6, {7, 8});
  SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .beam = 3, .nbest = 3, .extra_length = 6, .min_length = 5,
                        .no_repeat_ngram = 2, .attention = true};
  for (const auto& best : search(model, sources, options, prefixes))
    for (const Hypothesis& h : best) {
      CHECK(h.ids[0] == 7);
      CHECK(h.ids[1] == 8);
      CHECK(h.ids.size() >= 5);   // eos is the sixth word at the earliest
      REQUIRE(h.attention.size() == h.ids.size() + h.finished);
      for (const auto& row : h.attention) {
        double total = 0;
        for (float a : row) total += a;
        CHECK(total == doctest::Approx(1).epsilon(1e-5));
      }
      for (std::size_t i = 0; i + 1 < h.ids.size(); ++i)
        for (std::size_t j = i + 1; j + 1 < h.ids.size(); ++j) CHECK_FALSE((h.ids[i] == h.ids[j] && h.ids[i + 1] == h.ids[j + 1]));
    }
  SearchOptions drawn{.pad = kPad, .start = kStart, .eos = kEnd, .nbest = 5, .extra_length = 6,
                      .sampling = Sampling{.temperature = 1.5, .key = Key(Seed{3})}};
  const auto a = search(model, sources, drawn), b = search(model, sources, drawn);
  bool different = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    REQUIRE(a[i].size() == 5);
    for (std::size_t n = 0; n < 5; ++n) {
      CHECK(a[i][n].ids == b[i][n].ids);
      different |= a[i][n].ids != a[i][0].ids;
    }
  }
  CHECK(different);
  drawn.sampling->temperature = 0;
  drawn.nbest = 1;
  const auto cold = search(model, sources, drawn),
             greedy = search(model, sources, {.pad = kPad, .start = kStart, .eos = kEnd, .extra_length = 6});
  for (std::size_t i = 0; i < sources.size(); ++i) CHECK(cold[i][0].ids == greedy[i][0].ids);
  CHECK_THROWS_WITH_AS(search(model, sources, {.beam = 0}), doctest::Contains("beam must be in [1, 1000000]"), Error);
  CHECK_THROWS_WITH_AS(search(model, sources, {.beam = 2, .nbest = 3}), doctest::Contains("nbest 3, beam 2"), Error);
  CHECK(length_penalty(LengthPenalty::gnmt, 0.6, 7) == doctest::Approx(std::pow(2.0, 0.6)));
  CHECK(length_penalty(LengthPenalty::average, 1, 7) == 7);
}

TEST_CASE("trainer: ten pairs are learned by heart; weights have the same bits for 1, 2 and 3 threads; micro-batches equal one batch") {
  const Rows source = random_rows(Key(Seed{1}), 10, 6), target = random_rows(Key(Seed{2}), 10, 6);
  const Batch batch = batch_of(source, target);
  const auto options = [] {
    auto o = small();
    o.core.width = 32;
    o.core.feed_forward = 64;
    o.core.dropout = 0;
    return o;
  }();
  {
    Parameters parameters(Seed{1});
    const TranslationModel model(parameters.root(), options);
    Adam adam(parameters, {.beta2 = 0.98});
    Trainer trainer(model, parameters, adam, Schedule({.kind = Schedule::Kind::inverse_sqrt, .peak = 3e-3, .warmup = 20}),
                    {.loss = {.ignore_index = kPad}});
    double loss = 0;
    for (int i = 0; i < 150; ++i) loss = trainer.update({&batch, 1}).loss;
    CHECK(loss < 0.01);
    const auto answers = search(model, source, {.pad = kPad, .start = kStart, .eos = kEnd});
    for (std::size_t i = 0; i < source.size(); ++i) {
      std::vector<std::int32_t> expected = target[i];
      expected.pop_back();
      CHECK(answers[i][0].ids == expected);
    }
  }
  std::vector<float> first;
  for_threads([&] {
    Parameters parameters(Seed{1});
    const TranslationModel model(parameters.root(), small());
    Adam adam(parameters, {});
    Trainer trainer(model, parameters, adam, Schedule({}), {.loss = kLoss});
    for (int i = 0; i < 5; ++i) trainer.update({&batch, 1});
    std::vector<float> weights;
    for (const auto& item : parameters.items()) {
      const auto values = item->variable.value().to_vector<float>();
      weights.insert(weights.end(), values.begin(), values.end());
    }
    if (first.empty()) first = weights;
    CHECK(weights == first);
  });
  std::vector<double> norms;
  for (bool split : {false, true}) {
    Parameters parameters(Seed{1}, DType::f64);
    const TranslationModel model(parameters.root(), options);
    SGD sgd(parameters, {});
    Trainer trainer(model, parameters, sgd, Schedule({}), {.loss = kLoss});
    std::vector<Batch> micro{batch};
    if (split)
      micro = {batch_of({source.begin(), source.begin() + 3}, {target.begin(), target.begin() + 3}),
               batch_of({source.begin() + 3, source.end()}, {target.begin() + 3, target.end()})};
    norms.push_back(trainer.update(micro).gradient_norm);
  }
  CHECK(norms[0] == doctest::Approx(norms[1]).epsilon(1e-10));
}

TEST_CASE("transformer: each dropout acts in its own place: what is left where it drops all") {
  Parameters parameters(Seed{1}, DType::f64);
  const Scope scope = parameters.root();
  const Tensor x = normal(Key(1), {2, 3, 8}, 0, 1, DType::f64);
  const auto trained = [&](auto&& layer) {
    const Tape tape(Key{1});
    return Tensor(layer(constant(x)).value());
  };
  const auto twice = [](const Variable& v) { return v * 2.0; };
  const Residual after(scope / "after", {.width = 8, .dropout = 1}),
      before(scope / "before", {.width = 8, .dropout = 1, .norm_at = NormAt::before});
  CHECK(worst_absolute(trained([&](const Variable& v) { return after(v, twice); }), after.norm(constant(x)).value()) < 1e-14);
  CHECK(equal_bits(trained([&](const Variable& v) { return before(v, twice); }), x));
  const Residual rms(scope / "rms", {.width = 8, .dropout = 1, .rms = true});
  CHECK(worst_absolute(trained([&](const Variable& v) { return rms(v, twice); }),
                       rms_norm(constant(x), constant(ones({8}, DType::f64))).value()) < 1e-14);
  for (const bool gated : {false, true}) {
    const FeedForward inner(scope / (gated ? "gated" : "plain"), {.width = 8, .inner = 5, .gated = gated, .dropout = 1});
    CHECK(equal_bits(trained(inner), expand(inner.linear2.bias.value(), x.shape())));
  }
  const MultiHeadAttention attention(scope / "attention", {.width = 8, .heads = 2, .dropout = 1});
  CHECK(worst_absolute(trained([&](const Variable& v) { return attention.self(v, {}).context; }), zeros(x.shape())) == 0);
  TranslationModel::Options options = small();
  options.core.dropout = 1;
  const TranslationModel model(scope / "model", options);
  const Trace seen;
  const Tape tape(Key{1});
  model.features(batch_of({{4, 5, kEnd}}, {{6, kEnd}}));
  for (const char* words : {"model.source_embedding", "model.target_embedding"}) CHECK(max(abs(seen.find(words)->value)).item() == 0);
}
