// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent.h"

#ifndef HEED_TENSOR_OPS_RECURRENT_HEAD      // this file is read once for each target
#define HEED_TENSOR_OPS_RECURRENT_HEAD
namespace heed {
namespace {

// Some units of one sentence in one step. The gates of a unit lie `block` apart, those of h `u_block`.
template <class T> struct StepRow {
  std::size_t n;
  Index block, u_block;
  const T *a, *u, *bias;               // x W_ihᵀ + b_ih, h W_hhᵀ, b_hh or null
  const T *h, *c;
  T *gates, *kept;                     // kept may be null
  T *next_h, *next_c, *output;         // output: next_h again, or null
};

// The same backwards: gates becomes da. dh and dc are changed from dLoss/d(next) to the part of dLoss/d(previous) without W_hh.
template <class T> struct StepRowGrad {
  std::size_t n;
  Index block;
  T *gates, *kept;
  T* da;                               // what meets W_hh, blocks as in gates; null: not wanted
  const T *h, *c, *dy;                 // dy: gradient of the output, or null
  T *dh, *dc;
  const T* dq;                         // da_g U_g
};

// Sentences that go through time together, the longest first. Row s of sentence r is row first[r] + s of gates.
template <class T> struct RecurrentBlock {
  Index n, rows;
  bool reverse;
  const Index *sentence, *length, *first;
  const T* panels;                     // of W_hh, packed for the direction
  Index width;                         // of a panel
  void (*product)(Index rows, Index depth, const T* a, Index a_row, const T* panel, Index width, bool add, T* c, Index c_row);
  const T* bias;                       // b_hh where it is not in the gates already
  T *gates, *previous_h, *previous_c, *kept;   // the last three null unless remembered
  T* outputs;                          // or their gradient
  Index output_sentence, output_step;  // strides
  T *h, *c;                            // [B, n]: initial, then last; or their gradients, last, then initial
  T* scratch;
};

template <class T> struct RecurrentKernels {
  void (*step)(RecurrentUnit unit, bool second, const StepRow<T>& row);            // second: after the product with r ⊙ h
  void (*step_grad)(RecurrentUnit unit, bool second, const StepRowGrad<T>& row);
  void (*forward)(RecurrentUnit unit, const RecurrentBlock<T>& block);
  void (*backward)(RecurrentUnit unit, const RecurrentBlock<T>& block);
};

constexpr Index whole_panels(Index n, Index width) { return (n + width - 1) / width * width; }
constexpr Index state_stride(Index n, Index width) { return whole_panels(n, width) + 16; }       // never a multiple of 4096 bytes
constexpr Index gate_stride(Index gates, Index n) { return whole_panels(gates * n, 16) + 16; }
// Elements of scratch of a block: h, the next h, r ⊙ h or c, gates of h of one panel; dh, dc or dq, da.
constexpr Index scratch_size(Index gates, Index n, Index rows, Index width) {
  return rows * (4 * state_stride(n, width) + gate_stride(gates, n) + gates * width) + 64;
}

}  // namespace
}  // namespace heed
#endif

#define HWY_TARGET_INCLUDE "tensor/ops/recurrent.cc"
#include "tensor/math-inl.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// ---- gates: one vector of units ------------------------------------------------------------------------------------------

struct Whole {
  template <class D> HWY_INLINE hn::Vec<D> Load(D d, const hn::TFromD<D>* p) const { return hn::LoadU(d, p); }
  template <class D> HWY_INLINE void Store(D d, hn::Vec<D> v, hn::TFromD<D>* p) const { hn::StoreU(v, d, p); }
};
struct First {
  size_t n;
  template <class D> HWY_INLINE hn::Vec<D> Load(D d, const hn::TFromD<D>* p) const { return LoadFirst(d, p, n); }
  template <class D> HWY_INLINE void Store(D d, hn::Vec<D> v, hn::TFromD<D>* p) const { StoreFirst(v, d, p, n); }
};

// u + b of a gate, and a + (u + b)
template <class D, class M, class T> HWY_INLINE hn::Vec<D> FromState(D d, M m, const StepRow<T>& row, Index gate, size_t j) {
  const auto u = m.Load(d, row.u + gate * row.u_block + j);
  return row.bias ? hn::Add(u, m.Load(d, row.bias + gate * row.block + j)) : u;
}
template <class D, class M, class T> HWY_INLINE hn::Vec<D> Sum(D d, M m, const StepRow<T>& row, Index gate, size_t j) {
  return hn::Add(m.Load(d, row.a + gate * row.block + j), FromState(d, m, row, gate, j));
}
template <class D, class M, class T> HWY_INLINE void Keep(D d, M m, hn::Vec<D> v, const StepRow<T>& row, Index gate, size_t j) {
  m.Store(d, v, row.gates + gate * row.block + j);
}
template <class D, class M, class T> HWY_INLINE void KeepState(D d, M m, hn::Vec<D> h, const StepRow<T>& row, size_t j) {
  m.Store(d, h, row.next_h + j);
  if (row.output) m.Store(d, h, row.output + j);
}

