// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/binary.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"

namespace heed {
namespace {

Variable apply(Binary op, const Variable& a, const Variable& b) {
  Tensor y = binary(op, a.value(), b.value());
  if (op == Binary::add || op == Binary::subtract) {
    return record(name(op), y, {a, b},
                  [da = a.slot(), db = b.slot(), op, same_a = y.shape() == a.shape(), same_b = y.shape() == b.shape()](const Tensor& dy) {
                    if (same_a) da.adopt(dy);
                    else da.gradient([&](Into out) { sum_to(dy, out); });
                    if (same_b && op == Binary::add) db.adopt(dy);
                    else db.gradient([&](Into out) { binary_grad(op, {}, {}, {}, dy, nullptr, &out); });
                  });
  }
  // a product reads the other factor only
  const bool product = op == Binary::multiply, reads_y = op == Binary::divide || op == Binary::pow;
  Saved left = saved(!product || b.wants_gradient() ? a.value() : Tensor()),
        right = saved(!product || a.wants_gradient() ? b.value() : Tensor());
  Saved value = saved(reads_y && b.wants_gradient() ? y : Tensor());
  return record(name(op), y, {a, b},
                [slots = std::array{a.slot(), b.slot()}, a = std::move(left), b = std::move(right), y = std::move(value),
                 op](const Tensor& dy) { gradients(slots, [&](const auto& into) { binary_grad(op, a, b, y, dy, into[0], into[1]); }); });
}
Variable apply(Binary op, const Variable& a, double b) { return apply(op, a, constant(number_like(b, a.value(), op))); }
Variable apply(Binary op, double a, const Variable& b) { return apply(op, constant(number_like(a, b.value(), op, true)), b); }

}  // namespace

Variable add(const Variable& a, const Variable& b) { return apply(Binary::add, a, b); }
Variable add(const Variable& a, double b) { return apply(Binary::add, a, b); }
Variable add(double a, const Variable& b) { return apply(Binary::add, a, b); }
Variable subtract(const Variable& a, const Variable& b) { return apply(Binary::subtract, a, b); }
Variable subtract(const Variable& a, double b) { return apply(Binary::subtract, a, b); }
Variable subtract(double a, const Variable& b) { return apply(Binary::subtract, a, b); }
Variable multiply(const Variable& a, const Variable& b) { return apply(Binary::multiply, a, b); }
Variable multiply(const Variable& a, double b) { return apply(Binary::multiply, a, b); }
Variable multiply(double a, const Variable& b) { return apply(Binary::multiply, a, b); }
Variable divide(const Variable& a, const Variable& b) { return apply(Binary::divide, a, b); }
Variable divide(const Variable& a, double b) { return apply(Binary::divide, a, b); }
Variable divide(double a, const Variable& b) { return apply(Binary::divide, a, b); }
Variable maximum(const Variable& a, const Variable& b) { return apply(Binary::maximum, a, b); }
Variable maximum(const Variable& a, double b) { return apply(Binary::maximum, a, b); }
Variable maximum(double a, const Variable& b) { return apply(Binary::maximum, a, b); }
Variable minimum(const Variable& a, const Variable& b) { return apply(Binary::minimum, a, b); }
Variable minimum(const Variable& a, double b) { return apply(Binary::minimum, a, b); }
Variable minimum(double a, const Variable& b) { return apply(Binary::minimum, a, b); }
Variable pow(const Variable& a, const Variable& b) { return apply(Binary::pow, a, b); }
Variable pow(double a, const Variable& b) { return apply(Binary::pow, a, b); }
Variable atan2(const Variable& a, const Variable& b) { return apply(Binary::atan2, a, b); }
Variable logaddexp(const Variable& a, const Variable& b) { return apply(Binary::logaddexp, a, b); }

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  Tensor y = where(condition, a.value(), b.value());
  return record("where", y, {a, b}, [slots = std::array{a.slot(), b.slot()}, condition = saved(condition)](const Tensor& dy) {
    gradients(slots, [&](const auto& into) { where_grad(condition, dy, into[0], into[1]); });
  });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void binary_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const auto two = [&](std::string name, auto f, double low, double high) {
    table.both(name, [f](auto x) { return f(x[0], x[1]); }, {{{3, N}, low, high}, {{3, N}, low, high}});
    table.both(name + " row", [f](auto x) { return f(x[0], x[1]); }, {{{2, 3, N}, low, high}, {{N}, low, high}});
    table.both(name + " column", [f](auto x) { return f(x[0], x[1]); }, {{{3, 1}, low, high}, {{2, 1, N}, low, high}});
  };
  two("add", [](auto& a, auto& b) { return add(a, b); }, -2, 2);
  two("operator+", [](auto& a, auto& b) { return a + b; }, -2, 2);
  two("subtract", [](auto& a, auto& b) { return subtract(a, b); }, -2, 2);
  two("operator-", [](auto& a, auto& b) { return a - b; }, -2, 2);
  two("multiply", [](auto& a, auto& b) { return multiply(a, b); }, -2, 2);
  two("operator*", [](auto& a, auto& b) { return a * b; }, -2, 2);
  two("divide", [](auto& a, auto& b) { return divide(a, b); }, 0.5, 2);
  two("operator/", [](auto& a, auto& b) { return a / b; }, 0.5, 2);
  two("maximum", [](auto& a, auto& b) { return maximum(a, b); }, -2, 2);
  two("minimum", [](auto& a, auto& b) { return minimum(a, b); }, -2, 2);
  two("pow", [](auto& a, auto& b) { return pow(a, b); }, 0.3, 2);
  two("logaddexp", [](auto& a, auto& b) { return logaddexp(a, b); }, -3, 3);
  two("atan2", [](auto& a, auto& b) { return atan2(a, b); }, 0.3, 2);
  const auto condition = [](const auto& x) {
    const Tensor bits = uniform(Key(9), x.shape(), 0, 1);
    return less(bits, 0.5);
  };
  table.both("where", [condition](auto x) { return where(condition(x[0]), x[0], x[1]); }, {{{3, N}}, {{N}}});
  table.each("add number", [](auto& x) { return add(x, 1.5); }, -2, 2);
  table.each("add to number", [](auto& x) { return add(1.5, x); }, -2, 2);
  table.each("subtract number", [](auto& x) { return subtract(x, 1.5); }, -2, 2);
  table.each("subtract from number", [](auto& x) { return subtract(1.5, x); }, -2, 2);
  table.each("multiply number", [](auto& x) { return multiply(x, 1.5); }, -2, 2);
  table.each("multiply by number", [](auto& x) { return multiply(1.5, x); }, -2, 2);
  table.each("divide by number", [](auto& x) { return divide(x, 1.5); }, -2, 2);
  table.each("divide number", [](auto& x) { return divide(1.5, x); }, 0.5, 2);
  table.each("maximum number", [](auto& x) { return maximum(x, 0.5); }, -2, 2, {0.5});
  table.each("maximum of number", [](auto& x) { return maximum(0.5, x); }, -2, 2, {0.5});
  table.each("minimum number", [](auto& x) { return minimum(x, 0.5); }, -2, 2, {0.5});
  table.each("minimum of number", [](auto& x) { return minimum(0.5, x); }, -2, 2, {0.5});
  table.each("pow of number", [](auto& x) { return pow(1.5, x); }, -2, 2);
}

}  // namespace heed
