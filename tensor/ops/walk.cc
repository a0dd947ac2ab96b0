// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/walk.h"

#include <algorithm>

#include "tensor/error.h"

namespace heed {

Strides broadcast_strides(const Tensor& x, const Shape& shape) {
  Strides strides = shape;
  const int lead = shape.rank() - x.rank();
  for (int axis = 0; axis < shape.rank(); ++axis)
    strides[axis] = axis < lead || x.shape()[axis - lead] == 1 ? 0 : x.strides()[axis - lead];
  return strides;
}

void walk(const Shape& shape, std::span<const Strides> strides, Index cost, FunctionRef<void(const Piece&)> f) {
  const int operands = int(strides.size());
  // axes of size > 1, merged with the one before where  stride[before] = size · stride  for all operands
  std::array<Index, kMaxRank> sizes{};
  std::array<std::array<Index, kMostOperands>, kMaxRank> steps{};
  int rank = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Index size = shape[axis];
    if (size == 0) return;
    if (size == 1) continue;
    bool merges = rank > 0;
    for (int i = 0; i < operands && merges; ++i)
      merges = steps[std::size_t(rank - 1)][std::size_t(i)] == size * strides[std::size_t(i)][axis];
    if (merges) sizes[std::size_t(rank - 1)] *= size;
    else sizes[std::size_t(rank++)] = size;
    for (int i = 0; i < operands; ++i) steps[std::size_t(rank - 1)][std::size_t(i)] = strides[std::size_t(i)][axis];
  }
  const Index n = rank > 0 ? sizes[std::size_t(rank - 1)] : 1, rows = rank > 1 ? sizes[std::size_t(rank - 2)] : 1;
  Index all_rows = rows;
  for (int axis = 0; axis < rank - 2; ++axis) all_rows *= sizes[std::size_t(axis)];
  Piece whole{.rows = rows, .n = n, .offset{}, .row{}, .step{}};
  if (rank > 0) whole.step = steps[std::size_t(rank - 1)];
  if (rank > 1) whole.row = steps[std::size_t(rank - 2)];

  const Index grain = std::max<Index>(1, 32768 / cost);
  if (all_rows == 1) {
    return parallel_for(n, grain, [&](Index begin, Index end) {
      Piece piece = whole;
      piece.n = end - begin;
      for (int i = 0; i < operands; ++i) piece.offset[std::size_t(i)] = begin * piece.step[std::size_t(i)];
      f(piece);
    });
  }
  parallel_for(all_rows, std::max<Index>(1, grain / n), [&](Index begin, Index end) {
    while (begin < end) {
      Piece piece = whole;
      const Index first = begin % rows;
      piece.rows = std::min(end - begin, rows - first);
      for (int i = 0; i < operands; ++i) piece.offset[std::size_t(i)] = first * piece.row[std::size_t(i)];
      Index outer = begin / rows;
      for (int axis = rank - 3; axis >= 0; --axis) {
        const Index at = outer % sizes[std::size_t(axis)];
        outer /= sizes[std::size_t(axis)];
        for (int i = 0; i < operands; ++i) piece.offset[std::size_t(i)] += at * steps[std::size_t(axis)][std::size_t(i)];
      }
      f(piece);
      begin += piece.rows;
    }
  });
}

