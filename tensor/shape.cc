// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/format.h"

namespace heed {

void throw_not_float(std::string_view op, DType dtype) { fail<DTypeError>("{}: takes f32 or f64: {}", op, dtype); }

bool fits(double value, DType dtype) {
  return visit_any(dtype, [value]<class T>() {
    if constexpr (!std::is_integral_v<T>) return true;
    else
      return value == std::trunc(value) && value >= double(std::numeric_limits<T>::min()) &&
             value < std::ldexp(1, std::numeric_limits<T>::digits);
  });
}

void check_fits(std::string_view op, double value, DType dtype) {
  check<DTypeError>(fits(value, dtype), "{}: {} does not fit {}", op, value, dtype);
}

void Shape::refuse(std::size_t axes) { fail<ShapeError>("shape: at most {} axes: {} given", kMaxRank, axes); }

void Shape::insert(int axis, Index size) {
  check<IndexError>(axis >= 0 && axis <= rank_, "shape: axis {} is not in [0, {}]: {}", axis, rank_, *this);
  push_back(size);
  std::copy_backward(sizes_.begin() + axis, sizes_.begin() + rank_ - 1, sizes_.begin() + rank_);
  sizes_[std::size_t(axis)] = size;
}

void Shape::erase(int axis) {
  check<IndexError>(axis >= 0 && axis < rank_, "shape: axis {} is not in [0, {}): {}", axis, rank_, *this);
  std::copy(sizes_.begin() + axis + 1, sizes_.begin() + rank_, sizes_.begin() + axis);
  --rank_;
}

Dims::Dims(std::span<const int> dims) {
  check<ShapeError>(dims.size() <= kMaxRank, "dims: at most {}: {} given", kMaxRank, dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
  count_ = int(dims.size());
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  Index step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<Index>(shape[axis], 1);
  }
  return strides;
}

Index checked_numel(std::string_view op, const Shape& shape) {
  Index n = 1;
  bool fits = true, empty = false;
  for (Index size : shape) {
    check<ShapeError>(size >= 0, "{}: sizes must not be negative: {}", op, shape);
    if (size == 0) empty = true;
    else fits &= !__builtin_mul_overflow(n, size, &n) && n < (Index{1} << 59);
  }
  check<ShapeError>(fits, "{}: too many elements: {}", op, shape);
  return empty ? 0 : n;
}

void refuse_dim(std::string_view op, int dim, const Shape& shape) {
  if (shape.rank() == 0)
    fail<IndexError>("{}: there is no dim {}: shape [], a single number or an empty tensor (default constructed)", op, dim);
  fail<IndexError>("{}: dim {} is not in [{}, {}): shape {}", op, dim, -shape.rank(), shape.rank(), shape);
}

Shape position_of(Index flat, const Shape& shape) {
  Shape position = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    position[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return position;
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b, std::string_view name_a, std::string_view name_b) {
  Shape out = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
    const Index m = a[a.rank() - i], n = b[b.rank() - i];
    check<ShapeError>(m == n || m == 1 || n == 1, "{}: shapes do not broadcast: {} {}, {} {} ({} and {} at dim {})", op, name_a, a,
                      name_b, b, m, n, -i);
    out[out.rank() - i] = m == 1 ? n : m;
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  bool fits = from.rank() <= to.rank();
  for (int i = 1; fits && i <= from.rank(); ++i) fits = from[from.rank() - i] == 1 || from[from.rank() - i] == to[to.rank() - i];
  return fits;
}

Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to) {
  Strides repeated = to;
  const int lead = to.rank() - from.rank();
  for (int axis = 0; axis < to.rank(); ++axis) repeated[axis] = axis < lead || from[axis - lead] == 1 ? 0 : strides[axis - lead];
  return repeated;
}

namespace {
std::string bracketed(const auto& list) {
  std::string text = "[";
  for (auto item : list) text += (text.size() > 1 ? ", " : "") + std::to_string(item);
  return text + "]";
}
}  // namespace

std::string to_string(const Shape& shape) { return bracketed(shape); }
std::string to_string(const Dims& dims) { return bracketed(dims); }

}  // namespace heed
