// SPDX-License-Identifier: Apache-2.0
// The axes of a reduction, and how to walk over them.
#pragma once
#include <algorithm>
#include <array>

#include "tensor/tensor.h"

namespace heed {

using Axes = std::array<bool, kMaxRank>;

Axes reduced_axes(std::string_view name, const Tensor& x, const Dims& dims);   // {}: all; IndexError
void check_dtype(std::string_view name, const Tensor& x);                     // DTypeError for bf16
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdim);
Shape without_last(const Shape& shape);                                       // the axes before the last: those of rows
Index count_of(const Shape& shape, const Axes& axes);                         // elements of a result's sequence
// A reduced tensor, with or without its kept dims, as a view that broadcasts to `shape`.
Tensor with_kept_dims(const Tensor& reduced, const Shape& shape, const Axes& axes);

// Walks positions in row-major order over some axes of one or two tensors, axes merged where the strides allow it.
struct Counter {
  int rank = 0;
  Index total = 1;
  std::array<Index, kMaxRank> size{}, at{};
  std::array<std::array<Index, 2>, kMaxRank> stride{};
  std::array<Index, 2> offset{};

  void push(Index n, Index first, Index second = 0) {
    total *= n;
    if (n == 1) return;
    const auto last = std::size_t(rank - 1);
    if (rank > 0 && stride[last][0] == n * first && stride[last][1] == n * second) {
      size[last] *= n;
      stride[last] = {first, second};
      return;
    }
    size[std::size_t(rank)] = n;
    stride[std::size_t(rank++)] = {first, second};
  }
  void seek(Index position) {
    offset = {};
    if (total == 0) return;
    for (auto axis = std::size_t(rank); axis-- > 0;) {
      at[axis] = position % size[axis];
      position /= size[axis];
      for (std::size_t i = 0; i < 2; ++i) offset[i] += at[axis] * stride[axis][i];
    }
  }
  // Goes on by `count` <= run() positions.
  void next(Index count = 1) {
    for (auto axis = std::size_t(rank); axis-- > 0; count = 1) {
      for (std::size_t i = 0; i < 2; ++i) offset[i] += count * stride[axis][i];
      if ((at[axis] += count) < size[axis]) return;
      for (std::size_t i = 0; i < 2; ++i) offset[i] -= size[axis] * stride[axis][i];
      at[axis] = 0;
    }
  }
  // Positions left on the last axis, and the first tensor's step along it.
  Index run() const { return rank > 0 ? size[std::size_t(rank - 1)] - at[std::size_t(rank - 1)] : 1; }
  Index step(std::size_t i = 0) const { return rank > 0 ? stride[std::size_t(rank - 1)][i] : 1; }
  bool unit() const { return rank == 0 || (rank == 1 && stride[0][0] == 1); }

  // Goes on by n positions, whose offsets into the first tensor it writes.
  void offsets(Index n, std::ptrdiff_t* out) {
    for (Index i = 0; i < n;) {
      const Index count = std::min(n - i, run()), first = offset[0], by = step();
      for (Index j = 0; j < count; ++j) out[i + j] = first + j * by;
      i += count;
      next(count);
    }
  }
  // n elements from `position` on, contiguous: where they are, or copied to `buffer`
  template <class T> const T* read(const T* x, Index position, Index n, T* buffer) const {
    if (unit() || n == 0) return x + position;
    Counter c = *this;
    c.seek(position);
    if (step() == 1 && c.run() >= n) return x + c.offset[0];
    for (Index i = 0; i < n;) {
      const Index run = std::min(n - i, c.run()), by = step();
      const T* from = x + c.offset[0];
      if (by == 1) std::copy(from, from + run, buffer + i);
      else for (Index j = 0; j < run; ++j) buffer[i + j] = from[j * by];
      i += run;
      c.next(run);
    }
    return buffer;
  }
};

}  // namespace heed