template <class D, class M, class T> HWY_INLINE hn::Vec<D> GateOf(D d, M m, const StepRowGrad<T>& row, Index gate, size_t j) {
  return m.Load(d, row.gates + gate * row.block + j);
}
template <class D, class M, class T> HWY_INLINE hn::Vec<D> GradOfState(D d, M m, const StepRowGrad<T>& row, size_t j) {
  const auto dh = m.Load(d, row.dh + j);
  return row.dy ? hn::Add(dh, m.Load(d, row.dy + j)) : dh;
}
template <class D, class M, class T> HWY_INLINE void Give(D d, M m, hn::Vec<D> da, const StepRowGrad<T>& row, Index gate, size_t j) {
  m.Store(d, da, row.gates + gate * row.block + j);
  if (row.da) m.Store(d, da, row.da + gate * row.block + j);
}
template <class D> HWY_INLINE hn::Vec<D> OneMinus(D d, hn::Vec<D> x) { return hn::Sub(hn::Set(d, 1), x); }
template <class D> HWY_INLINE hn::Vec<D> SigmoidSlope(D d, hn::Vec<D> y) { return hn::Mul(y, OneMinus(d, y)); }
template <class D> HWY_INLINE hn::Vec<D> TanhSlope(D d, hn::Vec<D> y) { return hn::NegMulAdd(y, y, hn::Set(d, 1)); }

// kReset: the candidate waits for the product with r ⊙ h; f and df are its first half, Second its second.
// kDirect: a part of dh does not go through W_hh.
struct Elman {
  static constexpr Index kGates = 1;
  static constexpr bool kReset = false, kCell = false, kDirect = false;
};
struct TanhUnit : Elman {
  template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
    const auto h = math::Tanh(d, Sum(d, m, row, 0, j));
    Keep(d, m, h, row, 0, j);
    KeepState(d, m, h, row, j);
  }
  template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
    Give(d, m, hn::Mul(GradOfState(d, m, row, j), TanhSlope(d, GateOf(d, m, row, 0, j))), row, 0, j);
  }
};
struct ReluUnit : Elman {
  template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
    const auto s = Sum(d, m, row, 0, j), h = hn::IfThenElse(hn::Lt(s, hn::Zero(d)), hn::Zero(d), s);   // NaN stays NaN
    Keep(d, m, h, row, 0, j);
    KeepState(d, m, h, row, j);
  }
  template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
    Give(d, m, hn::IfThenElseZero(hn::Gt(GateOf(d, m, row, 0, j), hn::Zero(d)), GradOfState(d, m, row, j)), row, 0, j);
  }
};

struct LstmUnit {
  static constexpr Index kGates = 4;
  static constexpr bool kReset = false, kCell = true, kDirect = false;
  // c' = f c + i g,  h' = o tanh c'
  template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
    const auto i = math::Sigmoid(d, Sum(d, m, row, 0, j)), f = math::Sigmoid(d, Sum(d, m, row, 1, j));
    const auto g = math::Tanh(d, Sum(d, m, row, 2, j)), o = math::Sigmoid(d, Sum(d, m, row, 3, j));
    const auto c = hn::MulAdd(f, m.Load(d, row.c + j), hn::Mul(i, g));
    Keep(d, m, i, row, 0, j);
    Keep(d, m, f, row, 1, j);
    Keep(d, m, g, row, 2, j);
    Keep(d, m, o, row, 3, j);
    m.Store(d, c, row.next_c + j);
    KeepState(d, m, hn::Mul(o, math::Tanh(d, c)), row, j);
  }
  template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
    const auto i = GateOf(d, m, row, 0, j), f = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j), o = GateOf(d, m, row, 3, j);
    const auto c = m.Load(d, row.c + j), t = math::Tanh(d, hn::MulAdd(f, c, hn::Mul(i, g))), dh = GradOfState(d, m, row, j);
    const auto dc = hn::MulAdd(hn::Mul(dh, o), TanhSlope(d, t), m.Load(d, row.dc + j));
    Give(d, m, hn::Mul(hn::Mul(dc, g), SigmoidSlope(d, i)), row, 0, j);
    Give(d, m, hn::Mul(hn::Mul(dc, c), SigmoidSlope(d, f)), row, 1, j);
    Give(d, m, hn::Mul(hn::Mul(dc, i), TanhSlope(d, g)), row, 2, j);
    Give(d, m, hn::Mul(hn::Mul(dh, t), SigmoidSlope(d, o)), row, 3, j);
    m.Store(d, hn::Mul(dc, f), row.dc + j);
  }
};

