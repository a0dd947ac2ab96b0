// SPDX-License-Identifier: Apache-2.0
// Mask: which memory position s each query row t of sentence b may attend to. 1 = may (PyTorch's attn_mask of
// nn.MultiheadAttention has the other sense). Fused kernels skip by it; they never add -inf.
// Scores have shape [B, ..., T, S], or [B, S] for lengths and allowed: lengths go with the first axis, causal and window with the last two.
// allowed broadcasts as in NumPy, from the last axis: for scores [B, H, T, S] one per sentence is [B, 1, T, S], for its words [B, 1, 1, S].
#pragma once
#include <algorithm>
#include <optional>

#include "tensor/tensor.h"

namespace heed {

class Mask {
 public:
  Mask() = default;                                                 // everything allowed
  static Mask lengths(Tensor lengths);                              // i32 [B]: s < lengths[b]
  static Mask causal(Index offset = 0);                             // s <= t + offset; offset = number of cached positions
  static Mask window(Index left, Index right, Index offset = 0);    // t + offset - left <= s <= t + offset + right
  static Mask allowed(Tensor allowed);                              // u8, broadcast to the scores' shape
  friend Mask operator&(const Mask& a, const Mask& b);              // both must allow; explicit parts are merged. Error: both have lengths

  bool everything() const { return !lengths_.defined() && !allowed_.defined() && !left_ && !right_; }
  bool only_lengths() const { return !allowed_.defined() && !left_ && !right_; }                            // or nothing at all
  bool only_causal() const { return !allowed_.defined() && !left_ && right_ == Index{0}; }                  // and lengths
  const Tensor& lengths() const { return lengths_; }
  const Tensor& allowed() const { return allowed_; }

  // Allowed positions of row t in sentence b before the explicit part: [first, last) within [0, S).
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
};

}  // namespace heed
