// SPDX-License-Identifier: Apache-2.0
// Sizes and strides of a tensor, stored inline: at most 8 axes.
#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace heed {

inline constexpr int kMaxRank = 8;

// A short list of Index values: the sizes of a tensor, or its strides in elements.
class Shape {
 public:
  using value_type = Index;
  Shape() {}                                        // 0-d: one element
  Shape(std::initializer_list<Index> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const Index> sizes) {    // ShapeError beyond 8 axes
    if (sizes.size() > kMaxRank) [[unlikely]] refuse(sizes.size());
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
    rank_ = int(sizes.size());
  }

  int rank() const { return rank_; }
  Index operator[](int axis) const { return sizes_[std::size_t(axis)]; }      // 0 <= axis < rank
  Index& operator[](int axis) { return sizes_[std::size_t(axis)]; }
  Index operator()(int dim) const;                  // dim may be negative; IndexError
  const Index* begin() const { return sizes_.data(); }
  const Index* end() const { return sizes_.data() + rank_; }
  std::size_t size() const { return std::size_t(rank_); }
  void push_back(Index size) {
    if (rank_ == kMaxRank) [[unlikely]] refuse(kMaxRank + 1);
    sizes_[std::size_t(rank_++)] = size;
  }
  void insert(int axis, Index size);
  void erase(int axis);
  Index numel() const {                             // Π sizes, 1 for 0-d
    Index n = 1;
    for (Index size : *this) n *= size;
    return n;
  }
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  [[noreturn]] static void refuse(std::size_t axes);
  std::array<Index, kMaxRank> sizes_;   // beyond rank_ not set
  int rank_ = 0;
};

using Strides = Shape;

// A short list of dims, negative ones allowed: permute(x, {0, 2, 1}), sum(x, {-2, -1}), sum(x, 0); {} = none named.
class Dims {
 public:
  Dims() {}
  Dims(int dim) : count_(1) { dims_[0] = dim; }
  template <class N> requires std::same_as<N, bool> || std::floating_point<N> Dims(N) = delete;
  Dims(std::initializer_list<int> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  explicit Dims(std::span<const int> dims);         // ShapeError beyond 8
  int operator[](int i) const { return dims_[std::size_t(i)]; }
  const int* begin() const { return dims_.data(); }
  const int* end() const { return dims_.data() + count_; }
  int size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  std::array<int, kMaxRank> dims_;
  int count_ = 0;
};

// A bool that no number turns into: sum(x, 1, 2) does not compile, where it could be taken for a sum over two dims.
class Flag {
 public:
  template <std::same_as<bool> B> constexpr Flag(B value) : value_(value) {}
  constexpr operator bool() const { return value_; }

 private:
  bool value_;
};

Strides contiguous_strides(const Shape& shape);
Index checked_numel(std::string_view op, const Shape& shape);         // ShapeError on a negative size or beyond 2^62 bytes
[[noreturn]] void refuse_dim(std::string_view op, int dim, const Shape& shape);
inline int normalize_dim(std::string_view op, int dim, const Shape& shape) {   // -rank..rank-1 to 0..rank-1; IndexError
  const int axis = dim < 0 ? dim + shape.rank() : dim;
  if (axis < 0 || axis >= shape.rank()) [[unlikely]] refuse_dim(op, dim, shape);
  return axis;
}
inline Index Shape::operator()(int dim) const { return sizes_[std::size_t(normalize_dim("size", dim, *this))]; }
Shape position_of(Index flat, const Shape& shape);                    // of the element with this number in row-major order
// NumPy's rule; ShapeError with both shapes and what they are of
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b, std::string_view name_a = "a", std::string_view name_b = "b");
bool broadcasts_to(const Shape& from, const Shape& to);               // by that rule, `to` staying as it is
Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to);   // 0 where `from` is repeated
std::string to_string(const Shape& shape);                            // "[32, 7, 512]"
std::string to_string(const Dims& dims);                              // "[-2, -1]"

}  // namespace heed
