// SPDX-License-Identifier: Apache-2.0
#include "tensor/gemm.h"

#define HWY_TARGET_INCLUDE "tensor/gemm.cc"
#include "tensor/gemm-inl.h"
#include "tensor/gemm_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> GemmKernels<T> Kernels() {
  using Size = Tile<T>;
  GemmKernels<T> kernels{Index(Size::kLanes), {0, Size::kRows[1], Size::kRows[2], Size::kRows[3], Size::kRows[4]}, Index(Size::kVectors),
                         Index(Size::kThinRows), Index(Size::kReach), Size::kFromL2,
                         &MultiplyBlock<T>, nullptr, nullptr, &PackPanels<T>, &Transpose<T>, &MultiplyPanel<T>, &SumRows<T>};
#if HWY_TARGET != HWY_SCALAR
  kernels.thin = &MultiplyThin<T>;
  kernels.small = &MultiplySmall<T>;
#endif
  return kernels;
}
GemmKernels<float> GemmKernelsF32() { return Kernels<float>(); }
GemmKernels<double> GemmKernelsF64() { return Kernels<double>(); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "tensor/context.h"
#include "tensor/cut.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/storage.h"
#include "tensor/thread_own.h"

namespace heed {
HWY_EXPORT(GemmKernelsF32);
HWY_EXPORT(GemmKernelsF64);

template <> GemmKernels<float> gemm_kernels() { return HWY_DYNAMIC_DISPATCH(GemmKernelsF32)(); }
template <> GemmKernels<double> gemm_kernels() { return HWY_DYNAMIC_DISPATCH(GemmKernelsF64)(); }

namespace {

// `elements` of a memory that is kept; what was there is lost where it was too small.
template <class T> T* room_in(Storage& storage, Index elements) {
  const auto bytes = std::size_t(elements) * sizeof(T);
  if (storage.bytes() < bytes) {
    storage = {};
    storage = Storage(bytes);
  }
  return reinterpret_cast<T*>(storage.data());
}

constexpr Index kTallRows = 128;   // beyond, the panels of b are packed once for all rows
constexpr Index kDirectRows = 64;  // up to these, rows of b are read in place wherever they lie
constexpr Index kSmall = 64;       // most rows and k of a small product
constexpr Index kDepth = 512;      // k of one block: 8 rows of a take half of a small L1
constexpr Index kNear = 1 << 19;   // most bytes that rows read in place from an L2 span
constexpr Index kOwnRows = 256;    // from so many a thread on, each packs the panels for itself

// Seconds on one core of an ordinary machine; only the order of magnitude matters.
template <class T> double estimate(const Product<T>& p) {
  const double flops = 2 * double(p.m) * double(p.n) * double(p.k);
  const double bytes = sizeof(T) * (double(p.m) * double(p.k) + double(p.k) * double(p.n) + double(p.m) * double(p.n));
  return flops / (sizeof(T) == 4 ? 150e9 : 75e9) + bytes / 20e9;
}

// Groups of columns of c [m, n] for a team: the rows of a and the columns of b that one thread reads are few where both are cut, and to
// read a column, which is packed, costs twice a row. Two threads cut rows alone.
Index column_groups(Index m, Index n, Index unit, Index team) {
  if (team <= 2) return 1;
  const double wanted = std::sqrt(2 * double(team) * double(n) / double(m));
  Index groups = std::clamp<Index>(Index(wanted), 1, std::min(team, std::max<Index>(n / unit, 1)));
  while (team % groups != 0) --groups;
  return groups;
}

template <class T> Product<T> part_of(const Product<T>& p, Index row, Index rows, Index column, Index columns) {
  Product<T> part = p;
  part.m = rows;
  part.n = columns;
  part.a += row * p.a_row;
  part.b += column * p.b_column;
  part.c += row * p.c_row + column * p.c_column;
  return part;
}

template <class T> Product<T> part_of_k(const Product<T>& p, Index k, Index some) {
  Product<T> part = p;
  part.k = some;
  part.a += k * p.a_k;
  part.b += k * p.b_k;
  return part;
}

// Multiply-adds that a product costs, divided by k, packing and turning counted in the same unit.
template <class T> double cost(const GemmKernels<T>& kernels, const Product<T>& p) {
  const double m = double(p.m), n = double(round_up(p.n, kernels.lanes)), cycle = double(2 * kernels.lanes);
  const double pack_b = p.b_column == 1 ? (p.m <= kDirectRows ? 0 : 0.1) : p.b_k == 1 ? 0.25 : 2;
  const double pack_a = p.a_k == 1 ? 0.1 : p.a_row == 1 ? 0.15 : 2;
  const double store = p.c_column == 1 ? 0 : p.c_row == 1 ? 0.3 : 2;
  return m * n + cycle * (pack_a * m + pack_b * n + store * m * n / double(p.k));
}

// Few rows beside a b whose columns are contiguous. Columns of c that lie apart are stored one by one: fewer rows yet.
template <class T> bool is_thin(const GemmKernels<T>& kernels, const Product<T>& p) {
  return kernels.thin && p.b_k == 1 && p.b_column != 1 && p.n >= kernels.lanes &&
         p.m <= (p.c_column == 1 ? kernels.thin_rows : kernels.lanes / 2) && (p.k >= kernels.thin_depth || p.m <= kernels.lanes / 4);
}

// A vector of columns at most, and few rows, or some with a small k beside rows of b.
template <class T> bool is_small(const GemmKernels<T>& kernels, const Product<T>& p) {
  const bool few = p.m <= kernels.lanes / 2;
  return kernels.small && p.n <= kernels.lanes && p.c_column == 1 &&
         (few ? p.b_column == 1 || p.b_k == 1 : p.m <= kSmall && p.k <= kSmall && p.b_column == 1);
}

bool as_bfloat16(const Product<float>& p) { return product_precision() == Precision::bfloat16 && gains_by_bfloat16(p.m, p.n, p.k); }

// The tile: four vectors for few rows or columns that fill them; two tall ones where they take all rows or columns at once.
template <class T> Index tile_vectors(const GemmKernels<T>& kernels, const Product<T>& p) {
  const Index vectors = divide_up(p.n, kernels.lanes);
  if (p.panels) return kernels.vectors;
  if (vectors > 2 && (p.m <= kernels.rows[4] || (vectors == 4 && kernels.vectors == 3))) return 4;
  if (vectors <= 2) return vectors;
  return p.m > kernels.rows[kernels.vectors] && p.m <= kernels.rows[2] ? 2 : kernels.vectors;
}

Index l1() { return cache_sizes().l1 ? Index(cache_sizes().l1) : 1 << 15; }
Index l2() { return cache_sizes().l2 ? Index(cache_sizes().l2) : 1 << 20; }

// Columns of a are read in place where they lie near one another: a page apart they would share few places even of the L2.
template <class T> bool packs_a(const GemmKernels<T>& kernels, const Product<T>& p) {
  return p.a_k != 1 && (p.a_row != 1 || p.a_k * Index(sizeof(T)) > (kernels.from_l2 ? 3072 : 512));
}

// So are rows of b where those of a block of k span little of the cache that gives them to a tile in time: beyond, they share few
// places of it. With 512 rows of 4 KiB, which fill an L2 of 2 MiB, a Xeon has two thirds of the speed that packed ones give.
template <class T> bool near_rows(const GemmKernels<T>& kernels, const Product<T>& p) {
  return p.b_column == 1 && p.b_k * std::min(p.k, kDepth) * Index(sizeof(T)) <= (kernels.from_l2 ? std::min(l2(), kNear) : l1());
}

// For the largest block of a product.
template <class T> GemmPlan make_plan(const GemmKernels<T>& kernels, const Product<T>& p, bool packed) {
  constexpr Index kLine = Index(64 / sizeof(T));
  GemmPlan plan{};
  const Index vectors = tile_vectors(kernels, p);
  plan.width = vectors * kernels.lanes;
  plan.direct_b = !packed && (near_rows(kernels, p) || (p.b_column == 1 && p.m <= kDirectRows));
  const Index low = kernels.rows[kernels.vectors], tall = kernels.rows[vectors];
  const bool once = p.panels && p.m <= low;         // each panel meets one strip
  const Index most = once ? p.k : kDepth;
  plan.depth = round_up(divide_up(p.k, divide_up(p.k, most)), 8);
  // strips of like height; those that meet several panels take as much of the L1 as `low` rows of kDepth
  const Index rows = p.m <= tall || p.n <= plan.width ? tall : std::min(tall, low * kDepth / plan.depth);
  plan.rows = divide_up(p.m, divide_up(p.m, rows));
  plan.group = std::max(l2() / Index(sizeof(T)) / 4 / plan.depth / plan.width, Index(1)) * plan.width;
  plan.pack_a = p.n > plan.width && packs_a(kernels, p);
  plan.transposed = p.c_column != 1 && p.c_row == 1;
  const Index columns = round_up(p.n, plan.width);
  plan.panels = plan.pack_a ? divide_up(p.m, plan.rows) * plan.strip(plan.depth) + kLine : 0;
  plan.sums = plan.panels + (packed ? 0 : std::min(plan.group, columns) * plan.depth + kLine);
  plan.scratch = plan.sums + (plan.transposed || plan.depth < p.k ? p.m * columns : 0) + kLine;
  return plan;
}

// How much the last panel of n columns begins before a multiple of their width.
Index early(Index n, Index width) { return ends_narrow(n, width) ? width / 3 : 0; }

// Packs columns [first, end) of b, from a panel to a panel, of the block of k that begins at `k`, to where a plan reads them.
template <class T>
void pack_block(const GemmKernels<T>& kernels, const Product<T>& p, const GemmPlan& plan, Index k, Index first, Index end, T* packed) {
  const Index depth = std::min(plan.depth, p.k - k);
  kernels.pack(p.b + k * p.b_k + first * p.b_column, p.b_k, p.b_column, depth, end - first, whole_columns(p.n, plan.width) - first,
               plan.width, packed + k * plan.packed_columns + first * depth);
}

Index packed_size(const GemmPlan& plan, Index k) { return plan.packed_columns * k + 64; }

// Panels of b that a thread packs for itself, once for all its pieces of a product. A line that another core has read is slow to write
// again: on Zen 4 with 2 to 10 GB/s, one's own with 60 and more. So what one core writes in every product no other should read.
struct OwnPanels {
  Index product = 0;
  Storage storage;

  // A number of their own for each of a product's groups of columns, the first one's
  static Index number(Index groups) {
    static std::atomic<Index> numbers{1};
    return numbers.fetch_add(groups);
  }

  template <class T> const T* of(Index wanted, const GemmKernels<T>& kernels, const Product<T>& p, const GemmPlan& plan) {
    T* const panels = room_in<T>(storage, packed_size(plan, p.k));
    if (std::exchange(product, wanted) != wanted)
      for (Index k = 0; k < p.k; k += plan.depth) pack_block(kernels, p, plan, k, 0, p.n, panels);
    return panels;
  }
};

// What a thread keeps from product to product.
struct Kept {
  Storage packing;
  OwnPanels panels[2];
  template <class T> T* scratch(Index elements) { return room_in<T>(packing, elements); }
};

// Few rows: chunks of columns, each packs its panels just before their use unless they are there.
template <class T> void multiply_wide(const GemmKernels<T>& kernels, const Product<T>& p, Finish<T> finish, double seconds) {
  const Index unit = p.panels ? kernels.vectors * kernels.lanes : finish.run ? Finish<T>::kFinishColumns : 4 * kernels.lanes;
  const Index units = divide_up(p.n, unit);
  // rows are cut too where columns are fewer than threads and nothing is packed
  const Index row_units = threads() > 2 && (p.panels || (p.b_column == 1 && p.m <= kDirectRows)) ? divide_up(p.m, 16) : 1;
  const Index all = pieces(seconds, units * row_units);
  const Cut columns{p.n, unit, std::min(units, all), p.panels ? early(p.n, unit) : 0}, rows{p.m, 1, all / columns.parts};
  GemmPlan plan = make_plan(kernels, part_of(p, 0, rows.most(), 0, columns.most()), p.panels != nullptr);
  if (p.panels) plan.packed_n = p.n;
  // a panel alone, or a pair, where the strips of few rows give the time to fetch the next one
  if (p.panels) plan.group = (kernels.vectors == 2 && p.m <= kernels.rows[4] ? 2 : 1) * plan.width;
  run_chunks(seconds > kHandOff, rows.parts * columns.parts, [&](Index chunk) {
    const Index at = chunk % rows.parts, i = rows.begin(at), group = chunk / rows.parts, first = columns.begin(group);
    Kept here;
    kernels.block(part_of(p, i, rows.size(at), first, columns.size(group)), plan, p.panels, first, i, first,
                  own_or(here).scratch<T>(plan.scratch), finish);
  });
}

template <class T> constexpr Index kMostPacked = (Index(16) << 20) / Index(sizeof(T));   // elements of b at a time
template <class T> Index most_k(const Product<T>& p) { return std::max<Index>(kMostPacked<T> / p.n / 512 * 512, 512); }   // so many k

// Many rows: all panels of b are packed unless they are there, once or by each thread, then chunks of rows go through them, for many
// threads through groups of them. column: where p starts in the whole.
template <class T>
void multiply_tall(const GemmKernels<T>& kernels, const Product<T>& p, Index column, Finish<T> finish, double seconds) {
  const bool turned = p.c_column != 1 && p.c_row == 1;
  // a long k in parts: to read c once more costs less than all of a
  if (const Index most = most_k(p); p.k > most && p.k > p.n && !p.panels) {
    for (Index k = 0; k < p.k; k += most) {
      Product<T> part = part_of_k(p, k, std::min(most, p.k - k));
      part.add = p.add || k > 0;
      multiply_tall(kernels, part, column, k + part.k == p.k ? finish : Finish<T>(), estimate(part));
    }
    return;
  }
  if (const Index most = std::max<Index>(kMostPacked<T> / p.k, 256); p.n > most && !turned && !p.panels) {
    for (Index j = 0; j < p.n; j += most) {
      const Product<T> part = part_of(p, 0, p.m, j, std::min(most, p.n - j));
      multiply_tall(kernels, part, column + j, finish, estimate(part));
    }
    return;
  }
  const Index team = threads();                              // once: another thread may set another number
  const Index unit = p.panels ? kernels.vectors * kernels.lanes : finish.run ? Finish<T>::kFinishColumns : 4 * kernels.lanes;
  const Cut columns{p.n, unit, column_groups(p.m, p.n, unit, team), p.panels ? early(p.n, unit) : 0};
  // Chunks of 64 to 256 rows; of 32 where those are fewer than threads
  const Index groups = columns.parts, row_unit = turned ? 64 : kernels.rows[kernels.vectors], row_units = divide_up(p.m, row_unit),
              most = divide_up(p.m, 64) * groups;
  const Index all = pieces(seconds, std::min(row_units * groups, std::max<Index>(most, std::min<Index>(2 * most, team))));
  const Cut rows{p.m, row_unit, std::clamp(all / groups, divide_up(p.m, 256), row_units)};
  const bool direct = !p.panels && near_rows(kernels, p) && p.n % kernels.lanes == 0;   // a kernel reads whole vectors of b
  GemmPlan plan = make_plan(kernels, part_of(p, 0, rows.most(), 0, columns.most()), !direct);
  if (p.panels) plan.packed_n = p.n;
  plan.packed_columns = round_up(columns.most(), plan.width);
  const bool own = !p.panels && !direct && (team > 2 || p.m >= kOwnRows * team);
  const Index number = own ? OwnPanels::number(groups) : 0;
  Storage storage;
  T* const made = p.panels || own || direct ? nullptr : room_in<T>(storage, packed_size(plan, p.k));
  const T* const packed = p.panels ? p.panels : made;
  const Index blocks = divide_up(p.k, plan.depth), packs = divide_up(p.n, 4 * plan.width);   // four panels at a time
  const Cut packings{p.n, plan.width, packs, early(p.n, plan.width)};
  run_chunks(seconds > 2 * kChunk, p.panels || own || direct ? 0 : blocks * packs, [&](Index chunk) {
    pack_block(kernels, p, plan, chunk / packs * plan.depth, packings.begin(chunk % packs), packings.end(chunk % packs), made);
  });
  run_chunks(seconds > kHandOff, groups * rows.parts, [&](Index chunk) {
    const Index at = chunk % rows.parts, i = rows.begin(at), group = chunk / rows.parts, first = columns.begin(group);
    const Product<T> part = part_of(p, 0, p.m, first, columns.size(group));
    Kept here, &kept = own_or(here);
    const T* const panels = own ? kept.panels[0].of(number + group, kernels, part, plan) : packed;
    kernels.block(part_of(part, i, rows.size(at), 0, part.n), plan, panels, p.panels ? first : 0, i, column + first,
                  kept.scratch<T>(plan.scratch), finish);
  });
}

// b is turned in registers. turned: p's rows are the columns that finish sees.
template <class T> void multiply_thin(const GemmKernels<T>& kernels, Product<T> p, bool turned, Finish<T> finish, double seconds) {
  const Storage storage = p.a_k == 1 ? Storage() : Storage(std::size_t(p.m * p.k) * sizeof(T));
  if (p.a_k != 1) {
    T* const rows = reinterpret_cast<T*>(storage.data());
    for (Index i = 0; i < p.m; ++i)
      for (Index k = 0; k < p.k; ++k) rows[i * p.k + k] = p.a[i * p.a_row + k * p.a_k];
    p.a = rows, p.a_row = p.k, p.a_k = 1;
  }
  const Cut columns{p.n, kernels.lanes, pieces(seconds, divide_up(p.n, kernels.lanes))};
  run_chunks(seconds > kHandOff, columns.parts, [&](Index chunk) {
    const Index first = columns.begin(chunk), count = columns.size(chunk), whole = count / kernels.lanes * kernels.lanes;
    if (whole) kernels.thin(part_of(p, 0, p.m, first, whole));
    if (const Product<T> rest = part_of(p, 0, p.m, first + whole, count - whole); rest.n > 0) {
      if (is_small(kernels, rest)) kernels.small(rest);
      else multiply_wide(kernels, rest, {}, 0);
    }
    if (turned) finish(p.c + first * p.c_column, p.c_column, first, count, 0, p.m);
    else finish(p.c + first * p.c_column, p.c_row, 0, p.m, first, count);
  });
}

enum class Way { small, thin, wide, tall };
template <class T> struct Choice {
  Way way;
  bool turned;               // p is the transpose of what was asked
  Product<T> p;
};

// How p, none of its sizes 0, is multiplied best. A finish sees rows and columns of p, which only a thin product and one by columns hand
// back turned.
template <class T> Choice<T> choose(const GemmKernels<T>& kernels, const Product<T>& p, bool has_finish) {
  if (p.panels) return {p.m > kTallRows ? Way::tall : Way::wide, false, p};
  const Product<T> turned = transposed(p);
  if (is_small(kernels, p)) return {Way::small, false, p};
  if (is_small(kernels, turned)) return {Way::small, true, turned};
  if (is_thin(kernels, p)) return {Way::thin, false, p};
  if (is_thin(kernels, turned)) return {Way::thin, true, turned};
  const bool turn = cost(kernels, turned) < cost(kernels, p) && (!has_finish || (turned.c_column != 1 && turned.c_row == 1));
  const Product<T>& q = turn ? turned : p;
  return {q.m > (packs_a(kernels, q) ? kTallRows / 2 : kTallRows) ? Way::tall : Way::wide, turn, q};
}

template <class T> void multiply_any(const Product<T>& p, Finish<T> finish) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (Index i = 0; i < p.m && !p.add; ++i)
      for (Index j = 0; j < p.n; ++j) p.c[i * p.c_row + j * p.c_column] = 0;
    return finish(p.c, p.c_row, 0, p.m, 0, p.n);
  }
  const auto kernels = gemm_kernels<T>();
  const double seconds = estimate(p);
  const Choice<T> choice = choose(kernels, p, bool(finish));
  switch (choice.way) {
    case Way::small: kernels.small(choice.p); return finish(p.c, p.c_row, 0, p.m, 0, p.n);
    case Way::thin: return multiply_thin(kernels, choice.p, choice.turned, finish, seconds);
    case Way::wide: return multiply_wide(kernels, choice.p, finish, seconds);
    case Way::tall: return multiply_tall(kernels, choice.p, 0, finish, seconds);
  }
}

template <class T> void sum_rows(const Product<T>& p, RowSums<T> sums) {
  if (!sums.to) return;
  const auto kernels = gemm_kernels<T>();
  const Cut rows{p.m, 16, divide_up(p.m, 64)};
  parallel_for(rows.parts, std::max<Index>(1, 512 / std::max<Index>(p.k, 1)), [&](Index begin, Index end) {
    const Index i = rows.begin(begin);
    kernels.row_sums(part_of(p, i, rows.begin(end) - i, 0, 0), {sums.to + i, sums.add});
  });
}

template <class T> void sum_halves(const Product<T>& p, RowSums<T> sums) {
  const Index half_m = half_of(p.m);
  for (Index k = 0, most = most_k(p); k < p.k; k += most) {
    const Product<T> part = part_of_k(p, k, std::min(most, p.k - k));
    const Index half = half_of(part.k);
    for (const bool second : {true, false})                   // the half of k that the first rows begin with, then the other
      for (const Index i : {Index(0), half_m}) {
        const bool late = second == (i == 0);
        sum_rows(part_of(part_of_k(part, late ? half : 0, late ? part.k - half : half), i, i ? p.m - half_m : half_m, 0, 0),
                 {sums.to + i, sums.add || k > 0 || !second});
      }
  }
}

// Threads that take half of k each, and change halves of c between them. Of a last part of a long k the second half may be empty.
template <class T> void multiply_halves(const Product<T>& p, RowSums<T> sums) {
  if (const Index most = most_k(p); p.k > most) {
    for (Index k = 0; k < p.k; k += most) {
      Product<T> part = part_of_k(p, k, std::min(most, p.k - k));
      part.add = p.add || k > 0;
      multiply_halves(part, {sums.to, sums.add || k > 0});
    }
    return;
  }
  if (const Index most = std::max<Index>(kMostPacked<T> / p.k, 256); p.n > most) {   // as above k is 512 at most
    for (Index j = 0; j < p.n; j += most) multiply_halves(part_of(p, 0, p.m, j, std::min(most, p.n - j)), j == 0 ? sums : RowSums<T>());
    return;
  }
  const auto kernels = gemm_kernels<T>();
  const double seconds = estimate(p);
  const Index half_m = half_of(p.m), half_k = half_of(p.k);
  const Index team = divide_up(threads(), 2), unit = 4 * kernels.lanes;
  const Cut columns{p.n, unit, column_groups(half_m, p.n, unit, team)};
  // Chunks of a half of c, of 64 rows and more
  const Index groups = columns.parts,
              chunks = std::max(std::min(divide_up(half_m, 64), pieces(seconds / 2, 32) / 2 / groups), divide_up(team, groups));
  const bool own = !near_rows(kernels, p) || p.n % kernels.lanes != 0;   // a kernel reads whole vectors of b
  const Index number = own ? OwnPanels::number(groups) : 0;
  GemmPlan plan = make_plan(kernels, part_of_k(part_of(p, 0, Cut{half_m, 16, chunks}.most(), 0, columns.most()), 0, half_k), own);
  plan.packed_columns = round_up(columns.most(), plan.width);
  for (Index turn = 0; turn < 2; ++turn)
    run_chunks(seconds > kHandOff, 2 * groups * chunks, [&](Index chunk) {
      const Index of_k = chunk / (groups * chunks), of_m = (of_k + turn + 1) % 2, at = chunk % chunks, group = chunk / chunks % groups;
      const Cut rows{of_m ? p.m - half_m : half_m, 16, chunks};
      const Index i = of_m * half_m + rows.begin(at), first = columns.begin(group);
      if (rows.size(at) == 0) return;
      Product<T> part = part_of(part_of_k(p, of_k * half_k, of_k ? p.k - half_k : half_k), 0, p.m, first, columns.size(group));
      Kept here, &kept = own_or(here);
      const T* const packed = own ? kept.panels[of_k].of(number + group, kernels, part, plan) : nullptr;
      part = part_of(part, i, rows.size(at), 0, part.n);
      part.add = p.add || turn > 0;
      kernels.block(part, plan, packed, 0, i, first, kept.scratch<T>(plan.scratch), {});
      if (sums.to && group == 0) kernels.row_sums(part, {sums.to + i, sums.add || turn > 0});
    });
}

template <class T> void halves_or_whole(const Product<T>& p, RowSums<T> sums) {
  if (in_halves(p.m, p.n, p.k)) return multiply_halves(p, sums);
  multiply_any(p, Finish<T>());
  sum_rows(p, sums);
}

template <class T> Storage pack_any(Index k, Index n, const T* b, Index b_k, Index b_column) {
  const auto kernels = gemm_kernels<T>();
  const Index width = kernels.vectors * kernels.lanes, panels = divide_up(n, width);
  const Cut columns{n, width, panels, early(n, width)};
  Storage storage(std::size_t(panels * width * k + 64) * sizeof(T));
  parallel_for(panels, std::max<Index>(1, 32768 / (width * std::max<Index>(k, 1))), [&](Index begin, Index end) {
    const Index first = columns.begin(begin);
    kernels.pack(b + first * b_column, b_k, b_column, k, columns.begin(end) - first, whole_columns(n, width) - first, width,
                 reinterpret_cast<T*>(storage.data()) + first * k);
  });
  return storage;
}

template <class T> void multiply_many(Index count, FunctionRef<Product<T>(Index)> product) {
  if (count == 0) return;
  const Product<T> first = product(0);
  const double seconds = std::max(estimate(first), 1e-9);
  if (count == 1 || seconds > 8 * kChunk) {
    for (Index i = 0; i < count; ++i) multiply(product(i));
    return;
  }
  const Precision precision = product_precision();
  const auto kernels = gemm_kernels<T>();
  const Choice<T> choice = first.m * first.n * first.k == 0 || precision != Precision::float32 ? Choice<T>{Way::tall, false, first}
                                                                                               : choose(kernels, first, false);
  const GemmPlan plan = choice.way == Way::wide ? make_plan(kernels, choice.p, false) : GemmPlan();
  parallel_for(count, std::max<Index>(1, Index(kChunk / seconds)), [&](Index begin, Index end) {
    const ProductPrecision use(precision);   // in another thread
    Kept here, &kept = own_or(here);
    for (Index i = begin; i < end; ++i) {
      const Product<T> p = product(i);
      const Product<T> q = choice.turned ? transposed(p) : p;
      if (choice.way == Way::small) kernels.small(q);
      else if (choice.way == Way::wide) kernels.block(q, plan, nullptr, 0, 0, 0, kept.scratch<T>(plan.scratch), {});
      else multiply(p);
    }
  });
}

}  // namespace

