// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#include "autograd/ops.h"
#include "autograd/record.h"

namespace heed {

Variable sum(const Variable& x, const Dims& dims, bool keepdim) {
  return record("sum", sum(x.value(), dims, keepdim), {x}, [dx = x.slot(), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { sum_grad(dy, dims, out); });
  });
}

Variable mean(const Variable& x, const Dims& dims, bool keepdim) {
  return record("mean", mean(x.value(), dims, keepdim), {x}, [dx = x.slot(), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { mean_grad(dy, dims, out); });
  });
}

Variable prod(const Variable& x, const Dims& dims, bool keepdim) {
  return record("prod", prod(x.value(), dims, keepdim), {x}, [dx = x.slot(), x = saved(x), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { prod_grad(x, dy, dims, out); });
  });
}

Variable max(const Variable& x, const Dims& dims, bool keepdim) {
  Tensor y = max(x.value(), dims, keepdim);
  return record("max", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { max_grad(x, y, dy, dims, out); });
  });
}

Variable min(const Variable& x, const Dims& dims, bool keepdim) {
  Tensor y = min(x.value(), dims, keepdim);
  return record("min", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { max_grad(x, y, dy, dims, out); });
  });
}

Variable var(const Variable& x, const Dims& dims, bool unbiased, bool keepdim) {
  return record("var", var(x.value(), dims, unbiased, keepdim), {x}, [dx = x.slot(), x = saved(x), dims, unbiased](const Tensor& dy) {
    dx.gradient([&](Into out) { var_grad(x, dy, dims, unbiased, out); });
  });
}

Variable norm(const Variable& x, const Dims& dims, bool keepdim) {
  Tensor y = norm(x.value(), dims, keepdim);
  return record("norm", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { norm_grad(x, y, dy, dims, out); });
  });
}

Variable cumsum(const Variable& x, int dim) {
  return record("cumsum", cumsum(x.value(), dim), {x}, [dx = x.slot(), dim](const Tensor& dy) {
    dx.gradient([&](Into out) { cumsum_grad(dy, dim, out); });
  });
}

Variable sum_to(const Variable& x, const Shape& shape) {
  return record("sum_to", sum_to(x.value(), shape), {x}, [dx = x.slot()](const Tensor& dy) {
    dx.gradient([&](Into out) { sum_to_grad(dy, out); });
  });
}

}  // namespace heed
