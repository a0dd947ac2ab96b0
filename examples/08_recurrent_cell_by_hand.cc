// SPDX-License-Identifier: Apache-2.0
// Lesson 8: a recurrent cell by hand. A GRU reads three words, by plain loops and by the library: the same states.
//   r = σ(W_r x + U_r h + b_r)   reset: how much of the old state the candidate sees       Bahdanau et al. 2015, A.1.1
//   z = σ(W_z x + U_z h + b_z)   update: how much of the old state is replaced
//   g = tanh(W_g x + U_g (r ⊙ h) + b_g)                                      h' = (1 - z) ⊙ h + z ⊙ g
#include <array>
#include <cmath>

#include "nn/recurrent.h"
#include "tensor/format.h"

using namespace heed;

constexpr int n = 2;                                              // width of the state, and of a word here
using State = std::array<double, n>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Row i of block k (r, z, g) of W x + U h + b; the blocks of a gate stand below one another.
double gate(const GruCell& cell, int k, int i, const State& x, const State& h) {
  const int row = k * n + i;
  double sum = cell.bias_ih.value()[row].item();
  for (int j = 0; j < n; ++j)
    sum += cell.weight_ih.value()(row, j).item() * x[std::size_t(j)] + cell.weight_hh.value()(row, j).item() * h[std::size_t(j)];
  return sum;
}

int main() {
  Parameters parameters(Seed{3});
  const GruCell cell(parameters.root() / "cell", {.in = n, .width = n, .form = GruForm::bahdanau});
  const char* words[] = {"a", "beautiful", "dog"};
  const State inputs[] = {{1, 0}, {0, 2}, {-2, 1}};               // an embedding of each word

  State h{};                                                      // starts at zero
  RecurrentState state = cell.zero_state(1);
  for (int t = 0; t < 3; ++t) {
    const State& x = inputs[t];
    State r, z, g, reset, next;
    for (std::size_t i = 0; i < n; ++i) r[i] = sigmoid(gate(cell, 0, int(i), x, h)), z[i] = sigmoid(gate(cell, 1, int(i), x, h));
    for (std::size_t i = 0; i < n; ++i) reset[i] = r[i] * h[i];
    for (std::size_t i = 0; i < n; ++i) g[i] = std::tanh(gate(cell, 2, int(i), x, reset));
    for (std::size_t i = 0; i < n; ++i) next[i] = (1 - z[i]) * h[i] + z[i] * g[i];
    h = next;
    fmt::print("{:<9}  r {:.3f}  z {:.3f}  g {:6.3f}  h' {:6.3f}\n", words[t], fmt::join(r, " "), fmt::join(z, " "), fmt::join(g, " "),
               fmt::join(h, " "));

    state = cell(constant(tensor(std::vector<float>{float(x[0]), float(x[1])}, {1, n})), state);
    fmt::print("{:>9}  {:.3f}\n", "library", state.h.value()[0]);
  }

  // A layer does the whole sentence at once, and many sentences of their own lengths: padding never enters a state.
  const Gru layer(parameters.root() / "layer", {.in = n, .width = n, .form = GruForm::bahdanau});
  const Variable two = constant(tensor({{{1, 0}, {0, 2}, {-2, 1}}, {{1, 0}, {9, 9}, {9, 9}}}));   // the second has one word
  const auto read = layer(two, tensor({3, 1}, DType::i32));
  fmt::print("states of the short sentence\n{:.3f}\nits last state {:.3f}\n", read.outputs.value()[1], read.states[0].h.value()[1]);
}

/* Output:
a          r 0.477 0.351  z 0.247 0.643  g -0.294 -0.739  h' -0.073 -0.475
  library  [-0.073 -0.475]
beautiful  r 0.393 0.328  z 0.545 0.790  g -0.956 -0.382  h' -0.554 -0.402
  library  [-0.554 -0.402]
dog        r 0.797 0.585  z 0.720 0.626  g -0.933  0.382  h' -0.827  0.088
  library  [-0.827  0.088]
states of the short sentence
[[-0.065  0.125]
 [ 0.000  0.000]
 [ 0.000  0.000]]
its last state [-0.065  0.125]
*/
