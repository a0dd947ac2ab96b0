// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/tape.h"
#include "models/run_config.h"
#include "models/search.h"
#include "models/train.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
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

struct Kind {
  std::string name;
  RunConfig config;
};

RunConfig config(const char* model, const char* attention, const char* decoder, auto&& change) {
  RunConfig c = default_config(model);
  c.attention = attention, c.decoder = decoder;
  c.width = 12;
  c.max_length = 12;
  change(c);
  return c;
}
RunConfig config(const char* model, const char* attention = "auto", const char* decoder = "auto") {
  return config(model, attention, decoder, [](RunConfig&) {});
}

// Both orders of a step with scores of every kind, and the models without attention.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"bahdanau", config("gru")},
      {"bahdanau dot", config("gru", "dot", "bahdanau", [](RunConfig& c) { c.readout = "tanh"; })},
      {"bahdanau lstm general", config("lstm", "general", "bahdanau",
                                       [](RunConfig& c) { c.readout = "linear", c.readout_state = "previous", c.start_state = "mean"; })},
      {"bahdanau rnn concat", config("rnn", "concat", "bahdanau", [](RunConfig& c) { c.one_direction = true; })},
      {"bahdanau location-aware",
       config("gru", "location-aware", "auto", [](RunConfig& c) { c.gru_form = "cudnn", c.start_state = "zeros"; })},
      {"bahdanau local-p",
       config("gru", "local-p", "bahdanau", [](RunConfig& c) { c.gru_form = "cho", c.window = 2, c.reverse_source = true; })},
      {"luong", config("lstm")},
      {"luong feeding",
       config("lstm", "dot", "luong", [](RunConfig& c) { c.input_feeding = true, c.layers = 2, c.reverse_source = true; })},
      {"luong location", config("gru", "location")},
      {"luong additive feeding", config("gru", "additive", "luong", [](RunConfig& c) { c.input_feeding = true, c.bridge = "tanh"; })},
      {"luong local-p", config("lstm", "local-p", "auto", [](RunConfig& c) { c.window = 3, c.layers = 2; })},
      {"luong local-m-concat", config("rnn", "local-m-concat", "auto", [](RunConfig& c) { c.input_feeding = true; })},
      {"luong coverage", config("lstm", "coverage", "luong", [](RunConfig& c) { c.bridge = "linear"; })},
      {"luong general-sparsemax", config("lstm", "general-sparsemax")},
      {"bahdanau additive-hard", config("gru", "additive-hard")},
      {"cho", config("gru", "none")},
      {"cho both ends", config("lstm", "none", "cho", [](RunConfig& c) { c.context = "both_ends"; })},
      {"cho exact", config("gru", "none", "cho-exact")},
      {"cho exact both ends", config("gru", "none", "cho-exact",
                                     [](RunConfig& c) { c.context = "both_ends", c.start_state = "mean", c.readout_state = "previous"; })},
      {"sutskever", config("lstm", "none", "auto", [](RunConfig& c) { c.layers = 3, c.reverse_source = true; })},
  };
  return all;
}

std::unique_ptr<Seq2Seq> make(const RunConfig& c, Parameters& parameters) {
  return make_model(c, parameters.root(), kVocabulary, kVocabulary);
}

// Built by options of the library, not of the program; E = n = 4.
RecurrentModel::Options bahdanau() { return {.source_vocabulary = kVocabulary, .target_vocabulary = kVocabulary, .encoder = {.width = 4},
                                             .decoder = BahdanauDecoder::Options{.width = 4}}; }
RecurrentModel::Options luong(RecurrentEncoder::Options encoder, LuongDecoder::Options decoder) {
  return {.source_vocabulary = kVocabulary, .target_vocabulary = kVocabulary, .encoder = encoder, .decoder = decoder};
}
Batch two_pairs() { return batch_of({{4, 5, kEnd}, {4, kEnd}}, {{5, 6, kEnd}, {8, kEnd}}); }

bool draws(const Kind& kind) { return kind.config.attention.ends_with("-hard"); }   // words at random, while it trains

const CrossEntropyOptions kLoss{.label_smoothing = 0.1, .pad = kPad};

}  // namespace

TEST_CASE("recurrent models: a later target word changes no earlier feature; padding and company change nothing") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{1}, DType::f64);
    const auto model = make(kind.config, parameters);
    const Rows source = random_rows(Key(Seed{1}), 3, 6);
    Rows target = random_rows(Key(Seed{2}), 3, 7);
    target[0] = {5, 6, 7, 8, 9, kEnd};
    const Batch batch = batch_of(source, target);
    const Tensor before = model->features(batch).value();
    target[0][3] = 4;   // read at position 4
    const Tensor after = model->features(batch_of(source, target)).value();
    CHECK(worst_absolute(before[0](Slice{0, 4}), after[0](Slice{0, 4})) == 0);
    CHECK(worst_absolute(before[0][4], after[0][4]) > 1e-6);
    CHECK(worst_absolute(before[1], after[1]) == 0);

    const Batch wide = padded(batch, 5);
    for (Index b = 0; b < 3; ++b) {
      const Index T = Index(batch.lengths[b].item());
      CHECK(worst_absolute(model->features(wide).value()[b](Slice{0, T}), before[b](Slice{0, T})) == 0);
      const Tensor alone = model
                               ->features(batch_of({source[std::size_t(b)]},
                                                   {b == 0 ? std::vector<std::int32_t>{5, 6, 7, 8, 9, kEnd} : target[std::size_t(b)]}))
                               .value();
      CHECK(worst_absolute(alone[0], before[b](Slice{0, T})) < 1e-12);
    }
    CHECK(std::abs(model->loss(wide, kLoss).sum.value().item() - model->loss(batch, kLoss).sum.value().item()) < 1e-9);
  }
}

