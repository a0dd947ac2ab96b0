// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/binary.h"

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/record.h"
#include "tensor/ops/reduce.h"

namespace heed {
namespace {

Variable apply(Binary op, const Variable& a, const Variable& b) {
  Tensor y = binary(op, a.value(), b.value());
  if (op == Binary::add || op == Binary::subtract) {
    return record(name(op), y, {a, b}, [da = a.slot(), db = b.slot(), op, same_a = y.shape() == a.shape(), same_b = y.shape() == b.shape()](const Tensor& dy) {
      if (same_a) da.adopt(dy);
      else da.gradient([&](Into out) { sum_to(dy, out); });
      if (same_b && op == Binary::add) db.adopt(dy);
      else db.gradient([&](Into out) { binary_grad(op, {}, {}, {}, dy, nullptr, &out); });
    });
  }
  // a product reads the other factor only
  const bool product = op == Binary::multiply, reads_y = op == Binary::divide || op == Binary::pow;
  Saved left = saved(!product || b.wants_gradient() ? a.value() : Tensor()), right = saved(!product || a.wants_gradient() ? b.value() : Tensor());
  Saved value = saved(reads_y && b.wants_gradient() ? y : Tensor());
  return record(name(op), y, {a, b}, [slots = std::array{a.slot(), b.slot()}, a = std::move(left), b = std::move(right), y = std::move(value), op](const Tensor& dy) {
    gradients(slots, [&](const auto& into) { binary_grad(op, a, b, y, dy, into[0], into[1]); });
  });
}
Variable apply(Binary op, const Variable& a, double b) { return apply(op, a, constant(number_like(b, a.value(), op))); }
Variable apply(Binary op, double a, const Variable& b) { return apply(op, constant(number_like(a, b.value(), op)), b); }

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

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  Tensor y = where(condition, a.value(), b.value());
  return record("where", y, {a, b}, [slots = std::array{a.slot(), b.slot()}, condition = saved(condition)](const Tensor& dy) {
    gradients(slots, [&](const auto& into) { where_grad(condition, dy, into[0], into[1]); });
  });
}

}  // namespace heed
