// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/view.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/reduce.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

Tensor view(const Tensor& x, const Shape& shape, const Strides& strides, Index offset) {
  check<Error>(x.defined(), "view: the tensor is empty (default constructed)");
  return Tensor(x.storage(), x.dtype(), shape, strides, offset);
}

// Strides over x's elements for another shape of the same count, at first those of memory of its own; false where a copy is needed. Runs
// of axes that step evenly (stride[i] = size[i+1] stride[i+1]) can be cut anew, nothing else can.
bool strides_for(const Tensor& x, const Shape& shape, Strides& strides) {
  Shape size, stride;                                   // x without axes of size 1
  for (int i = 0; i < x.rank(); ++i)
    if (x.shape()[i] != 1) { size.push_back(x.shape()[i]); stride.push_back(x.strides()[i]); }
  int from = size.rank(), to = shape.rank();            // match groups of axes from the back
  while (to > 0) {
    if (shape[to - 1] == 1) { --to; continue; }
    Index have = size[from - 1], want = shape[to - 1];
    int first_from = from - 1, first_to = to - 1;
    while (have != want) {
      if (have < want) have *= size[--first_from];
      else want *= shape[--first_to];
    }
    for (int i = first_from; i + 1 < from; ++i)
      if (stride[i] != size[i + 1] * stride[i + 1]) return false;
    Index step = stride[from - 1];
    for (int i = to - 1; i >= first_to; --i) { strides[i] = step; step *= shape[i]; }
    from = first_from;
    to = first_to;
  }
  return true;
}

void check_same_dtype(std::string_view op, std::span<const Tensor> tensors) {
  check<ShapeError>(!tensors.empty(), "{}: needs at least one tensor: {} given", op, tensors.size());
  for (size_t i = 1; i < tensors.size(); ++i)
    check<DTypeError>(tensors[i].dtype() == tensors[0].dtype(), "{}: dtypes differ: tensor 0 is {}, tensor {} is {}", op,
                      tensors[0].dtype(), i, tensors[i].dtype());
}

// y = x where keep(row, column), else 0, over the last two axes.
Tensor keep_triangle(std::string_view op, const Tensor& x, Index diagonal, bool lower) {
  check<ShapeError>(x.rank() >= 2, "{}: needs at least 2 axes: x {}", op, x.shape());
  const Index rows = x.size(-2), columns = x.size(-1);
  diagonal = std::clamp(diagonal, -rows, columns);      // all there are; row + diagonal cannot overflow
  Tensor y = x.clone();
  const size_t item = item_size(x.dtype());
  auto* data = reinterpret_cast<std::byte*>(y.storage().data()) + size_t(y.offset()) * item;
  parallel_for(columns == 0 ? 0 : y.numel() / columns, row_grain(columns), [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const Index row = n % rows;                       // [first, last) is cleared
      const Index edge = std::clamp<Index>(lower ? row + diagonal + 1 : row + diagonal, 0, columns);
      const Index first = lower ? edge : 0, last = lower ? columns : edge;
      std::memset(data + size_t(n * columns + first) * item, 0, size_t(last - first) * item);
    }
  });
  return y;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  Shape full = shape;
  int open = -1;
  Index known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      check<ShapeError>(open < 0, "reshape: more than one size is -1: from {}, to {}", x.shape(), shape);
      open = i;
    } else {
      check<ShapeError>(shape[i] >= 0, "reshape: sizes must not be negative: from {}, to {}", x.shape(), shape);
      check<ShapeError>(!__builtin_mul_overflow(known, shape[i], &known), "reshape: too many elements: from {}, to {}",
                        x.shape(), shape);
    }
  }
  const Index count = x.numel();
  if (open >= 0) {
    check<ShapeError>(known != 0, "reshape: size -1 is not determined: from {}, to {}", x.shape(), shape);
    full[open] = count / known;
    known *= full[open];
  }
  check<ShapeError>(known == count, "reshape: element counts differ: from {}, to {} ({} and {})", x.shape(), shape, count,
                    known);
  if (full == x.shape()) return x;
  if (count == 0) checked_numel("reshape", full);
  Strides strides = contiguous_strides(full);
  if (count == 0 || x.is_contiguous() || strides_for(x, full, strides)) return view(x, full, strides, x.offset());
  const Tensor copy = x.clone();
  return view(copy, full, contiguous_strides(full), copy.offset());
}

