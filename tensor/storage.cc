// SPDX-License-Identifier: Apache-2.0
#include "tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>

#include "tensor/format.h"
#include "tensor/test_hooks.h"

#if defined(__SANITIZE_ADDRESS__)                       // g++
#define HEED_POISONS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)                    // clang
#define HEED_POISONS
#endif
#endif
#ifdef HEED_POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace heed {
namespace {

constexpr std::size_t kLine = 64, kHuge = std::size_t{2} << 20, kRoomy = kHuge / 4;
constexpr std::size_t kSmall = kHuge, kSlab = 8 * kHuge;   // a mapping of its own below kHuge would get no huge page

// Size classes: 8 a doubling from 512 bytes on, so that at most 1/8 of a block is unused.
constexpr int kClasses = 8 * 40;

int class_of(std::size_t bytes) {
  if (bytes <= 512) return 0;
  const int log = std::bit_width(bytes - 1) - 1;                        // 2^log < bytes <= 2^(log+1)
  const std::size_t step = std::size_t{1} << (log - 3);
  return 8 * (log - 9) + int((bytes - (std::size_t{1} << log) + step - 1) / step);
}

std::size_t bytes_of(int size_class) {
  if (size_class == 0) return 512;
  const int log = 9 + (size_class - 1) / 8, eighth = (size_class - 1) % 8 + 1;
  return (std::size_t{1} << log) + std::size_t(eighth) * (std::size_t{1} << (log - 3));
}

}  // namespace

// The header stands in front of the data, in the same block.
struct Storage::Block : Storage::Header {
  Block* next = nullptr;       // free list
  std::size_t mapped = 0;      // bytes of its own mapping, 0 for a piece of a slab
  int size_class = 0;
};

namespace {
static_assert(sizeof(std::atomic<int>) == sizeof(int));

struct Allocator {
  std::mutex mutex;
  std::array<void*, kClasses> free{};
  std::byte* slab = nullptr;   // small blocks are cut from slabs
  std::size_t slab_left = 0;
  std::size_t colour = 0;
  bool fill = false;
  std::int64_t allowed = -1;   // before one is refused; negative: no such thing
  MemoryUse use{};
};

Allocator& allocator() {
  static Allocator* one = new Allocator;  // never destroyed: tensors may outlive static destruction
  return *one;
}

// 2-MiB aligned memory from the system, or nullptr.
std::byte* map(std::size_t bytes) {
  const std::size_t padded = bytes + kHuge;
  void* p = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(p);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(start) + kHuge - 1) / kHuge * kHuge);
  if (aligned > start) munmap(start, std::size_t(aligned - start));
  const std::size_t tail = std::size_t(start + padded - (aligned + bytes));
  if (tail) munmap(aligned + bytes, tail);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

Storage::Storage(std::size_t bytes) {
  Allocator& a = allocator();
  constexpr std::size_t head = (sizeof(Block) + kLine - 1) / kLine * kLine;
  constexpr std::size_t kColours = 16;  // data start at head + 128 k: odd multiples of 64 for an even head
  const std::size_t most = std::size_t{1} << 46;
  const int wanted = bytes < most ? class_of(bytes) : kClasses;
  std::lock_guard lock(a.mutex);
  const auto refused = [&] { return OutOfMemory(fmt::format("allocate: {} bytes refused by the system (in use {})", bytes, a.use.in_use)); };
  if (a.allowed >= 0 && a.allowed-- == 0) throw refused();
  Block* block = nullptr;
  for (int c = wanted; c < std::min(wanted + (bytes >= kRoomy ? 4 : 1), kClasses) && !block; ++c)
    if (a.free[std::size_t(c)]) {
      block = static_cast<Block*>(a.free[std::size_t(c)]);
      a.free[std::size_t(c)] = block->next;
    }
  if (!block) {
    const std::size_t room = wanted < kClasses ? bytes_of(wanted) + head + kLine * 2 * kColours : 0;
    std::byte* raw = nullptr;
    std::size_t mapped = 0;
    if (wanted < kClasses && bytes < kSmall) {
      if (a.slab_left < room) {
        std::byte* slab = map(kSlab);
        if (slab) { a.slab = slab; a.slab_left = kSlab; a.use.reserved += kSlab; ++a.use.system_calls; }
      }
      if (a.slab_left >= room) { raw = a.slab; a.slab += room; a.slab_left -= room; }
    } else if (wanted < kClasses) {
      mapped = (room + 4095) / 4096 * 4096;
      raw = map(mapped);
      if (raw) { a.use.reserved += mapped; ++a.use.system_calls; }
    }
    if (!raw) throw refused();
    ASAN_POISON_MEMORY_REGION(raw, room);                 // all but the header and the bytes asked for
    ASAN_UNPOISON_MEMORY_REGION(raw, sizeof(Block));
    block = new (raw) Block;
    a.colour = (a.colour + 5) % kColours;
    block->data = raw + head + 2 * kLine * a.colour;
    block->mapped = mapped;
    block->size_class = wanted;
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
  block->bytes = bytes;
  block->version.store(0, std::memory_order_relaxed);
  block->references.store(1, std::memory_order_relaxed);
  a.use.in_use += bytes_of(block->size_class);
  a.use.peak = std::max(a.use.peak, a.use.in_use);
  if (a.fill) std::memset(block->data, 0xff, bytes);
  block_ = block;
}

void Storage::give_back() noexcept {
  Allocator& a = allocator();
  auto* block = static_cast<Block*>(block_);
  std::lock_guard lock(a.mutex);
  a.use.in_use -= bytes_of(block->size_class);
  block->next = static_cast<Block*>(a.free[std::size_t(block->size_class)]);
  a.free[std::size_t(block->size_class)] = block;
  ASAN_POISON_MEMORY_REGION(block->data, bytes_of(block->size_class));
}

MemoryUse memory_use() {
  std::lock_guard lock(allocator().mutex);
  return allocator().use;
}

void reset_peak_memory() {
  std::lock_guard lock(allocator().mutex);
  allocator().use.peak = allocator().use.in_use;
}

void release_cached_memory() {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  for (void*& list : a.free) {
    auto* block = static_cast<Storage::Block*>(std::exchange(list, nullptr));
    while (block) {
      auto* next = block->next;
      if (block->mapped) {
        a.use.reserved -= block->mapped;
        ASAN_UNPOISON_MEMORY_REGION(block, block->mapped);
        munmap(static_cast<void*>(block), block->mapped);
      } else {
        block->next = static_cast<Storage::Block*>(list);
        list = block;
      }
      block = next;
    }
  }
}

void fill_fresh_memory_with_nan(bool fill) {
  std::lock_guard lock(allocator().mutex);
  allocator().fill = fill;
}

std::int64_t refuse_memory_after(std::int64_t allowed) {
  std::lock_guard lock(allocator().mutex);
  return std::exchange(allocator().allowed, allowed);
}

}  // namespace heed
