// SPDX-License-Identifier: Apache-2.0
#include "nn/dropout.h"

#include "tensor/format.h"

namespace heed {

double checked_dropout(const Path& path, double p) {
  const Inside inside(path);
  check<Error>(p >= 0 && p <= 1, "dropout: p must be in [0, 1]: {}", p);
  return p;
}

}  // namespace heed
