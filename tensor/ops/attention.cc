// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/attention.h"

#define HWY_TARGET_INCLUDE "tensor/ops/attention.cc"
#include "tensor/ops/attention-inl.h"
#include "tensor/ops/attention_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> HWY_INLINE void AttentionOf(const Head<T>& head, const Rows<T>& output, T* weights) {
  if (head.queries <= kFewQueries) AttentionFew(head, output, weights);
  else AttentionHead(head, output, weights);
}
void AttentionF32(const Head<float>& head, const Rows<float>& output, float* weights) { AttentionOf(head, output, weights); }
void AttentionF64(const Head<double>& head, const Rows<double>& output, double* weights) { AttentionOf(head, output, weights); }
// What holds [16, d] of each block holds [d, 16].
template <class T> HWY_INLINE void TurnBlocks(T* keys, size_t blocks, size_t d, T* turned) {
  for (size_t i = 0; i < blocks; ++i, keys += 16 * d) {
    Turn(Rows<const T>{keys, Index(d)}, 16, d, turned);
    std::copy_n(turned, 16 * d, keys);
  }
}
void TurnBlocksF32(float* keys, size_t blocks, size_t d, float* turned) { TurnBlocks(keys, blocks, d, turned); }
void TurnBlocksF64(double* keys, size_t blocks, size_t d, double* turned) { TurnBlocks(keys, blocks, d, turned); }
void AttentionGradF32(const Head<float>& head, const HeadGrad<float>& grad) { AttentionHeadGrad(head, grad); }
void AttentionGradF64(const Head<double>& head, const HeadGrad<double>& grad) { AttentionHeadGrad(head, grad); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(AttentionF32);
HWY_EXPORT(AttentionF64);
HWY_EXPORT(TurnBlocksF32);
HWY_EXPORT(TurnBlocksF64);
HWY_EXPORT(AttentionGradF32);
HWY_EXPORT(AttentionGradF64);

template <class T> void Ahead<T>::next_run() {
  while (matrix < count) {
    const Heads<const T>& x = matrices[matrix];
    if (row < x.rows && column < x.width) {
      const Rows<const T> rows = x.at(b, h);
      const std::size_t first = std::exchange(row, rows.end_of_run(row, x.rows));
      at = rows[first] + column, stride = rows.stride, left = row - first;
      return;
    }
    row = 0, column += 128 / sizeof(T);
    if (column >= x.width) column = 0, ++matrix;
  }
  at = idle, stride = 0, left = std::numeric_limits<std::size_t>::max();
}

namespace {

struct Sizes { Index B, H, T, S, dk, dv, group; };   // group: heads of q to one of k and v

constexpr std::size_t kFetched = 262144;   // bytes: a part of L2

// places: AttentionOptions::places
Sizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& places = {}) {
  check<ShapeError>(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "{}: q, k and v need 4 dimensions: q {}, k {}, v {}", op, q.shape(),
                    k.shape(), v.shape());
  check<DTypeError>(q.dtype() == k.dtype() && q.dtype() == v.dtype(), "{}: dtypes differ: q {}, k {}, v {}", op, q.dtype(), k.dtype(),
                    v.dtype());
  const Index shared = k.size(1), group = shared > 0 && q.size(1) % shared == 0 ? std::max<Index>(q.size(1) / shared, 1) : 1;
  const Sizes n{q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3), group};
  check<ShapeError>(k.size(3) == n.dk, "{}: widths of queries and keys differ: q {}, k {}", op, q.shape(), k.shape());
  const Index count = places.defined() ? k.size(0) : n.B;
  check<ShapeError>(k.shape() == Shape{count, n.H / group, n.S, n.dk}, "{}: batch or heads of q and k differ: q {}, k {}", op, q.shape(),
                    k.shape());
  check<ShapeError>(v.shape() == Shape{count, n.H / group, n.S, n.dv}, "{}: k and v differ: k {}, v {}", op, k.shape(), v.shape());
  if (!places.defined()) return n;
  check<DTypeError>(places.dtype() == DType::i64, "{}: places must be i64: {}", op, places.dtype());
  check<ShapeError>(places.shape() == Shape{n.B, n.S},
                    "{}: places need a number for each row of q and position of k: places {}, q {}, k {}", op, places.shape(), q.shape(),
                    k.shape());
  for (Index b = 0; b < n.B; ++b)
    for (Index s = 0; s < n.S; ++s) {
      const auto place = places.data<std::int64_t>()[b * places.strides()[0] + s * places.strides()[1]];
      check<IndexError>(place >= 0 && place < count, "{}: place {} at [{}, {}] is not in [0, {})", op, place, b, s, count);
    }
  return n;
}

