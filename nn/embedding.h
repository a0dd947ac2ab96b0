// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "nn/scope.h"

namespace heed {

// Row look-up: ids [...] (i32 or i64) -> [..., d]. Starts as N(0, 1), PyTorch's; the padding row starts as zero, unless a weight is shared,
// and gets no gradient from look-ups; that of an output layer with this table reaches it, as in PyTorch.
struct Embedding {
  struct Options {
    Index vocabulary, width;
    Index padding = -1;           // id of the padding row; -1 = none. Error where there is no such row
    double scale = 1;             // of the rows read; the Transformer's is √d
    Initializer init = {};
    Parameter weight = {};        // shared
  };
  Embedding(Scope scope, Options options);
  Variable operator()(const Tensor& ids) const;

  Parameter weight;               // [vocabulary, d]
  Index padding;
  double scale;
  Path path;
};

}  // namespace heed
