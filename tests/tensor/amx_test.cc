// SPDX-License-Identifier: Apache-2.0
#include "tensor/amx.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/random.h"

using namespace heed;

namespace {

constexpr Index kRows = 32, kColumns = 32, kSteps = 5;

float flushed(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

bool amx_there() {
  if (has_amx()) return true;
  MESSAGE("not tested: this processor or system has no AMX");
  return false;
}

// What lies beyond the product in c stays as it was.
template <class T> struct Sums {
  static constexpr Index kPitch = kColumns + 8;
  std::vector<T> values = std::vector<T>(kRows * kPitch, T(77));
  T& operator()(Index i, Index j) { return values[std::size_t(i * kPitch + j)]; }
};

}  // namespace

TEST_CASE("AMX: bfloat16 is the definition, bit for bit") {
  if (!amx_there()) return;
  Random random(Key(Seed{5}));
  const auto number = [&] {
    return BFloat16(float(random.normal()) * std::exp2(float(random.below(60)) * (random.below(20) ? 0.1f : -2.0f)));
  };
  constexpr Index kDepth = 32 * kSteps;
  std::vector<BFloat16> a(kRows * kDepth), b(kDepth * kColumns);   // [row][k], [k / 2][column][2]
  for (BFloat16& x : a) x = number();
  for (BFloat16& x : b) x = number();
  for (Index rows : {16, 32})
    for (bool add : {false, true}) {
      Sums<float> c, expected;
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < kColumns; ++j) {
          float sum = add ? c(i, j) : 0;
          for (Index step = 0; step < kSteps; ++step) {
            float chains[2] = {0, 0};
            for (Index k = step * 32; k < (step + 1) * 32; ++k) {
              const float x = flushed(float(a[std::size_t(i * kDepth + k)])),
                          y = flushed(float(b[std::size_t((k / 2 * kColumns + j) * 2 + k % 2)]));
              chains[k % 2] = flushed(std::fma(x, y, chains[k % 2]));
            }
            sum = flushed(sum + flushed(chains[0] + chains[1]));
          }
          expected(i, j) = sum;
        }
      const AmxTiles use;
      multiply_bfloat16_tiles({.rows = rows, .steps = kSteps, .a = a.data(), .a_row = kDepth * 2, .a_step = 64, .a_second = 16 * kDepth * 2,
                               .b = b.data(), .b_row = kColumns * 4, .b_step = 16 * kColumns * 4,
                               .c = c.values.data(), .c_row = Sums<float>::kPitch * 4, .add = add});
      Index differ = 0;
      for (std::size_t i = 0; i < c.values.size(); ++i)
        differ += std::bit_cast<std::uint32_t>(c.values[i]) != std::bit_cast<std::uint32_t>(expected.values[i]);
      CHECK(differ == 0);
    }
}

TEST_CASE("AMX: 8 bits, the left without and the right with a sign, sums of 32 bits") {
  if (!amx_there()) return;
  Random random(Key(Seed{6}));
  constexpr Index kDepth = 64 * kSteps;
  std::vector<std::uint8_t> a(kRows * kDepth);
  std::vector<std::int8_t> b(kDepth * kColumns);   // [k / 4][column][4]
  for (std::uint8_t& x : a) x = std::uint8_t(random.below(256));
  for (std::int8_t& x : b) x = std::int8_t(random.below(256) - 128);
  for (Index rows : {16, 32})
    for (bool add : {false, true}) {
      Sums<std::int32_t> c, expected;
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < kColumns; ++j) {
          expected(i, j) = add ? expected(i, j) : 0;
          for (Index k = 0; k < kDepth; ++k)
            expected(i, j) += a[std::size_t(i * kDepth + k)] * b[std::size_t((k / 4 * kColumns + j) * 4 + k % 4)];
        }
      const AmxTiles use;
      multiply_int8_tiles({.rows = rows, .steps = kSteps, .a = a.data(), .a_row = kDepth, .a_step = 64, .a_second = 16 * kDepth,
                           .b = b.data(), .b_row = kColumns * 4, .b_step = 16 * kColumns * 4,
                           .c = c.values.data(), .c_row = Sums<std::int32_t>::kPitch * 4, .add = add});
      CHECK(c.values == expected.values);
    }
}
