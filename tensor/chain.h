// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace heed {

// Takes `one` out of the chain from `latest` on, wherever it stands; does nothing where it is not in it.
template <class T> void unchain(T*& latest, T* one, T* T::*outer) {
  T** at = &latest;
  while (*at && *at != one) at = &((*at)->*outer);
  if (*at) *at = one->*outer;
}

}  // namespace heed
