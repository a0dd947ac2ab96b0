// SPDX-License-Identifier: Apache-2.0
// The integer product with AVX2: Σ |x| (w with the sign of x), so that the sum of two products of bytes fits into 16 bits. All bits of w
// are turned where x is negative, which gives -w - 1; Σ |x| over these x comes on top.
#include "tensor/low_precision.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

namespace heed {
namespace {

// g++ 12 keeps __m256i accumulators in memory, these in registers.
typedef int Lanes __attribute__((vector_size(32)));
typedef long long Longs __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));
typedef float UnalignedFloats __attribute__((vector_size(32), aligned(4), may_alias));

#define HEED_AVX2 __attribute__((target("avx2")))

HEED_AVX2 void split(Index quads, std::uint8_t* row) {
  static_assert(LowPrecisionWeight::kTile % 8 == 0);   // quads is a multiple
  const __m256i middle = _mm256_set1_epi8(char(128)), zero = _mm256_setzero_si256();
  __m256i below = zero;
  for (Index k = 0; k < quads; k += 8) {
    const __m256i u = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + (quads + k) * 4)), middle),
                  size = _mm256_abs_epi8(u);
    const __m256i turned = _mm256_cmpgt_epi8(zero, u), low = _mm256_unpacklo_epi32(turned, size),
                  high = _mm256_unpackhi_epi32(turned, size);
    below = _mm256_add_epi64(below, _mm256_sad_epu8(_mm256_and_si256(turned, size), zero));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + k * 8), _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + k * 8 + 32), _mm256_permute2x128_si256(low, high, 0x31));
  }
  const auto sums = (Longs)below;
  const auto sum = int(sums[0] + sums[1] + sums[2] + sums[3]);
  std::memcpy(row + quads * 8, &sum, sizeof sum);
}

HEED_AVX2 inline __m256i four(const std::uint8_t* bytes) {
  int word;
  std::memcpy(&word, bytes, 4);
  return _mm256_set1_epi32(word);
}

// y[r, o] = t_r s_o Σ_k x[r, k] w[o, k] + bias_o for kRows rows and 8 kVectors outputs
template <int kRows, int kVectors> HEED_AVX2 void tile(const Int8Block& b, Index row, Index output) {
  constexpr Index kGroup = LowPrecisionWeight::kGroup;
  constexpr int kSteps = 4;            // quads is a multiple
  const Index row_bytes = Int8Kernels::split_bytes(b.quads);
  const std::uint8_t* x = b.x + row * row_bytes;
  const std::int8_t* w = b.w + (output / kGroup * kGroup * b.quads + output % kGroup) * 4;
  const __m256i ones = _mm256_set1_epi16(1);
  Lanes acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) acc[r][v] = (Lanes)four(x + r * row_bytes + b.quads * 8);
  for (Index k = 0; k < b.quads; k += kSteps, x += 8 * kSteps, w += kGroup * 4 * kSteps) {
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      __m256i wk[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) wk[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + step * kGroup * 4 + v * 32));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const std::uint8_t* const from = x + r * row_bytes + step * 8;
        const __m256i turned = four(from), size = four(from + 4);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          acc[r][v] += (Lanes)_mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_xor_si256(wk[v], turned)), ones);
          asm("" : "+x"(acc[r][v]));   // else g++ 12 adds steps up by themselves first, in memory
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const Index o = output + v * 8;
    const Floats s = *reinterpret_cast<const UnalignedFloats*>(b.s + o);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats y = __builtin_convertvector(acc[r][v], Floats) * b.t[row + r] * s;
      *reinterpret_cast<UnalignedFloats*>(b.y + (row + r) * b.y_row + o) =
          b.bias ? y + *reinterpret_cast<const UnalignedFloats*>(b.bias + o) : y;
    }
  }
}

// Rows in pairs, since two by four vectors of sums and what makes them fill 16 registers.
void multiply_avx2(const Int8Block& b) {
  const Index outputs = b.groups * LowPrecisionWeight::kGroup, pairs = b.rows / 2 * 2;
  for (Index output = 0; output < outputs && pairs > 0; output += 32)
    for (Index row = 0; row < pairs; row += 2) tile<2, 4>(b, row, output);
  for (Index output = 0; output < outputs && pairs < b.rows; output += 64) tile<1, 8>(b, pairs, output);
}

}  // namespace

Int8Kernels int8_kernels_avx2() { return {&multiply_avx2, &split}; }

}  // namespace heed
#else
heed::Int8Kernels heed::int8_kernels_avx2() { return {}; }
#endif