Tensor flatten(const Tensor& x, int first, int last) {
  if (x.rank() == 0) return reshape(x, {1});
  first = normalize_dim("flatten", first, x.shape());
  last = normalize_dim("flatten", last, x.shape());
  check<IndexError>(first <= last, "flatten: first dim {} is behind last dim {}: x {}", first, last, x.shape());
  Shape shape;
  for (int i = 0; i <= first; ++i) shape.push_back(x.shape()[i]);
  for (int i = first + 1; i <= last; ++i) shape[first] *= x.shape()[i];
  for (int i = last + 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  return reshape(x, shape);
}

Tensor transpose(const Tensor& x, int a, int b) {
  a = normalize_dim("transpose", a, x.shape());
  b = normalize_dim("transpose", b, x.shape());
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view(x, shape, strides, x.offset());
}

Tensor permute(const Tensor& x, const Dims& dims) {
  unsigned seen = 0;
  Shape shape = x.shape();
  Strides strides = x.strides();
  check<ShapeError>(dims.size() == x.rank(), "permute: dims must name each axis once: x {}, dims {}", x.shape(), dims);
  for (int i = 0; i < x.rank(); ++i) {
    const int from = normalize_dim("permute", dims[i], x.shape());
    seen |= 1u << from;
    shape[i] = x.shape()[from];
    strides[i] = x.strides()[from];
  }
  check<ShapeError>(seen + 1 == 1u << x.rank(), "permute: dims must name each axis once: x {}, dims {}", x.shape(), dims);
  return view(x, shape, strides, x.offset());
}

Tensor squeeze(const Tensor& x, int dim) {
  const int axis = normalize_dim("squeeze", dim, x.shape());
  check<ShapeError>(x.shape()[axis] == 1, "squeeze: size at dim {} is not 1: x {}", dim, x.shape());
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(axis);
  strides.erase(axis);
  return view(x, shape, strides, x.offset());
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const int rank = x.rank() + 1;
  check<IndexError>(dim >= -rank && dim < rank, "unsqueeze: dim {} is not in [{}, {}): x {}", dim, -rank, rank, x.shape());
  const int axis = dim < 0 ? dim + rank : dim;
  Shape shape = x.shape();
  Strides strides = x.strides();
  strides.insert(axis, axis < x.rank() ? shape[axis] * strides[axis] : 1);
  shape.insert(axis, 1);
  return view(x, shape, strides, x.offset());
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int added = shape.rank() - x.rank();
  check<ShapeError>(added >= 0, "expand: fewer axes asked for: x {}, to {}", x.shape(), shape);
  Shape full = shape;
  Strides strides = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const Index have = i < added ? 1 : x.shape()[i - added];
    check<ShapeError>(shape[i] != -1 || i >= added, "expand: -1 keeps a size, and a new axis has none: x {}, to {}", x.shape(), shape);
    if (shape[i] == -1) full[i] = have;
    check<ShapeError>(full[i] >= 0, "expand: sizes must not be negative: x {}, to {}", x.shape(), shape);
    check<ShapeError>(full[i] == have || have == 1, "expand: only size 1 expands: x {}, to {} ({} and {} at dim {})", x.shape(),
                      shape, have, full[i], i);
    strides[i] = i < added || full[i] != have ? 0 : x.strides()[i - added];
  }
  checked_numel("expand", full);
  return view(x, full, strides, x.offset());
}

Tensor flip(const Tensor& x, const Dims& dims) {
  Tensor y = x;
  unsigned seen = 0;
  for (int dim : dims) {
    const int axis = normalize_dim("flip", dim, x.shape());
    check<IndexError>(!(seen >> axis & 1), "flip: dim {} appears twice: dims {}, shape {}", dim, dims, x.shape());
    seen |= 1u << axis;
    y = slice(y, axis, Slice::kFromStart, Slice::kToEnd, -1);
  }
  return y;
}

Tensor roll(const Tensor& x, Index shift, int dim) {
  const int axis = normalize_dim("roll", dim, x.shape());
  const Index n = std::max<Index>(x.shape()[axis], 1), cut = n - (shift % n + n) % n;
  return concat(std::array{slice(x, axis, cut), slice(x, axis, 0, cut)}, axis);
}

Tensor toeplitz(const Tensor& x, Index rows) {
  check<ShapeError>(x.rank() >= 1 && rows >= 1 && rows <= x.size(-1) + 1, "toeplitz: needs 1 <= rows <= n + 1: rows {}, x {}", rows,
                    x.shape());
  Shape shape = x.shape();
  Strides strides = x.strides();
  const Index step = strides[x.rank() - 1];
  shape[x.rank() - 1] = rows;
  shape.push_back(x.size(-1) - rows + 1);
  strides[x.rank() - 1] = -step;
  strides.push_back(step);
  checked_numel("toeplitz", shape);
  return view(x, shape, strides, x.offset() + (x.size(-1) > 0 ? (rows - 1) * step : 0));
}

