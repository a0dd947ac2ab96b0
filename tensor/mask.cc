// SPDX-License-Identifier: Apache-2.0
#include "tensor/mask.h"

#include <algorithm>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// Farther than any tensor reaches, and no sum of a few overflows.
constexpr Index kFar = Index{1} << 48;
Index within_reach(Index x) { return std::clamp<Index>(x, -kFar, kFar); }

Index gap_of(const SlidingWindow& window, Index h) { return window.dilation.defined() ? window.dilation.data<std::int32_t>()[h] : 1; }

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

Mask Mask::sliding(SlidingWindow window) {
  check<Error>(window.global >= 0, "mask: a negative number of global positions: {}", window.global);
  const Mask plain = Mask::window(window.left, window.right, window.offset);
  if (window.dilation.defined()) {
    check<ShapeError>(window.dilation.rank() == 1, "mask: dilation needs 1 dimension, a gap for each head: dilation {}",
                      window.dilation.shape());
    check<DTypeError>(window.dilation.dtype() == DType::i32, "mask: dilation needs dtype i32: dilation {}", window.dilation.dtype());
    window.dilation = window.dilation.contiguous();
    const auto gaps = window.dilation.span<std::int32_t>();
    for (const std::int32_t gap : gaps) check<Error>(gap >= 1, "mask: gaps must be at least 1, which is none: dilation {}", gap);
    if (std::ranges::all_of(gaps, [](std::int32_t gap) { return gap == 1; })) window.dilation = {};
  }
  if (!window.dilation.defined() && window.global == 0) return plain;
  window.left = within_reach(window.left), window.right = within_reach(window.right), window.offset = within_reach(window.offset);
  Mask mask;
  mask.sliding_ = std::move(window);
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
  if (b.sliding_) {
    check<Error>(!a.sliding_, "mask: both sides of & have a sliding window with gaps or global positions");
    out.sliding_ = b.sliding_;
  }
  if (b.right_) out.right_ = a.right_ ? std::min(*a.right_, *b.right_) : *b.right_;
  if (b.left_) out.left_ = a.left_ ? std::min(*a.left_, *b.left_) : *b.left_;
  check<Error>(!out.sliding_ || out.sliding_->global == 0 || !out.left_,
               "mask: a window hides global positions from the rows beyond it: a window & a sliding window with {} of them",
               out.sliding_ ? out.sliding_->global : 0);
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

Mask::Steps Mask::steps(Index b, Index h, Index t, Index S) const {
  const Range r = range(b, t, S);
  if (!sliding_) return {r.first, r.last, 1, 0};
  const Index i = t + sliding_->offset, gap = gap_of(*sliding_, h), front = std::min(sliding_->global, r.last);
  const auto reach = [gap](Index positions) { return positions > kFar / gap ? kFar : positions * gap; };
  const Index begin = std::max(r.first, i - reach(sliding_->left)), end = std::min(r.last, i + reach(sliding_->right) + 1);
  Steps steps{begin + ((i - begin) % gap + gap) % gap, 0, gap, front};
  steps.last = end > steps.first ? steps.first + (end - 1 - steps.first) / gap * gap + 1 : 0;
  if (steps.last == 0) steps.first = 0;
  if (steps.last - steps.first <= 1) steps.step = 1;
  if (steps.step == 1 && front >= steps.first) steps = {0, std::max(front, steps.last), 1, 0};
  return steps;
}

Mask Mask::without_sliding(const Shape& scores) const {
  if (!sliding_) return *this;
  const SlidingWindow& window = *sliding_;
  const Index H = window.dilation.defined() ? scores[1] : 1, T = scores(-2), S = scores(-1);
  const Tensor bytes = empty({1, H, T, S}, DType::u8);
  auto* may = bytes.mutable_data<std::uint8_t>();
  for (Index h = 0; h < H; ++h)
    for (Index t = 0; t < T; ++t)
      for (Index s = 0, gap = gap_of(window, h); s < S; ++s) {
        const Index away = s - t - window.offset;
        *may++ = s < window.global || (away % gap == 0 && away / gap >= -window.left && away / gap <= window.right);
      }
  Mask mask = *this;
  mask.sliding_.reset();
  return mask & Mask::allowed(bytes);
}

Mask Mask::of_first_rows(Index rows) const {
  Mask mask = *this;
  if (allowed_.defined() && allowed_.rank() >= 2 && allowed_.size(-2) != 1) mask.allowed_ = slice(allowed_, -2, 0, rows);
  return mask;
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
  check<ShapeError>(scores.rank() >= 3 || (!left_ && !right_),
                    "{}: causal and window need scores [B, ..., T, S]: scores {}; unsqueeze(x, 0) makes [T, S] those of one sentence", op,
                    scores);
  if (sliding_) {
    check<ShapeError>(scores.rank() == 4, "{}: a sliding window with gaps or global positions needs scores [B, H, T, S]: scores {}", op,
                      scores);
    const Index gaps = sliding_->dilation.defined() ? sliding_->dilation.size(0) : scores[1];
    check<ShapeError>(gaps == scores[1], "{}: the mask has gaps for {} heads, the scores have {}: dilation {}, scores {}", op, gaps,
                      scores[1], Shape{gaps}, scores);
  }
  if (lengths_.defined())
    check<ShapeError>(lengths_.shape()[0] == scores[0], "{}: the mask has {} lengths for a batch of {}: lengths {}, scores {}", op,
                      lengths_.shape()[0], scores[0], lengths_.shape(), scores);
  if (!allowed_.defined()) return;
  const Shape& shape = allowed_.shape();
  check<ShapeError>(shape.rank() != 3 || scores.rank() != 4,
                    "{}: a mask of sentences or of heads? mask {}, scores {}; unsqueeze(mask, 1) is one per sentence, "
                    "unsqueeze(mask, 0) one per head",
                    op, shape, scores);
  check<ShapeError>(broadcasts_to(shape, scores), "{}: the mask does not broadcast to the scores: mask {}, scores {}", op, shape, scores);
}

Tensor Mask::dense(const Shape& scores) const {
  check_fits("mask", scores);
  if (sliding_) return without_sliding(scores).dense(scores);
  Tensor out = empty(scores, DType::u8);
  if (allowed_.defined()) copy_into(out, not_equal(allowed_, 0));
  else fill_(out, 1);
  if (out.numel() == 0 || (!lengths_.defined() && !left_ && !right_)) return out;
  const Index S = scores(-1), T = scores.rank() >= 3 ? scores(-2) : 1, rows = out.numel() / S;
  const auto values = out.mutable_span<std::uint8_t>();
  for (Index row = 0; row < rows; ++row) {
    const Range r = range(row / (rows / scores[0]), row % T, S);
    for (Index s = 0; s < S; ++s)
      if (s < r.first || s >= r.last) values[std::size_t(row * S + s)] = 0;
  }
  return out;
}

}  // namespace heed
