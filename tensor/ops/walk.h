// SPDX-License-Identifier: Apache-2.0
// How element-wise ops walk over strided and broadcast tensors, in parallel pieces whose boundaries come from the shape alone.
#pragma once
#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <tuple>

#include "tensor/into.h"
#include "tensor/parallel.h"

namespace heed {

inline constexpr int kMostOperands = 6;

// rows × n elements; operand i stands at offset[i] + r row[i] + c step[i], in elements from its first one; 0 = broadcast.
struct Piece {
  Index rows, n;
  std::array<Index, kMostOperands> offset, row, step;
};

// Calls f on pieces that cover `shape` once; strides[i] are operand i's over that shape. An element costs about `cost` · 0.3 ns.
// Axes are merged where all operands allow it, so n is as long as can be.
void walk(const Shape& shape, std::span<const Strides> strides, Index cost, FunctionRef<void(const Piece&)> f);
inline void walk(const Shape& shape, std::initializer_list<Strides> strides, Index cost, FunctionRef<void(const Piece&)> f) {
  walk(shape, std::span(strides.begin(), strides.size()), cost, f);
}

// Strides of x read as a tensor of `shape`, which x broadcasts to.
Strides broadcast_strides(const Tensor& x, const Shape& shape);

// n contiguous elements (step 1), or one number for all of them (step 0).
template <class T> struct RowOperand {
  const T* at;
  std::size_t step;
};

// y[i] = f(x0[i], x1[i], ...; parameters) on n contiguous elements of y.
template <class T> using RowKernel = void (*)(const RowOperand<T>* x, size_t n, const T* parameters, T* y);

// y (=|+=) kernel(x...), each x broadcast to y's shape. Checks nothing.
template <class T>
void map(RowKernel<T> kernel, std::initializer_list<std::reference_wrapper<const Tensor>> x, const T* parameters, Index cost, const Into& y);

// Calls f(a, b, ...) on every element of tensors of one shape or broadcast to it; a is a T0&, b a T1&, ...
template <class... T, class F, class... X> void for_each_element(const Shape& shape, Index cost, F&& f, const X&... x) {
  std::array<std::byte*, sizeof...(X)> base{};
  const std::array<Strides, sizeof...(X)> strides{broadcast_strides(x, shape)...};
  std::size_t k = 0;
  ((base[k++] = shape.numel() == 0 ? nullptr : x.storage().data() + x.offset() * Index(item_size(x.dtype()))), ...);
  walk(shape, strides, cost, [&](const Piece& piece) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      for (Index r = 0; r < piece.rows; ++r) {
        const auto row = std::tuple(reinterpret_cast<T*>(base[i]) + piece.offset[i] + r * piece.row[i]...);
        if (((piece.step[i] == 1) && ...)) {
          for (Index c = 0; c < piece.n; ++c) f(std::get<i>(row)[c]...);
        } else {
          for (Index c = 0; c < piece.n; ++c) f(std::get<i>(row)[c * piece.step[i]]...);
        }
      }
    }(std::index_sequence_for<X...>());
  });
}

}  // namespace heed
