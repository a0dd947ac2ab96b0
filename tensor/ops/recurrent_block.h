// SPDX-License-Identifier: Apache-2.0
// Some sentences on their way through a recurrent layer, in one thread: for tensor/ops/recurrent.cc.
#pragma once
#include "tensor/cut.h"
#include "tensor/ops/recurrent_step.h"

namespace heed {

// Sentences that go through time together, the longest first. Row s of sentence r is row first[r] + s of gates.
template <class T> struct RecurrentBlock {
  RecurrentUnit unit;
  RecurrentKernels<T> kernels;         // of it
  Index n;
  Index rows = 0;                      // rows, and where their sentences are, in a block
  const Index *sentence = nullptr, *length = nullptr, *first = nullptr;
  bool reverse;
  const T* panels;                     // of W_hh, packed for the direction
  Index width;                         // of a panel
  void (*product)(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row);
  const T* bias = nullptr;             // b_hh where it is not in the gates already
  T *gates, *previous_h, *previous_c, *kept;   // the last three null unless remembered
  T* outputs;                          // or their gradient
  Index output_sentence, output_step;  // strides
  T *h, *c;                            // [B, n]: initial, then last; or their gradients, last, then initial
  T* scratch = nullptr;
};

// All steps of a block, and all of them backwards; float, double.
template <class T> void forward_through_time(const RecurrentBlock<T>& block);
template <class T> void backward_through_time(const RecurrentBlock<T>& block);

Index recurrent_scratch(RecurrentUnit unit, Index n, Index rows, Index width);   // elements a block needs

}  // namespace heed
