// SPDX-License-Identifier: Apache-2.0
#include "tensor/gemm.h"

#define HWY_TARGET_INCLUDE "tensor/gemm.cc"
#include "tensor/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> GemmKernels<T> Kernels() {
  using Size = Tile<T>;
  GemmKernels<T> kernels{Index(Size::kRows), Index(Size::kLanes), Index(Size::kWideRows), Index(Size::kThinRows), &MultiplyBlock<T>,
                         nullptr, &PackPanels<T>, &MultiplyPanel<T>};
#if HWY_TARGET != HWY_SCALAR
  kernels.thin = &MultiplyThin<T>;
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

#include "tensor/context.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/storage.h"

namespace heed {
HWY_EXPORT(GemmKernelsF32);
HWY_EXPORT(GemmKernelsF64);

template <> GemmKernels<float> gemm_kernels() { return HWY_DYNAMIC_DISPATCH(GemmKernelsF32)(); }
template <> GemmKernels<double> gemm_kernels() { return HWY_DYNAMIC_DISPATCH(GemmKernelsF64)(); }

namespace {

// Packing memory of one thread, kept.
template <class T> T* scratch(Index elements) {
  thread_local Storage storage;
  const auto bytes = std::size_t(elements) * sizeof(T);
  if (storage.bytes() < bytes) {
    storage = {};
    storage = Storage(bytes);
  }
  return reinterpret_cast<T*>(storage.data());
}

constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index b) { return divide_up(a, b) * b; }

constexpr Index kTallRows = 128;   // beyond, the panels of b are packed once for all rows
constexpr double kChunk = 10e-6;   // seconds of work worth a hand-off

// Seconds on one core of an ordinary machine; only the order of magnitude matters.
template <class T> double estimate(const Product<T>& p) {
  const double flops = 2 * double(p.m) * double(p.n) * double(p.k);
  const double bytes = sizeof(T) * (double(p.m) * double(p.k) + double(p.k) * double(p.n) + double(p.m) * double(p.n));
  return flops / (sizeof(T) == 4 ? 150e9 : 75e9) + bytes / 20e9;
}

// Pieces of `units` (strips or panels), an even number: up to 8 of kChunk, up to 32 of some more.
Index pieces(double seconds, Index units) {
  const double wanted = std::min(32.0, seconds < 40 * kChunk ? std::min(8.0, seconds / kChunk) : seconds / (5 * kChunk));
  return std::clamp<Index>(Index(wanted) / 2 * 2, 1, units);
}

template <class F> void run(bool parallel, Index chunks, F&& body) {
  if (parallel) return run_chunks(chunks, body);
  for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
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

// cᵀ = bᵀ aᵀ
template <class T> Product<T> transposed(const Product<T>& p) {
  return {p.n, p.m, p.k, p.b, p.b_column, p.b_k, p.a, p.a_k, p.a_row, p.c, p.c_column, p.c_row, p.add};
}

// Multiply-adds that a product costs, divided by k, packing and turning counted in the same unit.
template <class T> double cost(const GemmKernels<T>& kernels, const Product<T>& p) {
  const double m = double(p.m), n = double(round_up(p.n, kernels.lanes)), cycle = double(2 * kernels.lanes);
  const double pack_b = p.b_column == 1 ? (p.m <= kernels.rows ? 0 : 0.1) : p.b_k == 1 ? 0.25 : 2;
  const double pack_a = p.a_k == 1 ? 0.1 : p.a_row == 1 ? 0.15 : 2;
  const double store = p.c_column == 1 ? 0 : p.c_row == 1 ? 0.3 : 2;
  return m * n + cycle * (pack_a * m + pack_b * n + store * m * n / double(p.k));
}

template <class T> bool is_thin(const GemmKernels<T>& kernels, const Product<T>& p) {
  return kernels.thin && p.m <= kernels.thin_rows && p.a_k == 1 && p.b_k == 1 && p.c_column == 1 && p.b_column != 1;
}

template <class T>
GemmPlan make_plan(const GemmKernels<T>& kernels, const Product<T>& p, Index most_rows, Index most_columns, bool packed) {
  constexpr Index kLine = Index(64 / sizeof(T));
  const auto l1 = Index((cache_sizes().l1 ? cache_sizes().l1 : 32 << 10) / sizeof(T));
  GemmPlan plan{};
  plan.rows = kernels.rows;
  plan.width = (!packed && p.m <= kernels.wide_rows && p.n > 2 * kernels.lanes ? 4 : 2) * kernels.lanes;
  const Index b_step = p.b_k * Index(sizeof(T));   // bytes
  const bool b_near = b_step <= 2048;
  plan.direct_b = !packed && p.b_column == 1 && (p.m <= 3 * kernels.rows || (p.m <= kTallRows && b_step <= 1024));
  plan.group = 128;   // columns; the source of the next group is fetched meanwhile
  const bool once = p.panels && p.m <= plan.rows;   // each panel meets one strip and need not stay in the L1
  const Index most = once ? p.k : plan.direct_b && b_near ? 1024 : std::clamp<Index>(l1 * 2 / 3 / plan.width, 64, 512);
  plan.depth = round_up(divide_up(p.k, divide_up(p.k, most)), 8);
  // a is read in place unless the rows of a strip share their places in the caches, or each k starts far away
  const bool collide = p.a_row * Index(sizeof(T)) % 4096 == 0 && p.m > 6 && (p.m > 128 || l1 * Index(sizeof(T)) <= 32 << 10);
  plan.pack_a = p.n > plan.width && (p.a_row == 1 ? p.a_k * Index(sizeof(T)) > 1536 : p.a_k == 1 ? collide : true);
  plan.a_row = (divide_up(plan.depth, kLine) | 1) * kLine;
  plan.whole_panels = p.panels != nullptr;
  plan.transposed = p.c_column != 1 && p.c_row == 1;
  const Index rows = std::min(p.m, most_rows), pitch = round_up(plan.rows, kernels.lanes);
  plan.panels = plan.pack_a ? std::max(rows * plan.a_row, divide_up(rows, plan.rows) * pitch * plan.depth) + kLine : 0;
  plan.sums = plan.panels + (packed ? 0 : plan.group * plan.depth + kLine);
  plan.scratch = plan.sums + (plan.transposed || plan.depth < p.k ? rows * round_up(most_columns, plan.width) : 0) + kLine;
  return plan;
}

// Few rows: chunks of columns, each packs its panels just before their use unless they are there.
template <class T> void multiply_wide(const GemmKernels<T>& kernels, const Product<T>& p, Finish<T> finish, double seconds) {
  const Index unit = finish.run ? Finish<T>::kFinishColumns : 4 * kernels.lanes;
  const Index units = divide_up(p.n, unit), chunks = pieces(seconds, units);
  const GemmPlan plan = make_plan(kernels, p, p.m, divide_up(units, chunks) * unit, p.panels != nullptr);
  run(seconds > kChunk, chunks, [&](Index chunk) {
    const Index first = units * chunk / chunks * unit, last = std::min(p.n, units * (chunk + 1) / chunks * unit);
    kernels.block(part_of(p, 0, p.m, first, last - first), plan, p.panels, first, 0, first, scratch<T>(plan.scratch), finish);
  });
}

// Many rows: all panels of b are packed once unless they are there, then chunks of rows go through them. column: where p starts in the whole.
template <class T>
void multiply_tall(const GemmKernels<T>& kernels, const Product<T>& p, Index column, Finish<T> finish, double seconds) {
  constexpr Index kUnit = Finish<T>::kFinishColumns, kMostPacked = (Index(16) << 20) / Index(sizeof(T));
  const bool turned = p.c_column != 1 && p.c_row == 1;
  if (const Index most = std::max(kMostPacked / p.k / kUnit * kUnit, kUnit); p.n > most && !turned && !p.panels) {
    for (Index j = 0; j < p.n; j += most) {
      const Product<T> part = part_of(p, 0, p.m, j, std::min(most, p.n - j));
      multiply_tall(kernels, part, column + j, finish, estimate(part));
    }
    return;
  }
  // A chunk streams its columns of b, which stay in the L2, past its rows: 256, or fewer where that makes too few chunks.
  const auto l2 = Index((cache_sizes().l2 ? cache_sizes().l2 : 1 << 20) / sizeof(T));
  const Index widest = turned ? p.n : std::max(l2 / 2 / 256 / kUnit * kUnit, kUnit);
  const Index wanted = pieces(std::min(seconds, 8 * kChunk), 8);
  const Index row_unit = turned ? (finish.run ? kUnit : 64) : kernels.rows, row_units = divide_up(p.m, row_unit);
  Index row_chunks = divide_up(p.m, 256), column_chunks = divide_up(p.n, widest);
  if (row_chunks * column_chunks < wanted) row_chunks = divide_up(p.m, 128);
  if (row_chunks * column_chunks < wanted && !turned)
    column_chunks = std::max(column_chunks, std::min(divide_up(wanted, row_chunks), divide_up(p.n, 2 * kUnit)));
  if (row_chunks * column_chunks < wanted) row_chunks = std::min(divide_up(wanted, column_chunks), divide_up(p.m, 64));
  row_chunks = std::min(row_chunks, row_units);
  const Index wide = round_up(divide_up(p.n, column_chunks), kUnit);
  column_chunks = divide_up(p.n, wide);

  GemmPlan plan = make_plan(kernels, p, divide_up(row_units, row_chunks) * row_unit, wide, true);
  plan.packed_columns = round_up(p.n, plan.width);
  const Storage storage = p.panels ? Storage() : Storage(std::size_t(plan.packed_columns * p.k + 64) * sizeof(T));
  const T* const packed = p.panels ? p.panels : reinterpret_cast<T*>(storage.data());
  const Index blocks = divide_up(p.k, plan.depth), groups = divide_up(p.n, kUnit);
  run(seconds > 2 * kChunk, p.panels ? 0 : blocks * groups, [&](Index chunk) {
    const Index k = chunk / groups * plan.depth, j = chunk % groups * kUnit, depth = std::min(plan.depth, p.k - k);
    kernels.pack(p.b + k * p.b_k + j * p.b_column, p.b_k, p.b_column, depth, std::min(kUnit, p.n - j), plan.width,
                 reinterpret_cast<T*>(storage.data()) + k * plan.packed_columns + j * depth);
  });
  run(seconds > kChunk, row_chunks * column_chunks, [&](Index chunk) {
    const Index r = chunk / column_chunks, j = chunk % column_chunks * wide;
    const Index i = row_units * r / row_chunks * row_unit, end = std::min(p.m, row_units * (r + 1) / row_chunks * row_unit);
    kernels.block(part_of(p, i, end - i, j, std::min(wide, p.n - j)), plan, packed, j, i, column + j, scratch<T>(plan.scratch),
                  finish);
  });
}

// At most a few rows and k contiguous in both: b is turned in registers.
template <class T> void multiply_thin(const GemmKernels<T>& kernels, const Product<T>& p, Finish<T> finish, double seconds) {
  const Index unit = finish.run ? Finish<T>::kFinishColumns : kernels.lanes;
  const Index units = divide_up(p.n, unit), chunks = pieces(seconds, units);
  run(seconds > kChunk, chunks, [&](Index chunk) {
    const Index first = units * chunk / chunks * unit, last = std::min(p.n, units * (chunk + 1) / chunks * unit);
    const Index whole = (last - first) / kernels.lanes * kernels.lanes;
    if (whole) kernels.thin(part_of(p, 0, p.m, first, whole));
    if (first + whole < last) multiply_wide(kernels, part_of(p, 0, p.m, first + whole, last - first - whole), {}, 0);
    if (finish.run) finish.run(finish.self, 0, p.m, first, last - first);
  });
}

template <class T> void multiply_any(Product<T> p, Finish<T> finish) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (Index i = 0; i < p.m && !p.add; ++i)
      for (Index j = 0; j < p.n; ++j) p.c[i * p.c_row + j * p.c_column] = 0;
    if (finish.run) finish.run(finish.self, 0, p.m, 0, p.n);
    return;
  }
  const auto kernels = gemm_kernels<T>();
  const double seconds = estimate(p);
  if (p.panels) return p.m > kTallRows ? multiply_tall(kernels, p, 0, finish, seconds) : multiply_wide(kernels, p, finish, seconds);
  const Product<T> turned = transposed(p);
  if (is_thin(kernels, p)) return multiply_thin(kernels, p, finish, seconds);
  if (!finish.run && is_thin(kernels, turned)) return multiply_thin(kernels, turned, finish, seconds);
  const auto by_columns = [](const Product<T>& q) { return q.c_column != 1 && q.c_row == 1; };
  // a finish sees rows and columns of p, which only a product by columns hands back turned
  if (cost(kernels, turned) < cost(kernels, p) && (!finish.run || by_columns(turned))) p = turned;
  if (p.m > kTallRows || by_columns(p)) multiply_tall(kernels, p, 0, finish, seconds);
  else multiply_wide(kernels, p, finish, seconds);
}

