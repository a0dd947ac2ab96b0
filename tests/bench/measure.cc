// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/measure.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cerrno>

namespace {

std::atomic<long> mallocs, mmaps, to_show;

[[maybe_unused]] void count_malloc() {
  mallocs.fetch_add(1, std::memory_order_relaxed);
  thread_local bool inside = false;   // backtrace() may allocate
  if (to_show.load(std::memory_order_relaxed) <= 0 || inside) return;
  inside = true;
  if (to_show.fetch_sub(1) > 0) {
    void* frames[16];
    backtrace_symbols_fd(frames, backtrace(frames, 16), STDERR_FILENO);
    if (write(STDERR_FILENO, "\n", 1) < 0) to_show = 0;
  }
  inside = false;
}

rusage used() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

}  // namespace

// glibc's functions under their other names; a sanitizer brings functions of its own.
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !__has_feature(address_sanitizer) && \
    !__has_feature(thread_sanitizer) && !__has_feature(memory_sanitizer)
#define HEED_COUNTS
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) noexcept {
  count_malloc();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_malloc();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) noexcept {
  count_malloc();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count_malloc();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  count_malloc();
  *result = __libc_memalign(alignment, bytes);
  return *result ? 0 : ENOMEM;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  mmaps.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif

namespace heed::bench {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double processor_seconds() {
  const rusage usage = used();
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

double kernel_seconds() {
  const rusage usage = used();
  return double(usage.ru_stime.tv_sec) + 1e-6 * double(usage.ru_stime.tv_usec);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool counts_calls() {
#ifdef HEED_COUNTS
  return true;
#else
  return false;
#endif
}

Calls calls() { return {mallocs, mmaps, used().ru_minflt}; }

void show_mallocs(int count) { to_show = count; }

double peak_memory() { return double(used().ru_maxrss) / 1024; }

}  // namespace heed::bench
