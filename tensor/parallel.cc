// SPDX-License-Identifier: Apache-2.0
#include "tensor/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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

// The number of a region, a multiple of kRegion, and a count below it.
using Word = std::uint64_t;
constexpr Word kRegion = Word{1} << 24;
constexpr Index kMostChunks = Index(kRegion) - 1;

Index count_of(Word word) { return Index(word % kRegion); }
bool is_of(Word word, Word region) { return word - word % kRegion == region; }
bool is_before(Word word, Word region) { return std::int64_t(region - word) > 0; }   // also where the numbers have begun again

// A thread's place in regions. Two lines: caches fetch them in pairs.
struct alignas(128) Place {
  std::atomic<Word> left{0};        // the last region in which chunks of its range were taken: those that are left
  std::atomic<Word> done{0};        // the last region in which its thread did chunks, of any range: how many
  std::atomic<unsigned> asked{0}, answered{0};
  std::atomic<bool> far{false};     // from the caller
};

constinit Place places[kMostThreads];
constinit std::atomic<bool> present[kMostThreads];   // of each place its worker
constexpr auto kNothing = [](Index) {};

// Workers that stay a while after a region, since the next one mostly follows in microseconds and to wake a thread takes tens of them.
//
// Each place takes the chunks of its own range, so that what it wrote in one region is in its core's cache in the following, then what the
// others have left: nobody waits for an absent worker. Where each place has a single chunk, only the caller looks at the others. To take a
// chunk is to lower `left`, which succeeds only in a region that is open, for none ends before all its chunks are done; so what else says
// what the region is stays as it is until then. Workers look at one line for the next region, the caller at their `done` for its end.
//
// Where two cores have no cache in common, chunks of a worker that has begun stay its own: their lines lie there, and where they were taken
// the next regions would find them elsewhere. Of more workers the slowest would be waited for.
class Team {
 public:
  void run(Index chunks, int team, FunctionRef<void(Index)> body) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {                    // another thread's region, whose chunks may wait for this one
      for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
      return;
    }
    region_ += kRegion;
    if (region_ / kRegion % kAsk == 0) ask_how_far(team);
    if (region_ / kRegion % kOld == 0)
      for (Place& place : places) place.left = place.done = region_ - kRegion;
    chunks_.store(chunks, std::memory_order_release);
    body_ = body;
    of_caller_ = environment();
    failed_.store(false, std::memory_order_relaxed);
    open_.store(region_ + Word(team), std::memory_order_release);
    for (int i = 1; i < team && invite(i); ++i) {}
    const bool was_inside = std::exchange(inside_region, true);
    const Index done = work(0, region_, team);
    for (Pause pause; done + done_by_others(team) < chunks; pause()) {}
    inside_region = was_inside;
    if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(exception_, {}));
  }

 private:
  static constexpr std::chrono::milliseconds kStay{1};     // as oneTBB's workers from 2022 on
  static constexpr std::chrono::nanoseconds kNear{160};    // there and back: about 110 where cores share a cache, 200 and more where not
  static constexpr Word kAsk = 256;                        // regions between two questions how far a worker is: a host moves its guests
  static constexpr Word kOld = Word{1} << 20;              // after so many no place keeps an old region's number, which will come again

  static void ask_how_far(int team) {
    for (int i = 1; i < team; ++i)
      if (present[i]) places[i].far = is_far(places[i]);
    any_far = std::any_of(places, places + team, [](const Place& place) -> bool { return place.far; });
  }

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
    return all_far || (best == Clock::duration::max() ? place.far.load() : best > kNear);
  }

  Index done_by_others(int team) const {
    Index done = 0;
    for (int i = 1; i < team; ++i)
      if (const Word word = places[i].done.load(std::memory_order_acquire); is_of(word, region_)) done += count_of(word);
    return done;
  }

  // Place i's part of a region; how many chunks it did.
  Index work(int i, Word region, int team) noexcept {
    const Index chunks = chunks_.load(std::memory_order_acquire), each = chunks / team, more = chunks % team;
    Index done = 0;
    const auto take_from = [&](int p) {
      const Index some = take(places[p], region, each * p + std::min<Index>(p, more), each + (p < more));
      if (some == 0) return;
      done += some;
      if (i > 0) places[i].done.store(region + Word(done), std::memory_order_release);
    };
    take_from(i);
    if (i > 0 && chunks == team) return done;
    for (int n = 1; n < team; ++n)
      if (const int p = (i + n) % team; team > 2 || !(places[i].far || places[p].far) || !is_of(places[p].left, region)) take_from(p);
    return done;
  }

  // Does what is left of a range; how many chunks.
  Index take(Place& from, Word region, Index begin, Index size) noexcept {
    Index done = 0;
    for (Word word = from.left.load(std::memory_order_relaxed);;) {
      const Index left = is_of(word, region) ? count_of(word) : is_before(word, region) ? size : 0;
      if (left == 0) return done;
      const Word taken = region + Word(left - 1);
      if (!from.left.compare_exchange_weak(word, taken)) continue;
      word = taken;
      ++done;
      if (failed_.load(std::memory_order_relaxed)) continue;
      if (environment() != of_caller_) set_environment(of_caller_);
      try {
        body_(begin + size - left);
      } catch (...) {
        if (!failed_.exchange(true)) exception_ = std::current_exception();
      }
    }
  }

  // A worker's stay.
  void attend(int i) noexcept {
    Place& place = places[i];
    const bool was_inside = std::exchange(inside_region, true);
    const Environment before = environment();
    Pause pause;
    Word seen = 0;
    for (auto last = Clock::now(); Clock::now() - last < kStay; pause()) {
      if (const unsigned question = place.asked; question != place.answered) place.answered = question;
      if (const Word open = open_.load(std::memory_order_acquire); open != seen && i < count_of(open)) {
        work(i, open - open % kRegion, int(count_of(open)));
        seen = open;
        last = Clock::now();
      }
    }
    set_environment(before);
    inside_region = was_inside;
    present[i] = false;
  }

  // False if no thread can be had: then those that are there do the work.
  bool invite(int i) noexcept {
    if (present[i].load(std::memory_order_acquire) || present[i].exchange(true)) return true;   // a place has one worker
    try {
      start([this, i] { attend(i); });
      return true;
    } catch (...) {
      forget();
      present[i] = false;
      return false;
    }
  }

