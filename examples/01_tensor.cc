// SPDX-License-Identifier: Apache-2.0
// Lesson 1: a Tensor is a handle on numbers. Views share them, clone() copies them, broadcasting fits shapes together.
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

using namespace heed;

int main() {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  fmt::print("x is {:s}\n{}\n\n", x, x);

  // Views: rows, slices with steps, a transposed matrix. Nothing is copied.
  fmt::print("second row        {}\n", x[1]);
  fmt::print("last column       {}\n", x(all, -1));
  fmt::print("columns backwards\n{}\n", x(all, Slice{.step = -1}));
  fmt::print("transposed\n{}\n\n", transpose(x));

  // A view shares the numbers: writing through it changes x. x[0] = y would not compile; copy_into says what is meant.
  copy_into(x[0], tensor({10, 20, 30}));
  fmt::print("after copy_into(x[0], ...)\n{}\n\n", x);

  // Broadcasting (NumPy's rule): sizes are aligned at the right, a 1 stretches.
  fmt::print("x - mean of each row\n{}\n", x - mean(x, {1}, true));
  fmt::print("product x xᵀ\n{}\n\n", matmul(x, transpose(x)));

  // Wrong shapes throw, and the message says which.
  try {
    matmul(x, x);
  } catch (const ShapeError& error) {
    fmt::print("{}\n", error.what());
  }
}

/* Output:
x is [2, 3] f32
[[1. 2. 3.]
 [4. 5. 6.]]

second row        [4. 5. 6.]
last column       [3. 6.]
columns backwards
[[3. 2. 1.]
 [6. 5. 4.]]
transposed
[[1. 4.]
 [2. 5.]
 [3. 6.]]

after copy_into(x[0], ...)
[[10. 20. 30.]
 [ 4.  5.  6.]]

x - mean of each row
[[-10.   0.  10.]
 [ -1.   0.   1.]]
product x xᵀ
[[1400.  320.]
 [ 320.   77.]]

matmul: inner sizes differ: a [2, 3], b [2, 3] (3 and 2)
*/
