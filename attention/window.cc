// SPDX-License-Identifier: Apache-2.0
#include "attention/window.h"

#include <algorithm>
#include <cmath>

#include "autograd/trace.h"
#include "nn/linear.h"
#include "tensor/format.h"

namespace heed {
namespace {

Index length_of(const Memory& memory, Index b) {
  const Index S = memory.values.size(1);
  return memory.mask.lengths().defined() ? std::min<Index>(S, memory.mask.lengths().data<std::int32_t>()[b]) : S;
}

// u8 [B, T, S]: |s - p| <= w
Mask around(const Tensor& position, Index S, double w) {
  const Index rows = position.numel();
  const Tensor allowed = zeros({position.size(0), position.size(1), S}, DType::u8);
  const double* p = position.data<double>();
  std::uint8_t* out = allowed.mutable_data<std::uint8_t>();
  for (Index row = 0; row < rows; ++row, out += S)
    for (Index s = p[row] > w ? Index(std::ceil(p[row] - w)) : 0; s < S && double(s) <= p[row] + w; ++s) out[s] = 1;   // none for NaN
  return Mask::allowed(allowed);
}

Index checked_window(const ScoreOptions& options) {
  check<Error>(options.window >= 0, "local attention: the window must not be negative: {}", options.window);
  return options.window;
}

// Luong et al. 2015, Eq. 9 and 10
struct LocalP {
  static constexpr std::string_view kFormula = "p = S σ(v_pᵀ tanh(W_p q)) - 1, the word looked at, from 0";
  LocalP(Scope scope, const ScoreOptions& options)
      : position_proj(scope / "position_proj", {.in = options.query_width, .out = options.hidden(), .bias = false, .init = options.init}),
        position_v(score_vector(scope, options, "position_v")),
        width(checked_window(options)) {}

  Focus operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    const Index B = query.size(0), S = memory.values.size(1);
    memory.mask.check_fits("local attention", {B, query.size(1), S});
    const Tensor lengths = empty({B, 1}, DType::f64);
    for (Index b = 0; b < B; ++b) lengths.mutable_data<double>()[b] = double(length_of(memory, b));
    const Variable share = sigmoid(matmul(tanh(position_proj(query)), position_v));                    // [B, T]
    // from 0: real, in (-1, S - 1)
    const Variable p = trace("position", kFormula, share * constant(to(lengths, query.dtype())) - 1);
    const Tensor position = to(p.value(), DType::f64).contiguous();
    if (width == 0) {                                                                                  // the nearest position
      const Tensor nearest = position.clone();
      for (double& x : nearest.mutable_span<double>()) x = std::max(0.0, std::nearbyint(x));
      return {around(nearest, S, 0), {}, position, {}};
    }
    const Variable away = constant(to(arange(0, double(S)), query.dtype())) - unsqueeze(p, -1);        // s - p_t   [B, T, S]
    const double sigma = double(width) / 2;
    return {around(position, S, double(width)), exp(square(away) * (-1 / (2 * sigma * sigma))), position, {}};
  }

  Linear position_proj;      // W_p [A, n]
  Parameter position_v;      // v_p [A]
  Index width;
};

}  // namespace

Window local_m(const ScoreOptions& options) {
  return [w = checked_window(options), clamp = options.clamp_position](const Variable& query, const Memory& memory,
                                                                       const AttentionState& state) -> Focus {
    const Index B = query.size(0), T = query.size(1);
    memory.mask.check_fits("local attention", {B, T, memory.values.size(1)});
    const Tensor position = empty({B, T}, DType::f64);
    double* p = position.mutable_data<double>();
    for (Index b = 0; b < B; ++b)
      for (Index t = 0; t < T; ++t) {
        const Index at = state.position + t * state.advance;
        *p++ = double(clamp ? std::max<Index>(0, std::min(at, length_of(memory, b) - 1)) : at);
      }
    const std::string_view formula =
        clamp ? "p = t - 1, at most S - 1, the word looked at, from 0" : "p = t - 1, the word looked at, from 0";
    if (clamp || state.advance != 1) return {around(position, memory.values.size(1), double(w)), {}, position, formula};
    return {Mask::window(w, w, state.position), {}, position, formula};
  };
}

Window local_p(Scope scope, const ScoreOptions& options) {
  return [p = std::make_shared<const LocalP>(scope, options)](const Variable& query, const Memory& memory, const AttentionState& state) {
    return (*p)(query, memory, state);
  };
}

}  // namespace heed
