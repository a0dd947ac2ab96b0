// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "tensor/convert.h"
#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/into.h"
#include "tensor/parallel.h"
#include "tensor/row.h"

namespace heed {

Tensor::Tensor(Storage storage, DType dtype, Shape shape, Strides strides, Index offset)
    : storage_(std::move(storage)), offset_(offset), shape_(shape), strides_(strides), dtype_(dtype) {}

bool Tensor::is_contiguous() const {
  Index step = 1;
  bool dense = true;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    dense &= shape_[axis] == 1 || strides_[axis] == step;
    step *= shape_[axis];
  }
  return dense || step == 0;
}

// ---- typed access ---------------------------------------------------------------------------------------------------

void Tensor::refuse_access(DType dtype) const {
  check<Error>(defined(), "data: the tensor is empty (default constructed)");
  fail<DTypeError>("data: asked for {} elements of a tensor of {}", dtype, dtype_);
}

void* Tensor::contiguous_raw(DType dtype) const {
  void* p = raw(dtype);
  check<ShapeError>(is_contiguous(), "span: needs a contiguous tensor: shape {}, strides {}; use contiguous()", shape_, strides_);
  return p;
}

void* Tensor::item_raw(DType dtype) const {
  check<Error>(defined(), "item: the tensor is empty (default constructed)");
  check<ShapeError>(numel() == 1, "item: needs exactly one element: shape {}", shape_);
  check<DTypeError>(dtype == dtype_, "item: asked for an {} element of a tensor of {}; item() gives any as a double", dtype, dtype_);
  return raw(dtype);
}

double Tensor::item() const {
  return visit_any(dtype_, [&]<class T>() {
    const T value = *static_cast<const T*>(item_raw(dtype_of<T>));
    if constexpr (std::is_same_v<T, BFloat16>) return double(float(value));
    else return double(value);
  });
}

