// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/update.h"

#define HWY_TARGET_INCLUDE "tensor/ops/update.cc"
#include "tensor/simd-inl.h"

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// Constants of one item in the lanes of D.
template <class D> struct Splat {
  using V = hn::Vec<D>;
  V rate, scale, wd, momentum, keep, beta1, beta2, rest1, rest2, root, eps, shrink, start;
  HWY_INLINE Splat(D d, const UpdateConstants& c) {
    using T = hn::TFromD<D>;
    rate = hn::Set(d, T(c.rate)); scale = hn::Set(d, T(c.gradient_scale)); wd = hn::Set(d, T(c.weight_decay));
    momentum = hn::Set(d, T(c.momentum)); keep = hn::Set(d, T(c.keep));
    beta1 = hn::Set(d, T(c.beta1)); beta2 = hn::Set(d, T(c.beta2)); rest1 = hn::Set(d, T(1 - c.beta1)); rest2 = hn::Set(d, T(1 - c.beta2));
    root = hn::Set(d, T(c.root)); eps = hn::Set(d, T(c.eps)); shrink = hn::Set(d, T(1 - c.decay)); start = hn::Set(d, T(c.start));
  }
};

// One vector: θ, s0, s1 from θ, g, s0, s1, as update.h says.
template <Update kKind, class D, class V> HWY_INLINE void Apply(D, const Splat<D>& c, V& w, V g, V& s0, V& s1) {
  if constexpr (kKind == Update::average) {
    w = hn::MulAdd(c.rest1, hn::Sub(g, w), w);
    return;
  }
  g = hn::Mul(g, c.scale);
  if constexpr (kKind == Update::adamw) w = hn::Mul(w, c.shrink);
  else g = hn::MulAdd(c.wd, w, g);
  if constexpr (kKind == Update::sgd) {
    w = hn::NegMulAdd(c.rate, g, w);
  } else if constexpr (kKind == Update::momentum || kKind == Update::nesterov) {
    s0 = hn::MulAdd(c.momentum, s0, hn::Mul(c.keep, g));
    w = hn::NegMulAdd(c.rate, kKind == Update::nesterov ? hn::MulAdd(c.momentum, s0, g) : s0, w);
  } else if constexpr (kKind == Update::adam || kKind == Update::adamw) {
    s0 = hn::MulAdd(c.beta1, s0, hn::Mul(c.rest1, g));
    s1 = hn::MulAdd(c.beta2, s1, hn::Mul(c.rest2, hn::Mul(g, g)));
    w = hn::NegMulAdd(c.rate, hn::Div(s0, hn::MulAdd(hn::Sqrt(s1), c.root, c.eps)), w);
  } else if constexpr (kKind == Update::adagrad) {
    s0 = hn::MulAdd(g, g, s0);
    w = hn::NegMulAdd(c.rate, hn::Div(g, hn::Add(hn::Sqrt(s0), c.eps)), w);
  } else if constexpr (kKind == Update::adadelta) {
    s0 = hn::MulAdd(c.beta2, s0, hn::Mul(c.rest2, hn::Mul(g, g)));
    const V step = hn::Mul(g, hn::Div(hn::Sqrt(hn::Add(s1, c.eps)), hn::Sqrt(hn::Add(s0, c.eps))));
    s1 = hn::MulAdd(c.beta2, s1, hn::Mul(c.rest2, hn::Mul(step, step)));
    w = hn::NegMulAdd(c.rate, step, w);
  } else {
    s0 = hn::MulAdd(c.beta2, s0, hn::Mul(c.rest2, hn::Mul(g, g)));
    V step = hn::Div(g, hn::Add(hn::Sqrt(s0), c.eps));
    if constexpr (kKind == Update::rmsprop_momentum) step = s1 = hn::MulAdd(c.momentum, s1, step);
    w = hn::NegMulAdd(c.rate, step, w);
  }
}

constexpr int StatesOf(Update kind) {
  switch (kind) {
    case Update::sgd: case Update::average: return 0;
    case Update::momentum: case Update::nesterov: case Update::adagrad: case Update::rmsprop: return 1;
    default: return 2;
  }
}

