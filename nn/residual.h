// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autograd/ops.h"
#include "autograd/trace.h"
#include "nn/dropout.h"
#include "nn/norm.h"

namespace heed {

enum class NormAt { after, before };   // post-norm (the paper), pre-norm

// The wrapper of every Transformer sublayer, written once for both placements. Its scope holds the norm.
struct Residual {
  struct Options {
    Index width;
    double dropout = 0.1;
    NormAt norm_at = NormAt::after;
    double eps = 1e-5;
    bool bias = true;             // of the norm
    bool rms = false;             // RMSNorm instead of LayerNorm
  };
  Residual(Scope scope, Options options)
      : norm(scope, {.width = options.width, .rms = options.rms, .eps = options.eps, .bias = options.bias}),
        dropout(checked_dropout(scope.path(), options.dropout)),
        norm_at(options.norm_at) {}

  // x [..., d]; sublayer: [..., d] -> [..., d]
  Variable operator()(const Variable& x, auto&& sublayer) const {
    if (norm_at == NormAt::before) return add_dropout(sublayer(norm(x)), x);   // x + dropout(sublayer(norm(x)))   Xiong et al. 2020
    const Variable y = sublayer(x);
    const Inside inside(norm.path());
    // norm(x + dropout(sublayer(x)))   Vaswani et al. 2017, 3.1
    return trace("", "y = norm(x + sublayer(x))", norm.after_sum(y, x, dropout));
  }

  Norm norm;
  double dropout;
  NormAt norm_at;

 private:
  Variable add_dropout(const Variable& y, const Variable& x) const {
    const Inside inside(norm.path());
    return trace("sum", "y = x + sublayer(norm(x))", x + heed::dropout(y, dropout));
  }
};

}  // namespace heed
