// SPDX-License-Identifier: Apache-2.0
#include "tensor/storage.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "tensor/format.h"
#include "tensor/test_hooks.h"
#include "tensor/thread_own.h"

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

// Small blocks come in size classes, 8 a doubling from 512 bytes on, so that at most 1/8 of a block is unused. Tensors of one size follow
// each other in a block: each thread then writes the rows that are in its cache.
constexpr std::size_t kSmall = kHuge / 8 * 5;

constexpr int class_of(std::size_t bytes) {
  if (bytes <= 512) return 0;
  const int log = std::bit_width(bytes - 1) - 1;                        // 2^log < bytes <= 2^(log+1)
  const std::size_t step = std::size_t{1} << (log - 3);
  return 8 * (log - 9) + int(divide_up(bytes - (std::size_t{1} << log), step));
}
constexpr int kClasses = class_of(kSmall) + 1;

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
  const void* user = nullptr;  // the thread that gave a small one back: its lines are in that core's cache
  std::size_t held() const { return room ? room : bytes_of(size_class); }
};

namespace {
struct Extent {
  std::byte* at;
  std::size_t bytes;
};

// Free blocks by size class. A list of one thread holds few of each class, none of the larger ones.
struct FreeBlocks {
  std::array<Storage::Block*, kClasses> first{};
  std::array<int, kClasses> count{};

  void push(Storage::Block* block);
  Storage::Block* pop(int size_class);
  Storage::Block* pop(int size_class, const void* user);   // rather one that the user gave back
};
int most_kept(int size_class) { return int(std::min<std::size_t>(16, (std::size_t{64} << 10) / bytes_of(size_class))); }

// What a thread has for itself and uses without a lock.
struct Own {
  FreeBlocks free;
  std::atomic<std::int64_t> in_use{0};   // bytes not yet counted by the allocator; others only read
  Own *next = nullptr, *previous = nullptr;
};
constexpr std::int64_t kUncounted = 64 << 10;

struct Allocator {
  std::mutex mutex;
  FreeBlocks free;
  Own* threads = nullptr;      // all that live
  std::byte* slab = nullptr;   // small blocks are cut from slabs
  std::size_t slab_left = 0;
  std::vector<Extent> extents; // where large blocks may stand, by address; neighbours are joined
  std::size_t large = 0;       // large blocks that live
  std::size_t colour = 0;
  std::int64_t in_use = 0, peak = 0;
  std::size_t reserved = 0, system_calls = 0;
  std::atomic<bool> fill{false};
  std::atomic<std::int64_t> allowed{-1};   // before one is refused; negative: no such thing

  void count(std::int64_t bytes) { peak = std::max(peak, in_use += bytes); }
};

thread_local constinit Own* own = nullptr;   // own_of_thread<OwnOfThread>(), where it was made: tensors may be freed by what ends later

Allocator& allocator();

// In a forked child, where the memory of other threads' Own is there for new threads. What they kept may be half changed: it is lost.
void only_this_thread() {
  Allocator& a = allocator();
  for (const Own* one = a.threads; one; one = one->next)
    if (one != own) a.in_use += one->in_use.load(std::memory_order_relaxed);
  a.threads = own;
  if (own) own->next = own->previous = nullptr;
  a.mutex.unlock();
}

Allocator& allocator() {
  // Never destroyed: tensors may outlive static destruction. A fork waits for the lock: no thread of the child could open it.
  static Allocator* one = [] {
    auto* made = new Allocator;
    pthread_atfork([] { allocator().mutex.lock(); }, [] { allocator().mutex.unlock(); }, only_this_thread);
    return made;
  }();
  return *one;
}

// Bytes of memory and swap. More than these a system with vm.overcommit_memory = 1 promises as well, and kills who uses them.
std::size_t memory_there_is() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? (std::size_t(info.totalram) + info.totalswap) * info.mem_unit : SIZE_MAX;
}

// 2-MiB aligned memory from the system, or nullptr.
std::byte* map(std::size_t bytes) {
  static const std::size_t most = memory_there_is();
  if (bytes > most) return nullptr;
  const std::size_t padded = bytes + kHuge;
  void* p = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(p);
  auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(start), kHuge));
  if (aligned > start) munmap(start, std::size_t(aligned - start));
  const std::size_t tail = std::size_t(start + padded - (aligned + bytes));
  if (tail) munmap(aligned + bytes, tail);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

