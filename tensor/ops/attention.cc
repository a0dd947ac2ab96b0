// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/attention.h"

#include <array>
#include <span>

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
  Rows from(std::size_t row) const { return {data + Index(row) * stride, stride, places ? places + row : nullptr, apart}; }
};

// A tensor [B, H, rows, width] whose rows are contiguous.
template <class T> struct Heads {
  T* data;
  Index sentence, head, row;               // strides
  std::size_t rows, width;
  const std::int64_t* places = nullptr;    // of sentence b: places + b * places_stride
  Index places_stride = 0;
  Rows<T> at(Index b, Index h) const {
    if (places) return {data + h * head, row, places + b * places_stride, sentence};
    return {data + b * sentence + h * head, row};
  }
};

// What the head that comes next reads and writes is fetched while this one is computed, `share` rows after each step of a group: the
// hardware does not see the way from one to the other.
template <class T> struct Ahead {
  const Heads<const T>* heads;
  std::size_t count;                       // of heads
  Index b, h;
  std::size_t share, at, row;              // fetched next: row `row` of heads[at]
};

// One (sentence, head).
template <class T> struct Head {
  std::size_t queries, keys, dk, dv;
  T scale;
  Rows<const T> q, k, v;
  bool k_by_columns;                       // k holds the rows of kᵀ
  const RowMask* mask;                     // a row each, null: everything
  DropoutKey dropout;
  Index first;                             // element index of P[0, 0]
  T* log_sum_exp;
  T* scratch;
  Ahead<T>* next;
};

template <class T> struct HeadGrad {
  Rows<const T> output, doutput;
  Rows<const T> dweights;                  // data null: zeros
  Rows<T> dq, dk, dv;                      // data null: not wanted
  bool add_dq, add_dk, add_dv;
};

// A block of keys and values lies in the caches while all queries pass it, a tile of rows at a time, whose scores are held in groups of
// rows that share a span of keys. The block is a step of the softmax: its size says the bits.
constexpr std::size_t kKeys = 256, kTileRows = 64, kGroupRows = 16;
constexpr std::size_t kFetched = 65536;    // bytes: a part of L2
constexpr std::size_t kPieceKeys = 64;     // a single group of queries meets its keys as they are turned, so many that stay in L1

inline std::size_t padded(std::size_t n) { return (n + 15) / 16 * 16; }
inline std::size_t block_keys(std::size_t keys) { return padded(std::min(keys, kKeys)); }
inline std::size_t row_stride(std::size_t keys) { return block_keys(keys) + 16; }      // of the scores; never a power of two
inline std::size_t score_count(std::size_t queries, std::size_t keys) { return std::min(queries, kTileRows) * row_stride(keys); }
inline std::size_t factor_count(std::size_t keys, bool drop) { return drop ? kGroupRows * row_stride(keys) : 0; }

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

// The keys that the rows [t, t + rows) look at.
struct Span {
  size_t first, last;
  bool empty() const { return first >= last; }
  Span within(size_t begin, size_t end) const { return {HWY_MAX(first, begin), HWY_MIN(last, end)}; }
};
template <class T> HWY_INLINE Span SpanOf(const Head<T>& head, size_t t, size_t rows) {
  if (!head.mask) return {0, head.keys};
  Span span{head.keys, 0};
  for (size_t i = t; i < t + rows; ++i) {
    const RowMask& mask = head.mask[i];
    if (mask.first >= mask.last) continue;
    if (size_t(mask.first) < span.first) span.first = size_t(mask.first);
    if (size_t(mask.last) > span.last) span.last = size_t(mask.last);
  }
  return span;
}

template <class T> HWY_INLINE RowMask MaskOf(const Head<T>& head, size_t t) {
  return head.mask ? head.mask[t] : RowMask{0, Index(head.keys)};
}

HWY_INLINE bool Covers(const RowMask& mask, size_t begin, size_t end) {
  return !mask.allowed && size_t(mask.first) <= begin && size_t(mask.last) >= end;
}

