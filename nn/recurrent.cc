// SPDX-License-Identifier: Apache-2.0
#include "nn/recurrent.h"

#include "nn/dropout.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

// The four parameters of one direction of one layer; `ending` is "" in a cell.
RecurrentLayers::Direction declare(const Scope& scope, const std::string& ending, RecurrentUnit unit, Index in, Index width, bool bias,
                                   double forget_bias, const RecurrentInit& init) {
  const Inside inside(scope.path());
  check<ShapeError>(in >= 1 && width >= 1, "recurrent: widths must be at least 1: in {}, width {}", in, width);
  check<Error>(forget_bias == 0 || (unit == RecurrentUnit::lstm && bias), "recurrent: forget_bias needs an LSTM with biases: {}",
               forget_bias);
  const Index gates = gate_count(unit), rows = gates * width;
  const auto each_gate = [&](const Initializer& given) { return given ? stacked(gates, given) : linear_uniform(width); };
  const Initializer biases = each_gate(init.bias);
  const Initializer bias_ih = forget_bias == 0 ? biases : [=](const Tensor& into, Key key) {
    biases(into, key);
    fill_(into.indexed({Slice{width, 2 * width}}), forget_bias);
  };
  RecurrentLayers::Direction made{scope.parameter("weight_ih" + ending, {rows, in}, each_gate(init.weight_ih)),
                                  scope.parameter("weight_hh" + ending, {rows, width}, each_gate(init.weight_hh)), {}, {}};
  if (bias) made.bias_ih = scope.parameter("bias_ih" + ending, {rows}, bias_ih);
  if (resets_before(unit)) scope.gru_form(unit == RecurrentUnit::gru_cho ? "cho" : "bahdanau");
  if (bias && !resets_before(unit)) made.bias_hh = scope.parameter("bias_hh" + ending, {rows}, biases);
  return made;
}

}  // namespace

RecurrentUnit gru_unit(GruForm form) {
  return form == GruForm::bahdanau ? RecurrentUnit::gru_bahdanau : form == GruForm::cho ? RecurrentUnit::gru_cho : RecurrentUnit::gru_cudnn;
}

RecurrentInit bahdanau_recurrent_init() { return {normal_init(0, 0.01), orthogonal(), constant_init(0)}; }

RecurrentInit uniform_recurrent_init(double r) { return {uniform_init(-r, r), uniform_init(-r, r), uniform_init(-r, r)}; }

// ---- cells -----------------------------------------------------------------------------------------------------------------

RecurrentCell::RecurrentCell(Scope scope, Options options) : unit(options.unit), width(options.width), path(scope.path()) {
  auto made = declare(scope, "", options.unit, options.in, options.width, options.bias, options.forget_bias, options.init);
  weight_ih = std::move(made.weight_ih);
  weight_hh = std::move(made.weight_hh);
  bias_ih = std::move(made.bias_ih);
  bias_hh = std::move(made.bias_hh);
}

Variable RecurrentCell::input(const Variable& x) const {
  const Inside inside(path);
  return linear(x, weight_ih, bias_ih);
}

RecurrentState RecurrentCell::zero_state(Index batch) const {
  const Variable zero = constant(zeros({batch, width}, weight_hh.variable().dtype()));
  return {zero, unit == RecurrentUnit::lstm ? zero : Variable()};
}

RecurrentState RecurrentCell::step(const Variable& gates, const RecurrentState& state) const { return step(gates, state, bias_hh); }

RecurrentState RecurrentCell::step(const Variable& gates, const RecurrentState& state, const Variable& bias) const {
  const Inside inside(path);
  return recurrent_cell(unit, gates, state, weight_hh, bias);
}

RecurrentState RecurrentCell::operator()(const Variable& x, const RecurrentState& state) const {
  const Inside inside(path);
  check<ShapeError>(x.rank() == 2, "recurrent cell: x must be [B, in]: {}", x.shape());
  return step(input(x), state);
}

RnnCell::RnnCell(Scope scope, Options o)
    : RecurrentCell(
          scope,
          {.unit = o.relu ? RecurrentUnit::relu : RecurrentUnit::tanh, .in = o.in, .width = o.width, .bias = o.bias, .init = o.init}) {}