void add_extent(Allocator& a, Extent e) {
  auto next = std::lower_bound(a.extents.begin(), a.extents.end(), e.at, [](const Extent& x, const std::byte* at) { return x.at < at; });
  const bool before = next != a.extents.begin() && (next - 1)->at + (next - 1)->bytes == e.at,
             after = next != a.extents.end() && e.at + e.bytes == next->at;
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
    const std::size_t least = round_up(room, kHuge);
    std::size_t bytes = std::max(least, kRegion);
    std::byte* region = map(bytes);
    if (!region) region = map(bytes = least);
    if (!region) return nullptr;
    a.reserved += bytes;
    ++a.system_calls;
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
    a.reserved += kSlab;
    ++a.system_calls;
    ASAN_POISON_MEMORY_REGION(slab, kSlab);
  }
  a.slab_left -= room;
  return std::exchange(a.slab, a.slab + room);
}

// ---- what each thread keeps ------------------------------------------------------------------------------------------------

void FreeBlocks::push(Storage::Block* block) {
  const auto c = std::size_t(block->size_class);
  block->next = std::exchange(first[c], block);
  ++count[c];
}
Storage::Block* FreeBlocks::pop(int size_class) {
  const auto c = std::size_t(size_class);
  if (!first[c]) return nullptr;
  --count[c];
  return std::exchange(first[c], first[c]->next);
}

Storage::Block* FreeBlocks::pop(int size_class, const void* user) {
  const auto c = std::size_t(size_class);
  int looks = 16;
  for (Storage::Block** at = &first[c]; *at && looks-- > 0; at = &(*at)->next)
    if ((*at)->user == user) {
      --count[c];
      return std::exchange(*at, (*at)->next);
    }
  return pop(size_class);
}

void move_blocks(FreeBlocks& from, FreeBlocks& to, int size_class, int count) {
  while (count-- > 0 && from.first[std::size_t(size_class)]) to.push(from.pop(size_class));
}

// Known to the allocator while the thread lives; then its blocks are there for others.
struct OwnOfThread : Own {
  OwnOfThread() {
    Allocator& a = allocator();
    const std::lock_guard lock(a.mutex);
    if ((next = std::exchange(a.threads, this))) next->previous = this;
    own = this;
  }
  ~OwnOfThread() {
    Allocator& a = allocator();
    const std::lock_guard lock(a.mutex);
    for (int c = 0; c < kClasses; ++c) move_blocks(free, a.free, c, free.count[std::size_t(c)]);
    a.count(in_use);
    (previous ? previous->next : a.threads) = next;
    if (next) next->previous = previous;
    own = nullptr;
  }
};

// nullptr at a thread's end
Own* own_or_null() { return own ? own : own_of_thread<OwnOfThread>(); }

// Of blocks that are taken, negative of those given back.
void count_bytes(Own* mine, std::int64_t bytes) {
  if (mine) {
    bytes += mine->in_use.load(std::memory_order_relaxed);
    const bool later = bytes < kUncounted && bytes > -kUncounted;
    mine->in_use.store(later ? bytes : 0, std::memory_order_relaxed);
    if (later) return;
  }
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  a.count(bytes);
}

// A small block of this thread's own, which are filled up from those of all.
Storage::Block* take_kept(Own* mine, int size_class) {
  if (!mine || most_kept(size_class) == 0) return nullptr;
  if (Storage::Block* const block = mine->free.pop(size_class)) return block;
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  move_blocks(a.free, mine->free, size_class, most_kept(size_class) / 2);
  return mine->free.pop(size_class);
}

// True where this thread keeps the small block, perhaps in the place of others of its class.
bool keep(Own* mine, Storage::Block* block) {
  const int size_class = block->size_class, most = most_kept(size_class);
  if (!mine || most == 0) return false;
  mine->free.push(block);
  if (mine->free.count[std::size_t(size_class)] <= most) return true;
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  move_blocks(mine->free, a.free, size_class, (most + 1) / 2);
  return true;
}

