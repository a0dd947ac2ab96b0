// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/axes.h"

#include "tensor/format.h"

namespace heed {

Axes reduced_axes(std::string_view name, const Tensor& x, const Dims& dims) {
  check<Error>(x.defined(), "{}: the tensor is empty (default constructed)", name);
  Axes axes{};
  if (dims.empty()) std::fill(axes.begin(), axes.begin() + x.rank(), true);
  for (int dim : dims) {
    const auto axis = std::size_t(normalize_dim(name, dim, x.shape()));
    check<IndexError>(!axes[axis], "{}: dim {} appears twice: dims {}, shape {}", name, dim, dims, x.shape());
    axes[axis] = true;
  }
  return axes;
}

void check_dtype(std::string_view name, const Tensor& x) {
  check<DTypeError>(x.dtype() != DType::bf16, "{}: takes f32, f64, i32, i64 or u8: {}", name, x.dtype());
}

Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdim) {
  Shape out;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!axes[std::size_t(axis)]) out.push_back(shape[axis]);
    else if (keepdim) out.push_back(1);
  return out;
}

Tensor with_kept_dims(const Tensor& reduced, const Shape& shape, const Axes& axes) {
  if (reduced.rank() == shape.rank()) return reduced;
  Strides strides = shape;
  Shape sizes = shape;
  for (int axis = 0, from = 0; axis < shape.rank(); ++axis) {
    const bool gone = axes[std::size_t(axis)];
    strides[axis] = gone ? 0 : reduced.strides()[from];
    sizes[axis] = gone ? 1 : reduced.shape()[from];
    from += !gone;
  }
  return {reduced.storage(), reduced.dtype(), sizes, strides, reduced.offset()};
}

Shape without_last(const Shape& shape) { return Shape(std::span(shape.begin(), std::size_t(shape.rank() - 1))); }

Index count_of(const Shape& shape, const Axes& axes) {
  Index n = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (axes[std::size_t(axis)]) n *= shape[axis];
  return n;
}

}  // namespace heed