// A group of rows and the part of a block of keys that they look at. Columns are counted from the first key of the block; `begin` and
// `end` bound `first` and `last` in whole blocks of 16.
struct Group {
  size_t t, rows;                          // of the head
  size_t key;                              // the block's first
  bool fresh;                              // no earlier block was looked at
  size_t first, last, begin, end;
  bool empty() const { return first >= last; }
};
template <class T> HWY_INLINE Group GroupOf(const Head<T>& head, size_t t, size_t rows, size_t key, size_t keys) {
  const Span all = SpanOf(head, t, rows), span = all.within(key, key + keys);
  if (span.empty()) return {t, rows, key, false, 0, 0, 0, 0};
  const size_t first = span.first - key, last = span.last - key;
  return {t, rows, key, all.first >= key, first, last, first / 16 * 16, padded(last)};
}

// z of a group becomes -inf where a row does not look; greatest[i] = max z in the row
template <class T> HWY_INLINE void MaskScores(const Head<T>& head, const Group& group, T* scores, T* greatest) {
  const size_t stride = row_stride(head.keys);
  const Block<T> least = Set16(T(-__builtin_inf()));
  for (size_t i = 0; i < group.rows; ++i) {
    T* const z = scores + i * stride;
    const RowMask mask = MaskOf(head, group.t + i);
    const bool whole = Covers(mask, group.key + group.begin, group.key + group.end);
    Block<T> lanes = least;
    for (size_t s = group.begin; s < group.end; s += 16) {
      Block<T> v = Load16(z + s);
      if (!whole) Store16(v = Choose16(Allowed<T>(mask, group.key + s), v, least), z + s);
      lanes = Max16(lanes, v);
    }
    greatest[i] = MaxLane16(lanes);
  }
}

template <class T> HWY_INLINE void ScaleRow(T* x, size_t n, T factor) {
  for (size_t j = 0; j < n; j += 16) StoreN16(LoadN16(x + j, n - j) * Set16(factor), n - j, x + j);
}

template <class T> HWY_INLINE T ShiftOf(T most) { return most == T(-__builtin_inf()) ? T(0) : most; }   // exp(-inf - 0) = 0

// z becomes e = exp(z - most), most = max of z so far; what earlier blocks gave, sums = Σ e and the output, is brought to the same most.
template <class T>
HWY_INLINE void ExpOfScores(const Head<T>& head, const Group& group, const T* greatest, T* scores, T* most, T* sums, const Rows<T>& output) {
  const size_t stride = row_stride(head.keys);
  T shifts[kGroupRows], factors[16];
  for (size_t i = 0; i < group.rows; ++i) {
    const T before = group.fresh ? T(-__builtin_inf()) : most[i], now = greatest[i] > before ? greatest[i] : before;
    shifts[i] = ShiftOf(now);
    factors[i] = before - shifts[i];
    most[i] = now;
  }
  if (!group.fresh) {
    Store16(Exp16(LoadN16(factors, group.rows)), factors);
    for (size_t i = 0; i < group.rows; ++i)
      if (factors[i] != 1) ScaleRow(output[group.t + i], head.dv, factors[i]);
  }
  for (size_t i = 0; i < group.rows; ++i) {
    T* const z = scores + i * stride;
    const Block<T> shift = Set16(shifts[i]);
    Block<T> lanes = Set16(T(0));
    for (size_t s = group.begin; s < group.end; s += 16) {
      const Block<T> e = Exp16(Load16(z + s) - shift);
      lanes = lanes + e;
      Store16(e, z + s);
    }
    const T sum = Sum16(lanes);
    sums[i] = group.fresh ? sum : sums[i] * factors[i] + sum;
  }
}

