// SPDX-License-Identifier: Apache-2.0
// Loops over rows of any dtype, in blocks of a constant count, which g++ 12 -O2 makes vectors of.
#pragma once
#include <algorithm>
#include <type_traits>

#include "tensor/dtype.h"

namespace heed {

// y[i] = value. A long row is copied from its beginning, by the C library's widest stores.
template <class T> void fill_row(T value, Index n, T* y) {
  constexpr Index kBegin = Index(4096 / sizeof(T));
  const T* const begin = y;
  Index some = std::min(n, kBegin);
  n -= some;
  for (; some >= 64; some -= 64, y += 64)
    for (Index i = 0; i < 64; ++i) y[i] = value;
  for (Index i = 0; i < some; ++i) *y++ = value;
  for (; n > 0; n -= some, y += some) std::copy(begin, begin + (some = std::min(n, kBegin)), y);
}

// Rows y, one after another, each of them x; from the first ones on they are copied from y's beginning.
template <class T> void repeat_row(const T* __restrict x, Index n, Index rows, T* __restrict y) {
  const Index all = rows * n, most = std::max<Index>(1, Index(4096 / sizeof(T)) / n) * n;
  for (Index i = 0; i < n; ++i) y[i] = x[i];
  for (Index done = n, some; done < all; done += some) std::copy(y, y + (some = std::min({done, all - done, most})), y + done);
}

template <class T> T plus(T a, T b) {   // integers wrap
  if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
  else return a + b;
}

// y[i] += x[i]
template <class T> void add_row(const T* __restrict x, Index n, T* __restrict y) {
  for (; n >= 16; n -= 16, x += 16, y += 16)
    for (Index i = 0; i < 16; ++i) y[i] = plus(y[i], x[i]);
  for (Index i = 0; i < n; ++i) y[i] = plus(y[i], x[i]);
}

}  // namespace heed
