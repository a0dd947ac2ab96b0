// SPDX-License-Identifier: Apache-2.0
// Matrix products of the models, in GF/s and as a share of the multiply-add peak measured before, beside any libraries that
// export the Fortran sgemm_ or oneDNN's dnnl_sgemm, and operands rounded to bfloat16 where the processor multiplies these; "cold" operands
// come from beyond the last cache. No packing outside the timing but for "-packed": there weights (b of layout t) were packed before by
// Heed and by libraries that export MKL's cblas_sgemm_pack. run.sh asks one process a library, in turns.
//   HEED_BLAS=libopenblas.so.0:/.../libtorch_cpu.so gemm_bench --benchmark_filter=1024x256x256t/hot
#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/random.h"
#include "tests/bench/roofline.h"
#include "tests/bench/turns.h"

using namespace heed;

namespace {

double peak = 0;  // operations a second of all threads

// c [m, n]:  n: a [m, k] b [k, n];  t: b as weight [n, k];  d: a as [k, m], a weight gradient
struct Shape3 {
  Index m, n, k;
  char layout;
};

double operations_of(const Shape3& s) { return 2.0 * double(s.m) * double(s.n) * double(s.k); }
double bytes_of(const Shape3& s) { return 4.0 * double(s.m * s.k + s.k * s.n + s.m * s.n); }

const Shape3 shapes[] = {
    {64, 768, 256, 't'},    {64, 1024, 512, 't'},   {1024, 256, 256, 't'},  {1024, 1024, 256, 't'}, {1024, 256, 1024, 't'},
    {1024, 4000, 256, 't'}, {768, 2048, 512, 't'},  {1024, 256, 256, 'n'},  {1024, 256, 1024, 'n'}, {1024, 1024, 256, 'n'},
    {256, 256, 1024, 'd'},  {1024, 256, 1024, 'd'}, {256, 1024, 1024, 'd'}, {4000, 256, 1024, 'd'}, {512, 2048, 768, 'd'},
    {768, 128, 128, 't'},   {768, 256, 128, 't'},   {128, 128, 768, 'd'},   {1, 4000, 256, 't'},    {4, 4000, 256, 't'},
    {8, 4000, 256, 't'},    {32, 4000, 256, 't'},   {64, 4000, 256, 't'},   {1, 512, 512, 't'},     {4, 512, 512, 't'},
    {32, 512, 512, 't'},    {4, 4000, 256, 'n'},    {64, 512, 512, 'n'},    {16, 16, 64, 't'},      {64, 64, 64, 'n'},
};

struct Operands { Tensor a, b, c; std::shared_ptr<const float> packed = {}; };

Operands random_operands(const Shape3& s) {
  return {normal(Key(Seed{1}), s.layout == 'd' ? Shape{s.k, s.m} : Shape{s.m, s.k}),
          normal(Key(Seed{2}), s.layout == 't' ? Shape{s.n, s.k} : Shape{s.k, s.n}), zeros({s.m, s.n})};
}

constexpr double kBeyondCaches = 128 << 20;   // bytes of operands in turns; a guest has this much of no L3

using Call = std::function<void(const Operands& x, const Shape3& s)>;
using Pack = std::function<std::shared_ptr<const float>(const Operands& x, const Shape3& s)>;

struct Side {
  std::string name;
  Call product;
  Pack pack = {};        // b, before the timing
  Call packed = {};
};

struct Case {
  Shape3 shape;
  bool cold, packed;
};

std::vector<Operands> operands_of(const Case& c, const Side& side) {
  const Shape3& s = c.shape;
  std::vector<Operands> operands{random_operands(s)};
  for (double held = 0; held == 0 || (c.cold && held < kBeyondCaches);) {
    if (held > 0) operands.push_back({operands[0].a.clone(), operands[0].b.clone(), operands[0].c.clone()});
    if (c.packed && side.pack) operands.back().packed = side.pack(operands[0], s);
    held += bytes_of(s);   // not those of the packed weights: MKL asks for megabytes whatever the size, and uses what it needs
  }
  return operands;
}

void measure(benchmark::State& state, const std::string& name, const Case& c, const Side& side) {
  static std::string made;                  // a case measured in turns keeps its operands
  static std::vector<Operands> operands;
  static std::size_t next;
  if (made != name) {
    operands.clear();
    operands = operands_of(c, side);
    made = name, next = 0;
  }
  const auto call = [&] {
    (c.packed && side.pack ? side.packed : side.product)(operands[next], c.shape);
    next = next + 1 < operands.size() ? next + 1 : 0;
  };
  call();
  for (auto _ : state) call();
  const double operations = operations_of(c.shape);
  state.counters["flop"] = operations;
  state.counters["bytes"] = bytes_of(c.shape);
  state.counters["GF/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = benchmark::Counter(operations / peak, benchmark::Counter::kIsIterationInvariantRate);
}

Product<float> product_of(const Operands& x, const Shape3& s) {
  const bool columns_of_a = s.layout == 'd', rows_of_b = s.layout == 't';
  Tensor c = x.c;
  return {s.m, s.n, s.k, x.a.data<float>(), columns_of_a ? 1 : s.k, columns_of_a ? s.m : 1, x.b.data<float>(), rows_of_b ? 1 : s.n,
          rows_of_b ? s.k : 1,
          c.mutable_data<float>(), s.n, 1, false, x.packed.get()};
}

void heed_product(const Operands& x, const Shape3& s) {
  if (s.layout == 'd') multiply_by_halves(product_of(x, s));   // as gradients of weights are made
  else multiply(product_of(x, s));
}

std::shared_ptr<const float> heed_pack(const Operands& x, const Shape3& s) {
  const auto packed = std::make_shared<const Storage>(pack(s.k, s.n, x.b.data<float>(), 1, s.k));
  return {packed, reinterpret_cast<const float*>(packed->data())};
}

void bfloat16_product(const Operands& x, const Shape3& s) {
  const ProductPrecision precision(Precision::bfloat16);
  heed_product(x, s);
}

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                       const float*, const int*, const float*, float*, const int*);
using DnnlSgemm = int (*)(char, char, long, long, long, float, const float*, long, const float*, long, float, float*, long);

// By columns, so cᵀ = bᵀ aᵀ.
Call by_columns(Sgemm sgemm) {
  return [=](const Operands& x, const Shape3& s) {
    const int m = int(s.m), n = int(s.n), k = int(s.k), ldb = s.layout == 't' ? k : n, lda = s.layout == 'd' ? m : k;
    const float one = 1, zero = 0;
    Tensor c = x.c;
    sgemm(s.layout == 't' ? "T" : "N", s.layout == 'd' ? "T" : "N", &n, &m, &k, &one, x.b.data<float>(), &ldb, x.a.data<float>(), &lda,
          &zero, c.mutable_data<float>(), &n);
  };
}

Call by_rows(DnnlSgemm sgemm) {
  return [=](const Operands& x, const Shape3& s) {
    Tensor c = x.c;
    sgemm(s.layout == 'd' ? 'T' : 'N', s.layout == 't' ? 'T' : 'N', s.m, s.n, s.k, 1, x.a.data<float>(), s.layout == 'd' ? s.m : s.k,
          x.b.data<float>(), s.layout == 't' ? s.k : s.n, 0, c.mutable_data<float>(), s.n);
  };
}

// MKL's, by its numbers for row-major, B, no, transposed and packed.
Side with_packing(Side side, void* library) {
  using Size = std::size_t (*)(int, int, int, int);
  using PackB = void (*)(int, int, int, int, int, int, float, const float*, int, float*);
  using Compute = void (*)(int, int, int, int, int, int, const float*, int, const float*, int, float, float*, int);
  constexpr int kRowMajor = 101, kNo = 111, kTransposed = 112, kPacked = 151, kB = 162;
  const auto size = reinterpret_cast<Size>(dlsym(library, "cblas_sgemm_pack_get_size"));
  const auto pack = reinterpret_cast<PackB>(dlsym(library, "cblas_sgemm_pack"));
  const auto compute = reinterpret_cast<Compute>(dlsym(library, "cblas_sgemm_compute"));
  if (!size || !pack || !compute) return side;
  side.pack = [=](const Operands& x, const Shape3& s) {
    const std::size_t bytes = (size(kB, int(s.m), int(s.n), int(s.k)) + 63) / 64 * 64;
    const std::shared_ptr<float> packed(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
    pack(kRowMajor, kB, kTransposed, int(s.m), int(s.n), int(s.k), 1, x.b.data<float>(), int(s.k), packed.get());
    return packed;
  };
  side.packed = [=](const Operands& x, const Shape3& s) {
    Tensor c = x.c;
    compute(kRowMajor, kNo, kPacked, int(s.m), int(s.n), int(s.k), x.a.data<float>(), int(s.k), x.packed.get(), int(s.k), 0,
            c.mutable_data<float>(), int(s.n));
  };
  return side;
}

}  // namespace

int main(int argc, char** argv) {
  peak = bench::multiply_add_peak(threads());
  benchmark::AddCustomContext("multiply-add peak", std::to_string(peak * 1e-9) + " GF/s");
  std::vector<Side> sides{{"heed", heed_product, heed_pack, heed_product}};
  if (has_bfloat16_products()) sides.push_back({"heed-bfloat16", bfloat16_product});
  for (std::string rest = std::getenv("HEED_BLAS") ? std::getenv("HEED_BLAS") : ""; !rest.empty();) {
    const std::string path = rest.substr(0, rest.find(':')), name = path.substr(path.rfind('/') + 1);
    rest.erase(0, path.size() + 1);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (void* columns = library ? dlsym(library, "sgemm_") : nullptr)
      sides.push_back(with_packing({name, by_columns(reinterpret_cast<Sgemm>(columns))}, library));
    else if (void* rows = library ? dlsym(library, "dnnl_sgemm") : nullptr)
      sides.push_back({name, by_rows(reinterpret_cast<DnnlSgemm>(rows))});
    else std::fprintf(stderr, "%s: %s\n", path.c_str(), library ? "exports neither sgemm_ nor dnnl_sgemm" : dlerror());
  }
  for (const Shape3& s : shapes)
    for (const Side& side : sides)
      for (const bool packed : {false, true})
        for (const bool cold : {false, true}) {
          if (packed && (s.layout != 't' || side.name == "heed-bfloat16")) continue;
          const std::string name =
              fmt::format("{}x{}x{}{}/{}{}/{}", s.m, s.n, s.k, s.layout, cold ? "cold" : "hot", packed ? "-packed" : "", side.name);
          bench::add(name, [=](benchmark::State& state) { measure(state, name, {s, cold, packed}, side); });
        }
  return bench::run(argc, argv);
}
