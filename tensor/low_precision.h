// SPDX-License-Identifier: Apache-2.0
// Weights in fewer bits, for inference: packed once, then multiplied many times. Same bits for every thread count, every batch and, in
// int8, every instruction set.
#pragma once
#include "tensor/gemm.h"
#include "tensor/precision.h"
#include "tensor/tensor.h"

namespace heed {

// W [out, in] in groups of 64 outputs:
//   bfloat16  each weight rounded to the nearest. With AVX512-BF16 x is too, and the product is that of tensor/gemm_bfloat16.h;
//             else it is multiply-adds in f32
//   int8      W[o, i] ≈ s_o q, q in [-127, 127], s_o = max_i |W[o, i]| / 127; of x each row is x[i] ≈ t u, u in [-127, 127],
//             t = max_i |x[i]| / 127; products and sums are integers: y[o] = (Σ_i u q) t s_o
class LowPrecisionWeight {
 public:
  static constexpr Index kGroup = 64, kMostInputs = 65536;   // Σ |(u + 128) q| stays below 2³¹
  static constexpr Index kTile = 16;                         // pairs or fours of inputs, and rows of x, that AMX multiplies at once

  // Of an f32 matrix; DTypeError, ShapeError for others and, int8, for more than kMostInputs inputs.
  LowPrecisionWeight(const Tensor& weight, Precision precision);

  Tensor values() const;                             // what it stands for, f32 [out, in]

  // y [rows, out] = x [rows, in] Wᵀ, rows of x so many elements apart. In int8 a row of x that is not finite gives NaN.
  void multiply(Index rows, const float* x, Index x_row, float* y, Finish<float> finish = {}) const;

 private:
  struct Rows;                                       // of x, rounded or quantised
  Rows rows_of(Index rows, const float* x, Index stride) const;
  // y [rows, groups * 64] = rows from `row` on times `groups` groups of outputs, plus bias [groups * 64] if any
  void multiply_block(const Rows& x, Index row, Index rows, Index group, Index groups, const float* bias, float* y, Index y_row) const;

  Precision precision_;
  Index outputs_, inputs_;
  Tensor groups_;                                    // bf16 [group][depth][64][2], or bytes [group][depth][64][4], zeros beyond `in`
  Tensor scales_, sums_;                             // int8: s_o f32 and Σ_i q i32, [group][64]
};

// ---- kernels --------------------------------------------------------------------------------------------------------------

// Integer products: rows of u + 128, whole groups. Kernels may read rows up to a multiple of kTile.
struct Int8Block {
  Index rows, quads;                 // quads: of inputs, a multiple of kTile
  const std::uint8_t* x;             // [rows][quads][4], or as Int8Kernels::split leaves it
  const float* t;                    // [rows]
  Index groups;
  const std::int8_t* w;              // [groups][quads][64][4]
  const float* s;                    // [groups][64]
  const std::int32_t* sums;          // [groups][64]
  const float* bias;                 // [groups][64], or nullptr
  float* y;                          // [rows][groups * 64], y_row apart
  Index y_row;
};
using Int8Kernel = void (*)(const Int8Block&);
Int8Kernel int8_kernel_vnni();       // by the dot products of AVX512-VNNI; nullptr where the processor has none
Int8Kernel int8_kernel_amx();        // by AMX, one row by VNNI; nullptr where one of them is missing
struct Int8Kernels {
  Int8Kernel multiply = nullptr;
  // If any: u + 128, written from 4 quads on, become [quads][-1 where u < 0 else 0, |u|][4], then the i32 Σ |u| over u < 0.
  void (*split)(Index quads, std::uint8_t* row) = nullptr;
  static constexpr Index split_bytes(Index quads) { return quads * 8 + 64; }
};
Int8Kernels int8_kernels_avx2();     // by AVX2, which the caller has looked for

// Products of bfloat16, two numbers in 32 bits.
struct BFloat16Block {
  Index rows, pairs;                 // pairs: of inputs, a multiple of kTile
  const std::uint32_t* x;            // [rows][pairs]
  Index groups;
  const std::uint32_t* w;            // [groups][pairs][64]
  float* y;                          // [rows][groups * 64], y_row apart
  Index y_row;
};
using BFloat16Kernel = void (*)(const BFloat16Block&);
BFloat16Kernel bfloat16_kernel_amx();   // nullptr where there is none
struct BFloat16Kernels {
  void (*round)(const float* x, Index count, Index pairs, std::uint32_t* to) = nullptr;   // to the nearest, and zeros up to so many pairs
  BFloat16Kernel multiply = nullptr;
};
BFloat16Kernels bfloat16_kernels();     // by AMX or the dot products of AVX512-BF16; nullptr where the processor has neither

}  // namespace heed