LstmCell::LstmCell(Scope scope, Options o)
    : RecurrentCell(
          scope,
          {.unit = RecurrentUnit::lstm, .in = o.in, .width = o.width, .bias = o.bias, .forget_bias = o.forget_bias, .init = o.init}) {}
GruCell::GruCell(Scope scope, Options o)
    : RecurrentCell(scope, {.unit = gru_unit(o.form), .in = o.in, .width = o.width, .bias = o.bias, .init = o.init}) {}

// ---- layers ----------------------------------------------------------------------------------------------------------------

RecurrentLayers::RecurrentLayers(Scope scope, Options options)
    : unit(options.unit), width(options.width), layers(options.layers), bidirectional(options.bidirectional),
      dropout(checked_dropout(scope.path(), options.dropout)), dropout_in(checked_dropout(scope.path(), options.dropout_in)),
      dropout_out(checked_dropout(scope.path(), options.dropout_out)), path(scope.path()) {
  const Inside inside(path);
  check<ShapeError>(layers >= 1, "recurrent: layers must be at least 1: {}", layers);
  check<Error>(layers > 1 || dropout == 0, "recurrent: one layer has nothing between layers: dropout {}; dropout_in or dropout_out",
               dropout);
  for (Index k = 0; k < layers; ++k)
    for (Index d = 0; d < directions(); ++d)
      weights.push_back(declare(scope, fmt::format("_l{}{}", k, d ? "_reverse" : ""), unit, k == 0 ? options.in : directions() * width,
                                width, options.bias, options.forget_bias, options.init));
}

RecurrentLayers::Output RecurrentLayers::operator()(const Variable& x, const Tensor& lengths, const List<RecurrentState>& initial) const {
  const Inside inside(path);
  check_not_moved_from(!weights.empty(), "recurrent");
  check<ShapeError>(initial.empty() || initial.size() == weights.size(), "recurrent: needs {} initial states, got {}", weights.size(),
                    initial.size());
  Output out{heed::dropout(x, dropout_in), {}};
  for (Index k = 0; k < layers; ++k) {
    List<Variable> sides;
    for (Index d = 0; d < directions(); ++d) {
      const auto i = std::size_t(k * directions() + d);
      const Direction& w = weights[i];
      RecurrentSequence side = recurrent_layer(unit, out.outputs, lengths, initial.empty() ? RecurrentState() : initial[i],
                                               {w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh}, d == 1);
      sides.push_back(std::move(side.outputs));
      out.states.push_back(std::move(side.last));
    }
    // [B, S, directions n]
    out.outputs = heed::dropout(bidirectional ? concat(sides, -1) : sides[0], k + 1 < layers ? dropout : dropout_out);
  }
  return out;
}

Rnn::Rnn(Scope scope, Options o)
    : RecurrentLayers(scope, {.unit = o.relu ? RecurrentUnit::relu : RecurrentUnit::tanh,
                              .in = o.in, .width = o.width, .layers = o.layers, .bidirectional = o.bidirectional,
                              .dropout = o.dropout, .dropout_in = o.dropout_in, .dropout_out = o.dropout_out,
                              .bias = o.bias, .init = o.init}) {}
Lstm::Lstm(Scope scope, Options o)
    : RecurrentLayers(scope, {.unit = RecurrentUnit::lstm,
                              .in = o.in, .width = o.width, .layers = o.layers, .bidirectional = o.bidirectional,
                              .dropout = o.dropout, .dropout_in = o.dropout_in, .dropout_out = o.dropout_out,
                              .bias = o.bias, .forget_bias = o.forget_bias, .init = o.init}) {}
Gru::Gru(Scope scope, Options o)
    : RecurrentLayers(scope, {.unit = gru_unit(o.form),
                              .in = o.in, .width = o.width, .layers = o.layers, .bidirectional = o.bidirectional,
                              .dropout = o.dropout, .dropout_in = o.dropout_in, .dropout_out = o.dropout_out,
                              .bias = o.bias, .init = o.init}) {}

}  // namespace heed