struct Gru {
  static constexpr Index kGates = 3;
  static constexpr bool kCell = false, kDirect = true;
};
struct CudnnUnit : Gru {
  static constexpr bool kReset = false;
  // h' = (1-z) g + z h = g + z (h - g)
  template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
    const auto r = math::Sigmoid(d, Sum(d, m, row, 0, j)), z = math::Sigmoid(d, Sum(d, m, row, 1, j));
    const auto u = FromState(d, m, row, 2, j), g = math::Tanh(d, hn::MulAdd(r, u, m.Load(d, row.a + 2 * row.block + j)));
    const auto h = m.Load(d, row.h + j);
    Keep(d, m, r, row, 0, j);
    Keep(d, m, z, row, 1, j);
    Keep(d, m, g, row, 2, j);
    if (row.kept) m.Store(d, u, row.kept + j);
    KeepState(d, m, hn::MulAdd(z, hn::Sub(h, g), g), row, j);
  }
  template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
    const auto r = GateOf(d, m, row, 0, j), z = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j);
    const auto h = m.Load(d, row.h + j), u = m.Load(d, row.kept + j), dh = GradOfState(d, m, row, j);
    const auto da_g = hn::Mul(hn::Mul(dh, OneMinus(d, z)), TanhSlope(d, g)), du = hn::Mul(da_g, r);
    Give(d, m, hn::Mul(hn::Mul(da_g, u), SigmoidSlope(d, r)), row, 0, j);
    Give(d, m, hn::Mul(hn::Mul(dh, hn::Sub(h, g)), SigmoidSlope(d, z)), row, 1, j);
    m.Store(d, da_g, row.gates + 2 * row.block + j);
    m.Store(d, du, row.kept + j);
    if (row.da) m.Store(d, du, row.da + 2 * row.block + j);
    m.Store(d, hn::Mul(dh, z), row.dh + j);
  }
};
template <bool kCho> struct PaperUnit : Gru {
  static constexpr bool kReset = true;
  // next_h takes r ⊙ h
  template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
    const auto r = math::Sigmoid(d, Sum(d, m, row, 0, j)), q = hn::Mul(r, m.Load(d, row.h + j));
    Keep(d, m, r, row, 0, j);
    Keep(d, m, math::Sigmoid(d, Sum(d, m, row, 1, j)), row, 1, j);
    m.Store(d, q, row.next_h + j);
    if (row.kept) m.Store(d, q, row.kept + j);
  }
  // dh = dh' ⊙ (the part of h that stays)
  template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
    const auto z = GateOf(d, m, row, 1, j), g = GateOf(d, m, row, 2, j), h = m.Load(d, row.h + j), dh = GradOfState(d, m, row, j);
    const auto new_part = kCho ? OneMinus(d, z) : z, old_part = kCho ? z : OneMinus(d, z);
    const auto change = kCho ? hn::Sub(h, g) : hn::Sub(g, h);
    Give(d, m, hn::Mul(hn::Mul(dh, change), SigmoidSlope(d, z)), row, 1, j);
    Give(d, m, hn::Mul(hn::Mul(dh, new_part), TanhSlope(d, g)), row, 2, j);
    m.Store(d, hn::Mul(dh, old_part), row.dh + j);
  }
  struct Second {
    template <class D, class M, class T> static HWY_INLINE void f(D d, M m, const StepRow<T>& row, size_t j) {
      const auto g = math::Tanh(d, hn::Add(m.Load(d, row.a + 2 * row.block + j), m.Load(d, row.u + j)));
      const auto h = m.Load(d, row.h + j), z = m.Load(d, row.gates + row.block + j);
      Keep(d, m, g, row, 2, j);
      KeepState(d, m, kCho ? hn::MulAdd(z, hn::Sub(h, g), g) : hn::MulAdd(z, hn::Sub(g, h), h), row, j);
    }
    template <class D, class M, class T> static HWY_INLINE void df(D d, M m, const StepRowGrad<T>& row, size_t j) {
      const auto r = GateOf(d, m, row, 0, j), dq = m.Load(d, row.dq + j);
      Give(d, m, hn::Mul(hn::Mul(dq, m.Load(d, row.h + j)), SigmoidSlope(d, r)), row, 0, j);
      m.Store(d, hn::MulAdd(dq, r, m.Load(d, row.dh + j)), row.dh + j);
    }
  };
};

template <class Unit, class T> HWY_NOINLINE void ForUnits(const StepRow<T>& row) {
  const Lanes16<T> d;
  const size_t N = hn::Lanes(d);
  size_t j = 0;
  for (; j + N <= row.n; j += N) Unit::f(d, Whole(), row, j);
  if (j < row.n) Unit::f(d, First{row.n - j}, row, j);
}
template <class Unit, class T> HWY_NOINLINE void ForUnitsGrad(const StepRowGrad<T>& row) {
  const Lanes16<T> d;
  const size_t N = hn::Lanes(d);
  size_t j = 0;
  for (; j + N <= row.n; j += N) Unit::df(d, Whole(), row, j);
  if (j < row.n) Unit::df(d, First{row.n - j}, row, j);
}

template <class T> HWY_INLINE void Copy(const T* x, Index n, T* y) { Map<Same>(x, size_t(n), y); }

template <class T> void Clear(T* x, Index n) {
  for (Index i = 0; i < n; ++i) x[i] = 0;
}

// ---- one block through time ----------------------------------------------------------------------------------------------

