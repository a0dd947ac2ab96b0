// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent_block.h"

#include <algorithm>

namespace heed {
namespace {

constexpr Index state_stride(Index n, Index width) { return round_up(n, width) + 16; }       // never a multiple of 4096 bytes
constexpr Index gate_stride(Index gates, Index n) { return round_up(gates * n, 16) + 16; }

}  // namespace

// h, the next h, r ⊙ h, c, gates of one panel; dh, dc, dq, da
Index recurrent_scratch(RecurrentUnit unit, Index n, Index rows, Index width) {
  const Index gates = gate_count(unit);
  return rows * (4 * state_stride(n, width) + gate_stride(gates, n) + gates * width) + 64;
}

template <class T> void forward_through_time(const RecurrentBlock<T>& b) {
  const Index G = gate_count(b.unit);
  const bool reset = resets_before(b.unit), cell = b.unit == RecurrentUnit::lstm;
  const Index n = b.n, stride = state_stride(n, b.width), panels = round_up(n, b.width) / b.width, panel_size = n * b.width;
  T* h = b.scratch;
  T* next = h + b.rows * stride;
  T* const q = next + b.rows * stride;                     // r ⊙ h
  T* const c = q + b.rows * stride;
  T* const u = c + b.rows * stride;                        // [gates][rows][width]
  for (Index r = 0; r < b.rows; ++r) {
    std::copy_n(b.h + b.sentence[r] * n, n, h + r * stride);
    if (cell) std::copy_n(b.c + b.sentence[r] * n, n, c + r * stride);
  }
  Index active = b.rows;
  for (Index step = 0; step < b.length[0]; ++step) {
    while (b.length[active - 1] <= step) --active;
    const auto at = [&](Index r) { return b.reverse ? b.length[r] - 1 - step : step; };
    const auto row_of = [&](Index r, Index j) {
      const Index s = at(r), p = b.first[r] + s;
      T* const gates = b.gates + p * G * n + j;
      T* const state = c + r * stride + j;
      return StepRow<T>{.n = size_t(n - j < b.width ? n - j : b.width),
                        .block = n,
                        .u_block = b.rows * b.width,
                        .a = gates,
                        .u = u + r * b.width,
                        .bias = b.bias ? b.bias + j : nullptr,
                        .h = h + r * stride + j,
                        .c = state,
                        .gates = gates,
                        .kept = b.kept ? b.kept + p * n + j : nullptr,
                        .next_h = next + r * stride + j,
                        .next_c = state,
                        .output = b.outputs + b.sentence[r] * b.output_sentence + s * b.output_step + j};
    };
    for (Index r = 0; r < active && b.previous_h; ++r) {
      const Index p = b.first[r] + at(r);
      std::copy_n(h + r * stride, n, b.previous_h + p * n);
      if (cell) std::copy_n(c + r * stride, n, b.previous_c + p * n);
    }
    const auto products = [&](Index panel, Index begin, Index end, const T* a) {
      for (Index g = begin; g < end; ++g)
        b.product(active, n, a, stride, b.panels + (g * panels + panel) * panel_size, b.width, false, u + (g - begin) * b.rows * b.width,
                  b.width);
    };
    for (Index panel = 0; panel < panels; ++panel) {
      products(panel, 0, reset ? 2 : G, h);
      for (Index r = 0; r < active; ++r) {
        StepRow<T> row = row_of(r, panel * b.width);
        if (reset) row.next_h = q + r * stride + panel * b.width;
        b.kernels.first(row);
      }
    }
    if (reset)
      for (Index panel = 0; panel < panels; ++panel) {
        products(panel, 2, G, q);
        for (Index r = 0; r < active; ++r) b.kernels.second(row_of(r, panel * b.width));
      }
    T* const before = h;
    h = next;
    next = before;
    for (Index r = active; r-- > 0 && b.length[r] == step + 1;) {
      std::copy_n(h + r * stride, n, b.h + b.sentence[r] * n);
      if (cell) std::copy_n(c + r * stride, n, b.c + b.sentence[r] * n);
    }
  }
}

template <class T> void backward_through_time(const RecurrentBlock<T>& b) {
  const Index G = gate_count(b.unit);
  const bool reset = resets_before(b.unit), cell = b.unit == RecurrentUnit::lstm, direct = b.unit >= RecurrentUnit::gru_bahdanau;
  const Index n = b.n, stride = state_stride(n, b.width), gate_row = gate_stride(G, n), panels = round_up(n, b.width) / b.width;
  const Index panel_size = G * n * b.width;
  T* const dh = b.scratch;
  T* const dc = dh + b.rows * stride;
  T* const dq = dc + b.rows * stride;
  T* const da = dq + b.rows * stride;                      // [rows][gates n]
  std::fill_n(dh, 3 * b.rows * stride, T(0));              // also between n and the end of a panel
  for (Index r = 0; r < b.rows; ++r) {
    std::copy_n(b.h + b.sentence[r] * n, n, dh + r * stride);
    if (cell) std::copy_n(b.c + b.sentence[r] * n, n, dc + r * stride);
  }
  Index active = 0;
  for (Index step = b.length[0]; step-- > 0;) {
    while (active < b.rows && b.length[active] > step) ++active;
    const auto row_of = [&](Index r) {
      const Index s = b.reverse ? b.length[r] - 1 - step : step, p = b.first[r] + s;
      return StepRowGrad<T>{.n = size_t(n),
                            .block = n,
                            .gates = b.gates + p * G * n,
                            .kept = b.kept ? b.kept + p * n : nullptr,
                            .da = da + r * gate_row,
                            .h = b.previous_h + p * n,
                            .c = cell ? b.previous_c + p * n : nullptr,
                            .dy = b.outputs ? b.outputs + b.sentence[r] * b.output_sentence + s * b.output_step : nullptr,
                            .dh = dh + r * stride,
                            .dc = dc + r * stride,
                            .dq = dq + r * stride};
    };
    for (Index r = 0; r < active; ++r) b.kernels.first_grad(row_of(r));
    if (reset) {
      for (Index panel = 0; panel < panels; ++panel)
        b.product(active, n, da + 2 * n, gate_row, b.panels + panel * panel_size + 2 * n * b.width, b.width, false, dq + panel * b.width,
                  stride);
      for (Index r = 0; r < active; ++r) b.kernels.second_grad(row_of(r));
    }
    for (Index panel = 0; panel < panels; ++panel)
      b.product(active, (reset ? 2 : G) * n, da, gate_row, b.panels + panel * panel_size, b.width, direct, dh + panel * b.width, stride);
  }
  for (Index r = 0; r < b.rows; ++r) {
    std::copy_n(dh + r * stride, n, b.h + b.sentence[r] * n);
    if (cell) std::copy_n(dc + r * stride, n, b.c + b.sentence[r] * n);
  }
}

template void forward_through_time(const RecurrentBlock<float>&);
template void forward_through_time(const RecurrentBlock<double>&);
template void backward_through_time(const RecurrentBlock<float>&);
template void backward_through_time(const RecurrentBlock<double>&);

}  // namespace heed