void toeplitz_grad(const Tensor& dy, Into dx) {
  // Row t upside down and t zeros longer than the one before: read in rows that are one shorter, diagonals stand below each other.
  const Index rows = dy.size(-2), columns = dy.size(-1), n = rows + columns - 1;
  Shape shape = dx.tensor.shape();
  shape[shape.rank() - 1] = rows;
  shape.push_back(n);
  const Tensor skewed = reshape(slice(flatten(pad(flip(dy, {-2}), -1, 0, rows), -2, -1), -1, 0, rows * n), shape);
  sum_to(skewed, {unsqueeze(dx.tensor, -2), dx.add});
}

Tensor slice(const Tensor& x, int dim, Index start, Index stop, Index step) {
  const int axis = normalize_dim("slice", dim, x.shape());
  const Index n = x.shape()[axis];
  check<IndexError>(step != 0, "slice: step must not be 0: x {}, dim {}", x.shape(), dim);
  const auto [first, count] = Slice{start, stop, step}.of(n);
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[axis] = count;
  if (count > 1) strides[axis] *= step;
  return view(x, shape, strides, x.offset() + first * x.strides()[axis]);
}

Tensor select(const Tensor& x, int dim, Index index) {
  const int axis = normalize_dim("select", dim, x.shape());
  const Index n = x.shape()[axis];
  check<IndexError>(index >= -n && index < n, "select: index {} is not in [{}, {}): x {}, dim {}", index, -n, n, x.shape(),
                    dim);
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(axis);
  strides.erase(axis);
  return view(x, shape, strides, x.offset() + (index < 0 ? index + n : index) * x.strides()[axis]);
}

List<Tensor> split(const Tensor& x, Index count, int dim) {
  const Index n = x.shape()[normalize_dim("split", dim, x.shape())];
  check<ShapeError>(count > 0 && n % count == 0, "split: size {} at dim {} is not a multiple of {} parts: x {}", n, dim, count,
                    x.shape());
  check<ShapeError>(count <= std::max<Index>(n, 1 << 20), "split: too many parts: {}, x {}", count, x.shape());
  return split(x, List<Index>(size_t(count), n / count), dim);
}

List<Tensor> split(const Tensor& x, std::span<const Index> sizes, int dim) {
  const Index n = x.shape()[normalize_dim("split", dim, x.shape())];
  Index total = 0;
  for (Index size : sizes)
    check<ShapeError>(size >= 0, "split: sizes must not be negative: [{}], x {}, dim {}", fmt::join(sizes, ", "), x.shape(), dim);
  for (Index size : sizes) {
    check<ShapeError>(size <= n - total, "split: sizes [{}] do not add up to {}: x {}, dim {}",
                      fmt::join(sizes, ", "), n, x.shape(), dim);
    total += size;
  }
  check<ShapeError>(total == n, "split: sizes [{}] do not add up to {}: x {}, dim {}", fmt::join(sizes, ", "), n, x.shape(),
                    dim);
  List<Tensor> parts;
  parts.reserve(sizes.size());
  Index start = 0;
  for (Index size : sizes) { parts.push_back(slice(x, dim, start, start + size)); start += size; }
  return parts;
}

List<Tensor> unbind(const Tensor& x, int dim) {
  List<Tensor> parts;
  const Index n = x.shape()[normalize_dim("unbind", dim, x.shape())];
  for (Index i = 0; i < n; ++i) parts.push_back(select(x, dim, i));
  return parts;
}

Tensor concat(std::span<const Tensor> tensors, int dim) {
  check_same_dtype("concat", tensors);
  Shape shape = tensors[0].shape();
  const int axis = normalize_dim("concat", dim, shape);
  for (size_t k = 1; k < tensors.size(); ++k) {
    const Shape& other = tensors[k].shape();
    bool fits = other.rank() == shape.rank();
    for (int i = 0; fits && i < shape.rank(); ++i) fits = i == axis || other[i] == shape[i];
    check<ShapeError>(fits, "concat: shapes differ beside dim {}: tensor 0 {}, tensor {} {}", dim, tensors[0].shape(), k,
                      other);
    check<ShapeError>(!__builtin_add_overflow(shape[axis], other[axis], &shape[axis]), "concat: too many elements at dim {}", dim);
  }
  Tensor y = empty(shape, tensors[0].dtype());
  const Index calls = axis == 0 ? 0 : Index(tensors.size());   // for each row of the first axis
  parallel_for(shape[0], row_grain(y.numel() / std::max<Index>(4 * shape[0], 1) + 4 * calls), [&](Index begin, Index end) {
    Index start = 0;
    for (const Tensor& x : tensors) {
      const Index count = x.shape()[axis];
      if (axis != 0) {
        copy_into(slice(slice(y, 0, begin, end), axis, start, start + count), slice(x, 0, begin, end));
      } else if (const Index first = std::max(begin, start), last = std::min(end, start + count); first < last) {
        copy_into(slice(y, 0, first, last), slice(x, 0, first - start, last - start));
      }
      start += count;
    }
  });
  return y;
}

