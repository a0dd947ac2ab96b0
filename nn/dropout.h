// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autograd/ops.h"
#include "nn/scope.h"

namespace heed {

// p; Error, with the path of the module that has it, unless it is in [0, 1].
double checked_dropout(const Path& path, double p);

// Keeps each element with probability 1 - p, p rounded to 1/65536, and scales it by 1/(1 - p);
// the identity without a tape and under Tape(evaluating).
// The mask depends on the tape's key, this module's path, which call of it this is, and the element's index.
struct Dropout {
  Dropout(Scope scope, double p) : p(checked_dropout(scope.path(), p)), path(scope.path()) {}
  Variable operator()(const Variable& x) const {
    const Inside inside(path);
    return dropout(x, p);
  }

  double p;
  Path path;
};

}  // namespace heed
