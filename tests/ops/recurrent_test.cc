// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

using U = RecurrentUnit;
const U units[] = {U::tanh, U::relu, U::lstm, U::gru_bahdanau, U::gru_cho, U::gru_cudnn};
const char* const names[] = {"tanh", "relu", "lstm", "gru_bahdanau", "gru_cho", "gru_cudnn"};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One step of one sentence: gates = x W_ihᵀ + b_ih; h and c are replaced.
void step(RecurrentUnit unit, const std::vector<double>& gates, std::vector<double>& h, std::vector<double>& c,
          const reference::Array& weight_hh, const double* bias_hh) {
  const std::size_t n = h.size();
  const auto product = [&](std::size_t row, const std::vector<double>& v) {   // (W_hh v + b_hh)[row]
    double sum = bias_hh ? bias_hh[row] : 0;
    for (std::size_t k = 0; k < n; ++k) sum += weight_hh.values[row * n + k] * v[k];
    return sum;
  };
  std::vector<double> next(n), reset(n);
  for (std::size_t j = 0; j < n && resets_before(unit); ++j) reset[j] = sigmoid(gates[j] + product(j, h)) * h[j];
  for (std::size_t j = 0; j < n; ++j) {
    const auto a = [&](std::size_t gate) { return gates[gate * n + j]; };
    const auto u = [&](std::size_t gate) { return product(gate * n + j, h); };
    if (unit == U::tanh) next[j] = std::tanh(a(0) + u(0));
    else if (unit == RecurrentUnit::relu) next[j] = std::max(0.0, a(0) + u(0));
    else if (unit == U::lstm) {
      c[j] = sigmoid(a(1) + u(1)) * c[j] + sigmoid(a(0) + u(0)) * std::tanh(a(2) + u(2));
      next[j] = sigmoid(a(3) + u(3)) * std::tanh(c[j]);
    } else {
      const double z = sigmoid(a(1) + u(1));
      const double g = std::tanh(a(2) + (unit == U::gru_cudnn ? sigmoid(a(0) + u(0)) * u(2) : product(2 * n + j, reset)));
      next[j] = unit == U::gru_bahdanau ? (1 - z) * h[j] + z * g : z * h[j] + (1 - z) * g;
    }
  }
  h = next;
}

std::vector<double> row(const reference::Array& x, Index from, Index n) {
  return {x.values.begin() + from, x.values.begin() + from + n};
}

// inputs of the samples: gates, h, weight_hh, [c], [bias_hh, one or one a row]
reference::Function cell_reference(RecurrentUnit unit) {
  return [unit](const reference::Arrays& x) {
    const Index B = x[0].shape[0], n = x[1].shape[1], rows = x[0].shape[1];
    reference::Array y{{B, n}, {}};
    for (Index b = 0; b < B; ++b) {
      auto h = row(x[1], b * n, n), c = unit == U::lstm ? row(x[3], b * n, n) : h;
      step(unit, row(x[0], b * rows, rows), h, c, x[2],
           resets_before(unit) ? nullptr : x.back().values.data() + (x.back().shape.rank() == 2 ? b * rows : 0));
      for (std::size_t j = 0; j < h.size(); ++j) y.values.push_back(unit == U::lstm ? h[j] + 2 * c[j] : h[j]);
    }
    return y;
  };
}

// inputs of the samples: x, h, weight_ih, weight_hh, bias_ih, [c], [bias_hh]
reference::Function layer_reference(RecurrentUnit unit, bool reverse) {
  return [=](const reference::Arrays& x) {
    const Index B = x[0].shape[0], S = x[0].shape[1], E = x[0].shape[2], n = x[1].shape[1];
    const Index lengths[] = {2, 4, 0};
    reference::Array y{{B, S, n}, std::vector<double>(std::size_t(B * S * n), 0.0)};
    for (Index b = 0; b < B; ++b) {
      auto h = row(x[1], b * n, n), c = unit == U::lstm ? row(x[5], b * n, n) : h;
      const Index length = reverse ? lengths[b] : S;
      for (Index i = 0; i < length; ++i) {
        const Index s = reverse ? length - 1 - i : i;
        std::vector<double> gates = x[4].values;
        for (std::size_t g = 0; g < gates.size(); ++g)
          for (Index e = 0; e < E; ++e)
            gates[g] += x[2].values[g * std::size_t(E) + std::size_t(e)] * x[0].values[std::size_t((b * S + s) * E + e)];
        step(unit, gates, h, c, x[3], resets_before(unit) ? nullptr : x.back().values.data());
        for (Index j = 0; j < n; ++j) y.values[std::size_t((b * S + s) * n + j)] = h[std::size_t(j)];
      }
      for (Index s = 0; s < S; ++s)   // the samples add the last state to each step
        for (Index j = 0; j < n; ++j)
          y.values[std::size_t((b * S + s) * n + j)] += h[std::size_t(j)] + (unit == U::lstm ? 2 * c[std::size_t(j)] : 0);
    }
    return y;
  };
}

