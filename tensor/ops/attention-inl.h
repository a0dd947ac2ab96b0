// SPDX-License-Identifier: Apache-2.0
// One head of attention and its gradient with a query a lane: scores stand as rows of keys, z[s][t], so that the softmax of 16 queries
// is one pass over their keys in which no lane meets another.
#include "tensor/block-inl.h"
#include "tensor/dropout-inl.h"
#include "tensor/ops/attention_head.h"
#include "tensor/tile-inl.h"

#if defined(HEED_TENSOR_OPS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_OPS_ATTENTION_INL_H_
#undef HEED_TENSOR_OPS_ATTENTION_INL_H_
#else
#define HEED_TENSOR_OPS_ATTENTION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// ---- which keys a group looks at ---------------------------------------------------------------------------------------------

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
  for (size_t i = t; head.in_steps && i < t + rows; ++i)
    if (head.mask[i].front > 0) span = {0, HWY_MAX(span.last, size_t(head.mask[i].front))};
  return span;
}

// Those of `all` that they look at in [begin, end): between the first positions and a window there may be none.
template <class T> HWY_INLINE Span SpanWithin(const Head<T>& head, size_t t, size_t rows, const Span& all, size_t begin, size_t end) {
  if (!head.in_steps) return all.within(begin, end);
  Span span{end, begin};
  for (size_t i = t; i < t + rows; ++i) {
    const RowMask& mask = head.mask[i];
    for (const Span& part :
         {Span{0, size_t(mask.front)}.within(begin, end), Span{size_t(mask.first), size_t(mask.last)}.within(begin, end)})
      if (!part.empty()) span = {HWY_MIN(span.first, part.first), HWY_MAX(span.last, part.last)};
  }
  return span;
}

HWY_INLINE bool Covers(const RowMask& mask, size_t begin, size_t end) {
  return !mask.allowed && size_t(mask.first) <= begin && size_t(mask.last) >= end;
}

// At most 16 rows and the part of a block of keys that they look at, counted from the block's first key.
struct Group {
  size_t t, rows;                          // of the head
  size_t key;                              // the block's first
  bool fresh;                              // no earlier block was looked at
  size_t first, last;
  bool empty() const { return first >= last; }
};
template <class T> HWY_INLINE Group GroupOf(const Head<T>& head, size_t t, size_t rows, size_t key, size_t keys) {
  const Span all = SpanOf(head, t, rows), span = SpanWithin(head, t, rows, all, key, key + keys);
  if (span.empty()) return {t, rows, key, false, 0, 0};
  return {t, rows, key, all.first >= key, span.first - key, span.last - key};
}

// Of each lane of a group, the keys it may look at. Lanes beyond the rows repeat the last one.
template <class T> struct Sight {
  bool whole = true;                       // all of the group's keys, in every lane
  bool range = true;                       // what each row may look at; else some row has bytes, or all are in steps
  bool steps = false;
  const RowMask* rows[kGroupRows];
  Block<T> first, last, step, front;
  HWY_INLINE Block<T> At(size_t s) const { return range ? Within16(first, last, T(s)) : AllowedAt(s); }
  // Not inlined: its registers would be missed where masks are ranges.
  HWY_NOINLINE Block<T> AllowedAt(size_t s) const {
    if (steps) return Or16(And16(Within16(first, last, T(s)), Multiple16(Set16(T(s)) - first, step)), Positive16(front - Set16(T(s))));
    T allowed[16];
    for (size_t i = 0; i < 16; ++i)
      allowed[i] = Index(s) >= rows[i]->first && Index(s) < rows[i]->last && (!rows[i]->allowed || rows[i]->allowed[s]);
    return Positive16(Load16(allowed));
  }
};
template <class T> HWY_INLINE Sight<T> SightOf(const Head<T>& head, const Group& group) {
  Sight<T> sight;
  sight.steps = head.in_steps, sight.whole = sight.range = !head.in_steps;
  for (size_t i = 0; head.mask && i < group.rows; ++i) {
    sight.whole = sight.whole && Covers(head.mask[group.t + i], group.key + group.first, group.key + group.last);
    sight.range = sight.range && !head.mask[group.t + i].allowed;
  }
  if (sight.whole) return sight;
  T first[16], last[16];
  for (size_t i = 0; i < 16; ++i) {
    const RowMask& mask = head.mask[group.t + HWY_MIN(i, group.rows - 1)];
    first[i] = T(mask.first), last[i] = T(mask.last);
    sight.rows[i] = &mask;
  }
  sight.first = Load16(first), sight.last = Load16(last);
  if (!head.in_steps) return sight;
  for (size_t i = 0; i < 16; ++i) first[i] = T(sight.rows[i]->step), last[i] = T(sight.rows[i]->front);
  sight.step = Load16(first), sight.front = Load16(last);
  return sight;
}