TEST_CASE("recurrent models: the loss equals cross-entropy of the logits, by definition") {
  Parameters parameters(Seed{3}, DType::f64);
  const auto model = make(config("gru"), parameters);
  const Batch batch = batch_of(random_rows(Key(Seed{1}), 4, 5), random_rows(Key(Seed{2}), 4, 5));
  const Tensor p = log_softmax(model->logits(model->features(batch)).value());   // [B, T, V]
  double sum = 0;
  for (Index b = 0; b < 4; ++b)
    for (Index t = 0; t < batch.targets.size(1); ++t)
      if (const auto y = Index(batch.targets(b, t).item()); y != kPad) sum -= p(b, t, y).item();
  const Loss loss = model->loss(batch, {.pad = kPad});
  CHECK(loss.sum.value().item() == doctest::Approx(sum).epsilon(1e-12));
  CHECK(loss.tokens == batch.target_tokens);
}

TEST_CASE("recurrent models: options that name no padding leave its rows out, and it stays a label") {
  Parameters parameters(Seed{3}, DType::f64);
  const auto model = make(config("gru"), parameters);
  const Batch batch = two_pairs();
  const auto loss = [&](const CrossEntropyOptions& options) { return model->loss(batch, options).sum.value().item(); };
  CHECK(loss({.label_smoothing = 0.2}) == loss({.label_smoothing = 0.2, .pad = kPad, .smooth_pad = true}));
  CHECK(loss({.label_smoothing = 0.2}) != loss({.label_smoothing = 0.2, .pad = kPad}));
}

TEST_CASE("recurrent models: dropout of embeddings and of what the output layer reads, while it trains") {
  const auto zeros_among = [](const Tensor& x) {
    const std::vector<double> y = doubles(x);
    return double(std::count(y.begin(), y.end(), 0.0)) / double(y.size());
  };
  for (const char* name : {"gru", "lstm"})
    for (const bool trains : {false, true}) {
      RunConfig c = config(name);
      c.width = 32, c.dropout = 0.5;
      Parameters parameters(Seed{3}, DType::f64);
      const auto model = make(c, parameters);
      const Batch batch = batch_of({{4, 5, 6, kEnd}}, {{7, 8, 9, kEnd}});
      Tape tape = trains ? Tape(Key{1}) : Tape(evaluating);
      const Variable features = model->features(batch);
      tape.backward(sum(square(model->logits(features))));
      // What was dropped of a word gets no gradient.
      for (const Tensor& x : {features.value(), parameters.find("source_embedding.weight")->gradient->value()(Slice{4, 7}),
                              parameters.find("target_embedding.weight")->gradient->value()(Slice{7, 10})})
        CHECK(std::abs(zeros_among(x) - (trains ? 0.5 : 0)) <= (trains ? 0.3 : 0));
    }
}

TEST_CASE("recurrent models: every parameter gets a gradient") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{5});
    const auto model = make(kind.config, parameters);
    const Batch batch = batch_of(random_rows(Key(Seed{1}), 8, 6), random_rows(Key(Seed{2}), 8, 6));
    Tape tape(Key{1, 1});
    tape.backward(model->loss(batch, kLoss).sum);
    for (const auto& item : parameters.items()) {
      CAPTURE(item->path);
      REQUIRE(item->gradient->written());
      CHECK(max(abs(item->gradient->value())).item() > 0);
    }
  }
}

TEST_CASE("recurrent models: decoding step by step equals teacher forcing, weights too, and rows follow their beam") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{7}, DType::f64);
    const auto model = make(kind.config, parameters);
    const Rows source{{4, 5, 6, 7, kEnd}, {9, kEnd}, {8, 7, 6, 5, 4, 4, kEnd}},
        target = {{5, 6, 7, kEnd}, {8, 9, 10, kEnd}, {4, 5, 4, kEnd}};
    const Batch batch = batch_of(source, target);
    List<AttentionMap> maps;
    const Tensor forced = log_softmax(model->logits(model->features(batch, &maps)).value());
    const bool attends = kind.config.attention != "none";
    REQUIRE(maps.size() == attends);
    if (attends) CHECK(maps[0].weights.shape() == Shape{3, 4, 7});
    const auto state = model->start(batch.source);
    for (Index t = 0; t < 2; ++t) {
      const Step step = model->step(batch.inputs(all, t).contiguous(), *state, Want::weights);
      CHECK(worst_absolute(step.log_probabilities, forced(all, t)) < 1e-12);
      if (attends) CHECK(worst_absolute(step.attention.at(0).weights.value()(all, 0), maps[0].weights.value()(all, t)) < 1e-12);
    }
    const std::vector<Index> two{2, 2, 0, 0};   // drop sentence 1, exchange the others, two rows each
    state->reorder(two, 2);
    const Step next = model->step(tensor(std::vector<std::int32_t>{5, 4, 6, 7}, {4}), *state, Want::weights);
    CHECK(worst_absolute(next.log_probabilities[0], forced(2, 2)) < 1e-12);
    CHECK(worst_absolute(next.log_probabilities[2], forced(0, 2)) < 1e-12);
    CHECK(worst_absolute(next.log_probabilities[1], forced(2, 2)) > 1e-6);
    const std::vector<Index> rows{0, 0, 3, 2};
    state->reorder(rows, 2);
    const Step last = model->step(tensor(std::vector<std::int32_t>{4, 5, 5, 7}, {4}), *state, Want::weights);
    CHECK(worst_absolute(last.log_probabilities[0], forced(2, 3)) < 1e-12);
    CHECK(worst_absolute(last.log_probabilities[3], forced(0, 3)) < 1e-12);
    if (attends) CHECK(worst_absolute(last.attention.at(0).weights.value()(3, 0), maps[0].weights.value()(0, 3)) < 1e-12);
  }
}

