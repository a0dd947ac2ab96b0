// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/reduce.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable sum(const Variable& x, const Dims& dims, Flag keepdim) {
  return record("sum", sum(x.value(), dims, keepdim), {x}, [dx = x.slot(), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { sum_grad(dy, dims, out); });
  });
}

Variable mean(const Variable& x, const Dims& dims, Flag keepdim) {
  return record("mean", mean(x.value(), dims, keepdim), {x}, [dx = x.slot(), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { mean_grad(dy, dims, out); });
  });
}

Variable prod(const Variable& x, const Dims& dims, Flag keepdim) {
  return record("prod", prod(x.value(), dims, keepdim), {x}, [dx = x.slot(), x = saved(x), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { prod_grad(x, dy, dims, out); });
  });
}

Variable max(const Variable& x, const Dims& dims, Flag keepdim) {
  Tensor y = max(x.value(), dims, keepdim);
  return record("max", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { max_grad(x, y, dy, dims, out); });
  });
}

Variable min(const Variable& x, const Dims& dims, Flag keepdim) {
  Tensor y = min(x.value(), dims, keepdim);
  return record("min", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims](const Tensor& dy) {
    dx.gradient([&](Into out) { max_grad(x, y, dy, dims, out); });
  });
}

Variable var(const Variable& x, const Dims& dims, Flag unbiased, Flag keepdim) {
  return record("var", var(x.value(), dims, unbiased, keepdim), {x}, [dx = x.slot(), x = saved(x), dims, unbiased](const Tensor& dy) {
    dx.gradient([&](Into out) { var_grad(x, dy, dims, unbiased, out); });
  });
}

Variable stddev(const Variable& x, const Dims& dims, Flag unbiased, Flag keepdim) {
  Tensor y = stddev(x.value(), dims, unbiased, keepdim);
  return record("stddev", y, {x}, [dx = x.slot(), x = saved(x), y = saved(y), dims, unbiased](const Tensor& dy) {
    dx.gradient([&](Into out) { stddev_grad(x, y, dy, dims, unbiased, out); });
  });
}

Variable norm(const Variable& x, const Dims& dims, Flag keepdim) {
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

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void reduce_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const auto three = [&](std::string name, auto f, double low, double high) {
    table.both(name, [f](auto x) { return f(x[0], Dims(), false); }, {{{2, 3, N}, low, high}});
    table.both(name + " last", [f](auto x) { return f(x[0], Dims(-1), false); }, {{{2, 3, N}, low, high}});
    table.both(name + " middle", [f](auto x) { return f(x[0], Dims(1), true); }, {{{2, 3, N}, low, high}});
    table.both(name + " outer", [f](auto x) { return f(x[0], Dims{0, 2}, false); }, {{{2, 3, N}, low, high}});
  };
  three("sum", [](auto& x, const Dims& dims, bool keep) { return sum(x, dims, keep); }, -2, 2);
  three("mean", [](auto& x, const Dims& dims, bool keep) { return mean(x, dims, keep); }, -2, 2);
  three("prod", [](auto& x, const Dims& dims, bool keep) { return prod(x, dims, keep); }, 0.9, 1.1);
  three("max", [](auto& x, const Dims& dims, bool keep) { return max(x, dims, keep); }, -2, 2);
  three("min", [](auto& x, const Dims& dims, bool keep) { return min(x, dims, keep); }, -2, 2);
  three("norm", [](auto& x, const Dims& dims, bool keep) { return norm(x, dims, keep); }, 0.5, 2);
  three("var", [](auto& x, const Dims& dims, bool keep) { return var(x, dims, false, keep); }, -2, 2);
  table.both("max of short rows", [](auto x) { return max(x[0], {1, 2}); }, {{{N, 3, 2}, -2, 2}});
  table.both("var unbiased", [](auto x) { return var(x[0], 0); }, {{{3, N}}});
  table.both("stddev", [](auto x) { return stddev(x[0], 0); }, {{{3, N}}});
  table.both("stddev middle", [](auto x) { return stddev(x[0], 1, false, true); }, {{{2, 3, N}}});
  table.both("cumsum", [](auto x) { return cumsum(x[0], -1); }, {{{3, N}}});
  table.both("cumsum dim 0", [](auto x) { return cumsum(x[0], 0); }, {{{3, N}}});
  table.both("sum_to", [](auto x) { return sum_to(x[0], {3, 1}); }, {{{2, 3, N}}});
}

}  // namespace heed
