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
inline Strides broadcast_strides(const Tensor& x, const Shape& shape) { return broadcast_strides(x.shape(), x.strides(), shape); }

// n contiguous elements (step 1), or one number for all of them (step 0).
template <class T> struct RowOperand {
  const T* at;
  std::size_t step;
};

// y[i] = f(x0[i], x1[i], ...; parameters) on n contiguous elements of y.
template <class T> using RowKernel = void (*)(const RowOperand<T>* x, size_t n, const T* parameters, T* y);

// y (=|+=) kernel(x...), each x broadcast to y's shape. Checks nothing.
template <class T>
void map(RowKernel<T> kernel, std::initializer_list<std::reference_wrapper<const Tensor>> x, const T* parameters, Index cost,
         const Into& y);

// y[i] = f(a[i], b[i], ...): x are tensors of T..., broadcast to y's shape; y is contiguous, of R, and overlaps none of them. In blocks of
// a constant count, which g++ 12 -O2 makes vectors of.
template <class R, class... T, class F, class... X> void map_elements(const Tensor& y, Index cost, F f, const X&... x) {
  if (y.numel() == 0) return;
  constexpr Index kBlock = 64;
  const std::array<Strides, sizeof...(X) + 1> strides{broadcast_strides(x, y.shape())..., y.strides()};
  const auto base = std::tuple(x.template data<T>()...);
  R* const out = y.mutable_data<R>();
  walk(y.shape(), strides, cost, [&](const Piece& piece) {
    std::tuple<std::array<T, kBlock>...> blocks;
    const auto run = [&]<std::size_t... i>(std::index_sequence<i...>) {
      for (Index r = 0; r < piece.rows; ++r)
        for (Index c = 0; c < piece.n; c += kBlock) {
          const Index count = std::min(kBlock, piece.n - c);
          const auto row = [&]<class V>(const V* from, Index step, std::array<V, kBlock>& block) -> const V* {
            if (step == 1) return from;
            if (step != 0) for (Index j = 0; j < count; ++j) block[std::size_t(j)] = from[j * step];
            else if (c == 0) block.fill(*from);
            return block.data();
          };
          const auto apply = [&](R* __restrict to, const T* __restrict... from) {
            if (count == kBlock) for (Index j = 0; j < kBlock; ++j) to[j] = f(from[j]...);
            else for (Index j = 0; j < count; ++j) to[j] = f(from[j]...);
          };
          apply(out + piece.offset[sizeof...(X)] + r * piece.row[sizeof...(X)] + c,
                row(std::get<i>(base) + piece.offset[i] + r * piece.row[i] + c * piece.step[i], piece.step[i], std::get<i>(blocks))...);
        }
    };
    run(std::index_sequence_for<X...>());
  });
}

}  // namespace heed
