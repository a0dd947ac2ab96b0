// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent.h"

#include "tensor/format.h"

namespace heed {
namespace {

// h, c, weight_hh and bias_hh beside rows of gates
void check_states(const char* op, RecurrentUnit unit, Index B, const char* beside, const Tensor& x, const Tensor& h, const Tensor& c,
                  const Tensor& weight_hh, const Tensor& bias_hh) {
  const Index gates = gate_count(unit);
  check<ShapeError>(weight_hh.rank() == 2 && weight_hh.size(0) == gates * weight_hh.size(1), "{}: weight_hh must be [{} n, n]: {} {}, weight_hh {}", op,
                    gates, beside, x.shape(), weight_hh.shape());
  const Index n = weight_hh.size(1);
  const auto like = [&](const char* name, const Tensor& y, const Shape& shape) {
    if (!y.defined()) return;
    check<ShapeError>(y.shape() == shape, "{}: {} must be {}: {} {}, weight_hh {}, {} {}", op, name, shape, beside, x.shape(), weight_hh.shape(), name,
                      y.shape());
    check<DTypeError>(y.dtype() == x.dtype(), "{}: dtypes differ: {} {}, {} {}", op, beside, x.dtype(), name, y.dtype());
  };
  check<DTypeError>(is_float(x.dtype()) && x.dtype() == weight_hh.dtype(), "{}: dtypes differ or are no floats: {} {}, weight_hh {}", op, beside, x.dtype(),
                    weight_hh.dtype());
  like("h", h, {B, n});
  like("c", c, {B, n});
  like("bias_hh", bias_hh, {gates * n});
  check<ShapeError>(!c.defined() || unit == RecurrentUnit::lstm, "{}: only an lstm has a state c: {} {}, c {}", op, beside, x.shape(), c.shape());
  check<ShapeError>(!bias_hh.defined() || !resets_before(unit), "{}: this form of the GRU has one bias: {} {}, bias_hh {}", op, beside, x.shape(),
                    bias_hh.shape());
}

}  // namespace

void check_recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh, const Tensor& bias_hh) {
  const char* op = "recurrent_cell";
  check<ShapeError>(gates.rank() == 2 && weight_hh.rank() == 2 && gates.size(1) == weight_hh.size(0),
                    "{}: gates must be [B, rows of weight_hh]: gates {}, weight_hh {}", op, gates.shape(), weight_hh.shape());
  check_states(op, unit, gates.size(0), "gates", gates, h, c, weight_hh, bias_hh);
}

void check_recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c, const Tensor& weight_ih,
                           const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh) {
  const char* op = "recurrent_layer";
  check<ShapeError>(x.rank() == 3, "{}: x needs 3 dimensions [B, S, E]: x {}, weight_ih {}", op, x.shape(), weight_ih.shape());
  check<ShapeError>(weight_ih.rank() == 2 && weight_ih.size(1) == x.size(2), "{}: inner sizes differ: x {}, weight_ih {}", op, x.shape(), weight_ih.shape());
  check<DTypeError>(weight_ih.dtype() == x.dtype(), "{}: dtypes differ: x {}, weight_ih {}", op, x.dtype(), weight_ih.dtype());
  check_states(op, unit, x.size(0), "x", x, h, c, weight_hh, bias_hh);
  check<ShapeError>(weight_ih.size(0) == weight_hh.size(0), "{}: rows differ: weight_ih {}, weight_hh {}", op, weight_ih.shape(), weight_hh.shape());
  if (bias_ih.defined()) {
    check<ShapeError>(bias_ih.shape() == Shape{weight_ih.size(0)}, "{}: bias_ih must be [{}]: weight_ih {}, bias_ih {}", op, weight_ih.size(0),
                      weight_ih.shape(), bias_ih.shape());
    check<DTypeError>(bias_ih.dtype() == x.dtype(), "{}: dtypes differ: x {}, bias_ih {}", op, x.dtype(), bias_ih.dtype());
  }
  if (!lengths.defined()) return;
  check<ShapeError>(lengths.shape() == Shape{x.size(0)}, "{}: lengths must be [B]: x {}, lengths {}", op, x.shape(), lengths.shape());
  check<DTypeError>(lengths.dtype() == DType::i32, "{}: lengths need dtype i32: lengths {}", op, lengths.dtype());
  const Tensor dense = lengths.contiguous();
  for (Index b = 0; b < x.size(0); ++b) {
    const Index length = dense.data<std::int32_t>()[b];
    check<IndexError>(length >= 0 && length <= x.size(1), "{}: length {} at position [{}] is not in [0, {}]", op, length, b, x.size(1));
  }
}

}  // namespace heed
