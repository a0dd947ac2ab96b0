// SPDX-License-Identifier: Apache-2.0
#include "tensor/parallel.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tensor/context.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/recurrent.h"
#include "tensor/ops/view.h"
#include "tensor/test_hooks.h"
#include "tests/every_target.h"

using namespace heed;

TEST_CASE("parallel: every chunk once; pieces cover all items; regions inside regions are serial") {
  for_threads([] {
    std::vector<std::atomic<int>> times(1000);
    run_chunks(1000, [&](Index chunk) { ++times[std::size_t(chunk)]; });
    for (const auto& n : times) CHECK(n == 1);
    for (const Index items : {0, 1, 6, 7, 8, 1000}) {
      std::vector<int> seen(std::size_t(items), 0);
      parallel_for(items, 7, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) ++seen[std::size_t(i)];
      });
      CHECK(seen == std::vector<int>(std::size_t(items), 1));
    }
    std::vector<std::vector<Index>> inner(50);
    run_chunks(50, [&](Index outer) { run_chunks(4, [&](Index chunk) { inner[std::size_t(outer)].push_back(chunk); }); });
    for (const auto& order : inner) CHECK(order == std::vector<Index>{0, 1, 2, 3});
  });
}

TEST_CASE("parallel: one exception of many reaches the caller, and the pool works afterwards") {
  for_threads([] {
    CHECK_THROWS_WITH_AS(run_chunks(100, [](Index) { throw std::runtime_error("no"); }), "no", std::runtime_error);
    CHECK_THROWS_WITH_AS(run_chunks(100, [](Index chunk) { if (chunk == 57) throw std::runtime_error("57"); }), "57", std::runtime_error);
    CHECK_THROWS_AS(run_chunks(8, [](Index) { run_chunks(8, [](Index) { throw std::runtime_error("inside"); }); }), std::runtime_error);
    std::atomic<int> times = 0;
    run_chunks(100, [&](Index) { ++times; });
    CHECK(times == 100);
  });
}

TEST_CASE("parallel: cores without a common cache, workers that are there and absent ones") {
  for_threads([] {
    for (const bool part : {true, false}) {
      part_caches(part);
      for (int region = 0; region < 600; ++region) {
        if (region % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        std::vector<int> times(std::size_t(2 + region % 20), 0);
        run_chunks(Index(times.size()), [&](Index chunk) { ++times[std::size_t(chunk)]; });
        REQUIRE(times == std::vector<int>(times.size(), 1));
      }
      CHECK_THROWS_AS(run_chunks(10, [](Index chunk) { if (chunk == 7) throw std::runtime_error("no"); }), std::runtime_error);
    }
  }, {2, 3});
}

TEST_CASE("parallel: workers that stayed, that left, more of them or fewer; threads of a user compute side by side") {
  const int before = threads();
  const auto count_all = [](Index chunks) {
    std::atomic<Index> sum = 0;
    std::vector<Index> alone(std::size_t(chunks), 0);
    run_chunks(chunks, [&](Index chunk) {
      sum += chunk;
      ++alone[std::size_t(chunk)];
    });
    return sum == chunks * (chunks - 1) / 2 && alone == std::vector<Index>(std::size_t(chunks), 1);
  };
  for (const int count : {2, 4, 3, 1, 2}) {
    set_threads(count);
    for (const int microseconds : {0, 100, 900, 1000, 1100, 3000})
      for (Index chunks = 2; chunks < 40; chunks += 3) {
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
        CHECK(count_all(chunks));
      }
  }
  set_threads(3);
  std::atomic<int> right = 0;
  const auto many = [&] { for (Index i = 0; i < 500; ++i) right += count_all(2 + i % 30); };
  std::thread other(many), third(many);
  many();
  other.join();
  third.join();
  CHECK(right == 1500);
  set_threads(before);
}

TEST_CASE("parallel: another thread sets another number of threads within products and layers: the same bits") {
  const int before = threads();
  const Tensor a = normal(Key(1), {300, 400}), b = normal(Key(2), {500, 400}), x = normal(Key(3), {64, 3, 8}), w = normal(Key(4), {64, 8}),
               u = normal(Key(5), {64, 16});
  const auto product = [&] { return matmul(a, transpose(b)); };
  const auto layer = [&] { return recurrent_layer(RecurrentUnit::lstm, x, {}, {}, {}, w, u, {}, {}).outputs; };
  const Tensor expected = product(), outputs = layer();
  std::atomic<bool> stop = false;
  std::thread other([&] { for (int i = 0; !stop; ++i) set_threads(1 + i % 7); });
  for (int i = 0; i < 300; ++i) {
    CHECK(equal_bits(product(), expected));
    CHECK(equal_bits(layer(), outputs));
  }
  stop = true;
  other.join();
  set_threads(before);
}

TEST_CASE("parallel: very many chunks in a region, very many regions, then more threads") {
  const int before = threads();
  set_threads(2);
  std::vector<char> times((std::size_t{1} << 24) + 100, 0);
  run_chunks(Index(times.size()), [&](Index chunk) { ++times[std::size_t(chunk)]; });
  CHECK(std::all_of(times.begin(), times.end(), [](char n) { return n == 1; }));
  Index few[2] = {0, 0};
  constexpr Index regions = (1 << 20) + 10;
  for (Index region = 0; region < regions; ++region) run_chunks(2, [&](Index chunk) { ++few[chunk]; });
  CHECK((few[0] == regions && few[1] == regions));
  set_threads(3);
  Index more[5] = {0, 0, 0, 0, 0};
  run_chunks(5, [&](Index chunk) { ++more[chunk]; });
  for (const Index n : more) CHECK(n == 1);
  set_threads(before);
}

TEST_CASE("parallel: a chunk may wait for a thread of its own that computes") {
  const int before = threads();
  set_threads(2);
  std::atomic<Index> chunks = 0;
  run_chunks(2, [&](Index) { std::thread([&] { run_chunks(8, [&](Index) { ++chunks; }); }).join(); });
  CHECK(chunks == 16);
  set_threads(before);
}

TEST_CASE("parallel: a thread that works alone does so until the outer scope ends") {
  const int before = threads();
  set_threads(2);
  std::atomic<int> elsewhere = 0;
  const auto run = [&, caller = std::this_thread::get_id()] {
    run_chunks(20, [&](Index) {
      elsewhere += std::this_thread::get_id() != caller;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  };
  {
    const Alone outer;
    { const Alone inner; }
    run();
  }
  CHECK(elsewhere == 0);
  set_threads(before);
}
