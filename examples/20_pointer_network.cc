// SPDX-License-Identifier: Apache-2.0
// Lesson 20: a pointer network. What attention looks at is the answer itself:
// the weights of each step say which number of the input comes next, so that there are as many classes as numbers.
// It learns to sort.                          Vinyals et al. 2015, arXiv 1506.03134, Eq. 3
#include "attention/scores/additive.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/optimizer.h"
#include "nn/recurrent.h"
#include "nn/schedule.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/sort.h"
#include "tensor/ops/view.h"

using namespace heed;

constexpr Index kWidth = 48;

struct PointerNetwork {
  explicit PointerNetwork(Scope scope)
      : encoder(scope / "encoder", {.in = 1, .width = kWidth}),
        decoder(scope / "decoder", {.in = 1, .width = kWidth}),
        score(scope / "score", {.query_width = kWidth, .memory_width = kWidth}),
        first(scope.parameter("first", {1, 1, 1}, constant_init(0))) {}

  struct Read { Memory memory; List<RecurrentState> states; };
  Read read(const Variable& x) const {                             // numbers [B, S, 1]
    auto [outputs, states] = encoder(x);
    return {score.prepare(outputs, {}), states};
  }
  // u_tj = vᵀ tanh(W1 e_j + W2 d_t) of steps that read the numbers chosen before them, [B, T, 1] -> [B, T, S]; moves the state on.
  Variable point(const Variable& chosen, Read& read) const {
    auto [outputs, states] = decoder(chosen, {}, read.states);
    read.states = states;
    return score(outputs, read.memory, {});
  }

  Lstm encoder, decoder;
  Additive score;
  Parameter first;                                                 // what the first step reads, as no number is chosen yet
};

// Percent of 200 sequences of new numbers that come back in order.
double sorted_percent(const PointerNetwork& network, Index length) {
  const Tensor x = uniform(Key(Seed{2}) / length, {200, length, 1}, 0, 1), right = sort(x, 1).indices;
  PointerNetwork::Read read = network.read(constant(x));
  Variable chosen = expand(network.first, {200, 1, 1});
  Tensor same = ones({200, 1, 1}, DType::u8);
  for (Index t = 0; t < length; ++t) {
    const Tensor index = unsqueeze(argmax(network.point(chosen, read).value(), -1), -1);   // [B, 1, 1]
    chosen = constant(gather(x, 1, index));
    same = logical_and(same, equal(index, right(all, Slice{t, t + 1})));
  }
  return sum(to(same, DType::f32)).item() / 2;
}

int main() {
  Parameters parameters(Seed{1});
  const PointerNetwork network(parameters.root());
  Adam adam(parameters, {});
  const Schedule schedule({.kind = Schedule::Kind::linear, .peak = 1e-2, .total = 2000});
  Random random{Key(Seed{1})};
  for (int step = 1; step <= 2000; ++step) {
    const Index length = 2 + random.below(7);
    const Tensor x = uniform(Key(Seed{1}) / step, {64, length, 1}, 0, 1);
    const auto [values, positions] = sort(x, 1);
    Tape tape;
    PointerNetwork::Read read = network.read(constant(x));
    const Variable before = concat({expand(network.first, {64, 1, 1}), constant(values(all, Slice{0, -1}))}, 1);
    const Variable loss = cross_entropy(network.point(before, read), squeeze(positions, -1));
    tape.backward(loss);
    adam.set_learning_rate(schedule.rate(step));
    adam.step();
    if (step % 500 == 0) fmt::print("step {:4}  loss {:.2f}\n", step, loss.value().item());
  }
  fmt::print("\nnumbers  sorted without a mistake\n");
  for (const Index length : {2, 4, 6, 8, 10})
    fmt::print("{:7}  {:5.1f} %{}\n", length, sorted_percent(network, length), length > 8 ? ", longer than all of training" : "");

  const Tensor x = tensor({{{0.8}, {0.2}, {0.9}, {0.5}}});
  PointerNetwork::Read read = network.read(constant(x));
  const Tensor before = concat({network.first.value(), sort(x, 1).values(all, Slice{0, -1})}, 1);
  fmt::print("\nwhere it looks, number by number, in {}:\n{:.2f}\n", reshape(x, {4}),
             softmax(network.point(constant(before), read)).value()(0));
}

/* Output:
step  500  loss 0.34
step 1000  loss 0.16
step 1500  loss 0.16
step 2000  loss 0.03

numbers  sorted without a mistake
      2  100.0 %
      4   96.5 %
      6   80.0 %
      8   62.0 %
     10   18.5 %, longer than all of training

where it looks, number by number, in [0.8 0.2 0.9 0.5]:
[[0.00 1.00 0.00 0.00]
 [0.00 0.00 0.00 1.00]
 [1.00 0.00 0.00 0.00]
 [0.00 0.00 1.00 0.00]]
*/
