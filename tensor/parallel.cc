// SPDX-License-Identifier: Apache-2.0
#include "tensor/parallel.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tensor/context.h"
#include "tensor/random.h"
#include "tensor/test_hooks.h"

#ifdef HEED_STD_THREADS
#include <condition_variable>
#include <thread>
#else
#include <optional>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace heed {
namespace {

thread_local bool inside_region = false;
std::atomic<std::uint64_t> shuffle_seed{0};

std::atomic<bool> forked{false};
[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] { forked = true; });

// Rounding, and what becomes of denormal numbers.
#if defined(__SSE__)
using Environment = unsigned;
Environment environment() { return _mm_getcsr() & 0xffc0; }                        // without the flags of what has happened
void set_environment(Environment e) { _mm_setcsr((_mm_getcsr() & ~0xffc0u) | e); }
#elif defined(__aarch64__)
using Environment = unsigned long;
Environment environment() {
  Environment e;
  asm volatile("mrs %0, fpcr" : "=r"(e));
  return e;
}
void set_environment(Environment e) { asm volatile("msr fpcr, %0" : : "r"(e)); }
#else
using Environment = int;
Environment environment() { return 0; }
void set_environment(Environment) {}
#endif

// Chunks are claimed one after another; whoever comes late finds none left, so the caller never waits for an absent worker.
struct Claims {
  std::atomic<Index> next{0};
  Index chunks;
  FunctionRef<void(Index)> body;
  Environment of_caller = environment();
  std::atomic<bool> failed{false};
  std::exception_ptr exception{};

  void work() noexcept {
    const bool was_inside = std::exchange(inside_region, true);
    const Environment before = environment();
    if (before != of_caller) set_environment(of_caller);
    for (Index chunk; !failed.load(std::memory_order_relaxed) && (chunk = next.fetch_add(1)) < chunks;) {
      try {
        body(chunk);
      } catch (...) {
        if (!failed.exchange(true)) exception = std::current_exception();
      }
    }
    if (before != of_caller) set_environment(before);
    inside_region = was_inside;
  }
};

#ifdef HEED_STD_THREADS

// Workers sleep on a condition variable between regions.
class Pool {
 public:
  void run(Claims& claims, int helpers) {
    std::lock_guard one_at_a_time(run_mutex_);
    {
      std::lock_guard lock(mutex_);
      while (int(workers_.size()) < helpers) workers_.emplace_back([this] { loop(); });
      claims_ = &claims;
      wanted_ = helpers;
        }
    wake_.notify_all();
    claims.work();
    std::unique_lock lock(mutex_);
    wanted_ = 0;
    claims_ = nullptr;
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  ~Pool() {
    { std::lock_guard lock(mutex_); stop_ = true; }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || wanted_ > 0; });
      if (stop_) return;
      --wanted_;
      ++busy_;
      Claims* claims = claims_;
      lock.unlock();
      claims->work();
      lock.lock();
      if (--busy_ == 0) done_.notify_all();
    }
  }
  std::mutex run_mutex_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  Claims* claims_ = nullptr;
  int wanted_ = 0, busy_ = 0;
  bool stop_ = false;
};

void run_team(Claims& claims, int team) {
  static Pool pool;
  pool.run(claims, team - 1);
}

#else

void run_team(Claims& claims, int team) {
  static std::mutex mutex;  // two user threads take turns
  static int allowed = 0;
  static std::optional<tbb::global_control> limit;
  static std::optional<tbb::task_arena> arena;
  std::lock_guard lock(mutex);
  if (allowed != threads()) {
    allowed = threads();
    limit.emplace(tbb::global_control::max_allowed_parallelism, std::size_t(allowed));
    arena.emplace(allowed);
  }
  arena->execute([&] { tbb::parallel_for(0, team, [&](int) { claims.work(); }, tbb::static_partitioner()); });
}

#endif

void run_shuffled(Index chunks, FunctionRef<void(Index)> body) {
  std::vector<Index> order(static_cast<std::size_t>(chunks));
  std::iota(order.begin(), order.end(), Index{0});
  Random(Key(Seed{shuffle_seed++})).shuffle(std::span(order));
  for (Index chunk : order) body(chunk);
}

}  // namespace

void shuffle_chunks(std::uint64_t seed) { shuffle_seed = seed; }

void run_chunks(Index chunks, FunctionRef<void(Index)> body) {
  if (shuffle_seed != 0) [[unlikely]] return run_shuffled(chunks, body);
  const int team = int(std::min<Index>(threads(), chunks));
  if (team <= 1 || inside_region || forked) {
    for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
    return;
  }
  Claims claims{.chunks = chunks, .body = body};
  run_team(claims, team);
  if (claims.exception) std::rethrow_exception(claims.exception);
}

}  // namespace heed
