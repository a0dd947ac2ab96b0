// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/walk.h"

#include <algorithm>

#include "tensor/convert.h"
#include "tensor/gemm.h"
#include "tensor/row.h"

namespace heed {

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

  const auto run = [&](Index begin, Index end, Index column, Index columns) {
    while (begin < end) {
      Piece piece = whole;
      const Index first = begin % rows;
      piece.rows = std::min(end - begin, rows - first);
      piece.n = columns;
      for (int i = 0; i < operands; ++i)
        piece.offset[std::size_t(i)] = first * piece.row[std::size_t(i)] + column * piece.step[std::size_t(i)];
      Index outer = begin / rows;
      for (int axis = rank - 3; axis >= 0; --axis) {
        const Index at = outer % sizes[std::size_t(axis)];
        outer /= sizes[std::size_t(axis)];
        for (int i = 0; i < operands; ++i) piece.offset[std::size_t(i)] += at * steps[std::size_t(axis)][std::size_t(i)];
      }
      f(piece);
      begin += piece.rows;
    }
  };
  constexpr Index kTile = 16;   // rows at a time make tiles of what steps further
  const Index grain = std::max<Index>(1, 32768 / cost);
  if (all_rows <= kTile && n > grain)   // few long rows are cut across
    return parallel_for(n, std::max<Index>(1, grain / all_rows), [&](Index begin, Index end) { run(0, all_rows, begin, end - begin); });
  bool unit = true;
  for (int i = 0; i < operands; ++i) unit &= whole.step[std::size_t(i)] == 0 || whole.step[std::size_t(i)] == 1;
  parallel_for(all_rows, std::max<Index>(unit ? 1 : kTile, grain / n), [&](Index begin, Index end) { run(begin, end, 0, n); });
}