OutOfMemory refused(std::size_t bytes) {
  return OutOfMemory(fmt::format("allocate: {} bytes refused by the system (in use {})", bytes, memory_use().in_use));
}

// A block that is new or that no thread keeps.
Storage::Block* take_block(Own* mine, std::size_t bytes, bool small, int size_class) {
  constexpr std::size_t head = round_up(sizeof(Storage::Block), kLine);
  // Data start 128 bytes apart, k = 0 .. 15. Blocks of less than a page take an odd number of lines: so they start at all places of one.
  constexpr std::size_t kColours = 16, slack = head + 2 * kLine * kColours;
  const bool below_page = small && bytes_of(size_class) < kPage;
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  if (Storage::Block* const block = small ? a.free.pop(size_class, mine) : nullptr) return block;
  const std::size_t room = below_page ? (bytes_of(size_class) + head) | kLine
                           : small    ? bytes_of(size_class) + slack
                                      : round_up(bytes + slack, kPage);
  std::byte* const raw = small ? take_small(a, room) : take_extent(a, room);
  if (!raw) return nullptr;
  ASAN_UNPOISON_MEMORY_REGION(raw, sizeof(Storage::Block));       // all but the header and the bytes asked for stays poisoned
  auto* const block = new (raw) Storage::Block;
  const std::size_t colour = below_page ? 0
                             : small    ? a.colour = (a.colour + 5) % kColours
                                        : reinterpret_cast<std::uintptr_t>(raw) / kPage * 5 % kColours;
  block->data = raw + head + 2 * kLine * colour;
  block->room = small ? 0 : room;
  block->size_class = size_class;
  return block;
}

}  // namespace

Storage::Storage(std::size_t bytes) {
  Allocator& a = allocator();
  constexpr std::size_t most = std::size_t{1} << 46;
  const bool small = bytes < kSmall;
  const int size_class = small ? class_of(bytes) : 0;
  if (bytes > most || (a.allowed.load(std::memory_order_relaxed) >= 0 && a.allowed-- == 0)) throw refused(bytes);
  Own* const mine = own_or_null();
  Block* block = small ? take_kept(mine, size_class) : nullptr;
  if (!block) block = take_block(mine, bytes, small, size_class);
  if (!block) throw refused(bytes);
  ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
  block->bytes = bytes;
  block->version.store(0, std::memory_order_relaxed);
  block->references.store(1, std::memory_order_relaxed);
  count_bytes(mine, std::int64_t(block->held()));
  if (a.fill.load(std::memory_order_relaxed)) std::memset(block->data, 0xff, bytes);
  block_ = block;
}

void Storage::give_back() noexcept {
  auto* block = static_cast<Block*>(block_);
  Own* const mine = own_or_null();
  count_bytes(mine, -std::int64_t(block->held()));
  ASAN_POISON_MEMORY_REGION(block->data, block->bytes);
  const std::size_t room = block->room;
  if (room == 0) block->user = mine;
  if (room == 0 && keep(mine, block)) return;
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  if (room == 0) return a.free.push(block);
  ASAN_POISON_MEMORY_REGION(block, room);
  --a.large;
  add_extent(a, {reinterpret_cast<std::byte*>(block), room});
}

MemoryUse memory_use() {
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  std::int64_t in_use = a.in_use;
  for (const Own* thread = a.threads; thread; thread = thread->next) in_use += thread->in_use.load(std::memory_order_relaxed);
  in_use = std::max<std::int64_t>(in_use, 0);
  return {std::size_t(in_use), std::size_t(std::max(a.peak, in_use)), a.reserved, a.system_calls};
}

void reset_peak_memory() {
  const auto in_use = std::int64_t(memory_use().in_use);
  Allocator& a = allocator();
  const std::lock_guard lock(a.mutex);
  a.peak = in_use;
}

void release_cached_memory() {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  for (const Extent& e : a.extents) {
    a.reserved -= e.bytes;
    ASAN_UNPOISON_MEMORY_REGION(e.at, e.bytes);
    munmap(e.at, e.bytes);
  }
  a.extents.clear();
}

void fill_fresh_memory_with_nan(bool fill) { allocator().fill = fill; }
std::int64_t refuse_memory_after(std::int64_t allowed) { return allocator().allowed.exchange(allowed); }

}  // namespace heed