#ifdef HEED_STD_THREADS
  template <class F> void start(F attend) { std::thread(attend).detach(); }
  void forget() {}
#else
  template <class F> void start(F attend) {
    if (allowed_ != threads()) {
      allowed_ = threads();
      limit_.emplace(tbb::global_control::max_allowed_parallelism, std::size_t(allowed_));
      arena_.emplace(allowed_);
    }
    arena_->enqueue(attend);
  }
  // After a failure: an arena that could not be made whole would be waited for without end.
  void forget() { arena_.reset(), limit_.reset(), allowed_ = 0; }
  int allowed_ = 0;
  std::optional<tbb::global_control> limit_;
  std::optional<tbb::task_arena> arena_;
#endif

  std::mutex mutex_;
  Word region_ = 0;
  // The line that workers look at.
  alignas(128) std::atomic<Word> open_{0};   // the region and its team
  std::atomic<Index> chunks_{0};
  FunctionRef<void(Index)> body_ = kNothing;
  Environment of_caller_ = 0;
  std::atomic<bool> failed_{false};
  std::exception_ptr exception_;
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
  if (chunks > kMostChunks) [[unlikely]] {
    for (Index first = 0; first < chunks; first += kMostChunks)
      run_chunks(std::min(chunks - first, kMostChunks), [&](Index chunk) { body(first + chunk); });
    return;
  }
  static Team& workers = *new Team;   // never destroyed: a worker may stay past the end of main
  workers.run(chunks, team, body);
}

}  // namespace heed
