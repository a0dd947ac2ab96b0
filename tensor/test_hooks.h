// SPDX-License-Identifier: Apache-2.0
// What tests do to the library that no user can.
#pragma once
#include <cstdint>

namespace heed {

// Chunks of parallel regions run one after another in a random order; 0: no longer.
void shuffle_chunks(std::uint64_t seed);

// As if no two cores had a cache in common: for caches_apart at once, for the order of chunks from the next time on that workers are
// asked how far they are, every 256 regions.
void part_caches(bool part);

// The next `allowed` allocations of tensor memory succeed, the one after them throws OutOfMemory, those behind it succeed again.
// Negative: none throws. Returns what was left, negative once it has thrown.
std::int64_t refuse_memory_after(std::int64_t allowed);

// As if the processor had no AVX512-BF16.
void hide_bfloat16_products(bool hide);
// As if it had no AMX.
void hide_amx(bool hide);

}  // namespace heed
