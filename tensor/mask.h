// SPDX-License-Identifier: Apache-2.0
// Mask: which memory position s each query row t of sentence b may attend to. 1 = may (PyTorch's attn_mask of
// nn.MultiheadAttention has the other sense). Fused kernels skip by it; they never add -inf.
// Scores have shape [B, ..., T, S], or [B, S] for lengths and allowed: lengths go with the first axis, causal and window with the last two,
// a sliding window with [B, H, T, S].
// allowed broadcasts as in NumPy, from the last axis: for scores [B, H, T, S] one per sentence is [B, 1, T, S], for its words [B, 1, 1, S],
// while [B, T, S], which would go with the heads, is refused.
#pragma once
#include <algorithm>
#include <optional>

#include "tensor/tensor.h"

namespace heed {

// What self-attention sees in Longformer (Beltagy et al. 2020, arXiv 2004.05150, 3.1): row t stands at position i = t + offset and sees
// s = i + m g,  -left <= m <= right, in head h with a gap g = dilation[h], and s < global whatever the window.
struct SlidingWindow {
  Index left, right, offset = 0;                                    // so many of them to each side: they reach g times as far
  Tensor dilation = {};                                             // i32 [H], at least 1; undefined: 1 in every head
  Index global = 0;                                                 // first positions that all see
};

class Mask {
 public:
  Mask() = default;                                                 // everything allowed
  static Mask lengths(Tensor lengths);                              // i32 [B]: s < lengths[b]; not compared with S
  static Mask causal(Index offset = 0);                             // s <= t + offset; offset = number of cached positions
  static Mask window(Index left, Index right, Index offset = 0);    // t + offset - left <= s <= t + offset + right
  // Error: sizes, dilation. Without gaps and global positions it is window()
  static Mask sliding(SlidingWindow window);
  static Mask allowed(Tensor allowed);                              // u8, broadcast to the scores' shape
  // both must allow; explicit parts are merged. Error: both have lengths, or sliding windows
  friend Mask operator&(const Mask& a, const Mask& b);

  bool everything() const { return only_lengths() && !lengths_.defined(); }
  bool only_lengths() const { return !allowed_.defined() && !left_ && !right_ && !sliding_; }               // or nothing at all
  bool only_causal() const { return !allowed_.defined() && !left_ && right_ == Index{0} && !sliding_; }     // and lengths
  bool differs_by_head() const { return allowed_.defined() || (sliding_ && sliding_->dilation.defined()); } // it may
  const Tensor& lengths() const { return lengths_; }
  const Tensor& allowed() const { return allowed_; }
  const std::optional<SlidingWindow>& sliding() const { return sliding_; }

  // Allowed positions of row t in sentence b before the explicit part and the sliding window: [first, last) within [0, S).
  struct Range { Index first, last; };
  Range range(Index b, Index t, Index S) const {
    Range r{0, S};
    if (lengths_.defined()) r.last = std::min<Index>(r.last, length_data_[b]);
    if (right_) r.last = std::min(r.last, t + *right_ + 1);
    if (left_) r.first = std::max<Index>(0, t - *left_);
    r.last = std::max(r.last, Index{0});
    r.first = std::min(r.first, r.last);
    return r;
  }
  // The same with the sliding window, in head h: every step-th of [first, last), from first on, and [0, front).
  struct Steps { Index first, last, step, front; };
  Steps steps(Index b, Index h, Index t, Index S) const;
  // The sliding window as an explicit part; the slow, obvious form.
  Mask without_sliding(const Shape& scores) const;
  // Of the first `rows` rows of the scores.
  Mask of_first_rows(Index rows) const;
  // What is left of the mask of scores of `rank` dimensions where the batch becomes its sentences `ids`, i64 [B'].
  Mask of_sentences(const Tensor& ids, int rank) const;
  // u8 tensor of the scores' shape; the slow, obvious form.
  Tensor dense(const Shape& scores) const;
  // Throws ShapeError unless the mask fits scores of this shape.
  void check_fits(std::string_view op, const Shape& scores) const;

 private:
  Tensor lengths_, allowed_;
  const std::int32_t* length_data_ = nullptr;
  std::optional<Index> left_, right_;                               // relative to t, offset included
  std::optional<SlidingWindow> sliding_;                            // with gaps or global positions
};

}  // namespace heed
