// SPDX-License-Identifier: Apache-2.0
#include "nn/recurrent.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/tape.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/golden.h"

using namespace heed;

namespace {

RecurrentUnit unit_of(const std::string& kind, bool relu = false) {
  return kind == "lstm" ? RecurrentUnit::lstm : kind == "gru" ? RecurrentUnit::gru_cudnn : relu ? RecurrentUnit::relu : RecurrentUnit::tanh;
}

bool is_layer(const std::string& name) { return name.find("cell") == std::string::npos; }

// States of all layers as PyTorch stacks them, [layers · directions, B, n].
Variable stacked_states(std::span<const RecurrentState> states, Variable RecurrentState::* part) {
  std::vector<Variable> all;
  for (const RecurrentState& state : states) all.push_back(state.*part);
  return stack(all);
}

}  // namespace

TEST_CASE("golden: recurrent layers") {
  golden::each("recurrent", is_layer, [](golden::Case& c) {
    const Json& o = c.options();
    Parameters parameters(Seed{1}, c.dtype());
    const RecurrentLayers net(parameters.root(), {.unit = unit_of(o["kind"], o.value("nonlinearity", "") == "relu"),
                                                  .in = c.tensor("x").size(-1),
                                                  .width = 4,
                                                  .layers = o.value("layers", 1),
                                                  .bidirectional = o.value("bidirectional", false),
                                                  .bias = o.value("bias", true)});
    c.fill(parameters);
    const bool varied = c.has("lengths"), lstm = net.unit == RecurrentUnit::lstm;
    Tape tape(evaluating);
    List<RecurrentState> initial;
    if (c.has("h_0")) {
      const auto h = unbind(c.input("h_0")), cs = lstm ? unbind(c.input("c_0")) : List<Variable>();
      for (std::size_t i = 0; i < h.size(); ++i) initial.push_back({h[i], lstm ? cs[i] : Variable()});
    }
    const auto out = net(c.input("x"), varied ? to(c.tensor("lengths"), DType::i32) : Tensor(), initial);
    std::map<std::string, Variable> outputs{{"y", out.outputs}, {"h_n", stacked_states(out.states, &RecurrentState::h)}};
    if (lstm) outputs["c_n"] = stacked_states(out.states, &RecurrentState::c);
    c.check(tape, outputs, &parameters);
  });
}

TEST_CASE("golden: recurrent cells, PyTorch's and the papers' GRU") {
  golden::each("recurrent", [](const std::string& name) { return !is_layer(name); }, [](golden::Case& c) {
    const Json& o = c.options();
    const std::string form = o.value("form", "");
    Parameters parameters(Seed{1}, c.dtype());
    const Index in = c.tensor("x").size(-1);
    const bool bias = o.value("bias", true);
    const RecurrentCell cell = [&]() -> RecurrentCell {
      const Scope root = parameters.root();
      const std::string kind = o.value("kind", "gru");
      if (kind == "lstm") return LstmCell(root, {.in = in, .width = 4, .bias = bias});
      if (kind != "gru") return RnnCell(root, {.in = in, .width = 4, .bias = bias});
      const GruForm of = form == "bahdanau" ? GruForm::bahdanau : form == "cho" ? GruForm::cho : GruForm::cudnn;
      return GruCell(root, {.in = in, .width = 4, .form = of, .bias = bias});
    }();
    c.fill(parameters);
    Tape tape(evaluating);
    const bool lstm = cell.unit == RecurrentUnit::lstm;
    const RecurrentState y = cell(c.input("x"), {c.input("h"), lstm ? c.input("c") : Variable()});
    std::map<std::string, Variable> outputs{{"h", y.h}};
    if (lstm) outputs["c"] = y.c;
    c.check(tape, outputs, &parameters);
  });
  Parameters parameters(Seed{1});
  CHECK(RnnCell(parameters.root() / "cell", {.in = 2, .width = 2, .relu = true}).unit == RecurrentUnit::relu);
  CHECK(Rnn(parameters.root() / "net", {.in = 2, .width = 2, .relu = true}).unit == RecurrentUnit::relu);
}

TEST_CASE("recurrent layers: padding changes no bit of the input's gradient, both directions added") {
  for (const RecurrentUnit unit : {RecurrentUnit::gru_cudnn, RecurrentUnit::lstm}) {
    Parameters parameters(Seed{1});
    const RecurrentLayers layer(parameters.root(), {.unit = unit, .in = 12, .width = 20, .bidirectional = true});
    const auto slope = [&](Index more) {
      const Variable x = variable(pad(normal(Key(2), {3, 5, 12}), 1, 0, more));
      Tape tape;
      tape.backward(sum(square(layer(x, tensor({5, 5, 5}, DType::i32)).outputs)));
      return slice(x.grad(), 1, 0, 5);
    };
    CHECK(equal_bits(slope(2), slope(0)));
  }
}

