// SPDX-License-Identifier: Apache-2.0
// The integer product with AVX512-VNNI, which Highway 1.0.3 does not reach.
#include "tensor/low_precision.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

namespace heed {
namespace {

// g++ 12 keeps __m512i accumulators in memory, these in registers.
typedef int Lanes __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));
typedef int UnalignedLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float UnalignedFloats __attribute__((vector_size(64), aligned(4), may_alias));

#define HEED_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

// y[r, o] = t_r s_o (Σ_k x[r, k] w[o, k] - 128 Σ_k w[o, k]) + bias_o for kRows rows and one group.
template <int kRows> HEED_VNNI void tile(const Int8Block& b, Index row, Index group) {
  Lanes acc[kRows][4] = {};
  const std::uint8_t* x = b.x + row * b.quads * 4;
  const std::int8_t* w = b.w + group * b.quads * 256;
  for (Index k = 0; k < b.quads; ++k, x += 4, w += 256) {
    __m512i wk[4];
#pragma GCC unroll 16
    for (int v = 0; v < 4; ++v) wk[v] = _mm512_loadu_si512(w + v * 64);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int four;
      __builtin_memcpy(&four, x + r * b.quads * 4, 4);
#pragma GCC unroll 16
      for (int v = 0; v < 4; ++v) acc[r][v] = (Lanes)_mm512_dpbusd_epi32((__m512i)acc[r][v], _mm512_set1_epi32(four), wk[v]);
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < 4; ++v) {
    const Index o = group * 64 + v * 16;
    const Lanes sums = *reinterpret_cast<const UnalignedLanes*>(b.sums + o) * 128;
    const Floats s = *reinterpret_cast<const UnalignedFloats*>(b.s + o);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats y = __builtin_convertvector(acc[r][v] - sums, Floats) * b.t[row + r] * s;
      *reinterpret_cast<UnalignedFloats*>(b.y + (row + r) * b.y_row + o) =
          b.bias ? y + *reinterpret_cast<const UnalignedFloats*>(b.bias + o) : y;
    }
  }
}

constexpr void (*kTiles[])(const Int8Block&, Index, Index) = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

void multiply_vnni(const Int8Block& b) {
  for (Index group = 0; group < b.groups; ++group)
    for (Index row = 0; row < b.rows; row += 6) kTiles[std::min<Index>(6, b.rows - row) - 1](b, row, group);
}

}  // namespace

Int8Kernel int8_kernel_vnni() {
  static const bool there = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return there ? &multiply_vnni : nullptr;
}

}  // namespace heed
#else
heed::Int8Kernel heed::int8_kernel_vnni() { return nullptr; }
#endif
