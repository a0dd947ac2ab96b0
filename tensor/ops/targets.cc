// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/targets.h"

#include <numeric>

#include "tensor/format.h"

namespace heed {

Targets read_targets(const char* op, const Tensor& targets, const Shape& rows, Index V, Index ignore_index, Index pad) {
  check<DTypeError>(targets.dtype() == DType::i32 || targets.dtype() == DType::i64,
                    "{}: targets need dtype i32 or i64: {}; soft_cross_entropy takes probabilities", op, targets.dtype());
  check<ShapeError>(targets.shape() == rows, "{}: targets do not fit the rows: targets {}, rows {}", op, targets.shape(), rows);
  const Tensor labels = to(targets, DType::i64).contiguous();
  Targets out{{labels.span<Index>().begin(), labels.span<Index>().end()}};
  for (std::size_t i = 0; i < out.label.size(); ++i) {
    Index& label = out.label[i];
    if (label == ignore_index || (pad >= 0 && label == pad)) {
      label = -1;
      continue;
    }
    if (label < 0 || label >= V) {
      fail<IndexError>("{}: target {} at position {} is not in [0, {})", op, label, position_of(Index(i), rows), V);
    }
    ++out.count;
  }
  return out;
}

Tensor read_class_weight(const char* op, const Tensor& weight, Index V, DType dtype) {
  if (!weight.defined()) return weight;
  check<ShapeError>(weight.shape() == Shape{V}, "{}: weight needs one number a class: weight {}, {} classes", op, weight.shape(), V);
  check<DTypeError>(weight.dtype() == dtype, "{}: dtypes differ: rows {}, weight {}", op, dtype, weight.dtype());
  return weight.contiguous();
}

double weight_of(const Targets& targets, const Tensor& weight) {
  if (!weight.defined()) return double(targets.count);
  return visit_float(weight.dtype(), "weight", [&]<class T>() {
    const T* const w = weight.data<T>();
    return std::accumulate(targets.label.begin(), targets.label.end(), 0.0,
                           [w](double sum, Index label) { return label < 0 ? sum : sum + double(w[label]); });
  });
}

}  // namespace heed
