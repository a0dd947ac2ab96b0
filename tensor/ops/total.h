// SPDX-License-Identifier: Apache-2.0
// Sums of many losses in double.
#pragma once
#include <algorithm>
#include <numeric>

#include "tensor/list.h"
#include "tensor/parallel.h"
#include "tensor/tensor.h"

namespace heed {

// Σ x in double, n <= 4096: element i in lane i % 16
double total(const float* x, std::size_t n);
double total(const double* x, std::size_t n);

// Σ of n numbers in double: partial sums of 4096 in 16 lanes, added in order. make(begin, count, buffer): numbers [begin, begin + count),
// which it may put into the buffer.
template <class T, class Make> double total_of(Index n, Make&& make) {
  constexpr Index kPart = 4096;
  const Index parts = divide_up(n, kPart);
  List<double> partials(static_cast<std::size_t>(parts));
  parallel_for(parts, 4, [&](Index begin, Index end) {
    alignas(64) T buffer[kPart];
    for (Index part = begin; part < end; ++part) {
      const Index count = std::min(kPart, n - part * kPart);
      partials[std::size_t(part)] = total(make(part * kPart, std::size_t(count), buffer), std::size_t(count));
    }
  });
  return std::accumulate(partials.begin(), partials.end(), 0.0);
}
template <class T> double total_of(const Tensor& x) {
  const T* const values = x.span<T>().data();
  return total_of<T>(x.numel(), [&](Index begin, std::size_t, T*) { return values + begin; });
}

}  // namespace heed
