// SPDX-License-Identifier: Apache-2.0
// Rows of few numbers, turned so that they lie side by side: a vector then holds one number of as many rows as it has lanes.
#pragma once
#include "tensor/gemm.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"

namespace heed {

constexpr std::size_t kShort = 16, kTile = 64;   // length of a short row, rows of a tile

// For `count` rows of n in [1, kShort] numbers of a, and of b where it is not null, in parallel, f(first row, rows, tile of a, of b, of y)
// with tiles [n, kTile]; y is turned back to where `out` is, which may be null.
template <class T, class F> void for_short_rows(Index count, Index n, const T* a, const T* b, T* out, bool add, F&& f) {
  constexpr Index tile = Index(kTile);
  const auto turn = gemm_kernels<T>().turn;
  parallel_for(divide_up(count, tile), row_grain(n * tile), [&](Index begin, Index end) {
    alignas(64) T as[kShort * kTile], bs[kShort * kTile], ys[kShort * kTile], rows[kShort * kTile];
    for (Index first = begin * tile; first < std::min(count, end * tile); first += tile) {
      const Index some = std::min(count - first, tile), size = some * n;
      turn(a + first * n, n, n, some, tile, as);
      if (b) turn(b + first * n, n, n, some, tile, bs);
      f(first, std::size_t(some), as, bs, ys);
      if (!out) continue;
      T* const to = out + first * n;
      turn(ys, tile, some, n, n, add ? rows : to);
      for (Index i = 0; add && i < size; ++i) to[i] += rows[i];
    }
  });
}

}  // namespace heed
