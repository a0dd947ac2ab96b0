// SPDX-License-Identifier: Apache-2.0
// The reading half of recurrent encoder-decoders: embedding, then a stack of recurrent layers in one or two directions.
#pragma once
#include "models/seq2seq.h"
#include "nn/embedding.h"
#include "nn/recurrent.h"

namespace heed {

// What a decoder gets to know of the sources, once a sentence.
struct Encoded {
  Variable states;                       // [B, S, M], M = width x directions; 0 at padding
  Mask mask;                             // lengths
  List<RecurrentState> last;             // after the last word read, a layer each   h [B, n], for LSTMs c [B, n]
  // the same of the other direction, which ends at the first word (with reverse_source at the last); none in one direction
  List<RecurrentState> backward;
};

struct RecurrentEncoder {
  struct Options {
    RecurrentUnit unit = RecurrentUnit::gru_bahdanau;
    Index embedding = 0, width;          // width of a direction
    Index layers = 1;
    bool bidirectional = true;
    bool reverse_source = false;         // x_len .. x_1 (Sutskever et al. 2014, arXiv 1409.3215, 3.3); the states come back in source order
    double dropout = 0;                  // between layers
  };
  RecurrentEncoder(Scope scope, Options options);
  Encoded operator()(const Embedding& embedding, double dropout, const Sequences& source) const;

  RecurrentLayers layers;
  Options options;
};

}  // namespace heed