template <class Unit, class T> void BlockForward(const RecurrentBlock<T>& b) {
  constexpr Index G = Unit::kGates;
  const Index n = b.n, stride = state_stride(n, b.width), panels = whole_panels(n, b.width) / b.width, panel_size = n * b.width;
  T* h = b.scratch;
  T* next = h + b.rows * stride;
  T* const q = next + b.rows * stride;                     // r ⊙ h
  T* const c = q + b.rows * stride;
  T* const u = c + b.rows * stride;                        // [gates][rows][width]
  for (Index r = 0; r < b.rows; ++r) {
    Copy(b.h + b.sentence[r] * n, n, h + r * stride);
    if constexpr (Unit::kCell) Copy(b.c + b.sentence[r] * n, n, c + r * stride);
  }
  Index active = b.rows;
  for (Index step = 0; step < b.length[0]; ++step) {
    while (b.length[active - 1] <= step) --active;
    const auto at = [&](Index r) { return b.reverse ? b.length[r] - 1 - step : step; };
    const auto row_of = [&](Index r, Index j) {
      const Index s = at(r), p = b.first[r] + s;
      T* const gates = b.gates + p * G * n + j;
      T* const state = c + r * stride + j;
      return StepRow<T>{size_t(n - j < b.width ? n - j : b.width), n, b.rows * b.width, gates, u + r * b.width, b.bias ? b.bias + j : nullptr,
                        h + r * stride + j, state, gates, b.kept ? b.kept + p * n + j : nullptr, next + r * stride + j, state,
                        b.outputs + b.sentence[r] * b.output_sentence + s * b.output_step + j};
    };
    for (Index r = 0; r < active && b.previous_h; ++r) {
      const Index p = b.first[r] + at(r);
      Copy(h + r * stride, n, b.previous_h + p * n);
      if constexpr (Unit::kCell) Copy(c + r * stride, n, b.previous_c + p * n);
    }
    const auto products = [&](Index panel, Index begin, Index end, const T* a) {
      for (Index g = begin; g < end; ++g)
        b.product(active, n, a, stride, b.panels + (g * panels + panel) * panel_size, b.width, false, u + (g - begin) * b.rows * b.width, b.width);
    };
    for (Index panel = 0; panel < panels; ++panel) {
      products(panel, 0, Unit::kReset ? 2 : G, h);
      for (Index r = 0; r < active; ++r) {
        StepRow<T> row = row_of(r, panel * b.width);
        if constexpr (Unit::kReset) row.next_h = q + r * stride + panel * b.width;
        ForUnits<Unit>(row);
      }
    }
    if constexpr (Unit::kReset)
      for (Index panel = 0; panel < panels; ++panel) {
        products(panel, 2, G, q);
        for (Index r = 0; r < active; ++r) ForUnits<typename Unit::Second>(row_of(r, panel * b.width));
      }
    T* const before = h;
    h = next;
    next = before;
    for (Index r = active; r-- > 0 && b.length[r] == step + 1;) {
      Copy(h + r * stride, n, b.h + b.sentence[r] * n);
      if constexpr (Unit::kCell) Copy(c + r * stride, n, b.c + b.sentence[r] * n);
    }
  }
}

template <class Unit, class T> void BlockBackward(const RecurrentBlock<T>& b) {
  constexpr Index G = Unit::kGates;
  const Index n = b.n, stride = state_stride(n, b.width), gate_row = gate_stride(G, n), panels = whole_panels(n, b.width) / b.width;
  const Index panel_size = G * n * b.width;
  T* const dh = b.scratch;
  T* const dc = dh + b.rows * stride;
  T* const dq = dc + b.rows * stride;
  T* const da = dq + b.rows * stride;                      // [rows][gates n]
  Clear(dh, 3 * b.rows * stride);                          // also between n and the end of a panel
  for (Index r = 0; r < b.rows; ++r) {
    Copy(b.h + b.sentence[r] * n, n, dh + r * stride);
    if constexpr (Unit::kCell) Copy(b.c + b.sentence[r] * n, n, dc + r * stride);
  }
  Index active = 0;
  for (Index step = b.length[0]; step-- > 0;) {
    while (active < b.rows && b.length[active] > step) ++active;
    const auto row_of = [&](Index r) {
      const Index s = b.reverse ? b.length[r] - 1 - step : step, p = b.first[r] + s;
      return StepRowGrad<T>{size_t(n), n, b.gates + p * G * n, b.kept ? b.kept + p * n : nullptr, da + r * gate_row, b.previous_h + p * n,
                            Unit::kCell ? b.previous_c + p * n : nullptr,
                            b.outputs ? b.outputs + b.sentence[r] * b.output_sentence + s * b.output_step : nullptr, dh + r * stride, dc + r * stride,
                            dq + r * stride};
    };
    for (Index r = 0; r < active; ++r) ForUnitsGrad<Unit>(row_of(r));
    if constexpr (Unit::kReset) {
      for (Index panel = 0; panel < panels; ++panel)
        b.product(active, n, da + 2 * n, gate_row, b.panels + panel * panel_size + 2 * n * b.width, b.width, false, dq + panel * b.width, stride);
      for (Index r = 0; r < active; ++r) ForUnitsGrad<typename Unit::Second>(row_of(r));
    }
    for (Index panel = 0; panel < panels; ++panel)
      b.product(active, (Unit::kReset ? 2 : G) * n, da, gate_row, b.panels + panel * panel_size, b.width, Unit::kDirect, dh + panel * b.width, stride);
  }
  for (Index r = 0; r < b.rows; ++r) {
    Copy(dh + r * stride, n, b.h + b.sentence[r] * n);
    if constexpr (Unit::kCell) Copy(dc + r * stride, n, b.c + b.sentence[r] * n);
  }
}

// ---- the unit, once a call -----------------------------------------------------------------------------------------------

template <class F> HWY_INLINE void ForUnit(RecurrentUnit unit, F&& f) {
  switch (unit) {
    case RecurrentUnit::tanh: return f(TanhUnit());
    case RecurrentUnit::relu: return f(ReluUnit());
    case RecurrentUnit::lstm: return f(LstmUnit());
    case RecurrentUnit::gru_bahdanau: return f(PaperUnit<false>());
    case RecurrentUnit::gru_cho: return f(PaperUnit<true>());
    case RecurrentUnit::gru_cudnn: return f(CudnnUnit());
  }
}