// k of which the keys [first, last) stand turned, or shall
void check_turned(const char* op, const Tensor& k, Index first, Index last) {
  check<ShapeError>(k.rank() == 4 && k.strides()[3] == 1 && k.strides()[2] == k.size(3),
                    "{}: keys that stand turned need rows side by side: k {}, strides {}", op, k.shape(), k.strides());
  check<ShapeError>(0 <= first && first <= last && last <= k.size(2) && first % kTurnedKeys == 0 && last % kTurnedKeys == 0,
                    "{}: keys stand turned {} by {}: [{}, {}) of k {}", op, kTurnedKeys, kTurnedKeys, first, last, k.shape());
}

// bias as [B, H, T, S] whose rows are contiguous
Tensor expanded_bias(const char* op, const Sizes& n, const Tensor& q, const Tensor& bias) {
  if (!bias.defined()) return {};
  const Shape scores{n.B, n.H, n.T, n.S};
  check<DTypeError>(bias.dtype() == q.dtype(), "{}: dtypes differ: bias {}, q {}", op, bias.dtype(), q.dtype());
  check<ShapeError>(broadcasts_to(bias.shape(), scores), "{}: bias does not broadcast to the scores: bias {}, scores {}", op, bias.shape(), scores);
  Tensor rows = bias;
  while (rows.rank() < 4) rows = unsqueeze(rows, 0);
  return expand(with_dense_rows(expand(rows, {-1, -1, -1, n.S})), scores);
}

AttentionOptions of_rows(AttentionOptions options) {
  options.turned = 0;
  return options;
}

double scale_of(const AttentionOptions& options, Index dk) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(double(std::max<Index>(dk, 1)));
}

template <class T> Heads<T> heads_of(const Tensor& x, T* data, const Tensor& places = {}, Index group = 1) {
  const Index head = x.strides()[1];
  Heads<T> heads{data, x.strides()[0], group > 1 ? 0 : head, x.strides()[2], std::size_t(x.size(2)), std::size_t(x.size(3)), group, head};
  if (places.defined()) heads.places = places.data<std::int64_t>(), heads.places_stride = places.strides()[0];
  return heads;
}
template <class T>
Heads<const T> heads_of(const Tensor& x, const Tensor& places = {}, Index group = 1) {
  return heads_of<const T>(x, x.data<T>(), places, group);
}
template <class T> Heads<const T> heads_or_none(const Tensor& x) { return x.defined() ? heads_of<T>(x) : Heads<const T>{}; }

// Where heads of q share one of k and v: its gradient is the sum of theirs, [B, H, S, width], each computed apart.
class GroupGradients {
 public:
  GroupGradients(const Sizes& n, const Into* sum) : sum_(sum) {
    if (!sum || n.group == 1) return;
    const Tensor& x = sum->tensor;
    each_ = {empty({n.B, n.H, n.S, x.size(3)}, x.dtype())};
  }
  const Into* each() const { return each_.tensor.defined() ? &each_ : sum_; }
  void finish() const {
    if (each_.tensor.defined()) with_heads_grad(each_.tensor, *sum_);
  }

 private:
  const Into* sum_;
  Into each_;
};

// Rows of a head that are one piece of parallel work: where heads are few, a long one is cut, and each part reads its keys once more.
Index part_rows(const Sizes& n) { return n.B * n.H < 64 ? Index(4 * kTileRows) : std::max<Index>(n.T, 1); }

