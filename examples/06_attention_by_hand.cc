// SPDX-License-Identifier: Apache-2.0
// Lesson 6: attention on a sentence of three words, by plain loops and by the library: the same numbers.
//   score e_s = q·k_s / √d,   weight α_s = e^{e_s} / Σ e^{e_s'},   context c = Σ_s α_s v_s         Vaswani et al. 2017, Eq. 1
#include <cmath>

#include "autograd/ops.h"
#include "tensor/format.h"

using namespace heed;

int main() {
  const char* words[] = {"a", "beautiful", "dog"};
  const float query[2] = {1, 2};                                  // what the next target word asks for
  const float keys[3][2] = {{1, 0}, {0, 1}, {1, 1.5f}};           // what each source word offers
  const float values[3][2] = {{10, 0}, {0, 10}, {5, 5}};          // what each source word says

  float score[3], weight[3], sum = 0, context[2] = {0, 0};
  for (int s = 0; s < 3; ++s) score[s] = (query[0] * keys[s][0] + query[1] * keys[s][1]) / std::sqrt(2.0f);
  for (int s = 0; s < 3; ++s) sum += weight[s] = std::exp(score[s]);
  for (int s = 0; s < 3; ++s) {
    weight[s] /= sum;
    for (int i = 0; i < 2; ++i) context[i] += weight[s] * values[s][i];
  }
  fmt::print("by hand:\n");
  for (int s = 0; s < 3; ++s) fmt::print("  {:<9}  score {:6.3f}  weight {:.3f}\n", words[s], score[s], weight[s]);
  fmt::print("  context [{:.3f}, {:.3f}]\n", context[0], context[1]);

  // The library takes batches and heads: [B, H, T, d] queries, [B, H, S, d] keys and values. Here B = H = T = 1.
  const Variable q = constant(tensor({{{{1, 2}}}})), k = constant(tensor({{{{1, 0}, {0, 1}, {1, 1.5}}}})),
                 v = constant(tensor({{{{10, 0}, {0, 10}, {5, 5}}}}));
  const auto [output, weights] = scaled_dot_product_attention(q, k, v, {}, {.weights = true});
  fmt::print("by the library:\n  weights {:.3f}\n  context {:.3f}\n", weights.value()(0, 0, 0), output.value()(0, 0, 0));

  // A sentence that is one word shorter: the mask says which words exist, and the rest share the weight.
  const Mask two_words = Mask::lengths(tensor({2}, DType::i32));
  const auto masked = scaled_dot_product_attention(q, k, v, two_words, {.weights = true});
  fmt::print("only two words:\n  weights {:.3f}\n", masked.weights.value()(0, 0, 0));
}

/* Output:
by hand:
  a          score  0.707  weight 0.088
  beautiful  score  1.414  weight 0.178
  dog        score  2.828  weight 0.734
  context [4.548, 5.452]
by the library:
  weights [0.088 0.178 0.734]
  context [4.548 5.452]
only two words:
  weights [0.330 0.670 0.000]
*/
