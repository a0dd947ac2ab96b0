// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/linear.h"

#define HWY_TARGET_INCLUDE "tensor/ops/linear.cc"
#include "tensor/activation-inl.h"
#include "tensor/dropout-inl.h"
#include "tensor/math-inl.h"
#include "tensor/simd-inl.h"

#ifndef HEED_LINEAR_BLOCK  // this file is read once for each target
#define HEED_LINEAR_BLOCK
namespace heed {
// A block of z [rows, columns] within [., width] and what to do with it; null pointers are left out.
template <class T> struct LinearBlock {
  Index row, rows, column, columns, width;
  const T* residual;
  const T* dy;
  T* z;            // xWᵀ + bias
  T* y;            // may be z
  Activation activation;
  DropoutKey dropout;
};
}  // namespace heed
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

// f(z) and df: the derivative from what is saved, z or (ReLU) y.
struct Identity {
  template <class D, class V> static HWY_INLINE V f(D, V z) { return z; }
  template <class D, class V> static HWY_INLINE V df(D d, V) { return hn::Set(d, 1); }
};
struct Relu {  // NaN stays NaN
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return hn::IfThenElse(hn::Lt(z, hn::Zero(d)), hn::Zero(d), z); }
  template <class D, class V> static HWY_INLINE V df(D d, V s) { return hn::IfThenZeroElse(hn::Le(s, hn::Zero(d)), hn::Set(d, 1)); }
};
struct Gelu {
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return math::Gelu(d, z); }
  template <class D, class V> static HWY_INLINE V df(D d, V z) { return math::GeluDerivative(d, z); }
};
struct GeluTanh {
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return math::GeluTanh(d, z); }
  template <class D, class V> static HWY_INLINE V df(D d, V z) { return math::GeluTanhDerivative(d, z); }
};
struct Silu {
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return math::Silu(d, z); }
  template <class D, class V> static HWY_INLINE V df(D d, V z) { return math::SiluDerivative(d, z); }
};
struct Tanh {
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return math::Tanh(d, z); }
  template <class D, class V> static HWY_INLINE V df(D d, V z) {
    const V t = math::Tanh(d, z);
    return hn::NegMulAdd(t, t, hn::Set(d, 1));
  }
};
struct Sigmoid {
  template <class D, class V> static HWY_INLINE V f(D d, V z) { return math::Sigmoid(d, z); }
  template <class D, class V> static HWY_INLINE V df(D d, V z) {
    const V s = math::Sigmoid(d, z);
    return hn::Mul(s, hn::Sub(hn::Set(d, 1), s));
  }
};

constexpr size_t kPiece = 256;   // elements at a time: their dropout factors stay in L1

// Calls piece(i, n, factors) for pieces of the rows, whole ones as one: i the element in [., width], factors null without dropout.
template <class T, class Piece> HWY_INLINE void ForPieces(const LinearBlock<T>& b, Piece piece) {
  T factors[kPiece];
  const bool whole = b.columns == b.width;
  const Index columns = whole ? b.rows * b.width : b.columns;
  for (Index r = b.row; r < (whole ? b.row + 1 : b.row + b.rows); ++r)
    for (Index j = 0; j < columns; j += Index(kPiece)) {
      const auto n = size_t(HWY_MIN(Index(kPiece), columns - j));
      const Index i = r * b.width + b.column + j;
      if (!b.dropout.keeps_all()) DropoutFactors(b.dropout, i, n, factors);
      piece(i, n, b.dropout.keeps_all() ? nullptr : factors);
    }
}

// y = residual + factor ⊙ f(z)
template <class Act, class T> void Forward(const LinearBlock<T>& b) {
  ForPieces(b, [&](Index i, size_t n, const T* factors) HWY_ATTR {
    const Lanes16<T> d;
    for (size_t k = 0; k < n; k += hn::Lanes(d)) {
      const size_t left = n - k;
      auto y = Act::f(d, LoadFirst(d, b.z + i + k, left));
      if (factors) y = hn::Mul(y, LoadFirst(d, factors + k, left));
      if (b.residual) {
        __builtin_prefetch(b.residual + i + Index(k) + b.rows * b.width, 0, 2);   // of the block below
        y = hn::Add(LoadFirst(d, b.residual + i + k, left), y);
      }
      StoreFirst(y, d, b.y + i + k, left);
    }
  });
}

