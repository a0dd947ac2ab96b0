// SPDX-License-Identifier: Apache-2.0
// Packing and block loops of the matrix product, per target. Scratch comes from the caller.
//   strip   the rows of a tile, packed k by k
//   panel   width columns of b, packed k by k: [k][width]
#include <cstddef>

#include "tensor/gemm.h"
#include "tensor/gemm_tile-inl.h"

#if defined(HEED_TENSOR_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_GEMM_INL_H_
#undef HEED_TENSOR_GEMM_INL_H_
#else
#define HEED_TENSOR_GEMM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// ---- packing --------------------------------------------------------------------------------------------------------

// dst[j] = src[j], j < count. From AVX2 on the last vector is written whole, zeros behind. `ahead` is where a later row lies: rows are
// too short for the hardware to run ahead of them.
template <class T> HWY_INLINE void CopyRow(const T* src, size_t count, Index ahead, T* dst) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = Tile<T>::kLanes;
  size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    __builtin_prefetch(src + ahead + Index(j));
    hn::StoreU(hn::LoadU(d, src + j), d, dst + j);
  }
#if HWY_TARGET <= HWY_AVX2
  if (j < count) hn::StoreU(hn::MaskedLoad(hn::FirstN(d, count - j), d, src + j), d, dst + j);
#else
  for (; j < count; ++j) dst[j] = src[j];
#endif
}

// dst[k * width + j] = src[j * j_step + k],  k < depth, j < count
template <class T> void Transpose(const T* src, Index j_step, Index depth, Index count, Index width, T* dst) {
  Index j = 0;
#if HWY_TARGET != HWY_SCALAR
  const Lanes16<T> d;
  constexpr Index kLanes = Index(Tile<T>::kLanes), kReach = Index(Tile<T>::kReach);
  for (; j + kLanes <= count; j += kLanes) {
    const T* from = src + j * j_step;
    const auto row = [&](size_t i) { return from + Index(i) * j_step; };
    // The next kLanes rows are fetched one after the other, as memory is read fastest.
    const T* ahead = src + (j + kLanes) * j_step;
    Index ahead_k = 0, k = 0;
    for (; k + kReach <= depth; k += kReach, from += kReach) {
      HWY_UNROLL(16)
      for (Index i = 0; i < kLanes * kReach * Index(sizeof(T)); i += 64) __builtin_prefetch(ahead + ahead_k + i / Index(sizeof(T)), 0, 2);
      if ((ahead_k += kLanes * kReach) >= depth) ahead_k = 0, ahead += j_step;
      hn::Vec<Lanes16<T>> out[kReach];
      LoadColumns<Tile<T>::kParts, T>(row, size_t(kReach), out);
      HWY_UNROLL(16) for (Index i = 0; i < kReach; ++i) hn::StoreU(out[i], d, dst + (k + i) * width + j);
    }
    if (k == depth) continue;
    hn::Vec<Lanes16<T>> rest[kReach];
    LoadColumns<Tile<T>::kParts, T>(row, size_t(depth - k), rest);
    for (Index i = 0; k < depth; ++k, ++i) hn::StoreU(rest[i], d, dst + k * width + j);
  }
#endif
  for (; j < count; ++j)
    for (Index k = 0; k < depth; ++k) dst[k * width + j] = src[j * j_step + k];
}

// Panels of b, [columns / width][depth][width], narrow ones behind the whole columns; what a ragged last panel lacks is zero.
template <class T> void PackPanels(const T* b, Index b_k, Index b_column, Index depth, Index columns, Index whole, Index width, T* dst) {
  if (whole < columns) {
    const Index first = whole < 0 ? 0 : whole, rest = columns - first;
    PackPanels(b, b_k, b_column, depth, first, first, width, dst);
    return PackPanels(b + first * b_column, b_k, b_column, depth, rest, rest, narrow_width(width), dst + first * depth);
  }
  const Index ragged = columns % width;
  // and zeros behind
  const Index copied = b_column == 1 && HWY_TARGET <= HWY_AVX2 ? TileVectors<T>(ragged) * Index(Tile<T>::kLanes) : ragged;
  if (ragged && copied < width)
    for (Index k = 0; k < depth; ++k)
      for (Index j = copied; j < width; ++j) dst[(columns - ragged) * depth + k * width + j] = 0;
  if (b_column == 1) {
    for (Index k = 0; k < depth; ++k)
      for (Index j = 0; j < columns; j += width)
        CopyRow(b + k * b_k + j, size_t(columns - j < width ? columns - j : width), 16 * b_k, dst + j * depth + k * width);
    return;
  }
  for (Index j = 0; j < columns; j += width) {
    const Index count = columns - j < width ? columns - j : width;
    const T* from = b + j * b_column;
    T* to = dst + j * depth;
    if (b_k == 1) {
      Transpose(from, b_column, depth, count, width, to);
    } else {
      for (Index k = 0; k < depth; ++k)
        for (Index l = 0; l < count; ++l) to[k * width + l] = from[k * b_k + l * b_column];
    }
  }
}