// Dropout factors of a group; row i starts at factors + i * stride.
template <class T> HWY_INLINE size_t FactorsOf(const Head<T>& head, const Group& group, T* factors) {
  if (head.keys <= 128) {                                // neighbouring rows share groups of 128 elements
    DropoutFactors(head.dropout, head.first + Index(group.t * head.keys), group.rows * head.keys, factors);
    return head.keys;
  }
  const size_t stride = row_stride(head.keys);
  for (size_t i = 0; i < group.rows; ++i)
    DropoutFactors(head.dropout, head.first + Index((group.t + i) * head.keys + group.key + group.begin), group.last - group.begin,
                   factors + i * stride + group.begin);
  return stride;
}

// ---- one head -------------------------------------------------------------------------------------------------------------

// z = scale q kᵀ of a group; `queries` has room for its rows
template <class T> HWY_INLINE void ScoresOf(const Head<T>& head, const Group& group, Right<T> keys, T* turned, T* queries, T* scores) {
  const Block<T> scale = Set16(head.scale);
  for (size_t i = 0; i < group.rows; ++i)
    for (size_t j = 0; j < head.dk; j += 16)
      StoreN16(scale * LoadN16(head.q[group.t + i] + j, head.dk - j), head.dk - j, queries + i * head.dk + j);
  const auto stride = Index(row_stride(head.keys));
  if (head.queries > kGroupRows || head.k_by_columns) {
    keys.columns = head.k_by_columns ? group.last : group.end;
    return Product(queries, Index(head.dk), 1, keys, group.begin, group.rows, head.dk, scores, stride, false);
  }
  for (size_t s = group.begin; s < group.last; s += kPieceKeys) {
    const size_t count = HWY_MIN(kPieceKeys, group.last - s);
    Turn(head.k.from(group.key + s), count, head.dk, turned);
    Product(queries, Index(head.dk), 1, Right<T>{turned, 16, Index(16 * head.dk), padded(count)}, 0, group.rows, head.dk, scores + s, stride, false);
  }
}

// The end of the rows from `begin` on that lie a stride apart.
template <class T> HWY_INLINE size_t EndOfRun(const Rows<const T>& x, size_t begin, size_t end) {
  if (!x.places) return end;
  size_t i = begin;
  while (i < end && x.places[i] == x.places[begin]) ++i;
  return i;
}

// rows [begin, end) of x = 0
template <class T> void ClearRows(const Rows<T>& x, size_t begin, size_t end, size_t n) {
  for (size_t i = begin; i < end; ++i)
    for (size_t j = 0; j < n; ++j) x[i][j] = 0;
}

// Into L2: what a core can have on its way to L1 is less.
template <class T> HWY_NOINLINE void Fetch(Ahead<T>& next) {
  for (size_t left = next.share; left > 0 && next.at < next.count;) {
    const Heads<const T>& heads = next.heads[next.at];
    const Rows<const T> x = heads.at(next.b, next.h);
    for (; left > 0 && next.row < heads.rows; --left, ++next.row)
      for (size_t j = 0; j < heads.width; j += 64 / sizeof(T)) __builtin_prefetch(x[next.row] + j, 0, 2);
    if (next.row == heads.rows) ++next.at, next.row = 0;
  }
}

