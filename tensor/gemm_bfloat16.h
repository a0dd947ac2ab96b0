// SPDX-License-Identifier: Apache-2.0
// Products of f32 matrices whose elements are rounded to bfloat16 on their way into the product, sums in f32: where the processor
// has AVX512-BF16, faster with AMX. This is what mixed precision training multiplies with.
#pragma once
#include "tensor/gemm.h"
#include "tensor/precision.h"

namespace heed {

bool has_bfloat16_products();   // whether this processor and system have AVX512-BF16

// multiply() with a[i, k] and b[k, j] rounded to the nearest bfloat16, ties to even: each element is one chain in rising k, two
// products a step by VDPBF16PS, or 32 a step by AMX (tensor/amx.h), which take numbers below 2^-126 for 0, operands and sums alike.
// NaN and infinity pass. Tiles, blocks, strides and threads leave the bits alone. Error without AVX512-BF16.
void multiply_bfloat16(const Product<float>& product, Finish<float> finish = {});

// Whether rounding and packing cost less than they gain; follows the sizes alone.
bool gains_by_bfloat16(Index m, Index n, Index k);

// While it lives, multiply() on this thread takes f32 operands in this precision where they gain by it; small products, and
// those inside of attention and recurrent steps, which do not come by multiply(), stay in f32. f64 stays f64.
class [[nodiscard]] ProductPrecision {
 public:
  explicit ProductPrecision(Precision precision);   // float32 or bfloat16; Error without AVX512-BF16
  ~ProductPrecision();
  ProductPrecision(const ProductPrecision&) = delete;
  ProductPrecision& operator=(const ProductPrecision&) = delete;

 private:
  Precision previous_;
};
Precision product_precision();  // on this thread

}  // namespace heed