TEST_CASE("recurrent models: weights sum to 1 over the source, in source order where it is read reversed") {
  for (const Kind& kind : kinds()) {
    if (kind.config.attention.find("none") != std::string::npos || kind.config.attention.starts_with("local-p")) continue;
    CAPTURE(kind.name);
    Parameters parameters(Seed{7}, DType::f64);
    const auto model = make(kind.config, parameters);
    const Batch batch = batch_of({{4, 5, 6, 7, kEnd}, {9, kEnd}}, {{5, 6, kEnd}, {8, kEnd}});
    List<AttentionMap> maps;
    model->features(batch, &maps);
    const Tensor w = maps.at(0).weights.value();
    CHECK(worst_absolute(sum(w[0], {-1}), ones({3}, DType::f64)) < 1e-12);
    CHECK(max(abs(w[1](all, Slice{2, 5}))).item() == 0);
  }
}

TEST_CASE("recurrent models: search does not depend on batch, order or threads; beam 1 is greedy by definition") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{9});
    const auto model = make(kind.config, parameters);
    const Rows sources = random_rows(Key(Seed{4}), 12, 9);
    SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .extra_length = 4};
    const auto greedy = search(*model, sources, options);
    for (std::size_t i = 0; i < 2; ++i) {   // argmax over full recomputation
      std::vector<std::int32_t> ids;
      const Index longest = Index(sources[i].size()) - 1 + 4;
      bool ended = false;
      while (Index(ids.size()) < longest && !ended) {
        std::vector<std::int32_t> target = ids;
        target.push_back(kEnd);
        const Tensor p = log_softmax(model->logits(model->features(batch_of({sources[i]}, {target}))).value())(0, -1);
        std::int32_t best = -1;
        for (std::int32_t w = 0; w < kVocabulary; ++w)
          if (w != kPad && w != kStart && (best < 0 || p[w].item() > p[best].item())) best = w;
        ended = best == kEnd;
        if (!ended) ids.push_back(best);
      }
      CHECK(greedy[i][0].ids == ids);
      CHECK(greedy[i][0].finished == ended);
    }
    options.beam = options.nbest = 3;
    const auto together = search(*model, sources, options);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto alone = search(*model, std::span(sources).subspan(i, 1), options);
      REQUIRE(alone[0].size() == together[i].size());
      for (std::size_t n = 0; n < alone[0].size(); ++n) {
        CHECK(alone[0][n].ids == together[i][n].ids);
        CHECK(alone[0][n].score == together[i][n].score);   // bit for bit
      }
    }
    const Tape tape(Key(Seed{5}));   // dropout does not act
    for_threads([&] { CHECK(search(*model, std::span(sources).first(3), options)[2][0].score == together[2][0].score); });
  }
}

TEST_CASE("recurrent models: states of a source that is read reversed stand in its order; dropout acts between the encoder's layers") {
  const auto states = [](Index layers, double dropout, bool reverse, const Rows& source, bool trains = false) {
    Parameters parameters(Seed{5}, DType::f64);
    const Embedding embedding(parameters.root() / "words", {.vocabulary = kVocabulary, .width = 4});
    const RecurrentEncoder encoder(parameters.root() / "encoder", {.unit = RecurrentUnit::lstm, .embedding = 4, .width = 4,
                                                                   .layers = layers, .bidirectional = false, .reverse_source = reverse,
                                                                   .dropout = dropout});
    const Tape tape = trains ? Tape(Key{1}) : Tape(evaluating);
    return encoder(embedding, 0, pad_sequences(source, kPad)).states.value();
  };
  // Words 0 to 2 are what the state of word 0 has read forwards, words 0 to 4 backwards.
  for (const bool reverse : {false, true}) {
    const Tensor before = states(1, 0, reverse, {{4, 5, 6, 7, kEnd}, {8, 9, kEnd}}),
                 after = states(1, 0, reverse, {{4, 5, 11, 7, kEnd}, {8, 12, kEnd}});
    const std::vector<std::pair<Index, Index>> changed{{0, 2}, {1, 1}};
    for (const auto& [b, at] : changed)
      for (Index s = 0; s < (b ? 3 : 5); ++s)
        CHECK((worst_absolute(before(b, s), after(b, s)) > 1e-6) == (reverse ? s <= at : s >= at));
  }
  const Rows source{{4, 5, 6, kEnd}};
  CHECK_FALSE(equal_bits(states(2, 0.5, false, source, true), states(2, 0.5, false, source)));
  CHECK(equal_bits(states(2, 0, false, source, true), states(2, 0, false, source)));
}

