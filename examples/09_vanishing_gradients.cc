// SPDX-License-Identifier: Apache-2.0
// Lesson 9: how much of the gradient reaches a word that was read long ago. A layer reads 60 words; the loss depends on its last
// state alone, or on what attention gathers with it. Through d steps an RNN multiplies d Jacobians, an LSTM adds to a cell, a GRU
// keeps z of its state (1 - z as lesson 8 writes it); attention has a path of one step to every word.          Hochreiter et al. 2001; Bahdanau et al. 2015
#include <cmath>

#include "attention/attend.h"
#include "autograd/tape.h"
#include "models/chart.h"
#include "nn/recurrent.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"

using namespace heed;

constexpr Index B = 16, T = 60, n = 32;

int main() {
  Parameters parameters(Seed{1});
  const Scope root = parameters.root();
  const Rnn rnn(root / "rnn", {.in = n, .width = n});
  const Lstm lstm(root / "lstm", {.in = n, .width = n, .forget_bias = 1});
  const Gru gru(root / "gru", {.in = n, .width = n});
  const Attention attention = make_attention("scaled-dot", root / "attention", {.query_width = n, .memory_width = n});
  const Tensor words = normal(Key(Seed{2}), {B, T, n});
  const Variable direction = constant(normal(Key(Seed{3}), {n}));

  // ‖∂L/∂x_(T-d)‖ for d = 0 .. T-1, the mean over the batch; L = direction·(last state), or direction·(the context it asks for).
  const auto norms = [&](const RecurrentLayers& layer, bool attend) {
    const Variable x = variable(words);
    Tape tape;
    const Variable states = layer(x).outputs;                                        // [B, T, n]
    const Variable last = slice(states, 1, T - 1, T);                                // [B, 1, n]
    const Variable seen = attend ? attention(last, attention.prepare(states, {})).context : last;
    tape.backward(sum(seen * direction));
    const Tensor each = mean(norm(x.grad(), {2}), {0});                              // [T]
    std::vector<double> out;
    for (Index d = 0; d < T; ++d) out.push_back(each[T - 1 - d].item());
    return out;
  };

  const std::pair<const char*, std::vector<double>> rows[] = {{"rnn", norms(rnn, false)},
                                                              {"lstm", norms(lstm, false)},
                                                              {"gru", norms(gru, false)},
                                                              {"rnn + attention", norms(rnn, true)},
                                                              {"gru + attention", norms(gru, true)}};
  Curves curves{.title = "Gradient by distance",
                .caption = "Norm of the gradient of a word read d steps before the end, before any training.",
                .x_title = "distance d in words",
                .panels = {{.title = "log10 of the norm"}}};
  fmt::print("{:<16}", "distance");
  for (const std::size_t d : {1, 5, 10, 20, 40, 59}) fmt::print("{:>9}", d);
  fmt::print("\n");
  for (const auto& [name, values] : rows) {
    fmt::print("{:<16}", name);
    for (const std::size_t d : {1, 5, 10, 20, 40, 59}) fmt::print("{:>9.0e}", values[d]);
    fmt::print("\n");
    Curves::Series line{.name = name};
    for (std::size_t d = 0; d < values.size(); ++d) line.x.push_back(double(d)), line.y.push_back(std::log10(values[d]));
    curves.panels[0].series.push_back(line);
  }
  write_file_atomically("09_vanishing_gradients.svg", curves_svg(curves));
  fmt::print("drawn: 09_vanishing_gradients.svg\n");
}

/* Output:
distance                1        5       10       20       40       59
rnn                 1e+00    4e-02    1e-03    1e-06    1e-12    4e-18
lstm                4e-01    2e-01    4e-02    4e-03    4e-05    7e-07
gru                 8e-01    9e-02    6e-03    5e-05    3e-09    4e-13
rnn + attention     1e-01    4e-02    4e-02    5e-02    5e-02    4e-02
gru + attention     6e-02    5e-02    5e-02    5e-02    5e-02    5e-02
drawn: 09_vanishing_gradients.svg
*/