// Heads of a sentence that are taken together: of one group where there are groups. Of long rows each thread gets some.
Index together(const Sizes& n, const Mask& mask) {
  if (n.T > Index(kFewQueries) || mask.differs_by_head()) return 1;
  Index count = std::min(n.group > 1 ? n.group : n.H, Index(kFewHeads));
  if (n.S > Index(kKeys)) count = std::min(count, std::max<Index>(n.B * n.H / (2 * threads()), 1));
  while (n.group > 1 && n.group % count != 0) --count;
  return count;
}

// Runs f(head, b, h, t) for all (b, h) in parallel, `step` heads at once, each in parts of `rows` queries from t on; head.log_sum_exp
// and scratch are set. matrices: q, k, v, output, then what else a head reads and writes.
template <class T, class F>
void for_heads(const char* op, const Sizes& n, Index step, Index rows, std::span<const Heads<const T>> matrices, bool k_by_columns,
               const Mask& mask, const AttentionOptions& options, const Heads<const T>& bias, T* log_sum_exp, std::size_t scratch_size,
               F&& f) {
  const MaskRows mask_rows(op, mask, {n.B, n.H, n.T, n.S}, true);
  const DropoutKey dropout(op, options.dropout, options.key);
  const auto scale = T(scale_of(options, n.dk));
  const Index parts = std::max<Index>(1, divide_up(n.T, rows)), steps = step > 0 ? divide_up(n.H, step) : 0;
  std::size_t next_rows = 0, next_size = 0;
  for (const Heads<const T>& x : matrices) next_rows += x.rows, next_size += x.rows * x.width;
  const bool fetches = parts == 1 && next_size * std::size_t(step) * sizeof(T) <= kFetched;
  parallel_for(n.B * steps * parts, row_grain(step * std::min(rows, n.T) * n.S * (1 + (n.dk + n.dv) / 16)), [&](Index begin, Index end) {
    const Tensor room = empty({Index(scratch_size)}, dtype_of<T>);
    T* const scratch = room.mutable_data<T>();
    List<RowMask> masks(std::size_t(mask_rows.everything() ? 0 : std::min(rows, n.T)));
    for (Index item = begin; item < end; ++item) {
      const Index b = item / parts / steps, h = item / parts % steps * step, i = b * n.H + h, first = item % parts * rows,
                  count = std::min(rows, n.T - first);
      if (item == begin || h == 0 || parts > 1 || mask.differs_by_head())      // else the heads of a sentence look alike
        for (Index t = 0; t < std::min(count, Index(masks.size())); ++t) {
          const RowMask row = mask_rows(i * n.T + first + t);
          masks[std::size_t(t)] = row.nothing() ? RowMask{0, 0} : row;
        }
      const Index next_h = h + step < n.H ? h + step : 0;
      Ahead<T> next{matrices.data(), fetches && item + 1 < end ? matrices.size() : 0, next_h > 0 ? b : b + 1, next_h,
                    std::min(next_h + step, n.H), next_rows / 3 + 1, scratch};
      const Head<T> head{.queries = std::size_t(count), .keys = std::size_t(n.S), .dk = std::size_t(n.dk), .dv = std::size_t(n.dv),
                         .scale = scale,
                         .q = matrices[0].at(b, h).from(std::size_t(first)), .k = matrices[1].at(b, h), .v = matrices[2].at(b, h),
                         .bias = bias.at(b, h).from(std::size_t(first)),
                         .k_by_columns = k_by_columns,
                         .turned = std::size_t(options.turned),
                         .heads = std::size_t(std::min(step, n.H - h)),
                         .q_head = matrices[0].head, .k_head = matrices[1].head, .v_head = matrices[2].head, .bias_head = bias.head,
                         .output_head = matrices[3].head,
                         .mask = masks.empty() ? nullptr : masks.data(),
                         .in_steps = mask_rows.in_steps(),
                         .dropout = dropout,
                         .first = (i * Index(padded(std::size_t(n.T))) + first) * Index(drawn_keys(std::size_t(n.S))),
                         .log_sum_exp = log_sum_exp + i * n.T + first,
                         .scratch = scratch,
                         .next = &next};
      f(head, b, h, first);
    }
  });
}

}  // namespace

