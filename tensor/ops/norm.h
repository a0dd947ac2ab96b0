// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows: x [..., d], weight γ [d] and bias β [d] (either may be undefined), statistics [...]. f32 and f64.
// ShapeError unless weight and bias are [d] and gradients have their input's shape; DTypeError where dtypes differ.
// Error: eps < 0, dropout outside [0, 1].
// Gradients to parts that are not wanted are null.
#pragma once
#include "tensor/into.h"
#include "tensor/random.h"

namespace heed {

struct LayerNormed { Tensor y, mean, rstd; };
// Ba et al. 2016 (arXiv 1607.06450):  y = γ ⊙ (x - μ) / σ + β,  σ = √(mean((x - μ)²) + eps);  rstd = 1 / σ
// A constant row, also of width 1, gives β.
LayerNormed layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
// x^ = (x - μ) / σ, g = dy ⊙ γ:   dx = (g - mean(g) - x^ mean(g ⊙ x^)) / σ;   dγ = Σ dy ⊙ x^;   dβ = Σ dy
void layer_norm_grad(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy, const Into* dx,
                     const Into* dweight, const Into* dbias);

struct RmsNormed { Tensor y, rstd; };
// Zhang & Sennrich 2019 (arXiv 1910.07467):  y = γ ⊙ x / r,  r = √(mean(x²) + eps)
RmsNormed rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);
// x^ = x / r, g = dy ⊙ γ:   dx = (g - x^ mean(g ⊙ x^)) / r;   dγ = Σ dy ⊙ x^
void rms_norm_grad(const Tensor& x, const Tensor& rstd, const Tensor& weight, const Tensor& dy, const Into* dx, const Into* dweight);

struct AddDropoutNormOptions { double eps = 1e-5, dropout = 0; Key key = Key::from_bits(0); };
struct AddDropoutNormed { Tensor y, sum, mean, rstd; };
// One pass of  sum = residual + dropout(x),  y = layer_norm(sum)   (the post-norm sub-layer of Vaswani et al. 2017, 3.1, 5.4)
AddDropoutNormed add_dropout_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                const AddDropoutNormOptions& options = {});
// g = dsum + the dx of layer_norm_grad at sum (dsum may be undefined):   dresidual = g;   dx = dropout mask ⊙ g
void add_dropout_norm_grad(const Tensor& sum, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
                           const Tensor& dsum, const AddDropoutNormOptions& options, const Into* dx, const Into* dresidual,
                           const Into* dweight, const Into* dbias);

}  // namespace heed