template <class T> void AttentionHead(const Head<T>& head, const Rows<T>& output, T* weights) {
  const size_t S = head.keys, stride = row_stride(S);
  T* const turned_k = head.scratch;
  T* const queries = turned_k + block_keys(S) * head.dk;
  T* const scores = queries + kGroupRows * head.dk;
  T* const factors = scores + score_count(head.queries, S);
  T* const sums = factors + factor_count(S, !head.dropout.keeps_all());
  T* const most = head.log_sum_exp;
  const Span seen = SpanOf(head, 0, head.queries);
  for (size_t key = seen.first / kKeys * kKeys; key < seen.last; key += kKeys) {
    const size_t keys = HWY_MIN(kKeys, seen.last - key);
    const Rows<const T> values = head.v.from(key);
    if (!head.k_by_columns && head.queries > kGroupRows) Turn(head.k.from(key), keys, head.dk, turned_k);
    const Right<T> right = head.k_by_columns ? Right<T>{head.k.data + key, head.k.stride, 16, 0} : Right<T>{turned_k, 16, Index(16 * head.dk), 0};
    for (size_t tile = 0; tile < head.queries; tile += kTileRows) {
      const size_t end = HWY_MIN(head.queries, tile + kTileRows);
      for (size_t t = tile; t < end; t += kGroupRows) {
        const Group group = GroupOf(head, t, HWY_MIN(kGroupRows, end - t), key, keys);
        if (group.empty()) continue;
        T* const z = scores + (t - tile) * stride;
        T greatest[kGroupRows];
        ScoresOf(head, group, right, turned_k, queries, z);
        Fetch(*head.next);
        MaskScores(head, group, z, greatest);
        for (size_t i = 0; weights && i < group.rows; ++i)
          for (size_t s = group.begin; s < group.last; ++s) weights[(t + i) * S + key + s] = z[i * stride + s];
        Fetch(*head.next);
        ExpOfScores(head, group, greatest, z, most + t, sums + t, output);
        Fetch(*head.next);
        if (head.dropout.keeps_all()) continue;
        const size_t factor_stride = FactorsOf(head, group, factors);
        for (size_t i = 0; i < group.rows; ++i)
          for (size_t s = group.begin; s < group.last; s += 16) {
            T* const e = z + i * stride + s;
            const size_t n = group.last - s;
            StoreN16(LoadN16(e, n) * LoadN16(factors + i * factor_stride + s, n), n, e);
          }
      }
      for (size_t t = tile; t < end; t += kGroupRows) {
        const Group group = GroupOf(head, t, HWY_MIN(kGroupRows, end - t), key, keys);
        Fetch(*head.next);
        for (size_t first = group.first, last; first < group.last; first = last) {
          last = EndOfRun(values, first, group.last);
          Product(scores + (t - tile) * stride + first, Index(stride), 1, Right<T>{values[first], values.stride, 16, head.dv}, 0, group.rows, last - first,
                  output[t], output.stride, !group.fresh || first > group.first);
        }
      }
    }
  }
  // o / Σ e;  log Σ exp(z) = most + log Σ e
  for (size_t t = 0; t < head.queries; t += kGroupRows) {
    const size_t rows = HWY_MIN(kGroupRows, head.queries - t);
    const Span span = SpanOf(head, t, rows);
    if (span.empty()) {
      ClearRows(output, t, t + rows, head.dv);
      for (size_t i = t; i < t + rows; ++i) most[i] = T(-__builtin_inf());
      for (size_t i = t * S; weights && i < (t + rows) * S; ++i) weights[i] = 0;
      continue;
    }
    const Block<T> sum = LoadN16(sums + t, rows, T(1));
    T shifts[kGroupRows], scales[16];
    Store16(Set16(T(1)) / sum, scales);
    for (size_t i = 0; i < rows; ++i) {
      const RowMask mask = MaskOf(head, t + i);
      if (mask.first >= mask.last) scales[i] = 0;
      shifts[i] = ShiftOf(most[t + i]);
      ScaleRow(output[t + i], head.dv, scales[i]);
    }
    StoreN16(LoadN16(most + t, rows) + Log16(sum), rows, most + t);      // -inf where nothing is allowed: log 0
    for (size_t i = 0; weights && i < rows; ++i) {
      T* const p = weights + (t + i) * S;
      const size_t begin = span.first / 16 * 16;
      for (size_t s = 0; s < begin; ++s) p[s] = 0;
      for (size_t s = begin; s < span.last; s += 16)
        StoreN16(Exp16(LoadN16(p + s, span.last - s) - Set16(shifts[i])) * Set16(scales[i]), span.last - s, p + s);
      for (size_t s = span.last; s < S; ++s) p[s] = 0;
    }
  }
}