TEST_CASE("recurrent models: hypotheses of one sentence look where each alone would") {
  for (const char* attention : {"local-m", "local-m-dot", "local-p", "gaussian", "coverage", "location-aware", "dot"}) {
    CAPTURE(attention);
    Parameters parameters(Seed{5}, DType::f64);
    const ScoreOptions score{.query_width = 0, .memory_width = 0, .window = 1};
    const RecurrentModel model(parameters.root(), luong({.unit = RecurrentUnit::lstm, .width = 4, .bidirectional = false},
                                                        {.width = 4, .attention = attention, .score = score}));
    const auto& decoder = std::get<LuongDecoder>(model.decoder);
    const Encoded read = model.encoder(model.source_embedding, 0, pad_sequences(Rows{{4, 5, 6, 7, kEnd}}, kPad));
    const Variable inputs = constant(normal(Key(1), {2, 3, 4}, 0, 1, DType::f64));
    DecoderState together = decoder.start(read);
    decoder(constant(slice(inputs.value(), 1, 0, 1)(Slice{0, 1}).contiguous()), together);
    DecoderState alone = together;
    together.reorder(std::vector<Index>{0, 0, 0}, 3);
    Variable weights, own;
    decoder(constant(inputs.value()(Slice{1, 2}).contiguous()), together, &weights);
    decoder(constant(inputs.value()(Slice{1, 2}, Slice{2, 3}).contiguous()), alone, &own);
    CHECK(worst_absolute(weights.value()[2], own.value()[0]) < 1e-14);
  }
}

TEST_CASE("recurrent models: the mean that a decoder starts with is that of the words which an explicit mask allows, or of all") {
  RecurrentModel::Options options = bahdanau();
  std::get<BahdanauDecoder::Options>(options.decoder).start_state = StartState::mean;
  Parameters parameters(Seed{5}, DType::f64);
  const RecurrentModel model(parameters.root(), options);
  Encoded read = model.encoder(model.source_embedding, 0, two_pairs().source);
  const Tensor h = read.states.value(), W = transpose(parameters.find("init.weight")->variable.value());
  const auto start = [&] { return std::get<BahdanauDecoder>(model.decoder).start(read).layers[0].h.value(); };
  read.mask = {};
  CHECK(worst_absolute(start(), tanh(matmul(mean(h, 1), W))) < 1e-14);
  read.mask = Mask::allowed(tensor(std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0}, {2, 1, 3}));
  CHECK(worst_absolute(start(), tanh(matmul(stack({(h(0, 0) + h(0, 2)) / 2.0, zeros({8}, DType::f64)}), W))) < 1e-14);
}

TEST_CASE("recurrent models: sentences that go on keep their rows of an explicit mask") {
  Parameters parameters(Seed{5}, DType::f64);
  const RecurrentModel model(parameters.root(), bahdanau());
  Encoded read = model.encoder(model.source_embedding, 0, batch_of({{4, 5, kEnd}, {5, 4, kEnd}}, {{kEnd}, {kEnd}}).source);
  read.mask = Mask::allowed(tensor(std::vector<std::uint8_t>{1, 0, 1, 0, 1, 1}, {2, 1, 3}));
  const auto& decoder = std::get<BahdanauDecoder>(model.decoder);
  const auto weights = [&](DecoderState state, Index rows) {
    Variable shown;
    decoder(constant(ones({1, rows, decoder.options.embedding}, DType::f64)), state, &shown);
    return shown.value();   // [R, 1, 3]
  };
  const DecoderState both = decoder.start(read);
  const Tensor expected = weights(both, 2);
  CHECK(expected(0, 0, 1).item() == 0);
  CHECK(expected(1, 0, 0).item() == 0);
  for (const std::vector<Index>& rows : {std::vector<Index>{1}, {1, 1}}) {
    DecoderState second = both;
    second.reorder(rows, Index(rows.size()));
    const Tensor seen = weights(second, Index(rows.size()));
    for (Index r = 0; r < seen.size(0); ++r) CHECK(equal_bits(seen[r].contiguous(), expected[1].contiguous()));
  }
}

