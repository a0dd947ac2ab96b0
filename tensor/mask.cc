// SPDX-License-Identifier: Apache-2.0
#include "tensor/mask.h"

#include <algorithm>

#include "tensor/format.h"
#include "tensor/ops/index.h"

namespace heed {
namespace {

// Farther than any tensor reaches, and no sum of a few overflows.
Index within_reach(Index x) { return std::clamp<Index>(x, -(Index{1} << 48), Index{1} << 48); }

}  // namespace

Mask Mask::lengths(Tensor lengths) {
  check<ShapeError>(lengths.rank() == 1, "mask: lengths need 1 dimension: lengths {}", lengths.shape());
  check<DTypeError>(lengths.dtype() == DType::i32, "mask: lengths need dtype i32: lengths {}", lengths.dtype());
  Mask mask;
  mask.lengths_ = lengths.contiguous();
  mask.length_data_ = mask.lengths_.data<std::int32_t>();
  return mask;
}

Mask Mask::causal(Index offset) {
  Mask mask;
  mask.right_ = within_reach(offset);
  return mask;
}

Mask Mask::window(Index left, Index right, Index offset) {
  check<Error>(left >= 0 && right >= 0, "mask: window sizes must not be negative: left {}, right {}", left, right);
  Mask mask;
  mask.left_ = within_reach(left) - within_reach(offset);
  mask.right_ = within_reach(right) + within_reach(offset);
  return mask;
}

Mask Mask::allowed(Tensor allowed) {
  check<Error>(allowed.defined(), "mask: allowed is empty (default constructed)");
  check<DTypeError>(allowed.dtype() == DType::u8, "mask: allowed needs dtype u8: allowed {}", allowed.dtype());
  Mask mask;
  mask.allowed_ = std::move(allowed);
  return mask;
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask out = a;
  if (b.lengths_.defined()) {
    check<Error>(!a.lengths_.defined(), "mask: both sides of & have lengths: a {}, b {}", a.lengths_.shape(), b.lengths_.shape());
    out.lengths_ = b.lengths_;
    out.length_data_ = b.length_data_;
  }
  if (b.right_) out.right_ = a.right_ ? std::min(*a.right_, *b.right_) : *b.right_;
  if (b.left_) out.left_ = a.left_ ? std::min(*a.left_, *b.left_) : *b.left_;
  if (b.allowed_.defined() && a.allowed_.defined()) {
    const Shape shape = broadcast_shapes("mask", a.allowed_.shape(), b.allowed_.shape());
    Tensor both = empty(shape, DType::u8), other = empty(shape, DType::u8);
    copy_into(both, a.allowed_);
    copy_into(other, b.allowed_);
    const auto x = both.mutable_span<std::uint8_t>();
    const auto y = other.span<std::uint8_t>();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] && y[i];
    out.allowed_ = both;
  } else if (b.allowed_.defined()) {
    out.allowed_ = b.allowed_;
  }
  return out;
}

Mask Mask::of_sentences(const Tensor& ids, int rank) const {
  Mask mask = *this;
  if (lengths_.defined()) {
    mask.lengths_ = index_select(lengths_, 0, ids);
    mask.length_data_ = mask.lengths_.data<std::int32_t>();
  }
  if (allowed_.defined() && allowed_.rank() == rank && allowed_.size(0) != 1) mask.allowed_ = index_select(allowed_, 0, ids);
  return mask;
}

void Mask::check_fits(std::string_view op, const Shape& scores) const {
  if (everything()) return;
  check<ShapeError>(scores.rank() >= 2, "{}: a mask needs scores of at least 2 dimensions: scores {}", op, scores);
  check<ShapeError>(scores.rank() >= 3 || (!left_ && !right_), "{}: causal and window need scores [B, ..., T, S]: scores {}; unsqueeze(x, 0) makes [T, S] those of one sentence", op, scores);
  if (lengths_.defined())
    check<ShapeError>(lengths_.shape()[0] == scores[0], "{}: the mask has {} lengths for a batch of {}: lengths {}, scores {}", op,
                      lengths_.shape()[0], scores[0], lengths_.shape(), scores);
  if (!allowed_.defined()) return;
  const Shape& shape = allowed_.shape();
  bool fits = shape.rank() <= scores.rank();
  for (int dim = -1; fits && dim >= -shape.rank(); --dim) fits = shape(dim) == 1 || shape(dim) == scores(dim);
  check<ShapeError>(fits, "{}: the mask does not broadcast to the scores: mask {}, scores {}", op, shape, scores);
}

Tensor Mask::dense(const Shape& scores) const {
  check_fits("mask", scores);
  Tensor out = empty(scores, DType::u8);
  if (allowed_.defined()) copy_into(out, allowed_);
  else fill_(out, 1);
  const Index S = scores(-1), T = scores.rank() >= 3 ? scores(-2) : 1, rows = out.numel() / std::max<Index>(S, 1);
  if (out.numel() == 0) return out;
  const auto values = out.mutable_span<std::uint8_t>();
  for (Index row = 0; row < rows; ++row) {
    const Range r = range(row / (rows / scores[0]), row % T, S);
    for (Index s = 0; s < S; ++s)
      if (s < r.first || s >= r.last) values[std::size_t(row * S + s)] = 0;
  }
  return out;
}

}  // namespace heed
