// SPDX-License-Identifier: Apache-2.0
// Both operands are packed as pairs of k, 32 bits each:
//   strip   up to 14 rows of a     [pairs][16];  for AMX 16 rows, [pairs / 16][16 rows][16]
//   panel   32 columns of b        [pairs][2][16]
// block of k after block of k, so that what a block needs lies together; pairs up to a multiple of 16, zeros beyond k.
#include "tensor/gemm_bfloat16.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "tensor/amx.h"
#include "tensor/cut.h"
#include "tensor/format.h"
#include "tensor/test_hooks.h"

#if defined(__x86_64__)
#include <utility>

#include "tensor/bfloat16-inl.h"

namespace heed {
namespace {

using Pair = std::uint32_t;       // elements 2k and 2k + 1 of a row of a, of a column of b
constexpr Index kUnit = 16;       // columns of a packed strip or half panel
constexpr Index kRows = 14, kWidth = 2 * kUnit;   // of a tile: 28 sums, 2 vectors of b, 1 broadcast of a in 32 registers
constexpr Index kDepth = 512;     // of a block
constexpr Index kBlock = 256;     // rows and columns of a block of c
constexpr Index kGroup = kBlock / kUnit;   // most units that are packed at a time
constexpr Index kMostPacked = Index(16) << 20;    // bytes

constexpr Index padded(Index depth) { return divide_up(depth, kWidth) * kWidth; }   // to whole steps of AMX

// ---- kernels --------------------------------------------------------------------------------------------------------

// c [rows, columns] (=|+=) Σ over pairs, columns <= 16 kVectors. g++ 12 keeps the sums in registers with these pragmas only.
template <int kTileRows, int kVectors>
HEED_BFLOAT16 void tile(Index pairs, const Pair* a, const Pair* b, float* c, Index c_row, Index columns, bool add) {
  const auto last = __mmask16(0xffffu >> (kUnit * kVectors - columns));
  __m512 sum[kTileRows][kVectors];
  HWY_UNROLL(16) for (int r = 0; r < kTileRows; ++r)
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
      float* const to = c + r * c_row + v * kUnit;
      sum[r][v] = add ? _mm512_maskz_loadu_ps(v + 1 == kVectors ? last : __mmask16(0xffff), to) : _mm512_setzero_ps();
      __builtin_prefetch(to, 1);
    }
  for (Index k = 0; k < pairs; ++k, a += kUnit, b += kWidth) {
    __m512i bk[kVectors];
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) bk[v] = _mm512_loadu_si512(b + v * kUnit);
    HWY_UNROLL(16) for (int r = 0; r < kTileRows; ++r) {
      const __m512i ar = _mm512_set1_epi32(int(a[r]));
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)ar, (__m512bh)bk[v]);
    }
  }
  HWY_UNROLL(16) for (int r = 0; r < kTileRows; ++r)
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
      float* const to = c + r * c_row + v * kUnit;
      if (v + 1 < kVectors || last == 0xffff) _mm512_storeu_ps(to, sum[r][v]);
      else _mm512_mask_storeu_ps(to, last, sum[r][v]);
    }
}

using Tile = void (*)(Index, const Pair*, const Pair*, float*, Index, Index, bool);

template <int kVectors, std::size_t... kRow> Tile pick(Index rows, std::index_sequence<kRow...>) {
  static constexpr Tile table[] = {&tile<int(kRow) + 1, kVectors>...};
  return table[rows - 1];
}

Tile tile_of(Index rows, Index columns) {
  return columns > kUnit ? pick<2>(rows, std::make_index_sequence<kRows>()) : pick<1>(rows, std::make_index_sequence<kRows>());
}

HEED_BFLOAT16 __m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// 16 x 16 pairs are turned: by 1, by 2, by 4 and by 8.
HEED_BFLOAT16 HWY_INLINE void turn(__m512i (&w)[16]) {
  __m512i t[16];
  HWY_UNROLL(16)
  for (int i = 0; i < 16; i += 2) t[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]),
                                  t[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
  HWY_UNROLL(16) for (int i = 0; i < 16; i += 4) {
    w[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), w[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    w[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), w[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  HWY_UNROLL(16) for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0x88), t[i + 4] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0x88), t[i + 12] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0xdd);
  }
  HWY_UNROLL(16)
  for (int i = 0; i < 8; ++i) w[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88),
                              w[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
}

