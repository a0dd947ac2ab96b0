// SPDX-License-Identifier: Apache-2.0
// The labels that losses of classes are given.
#pragma once
#include "tensor/list.h"
#include "tensor/tensor.h"

namespace heed {

// Targets as class of each row, -1 where the row is ignored.
struct Targets {
  List<Index> label;
  Index count = 0;    // of those not ignored
};
// Of targets i32 or i64 of shape `rows`: ignored are ignore_index and, from 0 on, pad. ShapeError, DTypeError, IndexError outside [0, V).
Targets read_targets(const char* op, const Tensor& targets, const Shape& rows, Index V, Index ignore_index, Index pad = -1);

// w of each class, dense, or undefined. ShapeError, DTypeError unless [V] of the dtype.
Tensor read_class_weight(const char* op, const Tensor& weight, Index V, DType dtype);
// Σ w_y of the rows that are not ignored, y their labels; their number without a weight
double weight_of(const Targets& targets, const Tensor& weight);

}  // namespace heed
