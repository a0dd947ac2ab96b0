// SPDX-License-Identifier: Apache-2.0
// A Mask seen by kernels: what each row of the scores may look at.
#pragma once
#include <algorithm>

#include "tensor/mask.h"
#include "tensor/ops/view.h"

namespace heed {

struct RowMask {
  Index first, last;                          // allowed: [first, last) ...
  const std::uint8_t* allowed = nullptr;      // ... and allowed[s] != 0; or, where a kernel asked for steps:
  Index step = 1, front = 0;                  // ... and (s - first) % step == 0, and besides [0, front)
  bool nothing() const {
    return (first >= last && front <= 0) || (allowed && std::all_of(allowed + first, allowed + last, [](std::uint8_t a) { return !a; }));
  }
};

// Rows of scores [B, ..., T, S] (or [B, S]; without a mask [S] and []) are numbered in row-major order.
class MaskRows {
 public:
  // steps: a sliding window comes in steps, where there is no explicit part; else as bytes
  MaskRows(std::string_view op, const Mask& given, const Shape& scores, bool steps = false)
      : shape_(scores), everything_(given.everything()) {
    given.check_fits(op, scores);
    if (everything_ || scores.numel() == 0) return;
    mask_ = steps && !given.allowed().defined() ? given : given.without_sliding(scores);
    const Mask& mask = mask_;
    target_rows_ = scores.rank() >= 3 ? scores(-2) : 1;
    rows_of_sentence_ = scores.numel() / (scores[0] * scores(-1));
    if (!mask.allowed().defined()) return;
    Shape row_shape = mask.allowed().shape();
    if (row_shape.rank() == 0) row_shape.push_back(1);
    row_shape[row_shape.rank() - 1] = scores(-1);
    allowed_ = expand(mask.allowed(), row_shape);
    if (allowed_.strides()[row_shape.rank() - 1] != 1) allowed_ = allowed_.contiguous();
    allowed_ = expand(allowed_, scores);
    bytes_ = allowed_.data<std::uint8_t>();
  }

  bool everything() const { return everything_; }
  bool in_steps() const { return mask_.sliding().has_value(); }
  RowMask operator()(Index row) const {
    const Index S = shape_.rank() ? shape_(-1) : 1;
    if (everything_ || S == 0) return {0, S};
    if (in_steps()) {
      const Mask::Steps steps = mask_.steps(row / rows_of_sentence_, row / target_rows_ % shape_[1], row % target_rows_, S);
      return {steps.first, steps.last, nullptr, steps.step, steps.front};
    }
    const Mask::Range range = mask_.range(row / rows_of_sentence_, row % target_rows_, S);
    if (!bytes_) return {range.first, range.last};
    Index offset = 0;
    for (int axis = shape_.rank() - 2; axis >= 0; row /= shape_[axis--]) offset += row % shape_[axis] * allowed_.strides()[axis];
    return {range.first, range.last, bytes_ + offset};
  }

 private:
  Mask mask_;
  Shape shape_;
  bool everything_;
  Index target_rows_ = 1, rows_of_sentence_ = 1;
  Tensor allowed_;
  const std::uint8_t* bytes_ = nullptr;
};

}  // namespace heed
