// SPDX-License-Identifier: Apache-2.0
// Both products with AMX. What lies beyond the last row of x is read up to a multiple of 16 rows, and its sums are dropped.
#include "tensor/amx.h"
#include "tensor/low_precision.h"

#if defined(__x86_64__)
#include <algorithm>

#include "tensor/bfloat16-inl.h"

namespace heed {
namespace {

constexpr Index kGroup = LowPrecisionWeight::kGroup, kTile = LowPrecisionWeight::kTile, kRows = 2 * kTile, kColumns = 2 * kTile;

// product(rows, columns) for all tiles of 32 rows and 32 outputs, those of the same weights one after another
template <class F> void each_tile(Index rows, Index groups, F&& product) {
  const AmxTiles use;
  for (Index column = 0; column < groups * kGroup; column += kColumns)
    for (Index row = 0; row < rows; row += kRows) product(row, column);
}

// Rows `row` on of x, `x_row` bytes each, times outputs `column` on of groups of `depth` times 64 outputs of 4 bytes.
AmxProduct tile_of(Index rows, Index row, Index column, const void* x, Index x_row, const void* w, Index depth) {
  return {.rows = rows - row > kTile ? kRows : kTile,
          .steps = depth / kTile,
          .a = static_cast<const char*>(x) + row * x_row,
          .a_row = x_row,
          .a_step = 64,
          .a_second = kTile * x_row,
          .b = static_cast<const char*>(w) + column / kGroup * depth * kGroup * 4 + column % kGroup * 4,
          .b_row = kGroup * 4,
          .b_step = kTile * kGroup * 4,
          .c = nullptr,
          .c_row = kColumns * 4,
          .add = false};
}

// y[r, o] = t_r s_o (Σ_k x[r, k] w[o, k] - 128 Σ_k w[o, k]) + bias_o
HEED_BFLOAT16 void scale(const std::int32_t (*sums)[kColumns], Index rows, const Int8Block& block, Index row, Index column) {
  for (Index j = 0; j < kColumns; j += 16) {
    const __m512i shift = _mm512_slli_epi32(_mm512_loadu_si512(block.sums + column + j), 7);
    const __m512 s = _mm512_loadu_ps(block.s + column + j);
    for (Index r = 0; r < rows; ++r) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(sums[r] + j), shift));
      const __m512 y = _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(block.t[row + r])), s);
      _mm512_storeu_ps(block.y + (row + r) * block.y_row + column + j,
                       block.bias ? _mm512_add_ps(y, _mm512_loadu_ps(block.bias + column + j)) : y);
    }
  }
}

void multiply_int8(const Int8Block& block) {
  if (block.rows == 1) return int8_kernel_vnni()(block);   // waits for the weights only, the same bits
  each_tile(block.rows, block.groups, [&](Index row, Index column) {
    alignas(64) std::int32_t sums[kRows][kColumns];
    AmxProduct p = tile_of(block.rows, row, column, block.x, block.quads * 4, block.w, block.quads);
    p.c = sums;
    multiply_int8_tiles(p);
    scale(sums, std::min(kRows, block.rows - row), block, row, column);
  });
}

void multiply_bfloat16(const BFloat16Block& block) {
  each_tile(block.rows, block.groups, [&](Index row, Index column) {
    const Index rows = std::min(kRows, block.rows - row);
    float* const y = block.y + row * block.y_row + column;
    AmxProduct p = tile_of(block.rows, row, column, block.x, block.pairs * 4, block.w, block.pairs);
    if (rows % kTile == 0) {
      p.c = y;
      p.c_row = block.y_row * 4;
      return multiply_bfloat16_tiles(p);
    }
    alignas(64) float sums[kRows][kColumns];
    p.c = sums;
    multiply_bfloat16_tiles(p);
    for (Index r = 0; r < rows; ++r) std::copy_n(sums[r], kColumns, y + r * block.y_row);
  });
}

}  // namespace

Int8Kernel int8_kernel_amx() { return has_amx() && int8_kernel_vnni() ? &multiply_int8 : nullptr; }
BFloat16Kernel bfloat16_kernel_amx() { return has_amx() ? &multiply_bfloat16 : nullptr; }

}  // namespace heed
#else
heed::Int8Kernel heed::int8_kernel_amx() { return nullptr; }
heed::BFloat16Kernel heed::bfloat16_kernel_amx() { return nullptr; }
#endif
