// SPDX-License-Identifier: Apache-2.0
// AMX, which Highway 1.0.3 does not reach: eight tiles of 16 rows of 64 bytes a core, and products of two tiles. x86-64 Linux.
#pragma once
#include "tensor/shape.h"

namespace heed {

bool has_amx();   // whether processor and system have it, for bfloat16 and int8

// While it lives this thread has the tiles. Then they are released, or every change of threads would save their 8 KiB.
class [[nodiscard]] AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// c [rows, 32] (=|+=) a b, in steps of 64 bytes of each row of a: 32 numbers of bfloat16, 64 of 8 bits. Strides in bytes.
struct AmxProduct {
  Index rows, steps;                   // rows: 16 or 32
  const void* a;
  Index a_row, a_step, a_second;       // a_second: from the first 16 rows to the others
  const void* b;                       // a step: 16 pairs (fours of 8 bits) of k, each of 32 columns
  Index b_row, b_step;
  void* c;
  Index c_row;
  bool add;
};
// Sums in f32. Of the 32 products of a step those of even k make a chain in rising k, those of odd k another; both together are
// added to c. Numbers below 2^-126 count as 0.
void multiply_bfloat16_tiles(const AmxProduct& p);
// a unsigned, b signed, sums in i32.
void multiply_int8_tiles(const AmxProduct& p);

}  // namespace heed
