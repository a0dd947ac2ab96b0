// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/recurrent.h"

#include <algorithm>
#include <numeric>

#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/recurrent_block.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tensor/packed.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

// h, c, weight_hh and bias_hh, which may be of each row, beside rows of gates
void check_states(const char* op, RecurrentUnit unit, Index B, const char* beside, const Tensor& x, const Tensor& h, const Tensor& c,
                  const Tensor& weight_hh, const Tensor& bias_hh, bool each_row = false) {
  const Index gates = gate_count(unit);
  check<ShapeError>(weight_hh.rank() == 2 && weight_hh.size(0) == gates * weight_hh.size(1),
                    "{}: weight_hh must be [{} n, n]: {} {}, weight_hh {}", op, gates, beside, x.shape(), weight_hh.shape());
  const Index n = weight_hh.size(1);
  const auto like = [&](const char* name, const Tensor& y, const Shape& shape) {
    if (!y.defined()) return;
    check<ShapeError>(y.shape() == shape, "{}: {} must be {}: {} {}, weight_hh {}, {} {}", op, name, shape, beside, x.shape(),
                      weight_hh.shape(), name, y.shape());
    check<DTypeError>(y.dtype() == x.dtype(), "{}: dtypes differ: {} {}, {} {}", op, beside, x.dtype(), name, y.dtype());
  };
  check<DTypeError>(is_float(x.dtype()) && x.dtype() == weight_hh.dtype(), "{}: dtypes differ or are no floats: {} {}, weight_hh {}", op,
                    beside, x.dtype(), weight_hh.dtype());
  like("h", h, {B, n});
  like("c", c, {B, n});
  like("bias_hh", bias_hh, each_row ? Shape{B, gates * n} : Shape{gates * n});
  check<ShapeError>(!c.defined() || unit == RecurrentUnit::lstm, "{}: only an lstm has a state c: {} {}, c {}", op, beside, x.shape(),
                    c.shape());
  check<ShapeError>(!bias_hh.defined() || !resets_before(unit), "{}: this form of the GRU has one bias: {} {}, bias_hh {}", op, beside,
                    x.shape(), bias_hh.shape());
}

Tensor or_zeros(const Tensor& state, Index B, Index n, DType dtype) {
  return state.defined() ? with_dense_rows(state) : zeros({B, n}, dtype);
}
Tensor copy_or_zeros(const Tensor& state, Index B, Index n, DType dtype) { return state.defined() ? state.clone() : zeros({B, n}, dtype); }

bool has_rows(const Tensor& bias) { return bias.defined() && bias.rank() == 2; }

Index row_cost(RecurrentUnit unit, Index n) { return 4 * gate_count(unit) * n; }

// The rows of x [B, S, ...] that count, sentence after sentence, and the order in which sentences go through time.
struct Ragged {
  Ragged(const Tensor& lengths, Index B, Index S) : length(std::size_t(B), S), first(std::size_t(B)), order(std::size_t(B)), whole(true) {
    if (lengths.defined()) {
      const Tensor dense = lengths.contiguous();
      for (std::size_t b = 0; b < length.size(); ++b) length[b] = dense.data<std::int32_t>()[b], whole &= length[b] == S;
    }
    for (std::size_t b = 0; b < length.size(); ++b) first[b] = rows, rows += length[b];
    std::iota(order.begin(), order.end(), Index{0});
    std::sort(order.begin(), order.end(),
              [&](Index a, Index b) { return std::pair(-length[std::size_t(a)], a) < std::pair(-length[std::size_t(b)], b); });
  }
  List<Index> length, first, order;
  Index rows = 0;
  bool whole;                          // no padding
};

// [N, E] from [B, S, E]
Tensor gathered(const Tensor& x, const Ragged& ragged) {
  const Tensor y = empty({ragged.rows, x.size(2)}, x.dtype());
  parallel_for(x.size(0), row_grain(x.size(1) * x.size(2)), [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      const Index first = ragged.first[std::size_t(b)], length = ragged.length[std::size_t(b)];
      copy_into(slice(y, 0, first, first + length), slice(x[b], 0, 0, length));
    }
  });
  return y;
}

// Blocks of 8 to 32 sentences, at least one for each thread if there are enough.
// Each sentence goes its own way: bits do not depend on them.
Index block_count(Index B) { return std::max({(B + 31) / 32, std::min<Index>(threads(), B / 8), Index{1}}); }
Index block_rows(Index B) { return divide_up(B, block_count(B)); }   // of the largest