template <class T> void Step(RecurrentUnit unit, bool second, const StepRow<T>& row) {
  ForUnit(unit, [&](auto u) HWY_ATTR {
    using Unit = decltype(u);
    if constexpr (Unit::kReset)
      if (second) return ForUnits<typename Unit::Second>(row);
    ForUnits<Unit>(row);
  });
}
template <class T> void StepGrad(RecurrentUnit unit, bool second, const StepRowGrad<T>& row) {
  ForUnit(unit, [&](auto u) HWY_ATTR {
    using Unit = decltype(u);
    if constexpr (Unit::kReset)
      if (second) return ForUnitsGrad<typename Unit::Second>(row);
    ForUnitsGrad<Unit>(row);
  });
}
template <class T> void Forward(RecurrentUnit unit, const RecurrentBlock<T>& block) {
  ForUnit(unit, [&](auto u) HWY_ATTR { BlockForward<decltype(u)>(block); });
}
template <class T> void Backward(RecurrentUnit unit, const RecurrentBlock<T>& block) {
  ForUnit(unit, [&](auto u) HWY_ATTR { BlockBackward<decltype(u)>(block); });
}
template <class T> RecurrentKernels<T> Kernels() { return {&Step<T>, &StepGrad<T>, &Forward<T>, &Backward<T>}; }
RecurrentKernels<float> RecurrentKernelsF32() { return Kernels<float>(); }
RecurrentKernels<double> RecurrentKernelsF64() { return Kernels<double>(); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <numeric>
#include <vector>

#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
HWY_EXPORT(RecurrentKernelsF32);
HWY_EXPORT(RecurrentKernelsF64);

namespace {

template <class T> RecurrentKernels<T> kernels() {
  if constexpr (sizeof(T) == 4) return HWY_DYNAMIC_DISPATCH(RecurrentKernelsF32)();
  else return HWY_DYNAMIC_DISPATCH(RecurrentKernelsF64)();
}

// h, c, weight_hh and bias_hh beside rows of gates
void check_states(const char* op, RecurrentUnit unit, Index B, const char* beside, const Tensor& x, const Tensor& h, const Tensor& c,
                  const Tensor& weight_hh, const Tensor& bias_hh) {
  const Index gates = gate_count(unit);
  check<ShapeError>(weight_hh.rank() == 2 && weight_hh.size(0) == gates * weight_hh.size(1), "{}: weight_hh must be [{} n, n]: {} {}, weight_hh {}", op,
                    gates, beside, x.shape(), weight_hh.shape());
  const Index n = weight_hh.size(1);
  const auto like = [&](const char* name, const Tensor& y, const Shape& shape) {
    if (!y.defined()) return;
    check<ShapeError>(y.shape() == shape, "{}: {} must be {}: {} {}, weight_hh {}, {} {}", op, name, shape, beside, x.shape(), weight_hh.shape(), name,
                      y.shape());
    check<DTypeError>(y.dtype() == x.dtype(), "{}: dtypes differ: {} {}, {} {}", op, beside, x.dtype(), name, y.dtype());
  };
  check<DTypeError>(is_float(x.dtype()) && x.dtype() == weight_hh.dtype(), "{}: dtypes differ or are no floats: {} {}, weight_hh {}", op, beside, x.dtype(),
                    weight_hh.dtype());
  like("h", h, {B, n});
  like("c", c, {B, n});
  like("bias_hh", bias_hh, {gates * n});
  check<ShapeError>(!c.defined() || unit == RecurrentUnit::lstm, "{}: only an lstm has a state c: {} {}, c {}", op, beside, x.shape(), c.shape());
  check<ShapeError>(!bias_hh.defined() || !resets_before(unit), "{}: this form of the GRU has one bias: {} {}, bias_hh {}", op, beside, x.shape(),
                    bias_hh.shape());
}


// Itself where rows are contiguous, else a copy.
Tensor with_dense_rows(const Tensor& x) { return x.size(-1) <= 1 || x.strides()[x.rank() - 1] == 1 ? x : x.contiguous(); }

Tensor or_zeros(const Tensor& state, Index B, Index n, DType dtype) { return state.defined() ? with_dense_rows(state) : zeros({B, n}, dtype); }
Tensor copy_or_zeros(const Tensor& state, Index B, Index n, DType dtype) { return state.defined() ? state.clone() : zeros({B, n}, dtype); }

Index row_cost(RecurrentUnit unit, Index n) { return 4 * gate_count(unit) * n; }

// The rows of x [B, S, ...] that count, sentence after sentence, and the order in which sentences go through time.
struct Ragged {
  Ragged(const Tensor& lengths, Index B, Index S) : length(std::size_t(B), S), first(std::size_t(B)), order(std::size_t(B)), whole(true) {
    if (lengths.defined()) {
      const Tensor dense = lengths.contiguous();
      for (std::size_t b = 0; b < length.size(); ++b) length[b] = dense.data<std::int32_t>()[b], whole &= length[b] == S;
    }
    for (std::size_t b = 0; b < length.size(); ++b) first[b] = rows, rows += length[b];
    std::iota(order.begin(), order.end(), Index{0});
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return length[std::size_t(a)] > length[std::size_t(b)]; });
  }
  std::vector<Index> length, first, order;
  Index rows = 0;
  bool whole;                          // no padding
};

// [N, E] from [B, S, E]
Tensor gathered(const Tensor& x, const Ragged& ragged) {
  const Tensor y = empty({ragged.rows, x.size(2)}, x.dtype());
  for (std::size_t b = 0; b < ragged.length.size(); ++b)
    copy_into(slice(y, 0, ragged.first[b], ragged.first[b] + ragged.length[b]), slice(x[Index(b)], 0, 0, ragged.length[b]));
  return y;
}