// ---- pieces of a head --------------------------------------------------------------------------------------------------------

// rows [begin, end) of x = 0
template <class T> void ClearRows(const Rows<T>& x, size_t begin, size_t end, size_t n) {
  for (size_t i = begin; i < end; ++i)
    for (size_t j = 0; j < n; ++j) x[i][j] = 0;
}

template <class T> HWY_INLINE void ScaleRow(T* x, size_t n, T factor) {
  for (size_t j = 0; j < n; j += 16) StoreN16(LoadN16(x + j, n - j) * Set16(factor), n - j, x + j);
}

template <class T> HWY_INLINE Block<T> ShiftOf(Block<T> most) {         // exp(-inf - 0) = 0
  const typename Block<T>::D d;
  HEED_EACH_REGISTER most.v[r] = hn::IfThenZeroElse(hn::Eq(most.v[r], hn::Set(d, T(-__builtin_inf()))), most.v[r]);
  return most;
}

// Σ_s x[s] in every lane of a group: key s goes to number s % 16, numbers are folded in halves, as lanes are where a row lies in lanes.
// x is filled with zeros to whole 16s of keys at both ends.
template <class T> HWY_INLINE Block<T> SumOverKeys(const Group& group, T* x) {
  const size_t begin = group.first / 16 * 16, end = padded(group.last);
  for (size_t s = begin; s < group.first; ++s) Store16(Set16(T(0)), x + 16 * s);
  for (size_t s = group.last; s < end; ++s) Store16(Set16(T(0)), x + 16 * s);
  Block<T> numbers[16];
  HWY_UNROLL(16)
  for (size_t i = 0; i < 16; ++i) numbers[i] = Load16(x + 16 * (begin + i));
  for (size_t s = begin + 16; s < end; s += 16) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < 16; ++i) numbers[i] = numbers[i] + Load16(x + 16 * (s + i));
  }
  HWY_UNROLL(4)
  for (size_t half = 8; half > 0; half /= 2) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < half; ++i) numbers[i] = numbers[i] + numbers[i + half];
  }
  return numbers[0];
}

// y[j][i] = x[t + i][j], j < n: a group's rows, a lane each
template <class T>
HWY_INLINE void TurnGroup(const Group& group, const Rows<const T>& x, size_t n, T* y) {
  Turn(x.from(group.t), group.rows, n, y);
}

// Dropout factors of a group, m[s][t], and of its keys' neighbours that are drawn with them
template <class T> HWY_INLINE void FactorsOf(const Head<T>& head, const Group& group, T* factors) {
  const size_t begin = group.first / kDrawnKeys * kDrawnKeys, count = drawn_keys(group.last - begin);
  DropoutFactors(head.dropout, head.first + Index(group.t * drawn_keys(head.keys) + kGroupRows * (group.key + begin)), kGroupRows * count,
                 factors + kGroupRows * begin);
}

// z[s][t] = scale k_s·q_t of a group, in rows a stride apart; `queries` has room for the group
template <class T> HWY_INLINE void DotsOf(const Head<T>& head, const Group& group, T* queries, T* z, size_t stride) {
  TurnGroup(group, head.q, head.dk, queries);
  const Block<T> scale = Set16(head.scale);
  for (size_t j = 0; j < head.dk; ++j) Store16(scale * Load16(queries + 16 * j), queries + 16 * j);
  const Right<T> right{queries, 16, 0, 16};
  if (head.k_by_columns)
    return Product(head.k.data + group.key + group.first, 1, head.k.stride, right, 0, group.last - group.first, head.dk,
                   z + group.first * stride, Index(stride), false, *head.next);
  const Rows<const T> keys = head.k.from(group.key);
  for (size_t first = group.first, end; first < group.last; first = end) {
    end = keys.end_of_run(first, group.last);
    Product(keys[first], keys.stride, 1, right, 0, end - first, head.dk, z + first * stride, Index(stride), false, *head.next);
  }
}

