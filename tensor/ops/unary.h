// SPDX-License-Identifier: Apache-2.0
// Element-wise functions of one tensor, f32 or f64 (else DTypeError). Formulas and derivatives stand beside the kernels in unary.cc,
// errors of the elementary functions in tensor/math-inl.h. NaN gives NaN. y has x's shape and is contiguous.
#pragma once
#include "tensor/into.h"

namespace heed {

enum class Unary {
  negative, abs, exp, expm1, log, log1p, sqrt, square, reciprocal, sin, cos, tanh, sigmoid, logsigmoid, relu, gelu, gelu_tanh, silu,
  softplus, erf, floor, ceil, round, sign, elu, leaky_relu, clamp, pow,
};

// What the derivative reads.
enum class Saves { nothing, input, output };
Saves saves(Unary op);
const char* name(Unary op);            // "tanh"

Tensor unary(Unary op, const Tensor& x, double a = 0, double b = 0);
// dx = dy f'(x)           saved: x or f(x) as saves(op) says, undefined for Saves::nothing
void unary_grad(Unary op, const Tensor& saved, const Tensor& dy, Into dx, double a = 0, double b = 0);

inline Tensor negative(const Tensor& x) { return unary(Unary::negative, x); }
inline Tensor operator-(const Tensor& x) { return unary(Unary::negative, x); }
inline Tensor abs(const Tensor& x) { return unary(Unary::abs, x); }                  // f'(0) = 0
inline Tensor exp(const Tensor& x) { return unary(Unary::exp, x); }
inline Tensor expm1(const Tensor& x) { return unary(Unary::expm1, x); }              // e^x - 1
inline Tensor log(const Tensor& x) { return unary(Unary::log, x); }
inline Tensor log1p(const Tensor& x) { return unary(Unary::log1p, x); }              // ln(1 + x)
inline Tensor sqrt(const Tensor& x) { return unary(Unary::sqrt, x); }                // f'(0) = inf
inline Tensor square(const Tensor& x) { return unary(Unary::square, x); }
inline Tensor reciprocal(const Tensor& x) { return unary(Unary::reciprocal, x); }
inline Tensor sin(const Tensor& x) { return unary(Unary::sin, x); }
inline Tensor cos(const Tensor& x) { return unary(Unary::cos, x); }
inline Tensor tanh(const Tensor& x) { return unary(Unary::tanh, x); }
inline Tensor sigmoid(const Tensor& x) { return unary(Unary::sigmoid, x); }          // 1 / (1 + e^{-x})
inline Tensor logsigmoid(const Tensor& x) { return unary(Unary::logsigmoid, x); }    // -ln(1 + e^{-x})
inline Tensor relu(const Tensor& x) { return unary(Unary::relu, x); }                // max(x, 0), f'(0) = 0
inline Tensor gelu(const Tensor& x) { return unary(Unary::gelu, x); }                // x Φ(x), Hendrycks & Gimpel 2016, arXiv 1606.08415
inline Tensor gelu_tanh(const Tensor& x) { return unary(Unary::gelu_tanh, x); }      // its approximation by tanh, section 2 there
inline Tensor silu(const Tensor& x) { return unary(Unary::silu, x); }                // x sigmoid(x)
inline Tensor softplus(const Tensor& x) { return unary(Unary::softplus, x); }        // ln(1 + e^x)
inline Tensor erf(const Tensor& x) { return unary(Unary::erf, x); }
inline Tensor floor(const Tensor& x) { return unary(Unary::floor, x); }              // f' = 0, as of ceil, round and sign
inline Tensor ceil(const Tensor& x) { return unary(Unary::ceil, x); }
inline Tensor round(const Tensor& x) { return unary(Unary::round, x); }              // half to even
inline Tensor sign(const Tensor& x) { return unary(Unary::sign, x); }                // -1, 0, 1
inline Tensor elu(const Tensor& x, double alpha = 1) { return unary(Unary::elu, x, alpha); }              // x > 0 ? x : α (e^x - 1)
inline Tensor leaky_relu(const Tensor& x, double slope = 0.01) { return unary(Unary::leaky_relu, x, slope); }  // x > 0 ? x : slope x
// f' = 1 at a bound; NaN as a bound: NaN
inline Tensor clamp(const Tensor& x, double low, double high) { return unary(Unary::clamp, x, low, high); }
void clamp_(const Tensor& x, double low, double high);                               // x itself; takes no memory
inline Tensor pow(const Tensor& x, double exponent) { return unary(Unary::pow, x, exponent); }            // pow(x, 0) = 1 with f' = 0

// ---- questions: u8 tensors of x's shape, any dtype ---------------------------------------------------------------------
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
bool all_finite(const Tensor& x);      // true for integers

}  // namespace heed