DifferentiableFunction cell_definition(RecurrentUnit unit) {
  return [unit](std::span<const Variable> x) {
    const RecurrentState y = recurrent_cell_by_definition(unit, x[0], {x[1], unit == U::lstm ? x[3] : Variable()}, x[2],
                                                          resets_before(unit) ? Variable() : x.back());
    return unit == U::lstm ? y.h + 2 * y.c : y.h;
  };
}

DifferentiableFunction layer_definition(RecurrentUnit unit, bool reverse) {
  return [=](std::span<const Variable> x) {
    const RecurrentSequence y = recurrent_layer_by_definition(unit, x[0], reverse ? tensor({2, 4, 0}, DType::i32) : Tensor(),
                                                              {x[1], unit == U::lstm ? x[5] : Variable()},
                                                              {x[2], x[3], x[4], resets_before(unit) ? Variable() : x.back()}, reverse);
    return y.outputs + unsqueeze(unit == U::lstm ? y.last.h + 2 * y.last.c : y.last.h, 1);
  };
}

[[maybe_unused]] const bool in_table = [] {
  for (std::size_t i = 0; i < std::size(units); ++i) {
    for (const std::string bias : {"", " bias of each row"}) {
      if (bias.empty() || !resets_before(units[i]))
        const InTable cell{{.name = std::string("recurrent_cell ") + names[i] + bias,
                            .reference = cell_reference(units[i]),
                            .definition = cell_definition(units[i]),
                            .ulp = 32}};
    }
    for (const bool reverse : {false, true})
      const InTable layer{{.name = std::string("recurrent_layer ") + names[i] + (reverse ? " reverse" : ""),
                           .reference = layer_reference(units[i], reverse),
                           .definition = layer_definition(units[i], reverse),
                           .ulp = 64}};
  }
  return true;
}();

}  // namespace

namespace {

// x [B, S, E], states and weights of a layer, about as large as trained ones.
struct Layer {
  Layer(U unit, Index B, Index S, Index E, Index n, DType dtype) : unit(unit), S(S), n(n) {
    const Index rows = gate_count(unit) * n;
    for (const Shape& shape : {Shape{B, S, E}, Shape{B, n}, Shape{rows, E}, Shape{rows, n}, Shape{rows}, Shape{B, n}, Shape{rows}}) {
      const double wide = shape.rank() == 2 && shape[0] == rows ? 1 / std::sqrt(double(shape[1])) : 0.5;
      inputs.push_back(to(normal(Key(5) / inputs.size(), shape, 0, wide, DType::f32), dtype));
    }
  }
  // outputs and last states in one tensor [B, S + 1 or 2, n]
  DifferentiableFunction function(const Tensor& lengths, bool reverse, bool fused = true) const {
    return [unit = unit, lengths, reverse, fused](std::span<const Variable> x) {
      const RecurrentWeights w{x[2], x[3], x[4], resets_before(unit) ? Variable() : x[6]};
      const RecurrentState initial{x[1], unit == U::lstm ? x[5] : Variable()};
      const RecurrentSequence y = fused ? recurrent_layer(unit, x[0], lengths, initial, w, reverse)
                                        : recurrent_layer_by_definition(unit, x[0], lengths, initial, w, reverse);
      std::vector<Variable> parts{y.outputs, unsqueeze(y.last.h, 1)};
      if (unit == U::lstm) parts.push_back(unsqueeze(y.last.c, 1));
      return concat(parts, 1);
    };
  }
  U unit;
  Index S, n;
  std::vector<Tensor> inputs;
};

Tensor some_lengths(Index B, Index S) {
  const Tensor lengths = empty({B}, DType::i32);
  for (Index b = 0; b < B; ++b) lengths.mutable_data<std::int32_t>()[b] = std::int32_t(b * 7 % (S + 1));   // also 0 and S
  return lengths;
}

bool same(const Played& a, const Played& b) {
  bool all_same = equal_bits(a.value, b.value);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) all_same = all_same && equal_bits(a.gradients[i], b.gradients[i]);
  return all_same;
}

