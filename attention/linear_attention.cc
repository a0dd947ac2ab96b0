// SPDX-License-Identifier: Apache-2.0
#include "attention/linear_attention.h"

#include "autograd/ops.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/causal_product.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// [v, 1]: what the last column sums is what contexts are divided by.
Variable with_ones(const Variable& v) {
  check<ShapeError>(v.rank() >= 1, "linear attention: v needs rows [.., S, d]: {}", v.shape());
  Shape shape = v.shape();
  shape[v.rank() - 1] = 1;
  return concat({v, constant(ones(shape, v.value().dtype()))}, -1);
}

Variable divided(const Variable& y, double least) { return slice(y, -1, 0, -1) / maximum(slice(y, -1, -1), least); }

}  // namespace

Variable linear_features(const Variable& x) { return elu(x) + 1; }

Variable without_padding(const Variable& k, const Mask& mask, double value) {
  if (!mask.lengths().defined()) return k;
  const Index B = k.size(0), S = k.size(2);
  return masked_fill(k, reshape(logical_not(Mask::lengths(mask.lengths()).dense({B, S})), {B, 1, S, 1}), value);
}

Variable linear_sums(const Variable& k, const Variable& v) { return matmul(transpose(k), with_ones(v)); }

Variable linear_context(const Variable& q, const Variable& sums, double least) { return divided(matmul(q, sums), least); }

Variable causal_linear_context(const Variable& q, const Variable& k, const Variable& v, double least) {
  return divided(causal_product(q, k, with_ones(v)), least);
}

Tensor causal_linear_context_next(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, double least) {
  return divided(constant(causal_product_next(q, k, with_ones(constant(v)).value(), sums)), least).value();
}

Variable linear_weights(const Variable& scores, const Mask& mask, double least) {
  const Variable seen = masked_fill(scores, logical_not(mask.dense(scores.shape())), 0);
  return seen / maximum(sum(seen, {-1}, true), least);
}

}  // namespace heed
