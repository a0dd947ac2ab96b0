// SPDX-License-Identifier: Apache-2.0
// Matrix products of the models, in GF/s and as a share of the multiply-add peak measured before, beside any libraries that
// export the Fortran sgemm_. In turns on one thread (a peer's idle threads would spin on the second core):
//   HEED_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 HEED_BLAS=libopenblas.so.0:/.../libtorch_cpu.so gemm_bench
//     --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#define HWY_TARGET_INCLUDE "tests/bench/gemm_bench.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// 12 chains of multiply-adds, `rounds` long; returns the number of operations.
double MultiplyAdds(int rounds) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> x[12];
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  HWY_UNROLL(12) for (int i = 0; i < 12; ++i) x[i] = hn::Set(d, float(i));
  for (int round = 0; round < rounds; ++round) HWY_UNROLL(12) for (int i = 0; i < 12; ++i) x[i] = hn::MulAdd(x[i], a, b);
  HWY_UNROLL(12) for (int i = 0; i < 12; ++i) benchmark::DoNotOptimize(x[i]);
  return 2.0 * 12 * double(hn::Lanes(d)) * rounds;
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tensor/context.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"

namespace heed {
HWY_EXPORT(MultiplyAdds);

namespace {

double peak = 0;  // operations a second of all threads

double measure_peak() {
  double best = 0;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(20000);
    best = std::max(best, operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best * threads();
}

// c [m, n]:  n: a [m, k] b [k, n];  t: b as weight [n, k];  d: a as [k, m], a weight gradient
struct Shape3 {
  Index m, n, k;
  char layout;
};

const Shape3 shapes[] = {
    {64, 768, 256, 't'},    {64, 1024, 512, 't'},   {1024, 256, 256, 't'},  {1024, 1024, 256, 't'}, {1024, 256, 1024, 't'},
    {1024, 4000, 256, 't'}, {768, 2048, 512, 't'},  {1024, 256, 256, 'n'},  {1024, 256, 1024, 'n'}, {1024, 1024, 256, 'n'},
    {256, 256, 1024, 'd'},  {1024, 256, 1024, 'd'}, {256, 1024, 1024, 'd'}, {4000, 256, 1024, 'd'}, {512, 2048, 768, 'd'},
    {768, 128, 128, 't'},   {768, 256, 128, 't'},   {128, 128, 768, 'd'},   {1, 4000, 256, 't'},    {4, 4000, 256, 't'},
    {8, 4000, 256, 't'},    {32, 4000, 256, 't'},   {64, 4000, 256, 't'},   {1, 512, 512, 't'},     {4, 512, 512, 't'},
    {32, 512, 512, 't'},    {4, 4000, 256, 'n'},    {64, 512, 512, 'n'},    {16, 16, 64, 't'},      {64, 64, 64, 'n'},
};

struct Operands {
  Tensor a, b, c;
  explicit Operands(const Shape3& s)
      : a(normal(Key(Seed{1}), s.layout == 'd' ? Shape{s.k, s.m} : Shape{s.m, s.k})),
        b(normal(Key(Seed{2}), s.layout == 't' ? Shape{s.n, s.k} : Shape{s.k, s.n})),
        c(zeros({s.m, s.n})) {}
};

void report(benchmark::State& state, const Shape3& s) {
  const double operations = 2.0 * double(s.m) * double(s.n) * double(s.k);
  state.counters["GF/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = benchmark::Counter(operations / peak, benchmark::Counter::kIsIterationInvariantRate);
}

void heed_product(benchmark::State& state, const Shape3& s) {
  const Operands x(s);
  const Tensor a = s.layout == 'd' ? transpose(x.a) : x.a, b = s.layout == 't' ? transpose(x.b) : x.b;
  for (auto _ : state) matmul(a, b, {x.c});
  report(state, s);
}

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                       const float*, const int*, const float*, float*, const int*);

// By columns, so cᵀ = bᵀ aᵀ.
void peer_product(benchmark::State& state, Sgemm sgemm, const Shape3& s) {
  const Operands x(s);
  const int m = int(s.m), n = int(s.n), k = int(s.k), ldb = s.layout == 't' ? k : n, lda = s.layout == 'd' ? m : k;
  const float one = 1, zero = 0;
  for (auto _ : state)
    sgemm(s.layout == 't' ? "T" : "N", s.layout == 'd' ? "T" : "N", &n, &m, &k, &one, x.b.data<float>(), &ldb,
          x.a.data<float>(), &lda, &zero, x.c.mutable_data<float>(), &n);
  report(state, s);
}

}  // namespace
}  // namespace heed

int main(int argc, char** argv) {
  using namespace heed;
  benchmark::Initialize(&argc, argv);
  peak = measure_peak();
  benchmark::AddCustomContext("machine", describe_context());
  benchmark::AddCustomContext("multiply-add peak", std::to_string(peak * 1e-9) + " GF/s");
  std::vector<std::pair<std::string, Sgemm>> peers;
  for (std::string rest = std::getenv("HEED_BLAS") ? std::getenv("HEED_BLAS") : ""; !rest.empty();) {
    const std::string path = rest.substr(0, rest.find(':'));
    rest.erase(0, path.size() + 1);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (void* symbol = library ? dlsym(library, "sgemm_") : nullptr)
      peers.emplace_back(path.substr(path.rfind('/') + 1), reinterpret_cast<Sgemm>(symbol));
  }
  for (const Shape3& s : shapes) {
    const std::string name = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + s.layout;
    benchmark::RegisterBenchmark((name + "/heed").c_str(), heed_product, s)->UseRealTime();
    for (const auto& [peer, sgemm] : peers)
      benchmark::RegisterBenchmark((name + "/" + peer).c_str(), peer_product, sgemm, s)->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
}
#endif