TEST_CASE("recurrent models: ten pairs are learned by heart") {
  const Rows source = random_rows(Key(Seed{1}), 10, 6), target = random_rows(Key(Seed{2}), 10, 6);
  const Batch batch = batch_of(source, target);
  for (const Kind& kind : kinds()) {
    if (draws(kind)) continue;
    CAPTURE(kind.name);
    RunConfig c = kind.config;
    c.width = 32;
    c.dropout = 0;
    Parameters parameters(Seed{1});
    const auto model = make(c, parameters);
    Adam adam(parameters, {});
    Trainer trainer(*model, parameters, adam, Schedule({.peak = 1e-2}), {.loss = {.pad = kPad}, .clip = 1});
    double loss = 1;
    for (int i = 0; i < 400 && loss > 0.005; ++i) loss = trainer.update({&batch, 1}).loss;
    CHECK(loss < 0.01);
    const auto answers = search(*model, source, {.pad = kPad, .start = kStart, .eos = kEnd});
    for (std::size_t i = 0; i < source.size(); ++i) {
      std::vector<std::int32_t> expected = target[i];
      expected.pop_back();
      CHECK(answers[i][0].ids == expected);
    }
  }
}

TEST_CASE("recurrent models: training has the same bits for 1, 2 and 3 threads; micro-batches equal one batch") {
  const Rows source = random_rows(Key(Seed{1}), 10, 6), target = random_rows(Key(Seed{2}), 10, 6);
  const Batch batch = batch_of(source, target);
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    std::vector<float> first;
    for_threads([&] {
      Parameters parameters(Seed{1});
      const auto model = make(kind.config, parameters);
      Adam adam(parameters, {});
      Trainer trainer(*model, parameters, adam, Schedule({}), {.loss = kLoss});
      for (int i = 0; i < 3; ++i) trainer.update({&batch, 1});
      std::vector<float> weights;
      for (const auto& item : parameters.items()) {
        const auto values = item->variable.value().to_vector<float>();
        weights.insert(weights.end(), values.begin(), values.end());
      }
      if (first.empty()) first = weights;
      CHECK(weights == first);
    });
    if (draws(kind)) continue;                                       // other draws in other batches
    std::vector<double> norms;
    for (bool split : {false, true}) {
      RunConfig c = kind.config;
      c.dropout = 0;
      Parameters parameters(Seed{1}, DType::f64);
      const auto model = make(c, parameters);
      SGD sgd(parameters, {});
      Trainer trainer(*model, parameters, sgd, Schedule({}), {.loss = kLoss});
      std::vector<Batch> micro{batch};
      if (split)
        micro = {batch_of({source.begin(), source.begin() + 3}, {target.begin(), target.begin() + 3}),
                 batch_of({source.begin() + 3, source.end()}, {target.begin() + 3, target.end()})};
      norms.push_back(trainer.update(micro).gradient_norm);
    }
    CHECK(norms[0] == doctest::Approx(norms[1]).epsilon(1e-9));
  }
}

TEST_CASE("recurrent models: a source of no words, alone, beside others, or a batch of nothing else, gives finite values") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{1}, DType::f64);
    const auto model = make(kind.config, parameters);
    for (const Rows& source : {Rows{{}, {4, 5, kEnd}}, Rows{{}, {}}}) {
      const Batch batch = batch_of(source, {{5, kEnd}, {6, 7, kEnd}});
      for (const Batch& b : {batch, padded(batch, 2)}) {
        List<AttentionMap> maps;
        const Tensor y = model->features(b, &maps).value();
        CHECK(std::isfinite(sum(abs(y)).item()));
        if (!maps.empty()) CHECK(sum(abs(maps[0].weights.value()[0])).item() == 0);
        Tape tape(Key{1, 1});
        tape.backward(model->loss(b, kLoss).sum);
        for (const auto& item : parameters.items())
          if (item->gradient->written()) CHECK(std::isfinite(sum(abs(item->gradient->value())).item()));
        parameters.forget_gradients();
      }
    }
  }
}

TEST_CASE("recurrent models: location scores know no position beyond max_positions, in either order of a step") {
  for (const char* decoder : {"bahdanau", "luong"}) {
    RunConfig c = config("gru", "location", decoder);
    c.max_length = 1;
    const Index longest = max_positions(c), S = longest + 20;
    Parameters parameters(Seed{1});
    const auto model = make_model(c, parameters.root(), 9, 9);
    std::vector<std::int32_t> ids(std::size_t(S), 4);
    const std::vector<std::vector<std::int32_t>> source{ids};
    auto state = model->start(pad_sequences(source, 0));
    for (int t = 0; t < 2; ++t) {
      const Tensor weights = model->step(tensor(std::vector<std::int32_t>{2}, {1}), *state, Want::weights).attention.at(0).weights.value();
      const std::vector<double> a = doubles(weights);
      REQUIRE(a.size() == std::size_t(S));
      CHECK(std::accumulate(a.begin(), a.begin() + longest, 0.0) == doctest::Approx(1).epsilon(1e-6));
      CHECK(std::all_of(a.begin(), a.begin() + longest, [](double w) { return w > 0; }));
      CHECK(std::all_of(a.begin() + longest, a.end(), [](double w) { return w == 0; }));
    }
  }
}

