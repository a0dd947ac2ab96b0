// SPDX-License-Identifier: Apache-2.0
#include "models/copying_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/tape.h"
#include "models/copynet.h"
#include "models/pointer_generator.h"
#include "models/run_config.h"
#include "models/search.h"
#include "models/train.h"
#include "models/translate.h"
#include "nn/checkpoint.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_model.h"
#include "tests/every_target.h"
#include "tests/golden.h"
#include "tests/models/pairs.h"
#include "tests/thrown.h"

using namespace heed;
using namespace heed::test;

namespace {

constexpr Index U = kVocabulary, V = 9;      // source and target words
constexpr std::int32_t kOutside = 10;        // source words from here on are no target words

// "gru", "gru copynet", "gru none copynet": model, attention, form.
RunConfig config_of(const std::string& kind) {
  RunConfig config = default_config(kind.substr(0, kind.find(' ')));
  config.width = 8, config.heads = 2, config.feed_forward = 12, config.dropout = 0, config.max_length = 12, config.copy = true;
  if (kind.ends_with("copynet")) config.copy_form = "copynet";
  if (kind.find("none") != kind.npos) config.attention = "none";
  return config;
}

constexpr const char* kEvery[] = {"transformer", "gru", "lstm", "transformer copynet", "gru copynet", "lstm none copynet"};

// Source word i is target word i where there is one, below kOutside: 9 and more are none.
Tensor shared() {
  std::vector<std::int32_t> words;
  for (std::int32_t i = 0; i < U; ++i) words.push_back(i >= 3 && i < std::min<std::int32_t>(V, kOutside) ? i : -1);
  return tensor(words, {U});
}

struct Copying {
  explicit Copying(const std::string& kind, std::uint64_t seed = 3)
      : parameters(Seed{seed}, DType::f64), model(make_model(config_of(kind), parameters.root(), U, V, shared())) {}
  const Linear& gate() const { return dynamic_cast<const PointerGenerator&>(*model).gate; }
  Parameters parameters;
  std::unique_ptr<Seq2Seq> model;
};

// Words 4 to 8 are shared, 10 and 11 outside of the target, U + V + j a word that no vocabulary has, first
// at place j, U + 7 one that only the target has.
const Rows kSource{{4, 10, 5, 10, 4, U + 7, kEnd}, {11, U + V + 1, 6, U + V + 1, kEnd}, {8, kEnd}};
const Rows kTarget{{V + 1, 4, 7, kEnd}, {V + 0, V + 1, 6, 8, kEnd}, {1, kEnd}};

// The target word of source word j of sentence b.
std::int32_t word(std::size_t b, std::size_t j) {
  const std::int32_t id = kSource[b][j];
  if (id >= U) return id - std::int32_t(U);
  if (id == kEnd || id < V) return id;
  return std::int32_t(V) + std::int32_t(std::find(kSource[b].begin(), kSource[b].end(), id) - kSource[b].begin());
}

// Last cross-attention, its first head, in f64.   [B, T, S]
Tensor weights_of(const List<AttentionMap>& maps) {
  const Tensor& weights = last_cross_attention(maps)->weights.value();
  return weights.rank() == 4 ? weights(all, 0) : weights;
}

// What teacher forcing gives: features, weights of the attention, states of the encoder.
struct Forced {
  explicit Forced(const Copying& net, const Batch& batch) {
    Variable h;
    features = net.model->features(batch, &maps, &h).value(), states = h.value();
  }
  List<AttentionMap> maps;
  Tensor features, states;
};

// P of all words after the first t of sentence b, by the definition.   [V + S]
std::vector<double> distribution(const Copying& net, const Forced& forced, std::size_t b, Index t, Index S) {
  const Tensor f = forced.features[Index(b)][t], z = net.model->logits(constant(forced.features)).value()[Index(b)][t];
  std::vector<double> p(std::size_t(V + S)), places(kSource[b].size());
  double words = 0, rest = 0;                                       // Σ e^z, Σ e^ψ
  for (Index v = 0; v < V; ++v) words += p[std::size_t(v)] = std::exp(z[v].item());
  if (const auto* const copynet = dynamic_cast<const CopyNet*>(net.model.get())) {
    const Tensor W = copynet->key_proj.weight.value();              // [d, M]
    for (std::size_t j = 0; j < places.size(); ++j) {
      const Tensor h = forced.states[Index(b)][Index(j)];
      double psi = 0;
      for (Index i = 0; i < W.size(0); ++i) psi += std::tanh(sum(W[i] * h).item()) * f[i].item();
      rest += places[j] = std::exp(psi);
    }
  } else {
    rest = words * std::exp(-sum(f * net.gate().weight.value()[0]).item() - net.gate().bias.value().item());   // p = σ(g)
    for (std::size_t j = 0; j < places.size(); ++j) places[j] = rest * weights_of(forced.maps)[Index(b)][t][Index(j)].item();
  }
  for (std::size_t j = 0; j < places.size(); ++j) p[std::size_t(word(b, j))] += places[j];
  for (double& of_word : p) of_word /= words + rest;
  return p;
}

}  // namespace