// z[s][t] = scale k_s·q_t + bias_ts; `bias` has room for the group's
template <class T> HWY_INLINE void ScoresOf(const Head<T>& head, const Group& group, T* queries, T* bias, T* z, size_t stride) {
  DotsOf(head, group, queries, z, stride);
  if (!bias) return;
  const size_t begin = group.key + group.first, count = group.last - group.first;
  Turn(Rows<const T>{head.bias[group.t] + begin, head.bias.stride}, group.rows, count, bias);
  for (size_t s = 0; s < count; ++s) {
    T* const to = z + (group.first + s) * stride;
    Store16(Load16(to) + Load16(bias + 16 * s), to);
  }
}

// z becomes -inf where a row does not look; greatest z of each row
template <class T> HWY_INLINE Block<T> MaskScores(const Group& group, const Sight<T>& sight, T* z) {
  const Block<T> least = Set16(T(-__builtin_inf()));
  Block<T> greatest = least;
  for (size_t s = group.first; s < group.last; ++s) {
    Block<T> v = Load16(z + 16 * s);
    if (!sight.whole) Store16(v = Choose16(sight.At(group.key + s), v, least), z + 16 * s);
    greatest = Max16(greatest, v);
  }
  return greatest;
}

// z becomes m e, e = exp(z - most), most = max of z so far; what earlier blocks gave, sums = Σ e and the output, is brought to the same
// most. factors null: m = 1
template <class T>
HWY_INLINE void ExpOfScores(const Head<T>& head, const Group& group, const Block<T>& greatest, const T* factors, T* z, T* most, T* sums,
                            const Rows<T>& output) {
  const Block<T> before = group.fresh ? Set16(T(-__builtin_inf())) : LoadN16(most, group.rows), now = Max16(greatest, before),
                 shift = ShiftOf(now);
  StoreN16(now, group.rows, most);
  for (size_t s = group.first; s < group.last; ++s) Store16(Exp16(Load16(z + 16 * s) - shift), z + 16 * s);
  const Block<T> sum = SumOverKeys(group, z);
  for (size_t s = group.first; factors && s < group.last; ++s) Store16(Load16(z + 16 * s) * Load16(factors + 16 * s), z + 16 * s);
  if (group.fresh) return StoreN16(sum, group.rows, sums);
  T earlier[16];
  const Block<T> factor = Exp16(before - shift);
  Store16(factor, earlier);
  for (size_t i = 0; i < group.rows; ++i)
    if (earlier[i] != 1) ScaleRow(output[group.t + i], head.dv, earlier[i]);
  StoreN16(LoadN16(sums, group.rows) * factor + sum, group.rows, sums);
}

// o_t (=|+=) Σ_s e[s][t] v_s
template <class T> HWY_INLINE void ValuesOf(const Head<T>& head, const Group& group, const T* e, const Rows<T>& output) {
  const Rows<const T> values = head.v.from(group.key);
  for (size_t first = group.first, end; first < group.last; first = end) {
    end = values.end_of_run(first, group.last);
    Product(e + 16 * first, 1, 16, Right<T>{values[first], values.stride, 16, head.dv}, 0, group.rows, end - first, output[group.t],
            output.stride, !group.fresh || first > group.first, *head.next);
  }
}

// Weights of `rows` rows, which will hold z, where no block is looked at between the first positions and a window
template <class T> HWY_INLINE void SkipWeights(const Head<T>& head, size_t rows, T* weights) {
  for (size_t i = 0; weights && head.in_steps && i < rows * head.keys; ++i) weights[i] = T(-__builtin_inf());
}

