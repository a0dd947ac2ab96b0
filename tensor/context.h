// SPDX-License-Identifier: Apache-2.0
// What the machine offers and what was chosen: threads, instruction set, caches. One for the process.
#pragma once
#include <cstddef>
#include <string>

namespace heed {

inline constexpr int kMostThreads = 1024;

// Threads used by parallel regions. Default: HEED_THREADS, else the affinity mask cut by the cgroup quota, at least 1.
int threads();
void set_threads(int count);      // 1..kMostThreads, else Error; call it outside of parallel regions

struct CacheSizes { std::size_t l1, l2, l3; };  // bytes: of a core, of a core, of all that share it; 0 = unknown
CacheSizes cache_sizes();

std::string instruction_set();    // Highway's name of the dispatch target: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", ...
std::string describe_context();   // one line: instruction set, threads, caches

}  // namespace heed
