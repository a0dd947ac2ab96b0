// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tensor/tensor.h"

namespace heed {

// Keys and values of the positions decoded so far, in memory taken once for `capacity` positions.
class KeyValueCache {
 public:
  KeyValueCache() = default;
  KeyValueCache(Index rows, Index heads, Index capacity, Index head_width, DType dtype)
      : keys_(empty({rows, heads, capacity, head_width}, dtype)), values_(empty({rows, heads, capacity, head_width}, dtype)) {}

  Index length() const { return length_; }
  Index rows() const { return keys_.size(0); }
  Tensor keys() const { return keys_(all, all, Slice{0, length_}); }       // [R, H, length, d/H]
  Tensor values() const { return values_(all, all, Slice{0, length_}); }

  // Appends the keys and values of new positions, [R, H, n, d/H] each.
  void append(const Tensor& keys, const Tensor& values);
  // Row i continues what row rows[i] held; fewer rows than before drop the rest. Rows that stay in place are not copied.
  void reorder(std::span<const Index> rows);

 private:
  void reserve(Index length);
  Tensor keys_, values_;
  Index length_ = 0;
};

}  // namespace heed