// Calls through_time(block) for all blocks, each with short and long sentences. A block goes through time in one thread: nobody waits
// between two steps.
template <class T, class F> void for_blocks(const Ragged& ragged, const RecurrentBlock<T>& block, F through_time) {
  const auto B = Index(ragged.order.size()), blocks = block_count(B);
  List<Index> sentence, length, first;
  for (Index i = 0; i < blocks; ++i)
    for (Index k = i; k < B; k += blocks) {
      const Index b = ragged.order[std::size_t(k)];
      sentence.push_back(b), length.push_back(ragged.length[std::size_t(b)]), first.push_back(ragged.first[std::size_t(b)]);
    }
  const double flops = 2.0 * double(ragged.rows) * double(gate_count(block.unit) * block.n) * double(block.n + 16);
  parallel_for(blocks, flops < 2.5e6 ? blocks : 1, [&](Index begin, Index end) {
    const Tensor scratch = empty({recurrent_scratch(block.unit, block.n, divide_up(B, blocks), block.width)}, dtype_of<T>);
    for (Index i = begin; i < end; ++i) {
      const Index at = i * (B / blocks) + std::min(i, B % blocks);
      RecurrentBlock<T> one = block;
      one.rows = B / blocks + (i < B % blocks);
      one.sentence = sentence.data() + at;
      one.length = length.data() + at;
      one.first = first.data() + at;
      one.scratch = scratch.mutable_data<T>();
      through_time(one);
    }
  });
}

// Few rows leave registers for four vectors of columns.
template <class T> Index panel_width(const GemmKernels<T>& gemm, Index rows) { return (rows <= gemm.rows[4] ? 4 : 2) * gemm.lanes; }

}  // namespace

void check_recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh,
                          const Tensor& bias_hh) {
  const char* op = "recurrent_cell";
  check<ShapeError>(gates.rank() == 2 && weight_hh.rank() == 2 && gates.size(1) == weight_hh.size(0),
                    "{}: gates must be [B, rows of weight_hh]: gates {}, weight_hh {}", op, gates.shape(), weight_hh.shape());
  check_states(op, unit, gates.size(0), "gates", gates, h, c, weight_hh, bias_hh, has_rows(bias_hh));
}

