// SPDX-License-Identifier: Apache-2.0
// Lesson 3: an operation of your own. The library writes its own in the same way: compute the value with Tensors, and record
// how a gradient of the output becomes one of the input.
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/unary.h"

using namespace heed;

// Mish (Misra 2019):  y = x tanh(s),  s = softplus(x) = ln(1 + e^x)
// dy/dx = tanh(s) + x (1 - tanh²(s)) σ(x)
Variable mish(const Variable& x) {
  const Tensor t = tanh(softplus(x.value()));
  // x.slot(): where the gradient of x goes, without x itself. saved: a value for later, which is refused if it was written to since.
  // x.adopt(g): the gradient of x += g.
  return record("mish", x.value() * t, {x}, [x = x.slot(), value = saved(x), t = saved(t)](const Tensor& dy) {
    const Tensor slope = t.get() + value.get() * (1.0 - t.get() * t.get()) * sigmoid(value.get());
    x.adopt(dy * slope);
  });
}

int main() {
  const Variable x = variable(tensor({-2, -0.5, 0, 1, 3}));
  Tape tape;
  const Variable y = mish(x);
  tape.backward(sum(y));
  fmt::print("x     {}\nmish  {:.4f}\nslope {:.4f}\n", x.value(), y.value(), x.grad());

  const auto checked = [](const Tensor& at) { return check_gradient([](std::span<const Variable> in) { return mish(in[0]); }, {at}); };
  fmt::print("agrees with central differences: {}\n", checked(tensor({-2, -0.5, 0.1, 1, 3}, DType::f64)).holds());
}

/* Output:
x     [-2.  -0.5  0.   1.   3. ]
mish  [-0.2525 -0.2207  0.0000  0.8651  2.9865]
slope [-0.1084  0.2895  0.6000  1.0490  1.0211]
agrees with central differences: true
*/
