// SPDX-License-Identifier: Apache-2.0
// Lesson 5: a layer of your own is a plain struct. Its parameters come from a Scope, which gives them their names; calling it is
// const; nothing has to be registered.
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "nn/summary.h"
#include "tensor/format.h"

using namespace heed;

// Highway layer (Srivastava et al. 2015):  y = t ⊙ h + (1 - t) ⊙ x,  h = relu(H x),  t = σ(T x)
struct Highway {
  Highway(Scope scope, Index width)
      : transform(scope / "transform", {.in = width, .out = width}), gate(scope / "gate", {.in = width, .out = width}) {}
  Variable operator()(const Variable& x) const {
    const Variable t = gate(x, {.activation = Activation::sigmoid});   // [..., width]
    return t * transform(x, {.activation = Activation::relu}) + (1.0 - t) * x;
  }
  Linear transform, gate;
};

struct Classifier {
  Classifier(Scope scope, Index width)
      : in(scope / "in", {.in = 2, .out = width}),
        highway(scope / "highway", width),
        dropout(scope / "dropout", 0.1),
        out(scope / "out", {.in = width, .out = 1}) {}
  Variable operator()(const Variable& x) const { return out(dropout(highway(tanh(in(x))))); }   // [B, 2] -> [B, 1]
  Linear in;
  Highway highway;
  Dropout dropout;
  Linear out;
};

int main() {
  Parameters parameters(Seed{1});
  const Classifier model(parameters.root(), 8);
  fmt::print("{}\n", summary(parameters));

  const Tensor x = tensor({{0, 0}, {0, 1}, {1, 0}, {1, 1}}), y = tensor({{0}, {1}, {1}, {0}});   // exclusive or
  Adam adam(parameters, {.learning_rate = 0.02});
  for (int step = 1; step <= 400; ++step) {
    Tape tape(Key{1, step});   // the key makes dropout's masks: training
    const Variable loss = binary_cross_entropy_with_logits(model(constant(x)), y);
    tape.backward(loss);
    adam.step();
  }
  fmt::print("exclusive or: {:.2f}\n", sigmoid(model(constant(x))).value());   // no tape: no dropout
}

/* Output:
parameter                 shape          count
in.weight                 [8, 2]            16
in.bias                   [8]                8
highway.transform.weight  [8, 8]            64
highway.transform.bias    [8]                8
highway.gate.weight       [8, 8]            64
highway.gate.bias         [8]                8
out.weight                [1, 8]             8
out.bias                  [1]                1
total 177 parameters, 708 B of weights, 2.8 KiB when training with two moments

exclusive or: [[0.00]
 [1.00]
 [1.00]
 [0.00]]
*/