void check_recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c,
                           const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh) {
  const char* op = "recurrent_layer";
  check<ShapeError>(x.rank() == 3, "{}: x needs 3 dimensions [B, S, E]: x {}, weight_ih {}", op, x.shape(), weight_ih.shape());
  check<ShapeError>(weight_ih.rank() == 2 && weight_ih.size(1) == x.size(2), "{}: inner sizes differ: x {}, weight_ih {}", op, x.shape(),
                    weight_ih.shape());
  check<DTypeError>(weight_ih.dtype() == x.dtype(), "{}: dtypes differ: x {}, weight_ih {}", op, x.dtype(), weight_ih.dtype());
  check_states(op, unit, x.size(0), "x", x, h, c, weight_hh, bias_hh);
  check<ShapeError>(weight_ih.size(0) == weight_hh.size(0), "{}: rows differ: weight_ih {}, weight_hh {}", op, weight_ih.shape(),
                    weight_hh.shape());
  if (bias_ih.defined()) {
    check<ShapeError>(bias_ih.shape() == Shape{weight_ih.size(0)}, "{}: bias_ih must be [{}]: weight_ih {}, bias_ih {}", op,
                      weight_ih.size(0), weight_ih.shape(), bias_ih.shape());
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

namespace {
// h weightᵀ; not in fewer bits, whose errors would go from step to step
Tensor from_state(const Tensor& h, const Tensor& weight) {
  const PackedWeights* const packed = PackedWeights::current();
  return packed && packed->precision() == Precision::float32 ? linear(h, weight, {}).y : matmul(h, transpose(weight));
}
}  // namespace

RecurrentResult recurrent_cell(RecurrentUnit unit, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight_hh,
                               const Tensor& bias_hh) {
  check_recurrent_cell(unit, gates, h, c, weight_hh, bias_hh);
  const Index B = gates.size(0), n = weight_hh.size(1), rows = gates.size(1);
  const bool second = resets_before(unit), lstm = unit == RecurrentUnit::lstm;
  return visit_float(gates.dtype(), "recurrent_cell", [&]<class T>() {
    const DType dtype = gates.dtype();
    const Tensor a = with_dense_rows(gates), from = or_zeros(h, B, n, dtype), cell = lstm ? or_zeros(c, B, n, dtype) : Tensor();
    const Tensor bias = bias_hh.defined() ? with_dense_rows(bias_hh) : bias_hh;
    const Index bias_row = has_rows(bias) ? bias.strides()[0] : 0;
    RecurrentResult out;
    out.h = empty({B, n}, dtype);
    if (lstm) out.c = empty({B, n}, dtype);
    if (unit >= RecurrentUnit::gru_bahdanau) out.kept = empty({B, n}, dtype);
    const Tensor weights = weight_hh.contiguous();
    Tensor u = from_state(from, second ? slice(weights, 0, 0, 2 * n) : weights);              // [B, gates n]
    out.gates = second ? empty({B, rows}, dtype) : u;
    const auto pass = [&](bool again) {
      T *const act = out.gates.mutable_data<T>(), *const next = (second && !again ? out.kept : out.h).template mutable_data<T>();
      T *const next_c = mutable_data_or_null<T>(out.c), *const kept = second ? nullptr : mutable_data_or_null<T>(out.kept);
      const T *const as = a.data<T>(), *const us = u.data<T>(), *const hs = from.data<T>(), *const cs = lstm ? cell.data<T>() : nullptr;
      const T* const bs = data_or_null<T>(bias);
      const auto kernels = recurrent_kernels<T>(unit);
      const auto kernel = again ? kernels.second : kernels.first;
      parallel_for(B, row_grain(row_cost(unit, n)), [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b)
          kernel({std::size_t(n), n, n, as + b * a.strides()[0], us + b * u.size(1), bs ? bs + b * bias_row : nullptr,
                  hs + b * from.strides()[0], cs ? cs + b * cell.strides()[0] : nullptr, act + b * rows, kept ? kept + b * n : nullptr,
                  next + b * n, next_c ? next_c + b * n : nullptr, nullptr});
      });
    };
    pass(false);
    if (second) {
      u = from_state(out.kept, slice(weights, 0, 2 * n, 3 * n));                              // [B, n]
      pass(true);
    }
    return out;
  });
}

RecurrentGrads recurrent_cell_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& h, const Tensor& c,
                                   const Tensor& weight_hh, const Tensor& next_dh, const Tensor& next_dc) {
  const Index B = result.gates.size(0), n = weight_hh.size(1), rows = result.gates.size(1);
  const bool second = resets_before(unit), lstm = unit == RecurrentUnit::lstm, gru = unit >= RecurrentUnit::gru_bahdanau;
  const DType dtype = result.gates.dtype();
  RecurrentGrads out{empty({B, n}, dtype), lstm ? empty({B, n}, dtype) : Tensor()};
  const Tensor da = result.gates, weights = weight_hh.contiguous(), given_dh = or_zeros(next_dh, B, n, dtype),
               given_dc = lstm ? or_zeros(next_dc, B, n, dtype) : Tensor();
  visit_float(dtype, "recurrent_cell_grad", [&]<class T>() {
    const Tensor from = or_zeros(h, B, n, dtype), cell = lstm ? or_zeros(c, B, n, dtype) : Tensor();
    Tensor dq;
    const auto pass = [&](bool again) {
      T *const gates = da.mutable_data<T>(), *const kept = mutable_data_or_null<T>(result.kept), *const dhs = out.h.mutable_data<T>();
      T* const dcs = mutable_data_or_null<T>(out.c);
      const T *const hs = from.data<T>(), *const cs = lstm ? cell.data<T>() : nullptr, *const dqs = data_or_null<T>(dq);
      const auto kernels = recurrent_kernels<T>(unit);
      const auto kernel = again ? kernels.second_grad : kernels.first_grad;
      parallel_for(B, row_grain(row_cost(unit, n)), [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b) {
          if (!again) std::copy_n(given_dh.data<T>() + b * given_dh.strides()[0], n, dhs + b * n);
          if (!again && dcs) std::copy_n(given_dc.data<T>() + b * given_dc.strides()[0], n, dcs + b * n);
          kernel({std::size_t(n), n, gates + b * rows, kept ? kept + b * n : nullptr, nullptr, hs + b * from.strides()[0],
                               cs ? cs + b * cell.strides()[0] : nullptr, nullptr, dhs + b * n, dcs ? dcs + b * n : nullptr,
                               dqs ? dqs + b * n : nullptr});
        }
      });
    };
    pass(false);
    if (second) {
      dq = matmul(slice(da, 1, 2 * n, 3 * n), slice(weights, 0, 2 * n, 3 * n));
      pass(true);
    }
  });
  if (!gru) {
    matmul(da, weights, {out.h, false});
  } else {
    matmul(slice(da, 1, 0, 2 * n), slice(weights, 0, 0, 2 * n), {out.h, true});
    if (!second) matmul(result.kept, slice(weights, 0, 2 * n, 3 * n), {out.h, true});
  }
  return out;
}

