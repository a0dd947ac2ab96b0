// SPDX-License-Identifier: Apache-2.0
#include "attention/relative.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

RotaryLayout layout(Positions kind) { return kind == Positions::rope_half ? RotaryLayout::half : RotaryLayout::interleaved; }

void check_buckets(Index buckets, Index farthest) {
  check<Error>(buckets >= 4 && buckets % 2 == 0 && farthest > buckets / 2,
               "t5: needs an even number of at least 4 buckets, and the farthest beyond half of them: {}, {}", buckets, farthest);
}

}  // namespace

Tensor alibi_slopes(Index heads) {
  check<Error>(heads >= 1, "alibi: heads must be at least 1: {}", heads);
  const Tensor slopes = empty({heads}, DType::f64);
  double* const m = slopes.mutable_data<double>();
  const auto power = Index(std::bit_floor(std::uint64_t(heads)));
  for (Index a = 0; a < heads; ++a)
    m[a] = std::exp2(-8.0 * (a < power ? double(a + 1) / double(power) : double(2 * (a - power) + 1) / double(2 * power)));
  return slopes;
}

Index t5_bucket(Index r, bool causal, Index buckets, Index farthest) {
  check_buckets(buckets, farthest);
  const Index own = causal ? buckets : buckets / 2, base = !causal && r > 0 ? own : 0, n = causal ? std::max<Index>(-r, 0) : std::abs(r),
              exact = own / 2;
  if (n < exact) return base + n;
  // 1e-9: logarithms of quotients that are whole powers are not to fall below them
  const double place = std::log(double(n) / double(exact)) / std::log(double(farthest) / double(exact)) * double(own - exact);
  return base + std::min(own - 1, exact + Index(std::floor(std::min(place, double(own)) + 1e-9)));
}

RelativePositions::RelativePositions(Scope scope, Options options) : options_(options) {
  const Inside inside(scope.path());
  const Index H = options.heads, dk = options.head_width, R = options.clip;
  check<Error>(options.kind == Positions::none || inside_attention(options.kind),
               "{}: these positions are added to the words, by a PositionTable; inside attention there are rope, rope_half, alibi, t5, shaw",
               name(options.kind));
  check<ShapeError>(H >= 1 && dk >= 1 && R >= 1, "{}: heads {}, their width {} and clip {} must be at least 1", name(options.kind), H, dk, R);
  if (turns()) {
    check<ShapeError>(dk % 2 == 0, "{}: turns pairs of columns, so that the width of a head must be even: {}, heads {}", name(options.kind),
                      dk, H);
    rotations_ = rotations(options.length, dk, scope.dtype(), layout(options.kind), 0, options.base);
  }
  if (options.kind == Positions::t5) {
    check_buckets(options.buckets, options.farthest);
    weight = (scope / "relative_attention_bias").parameter("weight", {options.buckets, H}, normal_init(0, 1 / std::sqrt(double(H * dk))));
  }
  if (options.kind == Positions::shaw) {
    const Shape shape = options.shared ? Shape{2 * R + 1, dk} : Shape{H, 2 * R + 1, dk};
    rel_k = (scope / "rel_k").parameter("weight", shape, normal_init(0, 1 / std::sqrt(double(dk))));
    rel_v = (scope / "rel_v").parameter("weight", shape, normal_init(0, 1 / std::sqrt(double(dk))));
  }
  for (Parameter* table : {&weight, &rel_k, &rel_v})
    if (table->defined()) table->data().multiplied = false;
}

void RelativePositions::check_fits(Index heads, Index head_width) const {
  const auto& [kind, H, dk] = std::tie(options_.kind, options_.heads, options_.head_width);
  const bool of_heads = kind == Positions::alibi || kind == Positions::t5 || (kind == Positions::shaw && !options_.shared);
  check<ShapeError>((!of_heads || H == heads) && (!(turns() || reads_values()) || dk == head_width),
                    "{}: made for an attention of other heads: {} of width {}, here {} of width {}", name(kind), H, dk, heads, head_width);
}

RelativePositions RelativePositions::share() const {
  RelativePositions other;
  other.options_ = options_, other.rotations_ = rotations_;
  other.weight = weight.share(), other.rel_k = rel_k.share(), other.rel_v = rel_v.share();
  return other;
}

Variable RelativePositions::turned(const Variable& x, Index first) const {
  if (!turns()) return x;
  const Index end = first + x.size(2);
  if (end <= rotations_.length()) return rotary(x, rotations_.rows(first, end));
  return rotary(x, rotations(x.size(2), options_.head_width, x.value().dtype(), layout(kind()), first, options_.base));
}

Tensor RelativePositions::distances(Index first, Index n, Index keys) const {
  const Tensor rows = empty({n, keys}, DType::i64);
  Index* const row = rows.mutable_data<Index>();
  const Index R = options_.clip;
  for (Index t = 0; t < n; ++t)
    for (Index s = 0; s < keys; ++s) row[t * keys + s] = std::clamp(s - t - first, -R, R) + R;
  return rows;
}

Variable RelativePositions::bias(const Variable& q, Index first, Index keys, double scale) const {
  const Index H = options_.heads, n = q.size(2), count = n + keys - 1;
  const auto distance = [&](Index l) { return l - (n - 1) - first; };   // of the l-th diagonal
  if (n == 0 || keys == 0) return {};
  if (kind() == Positions::alibi) {
    const Tensor slopes = alibi_slopes(H), x = empty({H, count}, DType::f64);
    double* const b = x.mutable_data<double>();
    for (Index a = 0; a < H; ++a)
      for (Index l = 0; l < count; ++l) b[a * count + l] = -slopes.data<double>()[a] * double(std::abs(distance(l)));
    return toeplitz(constant(to(x, q.value().dtype())), n);
  }
  if (kind() == Positions::t5) {
    const Tensor ids = empty({count}, DType::i64);
    Index* const id = ids.mutable_data<Index>();
    for (Index l = 0; l < count; ++l) id[l] = t5_bucket(distance(l), options_.causal, options_.buckets, options_.farthest);
    return toeplitz(index_select(transpose(weight), 1, ids), n);
  }
  if (kind() == Positions::shaw) {
    const Variable by_row = matmul(q * scale, transpose(rel_k));   // [B, H, n, 2R+1]
    return gather(by_row, 3, expand(distances(first, n, keys), {q.size(0), H, n, keys}));
  }
  return {};
}

std::string_view RelativePositions::formula(double scale) const {
  return kind() == Positions::alibi ? "b_j = -m |j - i|, m a head's"
         : kind() == Positions::t5  ? "b_j = b of the bucket of j - i"
         : scale == 1               ? "b_j = q·a_(j - i), a = rel_k"
         : scale == 1 / std::sqrt(double(options_.head_width)) ? "b_j = q·a_(j - i) / √(d/H), a = rel_k"
                                                               : "b_j = scale q·a_(j - i), a = rel_k";
}

Variable RelativePositions::value_offsets(Index first, Index n, Index keys) const {
  const Shape pairs = options_.shared ? Shape{n, keys, options_.head_width} : Shape{options_.heads, n, keys, options_.head_width};
  return reshape(index_select(rel_v, -2, reshape(distances(first, n, keys), {n * keys})), pairs);
}

Variable RelativePositions::value_sum(const Variable& weights, Index first) const {
  const Index n = weights.size(2), keys = weights.size(3);
  const Tensor none = zeros({weights.size(0), weights.size(1), n, 2 * options_.clip + 1}, weights.value().dtype());
  return matmul(scatter_add(constant(none), 3, expand(distances(first, n, keys), weights.shape()), weights), rel_v);
}

}  // namespace heed