TEST_CASE("recurrent models: lengths of a source that is read reversed may be strided, and wrong ones are refused by name") {
  RecurrentModel::Options options = bahdanau();
  options.encoder.reverse_source = true;
  Parameters parameters(Seed{1}, DType::f64);
  const RecurrentModel model(parameters.root(), options);
  Batch batch = two_pairs();
  const Tensor expected = model.features(batch).value();
  batch.source.lengths = tensor({{3, 3}, {2, 3}}, DType::i32)(all, 0);
  CHECK(equal_bits(model.features(batch).value(), expected));
  batch.source.lengths = tensor({3, 4}, DType::i32);
  CHECK_THROWS_WITH_AS(model.features(batch), "in encoder: recurrent encoder: length 4 at position [1] is not in [0, 3]", IndexError);
  batch.source.lengths = tensor({3, 2}, DType::i64);
  CHECK_THROWS_WITH_AS(model.features(batch), "in encoder: mask: lengths need dtype i32: lengths i64", DTypeError);
  batch.source.lengths = tensor({3}, DType::i32);
  CHECK_THROWS_WITH_AS(model.features(batch), doctest::Contains("in encoder: recurrent encoder: the mask has 1 lengths for a batch of 2"),
                       ShapeError);
}

TEST_CASE("recurrent models: rows of a state go on in whole groups of one sentence, or nothing changes; no sentence may be left") {
  for (const Kind& kind : {Kind{"bahdanau", config("gru")},
                           Kind{"luong feeding", config("lstm", "coverage", "luong", [](RunConfig& c) { c.input_feeding = true; })},
                           Kind{"cho", config("gru", "none")}}) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{1}, DType::f64);
    const auto model = make(kind.config, parameters);
    const Batch batch = two_pairs();
    const auto state = model->start(batch.source), fresh = model->start(batch.source);
    const auto reorder = [&](DecodingState& s, std::vector<Index> rows, Index per_sentence) { s.reorder(rows, per_sentence); };
    const Tensor first = tensor({kStart, kStart}, DType::i32);
    model->step(first, *state), model->step(first, *fresh);
    CHECK_THROWS_WITH_AS(reorder(*state, {0, 1}, 2), "reorder: rows 0 and 1 in one group belong to sentences 0 and 1", Error);
    CHECK_THROWS_WITH_AS(reorder(*state, {0, 0, 1}, 2), "reorder: 3 rows are no groups of 2", Error);
    CHECK_THROWS_WITH_AS(reorder(*state, {0, 0}, 0), "reorder: 2 rows are no groups of 0", Error);
    CHECK_THROWS_WITH_AS(reorder(*state, {0, 5}, 1), "reorder: row 5 is not in [0, 2)", IndexError);
    CHECK_THROWS_WITH_AS(reorder(*state, {-1, 1}, 1), "reorder: row -1 is not in [0, 2)", IndexError);
    const Tensor words = tensor({5, 8}, DType::i32);
    CHECK(equal_bits(model->step(words, *state).log_probabilities, model->step(words, *fresh).log_probabilities));
    reorder(*state, {0, 0, 1, 1}, 2);
    CHECK_THROWS_WITH_AS(reorder(*state, {0, 2, 3, 3}, 2), "reorder: rows 0 and 2 in one group belong to sentences 0 and 1", Error);
    reorder(*state, {3, 2}, 2);
    CHECK(model->step(words, *state).log_probabilities.shape() == Shape{2, kVocabulary});
    for (int i = 0; i < 2; ++i) {
      reorder(*state, {}, 2);
      CHECK(model->step(zeros({0}, DType::i32), *state).log_probabilities.shape() == Shape{0, kVocabulary});
    }
  }
}

TEST_CASE("recurrent models: encoder and decoder of different units, layers, directions are bridged, and every parameter gets a gradient") {
  using U = RecurrentUnit;
  struct Bridged {
    std::string name;
    RecurrentModel::Options options;
    bool cells;                            // bridge.c.*
  };
  const auto stack = [](U unit, Index layers, bool two = false) {
    return RecurrentEncoder::Options{.unit = unit, .width = 4, .layers = layers, .bidirectional = two};
  };
  const auto decoder = [](U unit, Index layers, Bridge bridge) {
    return LuongDecoder::Options{.unit = unit, .width = 4, .layers = layers, .attention = "none", .bridge = bridge};
  };
  for (const Bridged& kind : {Bridged{"cells to none", luong(stack(U::lstm, 1), decoder(U::gru_cudnn, 1, Bridge::linear)), false},
                              Bridged{"cells to none, copied", luong(stack(U::lstm, 2), decoder(U::tanh, 2, Bridge::copy)), false},
                              Bridged{"none to cells", luong(stack(U::gru_cho, 2), decoder(U::lstm, 2, Bridge::tanh)), false},
                              Bridged{"fewer layers", luong(stack(U::lstm, 3), decoder(U::lstm, 1, Bridge::tanh)), true},
                              Bridged{"more layers", luong(stack(U::lstm, 1), decoder(U::lstm, 3, Bridge::linear)), true},
                              Bridged{"two directions", luong(stack(U::lstm, 2, true), decoder(U::lstm, 2, Bridge::linear)), true}}) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{5}, DType::f64);
    const RecurrentModel model(parameters.root(), kind.options);
    Tape tape(evaluating);
    tape.backward(model.loss(two_pairs(), kLoss).sum);
    for (const auto& item : parameters.items()) {
      CAPTURE(item->path);
      REQUIRE(item->gradient->written());
      CHECK(max(abs(item->gradient->value())).item() > 0);
    }
    CHECK((parameters.find("bridge.c.0") || parameters.find("bridge.c.0.weight")) == kind.cells);
  }
  // The stacks end together: decoder layer 0 of 2 goes on from encoder layer 1 of 3, with both of its directions.
  Parameters parameters(Seed{5}, DType::f64);
  const RecurrentModel model(parameters.root() / "linear", luong(stack(U::lstm, 3, true), decoder(U::lstm, 2, Bridge::linear)));
  const RecurrentModel bent(parameters.root() / "tanh", luong(stack(U::lstm, 3, true), decoder(U::lstm, 2, Bridge::tanh)));
  const Batch batch = two_pairs();
  const Encoded read = model.encoder(model.source_embedding, 0, batch.source);
  const DecoderState first = std::get<LuongDecoder>(model.decoder).start(read), second = std::get<LuongDecoder>(bent.decoder).start(read);
  for (const Index k : {0, 1})
    for (const auto part : {&RecurrentState::h, &RecurrentState::c}) {
      const auto at = std::size_t(k + 1);
      const Tensor both = concat({read.last[at].*part, read.backward[at].*part}, 1).value();
      const auto product = [&](const std::string& name) {
        const Tensor w = parameters.find(name + ".bridge." + (part == &RecurrentState::h ? "h." : "c.") + std::to_string(k) + ".weight")
                             ->variable.value();
        return matmul(both, transpose(w));
      };
      CHECK(worst_absolute((first.layers[std::size_t(k)].*part).value(), product("linear")) < 1e-12);
      CHECK(worst_absolute((second.layers[std::size_t(k)].*part).value(), tanh(product("tanh"))) < 1e-12);
    }
  Encoded other = read;
  other.backward.clear();
  CHECK_THROWS_WITH_AS(std::get<LuongDecoder>(model.decoder).start(other),
                       "decoder: the encoder has 3 layers, the options say 3 in two directions", Error);
}

