// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <hwy/targets.h>

#include <initializer_list>

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

// Whether the target has fused multiply-add. Those that have it agree bit for bit.
inline bool has_fma() {
  const std::string name = heed::instruction_set();
  return !name.starts_with("SSE") && name != "SCALAR" && name != "EMU128";
}
template <class F> void for_every_fma_target(F&& body) {
  for_every_target([&] { if (has_fma()) body(); });
}

// Runs body() with 1, 2 and 3 threads, or as many as `counts` says.
template <class F> void for_threads(F&& body, std::initializer_list<int> counts = {1, 2, 3}) {
  const int before = heed::threads();
  for (const int count : counts) {
    heed::set_threads(count);
    body();
  }
  heed::set_threads(before);
}