Tensor stack(std::span<const Tensor> tensors, int dim) {
  check_same_dtype("stack", tensors);
  for (size_t k = 1; k < tensors.size(); ++k)
    check<ShapeError>(tensors[k].shape() == tensors[0].shape(), "stack: shapes differ: tensor 0 {}, tensor {} {}",
                      tensors[0].shape(), k, tensors[k].shape());
  const int rank = tensors[0].rank() + 1;
  check<IndexError>(dim >= -rank && dim < rank, "stack: dim {} is not in [{}, {}): tensors {}", dim, -rank, rank,
                    tensors[0].shape());
  List<Tensor> parts;
  for (const Tensor& x : tensors) parts.push_back(unsqueeze(x, dim));
  return concat(parts, dim);
}

Tensor pad(const Tensor& x, int dim, Index before, Index after, double value) {
  const int axis = normalize_dim("pad", dim, x.shape());
  check<ShapeError>(before >= 0 && after >= 0, "pad: before {} and after {} must not be negative: x {}", before, after,
                    x.shape());
  check_fits("pad", value, x.dtype());
  const Index n = x.shape()[axis];
  Shape shape = x.shape();
  check<ShapeError>(!__builtin_add_overflow(before, n, &shape[axis]) && !__builtin_add_overflow(shape[axis], after, &shape[axis]),
                    "pad: too many elements: before {}, after {}, x {}", before, after, x.shape());
  Tensor y = empty(shape, x.dtype());
  fill_(slice(y, axis, 0, before), value);
  copy_into(slice(y, axis, before, before + n), x);
  fill_(slice(y, axis, before + n), value);
  return y;
}

namespace {

Index product(const Shape& shape, int first, int last) {
  return std::accumulate(shape.begin() + first, shape.begin() + last, Index{1}, std::multiplies<>());
}

}  // namespace

Tensor repeat(const Tensor& x, const Shape& counts) {
  const int added = counts.rank() - x.rank();
  check<ShapeError>(added >= 0, "repeat: fewer counts than axes: x {}, counts {}", x.shape(), counts);
  Shape shape = counts, repeated = counts;
  for (int axis = 0; axis < counts.rank(); ++axis) {
    check<ShapeError>(counts[axis] >= 0, "repeat: counts must not be negative: x {}, counts {}", x.shape(), counts);
    shape[axis] = axis < added ? 1 : x.shape()[axis - added];
    check<ShapeError>(!__builtin_mul_overflow(shape[axis], counts[axis], &repeated[axis]), "repeat: too many elements: x {}, counts {}",
                      x.shape(), counts);
  }
  checked_numel("repeat", repeated);
  Tensor y = reshape(x, shape);
  for (int axis = counts.rank(); axis-- > 0;) {
    if (counts[axis] == 1) continue;
    const Index before = product(shape, 0, axis), block = product(shape, axis, shape.rank());
    shape[axis] = repeated[axis];
    y = reshape(expand(reshape(y, {before, 1, block}), {before, counts[axis], block}), shape);
  }
  return y.storage() == x.storage() ? y.clone() : y;
}

void repeat_grad(const Tensor& dy, const Shape& counts, Into dx) {
  Tensor sums = dy;
  Shape shape = dy.shape();
  for (int axis = 0; axis < counts.rank(); ++axis) {
    if (counts[axis] == 1) continue;
    const int own = axis - (counts.rank() - dx.tensor.rank());
    shape[axis] = own < 0 ? 1 : dx.tensor.shape()[own];
    sums = sum(reshape(sums, {product(shape, 0, axis), counts[axis], product(shape, axis, shape.rank())}), 1);
  }
  add_into(reshape(sums, dx.tensor.shape()), dx);
}

Tensor tril(const Tensor& x, Index diagonal) { return keep_triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, Index diagonal) { return keep_triangle("triu", x, diagonal, false); }

}  // namespace heed
