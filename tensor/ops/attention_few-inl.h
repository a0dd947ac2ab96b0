// SPDX-License-Identifier: Apache-2.0
// Heads of attention with a few queries, as a search makes them step by step: lanes are keys, so that none stands idle, and heads of a
// sentence are taken together, since each of them would wait for itself.
#include "tensor/ops/attention-inl.h"

#if defined(HEED_TENSOR_OPS_ATTENTION_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_OPS_ATTENTION_FEW_INL_H_
#undef HEED_TENSOR_OPS_ATTENTION_FEW_INL_H_
#else
#define HEED_TENSOR_OPS_ATTENTION_FEW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// A group's keys in whole blocks of 16 lanes.
HWY_INLINE size_t BeginOf(const Group& group) { return group.first / 16 * 16; }
HWY_INLINE size_t EndOf(const Group& group) { return padded(group.last); }

// `share` rows of what the next heads read and write, row after row of all heads, as they lie in memory: these products are too short to
// fetch beside them.
template <class T> HWY_NOINLINE void Fetch(Ahead<T>& next) {
  for (size_t left = next.share; left > 0 && next.matrix < next.count;) {
    const Heads<const T>& heads = next.matrices[next.matrix];
    const Rows<const T> first = heads.at(next.b, next.h);
    for (; left > 0 && next.row < heads.rows; --left, ++next.row) {
      const T* row = first[next.row];
      for (Index h = next.h; h < next.end; ++h, row += heads.head)
        for (size_t j = 0; j < heads.width; j += 64 / sizeof(T)) __builtin_prefetch(row + j, 0, 2);
    }
    if (next.row < heads.rows) return;
    next.row = 0;
    ++next.matrix;
  }
}

// c of each head (=|+=) its rows of a times its own b; b_head and c_head are the strides from one head to the next
template <class T>
HWY_INLINE void ProductsOf(const Head<T>& head, const T* a, Index a_row, const Right<T>& b, Index b_head, size_t first, size_t K, T* c,
                           Index c_row, Index c_head, bool add) {
  if (head.queries == 1) return RowsProduct(a, a_row, b, b_head, first, head.heads, K, c, c_head, add);
  Ahead<T> nothing = *head.next;
  nothing.count = 0;
  for (size_t h = 0; h < head.heads; ++h)
    Product(a + Index(h * head.queries) * a_row, a_row, 1, Right<T>{b.data + Index(h) * b_head, b.row, b.block, b.columns}, first,
            head.queries, K, c + Index(h) * c_head, c_row, add, nothing);
}

// Which places 16 keys lie in; how many
HWY_INLINE size_t DistinctOf(const std::int64_t* places, std::int64_t* distinct) {
  std::int64_t* end = distinct;
  for (size_t i = 0; i < 16; ++i)
    if (std::find(distinct, end, places[i]) == end) *end++ = places[i];
  return size_t(end - distinct);
}

// z[h][t][s] of keys that stand turned, whole blocks from `first` on. Where the keys of a block lie in several places, each of these gives
// 16 lanes to `some` [rows, 32], two at once, of which its own keys' are taken.
template <class T>
HWY_INLINE void DotsOfTurned(const Head<T>& head, const Group& group, size_t first, size_t last, const T* queries, T* some, T* z,
                             Index stride) {
  const size_t dk = head.dk, rows = head.heads * head.queries;
  const auto dots = [&](const T* keys, Index block, size_t count, T* c, Index c_row) {
    ProductsOf(head, queries, Index(dk), Right<T>{keys, 16, block, count}, head.k_head, 0, dk, c, c_row, Index(head.queries) * c_row,
               false);
  };
  const Rows<const T> keys = head.k.from(group.key);
  for (size_t s = first; s < last;) {
    const size_t whole = (keys.end_of_run(s, last) - s) / 16 * 16;
    if (whole > 0) {
      dots(keys[s], Index(16 * dk), whole, z + s, stride);
      s += whole;
      continue;
    }
    std::int64_t places[16];
    const size_t distinct = DistinctOf(keys.places + s, places);
    for (size_t i = 0; i < distinct; i += 2) {
      const size_t both = HWY_MIN(distinct - i, size_t(2));
      dots(keys.data + Index(s * dk) + places[i] * keys.apart, (places[i + both - 1] - places[i]) * keys.apart, 16 * both, some, 32);
      for (size_t j = 0; j < both; ++j) {
        T own[16];
        for (size_t lane = 0; lane < 16; ++lane) own[lane] = T(keys.places[s + lane] == places[i + j]);
        const auto lanes = Positive16(Load16(own));
        for (size_t row = 0; row < rows; ++row) {
          T* const to = z + Index(row) * stride + s;
          Store16(Choose16(lanes, Load16(some + 32 * row + 16 * j), Load16(to)), to);
        }
      }
    }
    s += 16;
  }
}