// Calls kernel(block) for blocks of about 16 sentences, `packed` holding panels of W_hh. Each block's threads of computation are
// its own, so that nobody waits for anybody between two steps.
template <class T, class Kernel>
void for_blocks(RecurrentUnit unit, const Ragged& ragged, RecurrentBlock<T> block, Index rows, Kernel kernel) {
  const auto B = Index(ragged.order.size());
  std::vector<Index> length, first;
  for (const Index b : ragged.order) length.push_back(ragged.length[std::size_t(b)]), first.push_back(ragged.first[std::size_t(b)]);
  const double flops = 2.0 * double(ragged.rows) * double(gate_count(unit) * block.n) * double(block.n + 16);
  parallel_for(B, flops < 2.5e6 ? B : rows, [&](Index begin, Index end) {
    const Index width = block.width;
    const Tensor scratch = empty({scratch_size(gate_count(unit), block.n, rows, width)}, dtype_of<T>);
    for (Index i = begin; i < end; i += rows) {
      RecurrentBlock<T> one = block;
      one.rows = std::min(rows, end - i);
      one.sentence = ragged.order.data() + i;
      one.length = length.data() + i;
      one.first = first.data() + i;
      one.scratch = scratch.mutable_data<T>();
      kernel(unit, one);
    }
  });
}

// Sentences of a block: enough blocks for a few threads, enough rows to use a panel of weights well.
Index block_rows(Index B) {
  const Index blocks = B >= 64 ? std::min<Index>(B / 16, 32) : std::max<Index>(1, B / 8);
  return std::max<Index>(1, (B + blocks - 1) / blocks);
}

// Few rows leave registers for four vectors of columns.
template <class T> Index panel_width(const GemmKernels<T>& gemm, Index rows) { return (rows <= gemm.wide_rows ? 4 : 2) * gemm.lanes; }

template <class T> T* data_or_null(const Tensor& x) { return x.defined() ? x.mutable_data<T>() : nullptr; }

}  // namespace

void check_recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh, const Tensor& bias_hh) {
  const char* op = "recurrent_cell";
  check<ShapeError>(gates.rank() == 2 && weight_hh.rank() == 2 && gates.size(1) == weight_hh.size(0),
                    "{}: gates must be [B, rows of weight_hh]: gates {}, weight_hh {}", op, gates.shape(), weight_hh.shape());
  check_states(op, unit, gates.size(0), "gates", gates, h, c, weight_hh, bias_hh);
}

void check_recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c, const Tensor& weight_ih,
                           const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh) {
  const char* op = "recurrent_layer";
  check<ShapeError>(x.rank() == 3, "{}: x needs 3 dimensions [B, S, E]: x {}, weight_ih {}", op, x.shape(), weight_ih.shape());
  check<ShapeError>(weight_ih.rank() == 2 && weight_ih.size(1) == x.size(2), "{}: inner sizes differ: x {}, weight_ih {}", op, x.shape(), weight_ih.shape());
  check<DTypeError>(weight_ih.dtype() == x.dtype(), "{}: dtypes differ: x {}, weight_ih {}", op, x.dtype(), weight_ih.dtype());
  check_states(op, unit, x.size(0), "x", x, h, c, weight_hh, bias_hh);
  check<ShapeError>(weight_ih.size(0) == weight_hh.size(0), "{}: rows differ: weight_ih {}, weight_hh {}", op, weight_ih.shape(), weight_hh.shape());
  if (bias_ih.defined()) {
    check<ShapeError>(bias_ih.shape() == Shape{weight_ih.size(0)}, "{}: bias_ih must be [{}]: weight_ih {}, bias_ih {}", op, weight_ih.size(0),
                      weight_ih.shape(), bias_ih.shape());
    check<DTypeError>(bias_ih.dtype() == x.dtype(), "{}: dtypes differ: x {}, bias_ih {}", op, x.dtype(), bias_ih.dtype());
  }
  if (!lengths.defined()) return;
  check<ShapeError>(lengths.shape() == Shape{x.size(0)}, "{}: lengths must be [B]: x {}, lengths {}", op, x.shape(), lengths.shape());
  check<DTypeError>(lengths.dtype() == DType::i32, "{}: lengths need dtype i32: lengths {}", op, lengths.dtype());
  const Tensor dense = lengths.contiguous();
  for (Index b = 0; b < x.size(0); ++b) {
    const Index length = dense.data<std::int32_t>()[b];
    check<IndexError>(length >= 0 && length <= x.size(1), "{}: length {} at position [{}] is not in [0, {}]", op, length, b, x.size(1));
  }
}