// At most 16 rows: o / Σ e;  log Σ exp(z) = most + log Σ e;  weights, which hold z, become exp(z - most) / Σ e. The output of row i
// stands at output(i).
template <class T, class Output>
HWY_INLINE void FinishRows(const Head<T>& head, size_t rows, const Span& span, const T* sums, T* most, T* weights, const Output& output) {
  const size_t S = head.keys;
  if (span.empty()) {
    for (size_t i = 0; i < rows; ++i) {
      most[i] = T(-__builtin_inf());
      for (size_t j = 0; j < head.dv; ++j) output(i)[j] = 0;
    }
    for (size_t i = 0; weights && i < rows * S; ++i) weights[i] = 0;
    return;
  }
  const Block<T> sum = LoadN16(sums, rows, T(1)), greatest = LoadN16(most, rows);   // sum 0: nothing is allowed
  T shifts[16], scales[16];
  Store16(ShiftOf(greatest), shifts);
  Store16(Set16(T(1)) / sum, scales);
  for (size_t i = 0; i < rows; ++i) {
    if (sums[i] == 0) scales[i] = 0;
    ScaleRow(output(i), head.dv, scales[i]);
  }
  StoreN16(greatest + Log16(sum), rows, most);           // -inf where nothing is allowed: log 0
  for (size_t i = 0; weights && i < rows; ++i) {
    T* const p = weights + i * S;
    for (size_t s = 0; s < span.first; ++s) p[s] = 0;
    for (size_t s = span.first; s < span.last; s += 16)
      StoreN16(Exp16(LoadN16(p + s, span.last - s) - Set16(shifts[i])) * Set16(scales[i]), span.last - s, p + s);
    for (size_t s = span.last; s < S; ++s) p[s] = 0;
  }
}

// ---- one head ----------------------------------------------------------------------------------------------------------------

template <class T> void AttentionHead(const Head<T>& head, const Rows<T>& output, T* weights) {
  const size_t S = head.keys;
  Room<T> room{head.scratch};
  T* const queries = room.take(kGroupRows * head.dk);
  T* const z = room.take(kGroupRows * block_keys(S));
  T* const factors = head.dropout.keeps_all() ? nullptr : room.take(kGroupRows * block_keys(S));
  T* const sums = room.take(head.queries);
  T* const bias = head.bias.data ? room.take(kGroupRows * block_keys(S)) : nullptr;
  const Span seen = SpanOf(head, 0, head.queries);
  SkipWeights(head, head.queries, weights);
  for (size_t key = seen.first / kKeys * kKeys; key < seen.last; key += kKeys)
    for (size_t t = 0; t < head.queries; t += kGroupRows) {
      const Group group = GroupOf(head, t, HWY_MIN(kGroupRows, head.queries - t), key, HWY_MIN(kKeys, seen.last - key));
      if (group.empty()) continue;
      ScoresOf(head, group, queries, bias, z, kGroupRows);
      const Block<T> greatest = MaskScores(group, SightOf(head, group), z);
      for (size_t i = 0; weights && i < group.rows; ++i)
        for (size_t s = group.first; s < group.last; ++s) weights[(t + i) * S + key + s] = z[16 * s + i];
      if (factors) FactorsOf(head, group, factors);
      ExpOfScores(head, group, greatest, factors, z, head.log_sum_exp + t, sums + t, output);
      ValuesOf(head, group, z, output);
    }
  for (size_t t = 0; t < head.queries; t += kGroupRows) {
    const size_t rows = HWY_MIN(kGroupRows, head.queries - t);
    FinishRows(head, rows, SpanOf(head, t, rows), sums + t, head.log_sum_exp + t, weights ? weights + t * S : nullptr,
               [&](size_t i) { return output[t + i]; });
  }
}

// ---- its gradient ------------------------------------------------------------------------------------------------------------

// p ⊙ M in place of z,  scale dz = scale p (dp ⊙ M + g - δ) in place of dp,  p = exp(z - log_sum_exp). factors null: M = 1, g null: 0;
// slopes, unless null, become dz
template <class T>
HWY_INLINE void SlopesOf(const Head<T>& head, const Group& group, const Sight<T>& sight, const T* deltas, const T* factors, const T* g,
                         T* z, T* dp, size_t stride, T* slopes) {
  const Block<T> scale = Set16(head.scale), shift = ShiftOf(LoadN16(head.log_sum_exp + group.t, group.rows)),
                 delta = LoadN16(deltas + group.t, group.rows);
  for (size_t s = group.first; s < group.last; ++s) {
    const Block<T> p = Exp16(Load16(z + s * stride) - shift);
    Block<T> kept = p, slope = Load16(dp + s * stride);
    if (factors) {
      const Block<T> m = Load16(factors + 16 * s);
      kept = p * m;
      slope = slope * m;
    }
    if (g) slope = slope + Load16(g + 16 * s);
    slope = p * (slope - delta);
    if (!sight.whole) {
      const Block<T> allowed = sight.At(group.key + s);
      kept = And16(kept, allowed);
      slope = And16(slope, allowed);
    }
    if (slopes) Store16(slope, slopes + 16 * s);
    slope = scale * slope;
    Store16(kept, z + s * stride);
    Store16(slope, dp + s * stride);
  }
}

