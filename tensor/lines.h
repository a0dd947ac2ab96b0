// SPDX-License-Identifier: Apache-2.0
// Lines along one axis of K tensors walked together: the offset of each line's first element, in row-major order of the other
// axes. The sizes along the axis itself may differ.
#pragma once
#include <array>

#include "tensor/shape.h"

namespace heed {

template <int K> class Lines {
 public:
  using Offsets = std::array<Index, std::size_t(K)>;

  Lines(const Shape& shape, int axis, const std::array<Strides, std::size_t(K)>& strides) : shape_(shape), strides_(strides) {
    shape_.erase(axis);
    for (Strides& s : strides_) s.erase(axis);
  }
  Index count() const { return shape_.numel(); }

  // f(offsets) for lines [begin, end)
  template <class F> void operator()(Index begin, Index end, F&& f) const {
    std::array<Index, kMaxRank> index{};
    Offsets at{};
    Index rest = begin;
    for (int axis = shape_.rank() - 1; axis >= 0 && rest > 0; --axis) {
      index[std::size_t(axis)] = rest % shape_[axis];
      rest /= shape_[axis];
      move(at, axis, index[std::size_t(axis)]);
    }
    for (Index line = begin; line < end; ++line) {
      f(at);
      for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
        Index& i = index[std::size_t(axis)];
        move(at, axis, 1);
        if (++i < shape_[axis]) break;
        move(at, axis, -i);
        i = 0;
      }
    }
  }

 private:
  void move(Offsets& at, int axis, Index steps) const {
    for (std::size_t k = 0; k < at.size(); ++k) at[k] += steps * strides_[k][axis];
  }

  Shape shape_;
  std::array<Strides, std::size_t(K)> strides_;
};

}  // namespace heed
