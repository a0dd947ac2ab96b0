// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

Variable zero_state(const Variable& x, Index n) { return constant(zeros({x.size(0), n}, x.dtype())); }

RecurrentState or_zero(RecurrentUnit unit, const Variable& x, Index n, RecurrentState state) {
  if (!state.h.defined()) state.h = zero_state(x, n);
  if (!state.c.defined() && unit == RecurrentUnit::lstm) state.c = zero_state(x, n);
  return state;
}

}  // namespace

RecurrentState recurrent_cell_by_definition(RecurrentUnit unit, const Variable& gates, const RecurrentState& given,
                                            const Variable& weight_hh, const Variable& bias_hh) {
  check_recurrent_cell(unit, gates.value(), given.h.value(), given.c.value(), weight_hh.value(), bias_hh.value());
  const Index n = weight_hh.size(1);
  const auto [h, c] = or_zero(unit, gates, n, given);
  if (resets_before(unit)) {
    const auto w = split(weight_hh, {2 * n, n});
    const auto a = split(gates, {2 * n, n}, 1);
    const auto rz = split(sigmoid(a[0] + linear(h, w[0], {})), 2, 1);
    const Variable g = tanh(a[1] + linear(rz[0] * h, w[1], {}));
    const Variable& z = rz[1];
    return {unit == RecurrentUnit::gru_cho ? z * h + (1 - z) * g : (1 - z) * h + z * g, {}};
  }
  Variable u = linear(h, weight_hh, {});                                                // [B, gates n]
  if (bias_hh.defined()) u = u + bias_hh;
  if (unit == RecurrentUnit::gru_cudnn) {
    const auto a = split(gates, 3, 1), b = split(u, 3, 1);
    const Variable r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]), g = tanh(a[2] + r * b[2]);
    return {(1 - z) * g + z * h, {}};
  }
  if (unit != RecurrentUnit::lstm) return {unit == RecurrentUnit::tanh ? tanh(gates + u) : relu(gates + u), {}};
  const auto s = split(gates + u, 4, 1);
  const Variable next = sigmoid(s[1]) * c + sigmoid(s[0]) * tanh(s[2]);
  return {sigmoid(s[3]) * tanh(next), next};
}

RecurrentSequence recurrent_layer_by_definition(RecurrentUnit unit, const Variable& x, const Tensor& lengths, const RecurrentState& initial,
                                                const RecurrentWeights& w, bool reverse) {
  check_recurrent_layer(unit, x.value(), lengths, initial.h.value(), initial.c.value(), w.weight_ih.value(), w.weight_hh.value(),
                        w.bias_ih.value(), w.bias_hh.value());
  const Index S = x.size(1), n = w.weight_hh.size(1);
  RecurrentState state = or_zero(unit, x, n, initial);
  if (S == 0) return {constant(zeros({x.size(0), 0, n}, x.dtype())), state};
  List<Variable> outputs;
  outputs.resize(std::size_t(S));
  for (Index i = 0; i < S; ++i) {
    const Index s = reverse ? S - 1 - i : i;
    RecurrentState next =
        recurrent_cell_by_definition(unit, linear(select(x, 1, s), w.weight_ih, w.bias_ih), state, w.weight_hh, w.bias_hh);
    if (!lengths.defined()) {
      outputs[std::size_t(s)] = next.h;
      state = next;
      continue;
    }
    const Tensor goes_on = reshape(greater(lengths, double(s)), {x.size(0), 1});   // s < lengths[b]
    outputs[std::size_t(s)] = where(goes_on, next.h, constant(zeros({}, x.dtype())));
    state = {where(goes_on, next.h, state.h), state.c.defined() ? where(goes_on, next.c, state.c) : Variable()};
  }
  return {stack(outputs, 1), state};
}

RecurrentState recurrent_cell(RecurrentUnit unit, const Variable& gates, const RecurrentState& state, const Variable& weight_hh,
                              const Variable& bias_hh) {
  const RecurrentResult y = recurrent_cell(unit, gates.value(), state.h.value(), state.c.value(), weight_hh.value(), bias_hh.value());
  RecurrentResult kept;                // without the states, whose memory the rule does not need
  kept.gates = y.gates;
  kept.kept = y.kept;
  const bool each_row = bias_hh.defined() && bias_hh.rank() == 2;
  const auto rule = [unit, kept, each_row, a = gates.slot(), h = state.h.slot(), c = state.c.slot(), w = weight_hh.slot(),
                     b = bias_hh.slot(), from = saved(state.h), cell = saved(state.c),
                     weight = saved(weight_hh)](const Tensor& dh, const Tensor& dc) {
    const RecurrentGrads d = recurrent_cell_grad(unit, kept, from, cell, weight, dh, dc);
    h.adopt(d.h);
    c.adopt(d.c);
    w.gradient([&](Into dw) { recurrent_grad_weight_hh(unit, kept, from->defined() ? from.get() : zeros_like(d.h), dw); });
    if (b.wanted()) b.adopt(recurrent_grad_bias_hh(unit, kept, each_row));
    a.adopt(kept.gates);
  };
  if (unit != RecurrentUnit::lstm)
    return {record("recurrent_cell", y.h, {gates, state.h, weight_hh, bias_hh}, [rule](const Tensor& dh) { rule(dh, {}); }), {}};
  auto [next_h, next_c] = record<2>("recurrent_cell", {y.h, y.c}, {gates, state.h, state.c, weight_hh, bias_hh},
                                    [rule](const std::array<Tensor, 2>& d) { rule(d[0], d[1]); });
  return {std::move(next_h), std::move(next_c)};
}

