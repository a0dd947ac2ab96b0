// SPDX-License-Identifier: Apache-2.0
// The product with AVX512-BF16, which Highway 1.0.3 does not reach.
#include "tensor/gemm_bfloat16.h"
#include "tensor/low_precision.h"

#if defined(__x86_64__)
#include <algorithm>

#include "tensor/bfloat16-inl.h"

namespace heed {
namespace {

HEED_BFLOAT16 void round_row(const float* x, Index count, Index pairs, std::uint32_t* to) {
  for (Index i = 0; i < 2 * pairs; i += 16) {
    const auto some = __mmask16(count - i >= 16 ? 0xffffu : count > i ? 0xffffu >> (16 - (count - i)) : 0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i / 2), (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + i)));
  }
}

// y[r, o] for kRows rows and one group.
template <int kRows> HEED_BFLOAT16 void tile(const BFloat16Block& b, Index row, Index group) {
  __m512 sum[kRows][4];
  HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) HWY_UNROLL(16) for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_setzero_ps();
  const std::uint32_t *x = b.x + row * b.pairs, *w = b.w + group * b.pairs * 64;
  for (Index k = 0; k < b.pairs; ++k, ++x, w += 64) {
    __m512i wk[4];
    HWY_UNROLL(16) for (int v = 0; v < 4; ++v) wk[v] = _mm512_loadu_si512(w + v * 16);
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      const __m512i xk = _mm512_set1_epi32(int(x[r * b.pairs]));
      HWY_UNROLL(16) for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)xk, (__m512bh)wk[v]);
    }
  }
  HWY_UNROLL(16) for (int r = 0; r < kRows; ++r)
    HWY_UNROLL(16) for (int v = 0; v < 4; ++v) _mm512_storeu_ps(b.y + (row + r) * b.y_row + group * 64 + v * 16, sum[r][v]);
}

constexpr void (*kTiles[])(const BFloat16Block&, Index, Index) = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

void multiply_block(const BFloat16Block& b) {
  for (Index group = 0; group < b.groups; ++group)
    for (Index row = 0; row < b.rows; row += 6) kTiles[std::min<Index>(6, b.rows - row) - 1](b, row, group);
}

}  // namespace

BFloat16Kernels bfloat16_kernels() {
  if (!has_bfloat16_products()) return {};
  const BFloat16Kernel amx = bfloat16_kernel_amx();
  return {&round_row, amx ? amx : &multiply_block};
}

}  // namespace heed
#else
heed::BFloat16Kernels heed::bfloat16_kernels() { return {}; }
#endif