void turn_keys_(const Tensor& k, Index first, Index last) {
  const char* op = "turn_keys_";
  check_turned(op, k, first, last);
  if (first == last) return;
  visit_float(k.dtype(), op, [&]<class T>() {
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(TurnBlocksF32), HWY_DYNAMIC_POINTER(TurnBlocksF64));
    const Index H = k.size(1), d = k.size(3), blocks = (last - first) / kTurnedKeys;
    T* const keys = k.mutable_data<T>() + first * d;
    parallel_for(k.size(0) * H, row_grain(blocks * kTurnedKeys * d), [&](Index begin, Index end) {
      const Tensor turned = empty({kTurnedKeys, d}, k.dtype());
      for (Index i = begin; i < end; ++i)
        kernel(keys + i / H * k.strides()[0] + i % H * k.strides()[1], std::size_t(blocks), std::size_t(d), turned.mutable_data<T>());
    });
  });
}

void turn_keys_back_(const Tensor& k, Index first, Index last) {
  check_turned("turn_keys_back_", k, first, last);
  if (first == last) return;
  const Tensor keys = slice(k, 2, first, last);
  const Shape rows{k.size(0), k.size(1), (last - first) / kTurnedKeys, kTurnedKeys, k.size(3)};
  copy_into(reshape(keys, rows), transpose(reshape(keys.clone(), {rows[0], rows[1], rows[2], rows[4], rows[3]})));
}

Tensor keys_in_rows(const Tensor& k, Index turned) {
  if (turned == 0) return k;
  const Tensor rows = k.clone();
  turn_keys_back_(rows, 0, turned);
  return rows;
}

Tensor gather_places(const Tensor& x, const Tensor& places) {
  const Index B = places.size(0), S = places.size(1);
  return gather(x, 0, expand(reshape(places, {B, 1, S, 1}), {B, x.size(1), S, x.size(3)}));
}

AttentionOutput scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask,
                                             const AttentionOptions& options, const Tensor& bias) {
  const char* op = "scaled_dot_product_attention";
  const Sizes n = check_inputs(op, q, k, v, options.places);
  if (options.turned != 0) check_turned(op, k, 0, options.turned);
  if (options.turned > 0 && n.T > Index(kFewQueries))
    return scaled_dot_product_attention(q, keys_in_rows(k, options.turned), v, mask, of_rows(options), bias);
  const Tensor biases = expanded_bias(op, n, q, bias);
  return visit_float(q.dtype(), op, [&]<class T>() {
    const bool k_by_columns = n.dk > 1 && k.strides()[2] == 1 && k.strides()[3] != 1 && !options.places.defined() && options.turned == 0;
    const Tensor qs = with_dense_rows(q), ks = k_by_columns ? transpose(k) : with_dense_rows(k), vs = with_dense_rows(v);
    const Tensor places = options.places.defined() && n.S > 0 ? with_dense_rows(options.places) : Tensor();
    AttentionOutput out{transpose(empty({n.B, n.T, n.H, n.dv}, q.dtype()), 1, 2), empty({n.B, n.H, n.T}, q.dtype()), {}};
    if (options.weights) out.weights = empty({n.B, n.H, n.T, n.S}, q.dtype());
    const Heads<T> output = heads_of(out.output, out.output.mutable_data<T>());
    T* const weights = options.weights ? out.weights.mutable_data<T>() : nullptr;
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(AttentionF32), HWY_DYNAMIC_POINTER(AttentionF64));
    const std::array heads{heads_of<T>(qs), heads_of<T>(ks, places, n.group), heads_of<T>(vs, places, n.group), heads_of<T>(out.output)};
    for_heads<T>(op, n, together(n, mask), part_rows(n), heads, k_by_columns, mask, options, heads_or_none<T>(biases),
                 out.log_sum_exp.mutable_data<T>(), attention_scratch(std::size_t(n.T), std::size_t(n.S), std::size_t(n.dk)),
                 [&](const Head<T>& head, Index b, Index h, Index t) {
                   kernel(head, output.at(b, h).from(std::size_t(t)), weights ? weights + ((b * n.H + h) * n.T + t) * n.S : nullptr);
                 });
    return out;
  });
}

