// SPDX-License-Identifier: Apache-2.0
// For rules whose gradients are computed in one pass.
#pragma once
#include <array>

#include "autograd/variable.h"

namespace heed {

// Calls f(into) with the destination of each slot, nullptr where no gradient is wanted; not at all where none is.
template <std::size_t N, class F>
void gradients(const std::array<Slot, N>& slots, F&& f, std::array<const Into*, N> into = {}, std::size_t i = 0) {
  if (i < N) {
    if (!slots[i].wanted()) return gradients(slots, f, into, i + 1);
    return slots[i].gradient([&](Into out) {
      into[i] = &out;
      gradients(slots, f, into, i + 1);
    });
  }
  for (const Into* one : into)
    if (one) return f(into);
}

}  // namespace heed
