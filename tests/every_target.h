// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <hwy/targets.h>

#include "tensor/context.h"

// Runs body() once for each SIMD target this CPU can run.
template <class F> void for_every_target(F&& body) {
  for (std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The same for the targets that have fused multiply-add: they agree bit for bit.
template <class F> void for_every_fma_target(F&& body) {
  for_every_target([&] {
    const std::string name = heed::instruction_set();
    if (name != "SSE4" && name != "SCALAR" && name != "SSE2" && name != "EMU128") body();
  });
}

// Runs body() with 1, 2 and 3 threads.
template <class F> void for_threads(F&& body) {
  const int before = heed::threads();
  for (int count : {1, 2, 3}) {
    heed::set_threads(count);
    body();
  }
  heed::set_threads(before);
}