TEST_CASE("copying: P sums to 1 over the extended vocabulary, repeated source words add up, losses are -log P") {
  for (const char* kind : kEvery) {
    CAPTURE(std::string(kind));
    const Copying net(kind);
    const Batch batch = batch_of(kSource, kTarget);
    const Index S = batch.source.ids.size(1);
    const Forced forced(net, batch);
    const Tensor losses = net.model->token_losses(batch, kPad);
    const auto state = net.model->start(batch.source);
    double total = 0, smoothed = 0;
    const Tensor z = log_softmax(net.model->logits(constant(forced.features)).value());
    for (Index t = 0; t < batch.inputs.size(1); ++t) {
      const Tensor log_p = net.model->step(batch.inputs(all, t).contiguous(), *state).log_probabilities;
      CHECK(log_p.shape() == Shape{3, V + S});
      for (std::size_t b = 0; b < 3; ++b) {
        if (t >= Index(kTarget[b].size())) {
          CHECK(losses[Index(b)][t].item() == 0);
          continue;
        }
        const std::vector<double> p = distribution(net, forced, b, t, S);
        CHECK(std::accumulate(p.begin(), p.end(), 0.0) == doctest::Approx(1).epsilon(1e-12));
        for (std::size_t w = 0; w < p.size(); ++w)
          CHECK(std::exp(log_p[Index(b)][Index(w)].item()) == doctest::Approx(p[w]).epsilon(1e-10));
        const double loss = -std::log(p[std::size_t(kTarget[b][std::size_t(t)])]);
        CHECK(losses[Index(b)][t].item() == doctest::Approx(loss).epsilon(1e-10));
        total += loss;
        smoothed += 0.9 * loss - 0.1 * mean(z[Index(b)][t]).item();
      }
    }
    CHECK(net.model->loss(batch, {.pad = kPad}).sum.value().item() == doctest::Approx(total).epsilon(1e-12));
    CHECK(net.model->loss(batch, {}).tokens == 11);
    // the other labels': softmax's
    CHECK(net.model->loss(batch, {.label_smoothing = 0.1}).sum.value().item() == doctest::Approx(smoothed).epsilon(1e-12));
  }
}

TEST_CASE("copying: an open gate of a pointer generator is the plain decoder, a closed one writes words of the source alone") {
  for (const char* kind : {"transformer", "gru"}) {
    CAPTURE(kind);
    const Copying net(kind);
    Parameters parameters(Seed{3}, DType::f64);
    RunConfig config = config_of(kind);
    config.copy = false;
    const auto plain = make_model(config, parameters.root(), U, V);
    CHECK(equal_bits(net.parameters.find("target_embedding.weight")->variable.value(),
                     parameters.find("target_embedding.weight")->variable.value()));
    const Rows source{{4, 5, 8, kEnd}}, target{{8, 5, kEnd}};
    const Batch batch = batch_of(source, target);
    const auto first = [&](const Seq2Seq& model) {
      return model.step(tensor(std::vector<std::int32_t>{kStart}, {1}), *model.start(batch.source)).log_probabilities[0];
    };
    const Tensor bias = net.gate().bias.value();
    fill_(bias, 1e4);
    CHECK(net.model->loss(batch, {}).sum.value().item() == doctest::Approx(plain->loss(batch, {}).sum.value().item()).epsilon(1e-12));
    CHECK(worst_absolute(first(*net.model)(Slice{0, V}), first(*plain)) < 1e-12);
    for (const double log_p : first(*net.model)(Slice{V, V + 4}).to_vector<double>()) CHECK(log_p == -HUGE_VAL);
    fill_(bias, -1e4);
    const Tensor p = exp(first(*net.model));
    CHECK((p[4] + p[5] + p[8] + p[kEnd]).item() == doctest::Approx(1).epsilon(1e-12));
  }
}

