// SPDX-License-Identifier: Apache-2.0
#include "tensor/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tensor/context.h"
#include "tensor/random.h"
#include "tensor/test_hooks.h"

#ifndef HEED_STD_THREADS
#include <optional>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace heed {
namespace {

thread_local bool inside_region = false;
std::atomic<std::uint64_t> shuffle_seed{0};
std::atomic<bool> all_far{false}, any_far{false};

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

using Clock = std::chrono::steady_clock;

// Between two looks at what others write. Now and then another thread gets this core.
class Pause {
 public:
  void operator()() {
    if (++count_ % 32 == 0) return std::this_thread::yield();
#if defined(__SSE__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  unsigned count_ = 0;
};

// Chunks of a region. Each place takes the next of its own range, so that what it wrote in one region is in its core's cache in the
// following, then what the others have not begun: nobody waits for an absent worker. Where two cores have no cache in common, chunks of
// a worker that has begun stay its own: their lines lie there, and where they were taken the next regions would find them elsewhere. Of
// more workers the slowest would be waited for.
struct alignas(64) Place {
  std::atomic<Index> next{0};
  Index begin = 0, end = 0;
  std::atomic<bool> present{false};        // its worker
  std::atomic<bool> inside{false};         // it may be in a region
  bool far = false;                        // from the caller
  std::atomic<unsigned> asked{0}, answered{0};
  bool untouched() const { return next.load(std::memory_order_relaxed) == begin; }
};

struct Region {
  FunctionRef<void(Index)> body;
  std::deque<Place>& places;
  int team;                                // places that take part
  Environment of_caller = environment();
  std::atomic<bool> failed{false};
  std::exception_ptr exception{};

  void work(int place) noexcept {
    const bool was_inside = std::exchange(inside_region, true);
    const Environment before = environment();
    if (before != of_caller) set_environment(of_caller);
    Place& own = places[std::size_t(place)];
    take(own);
    for (int i = 1; i < team; ++i)
      if (Place& other = places[std::size_t((place + i) % team)]; team > 2 || !(own.far || other.far) || other.untouched()) take(other);
    if (before != of_caller) set_environment(before);
    inside_region = was_inside;
  }

 private:
  void take(Place& from) noexcept {
    // a look first: all threads look at all places, and an addition takes the line away from them
    for (Index chunk; !failed.load(std::memory_order_relaxed) && from.next.load(std::memory_order_relaxed) < from.end && (chunk = from.next.fetch_add(1)) < from.end;) {
      try {
        body(chunk);
      } catch (...) {
        if (!failed.exchange(true)) exception = std::current_exception();
      }
    }
  }
};

// Workers that stay a while after a region, since the next one mostly follows in microseconds and to wake a thread takes tens of them.
class Team {
 public:
  void run(Index chunks, int team, FunctionRef<void(Index)> body) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {                           // another thread's region, whose chunks may wait for this one
      for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
      return;
    }
    while (int(places_.size()) < team) places_.emplace_back();
    for (int i = 0; i < team; ++i) {
      Place& place = places_[std::size_t(i)];
      place.begin = chunks * i / team;
      place.end = chunks * (i + 1) / team;
      place.next.store(place.begin, std::memory_order_relaxed);
    }
    if (regions_ % kRegions == 0) {
      for (int i = 1; i < team; ++i)
        if (Place& place = places_[std::size_t(i)]; place.present) place.far = is_far(place);
      any_far = std::any_of(places_.begin(), places_.begin() + team, [](const Place& place) { return place.far; });
    }
    Region region{.body = body, .places = places_, .team = team};
    region_ = &region;
    open_ = ++regions_ * kMostPlaces + std::uint64_t(team);
    for (int i = 1; i < team && invite(i); ++i) {}
    region.work(0);
    open_ = 0;
    for (int i = 1; i < team; ++i)
      for (Pause pause; places_[std::size_t(i)].inside;) pause();
    if (region.exception) std::rethrow_exception(region.exception);
  }

