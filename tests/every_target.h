// SPDX-License-Identifier: Apache-2.0
// Runs of a test on other targets and with other numbers of threads; what throws in between changes nothing for those after it.
#pragma once
#include <hwy/targets.h>

#include <initializer_list>

#include "tensor/context.h"

struct OnTarget {
  explicit OnTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OnTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Runs body() once for each SIMD target this CPU can run.
template <class F> void for_every_target(F&& body) {
  for (std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget here(target);
    body();
  }
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
  const struct Before {
    int threads = heed::threads();
    ~Before() { heed::set_threads(threads); }
  } before;
  for (const int count : counts) {
    heed::set_threads(count);
    body();
  }
}
