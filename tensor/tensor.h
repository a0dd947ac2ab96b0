// SPDX-License-Identifier: Apache-2.0
// Tensor: a value handle {storage, dtype, shape, strides, offset}. Copying shares the elements, clone() copies them.
// No gradients here: see autograd/variable.h.
#pragma once
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tensor/error.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace heed {

// One index of x(...): a position, a slice, a new axis, or an ellipsis standing for all axes not named.
// Slices follow Python's rule: negative start and stop count from the end, positions beyond an end are cut back to it.
struct Slice {
  static constexpr Index kFromStart = INT64_MIN, kToEnd = INT64_MAX;   // open: whole axis in the direction of step
  Index start = kFromStart, stop = kToEnd, step = 1;
  struct Positions { Index first, count; };
  Positions of(Index n) const;                                         // within an axis of n; step must not be 0
};
struct NewAxis {};
struct Ellipsis {};
inline constexpr Slice all{};
inline constexpr NewAxis newaxis{};
inline constexpr Ellipsis ellipsis{};
using Indexer = std::variant<Index, Slice, NewAxis, Ellipsis>;

class Tensor {
 public:
  Tensor() = default;                                    // no tensor: defined() is false
  Tensor(Storage storage, DType dtype, Shape shape, Strides strides, Index offset);   // in elements; checks nothing
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;          // reseats the handle; x[0] = y does not compile: copy_into(x[0], y)
  Tensor& operator=(Tensor&&) & noexcept = default;
  Tensor& operator=(const Tensor&) && = delete;

  bool defined() const { return bool(storage_); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }    // in elements
  int rank() const { return shape_.rank(); }
  Index size(int dim) const { return shape_(dim); }      // dim may be negative; IndexError
  Index numel() const { return shape_.numel(); }
  Index offset() const { return offset_; }
  const Storage& storage() const { return storage_; }
  bool is_contiguous() const;                            // row-major without gaps
  std::uint64_t version() const { return storage_.version(); }

  // Pointer to the first element; DTypeError unless T is the element type. mutable_data raises the version.
  template <class T> const T* data() const { return static_cast<const T*>(raw(dtype_of<T>)); }
  template <class T> T* mutable_data() const { return static_cast<T*>(mutable_raw(dtype_of<T>)); }
  // All elements in row-major order; ShapeError unless contiguous.
  template <class T> std::span<const T> span() const { return {static_cast<const T*>(contiguous_raw(dtype_of<T>)), std::size_t(numel())}; }
  template <class T> std::span<T> mutable_span() const {
    auto* const first = static_cast<T*>(contiguous_raw(dtype_of<T>));
    storage_.touch();
    return {first, std::size_t(numel())};
  }
  // The element of a tensor that has exactly one; ShapeError, DTypeError.
  template <class T> T item() const { return *static_cast<const T*>(item_raw(dtype_of<T>)); }
  double item() const;                                   // the same for any dtype
  template <class T> std::vector<T> to_vector() const;   // row-major copy; DTypeError

  Tensor operator[](Index i) const;                      // view of row i of dim 0; i may be negative; IndexError
  template <class... I> Tensor operator()(I... index) const { return indexed({Indexer(index)...}); }  // x(0, all, Slice{1, -1}), a view
  Tensor indexed(std::initializer_list<Indexer> index) const;

  Tensor clone() const;                                  // contiguous copy
  Tensor contiguous() const;                             // itself if contiguous, else a copy

  class Rows;
  Rows begin() const;                                    // for (Tensor row : x) iterates dim 0
  Rows end() const;

 private:
  void* raw(DType dtype) const {
    if (!defined() || dtype != dtype_) [[unlikely]] refuse_access(dtype);
    return storage_.data() + offset_ * Index(item_size(dtype));
  }
  void* mutable_raw(DType dtype) const {
    void* p = raw(dtype);
    storage_.touch();
    return p;
  }
  [[noreturn]] void refuse_access(DType dtype) const;
  void* contiguous_raw(DType dtype) const;
  void* item_raw(DType dtype) const;

  Storage storage_;
  Index offset_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::f32;
};

class Tensor::Rows {
 public:
  Rows(const Tensor* x, Index i) : x_(x), i_(i) {}
  Tensor operator*() const { return (*x_)[i_]; }
  Rows& operator++() { ++i_; return *this; }
  bool operator!=(const Rows& other) const { return i_ != other.i_; }

 private:
  const Tensor* x_;
  Index i_;
};
inline Tensor::Rows Tensor::begin() const { return {this, 0}; }
inline Tensor::Rows Tensor::end() const { return {this, size(0)}; }

// ---- making tensors -------------------------------------------------------------------------------------------------
Tensor empty(const Shape& shape, DType dtype = DType::f32);   // uninitialised
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
Tensor full(const Shape& shape, double value, DType dtype = DType::f32);              // DTypeError where it does not fit the dtype
// start, start + step, ... below stop; DTypeError likewise. Error: bounds that are not finite, a step of 0; ShapeError: too many
Tensor arange(double start, double stop, double step = 1, DType dtype = DType::i64);
// count >= 0 numbers at equal distances, both ends exactly; DTypeError, Error likewise
Tensor linspace(double start, double stop, Index count, DType dtype = DType::f32);
Tensor eye(Index n, DType dtype = DType::f32);
inline Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype()); }
inline Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype()); }

// tensor({{1, 2}, {3, 4}}): nested lists; a ragged row throws ShapeError with its position.
class Nested {
 public:
  Nested(double value) : value_(value), leaf_(true) {}
  Nested(std::initializer_list<Nested> items) : items_(items) {}
  bool leaf() const { return leaf_; }
  double value() const { return value_; }
  const std::vector<Nested>& items() const { return items_; }

 private:
  std::vector<Nested> items_;
  double value_ = 0;
  bool leaf_ = false;
};
Tensor tensor(const Nested& values, DType dtype = DType::f32);   // DTypeError where a value does not fit the dtype
template <class T> Tensor tensor(std::span<const T> values, const Shape& shape);  // copies; ShapeError unless counts agree
template <class T> Tensor tensor(const std::vector<T>& values, const Shape& shape) {
  static_assert(is_element<T>,
                "elements are float, double, BFloat16, std::int32_t, std::int64_t or std::uint8_t; convert the others before");
  return tensor(std::span<const T>(values), shape);
}

// x = y, y broadcast to x's shape, of one dtype (`to` converts); right when they overlap.
void copy_into(const Tensor& x, const Tensor& y);                // ShapeError, DTypeError
void fill_(const Tensor& x, double value);                       // every element of the view x; DTypeError where it does not fit
// f32 -> bf16 rounds to nearest even; float -> int saturates, NaN gives 0; int -> int wraps.
// x itself where it has the dtype
Tensor to(const Tensor& x, DType dtype);

// the same dtype, shape and bits of elements: a NaN equals one of its bits, 0 not -0
bool equal_bits(const Tensor& a, const Tensor& b);

// NumPy's form with summarised edges beyond 1000 elements; precision: digits after the point, -1 = shortest that tells 4 digits.
std::string to_string(const Tensor& x, int precision = -1);
std::ostream& operator<<(std::ostream& out, const Tensor& x);    // to_string(x)

}  // namespace heed
