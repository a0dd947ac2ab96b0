// SPDX-License-Identifier: Apache-2.0
#include "tensor/dropout.h"

#include <algorithm>
#include <cmath>

#include "tensor/format.h"

namespace heed {

DropoutKey::DropoutKey(std::string_view op, double p, Key k) : key(k) {
  check<Error>(p >= 0 && p <= 1, "{}: dropout must be in [0, 1]: dropout {}", op, p);
  threshold = p == 1 ? 65536 : std::min<std::uint32_t>(65535, std::uint32_t(std::lround(65536 * p)));
  scale = p == 1 ? 0 : 65536.0 / (65536 - threshold);
}

double dropout_factor(const DropoutKey& dropout, Index i) {
  const auto half = std::size_t(i % 128 / 16);
  const std::uint32_t word = philox(dropout.key, std::uint64_t(i / 128 * 16 + i % 16))[half / 2];
  return (half % 2 ? word >> 16 : word & 0xffff) >= dropout.threshold ? dropout.scale : 0;
}

}  // namespace heed
