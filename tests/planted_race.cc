// SPDX-License-Identifier: Apache-2.0
// Two tasks write one number at the same time, a hundred times: of one write each ThreadSanitizer overlooks two that coincide.
// tests/sanitize.sh expects it to say so.
#include <atomic>
#include <thread>

#include "tensor/context.h"
#include "tensor/parallel.h"

int main() {
  heed::set_threads(2);
  std::atomic<int> started = 0;
  long sum = 0;
  heed::run_chunks(2, [&](heed::Index chunk) {
    started.fetch_add(1, std::memory_order_relaxed);          // orders nothing
    while (started.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {
      sum += chunk;
      std::this_thread::yield();
    }
  });
  return sum < 0;
}