RecurrentResult recurrent_layer(RecurrentUnit unit, const Tensor& x, const Tensor& lengths, const Tensor& h, const Tensor& c,
                                const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh,
                                bool reverse, bool remember) {
  check_recurrent_layer(unit, x, lengths, h, c, weight_ih, weight_hh, bias_ih, bias_hh);
  const Index B = x.size(0), S = x.size(1), n = weight_hh.size(1), gates = gate_count(unit);
  const bool lstm = unit == RecurrentUnit::lstm, gru = unit >= RecurrentUnit::gru_bahdanau, apart = unit == RecurrentUnit::gru_cudnn;
  const Ragged ragged(lengths, B, S);
  const DType dtype = x.dtype();
  RecurrentResult out;
  out.outputs = empty({B, S, n}, dtype);
  out.h = copy_or_zeros(h, B, n, dtype);
  if (lstm) out.c = copy_or_zeros(c, B, n, dtype);
  for (Index b = 0; b < B && !ragged.whole; ++b) fill_(slice(out.outputs[b], 0, ragged.length[std::size_t(b)]), 0);
  out.x = ragged.whole ? reshape(x, {B * S, x.size(2)}) : gathered(x, ragged);
  const bool both = bias_ih.defined() && bias_hh.defined() && !apart;
  out.gates = linear(out.x, weight_ih, both ? add(bias_ih, bias_hh) : bias_hh.defined() && !apart ? bias_hh : bias_ih).y;   // [N, gates n]
  if (remember) {
    out.previous_h = empty({ragged.rows, n}, dtype);
    if (lstm) out.previous_c = empty({ragged.rows, n}, dtype);
    if (gru) out.kept = empty({ragged.rows, n}, dtype);
  }
  if (ragged.rows == 0 || n == 0) return out;
  visit_float(dtype, "recurrent_layer", [&]<class T>() {
    const GemmKernels<T> gemm = gemm_kernels<T>();
    const Tensor weights = weight_hh.contiguous(), bias = apart && bias_hh.defined() ? bias_hh.contiguous() : Tensor();
    const Index width = panel_width(gemm, block_rows(B)), panel = round_up(n, width) * n;
    const Tensor packed = empty({gates * panel + 64}, dtype);
    T* const panels = packed.mutable_data<T>();
    parallel_for(gates, row_grain(n * n / 8), [&](Index begin, Index end) {
      for (Index g = begin; g < end; ++g) gemm.pack(weights.data<T>() + g * n * n, 1, n, n, n, n, width, panels + g * panel);
    });
    const RecurrentBlock<T> block{.unit = unit,
                                  .kernels = recurrent_kernels<T>(unit),
                                  .n = n,
                                  .reverse = reverse,
                                  .panels = panels,
                                  .width = width,
                                  .product = gemm.panel,
                                  .bias = data_or_null<T>(bias),
                                  .gates = out.gates.mutable_data<T>(),
                                  .previous_h = mutable_data_or_null<T>(out.previous_h),
                                  .previous_c = mutable_data_or_null<T>(out.previous_c),
                                  .kept = mutable_data_or_null<T>(out.kept),
                                  .outputs = out.outputs.mutable_data<T>(),
                                  .output_sentence = S * n,
                                  .output_step = n,
                                  .h = out.h.mutable_data<T>(),
                                  .c = mutable_data_or_null<T>(out.c)};
    for_blocks(ragged, block, forward_through_time<T>);
  });
  return out;
}

