// SPDX-License-Identifier: Apache-2.0
#include "tensor/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>

#include "tensor/context.h"

#ifdef HEED_STD_THREADS
#include <condition_variable>
#include <thread>
#include <vector>
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

// Chunks are claimed one after another; whoever comes late finds none left, so the caller never waits for an absent worker.
struct Claims {
  std::atomic<Index> next{0};
  Index chunks;
  FunctionRef<void(Index)> body;
  std::atomic<bool> failed{false};
  std::exception_ptr exception{};

  void work() noexcept {
    const bool was_inside = std::exchange(inside_region, true);
    for (Index chunk; !failed.load(std::memory_order_relaxed) && (chunk = next.fetch_add(1)) < chunks;) {
      try {
        body(chunk);
      } catch (...) {
        if (!failed.exchange(true)) exception = std::current_exception();
      }
    }
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

}  // namespace

void run_chunks(Index chunks, FunctionRef<void(Index)> body) {
  const int team = int(std::min<Index>(threads(), chunks));
  if (team <= 1 || inside_region) {
    for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
    return;
  }
  Claims claims{.chunks = chunks, .body = body};
  run_team(claims, team);
  if (claims.exception) std::rethrow_exception(claims.exception);
}

}  // namespace heed