// Σ_s p_s g_s over a row of a group, p_s = exp(z_s - shift)
template <class T> HWY_INLINE T WeightedSum(const T* z, Block<T> shift, const RowMask& mask, const Group& group, const T* g) {
  Block<T> lanes = Set16(T(0));
  for (size_t s = group.begin; s < group.end; s += 16)
    lanes = lanes + And16(Exp16(Load16(z + s) - shift) * LoadN16(g + s, group.last - s), Allowed<T>(mask, group.key + s));
  return Sum16(lanes);
}

// p = exp(z - log_sum_exp) ⊙ M in place of z,  scale dz = scale p (dp ⊙ M + g - δ) in place of dp; added: Σ p g stands in δ
template <class T>
HWY_INLINE void SlopesOf(const Head<T>& head, const Group& group, const Rows<const T>& dweights, bool added, const T* deltas, T* scores, T* slopes,
                         T* factors) {
  const size_t stride = row_stride(head.keys);
  const Block<T> scale = Set16(head.scale), zero = Set16(T(0));
  const bool drop = !head.dropout.keeps_all();
  const size_t factor_stride = drop ? FactorsOf(head, group, factors) : 0;
  for (size_t i = 0; i < group.rows; ++i) {
    const RowMask mask = MaskOf(head, group.t + i);
    const Block<T> shift = Set16(head.log_sum_exp[group.t + i]);
    const bool whole = Covers(mask, group.key + group.begin, group.key + group.end), none = mask.first >= mask.last;
    T *const z = scores + i * stride, *const d = slopes + i * stride;
    const T* const g = dweights.data && !none ? dweights[group.t + i] + group.key : nullptr;
    const Block<T> delta = Set16(deltas[group.t + i] + (g && !added ? WeightedSum(z, shift, mask, group, g) : T(0)));
    for (size_t s = group.begin; s < group.end; s += 16) {
      Block<T> p = none ? zero : Exp16(Load16(z + s) - shift), dp = Load16(d + s), kept = p;
      if (drop) {
        const Block<T> m = LoadN16(factors + i * factor_stride + s, group.last - s);
        kept = p * m;
        dp = dp * m;
      }
      if (g) dp = dp + LoadN16(g + s, group.last - s);
      Block<T> dz = scale * (p * (dp - delta));
      if (!whole) {
        const Block<T> allowed = none ? zero : Allowed<T>(mask, group.key + s);
        kept = And16(kept, allowed);
        dz = And16(dz, allowed);
      }
      Store16(kept, z + s);
      Store16(dz, d + s);
    }
  }
}

// c rows [first, last) (=|+=) aᵀ b, a [rows, keys] of a tile: rows from `written` on are new unless there is something to add to
template <class T>
HWY_INLINE void SumOverRows(const T* a, size_t stride, const Rows<const T>& b, size_t rows, size_t width, size_t first, size_t last, size_t written,
                            bool add, const Rows<T>& c) {
  if (!c.data) return;
  if (!add) ClearRows(c, written, first, width);
  const size_t fresh = written > first ? HWY_MIN(written, last) : first;
  const Right<T> right{b.data, b.stride, 16, width};
  Product(a + first, 1, Index(stride), right, 0, fresh - first, rows, c[first], c.stride, true);
  Product(a + fresh, 1, Index(stride), right, 0, last - fresh, rows, c[fresh], c.stride, add);
}

