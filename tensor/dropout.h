// SPDX-License-Identifier: Apache-2.0
// Dropout by counter. Whether element i is kept is a function of (key, i) alone, so forward, backward, fused and plain kernels,
// and any number of threads, see one mask, and nobody stores it:
//   draw(i) = half-word (i % 128) / 16 (low halves first) of philox(key, 16 (i / 128) + i % 16),   kept where draw(i) >= threshold
// Kept values are scaled by 65536 / (65536 - threshold), threshold = round(65536 p), at most 65535 for p < 1:
// the expectation is exact for the rate used.
#pragma once
#include "tensor/random.h"

namespace heed {

struct DropoutKey {
  DropoutKey() = default;                                        // keeps everything
  DropoutKey(std::string_view op, double p, Key key);            // Error unless 0 <= p <= 1; p = 1 drops everything
  bool keeps_all() const { return threshold == 0; }

  Key key = Key::from_bits(0);
  std::uint32_t threshold = 0;
  double scale = 1;
};

// Factor of element i: 0 or scale. The definition; kernels use DropoutFactors of tensor/dropout-inl.h.
double dropout_factor(const DropoutKey& dropout, Index i);

}  // namespace heed
