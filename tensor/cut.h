// SPDX-License-Identifier: Apache-2.0
// How the rows and columns of a product are cut into chunks for threads. Their number follows the threads, never the bits.
#pragma once
#include <algorithm>

#include "tensor/context.h"
#include "tensor/dtype.h"

namespace heed {

constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index b) { return divide_up(a, b) * b; }

constexpr double kChunk = 10e-6;   // seconds of work of a piece
constexpr double kHandOff = 4e-6;  // worth a hand-off

// Pieces of `units`, as many for each thread: one a thread of kHandOff, up to 8 of kChunk, or 4 a thread, up to 4 times these of some more.
inline Index pieces(double seconds, Index units) {
  const Index team = std::max<Index>(2, threads());
  const double few = double(std::max<Index>(8, 4 * team));
  const double wanted =
      std::max({std::min(double(team), seconds / kHandOff), std::min(few, seconds / kChunk), std::min(4 * few, seconds / (5 * kChunk))});
  const Index most = std::clamp<Index>(Index(wanted), 1, units);
  return most < team ? most : most / team * team;
}

// Rows or columns in parts of like size, of whole units but for the last one, which may begin `early`.
struct Cut {
  Index count, unit, parts, early = 0;
  Index units() const { return divide_up(count, unit); }
  Index begin(Index part) const {
    const Index first = units() * part / parts;
    return part == parts ? count : first * unit - (first > 0 && first == units() - 1 ? early : 0);
  }
  Index end(Index part) const { return begin(part + 1); }
  Index size(Index part) const { return end(part) - begin(part); }
  Index most() const { return std::min(count, divide_up(units(), parts) * unit); }
};

}  // namespace heed