void multiply(const Product<float>& product, Finish<float> finish) {
  if (as_bfloat16(product)) return multiply_bfloat16(product, finish);
  multiply_any(product, finish);
}
void multiply(const Product<double>& product, Finish<double> finish) { multiply_any(product, finish); }
void multiply_by_halves(const Product<float>& product, RowSums<float> sums) {
  if (!as_bfloat16(product)) return halves_or_whole(product, sums);
  multiply_bfloat16(product, {});
  sum_rows(product, sums);
}
void multiply_by_halves(const Product<double>& product, RowSums<double> sums) { halves_or_whole(product, sums); }
void sum_by_halves(const Product<float>& p, RowSums<float> sums) {
  in_halves(p.m, p.n, p.k) && !as_bfloat16(p) ? sum_halves(p, sums) : sum_rows(p, sums);
}
void sum_by_halves(const Product<double>& p, RowSums<double> sums) { in_halves(p.m, p.n, p.k) ? sum_halves(p, sums) : sum_rows(p, sums); }
Storage pack(Index k, Index n, const float* b, Index b_k, Index b_column) { return pack_any(k, n, b, b_k, b_column); }
Storage pack(Index k, Index n, const double* b, Index b_k, Index b_column) { return pack_any(k, n, b, b_k, b_column); }
void multiply(Index count, FunctionRef<Product<float>(Index)> product) { multiply_many(count, product); }
void multiply(Index count, FunctionRef<Product<double>(Index)> product) { multiply_many(count, product); }

}  // namespace heed
#endif
