// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/attention.h"

#include "tensor/dropout.h"
#include "tensor/ops/mask_rows.h"

#ifndef HEED_TENSOR_OPS_ATTENTION_HEAD      // this file is read once for each target
#define HEED_TENSOR_OPS_ATTENTION_HEAD
namespace heed {
namespace {

template <class T> struct Rows {           // a matrix whose rows are contiguous
  T* data;
  Index stride;
  const std::int64_t* places = nullptr;    // row i stands in matrix places[i] of several, `apart` from one to the next
  Index apart = 0;
  T* operator[](std::size_t row) const { return data + Index(row) * stride + (places ? places[row] * apart : 0); }
};

// One (sentence, head).
template <class T> struct Head {
  std::size_t queries, keys, dk, dv;
  T scale;
  Rows<const T> q, k, v;
  bool k_by_columns;                       // k holds the rows of kᵀ
  Rows<const T> next_q, next_k, next_v;    // of the head that comes next, data null: none
  const RowMask* mask;                     // a row each, null: everything
  DropoutKey dropout;
  Index first;                             // element index of P[0, 0]
  T* log_sum_exp;
  T* scratch;
};

template <class T> struct HeadGrad {
  Rows<const T> output, doutput;
  Rows<const T> next_output, next_doutput;
  Rows<const T> dweights;                  // data null: zeros
  Rows<T> dq, dk, dv;                      // data null: not wanted
  bool add_dq, add_dk, add_dv;
};

constexpr std::size_t kTileRows = 16;      // query rows whose scores are held at once
constexpr std::size_t kFewScores = 4096;   // a head with at most so many waits for memory more than it computes

inline std::size_t padded(std::size_t n) { return (n + 15) / 16 * 16; }
inline std::size_t row_stride(std::size_t keys) { return padded(keys) + 16; }          // of the scores; never a power of two
inline std::size_t factor_count(std::size_t keys) { return kTileRows * row_stride(keys); }

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/attention.cc"
#include "tensor/block-inl.h"
#include "tensor/dropout-inl.h"
#include "tensor/simd-inl.h"
#include "tensor/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// ---- rows of the scores ----------------------------------------------------------------------------------------------------

template <class T> HWY_INLINE Block<T> Allowed(const RowMask& mask, size_t i) {
  return LanesAllowed<T>(mask.first, mask.last, mask.allowed, ptrdiff_t(i));
}

// The columns that the rows [t, t + rows) of a tile look at, and whether each looks at all of its blocks.
struct Span { size_t first, last, begin, end; };         // begin, end: in whole blocks
template <class T> HWY_INLINE Span SpanOf(const Head<T>& head, size_t t, size_t rows) {
  Span span{0, head.keys, 0, padded(head.keys)};
  if (head.mask) {
    span.first = head.keys;
    span.last = 0;
    for (size_t i = t; i < t + rows; ++i) {
      const RowMask& mask = head.mask[i];
      if (mask.first >= mask.last) continue;
      if (size_t(mask.first) < span.first) span.first = size_t(mask.first);
      if (size_t(mask.last) > span.last) span.last = size_t(mask.last);
    }
    if (span.first > span.last) span.first = span.last;
    span.begin = span.first / 16 * 16;
    span.end = padded(span.last);
  }
  return span;
}

template <class T> HWY_INLINE RowMask MaskOf(const Head<T>& head, size_t t) {
  return head.mask ? head.mask[t] : RowMask{0, Index(head.keys)};
}

HWY_INLINE bool Covers(const RowMask& mask, size_t begin, size_t end) {
  return !mask.allowed && size_t(mask.first) <= begin && size_t(mask.last) >= end;
}

// z becomes p = softmax(z) in the rows of a tile, log_sum_exp = log Σ exp(z).   passes: 1 max, 2 exp and sum, 3 scale; each over
// all rows, so that their folds overlap.
template <class T> HWY_INLINE void SoftmaxOfScores(const Head<T>& head, size_t t, size_t rows, const Span& span, T* scores, T* log_sum_exp) {
  const size_t stride = row_stride(head.keys);
  const Block<T> least = Set16(T(-__builtin_inf()));
  T most[kTileRows] = {}, sums[kTileRows], scales[kTileRows];
  for (size_t i = 0; i < rows; ++i) {
    T* const z = scores + i * stride;
    const RowMask mask = MaskOf(head, t + i);
    const bool whole = Covers(mask, span.begin, span.end);
    Block<T> lanes = least;
    for (size_t s = span.begin; s < span.end; s += 16) {
      Block<T> v = Load16(z + s);
      if (!whole) Store16(v = Choose16(Allowed<T>(mask, s), v, least), z + s);
      lanes = Max16(lanes, v);
    }
    if (mask.first < mask.last) most[i] = MaxLane16(lanes);             // 0 where nothing is allowed: exp(-inf - 0) = 0
  }
  for (size_t i = 0; i < rows; ++i) {
    T* const z = scores + i * stride;
    const Block<T> shift = Set16(most[i]);
    Block<T> lanes = Set16(T(0));
    for (size_t s = span.begin; s < span.end; s += 16) {
      const Block<T> e = Exp16(Load16(z + s) - shift);
      lanes = lanes + e;
      Store16(e, z + s);
    }
    sums[i] = Sum16(lanes);
  }
  const Block<T> sum = LoadN16(sums, rows, T(1));
  StoreN16(LoadN16(most, rows) + Log16(sum), rows, log_sum_exp);              // -inf where nothing is allowed: log 0
  Store16(Set16(T(1)) / sum, scales);
  for (size_t i = 0; i < rows; ++i) {
    T* const z = scores + i * stride;
    const RowMask mask = MaskOf(head, t + i);
    const Block<T> scale = Set16(mask.first < mask.last ? scales[i] : T(0));
    for (size_t s = span.begin; s < span.end; s += 16) Store16(Load16(z + s) * scale, z + s);
  }
}

// Dropout factors of the rows [t, t + rows) for the columns of the span; row i starts at factors + i * stride.
template <class T> HWY_INLINE size_t FactorsOf(const Head<T>& head, size_t t, size_t rows, const Span& span, T* factors) {
  if (head.keys <= 128) {                                // neighbouring rows share groups of 128 elements
    DropoutFactors(head.dropout, head.first + Index(t * head.keys), rows * head.keys, factors);
    return head.keys;
  }
  const size_t stride = row_stride(head.keys);
  for (size_t i = 0; i < rows; ++i)
    DropoutFactors(head.dropout, head.first + Index((t + i) * head.keys + span.begin), span.last - span.begin, factors + i * stride + span.begin);
  return stride;
}

// Fetches what the next head reads: the hardware does not see the way from one to the other.
template <class T> HWY_INLINE void FetchRows(const Rows<const T>& x, size_t rows, size_t width) {
  for (size_t i = 0; x.data && i < rows; ++i)
    for (size_t j = 0; j < width; j += 64 / sizeof(T)) __builtin_prefetch(x[i] + j);
}
template <class T> HWY_INLINE void FetchNext(const Head<T>& head) {
  FetchRows(head.next_q, head.queries, head.dk);
  FetchRows(head.next_k, head.k_by_columns ? head.dk : head.keys, head.k_by_columns ? head.keys : head.dk);
  FetchRows(head.next_v, head.keys, head.dv);
}
template <class T> HWY_INLINE bool HasFewScores(const Head<T>& head) { return head.queries * head.keys <= kFewScores; }

// ---- one head -------------------------------------------------------------------------------------------------------------

// y = scale q in the rows [t, t + rows), one after another
template <class T> HWY_INLINE void ScaleQueries(const Head<T>& head, size_t t, size_t rows, T* y) {
  const Block<T> scale = Set16(head.scale);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < head.dk; j += 16) StoreN16(scale * LoadN16(head.q[t + i] + j, head.dk - j), head.dk - j, y + i * head.dk + j);
}

// The end of the rows from `begin` on that lie a stride apart.
template <class T> HWY_INLINE size_t EndOfRun(const Rows<const T>& x, size_t begin, size_t end) {
  if (!x.places) return end;
  size_t i = begin;
  while (i < end && x.places[i] == x.places[begin]) ++i;
  return i;
}

template <class T> void AttentionHead(const Head<T>& head, const Rows<T>& output, T* weights) {
  const size_t S = head.keys, stride = row_stride(S);
  T* const turned_k = head.scratch;
  T* const queries = turned_k + padded(S) * head.dk;
  T* const scores = queries + kTileRows * head.dk;
  T* const factors = scores + kTileRows * stride;
  if (!head.k_by_columns) Turn(head.k, S, head.dk, turned_k);
  for (size_t t = 0; t < head.queries; t += kTileRows) {
    const size_t rows = head.queries - t < kTileRows ? head.queries - t : kTileRows;
    const Span span = SpanOf(head, t, rows);
    const Right<T> keys = head.k_by_columns ? Right<T>{head.k.data, head.k.stride, 16, span.last} : Right<T>{turned_k, 16, Index(16 * head.dk), span.end};
    ScaleQueries(head, t, rows, queries);
    Product(queries, Index(head.dk), 1, keys, span.begin, rows, head.dk, scores, Index(stride), false);
    if (t == 0 && HasFewScores(head)) FetchNext(head);
    SoftmaxOfScores(head, t, rows, span, scores, head.log_sum_exp + t);
    for (size_t i = 0; weights && i < rows; ++i) {
      T* const to = weights + (t + i) * S;
      for (size_t s = 0; s < S; ++s) to[s] = s >= span.first && s < span.last ? scores[i * stride + s] : T(0);
    }
    if (!head.dropout.keeps_all()) {
      const size_t factor_stride = FactorsOf(head, t, rows, span, factors);
      for (size_t i = 0; i < rows; ++i)
        for (size_t s = span.begin; s < span.last; s += 16) {
          T* const p = scores + i * stride + s;
          const size_t n = span.last - s;
          StoreN16(LoadN16(p, n) * LoadN16(factors + i * factor_stride + s, n), n, p);
        }
    }
    size_t begin = span.first;
    do {
      const size_t end = EndOfRun(head.v, begin, span.last);
      const Right<T> values{head.v[begin], head.v.stride, 16, head.dv};
      Product(scores + begin, Index(stride), 1, values, 0, rows, end - begin, output[t], output.stride, begin > span.first);
      begin = end;
    } while (begin < span.last);
  }
}

// rows [begin, end) of x = 0
template <class T> void ClearRows(const Rows<T>& x, size_t begin, size_t end, size_t n) {
  for (size_t i = begin; i < end; ++i)
    for (size_t j = 0; j < n; ++j) x[i][j] = 0;
}

// Σ_s p_s g_s of a row, p_s = exp(z_s - shift)
template <class T> HWY_INLINE T WeightedSum(const T* z, Block<T> shift, const RowMask& mask, const Span& span, const T* g) {
  Block<T> lanes = Set16(T(0));
  for (size_t s = span.begin; s < span.end; s += 16)
    lanes = lanes + And16(Exp16(Load16(z + s) - shift) * LoadN16(g + s, span.last - s), Allowed<T>(mask, s));
  return Sum16(lanes);
}

// forward was  o_t = Σ_s m_ts p_ts v_s,  so now
//   dv_s += m_ts p_ts do_t,  dz_ts = p_ts (m_ts do_t·v_s + g_ts - δ_t),  dq_t = scale Σ_s dz_ts k_s,  dk_s += scale dz_ts q_t
// with δ_t = do_t·o_t + Σ_s p_ts g_ts.
template <class T> void AttentionHeadGrad(const Head<T>& head, const HeadGrad<T>& grad) {
  const size_t S = head.keys, dk = head.dk, dv = head.dv, stride = row_stride(S);
  T* const turned_k = head.scratch;
  T* const turned_v = turned_k + padded(S) * dk;
  T* const queries = turned_v + padded(S) * dv;
  T* const scores = queries + kTileRows * dk;            // P, then P ⊙ M
  T* const slopes = scores + kTileRows * stride;         // dP, then scale dZ
  T* const factors = slopes + kTileRows * stride;
  Turn(head.k, S, dk, turned_k);
  Turn(head.v, S, dv, turned_v);
  const Block<T> scale = Set16(head.scale), zero = Set16(T(0));
  const bool drop = !head.dropout.keeps_all();
  size_t written = 0;                                    // rows of dk and dv that hold their sum so far
  for (size_t t = 0; t < head.queries; t += kTileRows) {
    const size_t rows = head.queries - t < kTileRows ? head.queries - t : kTileRows;
    const Span span = SpanOf(head, t, rows);
    const Right<T> keys{turned_k, 16, Index(16 * dk), span.end}, values{turned_v, 16, Index(16 * dv), span.end};
    ScaleQueries(head, t, rows, queries);
    Product(queries, Index(dk), 1, keys, span.begin, rows, dk, scores, Index(stride), false);
    if (t == 0 && HasFewScores(head)) {
      FetchNext(head);
      FetchRows(grad.next_output, head.queries, dv);
      FetchRows(grad.next_doutput, head.queries, dv);
    }
    Product(grad.doutput[t], grad.doutput.stride, 1, values, span.begin, rows, dv, slopes, Index(stride), false);
    const size_t factor_stride = drop ? FactorsOf(head, t, rows, span, factors) : 0;
    T deltas[kTileRows];
    for (size_t i = 0; i < rows; ++i) {
      const T *o = grad.output[t + i], *d_o = grad.doutput[t + i];
      Block<T> dots = zero;
      for (size_t j = 0; j < dv; j += 16) dots = MulAdd16(LoadN16(o + j, dv - j), LoadN16(d_o + j, dv - j), dots);
      deltas[i] = Sum16(dots);
    }
    for (size_t i = 0; i < rows; ++i) {
      const RowMask mask = MaskOf(head, t + i);
      const Block<T> shift = Set16(head.log_sum_exp[t + i]);
      const bool whole = Covers(mask, span.begin, span.end), none = mask.first >= mask.last;
      const T* const dweights = grad.dweights.data && !none ? grad.dweights[t + i] : nullptr;
      const Block<T> delta = Set16(deltas[i] + (dweights ? WeightedSum(scores + i * stride, shift, mask, span, dweights) : T(0)));
      for (size_t s = span.begin; s < span.end; s += 16) {
        T *const z = scores + i * stride + s, *const d = slopes + i * stride + s;
        Block<T> p = none ? zero : Exp16(Load16(z) - shift), dp = Load16(d), kept = p;
        if (drop) {
          const Block<T> m = LoadN16(factors + i * factor_stride + s, span.last - s);
          kept = p * m;
          dp = dp * m;
        }
        if (dweights) dp = dp + LoadN16(dweights + s, span.last - s);
        Block<T> dz = scale * (p * (dp - delta));
        if (!whole) {
          const Block<T> allowed = none ? zero : Allowed<T>(mask, s);
          kept = And16(kept, allowed);
          dz = And16(dz, allowed);
        }
        Store16(kept, z);
        Store16(dz, d);
      }
    }
    const size_t first = span.first, last = span.last;
    if (grad.dq.data) {
      const Right<T> right{head.k[first], head.k.stride, 16, dk};
      Product(slopes + first, Index(stride), 1, right, 0, rows, last - first, grad.dq[t], grad.dq.stride, grad.add_dq);
    }
    // The first tile that reaches a row of dk and dv writes it, unless there is something to add to.
    const size_t fresh = written > first ? (written < last ? written : last) : first;
    if (grad.dk.data) {
      if (!grad.add_dk) ClearRows(grad.dk, written, first, dk);
      const Right<T> right{head.q[t], head.q.stride, 16, dk};
      Product(slopes + first, 1, Index(stride), right, 0, fresh - first, rows, grad.dk[first], grad.dk.stride, true);
      Product(slopes + fresh, 1, Index(stride), right, 0, last - fresh, rows, grad.dk[fresh], grad.dk.stride, grad.add_dk);
    }
    if (grad.dv.data) {
      if (!grad.add_dv) ClearRows(grad.dv, written, first, dv);
      const Right<T> right{grad.doutput[t], grad.doutput.stride, 16, dv};
      Product(scores + first, 1, Index(stride), right, 0, fresh - first, rows, grad.dv[first], grad.dv.stride, true);
      Product(scores + fresh, 1, Index(stride), right, 0, last - fresh, rows, grad.dv[fresh], grad.dv.stride, grad.add_dv);
    }
    if (last > written) written = last;
  }
  if (grad.dk.data && !grad.add_dk) ClearRows(grad.dk, written, S, dk);
  if (grad.dv.data && !grad.add_dv) ClearRows(grad.dv, written, S, dv);
}

void AttentionF32(const Head<float>& head, const Rows<float>& output, float* weights) { AttentionHead(head, output, weights); }
void AttentionF64(const Head<double>& head, const Rows<double>& output, double* weights) { AttentionHead(head, output, weights); }
void AttentionGradF32(const Head<float>& head, const HeadGrad<float>& grad) { AttentionHeadGrad(head, grad); }
void AttentionGradF64(const Head<double>& head, const HeadGrad<double>& grad) { AttentionHeadGrad(head, grad); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(AttentionF32);
HWY_EXPORT(AttentionF64);
HWY_EXPORT(AttentionGradF32);
HWY_EXPORT(AttentionGradF64);

namespace {

struct Sizes { Index B, H, T, S, dk, dv; };

// places: AttentionOptions::places
Sizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& places = {}) {
  check<ShapeError>(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "{}: q, k and v need 4 dimensions: q {}, k {}, v {}", op, q.shape(), k.shape(),
                    v.shape());
  check<DTypeError>(q.dtype() == k.dtype() && q.dtype() == v.dtype(), "{}: dtypes differ: q {}, k {}, v {}", op, q.dtype(), k.dtype(), v.dtype());
  const Sizes n{q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
  check<ShapeError>(k.size(3) == n.dk, "{}: widths of queries and keys differ: q {}, k {}", op, q.shape(), k.shape());
  const Index count = places.defined() ? k.size(0) : n.B;
  check<ShapeError>(k.shape() == Shape{count, n.H, n.S, n.dk}, "{}: batch or heads of q and k differ: q {}, k {}", op, q.shape(), k.shape());
  check<ShapeError>(v.shape() == Shape{count, n.H, n.S, n.dv}, "{}: k and v differ: k {}, v {}", op, k.shape(), v.shape());
  if (!places.defined()) return n;
  check<DTypeError>(places.dtype() == DType::i64, "{}: places must be i64: {}", op, places.dtype());
  check<ShapeError>(places.shape() == Shape{n.B, n.S}, "{}: places need a number for each row of q and position of k: places {}, q {}, k {}", op,
                    places.shape(), q.shape(), k.shape());
  for (Index b = 0; b < n.B; ++b)
    for (Index s = 0; s < n.S; ++s) {
      const auto place = places.data<std::int64_t>()[b * places.strides()[0] + s * places.strides()[1]];
      check<IndexError>(place >= 0 && place < count, "{}: place {} at [{}, {}] is not in [0, {})", op, place, b, s, count);
    }
  return n;
}

double scale_of(const AttentionOptions& options, Index dk) { return options.scale != 0 ? options.scale : 1 / std::sqrt(double(std::max<Index>(dk, 1))); }

// Itself where rows are contiguous, else a copy.
Tensor with_dense_rows(const Tensor& x) { return x.size(-1) <= 1 || x.strides()[x.rank() - 1] == 1 ? x : x.contiguous(); }

template <class T> Rows<const T> rows_of(const Tensor& x, Index b, Index h, const Tensor& places = {}) {
  const T* const head = x.data<T>() + h * x.strides()[1];
  if (places.defined()) return {head, x.strides()[2], places.data<std::int64_t>() + b * places.strides()[0], x.strides()[0]};
  return {head + b * x.strides()[0], x.strides()[2]};
}
template <class T> Rows<T> mutable_rows_of(const Tensor& x, T* data, Index b, Index h) {
  return {data + b * x.strides()[0] + h * x.strides()[1], x.strides()[2]};
}

// Runs f(head, b, h, next) for all (b, h) in parallel; head.log_sum_exp and scratch are set; next(x): the rows of the next head in x.
template <class T, class F>
void for_heads(const char* op, const Sizes& n, const Tensor& q, const Tensor& k, bool k_by_columns, const Tensor& v, const Mask& mask,
               const AttentionOptions& options, T* log_sum_exp, Index scratch_size, F&& f) {
  const MaskRows mask_rows(op, mask, {n.B, n.H, n.T, n.S});
  const Tensor places = options.places.defined() && n.S > 0 ? with_dense_rows(options.places) : Tensor();
  const DropoutKey dropout(op, options.dropout, options.key);
  const auto scale = T(scale_of(options, n.dk));
  parallel_for(n.B * n.H, row_grain(n.T * n.S * (1 + (n.dk + n.dv) / 16)), [&](Index begin, Index end) {
    const Tensor room = empty({scratch_size}, dtype_of<T>);
    T* const scratch = room.mutable_data<T>();
    List<RowMask> masks(std::size_t(mask_rows.everything() ? 0 : n.T));
    for (Index i = begin; i < end; ++i) {
      const Index b = i / n.H, h = i % n.H;
      if (i == begin || h == 0 || mask.allowed().defined())      // else the heads of a sentence look alike
        for (Index t = 0; t < Index(masks.size()); ++t) {
          const RowMask row = mask_rows(i * n.T + t);
          masks[std::size_t(t)] = row.nothing() ? RowMask{0, 0} : row;
        }
      const auto next = [&](const Tensor& x, const Tensor& at = {}) { return i + 1 < end ? rows_of<T>(x, (i + 1) / n.H, (i + 1) % n.H, at) : Rows<const T>{nullptr, 0}; };
      f(Head<T>{std::size_t(n.T), std::size_t(n.S), std::size_t(n.dk), std::size_t(n.dv), scale, rows_of<T>(q, b, h), rows_of<T>(k, b, h, places),
                rows_of<T>(v, b, h, places), k_by_columns, next(q), next(k, places), next(v, places), masks.empty() ? nullptr : masks.data(), dropout, i * n.T * n.S, log_sum_exp + i * n.T,
                scratch}, b, h, next);
    }
  });
}

Index queries_size(Index dk) { return Index(kTileRows) * dk; }
Index scores_size(Index S) { return Index(kTileRows * row_stride(std::size_t(S))); }
Index factors_size(Index S, double dropout) { return dropout > 0 ? Index(factor_count(std::size_t(S))) : 0; }
Index padded_size(Index S) { return Index(padded(std::size_t(S))); }

}  // namespace

Tensor gather_places(const Tensor& x, const Tensor& places) {
  const Index B = places.size(0), S = places.size(1);
  return gather(x, 0, expand(reshape(places, {B, 1, S, 1}), {B, x.size(1), S, x.size(3)}));
}

AttentionOutput scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options) {
  const char* op = "scaled_dot_product_attention";
  const Sizes n = check_inputs(op, q, k, v, options.places);
  return visit_float(q.dtype(), op, [&]<class T>() {
    const bool k_by_columns = n.dk > 1 && k.strides()[2] == 1 && k.strides()[3] != 1 && !options.places.defined();
    const Tensor qs = with_dense_rows(q), ks = k_by_columns ? transpose(k) : with_dense_rows(k), vs = with_dense_rows(v);
    AttentionOutput out{transpose(empty({n.B, n.T, n.H, n.dv}, q.dtype()), 1, 2), empty({n.B, n.H, n.T}, q.dtype()), {}};
    if (options.weights) out.weights = empty({n.B, n.H, n.T, n.S}, q.dtype());
    T* const output = out.output.mutable_data<T>();
    T* const weights = options.weights ? out.weights.mutable_data<T>() : nullptr;
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(AttentionF32), &HWY_DYNAMIC_DISPATCH(AttentionF64));
    for_heads<T>(op, n, qs, ks, k_by_columns, vs, mask, options, out.log_sum_exp.mutable_data<T>(),
                 padded_size(n.S) * n.dk + queries_size(n.dk) + scores_size(n.S) + factors_size(n.S, options.dropout), [&](const Head<T>& head, Index b, Index h, auto&&) {
                   kernel(head, mutable_rows_of(out.output, output, b, h), weights ? weights + (b * n.H + h) * n.T * n.S : nullptr);
                 });
    return out;
  });
}

