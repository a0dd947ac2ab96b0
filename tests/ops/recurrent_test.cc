// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

namespace {

using U = RecurrentUnit;
const U units[] = {U::tanh, U::relu, U::lstm, U::gru_bahdanau, U::gru_cho, U::gru_cudnn};
const char* const names[] = {"tanh", "relu", "lstm", "gru_bahdanau", "gru_cho", "gru_cudnn"};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One step of one sentence: gates = x W_ihᵀ + b_ih; h and c are replaced.
void step(RecurrentUnit unit, const std::vector<double>& gates, std::vector<double>& h, std::vector<double>& c, const reference::Array& weight_hh,
          const reference::Array* bias_hh) {
  const std::size_t n = h.size();
  const auto product = [&](std::size_t row, const std::vector<double>& v) {   // (W_hh v + b_hh)[row]
    double sum = bias_hh ? bias_hh->values[row] : 0;
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

// inputs of the samples: gates, h, weight_hh, [c], [bias_hh]
reference::Function cell_reference(RecurrentUnit unit) {
  return [unit](const reference::Arrays& x) {
    const Index B = x[0].shape[0], n = x[1].shape[1], rows = x[0].shape[1];
    reference::Array y{{B, n}, {}};
    for (Index b = 0; b < B; ++b) {
      auto h = row(x[1], b * n, n), c = unit == U::lstm ? row(x[3], b * n, n) : h;
      step(unit, row(x[0], b * rows, rows), h, c, x[2], resets_before(unit) ? nullptr : &x.back());
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
          for (Index e = 0; e < E; ++e) gates[g] += x[2].values[g * std::size_t(E) + std::size_t(e)] * x[0].values[std::size_t((b * S + s) * E + e)];
        step(unit, gates, h, c, x[3], resets_before(unit) ? nullptr : &x.back());
        for (Index j = 0; j < n; ++j) y.values[std::size_t((b * S + s) * n + j)] = h[std::size_t(j)];
      }
      for (Index s = 0; s < S; ++s)   // the samples add the last state to each step
        for (Index j = 0; j < n; ++j) y.values[std::size_t((b * S + s) * n + j)] += h[std::size_t(j)] + (unit == U::lstm ? 2 * c[std::size_t(j)] : 0);
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
    const InTable cell{{.name = std::string("recurrent_cell ") + names[i], .reference = cell_reference(units[i]), .definition = cell_definition(units[i]), .ulp = 32}};
    for (const bool reverse : {false, true})
      const InTable layer{{.name = std::string("recurrent_layer ") + names[i] + (reverse ? " reverse" : ""),
                           .reference = layer_reference(units[i], reverse),
                           .definition = layer_definition(units[i], reverse),
                           .ulp = 64}};
  }
  return true;
}();

}  // namespace