namespace {

constexpr Index kBlock = 512, kShortRow = 64;

// Elements [first, first + count) of the piece in row-major order, one after another.
template <class T> void gather(const T* x, const Piece& piece, std::size_t i, Index first, Index count, T* out) {
  const Index row = piece.row[i], step = piece.step[i];
  for (Index r = first / piece.n, c = first % piece.n; count > 0; ++r, c = 0) {
    const Index m = std::min(count, piece.n - c);
    const T* from = x + r * row + c * step;
    if (step == 0) std::fill(out, out + m, *from);
    else if (step == 1) std::copy(from, from + m, out);
    else for (Index j = 0; j < m; ++j) out[j] = from[j * step];
    out += m;
    count -= m;
  }
}

template <class T> void scatter(const T* values, bool add, const Piece& piece, std::size_t i, Index first, Index count, T* y) {
  const Index row = piece.row[i], step = piece.step[i];
  for (Index r = first / piece.n, c = first % piece.n; count > 0; ++r, c = 0) {
    const Index m = std::min(count, piece.n - c);
    T* to = y + r * row + c * step;
    if (add && step == 1) for (Index j = 0; j < m; ++j) to[j] += values[j];
    else if (add) for (Index j = 0; j < m; ++j) to[j * step] += values[j];
    else if (step == 1) std::copy(values, values + m, to);
    else for (Index j = 0; j < m; ++j) to[j * step] = values[j];
    values += m;
    count -= m;
  }
}

}  // namespace

template <class T>
void map(RowKernel<T> kernel, std::initializer_list<std::reference_wrapper<const Tensor>> x, const T* parameters, Index cost, const Into& y) {
  const Shape& shape = y.tensor.shape();
  if (shape.numel() == 0) return;
  const std::size_t inputs = x.size();  // operand `inputs` is y
  std::array<Strides, kMostOperands> strides;
  std::array<const T*, kMostOperands> base{};
  std::size_t k = 0;
  for (const Tensor& input : x) {
    strides[k] = broadcast_strides(input, shape);
    base[k++] = input.data<T>();
  }
  strides[inputs] = broadcast_strides(y.tensor, shape);
  T* const out = y.tensor.mutable_data<T>();

  walk(shape, std::span(strides.data(), inputs + 1), cost, [&](const Piece& piece) {
    std::array<const T*, kMostOperands> from{}, now{};
    bool all_direct = true;
    for (std::size_t i = 0; i < inputs; ++i) {
      from[i] = base[i] + piece.offset[i];
      all_direct &= piece.step[i] == 1;
    }
    T* const to = out + piece.offset[inputs];
    if (all_direct && piece.step[inputs] == 1 && !y.add && (piece.n >= kShortRow || piece.rows == 1)) {
      for (Index r = 0; r < piece.rows; ++r) {
        for (std::size_t i = 0; i < inputs; ++i) now[i] = from[i] + r * piece.row[i];
        kernel(now.data(), std::size_t(piece.n), parameters, to + r * piece.row[inputs]);
      }
      return;
    }
    // Otherwise through contiguous blocks. Short rows are joined; blocks of long rows end with the row, which keeps unit steps direct.
    alignas(64) T blocks[kMostOperands][kBlock];
    const Index total = piece.rows * piece.n, run = piece.n >= kShortRow ? piece.n : total;
    std::array<bool, kMostOperands> filled{};
    for (Index begin = 0; begin < total; begin += run) {
      for (Index first = begin; first < begin + run; first += kBlock) {
        const Index count = std::min(kBlock, begin + run - first);
        for (std::size_t i = 0; i < inputs; ++i) {
          const bool constant = piece.step[i] == 0 && piece.row[i] == 0;
          if (run == piece.n && piece.step[i] == 1) {
            now[i] = from[i] + first / piece.n * piece.row[i] + first % piece.n;
          } else {
            if (!constant || !filled[i]) gather(from[i], piece, i, first, constant ? std::min(kBlock, total) : count, blocks[i]);
            filled[i] = constant;
            now[i] = blocks[i];
          }
        }
        const bool direct = run == piece.n && piece.step[inputs] == 1 && !y.add;
        T* const result = direct ? to + first / piece.n * piece.row[inputs] + first % piece.n : blocks[inputs];
        kernel(now.data(), std::size_t(count), parameters, result);
        if (!direct) scatter(result, y.add, piece, inputs, first, count, to);
      }
    }
  });
}
template void map(RowKernel<float>, std::initializer_list<std::reference_wrapper<const Tensor>>, const float*, Index, const Into&);
template void map(RowKernel<double>, std::initializer_list<std::reference_wrapper<const Tensor>>, const double*, Index, const Into&);

}  // namespace heed