// z[h][t][s] = scale q_t·k_s; `queries` has room for the rows, `turned` for a piece of keys
template <class T> HWY_INLINE void DotsOfFew(const Head<T>& head, const Group& group, T* turned, T* queries, T* z, Index stride) {
  const Block<T> scale = Set16(head.scale);
  const size_t dk = head.dk;
  for (size_t h = 0; h < head.heads; ++h)
    for (size_t t = 0; t < head.queries; ++t)
      for (size_t j = 0; j < dk; j += 16)
        StoreN16(scale * LoadN16(head.q[t] + Index(h) * head.q_head + j, dk - j), dk - j, queries + (h * head.queries + t) * dk + j);
  const Index z_head = Index(head.queries) * stride;
  if (head.k_by_columns) {
    const Right<T> keys{head.k.data + group.key, head.k.stride, 16, group.last};
    return ProductsOf(head, queries, Index(dk), keys, head.k_head, BeginOf(group), dk, z, stride, z_head, false);
  }
  const size_t turned_end = HWY_MIN(HWY_MAX(head.turned, group.key) - group.key, EndOf(group)),
               unturned = HWY_MAX(turned_end, BeginOf(group));
  DotsOfTurned(head, group, BeginOf(group), turned_end, queries, turned, z, stride);
  for (size_t s = unturned; s < group.last; s += kPieceKeys) {
    const size_t count = HWY_MIN(kPieceKeys, group.last - s), distinct = head.k_head == 0 ? 1 : head.heads,
                 size = distinct > 1 ? padded(count) * dk : 0;
    for (size_t h = 0; h < distinct; ++h) {
      Rows<const T> keys = head.k.from(group.key + s);
      keys.data += Index(h) * head.k_head;
      Turn(keys, count, dk, turned + h * size);
    }
    ProductsOf(head, queries, Index(dk), Right<T>{turned, 16, Index(16 * dk), padded(count)}, Index(size), 0, dk, z + s, stride, z_head,
               false);
  }
}

// z of query t of head h += bias_ts
template <class T> HWY_INLINE void AddBiasRow(const Head<T>& head, const Group& group, size_t h, size_t t, T* z) {
  const T* bias = head.bias[t] + Index(h) * head.bias_head + group.key;
  for (size_t s = group.first; s < group.last; s += 16) {
    const size_t n = group.last - s;
    StoreN16(LoadN16(z + s, n) + LoadN16(bias + s, n), n, z + s);
  }
}

// Those of the keys i .. i + 15 that a row looks at
template <class T> HWY_INLINE Block<T> LanesSeen(const RowMask& mask, size_t i) {
  const Block<T> range = LanesAllowed<T>(mask.first, mask.last, mask.allowed, ptrdiff_t(i));
  if (mask.step == 1 && mask.front == 0) return range;
  const Block<T> away = Set16(T(i) - T(mask.first)) + Load16(kLaneNumbers<T>);
  return Or16(And16(range, Multiple16(away, Set16(T(mask.step)))), LanesBetween<T>(0, mask.front - ptrdiff_t(i)));
}

// z of a row becomes -inf where it does not look; its greatest
template <class T> HWY_INLINE T MaskRow(const Group& group, const RowMask& mask, T* z) {
  const Block<T> least = Set16(T(-__builtin_inf()));
  const bool whole = mask.step == 1 && Covers(mask, group.key + BeginOf(group), group.key + EndOf(group));
  Block<T> lanes = least;
  for (size_t s = BeginOf(group); s < EndOf(group); s += 16) {
    Block<T> v = Load16(z + s);
    if (!whole) Store16(v = Choose16(LanesSeen<T>(mask, group.key + s), v, least), z + s);
    lanes = Max16(lanes, v);
  }
  return MaxLane16(lanes);
}