// g[s][t] of a group
template <class T> HWY_INLINE void WeightGradients(const Group& group, const Rows<const T>& dweights, T* g) {
  TurnGroup(group, Rows<const T>{dweights.data + group.key + group.first, dweights.stride}, group.last - group.first, g + 16 * group.first);
}

// y_ts = x[s][t] of a group
template <class T> HWY_INLINE void ReturnGroup(const Group& group, const T* x, const Rows<T>& y) {
  T turned[16 * 16];
  for (size_t s = group.first; s < group.last; s += 16) {
    const size_t keys = HWY_MIN(size_t{16}, group.last - s);
    Turn(Rows<const T>{x + 16 * s, 16}, keys, 16, turned);
    for (size_t i = 0; i < group.rows; ++i) StoreN16(Load16(turned + 16 * i), keys, y[group.t + i] + group.key + s);
  }
}

// deltas += Σ_s p_ts g_ts over all keys
template <class T>
void AddWeightGradients(const Head<T>& head, const Rows<const T>& dweights, const Span& seen, T* queries, T* bias, T* z, T* g, T* deltas) {
  for (size_t key = seen.first / kKeys * kKeys; key < seen.last; key += kKeys)
    for (size_t t = 0; t < head.queries; t += kGroupRows) {
      const Group group = GroupOf(head, t, HWY_MIN(kGroupRows, head.queries - t), key, HWY_MIN(kKeys, seen.last - key));
      if (group.empty()) continue;
      ScoresOf(head, group, queries, bias, z, kGroupRows);
      WeightGradients(group, dweights, g);
      const Sight<T> sight = SightOf(head, group);
      const Block<T> shift = ShiftOf(LoadN16(head.log_sum_exp + t, group.rows));
      for (size_t s = group.first; s < group.last; ++s) {
        const Block<T> pg = Exp16(Load16(z + 16 * s) - shift) * Load16(g + 16 * s);
        Store16(sight.whole ? pg : And16(pg, sight.At(key + s)), z + 16 * s);
      }
      StoreN16(LoadN16(deltas + t, group.rows) + SumOverKeys(group, z), group.rows, deltas + t);
    }
}

// c rows [first, last) (=|+=) aᵀ b, aᵀ [keys, rows] of a tile: rows from `written` on are new unless there is something to add to
template <class T>
HWY_INLINE void SumOverRows(const T* a, size_t stride, const Rows<const T>& b, size_t rows, size_t width, size_t first, size_t last,
                            size_t written, bool add, const Rows<T>& c, Ahead<T>& next) {
  if (!c.data) return;
  if (!add) ClearRows(c, written, first, width);
  const size_t fresh = written > first ? HWY_MIN(written, last) : first;
  const Right<T> right{b.data, b.stride, 16, width};
  Product(a + first * stride, Index(stride), 1, right, 0, fresh - first, rows, c[first], c.stride, true, next);
  Product(a + fresh * stride, Index(stride), 1, right, 0, last - fresh, rows, c[fresh], c.stride, add, next);
}

