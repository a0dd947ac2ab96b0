// SPDX-License-Identifier: Apache-2.0
#include "attention/position.h"

#include <cmath>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

constexpr std::string_view kNames[] = {"sinusoidal", "sinusoidal_concatenated", "learned", "none", "rope", "rope_half", "alibi", "t5",
                                       "shaw"};

// What the kind means, from position `first` on
Sinusoids form(Positions kind, Index first) {
  if (kind == Positions::sinusoidal) return {.first = first};
  return {.layout = Sinusoids::Layout::concatenated, .denominator = Sinusoids::Denominator::tensor2tensor, .first = first};
}

}  // namespace

std::vector<std::string_view> position_names() { return {std::begin(kNames), std::end(kNames)}; }
std::string_view name(Positions positions) { return kNames[std::size_t(positions)]; }

Positions positions_named(std::string_view name) {
  return Positions(place_of("positions", kNames, name));
}

Tensor sinusoids(Index length, Index width, DType dtype, Sinusoids options) {
  check<ShapeError>(length >= 0 && width >= 1, "sinusoids: needs length >= 0 and width >= 1: [{}, {}]", length, width);
  if (!is_float(dtype)) throw_not_float("sinusoids", dtype);
  check<Error>(std::abs(options.first) < Index{1} << 53, "sinusoids: the first position is too far away: {}", options.first);
  const bool interleaved = options.layout == Sinusoids::Layout::interleaved;
  const Index half = width / 2, pairs = interleaved ? (width + 1) / 2 : half;
  const Tensor frequencies = empty({pairs}, DType::f64);
  double* const frequency = frequencies.mutable_data<double>();
  for (Index i = 0; i < pairs; ++i) {
    const double exponent = options.denominator == Sinusoids::Denominator::paper ? 2.0 * double(i) / double(width)
                            : half > 1 ? double(i) / double(half - 1) : 0;
    frequency[i] = std::pow(10000.0, -exponent);
  }
  const Tensor places = arange(double(options.first), double(options.first + length), 1, DType::f64),
               angles = unsqueeze(places, 1) * frequencies;
  const Tensor sines = sin(angles), cosines = cos(angles);                                                  // [length, pairs]
  if (interleaved) return to(slice(reshape(stack({sines, cosines}, -1), {length, 2 * pairs}), 1, 0, width), dtype);
  return to(concat({sines, cosines, zeros({length, width - 2 * half}, DType::f64)}, 1), dtype);
}

PositionTable::PositionTable(Scope scope, Options options) : path(scope.path()), options_(options) {
  if (options.kind == Positions::learned) {
    weight = scope.parameter("weight", {options.length, options.width}, normal_init(0, 1 / std::sqrt(double(options.width))));
    weight.data().multiplied = false;
  }
  if (options.kind == Positions::sinusoidal || options.kind == Positions::sinusoidal_concatenated)
    table_ = sinusoids(options.length, options.width, scope.dtype(), form(options.kind, 0));
}

Variable PositionTable::rows(Index offset, Index length) const {
  if (options_.kind == Positions::none || inside_attention(options_.kind)) return {};
  const Inside inside(path);
  check<IndexError>(offset >= 0 && length >= 0, "positions: needs offset >= 0 and length >= 0: offset {}, length {}", offset, length);
  if (options_.kind == Positions::learned) {
    check_not_moved_from(weight.defined(), "positions");
    check<IndexError>(offset + length <= options_.length, "positions: position {} is not in [0, {}): only that many were trained",
                      offset + length - 1, options_.length);
    return slice(weight, 0, offset, offset + length);
  }
  if (offset + length <= options_.length) return constant(table_(Slice{offset, offset + length}));
  return constant(sinusoids(length, options_.width, table_.dtype(), form(options_.kind, offset)));
}

}  // namespace heed
