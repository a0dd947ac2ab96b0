// SPDX-License-Identifier: Apache-2.0
// Deterministic parallel chunks: the only door to threads. Chunk boundaries come from the shape alone, never from the number
// of threads, so results have the same bits for any number of threads. Inside a region further regions run serially.
#pragma once
#include <algorithm>

#include "tensor/dtype.h"
#include "tensor/function_ref.h"

namespace heed {

// Calls body(chunk) once for each chunk in [0, chunks), spread over threads that compute in the caller's floating-point
// environment; alone in a forked child (a chunk that forks must not return there), and while another thread's region has
// them. Exactly one exception of a body reaches the caller; the pool works afterwards.
void run_chunks(Index chunks, FunctionRef<void(Index)> body);

// The same in this thread alone where that is faster.
template <class F> void run_chunks(bool parallel, Index chunks, F&& body) {
  if (parallel) return run_chunks(chunks, body);
  for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
}

// Whether workers of late regions had no cache in common with their caller: then memory that several threads have read is slow to write.
bool caches_apart();

// While it lives, this thread runs its chunks alone: for work under a lock that chunks on other threads may wait for.
class [[nodiscard]] Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  bool before_;
};

// Calls body(begin, end) on pieces of [0, items) of `grain` items each. Choose the grain from the shape, so that one piece is at
// least about 10 us of work; a single piece runs serially.
template <class F> void parallel_for(Index items, Index grain, F&& body) {
  if (items <= 0) return;
  if (items <= grain) return body(Index{0}, items);
  run_chunks(divide_up(items, grain), [&](Index chunk) { body(chunk * grain, std::min(items, (chunk + 1) * grain)); });
}

// Grain for rows that cost `cost` (about elements touched, or flops / 16) each: pieces of about 16384 units.
inline Index row_grain(Index cost) { return std::max<Index>(1, 16384 / std::max<Index>(1, cost)); }

}  // namespace heed
