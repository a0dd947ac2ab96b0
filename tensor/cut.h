// SPDX-License-Identifier: Apache-2.0
// How the rows and columns of a product are cut into chunks for threads. Their number follows the threads, never the bits.
#pragma once
#include <algorithm>

#include "tensor/context.h"
#include "tensor/dtype.h"

namespace heed {

constexpr double kChunk = 10e-6;   // seconds of work of a piece
constexpr double kHandOff = 4e-6;  // worth a hand-off

// How many pieces of `units`, from one a thread on as many for each: one for each kHandOff of work, up to one a thread; one for each kChunk,
// up to 4 a thread and at least 8; one for each 5 kChunk, up to 4 times that.
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