// dz (in y) = dy ⊙ factor ⊙ f'(z); of ReLU 0 beside an infinite dy too
template <class Act, class T> void Backward(const LinearBlock<T>& b) {
  ForPieces(b, [&](Index i, size_t n, const T* factors) HWY_ATTR {
    const Lanes16<T> d;
    for (size_t k = 0; k < n; k += hn::Lanes(d)) {
      auto dz = LoadFirst(d, b.dy + i + k, n - k);
      if (factors) dz = hn::Mul(dz, LoadFirst(d, factors + k, n - k));
      if (b.z) {
        const auto slope = Act::df(d, LoadFirst(d, b.z + i + k, n - k));
        dz = std::is_same_v<Act, Relu> ? hn::IfThenZeroElse(hn::Eq(slope, hn::Zero(d)), dz) : hn::Mul(dz, slope);
      }
      StoreFirst(dz, d, b.y + i + k, n - k);
    }
  });
}

template <class T> void Finished(const LinearBlock<T>& b) {
  const bool back = b.dy != nullptr;
  switch (b.activation) {
    case Activation::none: return back ? Backward<Identity>(b) : Forward<Identity>(b);
    case Activation::relu: return back ? Backward<Relu>(b) : Forward<Relu>(b);
    case Activation::gelu: return back ? Backward<Gelu>(b) : Forward<Gelu>(b);
    case Activation::gelu_tanh: return back ? Backward<GeluTanh>(b) : Forward<GeluTanh>(b);
    case Activation::silu: return back ? Backward<Silu>(b) : Forward<Silu>(b);
    case Activation::tanh: return back ? Backward<Tanh>(b) : Forward<Tanh>(b);
    case Activation::sigmoid: return back ? Backward<Sigmoid>(b) : Forward<Sigmoid>(b);
  }
}

void FinishedF32(const LinearBlock<float>& b) { Finished(b); }
void FinishedF64(const LinearBlock<double>& b) { Finished(b); }

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tensor/format.h"
#include "tensor/gemm.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tensor/packed.h"

namespace heed {
namespace {

HWY_EXPORT(FinishedF32);
HWY_EXPORT(FinishedF64);

template <class T> auto finished() { return pick<T>(HWY_DYNAMIC_POINTER(FinishedF32), HWY_DYNAMIC_POINTER(FinishedF64)); }

Shape check_operands(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion) {
  check<Error>(weight.defined(), "linear: the weight is empty (default constructed, or of a module that was moved from)");
  check<ShapeError>(weight.rank() == 2, "linear: weight needs 2 dimensions [out, in]: weight {}", weight.shape());
  check<ShapeError>(x.rank() >= 1 && x.size(-1) == weight.size(1), "linear: inner sizes differ: x {}, weight {} ({} and {})", x.shape(),
                    weight.shape(), x.rank() ? x.size(-1) : 0, weight.size(1));
  check<DTypeError>(x.dtype() == weight.dtype() && is_float(x.dtype()), "linear: dtypes differ or are no floats: x {}, weight {}",
                    x.dtype(), weight.dtype());
  Shape shape = x.shape();
  shape[shape.rank() - 1] = weight.size(0);
  if (bias.defined()) {
    check<ShapeError>(bias.shape() == Shape{weight.size(0)}, "linear: bias must be [{}]: bias {}, weight {}", weight.size(0), bias.shape(),
                      weight.shape());
    check<DTypeError>(bias.dtype() == x.dtype(), "linear: dtypes differ: x {}, bias {}", x.dtype(), bias.dtype());
  }
  if (fusion.residual.defined()) {
    check<ShapeError>(fusion.residual.shape() == shape, "linear: residual must have the result's shape: residual {}, result {}",
                      fusion.residual.shape(), shape);
    check<DTypeError>(fusion.residual.dtype() == x.dtype(), "linear: dtypes differ: x {}, residual {}", x.dtype(), fusion.residual.dtype());
  }
  return shape;
}

// [..., n] as rows [N, n]: a view wherever strides allow.
Tensor rows_of(const Tensor& x) {
  return reshape(x, {without_last(x.shape()).numel(), x.size(-1)});
}

// ReLU's derivative can be read off its output, unless a residual was added to it.
bool saves_output(const LinearFusion& f) { return f.activation == Activation::relu && !f.residual.defined(); }

}  // namespace

LinearResult linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion) {
  const Shape shape = check_operands(x, weight, bias, fusion);
  const DropoutKey dropout("linear", fusion.dropout, fusion.key);
  const Tensor y = empty(shape, x.dtype());
  const bool separate = fusion.activation != Activation::none && !saves_output(fusion);
  const Tensor z = separate ? empty(shape, x.dtype()) : y;
  if (y.numel() == 0) return {y, z};
  const Tensor in = x.size(-1) == 0 ? x : rows_of(x), dense_bias = bias.defined() ? bias.contiguous() : bias;
  const Tensor residual = fusion.residual.defined() ? fusion.residual.contiguous() : fusion.residual;
  visit_float(x.dtype(), "linear", [&]<class T>() {
    const Index rows = y.numel() / shape(-1), width = shape(-1);
    LinearBlock<T> block{0, rows, 0, width, width, data_or_null<T>(residual), nullptr, z.mutable_data<T>(),
                         y.mutable_data<T>(),
                         fusion.activation, dropout};
    struct Self {
      LinearBlock<T> block;
      void (*kernel)(const LinearBlock<T>&);
    } self{block, finished<T>()};
    Finish<T> finish{.bias = bias.defined() ? dense_bias.data<T>() : nullptr};
    if (block.residual || fusion.activation != Activation::none || !dropout.keeps_all()) {
      finish.self = &self;
      finish.run = [](const void* p, Index row, Index count, Index column, Index columns) {
        const auto& s = *static_cast<const Self*>(p);
        LinearBlock<T> b = s.block;
        b.row = row;
        b.rows = count;
        b.column = column;
        b.columns = columns;
        s.kernel(b);
      };
    }
    const PackedWeight packed = PackedWeights::current() ? (*PackedWeights::current())(weight) : PackedWeight();
    if constexpr (std::is_same_v<T, float>)
      if (packed.low_precision) return packed.low_precision->multiply(rows, in.contiguous().data<float>(), x.size(-1), block.z, finish);
    const bool empty_sum = x.size(-1) == 0;
    multiply(Product<T>{rows, width, x.size(-1), empty_sum ? nullptr : in.template data<T>(), empty_sum ? 0 : in.strides()[0],
                        empty_sum ? 0 : in.strides()[1], empty_sum ? nullptr : weight.data<T>(), weight.strides()[1], weight.strides()[0],
                        block.z, width, 1, false, reinterpret_cast<const T*>(packed.panels)},
             finish);
  });
  return {y, fusion.activation == Activation::none ? Tensor() : z};
}

