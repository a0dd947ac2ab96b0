// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021, "RoFormer", arXiv 2104.09864, 3.2.2): row t of x turns each pair (a, b) of its columns by an angle,
//   (a, b) -> (a cos φ - b sin φ, a sin φ + b cos φ),   φ_tp = t θ_p,  θ_p = base^(-2p/d),  p = 0 .. d/2 - 1
// so that the product of a row turned by i with one turned by j depends on i - j.
#pragma once
#include "tensor/into.h"

namespace heed {

enum class RotaryLayout { interleaved, half };     // pairs (2p, 2p + 1), the paper's; (p, p + d/2), GPT-NeoX's and Llama's

// The angles of positions first, first + 1, ..: [length, d] each. A column holds the cosine of its pair, and the sine with the sign that
// its partner comes with: y_j = x_j cosine_j + x_partner(j) sine_j.
struct Rotations {
  Tensor cosines, sines;
  RotaryLayout layout = RotaryLayout::interleaved;
  Index length() const { return cosines.size(0); }
  Rotations rows(Index begin, Index end) const { return {cosines(Slice{begin, end}), sines(Slice{begin, end}), layout}; }
};
// ShapeError unless length >= 0 and the width is even and positive. Error unless base > 0.
Rotations rotations(Index length, Index width, DType dtype = DType::f32, RotaryLayout layout = RotaryLayout::interleaved, Index first = 0,
                    double base = 10000);

// x [.., T, d] with rotations of T rows -> [.., T, d]; f32 and f64, any strides. ShapeError, DTypeError: they do not fit x.
Tensor rotary(const Tensor& x, const Rotations& rotations);
void rotary_grad(const Tensor& dy, const Rotations& rotations, Into dx);     // dx = dy turned back

}  // namespace heed
