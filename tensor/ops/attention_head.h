// SPDX-License-Identifier: Apache-2.0
// What the kernels of scaled dot-product attention are told of one (sentence, head).
#pragma once
#include <algorithm>
#include <utility>

#include "tensor/dropout.h"
#include "tensor/ops/mask_rows.h"

namespace heed {

template <class T> struct Rows {           // a matrix whose rows are contiguous
  T* data;
  Index stride;
  const std::int64_t* places = nullptr;    // row i stands in matrix places[i] of several, `apart` from one to the next
  Index apart = 0;
  T* operator[](std::size_t row) const { return data + Index(row) * stride + (places ? places[row] * apart : 0); }
  std::size_t end_of_run(std::size_t begin, std::size_t end) const {   // of the rows from `begin` on that lie a stride apart
    if (!places) return end;
    std::size_t row = begin;
    while (row < end && places[row] == places[begin]) ++row;
    return row;
  }
  Rows from(std::size_t row) const { return {data + Index(row) * stride, stride, places ? places + row : nullptr, apart}; }
};

// A tensor [B, H, rows, width] whose rows are contiguous, or [B, H/group, rows, width], each head of which serves a group.
template <class T> struct Heads {
  T* data;
  Index sentence, head, row;               // strides; head is 0 inside a group
  std::size_t rows, width;
  Index group = 1, group_stride = 0;       // group_stride: from one to the next
  const std::int64_t* places = nullptr;    // of sentence b: places + b * places_stride
  Index places_stride = 0;
  Rows<T> at(Index b, Index h) const {
    T* const first = data + (h / group) * group_stride + h % group * head;
    if (places) return {first, row, places + b * places_stride, sentence};
    return {first + b * sentence, row};
  }
};

// What the next heads read and write is fetched while these are computed: the hardware does not see the way from one to the other.
template <class T> struct Ahead {
  const Heads<const T>* matrices;
  std::size_t count;                       // of them; 0: nothing is fetched
  Index b, h, end;                         // heads [h, end)
  std::size_t share;                       // rows at once where queries are few
  const T* idle;                           // in L1: fetched where nothing is left
  std::size_t matrix = 0, column = 0, row = 0;   // what is fetched next, of matrices[matrix]; where queries are more ...
  const T* at = idle;                      // ... first what is left of this run, rows a stride apart
  Index stride = 0;
  std::size_t left = 1;
  void next_run();
};

// A head of a sentence, or several that follow it where queries are few.
template <class T> struct Head {
  std::size_t queries, keys, dk, dv;
  T scale;
  Rows<const T> q, k, v, bias;              // bias data null: none
  bool k_by_columns;                       // k holds the rows of kᵀ
  std::size_t turned;                      // AttentionOptions::turned
  std::size_t heads;
  Index q_head, k_head, v_head, bias_head, output_head;   // strides from one to the next
  const RowMask* mask;                     // a row each, the same in all heads; null: everything
  bool in_steps;                           // the mask
  DropoutKey dropout;
  Index first;                             // index of P[0, 0] for it
  T* log_sum_exp;
  T* scratch;                              // attention_scratch() elements
  Ahead<T>* next;
};

template <class T> struct HeadGrad {
  Rows<const T> output, doutput;
  Rows<const T> dweights;                  // data null: zeros
  Rows<T> dq, dk, dv, dbias;               // data null: not wanted; dbias holds zeros
  bool add_dq, add_dk, add_dv;
};

// A block of keys and values lies in the caches while all queries pass it, 16 at a time. It is a step of the softmax: its size decides
// the bits. The gradient sums over a tile of queries at once.
constexpr std::size_t kKeys = 256, kGroupRows = 16, kTileRows = 64;
constexpr std::size_t kFewQueries = 4;     // up to so many the lanes are keys, beyond they are queries ...
constexpr std::size_t kFewHeads = 4;       // ... so many heads are taken together ...
constexpr std::size_t kPieceKeys = 64;     // ... and keys are met as they are turned, so many that stay in L1
constexpr std::size_t kDrawnKeys = 8;      // of 16 queries: the 128 dropout factors that are drawn at once

constexpr std::size_t padded(std::size_t n) { return round_up(n, 16); }
constexpr std::size_t drawn_keys(std::size_t keys) { return round_up(keys, kDrawnKeys); }
constexpr std::size_t block_keys(std::size_t keys) { return padded(std::min(keys, kKeys)); }
constexpr std::size_t row_stride(std::size_t keys) { return block_keys(keys) + 16; }      // where a row is a query; never a power of two
constexpr std::size_t tile_stride(std::size_t queries) {                                  // where a row is a key
  return queries <= kGroupRows ? kGroupRows : padded(std::min(queries, kTileRows)) + 16;
}

// Scratch memory, given out piece by piece.
template <class T> struct Room {
  T* next;
  T* take(std::size_t elements) { return std::exchange(next, next + padded(elements)); }
};

// Elements of scratch memory: queries, scores, dropout factors, bias and one number a row;
// enough where lanes are queries and where they are keys.
constexpr std::size_t attention_scratch(std::size_t queries, std::size_t keys, std::size_t dk) {
  const std::size_t heads = queries <= kFewQueries ? kFewHeads : 1;   // the last part of many queries may be few
  const std::size_t dk_room = padded(std::max<std::size_t>(dk, 1)),
                    few = heads * (kPieceKeys + kFewQueries) * dk_room + heads * kFewQueries * row_stride(keys);
  return std::max(few, kGroupRows * (padded(dk) + 3 * block_keys(keys)) + padded(queries));
}
// The same with a tile of scores and slopes, gradients of outputs, of weights and of bias.
constexpr std::size_t attention_grad_scratch(std::size_t queries, std::size_t keys, std::size_t dk, std::size_t dv) {
  return kGroupRows * (padded(dk) + padded(dv) + 4 * block_keys(keys)) + 2 * block_keys(keys) * tile_stride(queries) + padded(queries);
}

}  // namespace heed
