// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <doctest/doctest.h>

#include "tensor/gemm_bfloat16.h"

namespace heed::test {

// Whether this processor multiplies bfloat16; a message where it does not.
inline bool bfloat16_there() {
  if (has_bfloat16_products()) return true;
  MESSAGE("not tested: this processor has no AVX512-BF16");
  return false;
}

}  // namespace heed::test
