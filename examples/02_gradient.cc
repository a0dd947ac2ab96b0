// SPDX-License-Identifier: Apache-2.0
// Lesson 2: while a Tape lives, operations on Variables are remembered; backward walks back over them once.
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/format.h"

using namespace heed;

int main() {
  const Variable x = variable(tensor({1, 2, 3}));   // a leaf that wants a gradient

  {  // f(x) = Σ x² + 3x: x stands in both terms, so its gradient is the sum of theirs, 2x + 3.
    Tape tape;
    const Variable y = sum(x * x + 3.0 * x);
    tape.backward(y);
    fmt::print("f(x) = {}, df/dx = {}\n", y.value(), x.grad());
  }  // the tape is gone, and with it everything it remembered

  // Without a tape nothing is remembered: the same code computes values only.
  const Variable y = sum(x * x);
  fmt::print("without a tape: {}, wants a gradient: {}\n", y.value(), y.wants_gradient());

  // Gradients of a leaf add up over tapes until they are forgotten.
  x.forget_gradient();
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    tape.backward(sum(tanh(x)));
  }
  fmt::print("twice 1 - tanh²: {:.4f}\n", x.grad());

  // A gradient can be checked against central differences, in double.
  const GradientReport report =
      check_gradient([](std::span<const Variable> in) { return sum(softmax(in[0]) * in[0]); }, {tensor({0.5, -1, 2}, DType::f64)});
  fmt::print("softmax(x)·x: gradient right to 1e-6: {}\n", report.holds());

  // Misuse is told: a tape is played once.
  Tape tape;
  const Variable z = sum(x);
  tape.backward(z);
  try {
    tape.backward(z);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
}

/* Output:
f(x) = 32.0, df/dx = [5. 7. 9.]
without a tape: 14.0, wants a gradient: false
twice 1 - tanh²: [0.8399 0.1413 0.0197]
softmax(x)·x: gradient right to 1e-6: true
backward: this tape was already played; record the operations again on a new tape
*/