template <class T> std::vector<T> Tensor::to_vector() const {
  raw(dtype_of<T>);
  const Tensor x = contiguous();
  const auto values = x.span<T>();
  return {values.begin(), values.end()};
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;
template std::vector<std::int32_t> Tensor::to_vector() const;
template std::vector<std::int64_t> Tensor::to_vector() const;
template std::vector<std::uint8_t> Tensor::to_vector() const;

// ---- views ----------------------------------------------------------------------------------------------------------

Slice::Positions Slice::of(Index n) const {
  const Index low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto bound = [&](Index i) { return std::clamp(i < 0 ? i + n : i, low, high); };
  const Index first = start == kFromStart ? (step > 0 ? low : high) : bound(start);
  const Index end = stop == kToEnd ? (step > 0 ? high : low) : bound(stop);
  const Index length = step > 0 ? end - first : first - end, stride = step > 0 ? step : -std::max(step, -kToEnd);
  return length > 0 ? Positions{first, (length - 1) / stride + 1} : Positions{0, 0};
}

Tensor Tensor::operator[](Index i) const {
  check<Error>(defined(), "index: the tensor is empty (default constructed): index {}", i);
  check<IndexError>(rank() > 0, "index: a tensor of rank 0 has no rows: index {}, shape {}", i, shape_);
  const Index n = shape_[0];
  check<IndexError>(i >= -n && i < n, "index: {} at dim 0 is not in [{}, {}): shape {}", i, -n, n, shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  shape.erase(0);
  strides.erase(0);
  return {storage_, dtype_, shape, strides, offset_ + (i < 0 ? i + n : i) * strides_[0]};
}

Tensor Tensor::indexed(std::initializer_list<Indexer> index) const {
  int named = 0, ellipses = 0;
  for (const Indexer& one : index) {
    named += std::holds_alternative<Index>(one) || std::holds_alternative<Slice>(one);
    ellipses += std::holds_alternative<Ellipsis>(one);
  }
  check<IndexError>(ellipses <= 1, "index: at most one ellipsis: {} given", ellipses);
  check<Error>(defined() || named == 0, "index: the tensor is empty (default constructed): {} indices", named);
  check<IndexError>(named <= rank(), "index: {} indices for {} dims: shape {}", named, rank(), shape_);
  Shape shape;
  Strides strides;
  Index offset = offset_;
  int axis = 0;
  const auto keep = [&](Index size, Index stride) { shape.push_back(size); strides.push_back(stride); };
  for (const Indexer& one : index) {
    if (std::holds_alternative<NewAxis>(one)) {
      keep(1, 0);
    } else if (std::holds_alternative<Ellipsis>(one)) {
      for (const int end = axis + rank() - named; axis < end; ++axis) keep(shape_[axis], strides_[axis]);
    } else if (const Index* position = std::get_if<Index>(&one)) {
      const Index n = shape_[axis];
      check<IndexError>(*position >= -n && *position < n, "index: {} at dim {} is not in [{}, {}): shape {}", *position, axis, -n, n,
                        shape_);
      offset += (*position < 0 ? *position + n : *position) * strides_[axis++];
    } else {
      const Slice slice = std::get<Slice>(one);
      const Index n = shape_[axis], step = slice.step;
      check<IndexError>(step != 0, "index: slice step 0 at dim {}: shape {}", axis, shape_);
      const auto [first, count] = slice.of(n);
      offset += first * strides_[axis];
      keep(count, count > 1 ? strides_[axis] * step : strides_[axis]);
      ++axis;
    }
  }
  for (; axis < rank(); ++axis) keep(shape_[axis], strides_[axis]);
  return {storage_, dtype_, shape, strides, offset};
}

Tensor Tensor::clone() const {
  check<Error>(defined(), "clone: the tensor is empty (default constructed)");
  Tensor y = empty(shape_, dtype_);
  copy_into(y, *this);
  return y;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

// ---- making ---------------------------------------------------------------------------------------------------------

Tensor empty(const Shape& shape, DType dtype) {
  const Index n = checked_numel("empty", shape);
  return {Storage(std::size_t(n) * item_size(dtype)), dtype, shape, contiguous_strides(shape), 0};
}

Tensor zeros(const Shape& shape, DType dtype) {
  Tensor x = empty(shape, dtype);
  parallel_for(Index(x.storage().bytes()), 1 << 18, [data = x.storage().data()](Index begin, Index end) {
    std::memset(data + begin, 0, std::size_t(end - begin));
  });
  return x;
}

Tensor full(const Shape& shape, double value, DType dtype) {
  check_fits("full", value, dtype);
  Tensor x = empty(shape, dtype);
  fill_(x, value);
  return x;
}

Tensor ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor arange(double start, double stop, double step, DType dtype) {
  check<Error>(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
               "arange: needs finite bounds and a step that is not 0: start {}, stop {}, step {}", start, stop, step);
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  check<ShapeError>(count < 9e15, "arange: too many elements: start {}, stop {}, step {}", start, stop, step);
  Tensor x = empty({Index(count)}, dtype);
  const auto value = [=](Index i) { return start + double(i) * step; };
  // Integers below 2⁵³ are exact as f64: all fit if the first and the last do.
  const bool whole = std::trunc(start) == start && std::trunc(step) == step &&
                     std::max({std::abs(start), std::abs(stop), std::abs(step)}) < 0x1p53 && fits(start, dtype) &&
                     fits(value(Index(count) - 1), dtype);
  visit_any(dtype, [&]<class T>() {
    T* p = x.mutable_data<T>();
    if constexpr (std::is_integral_v<T>)
      if (!whole) {
        for (Index i = 0; i < Index(count); ++i) {
          check_fits("arange", value(i), dtype);
          p[i] = convert<T>(value(i));
        }
        return;
      }
    parallel_for(Index(count), 65536, [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        if constexpr (std::is_integral_v<T>) p[i] = T(Index(start) + i * Index(step));
        else p[i] = convert<T>(value(i));
    });
  });
  return x;
}

Tensor linspace(double start, double stop, Index count, DType dtype) {
  check<Error>(std::isfinite(stop - start), "linspace: needs finite bounds and distance: start {}, stop {}", start, stop);
  check<ShapeError>(count >= 0, "linspace: the count must not be negative: {}", count);
  const double step = count > 1 ? (stop - start) / double(count - 1) : 0;
  const Tensor x = empty({count}, dtype);
  visit_any(dtype, [&]<class T>() {
    T* const p = x.mutable_data<T>();
    for (Index i = 0; i < count; ++i) {
      const double value = 2 * i < count ? start + double(i) * step : stop - double(count - 1 - i) * step;   // from the nearer end
      check_fits("linspace", value, dtype);
      p[i] = convert<T>(value);
    }
  });
  return x;
}

Tensor eye(Index n, DType dtype) {
  Tensor x = zeros({n, n}, dtype);
  fill_(Tensor(x.storage(), dtype, {n}, {n + 1}, 0), 1);
  return x;
}

namespace {

void nested_shape(const Nested& values, Shape& shape) {
  if (values.leaf()) return;
  shape.push_back(Index(values.items().size()));
  if (!values.items().empty()) nested_shape(values.items()[0], shape);
}

template <class T> void nested_copy(const Nested& values, const Shape& shape, int axis, const std::string& where, T*& out) {
  if (values.leaf() || axis == shape.rank()) {
    check<ShapeError>(values.leaf() && axis == shape.rank(), "tensor: ragged nesting at [{}]: expected shape {}", where, shape);
    check<DTypeError>(fits(values.value(), dtype_of<T>), "tensor: {} at [{}] does not fit {}", values.value(), where, dtype_of<T>);
    *out++ = convert<T>(values.value());
    return;
  }
  check<ShapeError>(Index(values.items().size()) == shape[axis], "tensor: ragged row at [{}]: {} items, expected {}: shape {}", where,
                    values.items().size(), shape[axis], shape);
  for (std::size_t i = 0; i < values.items().size(); ++i)
    nested_copy(values.items()[i], shape, axis + 1, where + (where.empty() ? "" : ", ") + std::to_string(i), out);
}

}  // namespace

Tensor tensor(const Nested& values, DType dtype) {
  Shape shape;
  nested_shape(values, shape);
  Tensor x = empty(shape, dtype);
  visit_any(dtype, [&]<class T>() {
    T* out = x.mutable_data<T>();
    nested_copy(values, shape, 0, "", out);
  });
  return x;
}

template <class T> Tensor tensor(std::span<const T> values, const Shape& shape) {
  check<ShapeError>(checked_numel("tensor", shape) == Index(values.size()), "tensor: {} values for shape {}", values.size(), shape);
  Tensor x = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(x.mutable_data<T>(), values.data(), values.size_bytes());
  return x;
}
template Tensor tensor(std::span<const float>, const Shape&);
template Tensor tensor(std::span<const double>, const Shape&);
template Tensor tensor(std::span<const BFloat16>, const Shape&);
template Tensor tensor(std::span<const std::int32_t>, const Shape&);
template Tensor tensor(std::span<const std::int64_t>, const Shape&);
template Tensor tensor(std::span<const std::uint8_t>, const Shape&);

// ---- copying --------------------------------------------------------------------------------------------------------

namespace {

// Two operands of one shape: axes in the order of a's memory, those of size 1 dropped, neighbouring ones merged where both allow it.
struct Pair {
  Shape shape;
  Strides a, b;
};

Pair merge_axes(const Shape& shape, const Strides& a, const Strides& b) {
  std::array<int, kMaxRank> order;
  int count = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    int at = count++;
    for (; at > 0 && std::abs(a[order[std::size_t(at - 1)]]) < std::abs(a[axis]); --at) order[std::size_t(at)] = order[std::size_t(at - 1)];
    order[std::size_t(at)] = axis;
  }
  Pair out;
  for (const int axis : std::span(order).first(std::size_t(count))) {
    const int last = out.shape.rank() - 1;
    if (last >= 0 && out.a[last] == a[axis] * shape[axis] && out.b[last] == b[axis] * shape[axis]) {
      out.shape[last] *= shape[axis];
      out.a[last] = a[axis];
      out.b[last] = b[axis];
    } else {
      out.shape.push_back(shape[axis]);
      out.a.push_back(a[axis]);
      out.b.push_back(b[axis]);
    }
  }
  if (out.shape.rank() == 0) { out.shape.push_back(1); out.a.push_back(1); out.b.push_back(1); }
  return out;
}

// Calls row(offset_a, offset_b) for every index of all axes but the last `inner`, in order.
template <class Row> void for_rows(const Pair& p, int inner, Index first, Index last, Row&& row) {
  const int outer = p.shape.rank() - inner;
  Shape index;
  for (int axis = 0; axis < outer; ++axis) index.push_back(0);
  Index rest = first, a = 0, b = 0;
  for (int axis = outer - 1; axis >= 0; --axis) {
    index[axis] = rest % p.shape[axis];
    rest /= p.shape[axis];
    a += index[axis] * p.a[axis];
    b += index[axis] * p.b[axis];
  }
  for (Index i = first; i < last; ++i) {
    row(a, b);
    for (int axis = outer - 1; axis >= 0; --axis) {
      a += p.a[axis];
      b += p.b[axis];
      if (++index[axis] < p.shape[axis]) break;
      a -= index[axis] * p.a[axis];
      b -= index[axis] * p.b[axis];
      index[axis] = 0;
    }
  }
}

// A transposition, in strips of 16 rows: in registers, or in blocks that stay in the first-level cache.
template <class To, class From> void copy_turned(To* to, const From* from, const Pair& p) {
  const int rank = p.shape.rank();
  const Index m = p.shape[rank - 2], n = p.shape[rank - 1], stride_to = p.a[rank - 2], step_from = p.b[rank - 1];
  const ConvertRow convert_row = conversion(dtype_of<To>, dtype_of<From>);
  constexpr bool kTurns = sizeof(From) == 4 || sizeof(From) == 8;
  const auto turn = [](const From* source, Index step, Index depth, Index count, Index width, From* target) {
    using Bits = std::conditional_t<sizeof(From) == 4, float, double>;
    gemm_kernels<Bits>().turn(reinterpret_cast<const Bits*>(source), step, depth, count, width, reinterpret_cast<Bits*>(target));
  };
  Index squares = 1;
  for (int axis = 0; axis + 2 < rank; ++axis) squares *= p.shape[axis];
  constexpr Index kWide = 4096;   // columns of one task
  const Index strips = divide_up(m, 16), parts = divide_up(n, kWide);
  parallel_for(squares * strips * parts, row_grain(16 * std::min(n, kWide)), [&](Index begin, Index end) {
    for (Index s = begin; s < end; ++s)
      for_rows(p, 2, s / parts / strips, s / parts / strips + 1, [&](Index a, Index b) {
        const Index i0 = s / parts % strips * 16, i1 = std::min(m, i0 + 16), first = s % parts * kWide,
                    columns = std::min(kWide, n - first);
        To* const target = to + a + i0 * stride_to + first;
        const From* const source = from + b + i0 + first * step_from;
        if constexpr (std::is_same_v<To, From> && kTurns) return turn(source, step_from, i1 - i0, columns, stride_to, target);
        From block[16 * 64];
        for (Index j0 = 0; j0 < columns; j0 += 64) {
          const Index count = std::min<Index>(64, columns - j0);
          if constexpr (kTurns) turn(source + j0 * step_from, step_from, i1 - i0, count, 64, block);
          else
            for (Index j = 0; j < count; ++j)
              for (Index i = 0; i < i1 - i0; ++i) block[i * 64 + j] = source[i + (j0 + j) * step_from];
          for (Index i = 0; i < i1 - i0; ++i) convert_row(block + i * 64, std::size_t(count), target + i * stride_to + j0);
        }
      });
  });
}

template <class To, class From> void copy_strided(To* to, const From* from, const Pair& p) {
  const int rank = p.shape.rank();
  const Index n = p.shape[rank - 1], step_to = p.a[rank - 1], step_from = p.b[rank - 1];
  if (rank >= 2 && step_to == 1 && std::abs(step_from) > 1 && p.b[rank - 2] == 1) return copy_turned(to, from, p);
  Index rows = 1;
  for (int axis = 0; axis + 1 < rank; ++axis) rows *= p.shape[axis];
  const ConvertRow convert_row = conversion(dtype_of<To>, dtype_of<From>), reverse_row = reversal(sizeof(From));
  if constexpr (std::is_same_v<To, From>)
    if (rank >= 2 && step_to == 1 && step_from == 1 && p.a[rank - 2] == n && p.b[rank - 2] == 0) {   // rows all the same
      const Index m = p.shape[rank - 2];
      return parallel_for(rows, row_grain(n / 4 + 4), [&](Index begin, Index end) {
        for (Index r = begin, some; r < end; r += some) {
          some = std::min(end - r, m - r % m);
          for_rows(p, 1, r, r + 1, [&](Index a, Index b) { repeat_row(from + b, n, some, to + a); });
        }
      });
    }
  const auto run = [&](Index a, Index b, Index count) {
    if (step_to == 1 && step_from == 1) {
      if constexpr (std::is_same_v<To, From>) std::memcpy(to + a, from + b, std::size_t(count) * sizeof(To));
      else convert_row(from + b, std::size_t(count), to + a);
    } else if (step_to == 1 && step_from == 0) {
      fill_row(convert<To>(from[b]), count, to + a);
    } else if (std::is_same_v<To, From> && step_to == 1 && step_from == -1) {
      reverse_row(from + b, std::size_t(count), to + a);
    } else {
      for (Index j = 0; j < count; ++j) to[a + j * step_to] = convert<To>(from[b + j * step_from]);
    }
  };
  if (rows == 1) {
    parallel_for(n, 32768, [&](Index begin, Index end) { run(begin * step_to, begin * step_from, end - begin); });
    return;
  }
  parallel_for(rows, row_grain(n / 4 + 4), [&](Index begin, Index end) {
    for_rows(p, 1, begin, end, [&](Index a, Index b) { run(a, b, n); });
  });
}

// First and last element, as offsets into the storage.
std::pair<Index, Index> extent(const Tensor& x) {
  Index first = x.offset(), last = x.offset();
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Index reach = (x.shape()[axis] - 1) * x.strides()[axis];
    (reach < 0 ? first : last) += reach;
  }
  return {first, last};
}

// Largest offset within a row of length `row` that an element has, its axes that step by whole rows left out; -1: unknown.
Index width(const Tensor& x, Index row) {
  Index last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Index stride = x.strides()[axis];
    if (stride % row == 0 || x.shape()[axis] == 1) continue;
    if (stride < 0) return -1;
    last += (x.shape()[axis] - 1) * stride;
  }
  return last;
}

Tensor broadcast_to(std::string_view op, const Tensor& y, const Shape& shape) {
  check<ShapeError>(broadcasts_to(y.shape(), shape), "{}: cannot broadcast y {} to x {}", op, y.shape(), shape);
  return {y.storage(), y.dtype(), shape, broadcast_strides(y.shape(), y.strides(), shape), y.offset()};
}

void copy_converting(const Tensor& x, const Tensor& y) {
  const Pair pair = merge_axes(x.shape(), x.strides(), y.strides());
  if (x.numel() == 0) return;
  visit_any(x.dtype(), [&]<class To>() {
    visit_any(y.dtype(), [&]<class From>() { copy_strided(x.mutable_data<To>(), y.data<From>(), pair); });
  });
}

}  // namespace