// first: s0 and s1 are not read; past_caches: θ is stored so
template <Update kKind, class T>
void UpdateOf(const UpdateConstants& constants, bool first, bool past_caches, size_t n, T* w, const T* g, T* s0, T* s1) {
  const Lanes16<T> d;
  const Splat<Lanes16<T>> c(d, constants);
  const bool streamed = past_caches && reinterpret_cast<uintptr_t>(w) % (hn::Lanes(d) * sizeof(T)) == 0;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const size_t left = n - i;
    auto value = LoadFirst(d, w + i, left), a = c.start, b = hn::Zero(d);
    if constexpr (StatesOf(kKind) > 0) if (!first) a = LoadFirst(d, s0 + i, left);
    if constexpr (StatesOf(kKind) > 1) if (!first) b = LoadFirst(d, s1 + i, left);
    Apply<kKind>(d, c, value, LoadFirst(d, g + i, left), a, b);
    if (streamed && left >= hn::Lanes(d)) hn::Stream(value, d, w + i);
    else StoreFirst(value, d, w + i, left);
    if constexpr (StatesOf(kKind) > 0) StoreFirst(a, d, s0 + i, left);
    if constexpr (StatesOf(kKind) > 1) StoreFirst(b, d, s1 + i, left);
  }
  if (streamed) hwy::FlushStream();
}

template <class T>
void UpdateChunk(Update kind, const UpdateConstants& c, bool first, bool past_caches, size_t n, T* w, const T* g, T* s0, T* s1) {
  switch (kind) {
    case Update::sgd: return UpdateOf<Update::sgd>(c, first, past_caches, n, w, g, s0, s1);
    case Update::momentum: return UpdateOf<Update::momentum>(c, first, past_caches, n, w, g, s0, s1);
    case Update::nesterov: return UpdateOf<Update::nesterov>(c, first, past_caches, n, w, g, s0, s1);
    case Update::adam: return UpdateOf<Update::adam>(c, first, past_caches, n, w, g, s0, s1);
    case Update::adamw: return UpdateOf<Update::adamw>(c, first, past_caches, n, w, g, s0, s1);
    case Update::adagrad: return UpdateOf<Update::adagrad>(c, first, past_caches, n, w, g, s0, s1);
    case Update::adadelta: return UpdateOf<Update::adadelta>(c, first, past_caches, n, w, g, s0, s1);
    case Update::rmsprop: return UpdateOf<Update::rmsprop>(c, first, past_caches, n, w, g, s0, s1);
    case Update::rmsprop_momentum: return UpdateOf<Update::rmsprop_momentum>(c, first, past_caches, n, w, g, s0, s1);
    case Update::average: return UpdateOf<Update::average>(c, first, past_caches, n, w, g, s0, s1);
  }
}

void UpdateF32(Update kind, const UpdateConstants& c, bool first, bool past_caches, size_t n, float* w, const float* g, float* s0,
               float* s1) {
  UpdateChunk(kind, c, first, past_caches, n, w, g, s0, s1);
}
void UpdateF64(Update kind, const UpdateConstants& c, bool first, bool past_caches, size_t n, double* w, const double* g, double* s0,
               double* s1) {
  UpdateChunk(kind, c, first, past_caches, n, w, g, s0, s1);
}

