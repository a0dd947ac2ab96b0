// SPDX-License-Identifier: Apache-2.0
// Element-wise functions of two tensors with NumPy's broadcasting. Both have one dtype (else DTypeError); shapes that do not
// broadcast throw ShapeError. A number on either side takes the tensor's dtype; DTypeError where it does not fit.
#pragma once
#include "tensor/into.h"

namespace heed {

// Integers: add, subtract and multiply wrap, divide truncates and throws Error on 0, maximum and minimum; no pow, no atan2, no logaddexp.
enum class Binary { add, subtract, multiply, divide, maximum, minimum, pow, atan2, logaddexp };

const char* name(Binary op);           // "add"
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
// y (=|+=) f(a, b), a and b broadcast to y's shape; f32, f64. Checks nothing.
void binary(Binary op, const Tensor& a, const Tensor& b, const Into& y);
// 0-d, of x's dtype, to stand behind it in op, or before it. DTypeError: it does not fit, or integers are divided
Tensor number_like(double value, const Tensor& x, Binary op, bool before = false);
Tensor binary(Binary op, const Tensor& a, double b);
Tensor binary(Binary op, double a, const Tensor& b);
// da = Σ dy ∂y/∂a and db = Σ dy ∂y/∂b over the axes that were broadcast; null: not wanted. What is not read may be undefined:
// add and subtract read nothing but dy, multiply the other factor, divide b and for db y, pow all, the others a and b.
void binary_grad(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy, const Into* da, const Into* db);

inline Tensor add(const Tensor& a, const Tensor& b) { return binary(Binary::add, a, b); }
inline Tensor subtract(const Tensor& a, const Tensor& b) { return binary(Binary::subtract, a, b); }
inline Tensor multiply(const Tensor& a, const Tensor& b) { return binary(Binary::multiply, a, b); }
// integers truncate, and beside a number they are refused
inline Tensor divide(const Tensor& a, const Tensor& b) { return binary(Binary::divide, a, b); }
inline Tensor maximum(const Tensor& a, const Tensor& b) { return binary(Binary::maximum, a, b); }  // NaN wins; ties share dy evenly
inline Tensor minimum(const Tensor& a, const Tensor& b) { return binary(Binary::minimum, a, b); }
inline Tensor pow(const Tensor& a, const Tensor& b) { return binary(Binary::pow, a, b); }          // a^b, special values as in C
// angle of (b, a); 0 with gradient 0 at (0, 0)
inline Tensor atan2(const Tensor& a, const Tensor& b) { return binary(Binary::atan2, a, b); }
inline Tensor logaddexp(const Tensor& a, const Tensor& b) { return binary(Binary::logaddexp, a, b); }   // ln(e^a + e^b)

inline Tensor add(const Tensor& a, double b) { return binary(Binary::add, a, b); }
inline Tensor add(double a, const Tensor& b) { return binary(Binary::add, a, b); }
inline Tensor subtract(const Tensor& a, double b) { return binary(Binary::subtract, a, b); }
inline Tensor subtract(double a, const Tensor& b) { return binary(Binary::subtract, a, b); }
inline Tensor multiply(const Tensor& a, double b) { return binary(Binary::multiply, a, b); }
inline Tensor multiply(double a, const Tensor& b) { return binary(Binary::multiply, a, b); }
inline Tensor divide(const Tensor& a, double b) { return binary(Binary::divide, a, b); }
inline Tensor divide(double a, const Tensor& b) { return binary(Binary::divide, a, b); }
inline Tensor maximum(const Tensor& a, double b) { return binary(Binary::maximum, a, b); }
inline Tensor maximum(double a, const Tensor& b) { return binary(Binary::maximum, a, b); }
inline Tensor minimum(const Tensor& a, double b) { return binary(Binary::minimum, a, b); }
inline Tensor minimum(double a, const Tensor& b) { return binary(Binary::minimum, a, b); }
inline Tensor pow(double a, const Tensor& b) { return binary(Binary::pow, a, b); }

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return subtract(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return multiply(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return divide(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return divide(a, b); }

// out (=|+=) x, any strides; x has out's shape, or a larger one and is summed to it, and either out's memory, as the same view, or none
// of it. f32, f64.
void add_into(const Tensor& x, const Into& out);

// ---- where -------------------------------------------------------------------------------------------------------------
// y = condition ? a : b; condition u8, all three broadcast; any dtype. Picks: a NaN on the side not taken does not appear.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
void where_grad(const Tensor& condition, const Tensor& dy, const Into* da, const Into* db);

// ---- questions: u8, 1 = yes; any dtype ---------------------------------------------------------------------------------
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal };
Tensor compare(Comparison op, const Tensor& a, const Tensor& b);
Tensor compare(Comparison op, const Tensor& a, double b);   // b takes the float type; integers are compared as doubles
inline Tensor equal(const Tensor& a, const Tensor& b) { return compare(Comparison::equal, a, b); }
inline Tensor equal(const Tensor& a, double b) { return compare(Comparison::equal, a, b); }
inline Tensor not_equal(const Tensor& a, const Tensor& b) { return compare(Comparison::not_equal, a, b); }
inline Tensor not_equal(const Tensor& a, double b) { return compare(Comparison::not_equal, a, b); }
inline Tensor less(const Tensor& a, const Tensor& b) { return compare(Comparison::less, a, b); }
inline Tensor less(const Tensor& a, double b) { return compare(Comparison::less, a, b); }
inline Tensor less_equal(const Tensor& a, const Tensor& b) { return compare(Comparison::less_equal, a, b); }
inline Tensor less_equal(const Tensor& a, double b) { return compare(Comparison::less_equal, a, b); }
inline Tensor greater(const Tensor& a, const Tensor& b) { return compare(Comparison::greater, a, b); }
inline Tensor greater(const Tensor& a, double b) { return compare(Comparison::greater, a, b); }
inline Tensor greater_equal(const Tensor& a, const Tensor& b) { return compare(Comparison::greater_equal, a, b); }
inline Tensor greater_equal(const Tensor& a, double b) { return compare(Comparison::greater_equal, a, b); }

// u8 in, u8 out: 0 is no, anything else yes.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& a);

}  // namespace heed