void check_writable(std::string_view op, const Tensor& x) {
  if (x.numel() == 0) return;
  // an axis must step over all that those of smaller steps reach
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.shape()[axis] == 1) continue;
    Index reach = 0;
    for (int other = 0; other < x.rank(); ++other)
      if (std::pair(std::abs(x.strides()[other]), other) < std::pair(std::abs(x.strides()[axis]), axis))
        reach += (x.shape()[other] - 1) * std::abs(x.strides()[other]);
    check<Error>(std::abs(x.strides()[axis]) > reach, "{}: writes through a view whose elements share memory: shape {}, strides {}", op,
                 x.shape(), x.strides());
  }
}

void check_like(std::string_view op, std::string_view name, const Tensor& a, const Tensor& x) {
  check<ShapeError>(a.shape() == x.shape(), "{}: shapes differ: {} {}, x {}", op, name, a.shape(), x.shape());
  check<DTypeError>(a.dtype() == x.dtype(), "{}: dtypes differ: {} {}, x {}", op, name, a.dtype(), x.dtype());
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!(a.storage() == b.storage()) || a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_first, a_last] = extent(a);
  const auto [b_first, b_last] = extent(b);
  if (a_last < b_first || b_last < a_first) return false;
  if (a.rank() < 2 || b.rank() < 2) return true;
  const Index row = a.strides()[a.rank() - 2];
  if (row <= 0 || b.strides()[b.rank() - 2] != row) return true;
  const Index a_width = width(a, row), b_width = width(b, row), apart = ((b.offset() - a.offset()) % row + row) % row;
  return a_width < 0 || b_width < 0 || apart <= a_width || apart + b_width >= row;     // columns, taken modulo the row
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined() || a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return !a.defined() || visit_any(a.dtype(), [&]<class T>() {
    const Tensor x = a.contiguous(), y = b.contiguous();
    return x.numel() == 0 || std::memcmp(x.data<T>(), y.data<T>(), std::size_t(x.numel()) * sizeof(T)) == 0;
  });
}