RecurrentResult recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh, const Tensor& bias_hh) {
  check_recurrent_cell(unit, gates, h, c, weight_hh, bias_hh);
  const Index B = gates.size(0), n = weight_hh.size(1), rows = gates.size(1);
  const bool second = resets_before(unit), lstm = unit == RecurrentUnit::lstm;
  return visit_float(gates.dtype(), "recurrent_cell", [&]<class T>() {
    const DType dtype = gates.dtype();
    const Tensor a = with_dense_rows(gates), from = or_zeros(h, B, n, dtype), cell = lstm ? or_zeros(c, B, n, dtype) : Tensor();
    const Tensor bias = bias_hh.defined() ? bias_hh.contiguous() : bias_hh;
    RecurrentResult out;
    out.h = empty({B, n}, dtype);
    if (lstm) out.c = empty({B, n}, dtype);
    if (unit >= RecurrentUnit::gru_bahdanau) out.kept = empty({B, n}, dtype);
    const Tensor weights = weight_hh.contiguous();
    Tensor u = matmul(from, transpose(second ? slice(weights, 0, 0, 2 * n) : weights));       // [B, gates n]
    out.gates = second ? empty({B, rows}, dtype) : u;
    const auto pass = [&](bool again) {
      T *const act = out.gates.mutable_data<T>(), *const next = (second && !again ? out.kept : out.h).template mutable_data<T>();
      T *const next_c = data_or_null<T>(out.c), *const kept = second ? nullptr : data_or_null<T>(out.kept);
      const T *const as = a.data<T>(), *const us = u.data<T>(), *const hs = from.data<T>(), *const cs = lstm ? cell.data<T>() : nullptr;
      const T* const bs = bias.defined() ? bias.data<T>() : nullptr;
      const auto kernel = kernels<T>().step;
      parallel_for(B, row_grain(row_cost(unit, n)), [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b)
          kernel(unit, again, {std::size_t(n), n, n, as + b * a.strides()[0], us + b * u.size(1), bs, hs + b * from.strides()[0],
                               cs ? cs + b * cell.strides()[0] : nullptr, act + b * rows, kept ? kept + b * n : nullptr, next + b * n,
                               next_c ? next_c + b * n : nullptr, nullptr});
      });
    };
    pass(false);
    if (second) {
      u = matmul(out.kept, transpose(slice(weights, 0, 2 * n, 3 * n)));                       // [B, n]
      pass(true);
    }
    return out;
  });
}

RecurrentGrads recurrent_cell_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& h, const Tensor& c, const Tensor& weight_hh,
                                   const Tensor& next_dh, const Tensor& next_dc) {
  const Index B = result.gates.size(0), n = weight_hh.size(1), rows = result.gates.size(1);
  const bool second = resets_before(unit), lstm = unit == RecurrentUnit::lstm, gru = unit >= RecurrentUnit::gru_bahdanau;
  const DType dtype = result.gates.dtype();
  RecurrentGrads out{copy_or_zeros(next_dh, B, n, dtype), lstm ? copy_or_zeros(next_dc, B, n, dtype) : Tensor()};
  const Tensor da = result.gates, weights = weight_hh.contiguous();
  visit_float(dtype, "recurrent_cell_grad", [&]<class T>() {
    const Tensor from = or_zeros(h, B, n, dtype), cell = lstm ? or_zeros(c, B, n, dtype) : Tensor();
    Tensor dq;
    const auto pass = [&](bool again) {
      T *const gates = da.mutable_data<T>(), *const kept = data_or_null<T>(result.kept), *const dhs = out.h.mutable_data<T>();
      T* const dcs = data_or_null<T>(out.c);
      const T *const hs = from.data<T>(), *const cs = lstm ? cell.data<T>() : nullptr, *const dqs = dq.defined() ? dq.data<T>() : nullptr;
      const auto kernel = kernels<T>().step_grad;
      parallel_for(B, row_grain(row_cost(unit, n)), [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b)
          kernel(unit, again, {std::size_t(n), n, gates + b * rows, kept ? kept + b * n : nullptr, nullptr, hs + b * from.strides()[0],
                               cs ? cs + b * cell.strides()[0] : nullptr, nullptr, dhs + b * n, dcs ? dcs + b * n : nullptr,
                               dqs ? dqs + b * n : nullptr});
      });
    };
    pass(false);
    if (second) {
      dq = matmul(slice(da, 1, 2 * n, 3 * n), slice(weights, 0, 2 * n, 3 * n));
      pass(true);
    }
  });
  if (!gru) {
    matmul(da, weights, {out.h, false});
  } else {
    matmul(slice(da, 1, 0, 2 * n), slice(weights, 0, 0, 2 * n), {out.h, true});
    if (!second) matmul(result.kept, slice(weights, 0, 2 * n, 3 * n), {out.h, true});
  }
  return out;
}

RecurrentResult recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c, const Tensor& weight_ih,
                                const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh, bool reverse, bool remember) {
  check_recurrent_layer(unit, x, lengths, h, c, weight_ih, weight_hh, bias_ih, bias_hh);
  const Index B = x.size(0), S = x.size(1), n = weight_hh.size(1), gates = gate_count(unit);
  const bool lstm = unit == RecurrentUnit::lstm, gru = unit >= RecurrentUnit::gru_bahdanau, apart = unit == RecurrentUnit::gru_cudnn;
  const Ragged ragged(lengths, B, S);
  const DType dtype = x.dtype();
  RecurrentResult out;
  out.outputs = empty({B, S, n}, dtype);
  out.h = copy_or_zeros(h, B, n, dtype);
  if (lstm) out.c = copy_or_zeros(c, B, n, dtype);
  for (Index b = 0; b < B && !ragged.whole; ++b) fill_(slice(out.outputs[b], 0, ragged.length[std::size_t(b)]), 0);
  out.x = ragged.whole ? reshape(x, {B * S, x.size(2)}) : gathered(x, ragged);
  const bool both = bias_ih.defined() && bias_hh.defined() && !apart;
  out.gates = linear(out.x, weight_ih, both ? add(bias_ih, bias_hh) : bias_hh.defined() && !apart ? bias_hh : bias_ih).y;   // [N, gates n]
  if (remember) {
    out.previous_h = empty({ragged.rows, n}, dtype);
    if (lstm) out.previous_c = empty({ragged.rows, n}, dtype);
    if (gru) out.kept = empty({ragged.rows, n}, dtype);
  }
  if (ragged.rows == 0 || n == 0) return out;
  visit_float(dtype, "recurrent_layer", [&]<class T>() {
    const auto kernels = heed::kernels<T>();
    const GemmKernels<T> gemm = gemm_kernels<T>();
    const Tensor weights = weight_hh.contiguous(), bias = apart && bias_hh.defined() ? bias_hh.contiguous() : Tensor();
    const Index rows = block_rows(B), width = panel_width(gemm, rows), panel = whole_panels(n, width) * n;
    const Tensor packed = empty({gates * panel + 64}, dtype);
    T* const panels = packed.mutable_data<T>();
    parallel_for(gates, row_grain(n * n / 8), [&](Index begin, Index end) {
      for (Index g = begin; g < end; ++g) gemm.pack(weights.data<T>() + g * n * n, 1, n, n, n, width, panels + g * panel);
    });
    const RecurrentBlock<T> block{n, 0, reverse, nullptr, nullptr, nullptr, panels, width, gemm.panel, bias.defined() ? bias.data<T>() : nullptr,
                                  out.gates.mutable_data<T>(), data_or_null<T>(out.previous_h), data_or_null<T>(out.previous_c), data_or_null<T>(out.kept),
                                  out.outputs.mutable_data<T>(), S * n, n, out.h.mutable_data<T>(), data_or_null<T>(out.c), nullptr};
    for_blocks(unit, ragged, block, rows, kernels.forward);
  });
  return out;
}