template <class T> Storage pack_any(Index k, Index n, const T* b, Index b_k, Index b_column) {
  const auto kernels = gemm_kernels<T>();
  const Index width = 2 * kernels.lanes, panels = divide_up(n, width);
  Storage storage(std::size_t(panels * width * k + 64) * sizeof(T));
  parallel_for(panels, std::max<Index>(1, 32768 / (width * std::max<Index>(k, 1))), [&](Index begin, Index end) {
    kernels.pack(b + begin * width * b_column, b_k, b_column, k, std::min(n, end * width) - begin * width, width,
                 reinterpret_cast<T*>(storage.data()) + begin * width * k);
  });
  return storage;
}

template <class T> void multiply_many(Index count, FunctionRef<Product<T>(Index)> product) {
  if (count == 0) return;
  const double seconds = std::max(estimate(product(0)), 1e-9);
  if (count == 1 || seconds > 8 * kChunk) {
    for (Index i = 0; i < count; ++i) multiply(product(i));
    return;
  }
  const Precision precision = product_precision();
  parallel_for(count, std::max<Index>(1, Index(kChunk / seconds)), [&](Index begin, Index end) {
    const ProductPrecision use(precision);   // in another thread
    for (Index i = begin; i < end; ++i) multiply(product(i));
  });
}

}  // namespace

void multiply(const Product<float>& product, Finish<float> finish) {
  if (product_precision() == Precision::bfloat16 && gains_by_bfloat16(product.m, product.n, product.k)) return multiply_bfloat16(product, finish);
  multiply_any(product, finish);
}
void multiply(const Product<double>& product, Finish<double> finish) { multiply_any(product, finish); }
Storage pack(Index k, Index n, const float* b, Index b_k, Index b_column) { return pack_any(k, n, b, b_k, b_column); }
Storage pack(Index k, Index n, const double* b, Index b_k, Index b_column) { return pack_any(k, n, b, b_k, b_column); }
void multiply(Index count, FunctionRef<Product<float>(Index)> product) { multiply_many(count, product); }
void multiply(Index count, FunctionRef<Product<double>(Index)> product) { multiply_many(count, product); }

}  // namespace heed
#endif