// A block of a by columns, [m / rows][depth][rows], a line between strips. Whole vectors write beyond their row; the next k comes after.
template <class T> void PackStrips(const Product<T>& p, const GemmPlan& plan, Index depth, const T* a, T* dst) {
  constexpr Index kLanes = Index(Tile<T>::kLanes);
  const hn::ScalableTag<T> d;
  const Index m = p.m, rows = plan.rows, reach = round_up(rows, kLanes), strip = plan.strip(depth), ahead = 16 * p.a_k;
  const auto fetch = [m](const T* row) {
    for (Index j = 0; j < m; j += Index(64 / sizeof(T))) __builtin_prefetch(row + j);
  };
  Index k = 0;
#if HWY_TARGET != HWY_SCALAR
  // two rows of k and two strips at once where these fill a vector
  if (p.a_row == 1 && 2 * rows == kLanes)
    for (; k + 2 <= depth; k += 2, a += 2 * p.a_k) {
      T* to = dst + k * rows;
      const T* const next = a + p.a_k;
      fetch(a + ahead);
      fetch(next + ahead);
      Index i = 0;
      for (; i + kLanes <= m; i += kLanes, to += 2 * strip) {
        const auto first = hn::LoadU(d, a + i), second = hn::LoadU(d, next + i);
        hn::StoreU(hn::ConcatLowerLower(d, second, first), d, to);
        hn::StoreU(hn::ConcatUpperUpper(d, second, first), d, to + strip);
      }
      for (; i < m; i += rows, to += strip)
        for (Index r = 0; r < rows && i + r < m; ++r) to[r] = a[i + r], to[rows + r] = next[i + r];
    }
#endif
  for (; k < depth; ++k, a += p.a_k) {
    T* to = dst + k * rows;
    Index i = 0;
    if (p.a_row == 1) {
      fetch(a + ahead);
      for (; i + reach <= m; i += rows, to += strip)
        for (Index j = 0; j < rows; j += kLanes) hn::StoreU(hn::LoadU(d, a + i + j), d, to + j);
      for (; i < m; i += rows, to += strip) CopyRow(a + i, size_t(m - i < rows ? m - i : rows), ahead, to);
    }
    for (; i < m; i += rows, to += strip)
      for (Index r = 0; r < rows && i + r < m; ++r) to[r] = a[(i + r) * p.a_row];
  }
}

// While a panel meets its strips the next one is fetched, evenly: a burst would fill what a core can have on its way. The elements
// that go with one strip, and those from step to step, at most one and a half lines.
template <class T> Index AheadPart(Index width, Index depth, Index strips, Index& step) {
  constexpr Index kLine = Index(64 / sizeof(T));
  step = HWY_MIN(divide_up(width, strips), 3 * kLine / 2);
  return width * depth / strips;
}

// A panel of another kernel's making, for a few rows.
template <class T>
void MultiplyPanel(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row) {
  constexpr Index kLanes = Index(Tile<T>::kLanes), kDepth = 384;   // of a panel at a time: half of a small L1
  const Index vectors = width / kLanes, most = Index(Tile<T>::kRows[vectors]), strips = divide_up(rows, most);
  for (Index k = 0; k < depth; k += kDepth) {
    const Index some = depth - k < kDepth ? depth - k : kDepth;
    Index ahead_k;
    const Index part = AheadPart<T>(width, some, strips, ahead_k);
    const T* ahead = panel + (depth + k) * width;
    for (Index s = 0; s < strips; ++s, ahead += part) {
      const Index i = rows * s / strips;
      T* const to = c + i * c_row;
      MultiplyTile<T>(rows * (s + 1) / strips - i, vectors, some, a + i * a_row + k, a_row, 1, panel + k * width, width, width / 2,
                      add || k ? to : nullptr, c_row, nullptr, to, c_row, to, ahead, ahead_k);
    }
  }
}

