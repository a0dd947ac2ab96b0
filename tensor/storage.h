// SPDX-License-Identifier: Apache-2.0
// Memory of tensors: reference-counted blocks from a caching allocator, so that a steady training step asks the system for nothing.
// Small blocks are kept by size class, some of them by each thread for itself; large ones are cut from regions of huge pages and joined
// with free neighbours again, so that gradients take the place of activations. Blocks start at different places of a page,
// because source and target equal mod 4096 copy up to 3.5x slower.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace heed {

class Storage {
 public:
  Storage() = default;
  explicit Storage(std::size_t bytes);  // uninitialised, 64-byte aligned; OutOfMemory gives the bytes
  Storage(const Storage& other) noexcept : block_(other.block_) { retain(); }
  Storage(Storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Storage& operator=(Storage other) noexcept { std::swap(block_, other.block_); return *this; }
  ~Storage() { release(); }

  explicit operator bool() const { return block_ != nullptr; }
  struct Block;  // defined in storage.cc
  friend bool operator==(const Storage& a, const Storage& b) { return a.block_ == b.block_; }
  std::byte* data() const { return block_ ? block_->data : nullptr; }
  std::size_t bytes() const { return block_ ? block_->bytes : 0; }
  int references() const { return block_ ? block_->references.load(std::memory_order_acquire) : 0; }
  bool is_unique() const { return references() == 1; }

  // Raised by every write access; a tape compares it to notice that a saved value was overwritten.
  std::uint64_t version() const { return block_ ? block_->version.load(std::memory_order_relaxed) : 0; }
  void touch() const { if (block_) block_->version.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Header {
    std::byte* data;
    std::size_t bytes;                    // asked for
    std::atomic<std::uint64_t> version;
    std::atomic<std::int32_t> references;
  };
  void retain() const noexcept { if (block_) block_->references.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (block_ && block_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) give_back();
  }
  void give_back() noexcept;

  Header* block_ = nullptr;
};

struct MemoryUse {
  std::size_t in_use;        // bytes in blocks that live now
  std::size_t peak;          // largest in_use since the start or reset_peak_memory(), to within 64 KiB for each thread
  std::size_t reserved;      // bytes taken from the system, cached ones included
  std::size_t system_calls;  // times memory was asked from the system
};
MemoryUse memory_use();
void reset_peak_memory();
void release_cached_memory();               // returns large cached blocks to the system
void fill_fresh_memory_with_nan(bool fill);  // for tests: makes reads of uninitialised memory visible

}  // namespace heed
