// SPDX-License-Identifier: Apache-2.0
#include "nn/recurrent.h"

#include <doctest/doctest.h>

#include "nn/checkpoint.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/golden.h"

using namespace heed;

namespace {

RecurrentUnit unit_of(const std::string& kind, bool relu = false) {
  return kind == "lstm" ? RecurrentUnit::lstm : kind == "gru" ? RecurrentUnit::gru_cudnn : relu ? RecurrentUnit::relu : RecurrentUnit::tanh;
}

bool is_layer(const std::string& name) { return name.find("cell") == std::string::npos; }

// States of all layers as PyTorch stacks them, [layers · directions, B, n].
Variable stacked_states(const std::vector<RecurrentState>& states, Variable RecurrentState::* part) {
  std::vector<Variable> all;
  for (const RecurrentState& state : states) all.push_back(state.*part);
  return stack(all);
}

}  // namespace

TEST_CASE("golden: recurrent layers") {
  golden::each("recurrent", is_layer, [](golden::Case& c) {
    const nlohmann::json& o = c.options();
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
    std::vector<RecurrentState> initial;
    if (c.has("h_0")) {
      const auto h = unbind(c.input("h_0")), cs = lstm ? unbind(c.input("c_0")) : std::vector<Variable>();
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
    const nlohmann::json& o = c.options();
    const std::string form = o.value("form", "");
    Parameters parameters(Seed{1}, c.dtype());
    const RecurrentCell cell(parameters.root(), {.unit = form == "bahdanau" ? RecurrentUnit::gru_bahdanau
                                                         : form == "cho"    ? RecurrentUnit::gru_cho
                                                                            : unit_of(o["kind"]),
                                                 .in = c.tensor("x").size(-1),
                                                 .width = 4,
                                                 .bias = o.value("bias", true)});
    c.fill(parameters);
    Tape tape(evaluating);
    const bool lstm = cell.unit == RecurrentUnit::lstm;
    const RecurrentState y = cell(c.input("x"), {c.input("h"), lstm ? c.input("c") : Variable()});
    std::map<std::string, Variable> outputs{{"h", y.h}};
    if (lstm) outputs["c"] = y.c;
    c.check(tape, outputs, &parameters);
  });
}