 private:
  static constexpr std::chrono::milliseconds kStay{1};   // as oneTBB's workers from 2022 on
  static constexpr std::uint64_t kMostPlaces = 4096;     // more than threads() can be
  static constexpr std::uint64_t kRegions = 256;         // between two questions how far a worker is: a host moves its guests
  static constexpr std::chrono::nanoseconds kNear{160};  // there and back: about 110 where cores share a cache, 200 and more where not

  // Whether the quickest of some answers takes long; as before where the worker is not there.
  static bool is_far(Place& place) {
    auto best = Clock::duration::max();
    for (int i = 0; i < 8; ++i) {
      const auto start = Clock::now();
      const unsigned question = ++place.asked;
      auto now = start;
      while (place.answered != question && now - start < std::chrono::microseconds(2)) now = Clock::now();
      if (place.answered == question) best = std::min(best, Clock::now() - start);
    }
    return all_far || (best == Clock::duration::max() ? place.far : best > kNear);
  }

  // A worker's stay. It may use region_ where it finds the region still open after it has said that it is inside.
  void attend(int i, Place& place) noexcept {
    Pause pause;
    std::uint64_t seen = 0;
    for (auto last = Clock::now();; pause()) {
      if (const unsigned question = place.asked; question != place.answered) place.answered = question;
      if (const std::uint64_t open = open_; open != seen && std::uint64_t(i) < open % kMostPlaces) {
        place.inside = true;
        const bool wanted = open_ == open;
        if (wanted) region_->work(i);
        place.inside = false;
        seen = open;
        if (wanted) last = Clock::now();
      } else if (Clock::now() - last > kStay) {
        place.present = false;
        if (const std::uint64_t late = open_; late == seen || std::uint64_t(i) >= late % kMostPlaces) return;
        if (place.present.exchange(true)) return;   // another was invited; else the caller counted on this one
      }
    }
  }

  // False if no thread can be had: then those that are there do the work.
  bool invite(int i) noexcept {
    Place& place = places_[std::size_t(i)];
    if (place.present || place.present.exchange(true)) return true;   // also one that was about to leave: a place has one worker
    try {
      start([this, i, &place] { attend(i, place); });
      return true;
    } catch (...) {
      place.present = false;
      return false;
    }
  }

#ifdef HEED_STD_THREADS
  template <class F> void start(F attend) { std::thread(attend).detach(); }
#else
  template <class F> void start(F attend) {
    if (allowed_ != threads()) {
      allowed_ = threads();
      limit_.emplace(tbb::global_control::max_allowed_parallelism, std::size_t(allowed_));
      arena_.emplace(allowed_);
    }
    arena_->enqueue(attend);
  }
  int allowed_ = 0;
  std::optional<tbb::global_control> limit_;
  std::optional<tbb::task_arena> arena_;
#endif

  std::mutex mutex_;
  std::deque<Place> places_;
  Region* region_ = nullptr;
  std::uint64_t regions_ = 0;
  alignas(64) std::atomic<std::uint64_t> open_{0};   // of the region that is open its number, kMostPlaces times, and its team; 0: none
};

void run_shuffled(Index chunks, FunctionRef<void(Index)> body) {
  std::vector<Index> order(static_cast<std::size_t>(chunks));
  std::iota(order.begin(), order.end(), Index{0});
  Random(Key(Seed{shuffle_seed++})).shuffle(std::span(order));
  for (Index chunk : order) body(chunk);
}

}  // namespace

Alone::Alone() : before_(std::exchange(inside_region, true)) {}
Alone::~Alone() { inside_region = before_; }

void shuffle_chunks(std::uint64_t seed) { shuffle_seed = seed; }
void part_caches(bool part) { all_far = part; }
bool caches_apart() { return all_far || any_far; }

void run_chunks(Index chunks, FunctionRef<void(Index)> body) {
  if (shuffle_seed != 0) [[unlikely]] return run_shuffled(chunks, body);
  const int team = inside_region || forked ? 1 : int(std::min<Index>(threads(), chunks));
  if (team <= 1) {
    for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
    return;
  }
  static Team& workers = *new Team;   // never destroyed: a worker may stay past the end of main
  workers.run(chunks, team, body);
}

}  // namespace heed