TEST_CASE("recurrent models: what a decoder starts with, s_0 = tanh(W x) and the context of every step") {
  for (const StartState start : {StartState::backward, StartState::last, StartState::mean, StartState::zeros, StartState::context})
    for (const auto& [context, exact] : {std::pair(FixedContext::every_step, false),
                                         {FixedContext::both_ends, false},
                                         {FixedContext::every_step, true},
                                         {FixedContext::both_ends, true}}) {
      RecurrentModel::Options options = bahdanau();
      auto& o = std::get<BahdanauDecoder::Options>(options.decoder);
      o.attention = "none", o.start_state = start, o.context = context, o.reset_context = exact;
      if (exact) o.unit = RecurrentUnit::gru_cudnn;
      Parameters parameters(Seed{5}, DType::f64);
      const RecurrentModel model(parameters.root(), options);
      const Encoded read = model.encoder(model.source_embedding, 0, batch_of({{4, 5, kEnd}, {4, kEnd}}, {{kEnd}, {kEnd}}).source);
      const Tensor states = read.states.value(), last = read.last[0].h.value(), backward = read.backward[0].h.value();
      const DecoderState first = std::get<BahdanauDecoder>(model.decoder).start(read);
      const auto weight = [&](const char* path) { return transpose(parameters.find(path)->variable.value()); };
      const Tensor ends = context == FixedContext::every_step ? last : concat({last, backward}, 1),
                   c = exact ? tanh(matmul(ends, weight("context_proj.weight"))) : ends;
      // of [W | C]ᵀ
      const Tensor both = weight("decoder.weight_ih"), gates = matmul(c, slice(both, 0, both.size(0) - c.size(1), both.size(0)));
      CHECK(worst_absolute(first.context_gates.value(), exact ? gates + parameters.find("decoder.bias_hh")->variable.value() : gates) <
            1e-12);
      CHECK(worst_absolute(first.context_readout.value(), matmul(c, weight("readout.context.weight"))) < 1e-12);
      // Forwards it ends at the last word of each source, of 3 and of 2, backwards at the first.
      CHECK(worst_absolute(last, stack({states(0, 2, Slice{0, 4}), states(1, 1, Slice{0, 4})})) == 0);
      CHECK(worst_absolute(backward, states(all, 0, Slice{4, 8})) == 0);
      const Tensor mean = stack({sum(states[0], 0) / 3.0, sum(states[1], 0) / 2.0});
      Tensor s = zeros({2, 4}, DType::f64);
      if (start != StartState::zeros)
        s = tanh(matmul(start == StartState::backward ? backward
                        : start == StartState::last   ? last
                        : start == StartState::mean   ? mean
                                                      : c,
                        weight("init.weight")));
      CHECK(worst_absolute(first.layers[0].h.value(), s) < 1e-12);
    }
}