RecurrentSequence recurrent_layer(RecurrentUnit unit, const Variable& x, const Tensor& lengths, const RecurrentState& initial,
                                  const RecurrentWeights& w, bool reverse) {
  const RecurrentResult y = recurrent_layer(unit, x.value(), lengths, initial.h.value(), initial.c.value(), w.weight_ih.value(),
                                            w.weight_hh.value(), w.bias_ih.value(), w.bias_hh.value(), reverse, Tape::current() != nullptr);
  const auto rule = [unit, y, lengths = saved(lengths), reverse, x = x.slot(), h = initial.h.slot(), c = initial.c.slot(),
                     w_ih = w.weight_ih.slot(), w_hh = w.weight_hh.slot(), b_ih = w.bias_ih.slot(), b_hh = w.bias_hh.slot(),
                     rows = saved(y.x), weight_ih = saved(w.weight_ih),
                     weight_hh = saved(w.weight_hh)](const Tensor& dy, const Tensor& dh, const Tensor& dc) {
    const RecurrentGrads d = recurrent_layer_grad(unit, y, lengths, weight_hh, reverse, dy, dh, dc);
    h.adopt(d.h);
    c.adopt(d.c);
    x.gradient([&](Into dx) { recurrent_grad_x(y, lengths, weight_ih, dx); });
    w_ih.gradient([&](Into dw) { linear_grad_weight(y.gates, rows, dw); });
    w_hh.gradient([&](Into dw) { recurrent_grad_weight_hh(unit, y, y.previous_h, dw); });
    if (b_ih.wanted() && (unit == RecurrentUnit::gru_cudnn || !b_hh.wanted()))
      b_ih.gradient([&](Into db) { sum_to(y.gates, db); });
    if (!b_hh.wanted()) return;
    const Tensor db = recurrent_grad_bias_hh(unit, y);
    b_hh.adopt(db);
    if (unit != RecurrentUnit::gru_cudnn) b_ih.adopt(db);
  };
  const Inputs inputs{x, initial.h, initial.c, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh};
  if (unit != RecurrentUnit::lstm) {
    auto [outputs, last] =
        record<2>("recurrent_layer", {y.outputs, y.h}, inputs, [rule](const std::array<Tensor, 2>& d) { rule(d[0], d[1], {}); });
    return {std::move(outputs), {std::move(last), {}}};
  }
  auto [outputs, last_h, last_c] =
      record<3>("recurrent_layer", {y.outputs, y.h, y.c}, inputs, [rule](const std::array<Tensor, 3>& d) { rule(d[0], d[1], d[2]); });
  return {std::move(outputs), {std::move(last_h), std::move(last_c)}};
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void recurrent_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  struct Form { const char* name; RecurrentUnit unit; Index gates; };
  using enum RecurrentUnit;
  for (const Form& form : {Form{"tanh", tanh, 1}, Form{"relu", relu, 1}, Form{"lstm", lstm, 4}, Form{"gru_bahdanau", gru_bahdanau, 3},
                           Form{"gru_cho", gru_cho, 3}, Form{"gru_cudnn", gru_cudnn, 3}}) {
    const auto [name, unit, gates] = form;
    const bool two_states = unit == lstm, two_biases = !resets_before(unit);
    const Index n = 3, rows = gates * n;
    // gates, h, weight_hh, c, bias_hh
    SampleTable::Inputs cell{{{N, rows}}, {{N, n}}, {{rows, n}, -1, 1}};
    if (two_states) cell.push_back({{N, n}});
    const auto rest = [=](auto x, std::size_t from) {   // c and bias_hh, where the unit has them
      using V = std::remove_cvref_t<decltype(x[0])>;
      return std::pair<V, V>{two_states ? x[from] : V(), two_biases ? x[from + (two_states ? 1 : 0)] : V()};
    };
    const RecurrentUnit kind = unit;
    for (const bool each_row : {false, true}) {
      if (each_row && !two_biases) continue;
      SampleTable::Inputs inputs = cell;
      if (two_biases) inputs.push_back({each_row ? Shape{N, rows} : Shape{rows}, -1, 1});
      table.add(std::string("recurrent_cell ") + name + (each_row ? " bias of each row" : ""), [=](SampleTable::Variables x) {
        const auto [c, bias] = rest(x, 3);
        const RecurrentState y = recurrent_cell(kind, x[0], {x[1], c}, x[2], bias);
        return two_states ? y.h + 2 * y.c : y.h;
      }, {}, inputs);
    }
    // x, h, weight_ih, weight_hh, bias_ih, c, bias_hh
    SampleTable::Inputs layer{{{3, 4, N}}, {{3, n}}, {{rows, N}, -1, 1}, {{rows, n}, -1, 1}, {{rows}, -1, 1}};
    if (two_states) layer.push_back({{3, n}});
    if (two_biases) layer.push_back({{rows}, -1, 1});
    for (const bool reverse : {false, true})
      table.add(std::string("recurrent_layer ") + name + (reverse ? " reverse" : ""), [=](SampleTable::Variables x) {
        const auto [c, bias] = rest(x, 5);
        const RecurrentSequence y =
            recurrent_layer(kind, x[0], reverse ? tensor({2, 4, 0}, DType::i32) : Tensor(), {x[1], c}, {x[2], x[3], x[4], bias}, reverse);
        const Variable last = two_states ? y.last.h + 2 * y.last.c : y.last.h;
        return y.outputs + unsqueeze(last, 1);
      }, {}, layer);
  }
}

}  // namespace heed