// z of a row becomes exp(z - shift); their sum
template <class T> HWY_INLINE T ExpOfRow(const Group& group, T shift, T* z) {
  Block<T> lanes = Set16(T(0));
  for (size_t s = BeginOf(group); s < EndOf(group); s += 16) {
    const Block<T> e = Exp16(Load16(z + s) - Set16(shift));
    lanes = lanes + e;
    Store16(e, z + s);
  }
  return Sum16(lanes);
}

// What earlier blocks gave times exp(difference), which is returned
template <class T> HWY_INLINE T Rescale(T difference, T* output, size_t dv) {
  T factor[16];
  Store16(Exp16(Set16(difference)), factor);
  if (factor[0] != 1) ScaleRow(output, dv, factor[0]);
  return factor[0];
}

// e m of a row of head `number`
template <class T> HWY_INLINE void DropRow(const Head<T>& head, const Group& group, size_t number, size_t row, T* e) {
  T factors[kGroupRows * kDrawnKeys];
  for (size_t s = group.first / kDrawnKeys * kDrawnKeys; s < group.last; s += kDrawnKeys) {
    DropoutFactors(head.dropout, head.first + Index(kGroupRows * (number * drawn_keys(head.keys) + group.key + s)), kGroupRows * kDrawnKeys,
                   factors);
    for (size_t i = HWY_MAX(s, group.first); i < HWY_MIN(s + kDrawnKeys, group.last); ++i) e[i] *= factors[kGroupRows * (i - s) + row];
  }
}

template <class T> void AttentionFew(const Head<T>& head, const Rows<T>& output, T* weights) {
  const size_t S = head.keys, stride = row_stride(S), rows = head.heads * head.queries;
  Room<T> room{head.scratch};
  T* const turned = room.take(head.heads * kPieceKeys * HWY_MAX(head.dk, size_t(2)));
  T* const queries = room.take(rows * head.dk);
  T* const scores = room.take(rows * stride);
  T* const most = head.log_sum_exp;
  T sums[kFewHeads * kFewQueries];
  const auto output_row = [&](size_t i) { return output[i % head.queries] + Index(i / head.queries) * head.output_head; };
  const Span seen = SpanOf(head, 0, head.queries);
  SkipWeights(head, rows, weights);
  for (size_t key = seen.first / kKeys * kKeys; key < seen.last; key += kKeys) {
    const Group group = GroupOf(head, 0, head.queries, key, HWY_MIN(kKeys, seen.last - key));
    if (group.empty()) continue;
    DotsOfFew(head, group, turned, queries, scores, Index(stride));
    Fetch(*head.next);
    for (size_t i = 0; i < rows; ++i) {
      T* const z = scores + i * stride;
      if (head.bias.data) AddBiasRow(head, group, i / head.queries, i % head.queries, z);
      const RowMask mask = head.mask ? head.mask[i % head.queries] : RowMask{0, Index(S)};
      const T greatest = MaskRow(group, mask, z), before = group.fresh ? T(-__builtin_inf()) : most[i];
      for (size_t s = group.first; weights && s < group.last; ++s) weights[i * S + key + s] = z[s];
      most[i] = greatest > before ? greatest : before;
      const T shift = most[i] == T(-__builtin_inf()) ? T(0) : most[i], sum = ExpOfRow(group, shift, z);
      sums[i] = group.fresh ? sum : sums[i] * Rescale(before - shift, output_row(i), head.dv) + sum;
      if (!head.dropout.keeps_all()) DropRow(head, group, i / head.queries, i % head.queries, z);
    }
    Fetch(*head.next);
    const Rows<const T> values = head.v.from(key);
    for (size_t first = group.first, end; first < group.last; first = end) {
      end = values.end_of_run(first, group.last);
      ProductsOf(head, scores + first, Index(stride), Right<T>{values[first], values.stride, 16, head.dv}, head.v_head, 0, end - first,
                 output.data, output.stride, head.output_head, !group.fresh || first > group.first);
    }
    Fetch(*head.next);
  }
  FinishRows(head, rows, seen, sums, most, weights, output_row);
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