Tensor linear_by_definition(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion) {
  check_operands(x, weight, bias, fusion);
  Tensor y = matmul(x, transpose(weight));
  if (bias.defined()) y = y + bias;
  switch (fusion.activation) {
    case Activation::none: break;
    case Activation::relu: y = relu(y); break;
    case Activation::gelu: y = gelu(y); break;
    case Activation::gelu_tanh: y = gelu_tanh(y); break;
    case Activation::silu: y = silu(y); break;
    case Activation::tanh: y = tanh(y); break;
    case Activation::sigmoid: y = sigmoid(y); break;
  }
  y = dropout(y, fusion.dropout, fusion.key);
  return fusion.residual.defined() ? fusion.residual + y : y;
}

Tensor linear_grad(const Tensor& saved, const Tensor& dy, const LinearFusion& fusion) {
  const DropoutKey dropout("linear", fusion.dropout, fusion.key);
  if (fusion.activation == Activation::none && dropout.keeps_all()) return dy;
  check<ShapeError>(fusion.activation == Activation::none || saved.numel() == dy.numel(),
                    "linear_grad: saved does not fit dy: saved {}, dy {}", saved.shape(), dy.shape());
  const Tensor dense = dy.contiguous(), dz = empty(dy.shape(), dy.dtype());
  if (dz.numel() == 0) return dz;
  visit_float(dy.dtype(), "linear", [&]<class T>() {
    const Index width = dy.size(-1), rows = dy.numel() / width;
    T* z = fusion.activation == Activation::none ? nullptr : const_cast<T*>(saved.data<T>());
    const LinearBlock<T> block{0,      rows, 0, width, width, nullptr, dense.template data<T>(), z, dz.mutable_data<T>(), fusion.activation,
                               dropout};
    const auto kernel = finished<T>();
    const Index cost = z && fusion.activation != Activation::relu ? 4 : 1;   // of an element: others than ReLU take an exponential
    parallel_for(rows, row_grain(cost * width), [&](Index begin, Index end) {
      LinearBlock<T> b = block;
      b.row = begin;
      b.rows = end - begin;
      kernel(b);
    });
  });
  return dz;
}

void linear_grad_x(const Tensor& dz, const Tensor& weight, Into dx) {
  if (dx.tensor.numel() == 0) return;
  const Tensor rows = rows_of(dx.tensor);
  if (rows.storage() == dx.tensor.storage()) return matmul(rows_of(dz), weight, {rows, dx.add});
  add_into(reshape(matmul(rows_of(dz), weight), dx.tensor.shape()), dx);
}

void linear_grad_weight(const Tensor& dz, const Tensor& x, Into dweight, const Into* dbias) {
  matmul_over_rows(rows_of(dz), rows_of(x), dweight, dbias);
}

void linear_grad_bias(const Tensor& dz, Index in, Into dbias) { sum_over_rows(rows_of(dz), in, dbias); }

}  // namespace heed
#endif