TEST_CASE("copying: rows follow their beam, sentences are dropped, states of another model are refused") {
  for (const char* kind : {"transformer", "lstm", "transformer copynet", "lstm none copynet"}) {
    CAPTURE(std::string(kind));
    const Copying net(kind);
    const Batch batch = batch_of(kSource, kTarget);
    const auto next = [&](const Rows& sources, const std::vector<std::vector<Index>>& orders, const Rows& words) {
      auto state = net.model->start(pad_sequences(sources, kPad));
      Tensor last;
      for (std::size_t t = 0; t < words.size(); ++t) {
        if (t > 0) state->reorder(orders[t - 1], 2);
        last = net.model->step(tensor(words[t], {Index(words[t].size())}), *state).log_probabilities;
      }
      return last;
    };
    const Tensor two = next(kSource, {{2, 2, 0, 0}}, {{2, 2, 2}, {5, 4, V + 1, 6}});
    for (const auto& [row, sentence, word] : {std::tuple(0, 2, 5), {2, 0, int(V) + 1}, {3, 0, 6}}) {
      const Rows alone{kSource[std::size_t(sentence)]};
      const Tensor expected = next(alone, {{0, 0}}, {{2}, {word, word}})[0];
      CHECK(worst_absolute(exp(two[row](Slice{0, expected.size(0)})), exp(expected)) < 1e-12);
    }
    // sentences 2 and 0 go on in two rows each, then 0 alone in exchanged rows; V + 1 is <unk> to the model beneath
    const Tensor many = next(kSource, {{2, 2, 0, 0}, {3, 2}}, {{2, 2, 2}, {5, 4, V + 1, 6}, {7, 8}});
    for (const Index row : {0, 1}) {
      const std::int32_t before = row == 0 ? 6 : V + 1, now = row == 0 ? 7 : 8;
      const Tensor alone = next({kSource[0]}, {{0, 0}, {0, 1}}, {{2}, {before, before}, {now, now}});
      CHECK(worst_absolute(many[row], alone[0]) < 1e-12);
    }
    CHECK(equal_bits(next({kSource[0]}, {{0, 0}}, {{2}, {V + 1, 4}})[0], next({kSource[0]}, {{0, 0}}, {{2}, {1, 4}})[0]));
    Parameters parameters(Seed{1});
    const auto plain = make_model(default_config("transformer"), parameters.root(), U, V);
    CHECK(message_of([&] {
            net.model->step(tensor(std::vector<std::int32_t>{2, 2, 2}, {3}), *plain->start(pad_sequences(Rows{{4, kEnd}}, kPad)));
          }) == "step: a model of another kind made this state; start() of this one");
  }
}

TEST_CASE("copying: gradients against differences") {
  for (const char* kind : kEvery) {
    CAPTURE(std::string(kind));
    const Copying net(kind);
    const Batch batch = batch_of(kSource, kTarget);
    const auto loss = [&] { return net.model->loss(batch, {.label_smoothing = 0.1}).sum; };
    Tape tape(evaluating);
    tape.backward(loss());
    for (const auto& item : net.parameters.items()) {
      CAPTURE(item->path);
      const Tensor value = item->variable.value(), before = value.clone(), direction = normal(Key(7), value.shape(), 0, 1, DType::f64);
      const double played = item->gradient->written() ? sum(item->gradient->value() * direction).item() : 0;
      const NoRecording unrecorded;
      const auto at = [&](double h) {
        copy_into(value, before + h * direction);
        return loss().value().item();
      };
      const double h = 1e-5, difference = (at(h) - at(-h)) / (2 * h);
      copy_into(value, before);
      CHECK(std::abs(played - difference) < 1e-6 * std::max(1.0, std::abs(difference)));
    }
  }
}

