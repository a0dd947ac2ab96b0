// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <doctest/doctest.h>

#include "tensor/amx.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/test_hooks.h"

namespace heed::test {

// Whether this processor multiplies bfloat16; a message where it does not.
inline bool bfloat16_there() {
  if (has_bfloat16_products()) return true;
  MESSAGE("not tested: this processor has no AVX512-BF16");
  return false;
}

// While it lives, this processor has none of it.
struct WithoutBFloat16 {
  WithoutBFloat16() { hide_bfloat16_products(true); }
  ~WithoutBFloat16() { hide_bfloat16_products(false); }
};

// f() as it is and, where there is AMX, without.
template <class F> void with_and_without_amx(F&& f) {
  f();
  if (!has_amx()) return;
  const struct Without {
    Without() { hide_amx(true); }
    ~Without() { hide_amx(false); }
  } without;
  f();
}

}  // namespace heed::test