// forward was  o_t = Σ_s m_ts p_ts v_s,  so now
//   dv_s += m_ts p_ts do_t,  dbias_ts = dz_ts = p_ts (m_ts do_t·v_s + g_ts - δ_t),  dq_t = scale Σ_s dz_ts k_s,  dk_s += scale dz_ts q_t
// with δ_t = do_t·o_t + Σ_s p_ts g_ts.
template <class T> void AttentionHeadGrad(const Head<T>& head, const HeadGrad<T>& grad) {
  const size_t S = head.keys, dk = head.dk, dv = head.dv, stride = tile_stride(head.queries);
  Room<T> room{head.scratch};
  T* const queries = room.take(kGroupRows * dk);
  T* const doutputs = room.take(kGroupRows * dv);
  T* const scores = room.take(block_keys(S) * stride);       // P, then P ⊙ M
  T* const slopes = room.take(block_keys(S) * stride);       // dP, then scale dZ
  T* const factors = head.dropout.keeps_all() ? nullptr : room.take(kGroupRows * block_keys(S));
  T* const g = grad.dweights.data ? room.take(kGroupRows * block_keys(S)) : nullptr;
  T* const deltas = room.take(head.queries);
  T* const bias = head.bias.data ? room.take(kGroupRows * block_keys(S)) : nullptr;
  T* const bias_slopes = grad.dbias.data ? room.take(kGroupRows * block_keys(S)) : nullptr;
  const Span seen = SpanOf(head, 0, head.queries);
  for (size_t t = 0; t < head.queries; ++t) {
    const T *o = grad.output[t], *d_o = grad.doutput[t];
    Block<T> dots = Set16(T(0));
    for (size_t j = 0; j < dv; j += 16) dots = MulAdd16(LoadN16(o + j, dv - j), LoadN16(d_o + j, dv - j), dots);
    deltas[t] = Sum16(dots);
  }
  if (g) AddWeightGradients(head, grad.dweights, seen, queries, bias, scores, g, deltas);
  for (size_t key = seen.first / kKeys * kKeys; key < seen.last; key += kKeys) {
    const size_t keys = HWY_MIN(kKeys, seen.last - key);
    size_t written = 0;                                  // rows of dk and dv in this block that hold their sum so far
    for (size_t tile = 0; tile < head.queries; tile += kTileRows) {
      const size_t rows = HWY_MIN(kTileRows, head.queries - tile);
      Span span = SpanWithin(head, tile, rows, SpanOf(head, tile, rows), key, key + keys);
      if (span.empty()) continue;
      span = {span.first - key, span.last - key};
      for (size_t t = 0; t < rows; t += kGroupRows) {
        const Group group = GroupOf(head, tile + t, HWY_MIN(kGroupRows, rows - t), key, keys);
        T *const z = scores + t, *const dp = slopes + t;
        // where it does not look
        for (const auto& [first, last] : {Span{span.first, group.first}, Span{HWY_MAX(span.first, group.last), span.last}})
          for (size_t s = first; s < last; ++s) Store16(Set16(T(0)), z + s * stride), Store16(Set16(T(0)), dp + s * stride);
        if (group.empty()) continue;
        ScoresOf(head, group, queries, bias, z, stride);
        TurnGroup(group, grad.doutput, dv, doutputs);
        Product(head.v[key + group.first], head.v.stride, 1, Right<T>{doutputs, 16, 0, 16}, 0, group.last - group.first, dv,
                dp + group.first * stride, Index(stride), false, *head.next);
        if (factors) FactorsOf(head, group, factors);
        if (g) WeightGradients(group, grad.dweights, g);
        SlopesOf(head, group, SightOf(head, group), deltas, factors, g, z, dp, stride, bias_slopes);
        if (bias_slopes) ReturnGroup(group, bias_slopes, grad.dbias);
        if (!grad.dq.data) continue;
        const Right<T> right{head.k[key + group.first], head.k.stride, 16, dk};
        Product(dp + group.first * stride, 1, Index(stride), right, 0, group.rows, group.last - group.first, grad.dq[group.t],
                grad.dq.stride, grad.add_dq || !group.fresh, *head.next);
      }
      SumOverRows(slopes, stride, head.q.from(tile), rows, dk, span.first, span.last, written, grad.add_dk, grad.dk.from(key), *head.next);
      SumOverRows(scores, stride, grad.doutput.from(tile), rows, dv, span.first, span.last, written, grad.add_dv, grad.dv.from(key),
                  *head.next);
      written = HWY_MAX(written, span.last);
    }
    if (grad.dk.data && !grad.add_dk) ClearRows(grad.dk, key + written, key + keys, dk);
    if (grad.dv.data && !grad.add_dv) ClearRows(grad.dv, key + written, key + keys, dv);
  }
  // what nobody looks at
  for (size_t t = 0; t < head.queries && grad.dq.data && !grad.add_dq; t += kGroupRows)
    if (const size_t rows = HWY_MIN(kGroupRows, head.queries - t); SpanOf(head, t, rows).empty()) ClearRows(grad.dq, t, t + rows, dk);
  for (const auto& [first, last] : {Span{0, HWY_MIN(seen.first / kKeys * kKeys, S)}, Span{seen.empty() ? 0 : seen.last, S}}) {
    if (grad.dk.data && !grad.add_dk) ClearRows(grad.dk, first, last, dk);
    if (grad.dv.data && !grad.add_dv) ClearRows(grad.dv, first, last, dv);
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
