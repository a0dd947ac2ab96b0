// SPDX-License-Identifier: Apache-2.0
// Lesson 4: fitting a line. Parameters, a module, a loss, an optimiser: the loop of every training.
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"

using namespace heed;

int main() {
  // Data: y = 3x - 2 with a little noise.
  const Tensor x = uniform(Key(Seed{1}), {64, 1}, -1, 1);
  const Tensor y = 3.0 * x - 2.0 + normal(Key(Seed{2}), {64, 1}, 0, 0.05);

  Parameters parameters(Seed{1});
  const Linear line(parameters.root() / "line", {.in = 1, .out = 1});
  Adam adam(parameters, {.learning_rate = 0.1});

  for (int step = 1; step <= 200; ++step) {
    Tape tape;
    const Variable loss = mse_loss(line(constant(x)), constant(y));
    tape.backward(loss);
    adam.step();
    if (step % 50 == 0 || step == 1) fmt::print("step {:3}  loss {:.4f}\n", step, loss.value().item());
  }
  fmt::print("{} = {:.2f}, {} = {:.2f}\n", line.weight.path(), line.weight.value().item(), line.bias.path(), line.bias.value().item());
}

/* Output:
step   1  loss 5.3569
step  50  loss 0.0182
step 100  loss 0.0026
step 150  loss 0.0026
step 200  loss 0.0026
line.weight = 3.01, line.bias = -2.00
*/