// The same for `blocks` strips of 16 pairs, in their places.
HEED_BFLOAT16 void turn_blocks(Index blocks, Pair* strip) {
  for (; blocks > 0; --blocks, strip += kUnit * kUnit) {
    __m512i w[16];
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) w[i] = _mm512_loadu_si512(strip + i * kUnit);
    turn(w);
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) _mm512_storeu_si512(strip + i * kUnit, w[i]);
  }
}

// dst[k * pitch + i] = pair k of line i, i < 16, lines `line` apart, each of `depth` numbers in a row; beyond the last line anything.
// by_lines: dst[(k / 16 * 16 + i) * pitch + k % 16]
HEED_BFLOAT16 void pack_rows(const float* x, Index line, Index lines, Index depth, Index pitch, bool by_lines, Pair* dst) {
  for (Index k = 0; k < depth; k += kWidth) {
    const Index left = std::min(depth - k, kWidth);
    const auto low = __mmask16(left >= kUnit ? 0xffffu : 0xffffu >> (kUnit - left)),
               high = __mmask16(left <= kUnit ? 0 : 0xffffu >> (kWidth - left));
    __m512i w[16];
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) {
      const float* const from = x + std::min<Index>(i, lines - 1) * line + k;
      w[i] = rounded(_mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from + kUnit));
    }
    if (!by_lines) turn(w);
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) _mm512_storeu_si512(dst + (k / 2 + i) * pitch, w[i]);
  }
}

// The same for lines side by side: `lines` of them in units of `height`, one to each dst.
HEED_BFLOAT16 void pack_beside(const float* x, Index step, Index lines, Index height, Index depth, Index pitch, Pair* const* dst) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                         18, 2, 17, 1, 16, 0);
  for (Index k = 0; k < padded(depth); k += 2) {
    const float *const here = x + std::min(k, depth - 1) * step, *const next = x + std::min(k + 1, depth - 1) * step;
    const auto has_here = __mmask16(k < depth ? 0xffff : 0), has_next = __mmask16(k + 1 < depth ? 0xffff : 0);
    Index unit = 0;
    for (Index left = lines; left > 0; left -= height, ++unit) {
      const float *const even = here + unit * height, *const odd = next + unit * height;
      __builtin_prefetch(even + 8 * step);
      __builtin_prefetch(odd + 8 * step);
      const auto mask = __mmask16(left >= kUnit ? 0xffffu : 0xffffu >> (kUnit - left));
      const __m512i both = rounded(_mm512_maskz_loadu_ps(mask & has_here, even), _mm512_maskz_loadu_ps(mask & has_next, odd));
      _mm512_storeu_si512(dst[unit] + k / 2 * pitch, _mm512_permutexvar_epi16(order, both));
    }
  }
}

// ---- one operand ----------------------------------------------------------------------------------------------------

// Rows of a or columns of b, k numbers each, in units of `height`, `together` units a panel; by_lines: [pairs / 16][16 lines][16].
struct Lines {
  const float* x;
  Index line, step;               // strides
  Index count, height, together;
  bool by_lines;