void scaled_dot_product_attention_grad(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask, const AttentionOptions& options,
                                       const AttentionOutput& forward, const Tensor& doutput, const Tensor& dweights, const Into* dq, const Into* dk, const Into* dv) {
  const char* op = "scaled_dot_product_attention_grad";
  check<Error>(!options.places.defined(), "{}: there is no gradient where keys and values are read by places; gather_places them first", op);
  const Sizes n = check_inputs(op, q, k, v);
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
  visit_float(q.dtype(), op, [&]<class T>() {
    const Tensor qs = with_dense_rows(q), ks = with_dense_rows(k), vs = with_dense_rows(v), outputs = with_dense_rows(forward.output),
                 doutputs = doutput.defined() ? with_dense_rows(doutput) : expand(zeros({n.dv}, q.dtype()), forward.output.shape()),
                 gs = dweights.defined() ? with_dense_rows(dweights) : Tensor(), lse = forward.log_sum_exp.contiguous();
    const RowDestinations<3> to({dq, dk, dv});
    std::array<T*, 3> data{};
    for (std::size_t i = 0; i < 3; ++i)
      if (to.wanted(i)) data[i] = to.tensor(i).template mutable_data<T>();
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(AttentionGradF32), &HWY_DYNAMIC_DISPATCH(AttentionGradF64));
    const Index scratch = padded_size(n.S) * (n.dk + n.dv) + queries_size(n.dk) + 2 * scores_size(n.S) + factors_size(n.S, options.dropout);
    for_heads<T>(op, n, qs, ks, false, vs, mask, options, const_cast<T*>(lse.data<T>()), scratch, [&](const Head<T>& head, Index b, Index h, auto&& next) {
      const auto rows = [&](std::size_t i) { return to.wanted(i) ? mutable_rows_of(to.tensor(i), data[i], b, h) : Rows<T>{nullptr, 0}; };
      kernel(head, HeadGrad<T>{rows_of<T>(outputs, b, h), rows_of<T>(doutputs, b, h), next(outputs), next(doutputs),
                            gs.defined() ? rows_of<T>(gs, b, h) : Rows<const T>{nullptr, 0}, rows(0), rows(1), rows(2), to.add(0), to.add(1), to.add(2)});
    });
    to.finish();
  });
}

AttentionOutput scaled_dot_product_attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask,
                                                           const AttentionOptions& options) {
  const char* op = "scaled_dot_product_attention_by_definition";
  const Sizes n = check_inputs(op, q, k, v, options.places);
  if (options.places.defined()) {
    AttentionOptions plain = options;
    plain.places = {};
    return scaled_dot_product_attention_by_definition(q, gather_places(k, options.places), gather_places(v, options.places), mask, plain);
  }
  mask.check_fits(op, {n.B, n.H, n.T, n.S});
  const Tensor z = matmul(q * scale_of(options, n.dk), transpose(k));                     // [B, H, T, S]
  const Tensor p = softmax(z, -1, mask);
  const Tensor seen = mask.everything() ? z : where(mask.dense(z.shape()), z, full({}, -INFINITY, z.dtype()));
  const Tensor o = matmul(dropout(p, options.dropout, options.key), v);                  // [B, H, T, dv]
  return {transpose(transpose(o, 1, 2).contiguous(), 1, 2), logsumexp(seen, -1), options.weights ? p : Tensor()};
}

}  // namespace heed
#endif
