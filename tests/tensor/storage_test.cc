// SPDX-License-Identifier: Apache-2.0
#include "tensor/storage.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <semaphore>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/random.h"

using namespace heed;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace

TEST_CASE("storage: blocks of all sizes keep their bytes while others come and go") {
  Random random(Key(Seed{5}));
  std::vector<Storage> blocks;
  const auto mark = [](const Storage& s) { return std::byte(reinterpret_cast<std::uintptr_t>(s.data()) >> 6); };
  const auto whole = [&](const Storage& s) {
    return std::all_of(s.data(), s.data() + s.bytes(), [&](std::byte b) { return b == mark(s); });
  };
  const std::size_t before = memory_use().in_use;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() < 40 && random.below(3)) {
      const Index most[] = {100, 5000, 600 << 10, 3 << 20};
      blocks.emplace_back(std::size_t(random.below(most[random.below(4)])));
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back().data()) % 64 == 0);
      std::fill_n(blocks.back().data(), blocks.back().bytes(), mark(blocks.back()));
    } else if (!blocks.empty()) {
      const auto at = blocks.begin() + random.below(Index(blocks.size()));
      REQUIRE(whole(*at));
      blocks.erase(at);
    }
  }
  blocks.clear();
  CHECK(memory_use().in_use == before);
}

TEST_CASE("storage: a small block takes 256 bytes beside its own") {
  release_cached_memory();
  const std::size_t before = memory_use().reserved;
  std::vector<Storage> numbers;
  for (int i = 0; i < 200000; ++i) numbers.emplace_back(4);
  CHECK(memory_use().reserved - before < numbers.size() * (512 + 256) + 16 * kMiB);
}

TEST_CASE("storage: large blocks that were freed are joined, and cached memory goes back to the system") {
  release_cached_memory();
  const MemoryUse before = memory_use();
  {
    std::vector<Storage> row;
    for (int i = 0; i < 20; ++i) row.emplace_back(3 * kMiB);
    CHECK(memory_use().reserved == before.reserved + 64 * kMiB);
    CHECK(memory_use().system_calls == before.system_calls + 1);
    row.erase(row.begin() + 4, row.begin() + 12);
    row.emplace_back(20 * kMiB);                                   // in the place of eight
    row.clear();
    row.emplace_back(60 * kMiB);
    CHECK(memory_use().system_calls == before.system_calls + 1);
    row.emplace_back(100 * kMiB);                                  // more than a region
    CHECK(memory_use().system_calls == before.system_calls + 2);
  }
  CHECK(memory_use().in_use == before.in_use);
  release_cached_memory();
  CHECK(memory_use().reserved == before.reserved);
}

TEST_CASE("storage: what the system refuses is told and changes nothing") {
  const MemoryUse before = memory_use();
  for (const std::size_t bytes : {(std::size_t{1} << 46) + 1, ~std::size_t{0}}) CHECK_THROWS_AS(Storage{bytes}, OutOfMemory);
  CHECK(memory_use().in_use == before.in_use);
  CHECK(memory_use().reserved == before.reserved);
}

TEST_CASE("storage: blocks go from thread to thread, and what a thread keeps is there for others when it ends") {
  const Storage of_others(kMiB);
  const MemoryUse before = memory_use();
  std::size_t reserved = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<Storage> handed_over;
    std::thread([&] {
      static thread_local Storage until_the_end;
      until_the_end = Storage(3000);
      for (int i = 0; i < 500; ++i) {
        handed_over.emplace_back(std::size_t(1) << (i % 17));
        const Storage of_thread(std::size_t(1) << (i % 17));
        CHECK(!(of_thread == handed_over.back()));
      }
      CHECK(memory_use().in_use >= before.in_use + 500 * 512);
      std::vector<Storage> given_back;
      for (int i = 0; i < 500; ++i) given_back.emplace_back(std::size_t(1) << (i % 17));
    }).join();
    CHECK(memory_use().peak >= memory_use().in_use);
    handed_over.clear();
    CHECK(memory_use().in_use == before.in_use);
    if (round < 3) reserved = memory_use().reserved;   // by then each has what it keeps
    CHECK(memory_use().reserved == reserved);
  }
  reset_peak_memory();
  CHECK(memory_use().peak == before.in_use);
}

TEST_CASE("storage: a forked child has memory, whatever other threads were at") {
  std::atomic<bool> stop{false};
  std::thread other([&] { while (!stop) Storage(3 * kMiB); });
  int ended = 0;
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const Storage one(kMiB);
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ended += status == 0;
  }
  stop = true;
  other.join();
  CHECK(ended == 30);
}

TEST_CASE("storage: a forked child counts its own threads alone") {
  std::binary_semaphore made(0), stop(0);
  std::thread other([&] {
    const Storage one(100);
    made.release();
    stop.acquire();
  });
  made.acquire();
  const std::size_t in_use = memory_use().in_use;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    bool right = memory_use().in_use == in_use;
#ifndef __SANITIZE_THREAD__   // it starts no threads after a fork
    for (int i = 0; i < 3; ++i) std::thread([] { const Storage one(100); }).join();   // on the stack of the parent's thread
#endif
    right &= memory_use().in_use == in_use;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  stop.release();
  other.join();
  CHECK(status == 0);
}

TEST_CASE("storage: a thread is given a block that it gave back itself, where there is one") {
  constexpr std::size_t kBytes = 100 << 10;   // more than a thread keeps
  Storage of_thread(kBytes), of_main(kBytes);
  const void* const first = of_thread.data();
  std::binary_semaphore given_back(0), go_on(0);
  std::thread thread([&] {
    of_thread = {};
    given_back.release();
    go_on.acquire();
    CHECK(Storage(kBytes).data() == first);
  });
  given_back.acquire();
  const void* const second = of_main.data();
  of_main = {};                               // stands before the other one in the list
  go_on.release();
  thread.join();                              // now the other one stands first
  CHECK(Storage(kBytes).data() == second);
}

TEST_CASE("storage: a large block takes the smallest place that holds it") {
  release_cached_memory();
  std::vector<Storage> row;
  for (const std::size_t size : {20, 2, 5, 2}) row.emplace_back(size * kMiB);
  const std::byte *const wide = row[0].data(), *const narrow = row[2].data();
  REQUIRE(wide < narrow);
  row[0] = row[2] = {};
  const Storage block(4 * kMiB);
  CHECK(block.data() >= narrow - kMiB);
  CHECK(block.data() < narrow + kMiB);
}
