// SPDX-License-Identifier: Apache-2.0
#include "attention/position.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

constexpr std::string_view kNames[] = {"sinusoidal", "sinusoidal_concatenated", "learned", "none", "rope", "rope_half", "alibi", "t5", "shaw"};

}  // namespace

std::vector<std::string_view> position_names() { return {std::begin(kNames), std::end(kNames)}; }
std::string_view name(Positions positions) { return kNames[std::size_t(positions)]; }

Positions positions_named(std::string_view name) {
  const auto at = std::find(std::begin(kNames), std::end(kNames), name);
  check<Error>(at != std::end(kNames), "positions: unknown name '{}'; one of {}", name, fmt::join(kNames, ", "));
  return Positions(at - std::begin(kNames));
}

Tensor sinusoids(Index length, Index width, DType dtype, Sinusoids options) {
  check<ShapeError>(length >= 0 && width >= 1, "sinusoids: needs length >= 0 and width >= 1: [{}, {}]", length, width);
  const Tensor table = zeros({length, width}, DType::f64);
  double* p = table.mutable_data<double>();
  const Index half = width / 2, pairs = options.layout == Sinusoids::Layout::interleaved ? (width + 1) / 2 : half;
  for (Index i = 0; i < pairs; ++i) {
    const double exponent = options.denominator == Sinusoids::Denominator::paper ? 2.0 * double(i) / double(width)
                            : half > 1 ? double(i) / double(half - 1) : 0;
    const double frequency = std::pow(10000.0, -exponent);
    for (Index t = 0; t < length; ++t) {
      const double angle = double(t + options.first) * frequency;
      if (options.layout == Sinusoids::Layout::interleaved) {
        p[t * width + 2 * i] = std::sin(angle);
        if (2 * i + 1 < width) p[t * width + 2 * i + 1] = std::cos(angle);
      } else {
        p[t * width + i] = std::sin(angle);
        p[t * width + half + i] = std::cos(angle);
      }
    }
  }
  return to(table, dtype);
}

PositionTable::PositionTable(Scope scope, Options options) : path(scope.path()), options_(options) {
  if (options.kind == Positions::learned) {
    weight = scope.parameter("weight", {options.length, options.width}, normal_init(0, 1 / std::sqrt(double(options.width))));
    weight.data().multiplied = false;
  }
  if (options.kind == Positions::sinusoidal) table_ = sinusoids(options.length, options.width, scope.dtype());
  if (options.kind == Positions::sinusoidal_concatenated)
    table_ = sinusoids(options.length, options.width, scope.dtype(),
                       {.layout = Sinusoids::Layout::concatenated, .denominator = Sinusoids::Denominator::tensor2tensor});
}

Variable PositionTable::rows(Index offset, Index length) const {
  if (options_.kind == Positions::none || inside_attention(options_.kind)) return {};
  const Inside inside(path);
  check<IndexError>(offset >= 0 && length >= 0, "positions: needs offset >= 0 and length >= 0: offset {}, length {}", offset, length);
  if (options_.kind == Positions::learned) {
    check<IndexError>(offset + length <= options_.length, "positions: position {} is not in [0, {}): only that many were trained", offset + length - 1,
                      options_.length);
    return slice(weight, 0, offset, offset + length);
  }
  if (offset + length <= options_.length) return constant(table_(Slice{offset, offset + length}));
  Sinusoids form{.first = offset};
  if (options_.kind == Positions::sinusoidal_concatenated)
    form = {.layout = Sinusoids::Layout::concatenated, .denominator = Sinusoids::Denominator::tensor2tensor, .first = offset};
  return constant(sinusoids(length, options_.width, table_.dtype(), form));
}

}  // namespace heed
