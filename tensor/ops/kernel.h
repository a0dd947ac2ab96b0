// SPDX-License-Identifier: Apache-2.0
// What the host side of kernel files shares.
#pragma once
#include <array>
#include <type_traits>

#include "tensor/ops/binary.h"

namespace heed {

// The kernel of element type T: pick<T>(HWY_DYNAMIC_POINTER(FooF32), HWY_DYNAMIC_POINTER(FooF64)).
template <class T, class F32, class F64> constexpr auto pick(F32 f32, F64 f64) {
  if constexpr (std::is_same_v<T, float>) return f32;
  else return f64;
}

inline bool has_dense_rows(const Tensor& x) { return x.rank() == 0 || x.size(-1) <= 1 || x.strides()[x.rank() - 1] == 1; }
inline Tensor with_dense_rows(const Tensor& x) { return has_dense_rows(x) ? x : x.contiguous(); }   // a copy where they are not

// The elements of an operand that may be left out; null where it is.
template <class T> const T* data_or_null(const Tensor& x) { return x.defined() ? x.data<T>() : nullptr; }
template <class T> T* mutable_data_or_null(const Tensor& x) { return x.defined() ? x.mutable_data<T>() : nullptr; }

// Contiguous memory for a kernel that writes to an Into: its tensor, or a copy which finish() puts in place.
class Destination {
 public:
  // copy: in any case a copy, since another destination of the kernel may share its memory
  explicit Destination(const Into& into, bool copy = false)
      : into_(into), direct_(!copy && into.tensor.is_contiguous()),
        tensor_(direct_ ? into.tensor : empty(into.tensor.shape(), into.tensor.dtype())) {}
  const Tensor& tensor() const { return tensor_; }
  bool add() const { return direct_ && into_.add; }         // the kernel adds; else it overwrites
  void finish() const { if (!direct_) add_into(tensor_, into_); }

 private:
  Into into_;
  bool direct_;
  Tensor tensor_;
};

// Several destinations of one kernel, null where not wanted: memory with contiguous rows that overlaps no other's; copies where
// the tensors themselves are not so. finish() puts the copies in place, in order.
template <std::size_t N> class RowDestinations {
 public:
  explicit RowDestinations(const std::array<const Into*, N>& into) : into_(into) {
    for (std::size_t i = 0; i < N; ++i) {
      if (!into[i]) continue;
      const Tensor& x = into[i]->tensor;
      direct_[i] = has_dense_rows(x);
      for (std::size_t j = 0; j < i; ++j) direct_[i] &= !(into[j] && may_overlap(x, into[j]->tensor));
      tensors_[i] = direct_[i] ? x : empty(x.shape(), x.dtype());
    }
  }
  bool wanted(std::size_t i) const { return into_[i]; }
  bool add(std::size_t i) const { return into_[i] && direct_[i] && into_[i]->add; }
  const Tensor& tensor(std::size_t i) const { return tensors_[i]; }
  void finish() const {
    for (std::size_t i = 0; i < N; ++i)
      if (into_[i] && !direct_[i]) add_into(tensors_[i], *into_[i]);
  }

 private:
  std::array<const Into*, N> into_;
  std::array<bool, N> direct_{};
  std::array<Tensor, N> tensors_;
};

}  // namespace heed
