// SPDX-License-Identifier: Apache-2.0
#include "tensor/context.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <hwy/highway.h>
#include <hwy/targets.h>

#include "tensor/amx.h"
#include "tensor/format.h"

namespace heed {
namespace {

// CPUs of the cgroup quota (version 2, then 1), rounded up; kMostThreads without one.
int quota_threads() {
  double quota = -1, period = -1;
  std::string word;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> word >> period && word != "max")
    std::from_chars(word.data(), word.data() + word.size(), quota);
  if (quota <= 0) {
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(quota_file >> quota && period_file >> period)) return kMostThreads;
  }
  return quota > 0 && period > 0 ? std::max(1, int(std::ceil(quota / period))) : kMostThreads;
}

// What the affinity mask and the cgroup quota allow.
int available_threads() {
  cpu_set_t set;
  const int affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp(std::min(affinity, quota_threads()), 1, kMostThreads);
}

int initial_threads() {
  if (const char* text = std::getenv("HEED_THREADS"); text && *text) {
    int count = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), count);
    check<Error>(error == std::errc() && *end == 0 && count >= 1 && count <= kMostThreads,
                 "threads: HEED_THREADS must be a whole number in [1, {}]: {}", kMostThreads, quote(text));
    return count;
  }
  return available_threads();
}

std::atomic<int> chosen_threads{0};   // by set_threads; 0: none

// The C library's number, `name`, where the kernel gives none: glibc 2.36 says ten times the L3 of an EPYC.
std::size_t cache(int level, int name) {
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int its_level = 0;
    std::size_t kib = 0;
    std::string type;
    // "32768K"
    if (!(std::ifstream(folder + "level") >> its_level && std::ifstream(folder + "type") >> type && std::ifstream(folder + "size") >> kib))
      break;
    if (its_level == level && type != "Instruction") return kib << 10;
  }
  const long bytes = sysconf(name);
  return bytes > 0 ? std::size_t(bytes) : 0;
}

// The processor is asked at the start: a kernel's address taken before that would ask it again at every call.
[[maybe_unused]] const bool asked = (hwy::GetChosenTarget().Update(hwy::SupportedTargets()), true);

}  // namespace

int threads() {
  if (const int chosen = chosen_threads.load(std::memory_order_relaxed)) return chosen;
  static const int initial = initial_threads();
  return initial;
}

void set_threads(int count) {
  check<Error>(count >= 1 && count <= kMostThreads, "threads: must be in [1, {}]: {}", kMostThreads, count);
  chosen_threads.store(count, std::memory_order_relaxed);
}

CacheSizes cache_sizes() {
  static const CacheSizes sizes{cache(1, _SC_LEVEL1_DCACHE_SIZE), cache(2, _SC_LEVEL2_CACHE_SIZE), cache(3, _SC_LEVEL3_CACHE_SIZE)};
  return sizes;
}

std::string instruction_set() {
  const auto targets = std::uint64_t(hwy::SupportedTargets()) & std::uint64_t(HWY_TARGETS);  // those compiled
  return hwy::TargetName(std::int64_t(targets & (~targets + 1)));  // the lowest bit is the best target
}

std::string describe_context() {
  const CacheSizes sizes = cache_sizes();
  return fmt::format("{}{}, {} thread{}, L1 {} KiB, L2 {} KiB, L3 {} KiB", instruction_set(), has_amx() ? " with AMX" : "", threads(),
                     threads() == 1 ? "" : "s", sizes.l1 >> 10, sizes.l2 >> 10, sizes.l3 >> 10);
}

}  // namespace heed