// |a - b| at most `ulp` epsilons of the largest magnitude
void check_near(const Tensor& a, const Tensor& b, double ulp) {
  double most = 1;
  for (const double v : doubles(b)) most = std::max(most, std::abs(v));
  CHECK(worst_absolute(a, b) <= ulp * most * (a.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23));
}

}  // namespace

TEST_CASE("recurrent_layer: fused = definition, several blocks of sentences, widths that fill no panel, every target") {
  for (const U unit : units)
    for (const bool reverse : {false, true})
      for (const auto& size : {std::pair<Index, Index>{19, 37}, {3, 70}, {1, 5}}) {
        const Index B = size.first, n = size.second;
        CAPTURE(int(unit));
        CAPTURE(n);
        for (const DType dtype : {DType::f64, DType::f32}) {
          const Layer layer(unit, B, 6, 11, n, dtype);
          for (const Tensor& lengths : {Tensor(), some_lengths(B, 6)}) {
            const Played slow = play(layer.function(lengths, reverse, false), layer.inputs);
            for_every_target([&] {
              const Played fast = play(layer.function(lengths, reverse), layer.inputs);
              check_near(fast.value, slow.value, 128);
              for (std::size_t i = 0; i < fast.gradients.size(); ++i) check_near(fast.gradients[i], slow.gradients[i], 512);
            });
          }
        }
      }
}

TEST_CASE("recurrent_layer: wide states, whose weights several threads pack") {
  for (const U unit : units) {
    const Layer layer(unit, 3, 2, 5, 530, DType::f32);
    const Played slow = play(layer.function({}, false, false), layer.inputs), fast = play(layer.function({}, false), layer.inputs);
    check_near(fast.value, slow.value, 128);
    for (std::size_t i = 0; i < fast.gradients.size(); ++i) check_near(fast.gradients[i], slow.gradients[i], 512);
    for_threads([&] { CHECK(same(play(layer.function({}, false), layer.inputs), fast)); });
  }
}

TEST_CASE("recurrent_layer: the same bits for any number of threads and on every target with multiply-add") {
  for (const U unit : units) {
    const Layer layer(unit, 70, 9, 24, 40, DType::f32);
    const auto f = layer.function(some_lengths(70, 9), true);
    const Played want = play(f, layer.inputs);
    for_threads([&] { CHECK(same(play(f, layer.inputs), want)); });
    for_every_fma_target([&] { CHECK(same(play(f, layer.inputs), want)); });
  }
}

TEST_CASE("recurrent_layer: padding enters nothing, a sentence is the same alone as among others") {
  for (const U unit : units)
    for (const bool reverse : {false, true}) {
      const Index B = 18, S = 7;
      const Layer layer(unit, B, S, 10, 12, DType::f32);
      const Tensor lengths = some_lengths(B, S);
      const Played want = play(layer.function(lengths, reverse), layer.inputs);
      auto poisoned = layer.inputs;
      poisoned[0] = poisoned[0].clone();
      for (Index b = 0; b < B; ++b) {
        const Index length = lengths.data<std::int32_t>()[b];
        fill_(slice(poisoned[0][b], 0, length), NAN);
        const Tensor beyond = slice(want.value[b], 0, length, S), slope = slice(want.gradients[0][b], 0, length, S);
        CHECK(equal_bits(beyond, zeros(beyond.shape())));
        CHECK(equal_bits(slope, zeros(slope.shape())));
        if (length == 0) CHECK(equal_bits(want.value[b][S], layer.inputs[1][b]));   // the initial state
        auto alone = layer.inputs;
        for (const std::size_t i : {0, 1, 5}) alone[i] = slice(alone[i], 0, b, b + 1);
        alone[0] = slice(alone[0], 1, 0, std::max<Index>(length, 1));
        const Tensor y = play(layer.function(slice(lengths, 0, b, b + 1), reverse), alone).value;
        const Index steps = alone[0].size(1);
        CHECK(equal_bits(slice(y[0], 0, 0, steps), slice(want.value[b], 0, 0, steps)));
        CHECK(equal_bits(slice(y[0], 0, steps), slice(want.value[b], 0, S)));
      }
      CHECK(same(play(layer.function(lengths, reverse), poisoned), want));
    }
}