void scaled_dot_product_attention_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options,
                                       const AttentionOutput& forward, const Tensor& doutput, const Tensor& dweights, const Into* dq,
                                       const Into* dk, const Into* dv, const Tensor& bias, const Into* dbias) {
  const char* op = "scaled_dot_product_attention_grad";
  check<Error>(!options.places.defined() && options.turned == 0,
               "{}: there is no gradient where keys and values are read by places or stand turned; gather_places and keys_in_rows first",
               op);
  const Sizes n = check_inputs(op, q, k, v);
  const Tensor biases = expanded_bias(op, n, q, bias);
  const auto check_like = [&](const char* name, const Tensor& a, const Shape& shape) {
    check<ShapeError>(a.shape() == shape, "{}: {} has another shape: {} {}, expected {}", op, name, name, a.shape(), shape);
    check<DTypeError>(a.dtype() == q.dtype(), "{}: dtypes differ: {} {}, q {}", op, name, a.dtype(), q.dtype());
  };
  check_like("output", forward.output, {n.B, n.H, n.T, n.dv});
  if (doutput.defined()) check_like("doutput", doutput, {n.B, n.H, n.T, n.dv});
  if (dweights.defined()) check_like("dweights", dweights, {n.B, n.H, n.T, n.S});
  check_like("log_sum_exp", forward.log_sum_exp, {n.B, n.H, n.T});
  if (dq) check_like("dq", dq->tensor, q.shape());
  if (dk) check_like("dk", dk->tensor, k.shape());
  if (dv) check_like("dv", dv->tensor, v.shape());
  if (dbias) check_like("dbias", dbias->tensor, bias.shape());
  visit_float(q.dtype(), op, [&]<class T>() {
    const Tensor qs = with_dense_rows(q), ks = with_dense_rows(k), vs = with_dense_rows(v), outputs = with_dense_rows(forward.output),
                 doutputs = doutput.defined() ? with_dense_rows(doutput) : expand(zeros({n.dv}, q.dtype()), forward.output.shape()),
                 gs = dweights.defined() ? with_dense_rows(dweights) : Tensor(), lse = forward.log_sum_exp.contiguous();
    const GroupGradients keys(n, dk), values(n, dv);
    const RowDestinations<3> to({dq, keys.each(), values.each()});
    std::array<Heads<T>, 3> gradients{};
    List<Heads<const T>> heads{heads_of<T>(qs), heads_of<T>(ks, {}, n.group), heads_of<T>(vs, {}, n.group), heads_of<T>(outputs),
                               heads_of<T>(doutputs)};
    for (std::size_t i = 0; i < 3; ++i)
      if (to.wanted(i)) {
        gradients[i] = heads_of(to.tensor(i), to.tensor(i).template mutable_data<T>());
        heads.push_back(heads_of<T>(to.tensor(i)));
      }
    const Heads<const T> dweights_heads = heads_or_none<T>(gs);
    const Tensor slopes = dbias ? zeros({n.B, n.H, n.T, n.S}, q.dtype()) : Tensor();
    const Heads<T> bias_gradients = dbias ? heads_of(slopes, slopes.mutable_data<T>()) : Heads<T>{};
    const auto kernel = pick<T>(HWY_DYNAMIC_POINTER(AttentionGradF32), HWY_DYNAMIC_POINTER(AttentionGradF64));
    for_heads<T>(
        op, n, 1, std::max<Index>(n.T, 1), heads, false, mask, options, heads_or_none<T>(biases), const_cast<T*>(lse.data<T>()),
        attention_grad_scratch(std::size_t(n.T), std::size_t(n.S), std::size_t(n.dk), std::size_t(n.dv)),
        [&](const Head<T>& head, Index b, Index h, Index) {
          kernel(head, HeadGrad<T>{.output = heads[3].at(b, h),
                                   .doutput = heads[4].at(b, h),
                                   .dweights = dweights_heads.at(b, h),
                                   .dq = gradients[0].at(b, h), .dk = gradients[1].at(b, h), .dv = gradients[2].at(b, h),
                                   .dbias = bias_gradients.at(b, h),
                                   .add_dq = to.add(0), .add_dk = to.add(1), .add_dv = to.add(2)});
        });
    to.finish();
    keys.finish();
    values.finish();
    if (dbias) sum_to(slopes, *dbias);
  });
}