double SquaresF32(const float* x, size_t n) { return SumInDouble<Squared>(x, n); }
double SquaresF64(const double* x, size_t n) { return Reduce<SumOp, Squared>(x, n); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <numeric>
#include <vector>

#include "tensor/cut.h"
#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/kernel.h"
#include "tensor/parallel.h"
#include "tensor/thread_own.h"

namespace heed {
namespace {

HWY_EXPORT(UpdateF32);
HWY_EXPORT(UpdateF64);
HWY_EXPORT(SquaresF32);
HWY_EXPORT(SquaresF64);

constexpr Index kUpdated = 4096;                 // elements of a chunk, whose squares are summed apart
constexpr double kSeconds = 0.3e-9;              // about, an element of one thread
constexpr Index chunks_of(Index size) { return divide_up(size, kUpdated); }

int states_of(Update kind) { return HWY_STATIC_DISPATCH(StatesOf)(kind); }

// What a thread keeps for its next update, which then asks for no memory: so an average may follow an optimiser's step.
struct Lists {
  std::vector<Index> sizes, starts;
};

// Calls body(item, first, count) for all chunks of all sizes, spread over the threads in pieces of as many elements: upper halves of all
// items, then lower halves, since the first thread wrote the upper half of a gradient last
// (multiply_by_halves), the second one the lower half.
template <class Body> void for_chunks(std::span<const Index> sizes, Body&& body) {
  Lists here;
  std::vector<Index>& starts = own_or(here).starts;   // elements before each half of an item
  starts.assign(2 * sizes.size() + 1, 0);
  const auto upper = [&](std::size_t item) { return std::min(sizes[item], divide_up(chunks_of(sizes[item]), 2) * kUpdated); };
  for (std::size_t half = 0; half + 1 < starts.size(); ++half) {
    const std::size_t item = half % sizes.size();
    starts[half + 1] = starts[half] + (half < sizes.size() ? upper(item) : sizes[item] - upper(item));
  }
  const Index all = starts.back(), parts = pieces(double(all) * kSeconds, std::max<Index>(1, chunks_of(all)));
  run_chunks(parts, [&](Index part) {            // the chunks that begin in [begin, end)
    const Index begin = all * part / parts, end = all * (part + 1) / parts;
    for (auto half = std::size_t(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1; starts[half] < end; ++half) {
      const std::size_t item = half % sizes.size();
      const Index start = starts[half], size = starts[half + 1] - start, first = half < sizes.size() ? 0 : upper(item);
      for (Index at = round_up(std::max<Index>(begin - start, 0), kUpdated); at < size && start + at < end; at += kUpdated)
        body(item, first + at, std::min(kUpdated, size - at));
    }
  });
}

// Σ x² over all tensors, in chunks of each, added up in order
double squares_of_all(std::span<const Tensor> tensors) {
  List<Tensor> dense;
  List<Index> sizes, starts;                     // number of a tensor's first chunk
  Index chunks = 0;
  for (const Tensor& x : tensors) {
    if (!is_float(x.dtype())) throw_not_float("sum_of_squares", x.dtype());
    dense.push_back(x.contiguous());
    sizes.push_back(x.numel());
    starts.push_back(chunks);
    chunks += chunks_of(x.numel());
  }
  starts.push_back(chunks);
  List<double> partials(std::size_t(chunks), 0.0);
  const auto f32 = HWY_DYNAMIC_DISPATCH(SquaresF32);
  const auto f64 = HWY_DYNAMIC_DISPATCH(SquaresF64);
  for_chunks(sizes, [&](std::size_t i, Index first, Index count) {
    visit_float(dense[i].dtype(), "sum_of_squares", [&]<class T>() {
      partials[std::size_t(starts[i] + first / kUpdated)] = pick<T>(f32, f64)(dense[i].data<T>() + first, std::size_t(count));
    });
  });
  double sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    sum += std::accumulate(partials.begin() + starts[i], partials.begin() + starts[i + 1], 0.0);
  return sum;
}

}  // namespace

void update(std::span<const UpdateItem> items) {
  Lists here;
  std::vector<Index>& sizes = own_or(here).sizes;
  sizes.clear();
  for (const UpdateItem& item : items) {
    const auto fits = [&](const Tensor& x, const char* what) {
      check<ShapeError>(x.defined() && x.shape() == item.value.shape() && x.is_contiguous(),
                        "update: {} must be contiguous and of the value's shape: {} {}, value {}", what, what, x.shape(),
                        item.value.shape());
      check<DTypeError>(x.dtype() == item.value.dtype(), "update: {} needs the value's dtype: {} {}, value {}", what, what, x.dtype(),
                        item.value.dtype());
    };
    check<ShapeError>(item.value.defined() && item.value.is_contiguous(), "update: the value must be contiguous: shape {}, strides {}",
                      item.value.shape(), item.value.strides());
    if (!is_float(item.value.dtype())) throw_not_float("update", item.value.dtype());
    fits(item.gradient, "gradient");
    for (int s = 0; s < states_of(item.kind); ++s) fits(item.state[std::size_t(s)], "state");
    sizes.push_back(item.value.numel());
  }
  for (const UpdateItem& item : items) {
    item.value.storage().touch();
    for (const Tensor& state : item.state) state.storage().touch();
  }
  const auto f32 = HWY_DYNAMIC_DISPATCH(UpdateF32);
  const auto f64 = HWY_DYNAMIC_DISPATCH(UpdateF64);
  const bool past_caches = caches_apart();   // all threads have read the values
  for_chunks(sizes, [&](std::size_t i, Index first, Index count) {
    const UpdateItem& item = items[i];
    visit_float(item.value.dtype(), "update", [&]<class T>() {
      const auto at = [&](const Tensor& x) { return x.defined() ? const_cast<T*>(x.data<T>()) + first : nullptr; };
      pick<T>(f32, f64)(item.kind, item.constants, item.first, past_caches, std::size_t(count), at(item.value), at(item.gradient),
                        at(item.state[0]), at(item.state[1]));
    });
  });
}

double sum_of_squares(const Tensor& x) { return squares_of_all({&x, 1}); }
double norm_of_all(std::span<const Tensor> tensors) { return std::sqrt(squares_of_all(tensors)); }

}  // namespace heed
#endif