TEST_CASE("recurrent: the forms of Cho and Bahdanau are each other's with negated z") {
  const Layer cho(U::gru_cho, 5, 6, 8, 9, DType::f64);
  auto turned = cho.inputs;
  for (const std::size_t i : {2, 3, 4}) {
    turned[i] = turned[i].clone();
    const Tensor z = slice(turned[i], 0, 9, 18);
    copy_into(z, -1 * z);
  }
  Layer bahdanau = cho;
  bahdanau.unit = U::gru_bahdanau;
  check_near(play(bahdanau.function({}, false), turned).value, play(cho.function({}, false), cho.inputs).value, 64);
}

TEST_CASE("recurrent: messages name both sides") {
  const Tensor x = zeros({2, 3, 4}), w_ih = zeros({20, 4}), w_hh = zeros({20, 5}), bias = zeros({15});
  const auto lstm = [&](const Tensor& lengths, const Tensor& h, const Tensor& w) {
    return message_of([&] { recurrent_layer(U::lstm, x, lengths, h, {}, w, w_hh, {}, {}); });
  };
  const auto lstm_with = [&](const Tensor& bias_hh) {
    return message_of([&] { recurrent_layer(U::lstm, x, {}, {}, {}, w_ih, w_hh, {}, bias_hh); });
  };
  CHECK(lstm(tensor({3, 4}, DType::i32), {}, w_ih) == "recurrent_layer: length 4 at position [1] is not in [0, 3]");
  CHECK(lstm(tensor({3}, DType::i32), {}, w_ih) == "recurrent_layer: lengths must be [B]: x [2, 3, 4], lengths [1]");
  CHECK(lstm({}, zeros({2, 4}), w_ih) == "recurrent_layer: h must be [2, 5]: x [2, 3, 4], weight_hh [20, 5], h [2, 4]");
  CHECK(lstm({}, {}, zeros({20, 7})) == "recurrent_layer: inner sizes differ: x [2, 3, 4], weight_ih [20, 7]");
  CHECK(message_of([&] { recurrent_cell(U::gru_cho, zeros({2, 15}), {}, {}, zeros({15, 5}), bias); }) ==
        "recurrent_cell: this form of the GRU has one bias: gates [2, 15], bias_hh [15]");
  const auto cudnn = [&](const Tensor& bias_hh) {
    return message_of([&] { recurrent_cell(U::gru_cudnn, zeros({2, 15}), {}, {}, zeros({15, 5}), bias_hh); });
  };
  CHECK(cudnn(zeros({3, 15})) == "recurrent_cell: bias_hh must be [2, 15]: gates [2, 15], weight_hh [15, 5], bias_hh [3, 15]");
  CHECK(cudnn(zeros({14})) == "recurrent_cell: bias_hh must be [15]: gates [2, 15], weight_hh [15, 5], bias_hh [14]");
  CHECK(cudnn(zeros({2, 15}, DType::f64)) == "recurrent_cell: dtypes differ: gates f32, bias_hh f64");
  CHECK(lstm_with(zeros({2, 20})) == "recurrent_layer: bias_hh must be [20]: x [2, 3, 4], weight_hh [20, 5], bias_hh [2, 20]");
  CHECK(message_of([&] { recurrent_cell(U::lstm, zeros({2, 15}), {}, {}, w_hh, {}); }) ==
        "recurrent_cell: gates must be [B, rows of weight_hh]: gates [2, 15], weight_hh [20, 5]");
}
