// SPDX-License-Identifier: Apache-2.0
// Matrix products on plain pointers; tensor/ops/matmul.h is the same on tensors, tensor/gemm_tile-inl.h has the kernels.
#pragma once
#include <algorithm>

#include "tensor/parallel.h"
#include "tensor/storage.h"

namespace heed {

// c[i, j] (=|+=) Σ_k a[i, k] b[k, j],  i < m, j < n. Strides in elements, any of them, so a transposed operand costs nothing.
// Each element is one chain of multiply-adds in rising k that starts from zero, or from c[i, j] when adding: tiles, blocks,
// packing, vector width and threads leave the bits alone, and a row is the same alone as among others.
template <class T> struct Product {
  Index m, n, k;
  const T* a;
  Index a_row, a_k;
  const T* b;
  Index b_k, b_column;
  T* c;
  Index c_row, c_column;
  bool add;
  const T* panels = nullptr;   // of pack(): b once more, read in its place
};

// cᵀ = bᵀ aᵀ
template <class T> Product<T> transposed(const Product<T>& p) {
  return {p.n, p.m, p.k, p.b, p.b_column, p.b_k, p.a, p.a_k, p.a_row, p.c, p.c_column, p.c_row, p.add};
}

// What follows the sums: c[i, j] += bias[j], then `run`, called once for each finished block of c by the thread that finished it, while
// the block is in its cache. Large products begin their blocks at multiples of kFinishColumns: so many random numbers are made at once.
template <class T> struct Finish {
  static constexpr Index kFinishColumns = 128;
  void (*run)(const void* self, Index row, Index rows, Index column, Index columns) = nullptr;
  const void* self = nullptr;
  const T* bias = nullptr;   // [n]

  explicit operator bool() const { return run || bias; }
  // All of it, for a block of sums that begins at c
  void operator()(T* c, Index c_row, Index row, Index rows, Index column, Index columns) const {
    for (Index i = 0; bias && i < rows; ++i)
      for (Index j = 0; j < columns; ++j) c[i * c_row + j] += bias[column + j];
    if (run) run(self, row, rows, column, columns);
  }
};

// Parallel from about 10 us of work on. c must not overlap a or b. With a finish c_column must be 1. Where ProductPrecision
// (tensor/gemm_bfloat16.h) says so, f32 operands are rounded to bfloat16 and another kernel makes the chain.
void multiply(const Product<float>& product, Finish<float> finish = {});
void multiply(const Product<double>& product, Finish<double> finish = {});

// The same with another chain where k counts many rows, as those of a batch: the upper half of c begins with the second half of k and
// takes the first one then, the lower half of c begins with the first. So two threads can sum over those rows that each of them wrote,
// and what each of them wrote last lies in memory as those rows do.
// in_halves says where, half_of how they are cut; of a b of more than 16 MiB k goes in parts of that size, each by halves.
// Beside c the sums of a's rows, sums[i] (=|+=) Σ_k a[i, k], each by the chain of its row of c: as if b had one more column, of ones.
template <class T> struct RowSums {
  T* to = nullptr;   // none
  bool add = false;
};
void multiply_by_halves(const Product<float>& product, RowSums<float> sums = {});
void multiply_by_halves(const Product<double>& product, RowSums<double> sums = {});
// The sums alone, with the same bits: of the product its sizes and a are read.
void sum_by_halves(const Product<float>& product, RowSums<float> sums);
void sum_by_halves(const Product<double>& product, RowSums<double> sums);
constexpr bool in_halves(Index m, Index n, Index k) { return m >= 32 && n >= 32 && k >= 256 && double(m) * double(n) * double(k) >= 4e6; }
constexpr Index half_of(Index count) { return std::min(count, round_up((count + 1) / 2, 16)); }

// b [k, n] in panels, packed once for many products of any number of rows.
Storage pack(Index k, Index n, const float* b, Index b_k, Index b_column);
Storage pack(Index k, Index n, const double* b, Index b_k, Index b_column);

// `count` products of one size and one set of strides; small ones are spread over the threads whole.
void multiply(Index count, FunctionRef<Product<float>(Index)> product);
void multiply(Index count, FunctionRef<Product<double>(Index)> product);

// ---- for tensor/gemm-inl.h and kernels with products inside --------------------------------------------------------------

// Of n columns in panels of `width`, those in whole ones. Where of panels of three vectors the last would be left with one, which loads
// more than it multiplies, the last two have two vectors each.
constexpr bool ends_narrow(Index n, Index width) { return width % 3 == 0 && n > width && n % width > 0 && n % width <= width / 3; }
constexpr Index narrow_width(Index width) { return width / 3 * 2; }
constexpr Index whole_columns(Index n, Index width) { return ends_narrow(n, width) ? n - n % width - width : n; }

// How a product is cut; follows the machine, never the bits.
struct GemmPlan {
  Index rows, width;         // strip of a, panel of b
  Index depth;               // k block
  Index group;               // columns of b packed or read at a time, a multiple of width
  bool pack_a, direct_b;     // false, true: read in place
  bool transposed;           // c_row = 1: c is made by rows, then turned
  Index packed_columns;      // of all of b, padded to whole panels, where it was packed before, block of k after block of k
  Index packed_n;            // all columns of b, where each panel was packed over all k, else 0
  Index panels, sums;        // where scratch holds the panels and the unfinished c; a comes first
  Index scratch;             // elements in all
  // Elements of a packed strip, and 16 that a last whole vector may reach into: strips a power of two apart would share their places
  // in the caches.
  Index strip(Index some_depth) const { return some_depth * rows + 16; }
};

// What one target offers.
template <class T> struct GemmKernels {
  Index lanes;               // elements of a vector
  Index rows[5];             // most of a tile, by its vectors, 1 to 4
  Index vectors;             // of the tile for most products
  Index thin_rows, thin_depth;   // most rows of the thin kernel, and least k where they are more than a few
  bool from_l2;              // a tile multiplies for longer than the L2 takes to give it rows of b and columns of a that are read in place
  // All of p in one thread. packed: the panels of b from packed_column on, or nullptr. row, column: where p lies in the whole.
  void (*block)(const Product<T>& p, const GemmPlan& plan, const T* packed, Index packed_column, Index row, Index column,
                T* scratch, Finish<T> finish);
  // At most thin_rows rows, k contiguous in a and b, n a multiple of lanes; nullptr if there is none.
  void (*thin)(const Product<T>& p);
  // At most `lanes` columns, c_column 1, b contiguous along k or its columns, k not 0; nullptr if there is none.
  void (*small)(const Product<T>& p);
  // dst: panels of width columns, each [depth][width], behind the whole columns narrow ones
  void (*pack)(const T* b, Index b_k, Index b_column, Index depth, Index columns, Index whole, Index width, T* dst);
  // dst[k * width + j] = src[j * j_step + k],  k < depth, j < count
  void (*turn)(const T* src, Index j_step, Index depth, Index count, Index width, T* dst);
  // c [rows, width] (=|+=) a [rows, depth] panel [depth, width], width 1 to 4 vectors
  void (*panel)(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row);
  // Of p's rows of a
  void (*row_sums)(const Product<T>& p, RowSums<T> sums);
};
template <class T> GemmKernels<T> gemm_kernels();   // of the chosen target; float, double

}  // namespace heed
