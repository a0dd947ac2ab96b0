// SPDX-License-Identifier: Apache-2.0
// The gradient of a view is a view of the parent's gradient: nothing is computed, copied or added here (but for expand and
// toeplitz). What copies its elements hands each source its part of dy; repeat sums them.
#include "tensor/ops/view.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/reduce.h"

namespace heed {

Variable reshape(const Variable& x, const Shape& shape) {
  const Tensor y = reshape(x.value(), shape);
  if (y.storage() == x.value().storage())
    return record_view("reshape", x, [&](const Tensor& t) { return reshape(t, y.shape()); });
  return record("reshape", y, {x}, [dx = x.slot(), shape = x.shape()](const Tensor& dy) { dx.adopt(reshape(dy, shape)); });
}

Variable flatten(const Variable& x, int first, int last) { return reshape(x, flatten(x.value(), first, last).shape()); }

Variable transpose(const Variable& x, int a, int b) {
  return record_view("transpose", x, [&](const Tensor& t) { return transpose(t, a, b); });
}

Variable permute(const Variable& x, const Dims& dims) {
  return record_view("permute", x, [&](const Tensor& t) { return permute(t, dims); });
}

Variable squeeze(const Variable& x, int dim) {
  return record_view("squeeze", x, [&](const Tensor& t) { return squeeze(t, dim); });
}

Variable unsqueeze(const Variable& x, int dim) {
  return record_view("unsqueeze", x, [&](const Tensor& t) { return unsqueeze(t, dim); });
}

Variable flip(const Variable& x, const Dims& dims) {
  return record_view("flip", x, [&](const Tensor& t) { return flip(t, dims); });
}

Variable roll(const Variable& x, Index shift, int dim) {
  Tensor y = roll(x.value(), shift, dim);
  return record("roll", std::move(y), {x}, [dx = x.slot(), back = -(shift % std::max<Index>(x.size(dim), 1)), dim](const Tensor& dy) {
    dx.adopt(roll(dy, back, dim));
  });
}

Variable slice(const Variable& x, int dim, Index start, Index stop, Index step) {
  return record_view("slice", x, [&](const Tensor& t) { return slice(t, dim, start, stop, step); });
}

Variable select(const Variable& x, int dim, Index index) {
  return record_view("select", x, [&](const Tensor& t) { return select(t, dim, index); });
}

Variable Variable::operator[](Index i) const {
  return record_view("index", *this, [&](const Tensor& t) { return t[i]; });
}

Variable Variable::indexed(std::initializer_list<Indexer> index) const {
  return record_view("index", *this, [&](const Tensor& t) { return t.indexed(index); });
}

List<Variable> split(const Variable& x, Index count, int dim) {
  return record_split("split", x, [&](const Tensor& t) { return split(t, count, dim); });
}

List<Variable> split(const Variable& x, std::span<const Index> sizes, int dim) {
  return record_split("split", x, [&](const Tensor& t) { return split(t, sizes, dim); });
}

List<Variable> unbind(const Variable& x, int dim) {
  return record_split("unbind", x, [&](const Tensor& t) { return unbind(t, dim); });
}

Variable expand(const Variable& x, const Shape& shape) {
  return record("expand", expand(x.value(), shape), {x}, [dx = x.slot()](const Tensor& dy) {
    dx.gradient([&](Into out) { sum_to(dy, out); });
  });
}

Variable toeplitz(const Variable& x, Index rows) {
  return record("toeplitz", toeplitz(x.value(), rows), {x}, [dx = x.slot()](const Tensor& dy) {
    dx.gradient([&](Into out) { toeplitz_grad(dy, out); });
  });
}

namespace {

List<Tensor> values(std::span<const Variable> variables) {
  List<Tensor> tensors;
  tensors.reserve(variables.size());
  for (const Variable& x : variables) tensors.push_back(x.value());
  return tensors;
}

List<Slot> slots(std::span<const Variable> variables) {
  List<Slot> slots;
  slots.reserve(variables.size());
  for (const Variable& x : variables) slots.push_back(x.slot());
  return slots;
}

}  // namespace

Variable concat(std::span<const Variable> xs, int dim) {
  List<Index> sizes;
  const Tensor y = concat(values(xs), dim);
  for (const Variable& x : xs) sizes.push_back(x.size(dim));
  return record("concat", y, xs, [dxs = slots(xs), sizes = std::move(sizes), dim](const Tensor& dy) {
    const bool alone = dy.storage().is_unique();
    const List<Tensor> parts = split(dy, sizes, dim);
    for (size_t i = 0; i < parts.size(); ++i) dxs[i].adopt_part(parts[i], alone);
  });
}

Variable stack(std::span<const Variable> xs, int dim) {
  return record("stack", stack(values(xs), dim), xs, [dxs = slots(xs), dim](const Tensor& dy) {
    const bool alone = dy.storage().is_unique();
    for (size_t i = 0; i < dxs.size(); ++i) dxs[i].adopt_part(select(dy, dim, Index(i)), alone);
  });
}

Variable repeat(const Variable& x, const Shape& counts) {
  return record("repeat", repeat(x.value(), counts), {x}, [dx = x.slot(), counts](const Tensor& dy) {
    dx.gradient([&](Into out) { repeat_grad(dy, counts, out); });
  });
}

Variable pad(const Variable& x, int dim, Index before, Index after, double value) {
  Tensor y = pad(x.value(), dim, before, after, value);
  return record("pad", y, {x}, [dx = x.slot(), dim, before, n = x.size(dim)](const Tensor& dy) {
    dx.adopt(slice(dy, dim, before, before + n));
  });
}

Variable tril(const Variable& x, Index diagonal) {
  return record("tril", tril(x.value(), diagonal), {x},
                [dx = x.slot(), diagonal](const Tensor& dy) { dx.adopt(tril(dy, diagonal)); });
}

Variable triu(const Variable& x, Index diagonal) {
  return record("triu", triu(x.value(), diagonal), {x},
                [dx = x.slot(), diagonal](const Tensor& dy) { dx.adopt(triu(dy, diagonal)); });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void view_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const SampleTable::Inputs cube{{{2, 3, N}}};
  table.both("reshape", [](auto x) { return reshape(x[0], {3, -1, 2}); }, {{{2, 3, 4}}});
  table.both("flatten", [](auto x) { return flatten(x[0], 0, 1); }, cube);
  table.both("transpose", [](auto x) { return transpose(x[0], 0, 2); }, cube);
  table.both("permute", [](auto x) { return permute(x[0], {2, 0, 1}); }, cube);
  table.both("squeeze", [](auto x) { return squeeze(x[0], 1); }, {{{3, 1, N}}});
  table.both("unsqueeze", [](auto x) { return unsqueeze(x[0], 1); }, cube);
  table.both("flip", [](auto x) { return flip(x[0], {0, 2}); }, cube);
  table.both("roll", [](auto x) { return roll(x[0], -4, 1); }, cube);
  table.both("slice", [](auto x) { return slice(x[0], 1, 2, Slice::kFromStart, -2); }, cube);
  table.both("select", [](auto x) { return select(x[0], 1, -1); }, cube);
  const auto turned = [](auto parts) { return decltype(parts)(parts.rbegin(), parts.rend()); };
  table.both("expand", [](auto x) { return expand(x[0], {2, 3, 4, -1}); }, {{{3, 1, N}}});
  table.both("toeplitz", [](auto x) { return toeplitz(x[0], 3); }, {{{2, 7}}});
  table.both("split", [turned](auto x) { return concat(turned(split(x[0], 3, 1)), 1); }, cube);
  table.both("split sizes", [turned](auto x) { return concat(turned(split(x[0], std::vector<Index>{1, 2}, 1)), 1); }, cube);
  table.both("unbind", [turned](auto x) { return stack(turned(unbind(x[0], 1))); }, cube);
  table.both("concat", [](auto x) { return concat({x[0], x[1], x[0]}, 1); }, {{{2, 3, N}}, {{2, 1, N}}});
  table.both("stack", [](auto x) { return stack({x[0], x[1]}, 1); }, {{{2, N}}, {{2, N}}});
  table.both("repeat", [](auto x) { return repeat(x[0], {2, 1, 3, 2}); }, cube);
  table.both("pad", [](auto x) { return pad(x[0], -1, 2, 1, 5); }, cube);
  table.both("tril", [](auto x) { return tril(x[0], 1); }, cube);
  table.both("triu", [](auto x) { return triu(x[0], -1); }, cube);
}

}  // namespace heed