  Index units() const { return divide_up(count, height); }
  Index padded_units() const { return round_up(units(), together); }
  Pair* place(Index unit, Index k, Index pairs, Pair* packed) const {
    return packed + kUnit * (k / 2 * padded_units() + unit / together * together * pairs + unit % together);
  }
  // Units [first, last) of the block [k, k + depth), at most kGroup.
  void pack(Index first, Index last, Index k, Index depth, Pair* packed) const {
    const Index pairs = padded(depth) / 2, pitch = kUnit * together;
    const float* const from = x + k * step;
    if (line == 1) {
      Pair* to[kGroup];
      for (Index unit = first; unit < last; ++unit) to[unit - first] = place(unit, k, pairs, packed);
      pack_beside(from + first * height, step, std::min(count, last * height) - first * height, height, depth, pitch, to);
      for (Index unit = first; by_lines && unit < last; ++unit) turn_blocks(pairs / kUnit, place(unit, k, pairs, packed));
      return;
    }
    for (Index unit = first; unit < last; ++unit) {
      const float* const lines = from + unit * height * line;
      const Index some = std::min(height, count - unit * height);
      Pair* const to = place(unit, k, pairs, packed);
      if (step == 1) {
        pack_rows(lines, line, some, depth, pitch, by_lines, to);
      } else {
        float buffer[kUnit * kWidth];
        for (Index l = 0; l < depth; l += kWidth) {
          const Index left = std::min(depth - l, kWidth);
          for (Index i = 0; i < some; ++i)
            for (Index j = 0; j < left; ++j) buffer[i * kWidth + j] = lines[i * line + (l + j) * step];
          pack_rows(buffer, kWidth, some, left, pitch, by_lines, to + l / 2 * pitch);
        }
      }
    }
  }
};

// ---- whole products -------------------------------------------------------------------------------------------------

// c [rows, columns] (=|+=) strip panel, for AMX two strips; through a buffer where columns of c lie apart or whole tiles do not fit.
void multiply_tile(bool amx, Index rows, Index columns, Index depth, const Pair* a, const Pair* b, float* c, Index c_row, Index c_column,
                   bool add) {
  const bool in_place = c_column == 1 && (!amx || (columns == kWidth && rows % kUnit == 0));
  alignas(64) float buffer[kWidth * kWidth];
  float* const to = in_place ? c : buffer;
  const Index to_row = in_place ? c_row : kWidth, pairs = padded(depth) / 2;
  for (Index r = 0; !in_place && add && r < rows; ++r)
    for (Index j = 0; j < columns; ++j) buffer[r * kWidth + j] = c[r * c_row + j * c_column];
  if (amx)
    multiply_bfloat16_tiles({.rows = rows > kUnit ? 2 * kUnit : kUnit, .steps = pairs / kUnit,
                             .a = a, .a_row = 4 * kUnit, .a_step = 4 * kUnit * kUnit, .a_second = 4 * kUnit * pairs,
                             .b = b, .b_row = 4 * kWidth, .b_step = 4 * kWidth * kUnit,
                             .c = to, .c_row = 4 * to_row, .add = add});
  else
    tile_of(rows, columns)(divide_up(depth, 2), a, b, to, to_row, columns, add);
  for (Index r = 0; !in_place && r < rows; ++r)
    for (Index j = 0; j < columns; ++j) c[r * c_row + j * c_column] = buffer[r * kWidth + j];
}

