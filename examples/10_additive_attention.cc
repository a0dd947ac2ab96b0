// SPDX-License-Identifier: Apache-2.0
// Lesson 10: additive attention by hand: three encoder states, one decoder state, by plain loops and by the library.
//   score e_j = vᵀ tanh(W s + U h_j),   weight α_j = e^{e_j} / Σ e^{e_j'},   context c = Σ_j α_j h_j       Bahdanau et al. 2015, A.1.2
#include <cmath>

#include "attention/attend.h"
#include "attention/scores/additive.h"
#include "tensor/format.h"

using namespace heed;

int main() {
  const char* words[] = {"a", "beautiful", "dog"};
  const float states[3][2] = {{1, 0}, {0, 1}, {1, 1}};                   // h_j: what the encoder made of each word
  const float query[2] = {0.5f, -1};                                     // s: the decoder's state before the next word
  const float W[2][2] = {{1, 0}, {0, 1}}, U[2][2] = {{1, -1}, {0, 2}}, v[2] = {1, -1};

  float keys[3][2], score[3], weight[3], sum = 0, context[2] = {0, 0};
  for (int j = 0; j < 3; ++j)                                            // U h_j does not know the query: once a sentence, not once a word
    for (int a = 0; a < 2; ++a) keys[j][a] = U[a][0] * states[j][0] + U[a][1] * states[j][1];
  for (int j = 0; j < 3; ++j) {
    score[j] = 0;
    for (int a = 0; a < 2; ++a) score[j] += v[a] * std::tanh(W[a][0] * query[0] + W[a][1] * query[1] + keys[j][a]);
    sum += std::exp(score[j]);
  }
  for (int j = 0; j < 3; ++j) {
    weight[j] = std::exp(score[j]) / sum;
    for (int i = 0; i < 2; ++i) context[i] += weight[j] * states[j][i];
  }
  fmt::print("by hand:\n");
  for (int j = 0; j < 3; ++j)
    fmt::print("  {:<9}  U h [{:4.1f}, {:4.1f}]  score {:6.3f}  weight {:.3f}\n", words[j], keys[j][0], keys[j][1], score[j], weight[j]);
  fmt::print("  context [{:.3f}, {:.3f}]\n", context[0], context[1]);

  // The library: parameters W, U and v have paths; here they get the numbers from above.
  Parameters parameters(Seed{1});
  Additive additive(parameters.root(), {.query_width = 2, .memory_width = 2});
  copy_into(additive.query_proj.weight.value(), tensor({{1, 0}, {0, 1}}));
  copy_into(additive.key_proj.weight.value(), tensor({{1, -1}, {0, 2}}));
  copy_into(additive.v.value(), tensor({1, -1}));
  const Attention attention(parameters.root(), std::move(additive));
  for (const auto& parameter : parameters.items()) fmt::print("{} {}\n", parameter->path, parameter->variable.shape());

  // [B, S, M], [B, T, n]; here B = T = 1
  const Variable h = constant(tensor({{{1, 0}, {0, 1}, {1, 1}}})), s = constant(tensor({{{0.5, -1}}}));
  const Memory memory = attention.prepare(h, {});                        // U h_j
  const Attended all = attention(s, memory, Want::weights);
  fmt::print("by the library:\n  weights {:.3f}\n  context {:.3f}\n", all.weights.value()(0, 0), all.context.value()(0, 0));

  const Memory two_words = attention.prepare(h, Mask::lengths(tensor({2}, DType::i32)));
  fmt::print("only two words:\n  weights {:.3f}\n", attention(s, two_words, Want::weights).weights.value()(0, 0));
}

/* Output:
by hand:
  a          U h [ 1.0,  0.0]  score  1.667  weight 0.836
  beautiful  U h [-1.0,  2.0]  score -1.224  weight 0.046
  dog        U h [ 0.0,  2.0]  score -0.299  weight 0.117
  context [0.954, 0.164]
query_proj.weight [2, 2]
key_proj.weight [2, 2]
v [2]
by the library:
  weights [0.836 0.046 0.117]
  context [0.954 0.164]
only two words:
  weights [0.947 0.053 0.000]
*/
