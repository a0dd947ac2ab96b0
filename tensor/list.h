// SPDX-License-Identifier: Apache-2.0
// List: a std::vector in the tensors' memory, so that the lists and the scratch of a steady training step ask the system for
// nothing either.
#pragma once
#include <new>
#include <vector>

#include "tensor/storage.h"

namespace heed {

// The block's handle stands in its first line, the elements behind it.
template <class T> struct TensorMemory {
  using value_type = T;
  static constexpr std::size_t kFront = 64;
  TensorMemory() = default;
  template <class U> TensorMemory(const TensorMemory<U>&) {}

  T* allocate(std::size_t count) {
    Storage block(kFront + count * sizeof(T));
    std::byte* const front = block.data();
    new (front) Storage(std::move(block));
    return reinterpret_cast<T*>(front + kFront);
  }
  void deallocate(T* elements, std::size_t) noexcept {
    const Storage last = std::move(*reinterpret_cast<Storage*>(reinterpret_cast<std::byte*>(elements) - kFront));
  }
  friend bool operator==(TensorMemory, TensorMemory) { return true; }
};

template <class T> using List = std::vector<T, TensorMemory<T>>;

}  // namespace heed
