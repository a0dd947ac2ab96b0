// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <vector>

#include "nn/scope.h"

namespace heed {

// Added to the words (concatenated: tensor2tensor's, its denominator too), or none; then those inside attention: attention/relative.h
enum class Positions { sinusoidal, sinusoidal_concatenated, learned, none, rope, rope_half, alibi, t5, shaw };
inline bool inside_attention(Positions positions) { return positions > Positions::none; }
Positions positions_named(std::string_view name);      // Error lists the names
std::string_view name(Positions positions);
std::vector<std::string_view> position_names();

struct Sinusoids {
  enum class Layout { interleaved, concatenated };     // sin, cos, sin, cos (the paper); all sines, then all cosines (tensor2tensor)
  enum class Denominator { paper, tensor2tensor };     // exponent 2i/d; exponent i/(d/2 - 1)
  Layout layout = Layout::interleaved;
  Denominator denominator = Denominator::paper;
  Index first = 0;                                     // position of row 0; fairseq counts from 2
};

// PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same)    [length, d]    Vaswani et al. 2017, 3.5
// Odd d: interleaved ends in a sine, concatenated in a zero. ShapeError: length < 0, width < 1; DTypeError: neither f32 nor f64; Error:
// a first position beyond what a float of 64 bits counts.
Tensor sinusoids(Index length, Index width, DType dtype = DType::f32, Sinusoids options = {});

// The position rows that are added to the embedded words.
class PositionTable {
 public:
  struct Options {
    Positions kind = Positions::sinusoidal;
    Index width;
    Index length = 1024;        // learned: positions beyond it are an error; sinusoids go on as far as asked
  };
  PositionTable(Scope scope, Options options);

  // Rows [offset, offset + length), [length, d]; undefined for none and those inside attention. For sinusoids a constant. IndexError:
  // negative, or beyond what is learned.
  Variable rows(Index offset, Index length) const;
  bool trained() const { return weight.defined(); }

  Parameter weight;             // learned: `weight` [length, d], N(0, 1/d)
  Path path;

 private:
  Options options_;
  Tensor table_;                // sinusoids, for the first `length` positions
};

}  // namespace heed