TEST_CASE("recurrent initial values: PyTorch's bounds, the papers', the forget gate's bias") {
  const Index n = 50;
  const auto largest = [](const Parameter& p) { return max(abs(p.value())).item(); };
  {
    Parameters parameters(Seed{1});
    const Lstm lstm(parameters.root(), {.in = 30, .width = n, .layers = 2, .forget_bias = 1.5});
    for (const auto& w : lstm.weights) {
      for (const Parameter* p : {&w.weight_ih, &w.weight_hh, &w.bias_hh}) {
        CHECK(largest(*p) <= 1.00001 / std::sqrt(double(n)));
        CHECK(largest(*p) > 0.9 / std::sqrt(double(n)));
      }
      const std::vector<float> bias = w.bias_ih.value().to_vector<float>();               // i, f, g, o
      for (Index j = 0; j < 4 * n; ++j) CHECK((bias[std::size_t(j)] == 1.5f) == (j / n == 1));
    }
    Parameters again(Seed{1});
    const Lstm plain(again.root(), {.in = 30, .width = n, .layers = 2});                   // nothing else depends on it
    CHECK(plain.weights[1].weight_hh.value().to_vector<float>() == lstm.weights[1].weight_hh.value().to_vector<float>());
    CHECK(largest(plain.weights[0].bias_ih) <= 1.00001 / std::sqrt(double(n)));
  }
  {                                                                                        // Bahdanau et al. 2014, B.1
    Parameters parameters(Seed{1}, DType::f64);
    const GruCell cell(parameters.root(), {.in = 40, .width = n, .form = GruForm::bahdanau, .init = bahdanau_recurrent_init()});
    CHECK(largest(cell.bias_ih) == 0);
    const double deviation = std::sqrt(mean(square(cell.weight_ih.value())).item());       // of 6000: relative error of about 1 %
    CHECK(deviation == doctest::Approx(0.01).epsilon(0.05).scale(0));
    for (Index gate = 0; gate < 3; ++gate) {                                               // each gate for itself: U Uᵀ = I
      const Tensor u = slice(cell.weight_hh.value(), 0, gate * n, (gate + 1) * n);
      CHECK(worst_absolute(matmul(u, transpose(u)), eye(n, DType::f64)) < 1e-12);
    }
  }
  Parameters parameters(Seed{1});
  const Lstm lstm(parameters.root(), {.in = 30, .width = n, .init = uniform_recurrent_init(0.08)});   // Sutskever et al. 2014
  for (const auto& item : parameters.items()) {
    CHECK(max(abs(item->variable.value())).item() <= 0.080001);
    CHECK(max(abs(item->variable.value())).item() > 0.07);
  }
}

TEST_CASE("recurrent options: what would be ignored or fail in training alone is refused when it is built") {
  Parameters parameters(Seed{1});
  const Scope scope = parameters.root() / "rnn";
  CHECK_THROWS_WITH_AS(Lstm(scope, {.in = 2, .width = 3, .bias = false, .forget_bias = 1}),
                       "in rnn: recurrent: forget_bias needs an LSTM with biases: 1", Error);
  CHECK_THROWS_AS(LstmCell(scope, {.in = 2, .width = 3, .bias = false, .forget_bias = 1}), Error);
  CHECK_THROWS_AS(RecurrentLayers(scope, {.unit = RecurrentUnit::gru_cudnn, .in = 2, .width = 3, .forget_bias = 1}), Error);
  CHECK_THROWS_WITH_AS(Lstm(scope, {.in = 2, .width = 3, .dropout = 1.5}), "in rnn: dropout: p must be in [0, 1]: 1.5", Error);
  CHECK_THROWS_AS(Gru(scope, {.in = 2, .width = 3, .dropout_in = -0.1}), Error);
  CHECK_THROWS_AS(Rnn(scope, {.in = 2, .width = 3, .dropout_out = NAN}), Error);
  CHECK_THROWS_WITH_AS(Lstm(scope, {.in = 2, .width = 3, .dropout = 0.5}),
                       "in rnn: recurrent: one layer has nothing between layers: dropout 0.5; dropout_in or dropout_out", Error);
  CHECK(parameters.count() == 0);
  Lstm(scope, {.in = 2, .width = 3, .layers = 2, .dropout = 1, .bias = false});
}

TEST_CASE("recurrent dropout: at the ends and between layers, never on what a state hands on") {
  const Index B = 4, S = 5, n = 8;
  const Tensor x = normal(Key(1), {B, S, 8});
  const auto zero_share = [](const Tensor& y) {
    const std::vector<float> values = y.to_vector<float>();
    return double(std::count(values.begin(), values.end(), 0.0f)) / double(values.size());
  };
  const auto dropped = [&](double in, double between, double out) {
    return Rnn::Options{.in = 8, .width = n, .layers = 2, .dropout = between, .dropout_in = in, .dropout_out = out};
  };
  const auto run = [&](const Rnn::Options& options, bool training) {
    Parameters parameters(Seed{1});
    const Rnn net(parameters.root(), options);
    std::optional<Tape> tape;
    if (training) tape.emplace(Key{1, 1});
    return net(constant(x));
  };
  const auto plain = run(dropped(0, 0, 0), false);
  for (const Rnn::Options& options : {dropped(0, 0.5, 0), dropped(0.5, 0, 0), dropped(0, 0, 0.5)})
    CHECK(equal_bits(run(options, false).outputs.value(), plain.outputs.value()));          // none without a tape that trains

  const auto out = run(dropped(0, 0, 0.5), true);                            // only what is handed out: states are whole
  CHECK(equal_bits(out.states[1].h.value(), plain.states[1].h.value()));
  CHECK(zero_share(out.outputs.value()) == doctest::Approx(0.5).epsilon(0.4).scale(0));
  const Tensor kept = to(not_equal(out.outputs.value(), 0.0), DType::f32);
  CHECK(worst_absolute(out.outputs.value(), 2 * plain.outputs.value() * kept) == 0);        // times 1/(1 - p)
  CHECK(!equal_bits(kept[0][0], kept[0][1]));                                               // a fresh mask each step

  const auto between = run(dropped(0, 0.5, 0), true);                            // the first layer is untouched, the last output whole
  CHECK(equal_bits(between.states[0].h.value(), plain.states[0].h.value()));
  CHECK(!equal_bits(between.states[1].h.value(), plain.states[1].h.value()));
  CHECK(zero_share(between.outputs.value()) == 0);

  const auto in = run(dropped(0.5, 0, 0), true);
  CHECK(!equal_bits(in.states[0].h.value(), plain.states[0].h.value()));
  CHECK(zero_share(in.outputs.value()) == 0);
}
