// SPDX-License-Identifier: Apache-2.0
// What the host side of kernel files shares.
#pragma once
#include <type_traits>

#include "tensor/into.h"

namespace heed {

// The kernel of element type T: pick<T>(&HWY_DYNAMIC_DISPATCH(FooF32), &HWY_DYNAMIC_DISPATCH(FooF64)).
template <class T, class F32, class F64> constexpr auto pick(F32 f32, F64 f64) {
  if constexpr (std::is_same_v<T, float>) return f32;
  else return f64;
}

// Contiguous memory for a kernel that writes to an Into: its tensor, or a copy which finish() puts in place.
class Destination {
 public:
  // copy: in any case a copy, since another destination of the kernel may share its memory
  explicit Destination(const Into& into, bool copy = false)
      : into_(into), direct_(!copy && into.tensor.is_contiguous()),
        tensor_(direct_ ? into.tensor : empty(into.tensor.shape(), into.tensor.dtype())) {}
  const Tensor& tensor() const { return tensor_; }
  bool add() const { return direct_ && into_.add; }         // the kernel adds; else it overwrites
  void finish() const;

 private:
  Into into_;
  bool direct_;
  Tensor tensor_;
};

}  // namespace heed