RecurrentGrads recurrent_layer_grad(RecurrentUnit unit, const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_hh,
                                    bool reverse, const Tensor& doutputs, const Tensor& last_dh, const Tensor& last_dc) {
  const Index B = result.outputs.size(0), S = result.outputs.size(1), n = weight_hh.size(1), gates = gate_count(unit);
  const DType dtype = result.gates.dtype();
  const Ragged ragged(lengths, B, S);
  RecurrentGrads out{copy_or_zeros(last_dh, B, n, dtype), unit == RecurrentUnit::lstm ? copy_or_zeros(last_dc, B, n, dtype) : Tensor()};
  if (ragged.rows == 0 || n == 0) return out;
  visit_float(dtype, "recurrent_layer_grad", [&]<class T>() {
    const GemmKernels<T> gemm = gemm_kernels<T>();
    const Tensor weights = weight_hh.contiguous(), dy = doutputs.defined() ? with_dense_rows(doutputs) : Tensor();
    const Index width = panel_width(gemm, block_rows(B));
    const Tensor packed = empty({gates * n * round_up(n, width) + 64}, dtype);
    parallel_for(round_up(n, width) / width, row_grain(gates * n * width / 8), [&](Index begin, Index end) {
      const Index first = begin * width, columns = std::min(n, end * width) - first;
      gemm.pack(weights.data<T>() + first, n, 1, gates * n, columns, columns, width, packed.mutable_data<T>() + first * gates * n);
    });
    const RecurrentBlock<T> block{.unit = unit,
                                  .kernels = recurrent_kernels<T>(unit),
                                  .n = n,
                                  .reverse = reverse,
                                  .panels = packed.data<T>(),
                                  .width = width,
                                  .product = gemm.panel,
                                  .gates = result.gates.mutable_data<T>(),
                                  .previous_h = result.previous_h.mutable_data<T>(),
                                  .previous_c = mutable_data_or_null<T>(result.previous_c),
                                  .kept = mutable_data_or_null<T>(result.kept),
                                  .outputs = dy.defined() ? const_cast<T*>(dy.data<T>()) : nullptr,
                                  .output_sentence = dy.defined() ? dy.strides()[0] : 0,
                                  .output_step = dy.defined() ? dy.strides()[1] : 0,
                                  .h = out.h.mutable_data<T>(),
                                  .c = mutable_data_or_null<T>(out.c)};
    for_blocks(ragged, block, backward_through_time<T>);
  });
  return out;
}

void recurrent_grad_weight_hh(RecurrentUnit unit, const RecurrentResult& result, const Tensor& previous_h, Into dweight_hh) {
  const Index n = previous_h.size(1);
  if (unit < RecurrentUnit::gru_bahdanau) return linear_grad_weight(result.gates, previous_h, dweight_hh);
  const Tensor last = unit == RecurrentUnit::gru_cudnn ? result.kept : slice(result.gates, 1, 2 * n, 3 * n);
  linear_grad_weight(slice(result.gates, 1, 0, 2 * n), previous_h, {slice(dweight_hh.tensor, 0, 0, 2 * n), dweight_hh.add});
  linear_grad_weight(last, unit == RecurrentUnit::gru_cudnn ? previous_h : result.kept,
                     {slice(dweight_hh.tensor, 0, 2 * n, 3 * n), dweight_hh.add});
}

Tensor recurrent_grad_bias_hh(RecurrentUnit unit, const RecurrentResult& result, bool each_row) {
  const Tensor db = each_row ? result.gates : sum(result.gates, 0);
  if (unit != RecurrentUnit::gru_cudnn) return db;
  const Index n = result.kept.size(1);
  return concat({slice(db, -1, 0, 2 * n), each_row ? result.kept : sum(result.kept, 0)}, -1);
}

void recurrent_grad_x(const RecurrentResult& result, const Tensor& lengths, const Tensor& weight_ih, Into dx) {
  const Index B = dx.tensor.size(0), S = dx.tensor.size(1);
  const Ragged ragged(lengths, B, S);
  if (ragged.whole && !dx.add) return linear_grad_x(reshape(result.gates, {B, S, result.gates.size(1)}), weight_ih, dx);
  // [N, E]: added whole, with and without padding
  const Tensor rows = matmul(result.gates, weight_ih);
  parallel_for(B, row_grain(S * weight_ih.size(1)), [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      const Index first = ragged.first[std::size_t(b)], length = ragged.length[std::size_t(b)];
      add_into(slice(rows, 0, first, first + length), {slice(dx.tensor[b], 0, 0, length), dx.add});
      if (!dx.add) fill_(slice(dx.tensor[b], 0, length), 0);
    }
  });
}

}  // namespace heed