TEST_CASE("copying: more padding changes nothing, nor do threads a bit") {
  for (const char* kind : kEvery) {
    CAPTURE(std::string(kind));
    Copying net(kind);
    const Batch batch = batch_of(kSource, kTarget), wide = padded(batch, 3);
    const Index T = batch.targets.size(1), S = batch.source.ids.size(1);
    const Tensor losses = net.model->token_losses(batch, kPad);
    CHECK(worst_absolute(net.model->token_losses(wide, kPad)(all, Slice{0, T}), losses) < 1e-12);
    const auto first = [&](const Batch& of) {
      return exp(net.model->step(full({3}, kStart, DType::i32), *net.model->start(of.source)).log_probabilities);
    };
    CHECK(worst_absolute(first(wide)(all, Slice{0, V + S}), first(batch)) < 1e-12);
    CHECK(worst_absolute(first(wide)(all, Slice{V + S, V + S + 3}), std::vector<double>(9)) == 0);
    CHECK(worst_absolute(first(batch)(2, Slice{V + 2, V + S}), std::vector<double>(std::size_t(S - 2))) == 0);   // behind its two words
    const Sequences nothing{full({1, 2}, kPad, DType::i32), zeros({1}, DType::i32)};                             // no word to copy
    const Tensor none = net.model->step(full({1}, kStart, DType::i32), *net.model->start(nothing)).log_probabilities[0];
    CHECK((sum(exp(none(Slice{0, V}))).item() == doctest::Approx(1).epsilon(1e-12) || copies_by_attention(config_of(kind))));
    CHECK(worst_absolute(exp(none(Slice{V, V + 2})), std::vector<double>(2)) == 0);
    const auto played = [&] {
      std::vector<Tensor> all{net.model->token_losses(batch, kPad), first(batch)};
      Tape tape(evaluating);
      tape.backward(net.model->loss(batch, {}).sum);
      for (const auto& item : net.parameters.items()) all.push_back(item->gradient->value().clone());
      return all;
    };
    const std::vector<Tensor> expected = played();
    for_threads([&] {
      net.parameters.forget_gradients();
      const std::vector<Tensor> now = played();
      for (std::size_t i = 0; i < now.size(); ++i) CHECK(equal_bits(now[i], expected[i]));
    });
  }
}

TEST_CASE("copying: CopyNet's places and words may be far apart") {
  for (const double factor : {-1e3, -30.0, 30.0, 1e3}) {
    CAPTURE(factor);
    RunConfig config = config_of("gru copynet");
    config.width = 64;
    Parameters parameters(Seed{3});
    const auto model = make_model(config, parameters.root(), U, V, shared());
    for (const char* const path : {"readout.context.weight", "readout.state.weight", "readout.embed.weight"}) {
      const Tensor& weight = parameters.find(path)->variable.value();
      copy_into(weight, weight * factor);
    }
    const Batch batch = batch_of(kSource, kTarget);
    const Tensor losses = model->token_losses(batch, kPad);
    const auto state = model->start(batch.source);
    for (Index t = 0; t < batch.inputs.size(1); ++t) {
      const Tensor log_p = model->step(batch.inputs(all, t).contiguous(), *state).log_probabilities;
      for (std::size_t b = 0; b < 3; ++b) {
        if (t >= Index(kTarget[b].size())) continue;
        const double loss = losses[Index(b)][t].item();
        CHECK(std::isfinite(loss));
        CHECK(-log_p[Index(b)][kTarget[b][std::size_t(t)]].item() == doctest::Approx(loss).epsilon(1e-4));
        CHECK(sum(exp(log_p[Index(b)])).item() == doctest::Approx(1).epsilon(1e-5));
      }
    }
    Tape tape(evaluating);
    tape.backward(model->loss(batch, {}).sum);
    for (const auto& item : parameters.items())
      for (const double number : doubles(item->gradient->value())) CHECK(std::isfinite(number));
  }
}

