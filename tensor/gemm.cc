// SPDX-License-Identifier: Apache-2.0
#include "tensor/gemm.h"

#define HWY_TARGET_INCLUDE "tensor/gemm.cc"
#include "tensor/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

template <class T> GemmKernels<T> Kernels() {
  return {Index(Tile<T>::kRows), Index(Tile<T>::kThinRows), Index(Tile<T>::kLanes), &MultiplyBlock<T>, &PackPanel<T>};
}
GemmKernels<float> GemmKernelsF32() { return Kernels<float>(); }
GemmKernels<double> GemmKernelsF64() { return Kernels<double>(); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "tensor/context.h"
#include "tensor/storage.h"

namespace heed {
HWY_EXPORT(GemmKernelsF32);
HWY_EXPORT(GemmKernelsF64);

namespace {

template <class T> GemmKernels<T> kernels() {
  if constexpr (sizeof(T) == 4) return HWY_DYNAMIC_DISPATCH(GemmKernelsF32)();
  else return HWY_DYNAMIC_DISPATCH(GemmKernelsF64)();
}

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

constexpr Index kTallRows = 128;   // from here on the panels of b are packed once for all rows
constexpr double kChunk = 10e-6;   // seconds of work worth a hand-off

// Seconds on one core of an ordinary machine; only the order of magnitude matters.
template <class T> double estimate(const Product<T>& p) {
  const double flops = 2 * double(p.m) * double(p.n) * double(p.k);
  const double bytes = sizeof(T) * (double(p.m) * double(p.k) + double(p.k) * double(p.n) + double(p.m) * double(p.n));
  return flops / (sizeof(T) == 4 ? 150e9 : 75e9) + bytes / 20e9;
}

// Pieces of `units` (strips or panels): about `seconds` / kChunk of them, an even number, at most 32.
Index pieces(double seconds, Index units) {
  const auto wanted = Index(std::min(32.0, seconds / kChunk)) / 2 * 2;
  return std::clamp<Index>(wanted, 1, units);
}

template <class T> GemmPlan make_plan(const GemmKernels<T>& kernels, const Product<T>& p, Index most_rows) {
  GemmPlan plan{};
  plan.rows = kernels.rows;
  plan.width = (p.m <= kernels.thin_rows && p.n > 2 * kernels.lanes ? 4 : 2) * kernels.lanes;
  plan.direct_b = p.b_column == 1 && p.m <= kernels.rows;
  const std::size_t l1 = cache_sizes().l1 ? cache_sizes().l1 : 32 << 10;
  const Index most = std::clamp<Index>(Index(l1 * 2 / 3 / sizeof(T)) / plan.width, 64, 512);
  plan.depth = round_up(divide_up(p.k, divide_up(p.k, most)), 8);
  plan.pack_a = p.m > 1 || p.a_k != 1;
  plan.strip_scratch = plan.pack_a ? round_up(std::min(p.m, most_rows) * plan.depth + 2 * kernels.rows + kernels.lanes, 16) : 0;
  return plan;
}

template <class T> Product<T> rows_of(const Product<T>& p, Index first, Index rows) {
  Product<T> part = p;
  part.m = rows;
  part.a += first * p.a_row;
  part.c += first * p.c_row;
  return part;
}

template <class T> Product<T> columns_of(const Product<T>& p, Index first, Index columns) {
  Product<T> part = p;
  part.n = columns;
  part.b += first * p.b_column;
  part.c += first * p.c_column;
  return part;
}

template <class F> void run(bool parallel, Index chunks, F&& body) {
  if (parallel) return run_chunks(chunks, body);
  for (Index chunk = 0; chunk < chunks; ++chunk) body(chunk);
}

// Few rows: chunks of columns, each packs its panels just before their use.
template <class T> void multiply_wide(const GemmKernels<T>& kernels, const Product<T>& p, Finish<T> finish, double seconds) {
  const GemmPlan plan = make_plan(kernels, p, p.m);
  const Index unit = finish.run ? Finish<T>::kFinishColumns : plan.width, units = divide_up(p.n, unit), chunks = pieces(seconds, units);
  run(seconds > kChunk, chunks, [&](Index chunk) {
    const Index first = units * chunk / chunks * unit, last = std::min(p.n, units * (chunk + 1) / chunks * unit);
    T* memory = scratch<T>(plan.strip_scratch + plan.width * plan.depth + 64);
    kernels.block(columns_of(p, first, last - first), plan, nullptr, 0, first, memory, finish);
  });
}

// Many rows: all panels of b are packed once, then chunks of rows go through them.
template <class T> void multiply_tall(const GemmKernels<T>& kernels, const Product<T>& p, Finish<T> finish, double seconds) {
  constexpr Index kMostPacked = Index(16) << 20;   // bytes
  const Index chunks = std::max(pieces(seconds, divide_up(p.m, kernels.rows)), divide_up(p.m, kTallRows));
  const GemmPlan plan = make_plan(kernels, p, divide_up(p.m, chunks));
  const Index unit = Finish<T>::kFinishColumns, most_columns = std::max(kMostPacked / Index(sizeof(T)) / p.k / unit * unit, unit);
  const Index blocks = divide_up(p.k, plan.depth);
  const Index most_padded = round_up(std::min(p.n, most_columns), plan.width);
  const Storage storage(std::size_t(most_padded * p.k + 64) * sizeof(T));
  T* const packed = reinterpret_cast<T*>(storage.data());
  for (Index column = 0; column < p.n; column += most_columns) {
    const Product<T> part = columns_of(p, column, std::min(most_columns, p.n - column));
    const Index panels = divide_up(part.n, plan.width), padded = panels * plan.width;
    const Index groups = std::min<Index>(panels, 16);
    run(seconds > 2 * kChunk, blocks * groups, [&](Index chunk) {
      const Index k = chunk / groups * plan.depth, group = chunk % groups, depth = std::min(plan.depth, p.k - k);
      for (Index panel = panels * group / groups; panel < panels * (group + 1) / groups; ++panel) {
        const Index j = panel * plan.width;
        kernels.panel(part.b + k * p.b_k + j * p.b_column, p.b_k, p.b_column, std::size_t(depth), std::size_t(std::min(plan.width, part.n - j)),
                      std::size_t(plan.width), packed + k * padded + j * depth);
      }
    });
    run(seconds > kChunk, chunks, [&](Index chunk) {
      const Index first = p.m * chunk / chunks, rows = p.m * (chunk + 1) / chunks - first;
      kernels.block(rows_of(part, first, rows), plan, packed, first, column, scratch<T>(plan.strip_scratch + 64), finish);
    });
  }
}

template <class T> void multiply_any(Product<T> p, Finish<T> finish) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (Index i = 0; i < p.m && !p.add; ++i)
      for (Index j = 0; j < p.n; ++j) p.c[i * p.c_row + j * p.c_column] = 0;
    if (finish.run)
      for (Index j = 0; j < p.n; j += Finish<T>::kFinishColumns)
        finish.run(finish.self, 0, p.m, j, std::min(Finish<T>::kFinishColumns, p.n - j));
    return;
  }
  const auto kernels = heed::kernels<T>();
  // cᵀ = bᵀ aᵀ where c is stored by columns, or has too few of them for a vector
  if (!finish.run && ((p.c_column != 1 && p.c_row == 1) || (p.n < kernels.lanes && p.n < p.m)))
    p = {p.n, p.m, p.k, p.b, p.b_column, p.b_k, p.a, p.a_k, p.a_row, p.c, p.c_column, p.c_row, p.add};
  const double seconds = estimate(p);
  if (p.m > kTallRows) multiply_tall(kernels, p, finish, seconds);
  else multiply_wide(kernels, p, finish, seconds);
}

template <class T> void multiply_many(Index count, FunctionRef<Product<T>(Index)> product) {
  if (count == 0) return;
  const double seconds = estimate(product(0));
  if (count == 1 || seconds > 8 * kChunk) {
    for (Index i = 0; i < count; ++i) multiply(product(i));
    return;
  }
  parallel_for(count, std::max<Index>(1, Index(kChunk / seconds)), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) multiply(product(i));
  });
}

}  // namespace

void multiply(const Product<float>& product, Finish<float> finish) { multiply_any(product, finish); }
void multiply(const Product<double>& product, Finish<double> finish) { multiply_any(product, finish); }
void multiply(Index count, FunctionRef<Product<float>(Index)> product) { multiply_many(count, product); }
void multiply(Index count, FunctionRef<Product<double>(Index)> product) { multiply_many(count, product); }

}  // namespace heed
#endif
