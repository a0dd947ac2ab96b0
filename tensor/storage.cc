// SPDX-License-Identifier: Apache-2.0
#include "tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

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

constexpr std::size_t kLine = 64, kPage = 4096, kHuge = std::size_t{2} << 20;
constexpr std::size_t kSlab = 8 * kHuge, kRegion = 32 * kHuge;   // asked from the system at a time

// Small blocks come in size classes, 8 a doubling from 512 bytes on, so that at most 1/8 of a block is unused.
constexpr std::size_t kSmall = kHuge / 4;
constexpr int kClasses = 8 * 10 + 1;

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
  std::size_t room = 0;        // bytes of a large block, 0 of a small one
  int size_class = 0;          // of a small one
  std::size_t held() const { return room ? room : bytes_of(size_class); }
};

namespace {
static_assert(sizeof(std::atomic<int>) == sizeof(int));

struct Extent {
  std::byte* at;
  std::size_t bytes;
};

struct Allocator {
  std::mutex mutex;
  std::array<void*, kClasses> free{};
  std::byte* slab = nullptr;   // small blocks are cut from slabs
  std::size_t slab_left = 0;
  std::vector<Extent> extents; // where large blocks may stand, by address; neighbours are joined
  std::size_t large = 0;       // large blocks that live
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

void add_extent(Allocator& a, Extent e) {
  auto next = std::lower_bound(a.extents.begin(), a.extents.end(), e.at, [](const Extent& x, const std::byte* at) { return x.at < at; });
  const bool before = next != a.extents.begin() && (next - 1)->at + (next - 1)->bytes == e.at, after = next != a.extents.end() && e.at + e.bytes == next->at;
  if (before && after) {
    (next - 1)->bytes += e.bytes + next->bytes;
    a.extents.erase(next);
  } else if (before) {
    (next - 1)->bytes += e.bytes;
  } else if (after) {
    *next = {e.at, e.bytes + next->bytes};
  } else {
    a.extents.insert(next, e);
  }
}

// `room` bytes, whole pages, of the smallest extent that has them; nullptr if the system refuses.
std::byte* take_extent(Allocator& a, std::size_t room) {
  const auto smallest = [&] {
    auto best = a.extents.end();
    for (auto e = a.extents.begin(); e != a.extents.end(); ++e)
      if (e->bytes >= room && (best == a.extents.end() || e->bytes < best->bytes)) best = e;
    return best;
  };
  // each large block that is given back may become an extent: there is room for them all
  if (const std::size_t most = a.extents.size() + a.large + 2; a.extents.capacity() < most) a.extents.reserve(2 * most);
  auto best = smallest();
  if (best == a.extents.end()) {
    const std::size_t least = (room + kHuge - 1) / kHuge * kHuge;
    std::size_t bytes = std::max(least, kRegion);
    std::byte* region = map(bytes);
    if (!region) region = map(bytes = least);
    if (!region) return nullptr;
    a.use.reserved += bytes;
    ++a.use.system_calls;
    ASAN_POISON_MEMORY_REGION(region, bytes);
    add_extent(a, {region, bytes});
    best = smallest();
  }
  std::byte* const at = best->at;
  best->at += room;
  best->bytes -= room;
  if (best->bytes == 0) a.extents.erase(best);
  ++a.large;
  return at;
}

// The same of a slab, for a block of a size class.
std::byte* take_small(Allocator& a, std::size_t room) {
  if (a.slab_left < room) {
    std::byte* const slab = map(kSlab);
    if (!slab) return nullptr;
    a.slab = slab;
    a.slab_left = kSlab;
    a.use.reserved += kSlab;
    ++a.use.system_calls;
    ASAN_POISON_MEMORY_REGION(slab, kSlab);
  }
  a.slab_left -= room;
  return std::exchange(a.slab, a.slab + room);
}

}  // namespace

Storage::Storage(std::size_t bytes) {
  Allocator& a = allocator();
  constexpr std::size_t head = (sizeof(Block) + kLine - 1) / kLine * kLine;
  constexpr std::size_t kColours = 16, kSlack = head + 2 * kLine * kColours;   // data start at head + 128 k: odd multiples of 64 for an even head
  constexpr std::size_t most = std::size_t{1} << 46;
  const bool small = bytes < kSmall;
  const int size_class = small ? class_of(bytes) : 0;
  std::lock_guard lock(a.mutex);
  const auto refused = [&] { return OutOfMemory(fmt::format("allocate: {} bytes refused by the system (in use {})", bytes, a.use.in_use)); };
  if (bytes > most || (a.allowed >= 0 && a.allowed-- == 0)) throw refused();
  Block* block = nullptr;
  if (void*& first = a.free[std::size_t(size_class)]; small && first) {
    block = static_cast<Block*>(first);
    first = block->next;
  } else {
    const std::size_t room = small ? bytes_of(size_class) + kSlack : (bytes + kSlack + kPage - 1) / kPage * kPage;
    std::byte* const raw = small ? take_small(a, room) : take_extent(a, room);
    if (!raw) throw refused();
    ASAN_UNPOISON_MEMORY_REGION(raw, sizeof(Block));       // all but the header and the bytes asked for stays poisoned
    block = new (raw) Block;
    const std::size_t colour = small ? a.colour = (a.colour + 5) % kColours : reinterpret_cast<std::uintptr_t>(raw) / kPage * 5 % kColours;
    block->data = raw + head + 2 * kLine * colour;
    block->room = small ? 0 : room;
    block->size_class = size_class;
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
  block->bytes = bytes;
  block->version.store(0, std::memory_order_relaxed);
  block->references.store(1, std::memory_order_relaxed);
  a.use.in_use += block->held();
  a.use.peak = std::max(a.use.peak, a.use.in_use);
  if (a.fill) std::memset(block->data, 0xff, bytes);
  block_ = block;
}

void Storage::give_back() noexcept {
  Allocator& a = allocator();
  auto* block = static_cast<Block*>(block_);
  std::lock_guard lock(a.mutex);
  a.use.in_use -= block->held();
  ASAN_POISON_MEMORY_REGION(block->data, block->bytes);
  if (const std::size_t room = block->room) {
    ASAN_POISON_MEMORY_REGION(block, room);
    --a.large;
    add_extent(a, {reinterpret_cast<std::byte*>(block), room});
  } else {
    block->next = static_cast<Block*>(a.free[std::size_t(block->size_class)]);
    a.free[std::size_t(block->size_class)] = block;
  }
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
  for (const Extent& e : a.extents) {
    a.use.reserved -= e.bytes;
    ASAN_UNPOISON_MEMORY_REGION(e.at, e.bytes);
    munmap(e.at, e.bytes);
  }
  a.extents.clear();
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
