// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/roofline.h"

#define HWY_TARGET_INCLUDE "tests/bench/roofline.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Whatever made v cannot be left out.
template <class D> HWY_INLINE void Use(D, hn::Vec<D> v) {
  const hn::TFromD<D> lane = hn::GetLane(v);
  asm volatile("" : : "m"(lane));
}

// 12 chains of multiply-adds, `rounds` long; returns the number of operations.
double MultiplyAdds(size_t rounds) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> x[12];
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  HWY_UNROLL(12) for (int i = 0; i < 12; ++i) x[i] = hn::Set(d, float(i));
  for (size_t round = 0; round < rounds; ++round) HWY_UNROLL(12) for (int i = 0; i < 12; ++i) x[i] = hn::MulAdd(x[i], a, b);
  HWY_UNROLL(12) for (int i = 0; i < 12; ++i) Use(d, x[i]);
  return 2.0 * 12 * double(hn::Lanes(d)) * double(rounds);
}

// n floats, a multiple of 8 vectors.
void ReadAll(const float* p, size_t n) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> x[8];
  HWY_UNROLL(8) for (size_t i = 0; i < 8; ++i) x[i] = hn::Zero(d);
  for (size_t at = 0; at < n; at += 8 * hn::Lanes(d))
    HWY_UNROLL(8) for (size_t i = 0; i < 8; ++i) x[i] = hn::Or(x[i], hn::Load(d, p + at + i * hn::Lanes(d)));
  HWY_UNROLL(8) for (size_t i = 0; i < 8; ++i) Use(d, x[i]);
}

void WriteAll(float* p, size_t n) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 1.0f);
  for (size_t at = 0; at < n; at += 8 * hn::Lanes(d))
    HWY_UNROLL(8) for (size_t i = 0; i < 8; ++i) hn::Store(x, d, p + at + i * hn::Lanes(d));
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "tests/bench/measure.h"

namespace heed {
HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(ReadAll);
HWY_EXPORT(WriteAll);

namespace bench {
namespace {

// The best of 60 windows: what all threads did, over the time from the first one's start to the last one's end. A window takes
// milliseconds: a thread wakes up 0.1 ms late, and a new one begins on the processor of its maker.
double best_rate(int threads, const std::function<double(int)>& work) {
  std::vector<double> starts(std::size_t(threads), 0), ends(starts), units(starts);
  double best = 0;
  std::barrier together(threads);
  const auto thread = [&](int i) {
    for (int window = 0; window < 60; ++window) {
      together.arrive_and_wait();
      starts[std::size_t(i)] = seconds_now();
      units[std::size_t(i)] = work(i);
      ends[std::size_t(i)] = seconds_now();
      together.arrive_and_wait();
      if (i > 0) continue;
      double sum = 0;
      for (const double u : units) sum += u;
      best = std::max(best, sum / (*std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end())));
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(thread, i);
  thread(0);
  for (std::thread& other : others) other.join();
  return best;
}

constexpr std::size_t kPage = 4096, kHuge = std::size_t{2} << 20;

struct Mapping {
  explicit Mapping(std::size_t size, int advice) : bytes((size + kHuge - 1) / kHuge * kHuge + kHuge) {
    start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    madvise(start, bytes, advice);
  }
  ~Mapping() { munmap(start, bytes); }
  Mapping(const Mapping&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(start) + kHuge - 1) / kHuge * kHuge); }
  void* start;
  std::size_t bytes;
};

double touch(int advice, std::size_t page) {
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const Mapping fresh(8 * kHuge, advice);
    const double start = seconds_now();
    for (std::size_t at = 0; at < 8 * kHuge; at += kPage) fresh.data()[at] = std::byte{1};
    best = std::min(best, (seconds_now() - start) / double(8 * kHuge / page));
  }
  return best;
}

}  // namespace

double multiply_add_peak(int threads) {
  return best_rate(threads, [](int) { return HWY_DYNAMIC_DISPATCH(MultiplyAdds)(2000000); });
}

double clock_rate() {
  return best_rate(1, [](int) {
    constexpr long kCount = 2000000;
    unsigned long x = 1;
    for (long i = 0; i < kCount; ++i) {
      x += 3;
      asm volatile("" : "+r"(x));
    }
    return double(kCount);
  });
}

Bandwidth bandwidth(std::size_t bytes, int threads) {
  const std::size_t n = std::max<std::size_t>(bytes / 4096, 1) * 1024;   // a multiple of 8 vectors of any width up to 2048 bits
  const std::size_t passes = std::max<std::size_t>(1, (std::size_t{1} << 30) / (4 * n));
  std::vector<std::unique_ptr<Mapping>> own;
  std::vector<float*> starts;
  for (int i = 0; i < threads; ++i) {
    own.push_back(std::make_unique<Mapping>(4 * n, MADV_HUGEPAGE));
    starts.push_back(reinterpret_cast<float*>(own.back()->data()));
    std::memset(starts.back(), 0, 4 * n);
  }
  const auto rate = [&](auto&& pass) {
    return best_rate(threads, [&](int i) {
      for (std::size_t p = 0; p < passes; ++p) pass(starts[std::size_t(i)]);
      return 4.0 * double(n * passes);
    });
  };
  const double read = rate([&](float* p) { HWY_DYNAMIC_DISPATCH(ReadAll)(p, n); });
  return {read, rate([&](float* p) { HWY_DYNAMIC_DISPATCH(WriteAll)(p, n); })};
}

FirstTouch first_touch() { return {touch(MADV_NOHUGEPAGE, kPage), touch(MADV_HUGEPAGE, kHuge)}; }

}  // namespace bench
}  // namespace heed
#endif