namespace {

// A model whose encoder and decoder have been run elsewhere.
struct Given : Seq2Seq {
  Given(Scope scope, golden::Case& c) : out(scope / "out", {.in = 5, .out = 7}), states(c.input("states")), rows(c.input("features")) {}
  Variable features(const Batch&, List<AttentionMap>*, Variable* h) const override { return *h = states, rows; }
  const Linear& output_layer() const override { return out; }
  Loss loss(const Batch&, const CrossEntropyOptions&, List<AttentionMap>*) const override { return {}; }
  Encoding encode(const Sequences&) const override { return {std::make_unique<Place>(), states}; }
  Index encoder_width() const override { return states.size(-1); }
  Variable next_features(const Tensor&, DecodingState& state, List<AttentionMap>*) const override {
    return select(rows, 1, dynamic_cast<Place&>(state).t++);
  }
  struct Place : DecodingState {
    void reorder(std::span<const Index>, Index) override {}
    Index t = 0;
  };
  Linear out;
  Variable states, rows;
};

}  // namespace

TEST_CASE("copying: CopyNet's probabilities, loss and gradients are PyTorch's") {
  golden::each("copying", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    auto given = std::make_unique<Given>(parameters.root(), c);
    const CopyNet model(parameters.root(), std::move(given), {.source_vocabulary = 1, .target_vocabulary = 7, .pad = -1});
    c.fill(parameters);
    const Tensor words = to(c.tensor("words"), DType::i32), lengths = to(c.tensor("lengths"), DType::i32),
                 targets = to(c.tensor("targets"), DType::i32);
    // target word w is source word U + w
    const Batch batch{.source = {words + 1, lengths}, .inputs = targets, .targets = targets, .lengths = lengths};
    List<Tensor> p;
    const auto state = model.start(batch.source);
    for (Index t = 0; t < targets.size(1); ++t) p.push_back(exp(model.step(targets(all, t).contiguous(), *state).log_probabilities));
    c.check_value("probabilities", stack(std::span<const Tensor>(p), 1));
    Tape tape(evaluating);
    c.check(tape, {{"loss", model.loss(batch, {}).sum}}, &parameters);
  });
}

TEST_CASE(
    "copying: a word that is pointed at without any weight has one finite loss in training as in search, and no gradient of its inverse") {
  for (const std::string kind : {"transformer", "gru"}) {
    CAPTURE(kind);
    RunConfig config = config_of(kind);
    (kind == "gru" ? config.attention : config.normalise) = kind == "gru" ? "general-hard" : "hard";     // one place has all the weight
    Parameters parameters(Seed{1});
    const auto model = make_model(config, parameters.root(), U, V, shared());
    const std::vector<std::int32_t> source{U + V, U + V + 1, U + V + 2, U + V + 3, kEnd};
    const Batch batch = batch_of(Rows(4, source), {{V, kEnd}, {V + 1, kEnd}, {V + 2, kEnd}, {V + 3, kEnd}});
    const std::vector<float> losses = model->token_losses(batch, kPad)(all, 0).contiguous().to_vector<float>();
    const auto least = doctest::Approx(20 * std::log(10)).epsilon(1e-6);
    CHECK(std::ranges::count_if(losses, [&](float loss) { return loss == least; }) >= 3);
    // by one place, to which no word belongs
    const Sequences padded = pad_sequences(Rows{{4, 5, 6, 7, 8, kEnd}, source}, kPad);
    const auto state = model->start(padded);
    const Tensor log_p = model->step(tensor(std::vector<std::int32_t>{kStart, kStart}, {2}), *state).log_probabilities[1];
    for (Index w = 0; w < 4; ++w) CHECK(-log_p[V + w].item() == doctest::Approx(losses[std::size_t(w)]).epsilon(1e-5));
    for (const Index w : {4, 5}) CHECK(log_p[V + w].item() == -HUGE_VAL);
    state->reorder(std::vector<Index>{1}, 1);                                                             // goes on alone
    const std::vector<float> next =
        model->step(tensor(std::vector<std::int32_t>{4}, {1}), *state).log_probabilities[0](Slice{V, V + 6}).to_vector<float>();
    for (const std::size_t w : {0, 1, 2, 3}) CHECK(next[w] >= -47);
    for (const std::size_t w : {4, 5}) CHECK(next[w] == -HUGE_VALF);
    Adam adam(parameters, {});
    Trainer trainer(*model, parameters, adam, Schedule({.peak = 1e-3}), {});
    const Trainer::Report update = trainer.update({&batch, 1});
    CHECK_FALSE(update.skipped);
    CHECK(update.gradient_norm < 1e3);
  }
}

