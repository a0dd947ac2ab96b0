// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <variant>

#include "nn/scope.h"

namespace heed {

// LN(x) = γ ⊙ (x - μ)/√(var + eps) + β over the last axis; var divides by d.     Ba et al. 2016, arXiv 1607.06450
struct LayerNorm {
  struct Options {
    Index width;
    double eps = 1e-5;
    bool bias = true;
  };
  LayerNorm(Scope scope, Options options);
  Variable operator()(const Variable& x) const;   // [..., d] -> [..., d]

  Parameter weight, bias;   // γ, β [d]
  double eps;
  Path path;
};

// RMSNorm(x) = γ ⊙ x / √(mean(x²) + eps)                                         Zhang and Sennrich 2019, arXiv 1910.07467
// Differs: eps as LayerNorm's; PyTorch's default is the dtype's epsilon, 1.19e-7 in f32.
struct RMSNorm {
  struct Options {
    Index width;
    double eps = 1e-5;
  };
  RMSNorm(Scope scope, Options options);
  Variable operator()(const Variable& x) const;   // [..., d] -> [..., d]

  Parameter weight;         // γ [d]
  double eps;
  Path path;
};

// LayerNorm, or with rms RMSNorm, as a model asks for.
struct Norm {
  struct Options {
    Index width;
    bool rms = false;
    double eps = 1e-5;
    bool bias = true;       // of LayerNorm
  };
  Norm(Scope scope, Options options);
  Variable operator()(const Variable& x) const;                                              // [..., d] -> [..., d]
  Variable after_sum(const Variable& x, const Variable& residual, double dropout) const;   // norm(residual + dropout(x)); ShapeError
  const Path& path() const;

  std::variant<LayerNorm, RMSNorm> form;
};

}  // namespace heed