namespace {

// Rows below kShort are joined. Operands that step by more than one element are read in tiles, so that what lies together is read together.
constexpr Index kBlock = 1024, kShort = 64, kTileRows = 16;

// Short rows of operand i, from `from` on, one after another.
template <class T> void gather(const T* from, const Piece& piece, std::size_t i, Index rows, T* out) {
  const Index row = piece.row[i], step = piece.step[i], n = piece.n;
  for (Index r = 0; r < rows; ++r, from += row, out += n) {
    if (step == 1 && n >= 16) std::copy(from, from + n, out);
    else for (Index j = 0; j < n; ++j) out[j] = from[j * step];
  }
}

template <class T> void scatter(const T* values, bool adds, const Piece& piece, std::size_t i, Index rows, T* to) {
  const Index row = piece.row[i], step = piece.step[i], n = piece.n;
  for (Index r = 0; r < rows; ++r, to += row, values += n) {
    if (adds && step == 1) add_row(values, n, to);
    else if (adds) for (Index j = 0; j < n; ++j) to[j * step] += values[j];
    else if (step == 1 && n >= 16) std::copy(values, values + n, to);
    else for (Index j = 0; j < n; ++j) to[j * step] = values[j];
  }
}

// One map, its operands' first elements: y is operand `inputs`.
template <class T> struct Mapping {
  RowKernel<T> kernel;
  const T* parameters;
  std::size_t inputs;
  std::array<const T*, kMostOperands> base;
  T* out;
  bool adds;

  // Rows whose elements lie together, or are one number.
  void direct(const Piece& piece) const {
    std::array<RowOperand<T>, kMostOperands> now{};
    for (std::size_t i = 0; i < inputs; ++i) now[i] = {base[i] + piece.offset[i], std::size_t(piece.step[i])};
    T* to = out + piece.offset[inputs];
    for (Index r = 0; r < piece.rows; ++r, to += piece.row[inputs]) {
      kernel(now.data(), std::size_t(piece.n), parameters, to);
      for (std::size_t i = 0; i < inputs; ++i) now[i].at += piece.row[i];
    }
  }

  // Blocks of joined short rows.
  void joined(const Piece& piece) const {
    alignas(64) T blocks[kMostOperands][kBlock];
    std::array<RowOperand<T>, kMostOperands> now{};
    const auto together = [&](std::size_t i) { return piece.step[i] == 1 && piece.row[i] == piece.n; };
    const bool in_place = together(inputs) && !adds;
    const Index most = kBlock / piece.n;
    for (Index r = 0; r < piece.rows; r += most) {
      const Index rows = std::min(most, piece.rows - r);
      for (std::size_t i = 0; i < inputs; ++i) {
        const T* const from = base[i] + piece.offset[i] + r * piece.row[i];
        now[i] = {together(i) ? from : blocks[i], 1};
        if (!together(i) && (r == 0 || piece.row[i] != 0)) gather(from, piece, i, rows, blocks[i]);
      }
      T* const to = out + piece.offset[inputs] + r * piece.row[inputs];
      T* const result = in_place ? to : blocks[inputs];
      kernel(now.data(), std::size_t(rows * piece.n), parameters, result);
      if (!in_place) scatter(result, adds, piece, inputs, rows, to);
    }
  }

  // Tiles of long rows: what has unit steps is read in place, also a number for a row, all else goes through a block.
  void tiled(const Piece& piece, Index tile_rows) const {
    alignas(64) T blocks[kMostOperands][kBlock];
    std::array<RowOperand<T>, kMostOperands> now{};
    const Index width = kBlock / tile_rows, row_y = piece.row[inputs], step_y = piece.step[inputs];
    const bool in_place = step_y == 1 && !adds;
    const auto turn = gemm_kernels<T>().turn;
    const ConvertRow reverse_row = reversal(sizeof(T));
    for (Index r = 0; r < piece.rows; r += tile_rows)
      for (Index c = 0; c < piece.n; c += width) {
        const Index rows = std::min(tile_rows, piece.rows - r), columns = std::min(width, piece.n - c);
        const auto place = [&](std::size_t i) { return piece.offset[i] + r * piece.row[i] + c * piece.step[i]; };
        for (std::size_t i = 0; i < inputs; ++i) {
          const Index row = piece.row[i], step = piece.step[i];
          const T* const from = base[i] + place(i);
          if (step == 0 || step == 1) continue;
          if (row == 1) turn(from, step, rows, columns, width, blocks[i]);
          else if (step == -1)
            for (Index k = 0; k < rows; ++k) reverse_row(from + k * row, std::size_t(columns), blocks[i] + k * width);
          else
            for (Index k = 0; k < rows; ++k)
              for (Index j = 0; j < columns; ++j) blocks[i][k * width + j] = from[k * row + j * step];
        }
        T* const to = out + place(inputs);
        for (Index k = 0; k < rows; ++k) {
          for (std::size_t i = 0; i < inputs; ++i) {
            const bool in_rows = piece.step[i] == 0 || piece.step[i] == 1;
            now[i] = {in_rows ? base[i] + place(i) + k * piece.row[i] : blocks[i] + k * width, piece.step[i] != 0};
          }
          T* const result = in_place ? to + k * row_y : blocks[inputs] + k * width;
          kernel(now.data(), std::size_t(columns), parameters, result);
          if (step_y == 1 && adds) add_row(result, columns, to + k * row_y);
        }
        if (step_y == 1) continue;
        if (row_y == 1 && !adds) {
          turn(blocks[inputs], width, columns, rows, step_y, to);
        } else if (step_y == -1 && !adds) {
          for (Index k = 0; k < rows; ++k)
            reverse_row(blocks[inputs] + k * width + columns - 1, std::size_t(columns), to + k * row_y - (columns - 1));
        } else {
          for (Index j = 0; j < columns; ++j)
            for (Index k = 0; k < rows; ++k) {
              T& element = to[k * row_y + j * step_y];
              element = adds ? element + blocks[inputs][k * width + j] : blocks[inputs][k * width + j];
            }
        }
      }
  }
};

}  // namespace

template <class T>
void map(RowKernel<T> kernel, std::initializer_list<std::reference_wrapper<const Tensor>> x, const T* parameters, Index cost,
         const Into& y) {
  const Shape& shape = y.tensor.shape();
  if (shape.numel() == 0) return;
  Mapping<T> mapping{kernel, parameters, x.size(), {}, y.tensor.mutable_data<T>(), y.add};
  std::array<Strides, kMostOperands> strides;
  std::size_t operands = 0;
  for (const Tensor& input : x) {
    strides[operands] = broadcast_strides(input, shape);
    mapping.base[operands++] = input.data<T>();
  }
  strides[operands++] = broadcast_strides(y.tensor, shape);

  walk(shape, std::span(strides.data(), operands), cost, [&](const Piece& piece) {
    bool in_rows = true, apart = false;
    for (std::size_t i = 0; i < operands; ++i) {
      in_rows &= piece.step[i] == 0 || piece.step[i] == 1;
      apart |= piece.step[i] < -1 || piece.step[i] > 1;
    }
    if (piece.n < kShort && piece.rows > 1) mapping.joined(piece);
    else if (in_rows && !y.add) mapping.direct(piece);
    else mapping.tiled(piece, apart && piece.rows > 1 ? kTileRows : 1);
  });
}
template void map(RowKernel<float>, std::initializer_list<std::reference_wrapper<const Tensor>>, const float*, Index, const Into&);
template void map(RowKernel<double>, std::initializer_list<std::reference_wrapper<const Tensor>>, const double*, Index, const Into&);

}  // namespace heed