TEST_CASE("copying: ids that are no words are refused, as is a model that does not look") {
  const Copying net("transformer");
  CHECK(message_of([&] {
          net.model->start(pad_sequences(Rows{{U + V + 2, kEnd}}, kPad));
        }) == "copying model: source word 24 at position [0, 0] is not in [0, 24)");
  CHECK(message_of([&] {
          net.model->start(pad_sequences(Rows{{-1, kEnd}}, kPad));
        }) == "copying model: source word -1 at position [0, 0] is not in [0, 24)");
  RunConfig config = config_of("gru");
  config.attention = "none";
  Parameters parameters(Seed{1});
  const auto model = make_model(config, parameters.root(), U, V);
  CHECK(message_of([&] { model->loss(batch_of({{4, kEnd}}, {{4, kEnd}}), {}); }) == "pointer generator: the model looks at no source word");
}

TEST_CASE("copying: learns to copy words that it has never seen, alone as in company, whatever the beam") {
  // "a b NAME" becomes "NAME d": names are in no vocabulary.
  for (const std::string flags :
       {"--copy --layers 1 --heads 2 --dropout 0", "--model gru --copy --dropout 0",
        "--copy --copy-form copynet --layers 1 --heads 2 --dropout 0", "--model gru --copy --copy-form copynet --dropout 0"}) {
    CAPTURE(flags);
    const SmallModel small(flags);
    Random random(Key(5));
    const auto name = [&] {
      std::string text;
      for (int i = 0; i < 4; ++i) text += char('e' + random.below(20));
      return text;
    };
    const auto pair = [&] {
      const std::string unseen = name();
      const bool first = random.below(2) == 0;
      return std::pair(first ? unseen + " a b" : "a b c " + unseen, first ? unseen + " d" : "c " + unseen);
    };
    std::vector<Example> examples;
    for (int i = 0; i < 64; ++i) {
      const auto [source, target] = pair();
      examples.push_back(small.example(source, target));
    }
    Adam adam(*small.parameters, {.learning_rate = 0.01});
    Trainer trainer(*small.model, *small.parameters, adam, Schedule({.peak = 0.01}), {.loss = {.pad = 0}});
    const Batch batch = make_batch(examples, 0, 2);
    for (int i = 0; i < 200; ++i) trainer.update({&batch, 1});
    std::vector<std::string> lines, wanted;
    for (int i = 0; i < 8; ++i) {
      const auto [source, target] = pair();
      lines.push_back(source), wanted.push_back(target);
    }
    for (const Index beam : {1, 3}) {
      const TranslateOptions options{.search = {.beam = beam}};
      const auto found = translate(small.run, *small.model, lines, options);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        CHECK(found[i][0].text == wanted[i]);
        const auto alone = translate(small.run, *small.model, std::span(lines).subspan(i, 1), options);
        CHECK(alone[0][0].score == found[i][0].score);
      }
    }
    for (const std::string& line : wanted) {
      const std::vector<std::string> prefix{line.substr(0, line.find(' '))};
      const std::span one = std::span(lines).subspan(std::size_t(&line - wanted.data()), 1);
      const Translation begun = translate(small.run, *small.model, one, {}, prefix)[0][0],
                        free = translate(small.run, *small.model, one, {})[0][0];
      CHECK((begun.text == line && begun.log_probability == free.log_probability));
    }
    const std::vector<double> losses = negative_log_likelihoods(small.run, *small.model, std::vector{small.example(lines[0], wanted[0])});
    CHECK(losses[0] ==
          doctest::Approx(-translate(small.run, *small.model, std::span(lines).first(1), {})[0][0].log_probability).epsilon(1e-4));
    CHECK(source_text(small.run, small.example(lines[0], wanted[0])) == lines[0]);
    CHECK(target_text(small.run, small.example(lines[0], wanted[0])) == wanted[0]);
  }
}
