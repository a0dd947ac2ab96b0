// SPDX-License-Identifier: Apache-2.0
// Conversion of elements: float to integer saturates and NaN gives 0, bf16 rounds to nearest even; everything else is the language's
// conversion, bf16 through f32.
#pragma once
#include <algorithm>
#include <limits>

#include "tensor/dtype.h"

namespace heed {

template <class To, class From> To convert(From from) {
  if constexpr (std::is_same_v<To, From>) return from;
  else if constexpr (std::is_same_v<From, BFloat16>) return convert<To>(float(from));
  else if constexpr (std::is_same_v<To, BFloat16>) return BFloat16(convert<float>(from));
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Without branches, for vectors: clamped to the numbers of type From in To's range.
    using Limits = std::numeric_limits<To>;
    using Wide = std::conditional_t<(sizeof(To) < sizeof(std::int32_t)), std::int32_t, To>;
    constexpr int kRounded = std::max(0, Limits::digits - std::numeric_limits<From>::digits);
    constexpr auto low = From(Limits::min()), high = From(Limits::max() >> kRounded << kRounded);
    const From number = from == from ? from : 0, above = number > low ? number : low;
    const auto whole = Wide(above < high ? above : high);
    return To(kRounded > 0 && number > high ? Wide(Limits::max()) : whole);
  } else return To(from);
}

// to[i] = convert(from[i]) on n elements of two dtypes.
using ConvertRow = void (*)(const void* from, std::size_t n, void* to);
ConvertRow conversion(DType to, DType from);
// to[i] = from[-i] on n elements of `item` bytes.
ConvertRow reversal(std::size_t item);

}  // namespace heed
