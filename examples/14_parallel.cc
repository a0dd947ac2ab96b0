// SPDX-License-Identifier: Apache-2.0
// Lesson 14: why a Transformer trains in parallel. One layer of it and one LSTM layer, of nearly the same number of parameters, read a
// sentence of T words and go back. The LSTM needs h_(t-1) before h_t: T products of one row, one after another. In the Transformer
// every position is ready at once: a few products of T rows each, which fill the machine, and T² products of attention. At 512 words
// two cores are full anyway, and the T² products cost more than the LSTM's waiting.
#include <chrono>

#include "autograd/tape.h"
#include "models/transformer.h"
#include "nn/recurrent.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"

using namespace heed;

constexpr Index d = 128;

// Microseconds for each word, the best of several rounds.
double time_of(Index T, auto&& forward) {
  double best = 1e9;
  const Tensor words = normal(Key(Seed{2}), {1, T, d});
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    Tape tape;
    tape.backward(sum(forward(constant(words))));
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / double(T));
  }
  return best;
}

int main() {
  Parameters a(Seed{1}), b(Seed{1});
  const TransformerEncoderLayer transformer(a.root(), {.width = d, .heads = 4, .feed_forward = 2 * d, .dropout = 0});
  const Lstm lstm(b.root(), {.in = d, .width = d});
  fmt::print("parameters: Transformer layer {}, LSTM {}\n", a.count(), b.count());
  fmt::print("{:>6}  {:>22}  {:>22}  {:>16}  {:>12}\n", "words", "LSTM: steps in a row", "Transformer: in a row", "LSTM a word",
             "Transformer");
  for (const Index T : {8, 32, 128, 512}) {
    const double slow = time_of(T, [&](const Variable& x) { return lstm(x).outputs; });
    const double fast = time_of(T, [&](const Variable& x) { return transformer(x, {}); });
    fmt::print("{:>6}  {:>22}  {:>22}  {:>10.1f} µs  {:>9.1f} µs\n", T, T, 1, slow, fast);
  }
}

/* Output:
parameters: Transformer layer 132480, LSTM 132096
 words    LSTM: steps in a row   Transformer: in a row       LSTM a word   Transformer
     8                       8                       1        11.6 µs        9.0 µs
    32                      32                       1         8.1 µs        6.0 µs
   128                     128                       1         7.3 µs        6.4 µs
   512                     512                       1         7.5 µs       12.2 µs
*/