void copy_into(const Tensor& x, const Tensor& y) {
  check<Error>(x.defined() && y.defined(), "copy_into: an operand is empty (default constructed)");
  check<DTypeError>(x.dtype() == y.dtype(), "copy_into: dtypes differ: x {}, y {}; use to(y, dtype)", x.dtype(), y.dtype());
  check_writable("copy_into", x);
  Tensor source = broadcast_to("copy_into", y, x.shape());
  if (x.numel() == 0) return;
  if (may_overlap(x, source)) {
    if (x.offset() == source.offset() && x.strides() == source.strides()) return;
    source = source.clone();
  }
  copy_converting(x, source);
}

void copy_each(std::vector<std::pair<Tensor, Tensor>> to_from) {
  std::set<const void*> written;
  for (const auto& [to, from] : to_from) written.insert(to.storage().data());
  for (auto& [to, from] : to_from)
    if (written.contains(from.storage().data()) && !(to.storage() == from.storage() && to.offset() == from.offset())) from = from.clone();
  for (const auto& [to, from] : to_from) copy_into(to, from);
}

void fill_(const Tensor& x, double value) {
  check<Error>(x.defined(), "fill_: the tensor is empty (default constructed)");
  check_writable("fill_", x);
  check_fits("fill_", value, x.dtype());
  visit_any(x.dtype(), [&]<class T>() {
    const T one = convert<T>(value);
    T* p = x.mutable_data<T>();
    const Pair pair = merge_axes(x.shape(), x.strides(), x.strides());
    const int rank = pair.shape.rank();
    const Index n = pair.shape[rank - 1], step = pair.a[rank - 1];
    if (x.numel() == 0) return;
    if (x.numel() == n && step == 1) return parallel_for(n, 65536, [&](Index begin, Index end) { fill_row(one, end - begin, p + begin); });
    parallel_for(x.numel() / n, row_grain(n / 4 + 4), [&](Index begin, Index end) {
      for_rows(pair, 1, begin, end, [&](Index a, Index) {
        if (step == 1) fill_row(one, n, p + a);
        else for (Index j = 0; j < n; ++j) p[a + j * step] = one;
      });
    });
  });
}

Tensor to(const Tensor& x, DType dtype) {
  check<Error>(x.defined(), "to: the tensor is empty (default constructed)");
  if (x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), dtype);
  copy_converting(y, x);
  return y;
}

}  // namespace heed