Tensor with_heads(const Tensor& x, Index heads) {
  check<ShapeError>(x.rank() == 4, "with_heads: needs 4 dimensions [B, H, S, d]: {}", x.shape());
  const Index shared = x.size(1);
  if (shared == heads) return x;
  check<ShapeError>(shared > 0 && heads > 0 && heads % shared == 0, "with_heads: {} heads cannot serve {}: {}", shared, heads, x.shape());
  return reshape(expand(unsqueeze(x, 2), {-1, -1, heads / shared, -1, -1}), {x.size(0), heads, x.size(2), x.size(3)});
}

void with_heads_grad(const Tensor& dy, Into dx) {
  const Tensor& x = dx.tensor;
  sum_to(reshape(dy, {x.size(0), x.size(1), dy.size(1) / std::max<Index>(x.size(1), 1), x.size(2), x.size(3)}), {unsqueeze(x, 2), dx.add});
}

Tensor attention_dropout(const Shape& weights, DType dtype, double p, Key key) {
  check<ShapeError>(weights.rank() == 4, "attention_dropout: weights need 4 dimensions: {}", weights);
  const auto [B, H, T, S] = std::array{weights(0), weights(1), weights(2), weights(3)};
  const Index group = Index(kGroupRows), rows = Index(padded(std::size_t(T)));
  const Tensor drawn = dropout(ones({B, H, rows / group, Index(drawn_keys(std::size_t(S))), group}, dtype), p, key);
  return slice(reshape(transpose(slice(drawn, 3, 0, S)), {B, H, rows, S}), 2, 0, T);
}

Mask allowed_by(const Mask& mask, const Tensor& bias) {
  if (!bias.defined()) return mask;
  const Tensor kept = not_equal(bias, -INFINITY);                     // a NaN is seen
  return mask & Mask::allowed(kept.rank() == 3 ? unsqueeze(kept, 0) : kept);
}

AttentionOutput scaled_dot_product_attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask,
                                                           const AttentionOptions& options, const Tensor& bias) {
  const char* op = "scaled_dot_product_attention_by_definition";
  const Sizes n = check_inputs(op, q, k, v, options.places);
  if (options.turned != 0)
    return scaled_dot_product_attention_by_definition(q, keys_in_rows(k, options.turned), v, mask, of_rows(options), bias);
  if (options.places.defined()) {
    AttentionOptions plain = options;
    plain.places = {};
    return scaled_dot_product_attention_by_definition(q, gather_places(k, options.places), gather_places(v, options.places), mask, plain,
                                                      bias);
  }
  mask.check_fits(op, {n.B, n.H, n.T, n.S});
  const Tensor biases = expanded_bias(op, n, q, bias), dots = matmul(q * scale_of(options, n.dk), transpose(with_heads(k, n.H)));
  const Mask allowed = allowed_by(mask, bias);
  const Tensor z = bias.defined() ? dots + biases : dots;                                 // [B, H, T, S]
  const Tensor p = softmax(z, -1, allowed);
  const Tensor seen = allowed.everything() ? z : where(allowed.dense(z.shape()), z, full({}, -INFINITY, z.dtype()));
  const Tensor o = matmul(p * attention_dropout(p.shape(), p.dtype(), options.dropout, options.key), with_heads(v, n.H));   // [B, H, T, dv]
  return {transpose(transpose(o, 1, 2).contiguous(), 1, 2), logsumexp(seen, -1), options.weights ? p : Tensor()};
}

}  // namespace heed
#endif