// Sums of N vectors of a's rows from row i on, which lie side by side; of one vector, of its first `left`
template <size_t N, class T> HWY_INLINE void SumsOfVectors(const Product<T>& p, Index i, size_t left, bool add, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[N];
  const auto load = [&](const T* x, size_t v) { return N > 1 ? hn::LoadU(d, x + v * lanes) : LoadFirst(d, x, left); };
  HWY_UNROLL(4) for (size_t v = 0; v < N; ++v) sum[v] = add ? load(to + i, v) : hn::Zero(d);
  const T* a = p.a + i;
  for (Index k = 0; k < p.k; ++k, a += p.a_k) {
    HWY_UNROLL(4) for (size_t v = 0; v < N; ++v) sum[v] = hn::Add(sum[v], load(a, v));
  }
  HWY_UNROLL(4) for (size_t v = 0; v < N; ++v) {
    if (N > 1) hn::StoreU(sum[v], d, to + i + v * lanes);
    else StoreFirst(sum[v], d, to + i, left);
  }
}

template <class T> void SumRows(const Product<T>& p, RowSums<T> sums) {
  const Index lanes = Index(hn::Lanes(hn::ScalableTag<T>()));
  Index i = 0;
  for (; p.a_row == 1 && i + 4 * lanes <= p.m; i += 4 * lanes) SumsOfVectors<4>(p, i, 0, sums.add, sums.to);
  for (; p.a_row == 1 && i < p.m; i += lanes) SumsOfVectors<1>(p, i, size_t(p.m - i), sums.add, sums.to);
  for (; i < p.m; ++i) {
    T sum = sums.add ? sums.to[i] : T(0);
    for (Index k = 0; k < p.k; ++k) sum += p.a[i * p.a_row + k * p.a_k];
    sums.to[i] = sum;
  }
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Of n columns from `column` on, so many may be finished once j have been made: up to a multiple of kFinishColumns, or all.
template <class T> Index FinishedBefore(Index column, Index j, Index n) {
  const Index aligned = (column + j) / Finish<T>::kFinishColumns * Finish<T>::kFinishColumns - column;
  return j == n ? n : aligned < 0 ? 0 : aligned;
}

// A product in one thread. A group of panels stands in L2, one strip of a in L1. Between blocks of k, and where c lies by columns, sums
// stand in scratch, tile after tile.
template <class T> struct BlockProduct {
  static constexpr Index kLanes = Index(Tile<T>::kLanes), kLine = Index(64 / sizeof(T));
  const Product<T>& p;
  const GemmPlan& plan;
  const T* packed;
  Index packed_column, row, column;   // row, column: where p lies in the whole
  T* scratch;
  const Finish<T>& finish;
  T* sums = scratch + plan.sums;
  Index whole = plan.packed_n ? whole_columns(plan.packed_n, plan.width) - packed_column : whole_columns(p.n, plan.width);
  Index strips = (p.m + plan.rows - 1) / plan.rows;
  // of the block of k
  Index k = 0, depth = 0, a_lines = 0;
  bool first = false, last = false, from_sums = false, to_sums = false;
  const T *bias = nullptr, *next_a = nullptr;

  void Run() {
    if (plan.transposed && p.add)
      for (Index j = 0; j < p.n; j += PanelWidth(j))
        Transpose(p.c + j * p.c_column, p.c_column, p.m, Width(j, p.n, PanelWidth(j)), PanelWidth(j), sums + j * p.m);
    for (k = 0; k < p.k; k += plan.depth) {
      BeginDepth();
      for (Index begin = 0; begin < p.n;) {
        Group group = GroupFrom(begin);
        for (Index s = 0; s < strips; ++s) MultiplyStrip(group, s);
        begin = group.end;
      }
    }
    if (!plan.transposed) return;
    for (Index j = 0; j < p.n; j += PanelWidth(j))
      Transpose(sums + j * p.m, PanelWidth(j), Width(j, p.n, PanelWidth(j)), p.m, p.c_column, p.c + j * p.c_column);
    finish(p.c, p.c_column, column, p.n, row, p.m);
  }

  // Panels that meet all strips one after the other.
  struct Group {
    Index begin, end;         // columns
    bool direct;              // b is read in place
    Index panel_depth;        // all k that a panel holds
    const T* b;               // unless it was packed before
    Index tiles;              // made so far
    const T* next;            // of the next group: the panel that is fetched, or all columns of a direct one
    Index next_part, next_k;  // of the panel, while a tile is made
    Index sharing;            // strips that fetch it, the last ones
    Index lines;              // of the columns, one while a tile is made
    Index parts;              // so far
  };

  static Index Width(Index from, Index end, Index most) { return end - from < most ? end - from : most; }
  Index PanelWidth(Index j) const { return j < whole ? plan.width : narrow_width(plan.width); }
  // Where a group ends: all that is left, or so many panels of one width
  Index GroupEnd(Index begin) const {
    if (p.n - begin <= plan.group) return p.n;
    return begin < whole ? begin + Width(begin, whole, plan.group) : begin + Width(begin, p.n, plan.group / plan.width * PanelWidth(begin));
  }
  // Where a strip begins; where none is packed all are of like height: a low one would wait for its own sums.
  Index RowOf(Index s) const { return !plan.pack_a ? p.m * s / strips : s < strips ? s * plan.rows : p.m; }

  void BeginDepth() {
    depth = Width(k, p.k, plan.depth);
    first = k == 0, last = k + depth == p.k, from_sums = plan.transposed || !first, to_sums = plan.transposed || !last;
    bias = last && !plan.transposed && finish.bias ? finish.bias + column : nullptr;
    if (plan.pack_a) PackStrips(p, plan, depth, p.a + k * p.a_k, scratch);
    a_lines = 0;
    if (p.a_row != 1 || p.a_k == 1) return;
    // while tiles are made the columns of a are fetched that come next: of the next block of k, or those behind
    next_a = p.a + (last ? p.m * p.a_row : (k + depth) * p.a_k);
    a_lines = divide_up(p.m, kLine);
  }

  // Where the part of a panel that was packed before stands that begins at k and this column.
  const T* PanelAt(Index at_k, Index j) const {
    if (plan.packed_n) return packed + (packed_column + j) * p.k + at_k * PanelWidth(j);
    return packed + at_k * plan.packed_columns + (packed_column + j) * Width(at_k, p.k, plan.depth);
  }

  Group GroupFrom(Index begin) const {
    Group g{begin, GroupEnd(begin), false, depth, p.b + k * p.b_k + begin * p.b_column, 0, nullptr, 0, 0, 0, 0, 0};
    if (packed) {
      if (plan.packed_n) g.panel_depth = p.k;
      // at last another chunk's
      g.next = g.end < p.n ? PanelAt(k, g.end) : !last ? PanelAt(k + depth, 0) : PanelAt(0, p.n < plan.packed_n ? p.n : 0);
      g.sharing = strips == 1 ? 0 : first && begin == 0 ? strips - 1 : strips;   // the very first panels are fetched by their first strip
      g.next_part = AheadPart<T>(plan.width, depth, HWY_MAX(g.sharing, Index{1}), g.next_k);
    } else if (plan.direct_b && (g.end - begin) % kLanes == 0) {   // a kernel reads whole vectors of b
      g.direct = true;
      g.next = g.end < p.n ? g.b + (g.end - begin) : last ? p.b + p.n : p.b + (k + depth) * p.b_k;   // behind them another chunk's, if any
      const Index columns = g.end < p.n ? p.n - g.end : last && p.b_k <= p.n ? 0 : p.n;
      g.lines = divide_up(Width(0, columns, plan.group), kLine);
    } else {
      PackPanels(g.b, p.b_k, p.b_column, depth, g.end - begin, whole - begin, plan.width, scratch + plan.panels);
      g.b = scratch + plan.panels;
    }
    return g;
  }

  // Only scalars in this loop: a wider load of narrow stores would wait until the last tile has reached the cache.
  void MultiplyStrip(Group& g, Index s) {
    const Index a_row = plan.pack_a ? 1 : p.a_row, a_k = plan.pack_a ? plan.rows : p.a_k, i = RowOf(s), rows = RowOf(s + 1) - i;
    const T* const strip = plan.pack_a ? scratch + s * plan.strip(depth) : p.a + i * p.a_row + k * p.a_k;
    for (Index j = g.begin, step; j < g.end; j += step, ++g.tiles) {
      const Index panel_width = PanelWidth(j), b_k = g.direct ? p.b_k : panel_width;
      const T* const panel = packed ? PanelAt(k, j) : g.b + (j - g.begin) * (g.direct ? 1 : depth);
      // two panels packed before, for rows that would wait for their own sums
      const bool pair =
          packed && Tile<T>::kPairs && p.m <= Index(Tile<T>::kRows[4]) && g.end - j >= 2 * plan.width && depth == p.k && p.c_column == 1;
      step = pair ? 2 * panel_width : panel_width;
      const Index columns = Width(j, g.end, step), vectors = TileVectors<T>(columns), width = vectors * kLanes;
      T* const sum = sums + j * p.m + i * panel_width;
      T* const c = p.c + i * p.c_row + j * p.c_column;
      const T* const from = first && !p.add ? nullptr : from_sums ? sum : c;
      T* const to = to_sums ? sum : c;
      const Index from_row = from_sums ? panel_width : p.c_row, to_row = to_sums ? panel_width : p.c_row;
      Index ahead_k = 0;
      const T* const ahead = AheadOf(g, s, j, strip + rows * p.a_row, panel, ahead_k);
      if (g.direct && s > 0) ++g.parts;
      if (packed && s >= strips - g.sharing && ++g.parts == g.sharing) g.next += plan.width * g.panel_depth, g.parts = 0;
      if ((!from_sums || !to_sums) && (columns != width || p.c_column != 1))
        RaggedTile<T>(rows, columns, depth, strip, a_row, a_k, panel, b_k, from, from_row, from_sums ? 1 : p.c_column,
                      bias ? bias + j : nullptr, to, to_row, to_sums ? 1 : p.c_column);
      else
        MultiplyTile(rows, vectors, depth, strip, a_row, a_k, panel, b_k, pair ? plan.width * g.panel_depth : width / 2, from, from_row,
                     bias ? bias + j : nullptr, to, to_row, from == c ? NextOfC(g, i, rows, j + step, to) : to, ahead, ahead_k);
    }
    if (finish.run && last && !plan.transposed) {
      const Index from = FinishedBefore<T>(column, g.begin, p.n), to = FinishedBefore<T>(column, g.end, p.n);
      if (from < to) finish.run(finish.self, row + i, rows, column + from, to - from);
    }
  }

  // Of c where sums begin that are made next, behind a tile that ends before column j of strip [i, i + rows); of a group's last one `to`.
  const T* NextOfC(const Group& g, Index i, Index rows, Index j, const T* to) const {
    if (j >= g.end) i += rows, j = g.begin;
    return i < p.m ? p.c + i * p.c_row + j * p.c_column : to;
  }

  // What else a tile fetches, one line a step: rows of b that are read in place, those of the first strip further down, then the columns of
  // the next group; the next strip where its rows follow one another, the columns of a that come next, the first strip's own panel
  // further down, or the next group's panels.
  const T* AheadOf(const Group& g, Index s, Index j, const T* next_strip, const T* panel, Index& ahead_k) {
    if (g.direct && s == 0) return ahead_k = p.b_k, panel + 16 * p.b_k;
    if (g.direct && g.parts < g.lines) return ahead_k = p.b_k, g.next + g.parts * kLine;
    if (j == g.begin && plan.group > plan.width && !plan.pack_a && p.a_k == 1 && p.a_row == depth) return ahead_k = kLanes, next_strip;
    if (a_lines > 0) return ahead_k = p.a_k, next_a + --a_lines * kLine;
    if (g.direct) return panel;
    if (!packed && g.end < p.n) {
      ahead_k = p.b_column == 1 ? p.b_k : p.b_column;
      return p.b + k * p.b_k + g.end * p.b_column + g.tiles * kLanes;
    }
    if (!packed) return panel;
    if (s < strips - g.sharing) return ahead_k = PanelWidth(j), panel + 64 * PanelWidth(j);
    ahead_k = g.next_k;
    return g.next + g.parts * g.next_part;
  }
};

template <class T>
void MultiplyBlock(const Product<T>& p, const GemmPlan& plan, const T* packed, Index packed_column, Index row, Index column,
                   T* scratch, Finish<T> finish) {
  BlockProduct<T>{p, plan, packed, packed_column, row, column, scratch, finish}.Run();
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
