// SPDX-License-Identifier: Apache-2.0
#include "tensor/amx.h"

#include <atomic>

#include "tensor/test_hooks.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HEED_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

namespace heed {
namespace {

// Intel 64 manual, LDTILECFG: eight tiles of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Configuration kConfiguration;

std::atomic<bool> hidden = false;

HEED_AMX void configure() { _tile_loadconfig(&kConfiguration); }
HEED_AMX void release() { _tile_release(); }

// Tiles 0 to 3 hold c, 4 and 5 rows of a, 6 and 7 columns of b.
template <bool kInteger, bool kSecond> HEED_AMX void multiply(const AmxProduct& p) {
  const auto* a = static_cast<const char*>(p.a);
  const auto* b = static_cast<const char*>(p.b);
  auto* const c = static_cast<char*>(p.c);
  auto* const second = c + 16 * p.c_row;
  asm volatile("" ::: "memory");   // g++ 12 does not know that tiles read memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (p.add) {
    _tile_loadd(0, c, p.c_row);
    _tile_loadd(1, c + 64, p.c_row);
    if constexpr (kSecond) {
      _tile_loadd(2, second, p.c_row);
      _tile_loadd(3, second + 64, p.c_row);
    }
  }
  for (Index step = 0; step < p.steps; ++step, a += p.a_step, b += p.b_step) {
    _tile_loadd(4, a, p.a_row);
    _tile_loadd(6, b, p.b_row);
    _tile_loadd(7, b + 64, p.b_row);
    if constexpr (kSecond) _tile_loadd(5, a + p.a_second, p.a_row);
    if constexpr (kInteger) {
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 4, 7);
      if constexpr (kSecond) {
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      }
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kSecond) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, c, p.c_row);
  _tile_stored(1, c + 64, p.c_row);
  if constexpr (kSecond) {
    _tile_stored(2, second, p.c_row);
    _tile_stored(3, second + 64, p.c_row);
  }
}

}  // namespace

void hide_amx(bool hide) { hidden = hide; }

bool has_amx() {
  static const bool there = [] {
    constexpr unsigned kAll = 1u << 22 | 1u << 24 | 1u << 25;          // AMX-BF16, AMX-TILE, AMX-INT8
    constexpr long kRequestPermission = 0x1023, kTileData = 18;        // ARCH_REQ_XCOMP_PERM, for the whole process
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAll) == kAll && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return there && !hidden;
}

AmxTiles::AmxTiles() { configure(); }
AmxTiles::~AmxTiles() { release(); }

void multiply_bfloat16_tiles(const AmxProduct& p) { p.rows > 16 ? multiply<false, true>(p) : multiply<false, false>(p); }
void multiply_int8_tiles(const AmxProduct& p) { p.rows > 16 ? multiply<true, true>(p) : multiply<true, false>(p); }

}  // namespace heed
#else
namespace heed {
void hide_amx(bool) {}
bool has_amx() { return false; }
AmxTiles::AmxTiles() {}
AmxTiles::~AmxTiles() {}
void multiply_bfloat16_tiles(const AmxProduct&) {}
void multiply_int8_tiles(const AmxProduct&) {}
}  // namespace heed
#endif