TEST_CASE("recurrent models: a decoder that needs what the encoder does not have says so when it is built") {
  const auto built = [](auto&& change) {
    RecurrentModel::Options options = bahdanau();
    options.encoder.bidirectional = false;
    change(options, std::get<BahdanauDecoder::Options>(options.decoder));
    Parameters parameters(Seed{1});
    const RecurrentModel model(parameters.root() / "net", options);
    CHECK(std::isfinite(model.loss(two_pairs(), kLoss).sum.value().item()));
  };
  CHECK_THROWS_WITH_AS(built([](auto&, auto&) {}),
                       "in net: decoder: start_state backward needs an encoder in two directions; last, mean or zeros", Error);
  CHECK_THROWS_WITH_AS(
      built([](auto&, auto& o) { o.attention = "none", o.context = FixedContext::both_ends, o.start_state = StartState::last; }),
      "in net: decoder: context both_ends needs an encoder in two directions; every_step", Error);
  CHECK_THROWS_WITH_AS(built([](auto&, auto& o) { o.attention = "none", o.conditional = true, o.start_state = StartState::last; }),
                       "in net: decoder: two cells with nothing to look at between them: conditional needs an attention", Error);
  CHECK_THROWS_WITH_AS(built([](auto&, auto& o) { o.reset_context = true, o.start_state = StartState::last; }),
                       "in net: decoder: with attention no context stays: reset_context, attention additive", Error);
  CHECK_THROWS_WITH_AS(built([](auto&, auto& o) { o.start_state = StartState::context; }),
                       "in net: decoder: with attention no context stays: start_state context, attention additive", Error);
  CHECK_THROWS_WITH_AS(built([](auto&, auto& o) { o.attention = "none", o.reset_context = true, o.start_state = StartState::context; }),
                       "in net: decoder: reset_context needs unit gru_cudnn, which resets after the product", Error);
  Parameters parameters(Seed{1});
  const RecurrentModel model(parameters.root(), bahdanau());
  Encoded read = model.encoder(model.source_embedding, 0, two_pairs().source);
  read.backward.clear();
  CHECK_THROWS_WITH_AS(std::get<BahdanauDecoder>(model.decoder).start(read),
                       "decoder: the encoder has one direction, the options say widths 4 and 8", Error);
  for (const StartState start : {StartState::last, StartState::mean, StartState::zeros})
    for (const char* attention : {"none", "additive"}) {
      built([&](auto&, auto& o) { o.start_state = start, o.attention = attention; });
      built([&](auto& all, auto& o) { all.encoder.bidirectional = true, o.start_state = start, o.attention = attention; });
    }
}

TEST_CASE("recurrent models: dropout between layers goes by the decoder's path, step by step as for all steps at once") {
  for (const bool feeding : {false, true}) {
    Parameters parameters(Seed{1});
    const LuongDecoder decoder(parameters.root() / "net", {.embedding = 3, .width = 4, .encoder_width = 4, .memory_width = 4, .layers = 2,
                                                           .encoder_layers = 2,
                                                           .attention = "dot", .input_feeding = feeding, .dropout = 0.5});
    const RecurrentState zero{constant(zeros({1, 4})), constant(zeros({1, 4}))};
    DecoderState state = decoder.start({.states = constant(ones({1, 2, 4})), .mask = {}, .last = {zero, zero}, .backward = {}});
    const Tape tape;
    CHECK_THROWS_WITH_AS(decoder(constant(ones({2, 1, 3})), state), doctest::Contains("in net.decoder: dropout: this tape has no key"),
                         Error);
  }
}

TEST_CASE("recurrent models: targets of no words give empty features and weights, and the loss 0") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    Parameters parameters(Seed{1}, DType::f64);
    const auto model = make(kind.config, parameters);
    Batch batch = two_pairs();
    batch.inputs = batch.targets = zeros({2, 0}, DType::i32);
    batch.lengths = zeros({2}, DType::i32);
    batch.target_tokens = 0;
    List<AttentionMap> maps;
    const Variable y = model->features(batch, &maps);
    CHECK(model->logits(y).shape() == Shape{2, 0, kVocabulary});
    REQUIRE(maps.size() == (kind.config.attention != "none"));
    if (!maps.empty()) CHECK(maps[0].weights.shape() == Shape{2, 0, 3});
    Tape tape(Key{1, 1});
    const Loss loss = model->loss(batch, kLoss);
    CHECK(loss.sum.value().item() == 0);
    tape.backward(loss.sum);
  }
}

TEST_CASE("recurrent models: a number that is none is reported inside of the decoder that made it") {
  const auto report = [](const char* attention, const char* decoder, const char* path) {
    Parameters parameters(Seed{1});
    const auto model =
        make(config("lstm", attention, decoder,
                    [&](RunConfig& c) { c.input_feeding = decoder == std::string("luong"), c.layers = 1 + c.input_feeding; }),
             parameters);
    fill_(parameters.find(path)->variable.value(), NAN);
    const DetectAnomaly detect;
    Tape tape(evaluating);
    model->loss(two_pairs(), kLoss);
  };
  CHECK_THROWS_WITH_AS(report("general", "luong", "decoder.weight_hh_l1"), doctest::Contains("in decoder: recurrent_cell: "), NumericError);
  CHECK_THROWS_WITH_AS(report("general", "luong", "decoder.weight_ih_l1"), doctest::Contains("in decoder: linear: "), NumericError);
  CHECK_THROWS_WITH_AS(report("general", "luong", "decoder.weight_ih_l0"), doctest::Contains("in decoder: slice: "), NumericError);
  CHECK_THROWS_WITH_AS(report("additive", "bahdanau", "decoder.weight_ih"), doctest::Contains("in decoder: slice: "), NumericError);
}