RecurrentGrads recurrent_layer_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_hh, bool reverse,
                                    const Tensor& doutputs, const Tensor& last_dh, const Tensor& last_dc) {
  const Index B = result.outputs.size(0), S = result.outputs.size(1), n = weight_hh.size(1), gates = gate_count(unit);
  const DType dtype = result.gates.dtype();
  const Ragged ragged(lengths, B, S);
  RecurrentGrads out{copy_or_zeros(last_dh, B, n, dtype), unit == RecurrentUnit::lstm ? copy_or_zeros(last_dc, B, n, dtype) : Tensor()};
  if (ragged.rows == 0 || n == 0) return out;
  visit_float(dtype, "recurrent_layer_grad", [&]<class T>() {
    const auto kernels = heed::kernels<T>();
    const GemmKernels<T> gemm = gemm_kernels<T>();
    const Tensor weights = weight_hh.contiguous(), dy = doutputs.defined() ? with_dense_rows(doutputs) : Tensor();
    const Index rows = block_rows(B), width = panel_width(gemm, rows);
    const Tensor packed = empty({gates * n * whole_panels(n, width) + 64}, dtype);
    gemm.pack(weights.data<T>(), n, 1, gates * n, n, width, packed.mutable_data<T>());
    const RecurrentBlock<T> block{n, 0, reverse, nullptr, nullptr, nullptr, packed.data<T>(), width, gemm.panel, nullptr, result.gates.mutable_data<T>(),
                                  result.previous_h.mutable_data<T>(), data_or_null<T>(result.previous_c), data_or_null<T>(result.kept),
                                  dy.defined() ? const_cast<T*>(dy.data<T>()) : nullptr, dy.defined() ? dy.strides()[0] : 0,
                                  dy.defined() ? dy.strides()[1] : 0, out.h.mutable_data<T>(), data_or_null<T>(out.c), nullptr};
    for_blocks(unit, ragged, block, rows, kernels.backward);
  });
  return out;
}

void recurrent_grad_weight_hh(RecurrentUnit unit, const RecurrentResult& result, const Tensor& previous_h, Into dweight_hh) {
  const Index n = previous_h.size(1);
  if (unit < RecurrentUnit::gru_bahdanau) return linear_grad_weight(result.gates, previous_h, dweight_hh);
  const Tensor last = unit == RecurrentUnit::gru_cudnn ? result.kept : slice(result.gates, 1, 2 * n, 3 * n);
  linear_grad_weight(slice(result.gates, 1, 0, 2 * n), previous_h, {slice(dweight_hh.tensor, 0, 0, 2 * n), dweight_hh.add});
  linear_grad_weight(last, unit == RecurrentUnit::gru_cudnn ? previous_h : result.kept, {slice(dweight_hh.tensor, 0, 2 * n, 3 * n), dweight_hh.add});
}

Tensor recurrent_grad_bias_hh(RecurrentUnit unit, const RecurrentResult& result) {
  const Tensor db = sum(result.gates, 0);
  if (unit != RecurrentUnit::gru_cudnn) return db;
  const Index n = result.kept.size(1);
  return concat({slice(db, 0, 0, 2 * n), sum(result.kept, 0)});
}

void recurrent_grad_x(const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_ih, Into dx) {
  const Index B = dx.tensor.size(0), S = dx.tensor.size(1);
  const Ragged ragged(lengths, B, S);
  if (ragged.whole) return linear_grad_x(reshape(result.gates, {B, S, result.gates.size(1)}), weight_ih, dx);
  const Tensor rows = matmul(result.gates, weight_ih);                                        // [N, E]
  for (Index b = 0; b < B; ++b) {
    const Index first = ragged.first[std::size_t(b)], length = ragged.length[std::size_t(b)];
    add_into(slice(rows, 0, first, first + length), {slice(dx.tensor[b], 0, 0, length), dx.add});
    if (!dx.add) fill_(slice(dx.tensor[b], 0, length), 0);
  }
}

}  // namespace heed
#endif