// Packs both operands whole, then makes blocks of c of about 256 x 256, all k of a block in one thread.
void multiply_part(const Product<float>& p, Finish<float> finish) {
  const bool amx = has_amx();
  const Index tile_strips = amx ? 2 : 1;
  const Lines a{p.a, p.a_row, p.a_k, p.m, amx ? kUnit : kRows, 1, amx}, b{p.b, p.b_column, p.b_k, p.n, kUnit, 2, false};
  const Index blocks = std::max<Index>(1, divide_up(p.k, kDepth)), depth = padded(divide_up(p.k, blocks));
  const Index all_pairs = padded(p.k) / 2, a_size = kUnit * a.padded_units() * all_pairs;
  const Storage storage(std::size_t(a_size + kUnit * b.padded_units() * all_pairs) * sizeof(Pair) + 64);
  Pair* const a_packed = reinterpret_cast<Pair*>(storage.data());
  Pair* const b_packed = a_packed + a_size;
  const double seconds = double(p.m) * double(p.n) * double(p.k) / (amx ? 400e9 : 100e9);

  const Index group = std::clamp<Index>(blocks * (a.units() + b.units()) / (2 * threads()), 4, kGroup);
  const Index a_groups = divide_up(a.units(), group), groups = a_groups + divide_up(b.units(), group);
  run_chunks(seconds > kHandOff, p.k > 0 ? blocks * groups : 0, [&](Index chunk) {
    const Index k = chunk / groups * depth, some = std::min(depth, p.k - k), at = chunk % groups;
    const Lines& lines = at < a_groups ? a : b;
    const Index first = (at < a_groups ? at : at - a_groups) * group;
    lines.pack(first, std::min(first + group, lines.units()), k, some, at < a_groups ? a_packed : b_packed);
  });

  // Columns narrower than a block where there are too few tiles of rows
  const Index tall = tile_strips * a.height, tiles = divide_up(p.m, tall), unit = Finish<float>::kFinishColumns,
              units = divide_up(p.n, unit);
  const Index wanted = pieces(seconds, tiles * units);
  const Cut columns{p.n, unit, std::clamp(divide_up(wanted, tiles), divide_up(p.n, kBlock), units)};
  const Cut rows{p.m, tall, std::clamp(divide_up(wanted, columns.parts), divide_up(p.m, kBlock), tiles)};
  run_chunks(seconds > kHandOff, rows.parts * columns.parts, [&](Index chunk) {
    std::optional<AmxTiles> use;
    if (amx) use.emplace();
    const Index row_part = chunk / columns.parts, first = rows.begin(row_part), last = first + rows.size(row_part);
    const Index column_part = chunk % columns.parts, column = columns.begin(column_part), end = column + columns.size(column_part);
    for (Index block = 0; block < blocks; ++block) {
      const Index k = block * depth, some = std::min(depth, p.k - k), pairs = padded(some) / 2;
      for (Index j = column; j < end; j += kWidth)
        for (Index row = first; row < last; row += tall)
          multiply_tile(amx, std::min(tall, last - row), std::min(kWidth, end - j), some, a.place(row / a.height, k, pairs, a_packed),
                        b.place(j / kUnit, k, pairs, b_packed), p.c + row * p.c_row + j * p.c_column, p.c_row, p.c_column,
                        p.add || block > 0);
    }
    finish(p.c + first * p.c_row + column * p.c_column, p.c_row, first, last - first, column, end - column);
  });
}

std::atomic<bool> hidden = false;

}  // namespace

void hide_bfloat16_products(bool hide) { hidden = hide; }

bool has_bfloat16_products() {
  static const bool there = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return there && !hidden;
}

void multiply_bfloat16(const Product<float>& product, Finish<float> finish) {
  check<Error>(has_bfloat16_products(), "bfloat16 products: this processor has no AVX512-BF16; Precision::float32");
  if (product.m == 0 || product.n == 0) return;
  Product<float> p = product.c_column != 1 && product.c_row == 1 && !finish ? transposed(product) : product;
  // what is packed at a time: the sums go on where they were
  const Index most = std::max(kMostPacked / 2 / (p.m + p.n) / kDepth, Index(1)) * kDepth;
  for (; p.k > most; p.k -= most, p.a += most * p.a_k, p.b += most * p.b_k, p.add = true) {
    Product<float> part = p;
    part.k = most;
    multiply_part(part, {});
  }
  multiply_part(p, finish);
}

}  // namespace heed
#else
namespace heed {
void hide_bfloat16_products(bool) {}
bool has_bfloat16_products() { return false; }
void multiply_bfloat16(const Product<float>&, Finish<float>) {
  fail<Error>("bfloat16 products: this processor has no AVX512-BF16; Precision::float32");
}
}  // namespace heed
#endif

namespace heed {
namespace {
thread_local Precision precision_here = Precision::float32;
}

bool gains_by_bfloat16(Index m, Index n, Index k) { return std::min({m, n, k}) >= 16; }

ProductPrecision::ProductPrecision(Precision precision) : previous_(precision_here) {
  check<Error>(precision != Precision::int8, "product precision: int8 is for inference; float32 or bfloat16");
  check<Error>(precision != Precision::bfloat16 || has_bfloat16_products(),
               "product precision: bfloat16 needs AVX512-BF16, which this processor lacks; float32");
  precision_here = precision;
}
ProductPrecision::~ProductPrecision() { precision_here = previous_; }
Precision product_precision() { return precision_here; }

}  // namespace heed