// forward was  o_t = Σ_s m_ts p_ts v_s,  so now
//   dv_s += m_ts p_ts do_t,  dz_ts = p_ts (m_ts do_t·v_s + g_ts - δ_t),  dq_t = scale Σ_s dz_ts k_s,  dk_s += scale dz_ts q_t
// with δ_t = do_t·o_t + Σ_s p_ts g_ts.
template <class T> void AttentionHeadGrad(const Head<T>& head, const HeadGrad<T>& grad) {
  const size_t S = head.keys, dk = head.dk, dv = head.dv, stride = row_stride(S);
  T* const turned_k = head.scratch;
  T* const turned_v = turned_k + block_keys(S) * dk;
  T* const queries = turned_v + block_keys(S) * dv;
  T* const scores = queries + kGroupRows * dk;               // P, then P ⊙ M
  T* const slopes = scores + score_count(head.queries, S);   // dP, then scale dZ
  T* const factors = slopes + score_count(head.queries, S);
  T* const deltas = factors + factor_count(S, !head.dropout.keeps_all());
  const Span seen = SpanOf(head, 0, head.queries);
  const size_t begin = seen.first / kKeys * kKeys;
  const Right<T> right_k{turned_k, 16, Index(16 * dk), 0};
  for (size_t t = 0; t < head.queries; ++t) {
    const T *o = grad.output[t], *d_o = grad.doutput[t];
    Block<T> dots = Set16(T(0));
    for (size_t j = 0; j < dv; j += 16) dots = MulAdd16(LoadN16(o + j, dv - j), LoadN16(d_o + j, dv - j), dots);
    deltas[t] = Sum16(dots);
  }
  // Σ_s p_ts g_ts over all keys stands before the first dz_ts
  const bool many = grad.dweights.data && seen.last > begin + kKeys;
  for (size_t key = begin; many && key < seen.last; key += kKeys) {
    const size_t keys = HWY_MIN(kKeys, seen.last - key);
    if (head.queries > kGroupRows) Turn(head.k.from(key), keys, dk, turned_k);
    for (size_t t = 0; t < head.queries; t += kGroupRows) {
      const Group group = GroupOf(head, t, HWY_MIN(kGroupRows, head.queries - t), key, keys);
      if (group.empty()) continue;
      ScoresOf(head, group, right_k, turned_k, queries, scores);
      for (size_t i = 0; i < group.rows; ++i)
        if (const RowMask mask = MaskOf(head, t + i); mask.first < mask.last)
          deltas[t + i] += WeightedSum(scores + i * stride, Set16(head.log_sum_exp[t + i]), mask, group, grad.dweights[t + i] + key);
    }
  }
  for (size_t key = begin; key < seen.last; key += kKeys) {
    const size_t keys = HWY_MIN(kKeys, seen.last - key);
    size_t written = 0;                                  // rows of dk and dv in this block that hold their sum so far
    if (head.queries > kGroupRows) Turn(head.k.from(key), keys, dk, turned_k);
    Turn(head.v.from(key), keys, dv, turned_v);
    for (size_t tile = 0; tile < head.queries; tile += kTileRows) {
      const size_t rows = HWY_MIN(kTileRows, head.queries - tile);
      Span span = SpanOf(head, tile, rows).within(key, key + keys);
      if (span.empty()) continue;
      span = {span.first - key, span.last - key};
      for (size_t t = 0; t < rows; t += kGroupRows) {
        const Group group = GroupOf(head, tile + t, HWY_MIN(kGroupRows, rows - t), key, keys);
        T *const z = scores + t * stride, *const d = slopes + t * stride;
        for (size_t i = 0; i < group.rows; ++i) {
          for (size_t s = span.first; s < group.begin; ++s) z[i * stride + s] = d[i * stride + s] = 0;
          for (size_t s = HWY_MAX(group.end, span.first); s < span.last; ++s) z[i * stride + s] = d[i * stride + s] = 0;
        }
        if (group.empty()) continue;
        ScoresOf(head, group, right_k, turned_k, queries, z);
        Fetch(*head.next);
        const Right<T> values{turned_v, 16, Index(16 * dv), group.end};
        Product(grad.doutput[group.t], grad.doutput.stride, 1, values, group.begin, group.rows, dv, d, Index(stride), false);
        Fetch(*head.next);
        SlopesOf(head, group, grad.dweights, many, deltas, z, d, factors);
        Fetch(*head.next);
        if (!grad.dq.data) continue;
        const Right<T> right{head.k[key + group.first], head.k.stride, 16, dk};
        Product(d + group.first, Index(stride), 1, right, 0, group.rows, group.last - group.first, grad.dq[group.t], grad.dq.stride, grad.add_dq || !group.fresh);
      }
      Fetch(*head.next);
      SumOverRows(slopes, stride, head.q.from(tile), rows, dk, span.first, span.last, written, grad.add_dk, grad.dk.from(key));
      Fetch(*head.next);
      SumOverRows(scores, stride, grad.doutput.from(tile), rows, dv, span.first, span.last, written, grad.add_dv, grad.dv.from(key));
      written = HWY_MAX(written, span.last);
    }
    if (grad.dk.data && !grad.add_dk) ClearRows(grad.dk, key + written, key + keys, dk);
    if (grad.dv.data && !grad.add_dv) ClearRows(grad.dv, key + written, key + keys, dv);
  }
  // what nobody looks at
  for (size_t t = 0; t < head.queries && grad.dq.data && !grad.add_dq; t += kGroupRows)
    if (const size_t rows = HWY_MIN(kGroupRows, head.queries - t); SpanOf(head, t, rows).empty()) ClearRows(grad.dq, t, t + rows, dk);
  for (const auto& [first, last] : {Span{0, HWY_MIN(begin, S)}, Span{seen.empty() ? 0 : seen.last, S}}) {
    if (grad.dk.data && !grad.add_dk) ClearRows(grad.dk, first, last, dk);
    if (grad.dv.data && !grad.add_dv) ClearRows(grad.dv, first, last, dv);
  }
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

template <class T> Heads<T> heads_of(const Tensor& x, T* data, const Tensor& places = {}) {
  Heads<T> heads{data, x.strides()[0], x.strides()[1], x.strides()[2], std::size_t(x.size(2)), std::size_t(x.size(3))};
  if (places.defined()) heads.places = places.data<std::int64_t>(), heads.places_stride = places.strides()[0];
  return heads;
}
template <class T> Heads<const T> heads_of(const Tensor& x, const Tensor& places = {}) { return heads_of<const T>(x, x.data<T>(), places); }

// Rows of a head that are one piece of parallel work: where heads are few, a long one is cut, which turns its keys once more a part.
Index part_rows(const Sizes& n) { return n.B * n.H < 64 ? Index(4 * kTileRows) : std::max<Index>(n.T, 1); }

// Runs f(head, b, h, t) for all (b, h) in parallel, each in parts of `rows` queries from t on; head.log_sum_exp and scratch are set.
// heads: q, k, v, then what else a head reads and writes.
template <class T, class F>
void for_heads(const char* op, const Sizes& n, Index rows, std::span<const Heads<const T>> heads, bool k_by_columns, const Mask& mask,
               const AttentionOptions& options, T* log_sum_exp, Index scratch_size, F&& f) {
  const MaskRows mask_rows(op, mask, {n.B, n.H, n.T, n.S});
  const DropoutKey dropout(op, options.dropout, options.key);
  const auto scale = T(scale_of(options, n.dk));
  const Index parts = std::max<Index>(1, (n.T + rows - 1) / rows);
  std::size_t next_rows = 0, next_size = 0;
  for (const Heads<const T>& x : heads) next_rows += x.rows, next_size += x.rows * x.width;
  const bool fetches = parts == 1 && next_size * sizeof(T) <= kFetched;
  const std::size_t share = next_rows / (4 * std::size_t(n.T / Index(kGroupRows) + 1)) + 1;   // a group has four steps and more
  parallel_for(n.B * n.H * parts, row_grain(std::min(rows, n.T) * n.S * (1 + (n.dk + n.dv) / 16)), [&](Index begin, Index end) {
    const Tensor room = empty({scratch_size}, dtype_of<T>);
    T* const scratch = room.mutable_data<T>();
    List<RowMask> masks(std::size_t(mask_rows.everything() ? 0 : std::min(rows, n.T)));
    for (Index item = begin; item < end; ++item) {
      const Index i = item / parts, b = i / n.H, h = i % n.H, first = item % parts * rows, count = std::min(rows, n.T - first);
      if (item == begin || h == 0 || parts > 1 || mask.allowed().defined())      // else the heads of a sentence look alike
        for (Index t = 0; t < std::min(count, Index(masks.size())); ++t) {
          const RowMask row = mask_rows(i * n.T + first + t);
          masks[std::size_t(t)] = row.nothing() ? RowMask{0, 0} : row;
        }
      Ahead<T> next{heads.data(), fetches && item + 1 < end ? heads.size() : 0, (i + 1) / n.H, (i + 1) % n.H, share, 0, 0};
      f(Head<T>{std::size_t(count), std::size_t(n.S), std::size_t(n.dk), std::size_t(n.dv), scale, heads[0].at(b, h).from(std::size_t(first)),
                heads[1].at(b, h), heads[2].at(b, h), k_by_columns, masks.empty() ? nullptr : masks.data(), dropout,
                (i * n.T + first) * n.S, log_sum_exp + i * n.T + first, scratch, &next}, b, h, first);
    }
  });
}

// Elements: blocks of turned keys, and values, a group of queries, tiles of scores, factors, and a number a row.
Index scratch_size(Index width, const Sizes& n, const AttentionOptions& options, Index tiles) {
  const auto T = std::size_t(n.T), S = std::size_t(n.S);
  return Index(block_keys(S)) * width + Index(kGroupRows) * n.dk + tiles * Index(score_count(T, S)) + Index(factor_count(S, options.dropout > 0)) + n.T;
}

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
    const Tensor places = options.places.defined() && n.S > 0 ? with_dense_rows(options.places) : Tensor();
    AttentionOutput out{transpose(empty({n.B, n.T, n.H, n.dv}, q.dtype()), 1, 2), empty({n.B, n.H, n.T}, q.dtype()), {}};
    if (options.weights) out.weights = empty({n.B, n.H, n.T, n.S}, q.dtype());
    const Heads<T> output = heads_of(out.output, out.output.mutable_data<T>());
    T* const weights = options.weights ? out.weights.mutable_data<T>() : nullptr;
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(AttentionF32), &HWY_DYNAMIC_DISPATCH(AttentionF64));
    const std::array heads{heads_of<T>(qs), heads_of<T>(ks, places), heads_of<T>(vs, places), heads_of<T>(out.output)};
    for_heads<T>(op, n, part_rows(n), heads, k_by_columns, mask, options, out.log_sum_exp.mutable_data<T>(),
                 scratch_size(n.dk, n, options, 1), [&](const Head<T>& head, Index b, Index h, Index t) {
                   kernel(head, output.at(b, h).from(std::size_t(t)), weights ? weights + ((b * n.H + h) * n.T + t) * n.S : nullptr);
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
    std::array<Heads<T>, 3> gradients{};
    List<Heads<const T>> heads{heads_of<T>(qs), heads_of<T>(ks), heads_of<T>(vs), heads_of<T>(outputs), heads_of<T>(doutputs)};
    for (std::size_t i = 0; i < 3; ++i)
      if (to.wanted(i)) {
        gradients[i] = heads_of(to.tensor(i), to.tensor(i).template mutable_data<T>());
        heads.push_back(heads_of<T>(to.tensor(i)));
      }
    const Heads<const T> dweights_heads = gs.defined() ? heads_of<T>(gs) : Heads<const T>{};
    const auto kernel = pick<T>(&HWY_DYNAMIC_DISPATCH(AttentionGradF32), &HWY_DYNAMIC_DISPATCH(AttentionGradF64));
    for_heads<T>(op, n, std::max<Index>(n.T, 1), heads, false, mask, options, const_cast<T*>(lse.data<T>()),
                 scratch_size(n.dk + n.dv, n, options, 2), [&](const Head<T>& head, Index b, Index h, Index) {
                   kernel(head, HeadGrad<T>{heads[3].at(b, h), heads[4].at(b, h), dweights_heads.at(b, h), gradients[0].at(b, h),
                                            gradients[1].at(b, h), gradients[2].at(b, h), to.add(0), to.add(1), to.add(2)});
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
