// SPDX-License-Identifier: Apache-2.0
#include "tensor/low_precision.h"

#define HWY_TARGET_INCLUDE "tensor/low_precision.cc"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

constexpr Index kGroup = LowPrecisionWeight::kGroup;

struct Absolute {  // |x|
  template <class D, class V> static HWY_INLINE V f(D, V x) { return hn::Abs(x); }
};

// u[i] = round(127 x[i] / max |x|) + 128, to the nearest, 128 up to `padded`, and t = max |x| / 127, NaN where x is not finite.
float QuantiseRow(const float* x, Index count, Index padded, std::uint8_t* u) {
  const Lanes16<float> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> du;
  const auto n = size_t(count);
  const float largest = n > 0 ? Reduce<MaxOp, Absolute>(x, n) : 0;
  const bool usable = largest > 1e-36f && largest < __builtin_inff();   // 127 / largest is finite
  const auto factor = hn::Set(d, usable ? 127 / largest : 0.0f);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto v = usable ? LoadFirst(d, x + i, n - i) : hn::Zero(d);
    const auto bytes = hn::DemoteTo(du, hn::Add(hn::NearestInt(hn::Mul(v, factor)), hn::Set(di, 128)));
    if (n - i >= hn::Lanes(d)) {
      hn::StoreU(bytes, du, u + i);
    } else {
      std::uint8_t lanes[hn::MaxLanes(d)];
      hn::StoreU(bytes, du, lanes);
      for (size_t j = i; j < n; ++j) u[j] = lanes[j - i];
    }
  }
  for (size_t i = n; i < size_t(padded); ++i) u[i] = 128;
  return usable ? largest / 127 : largest < 1 ? 0.0f : largest - largest;   // ∞ - ∞ and NaN - NaN are NaN
}

#if HWY_TARGET > HWY_AVX2 || !HWY_ARCH_X86
// y[o] = t s_o (Σ_k x[k] w[o, k] - 128 Σ_k w[o, k]) + bias_o row by row, 16 outputs at a time
void MultiplyInt8(const Int8Block& b) {
  for (Index o = 0; o < b.groups * kGroup; o += 16)
    for (Index row = 0; row < b.rows; ++row) {
      const std::uint8_t* x = b.x + row * b.quads * 4;
      const std::int8_t* w = b.w + (o / kGroup * kGroup * b.quads + o % kGroup) * 4;
      std::int32_t sums[16] = {};
      for (Index k = 0; k < b.quads; ++k, x += 4, w += kGroup * 4)
        for (Index j = 0; j < 64; ++j) sums[j / 4] += x[j % 4] * w[j];
      for (Index j = 0; j < 16; ++j) {
        const float y = float(sums[j] - 128 * b.sums[o + j]) * b.t[row] * b.s[o + j];
        b.y[row * b.y_row + o + j] = b.bias ? y + b.bias[o + j] : y;
      }
    }
}
#endif

Int8Kernels BestInt8() {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if (const Int8Kernel amx = int8_kernel_amx()) return {amx};
  if (const Int8Kernel vnni = int8_kernel_vnni()) return {vnni};
#endif
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  return int8_kernels_avx2();
#else
  return {&MultiplyInt8};
#endif
}

// Columns [column, column + width) of pairs [pairs][64][2] as f32 [2 pairs][width].
void Widen(const std::uint32_t* group, Index pairs, Index column, Index width, float* to) {
  const Lanes16<std::uint32_t> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto high = hn::Set(d, 0xffff0000u);
  for (Index k = 0; k < pairs; ++k)
    for (Index j = 0; j < width; j += Index(hn::Lanes(d))) {
      const auto both = hn::LoadU(d, group + k * kGroup + column + j);
      hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(both)), df, to + 2 * k * width + j);
      hn::StoreU(hn::BitCast(df, hn::And(both, high)), df, to + (2 * k + 1) * width + j);
    }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "tensor/cut.h"
#include "tensor/format.h"

namespace heed {
namespace {

HWY_EXPORT(QuantiseRow);
HWY_EXPORT(BestInt8);
HWY_EXPORT(Widen);

constexpr Index kRowBlock = 128, kColumnBlock = 256;
constexpr Index kPart = 8192;   // weights widened at a time: 32 KiB

// Pairs or fours of inputs, whole steps of them.
Index depth_of(Index inputs, Index together) { return divide_up(inputs, together * LowPrecisionWeight::kTile) * LowPrecisionWeight::kTile; }

}  // namespace

LowPrecisionWeight::LowPrecisionWeight(const Tensor& weight, Precision precision) : precision_(precision) {
  check<Error>(precision != Precision::float32, "low precision: float32 is not lower; bfloat16 or int8");
  check<ShapeError>(weight.rank() == 2, "low precision: weight needs 2 dimensions [out, in]: weight {}", weight.shape());
  check<DTypeError>(weight.dtype() == DType::f32, "low precision: weight must be f32: weight {}", weight.dtype());
  outputs_ = weight.size(0);
  inputs_ = weight.size(1);
  check<ShapeError>(precision != Precision::int8 || inputs_ <= kMostInputs, "low precision: int8 takes at most {} inputs: weight {}",
                    kMostInputs, weight.shape());
  const Tensor dense = weight.contiguous();
  const float* values = dense.data<float>();
  const Index groups = divide_up(outputs_, kGroup), padded = groups * kGroup;
  if (precision == Precision::bfloat16) {
    const Index pairs = depth_of(inputs_, 2);
    groups_ = zeros({groups, pairs, kGroup, 2}, DType::bf16);
    BFloat16* const to = groups_.mutable_data<BFloat16>();
    parallel_for(outputs_, row_grain(inputs_), [&](Index begin, Index end) {
      for (Index o = begin; o < end; ++o)
        for (Index i = 0; i < inputs_; ++i)
          to[((o / kGroup * pairs + i / 2) * kGroup + o % kGroup) * 2 + i % 2] = BFloat16(values[o * inputs_ + i]);
    });
    return;
  }
  const Index quads = depth_of(inputs_, 4);
  groups_ = zeros({groups, quads, kGroup, 4}, DType::u8);
  scales_ = zeros({padded});
  sums_ = zeros({padded}, DType::i32);
  auto* const to = reinterpret_cast<std::int8_t*>(groups_.mutable_data<std::uint8_t>());
  float* const scales = scales_.mutable_data<float>();
  std::int32_t* const sums = sums_.mutable_data<std::int32_t>();
  const auto quantise = HWY_DYNAMIC_DISPATCH(QuantiseRow);
  parallel_for(outputs_, row_grain(inputs_), [&](Index begin, Index end) {
    const Tensor row = empty({4 * quads}, DType::u8);
    std::uint8_t* const u = row.mutable_data<std::uint8_t>();
    for (Index o = begin; o < end; ++o) {
      scales[o] = quantise(values + o * inputs_, inputs_, 4 * quads, u);
      std::int8_t* four = to + (o / kGroup * quads * kGroup + o % kGroup) * 4;
      for (Index q = 0; q < quads; ++q, four += 4 * kGroup)
        for (Index i = 0; i < 4; ++i) {
          four[i] = std::int8_t(u[4 * q + i] - 128);
          sums[o] += four[i];
        }
    }
  });
}

Tensor LowPrecisionWeight::values() const {
  const Tensor result = empty({outputs_, inputs_});
  float* const to = result.mutable_data<float>();
  const Index together = precision_ == Precision::int8 ? 4 : 2, depth = depth_of(inputs_, together);
  for (Index o = 0; o < outputs_; ++o)
    for (Index i = 0; i < inputs_; ++i) {
      const Index at = ((o / kGroup * depth + i / together) * kGroup + o % kGroup) * together + i % together;
      to[o * inputs_ + i] = precision_ == Precision::int8 ? scales_.data<float>()[o] * float(std::int8_t(groups_.data<std::uint8_t>()[at]))
                                                          : float(groups_.data<BFloat16>()[at]);
    }
  return result;
}

struct LowPrecisionWeight::Rows {
  const float* x;
  Index stride;
  // int8: u + 128 u8 [rows, 4 depth] or split, t f32 [rows]; bfloat16, where there are kernels: bf16 [rows, 2 depth]; rows for kernels
  Tensor packed, scales;
};

LowPrecisionWeight::Rows LowPrecisionWeight::rows_of(Index rows, const float* x, Index stride) const {
  Rows result{x, stride, {}, {}};
  const Index readable = divide_up(rows, kTile) * kTile;
  const auto each = [&](auto&& row) {
    parallel_for(rows, row_grain(inputs_), [&](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) row(r);
    });
  };
  if (precision_ == Precision::int8) {
    const Index bytes = 4 * depth_of(inputs_, 4);
    const auto split = HWY_DYNAMIC_DISPATCH(BestInt8)().split;
    const Index row_bytes = split ? Int8Kernels::split_bytes(bytes / 4) : bytes;
    result.packed = empty({readable, row_bytes}, DType::u8);
    result.scales = empty({rows});
    std::uint8_t* const u = result.packed.mutable_data<std::uint8_t>();
    float* const t = result.scales.mutable_data<float>();
    const auto quantise = HWY_DYNAMIC_DISPATCH(QuantiseRow);
    each([&](Index r) {
      std::uint8_t* const row = u + r * row_bytes;
      t[r] = quantise(x + r * stride, inputs_, bytes, split ? row + bytes : row);
      if (split) split(bytes / 4, row);
    });
  } else if (const auto round = bfloat16_kernels().round) {
    const Index pairs = depth_of(inputs_, 2);
    result.packed = empty({readable, 2 * pairs}, DType::bf16);
    BFloat16* const to = result.packed.mutable_data<BFloat16>();
    each([&](Index r) { round(x + r * stride, inputs_, pairs, reinterpret_cast<std::uint32_t*>(to + r * 2 * pairs)); });
  }
  return result;
}

void LowPrecisionWeight::multiply_block(const Rows& x, Index row, Index rows, Index group, Index groups, const float* bias, float* y,
                                        Index y_row) const {
  if (precision_ == Precision::int8) {
    const Index quads = depth_of(inputs_, 4);
    const auto multiply = HWY_DYNAMIC_DISPATCH(BestInt8)().multiply;
    return multiply({rows, quads, x.packed.data<std::uint8_t>() + row * x.packed.size(1), x.scales.data<float>() + row, groups,
                     reinterpret_cast<const std::int8_t*>(groups_.data<std::uint8_t>()) + group * quads * kGroup * 4,
                     scales_.data<float>() + group * kGroup, sums_.data<std::int32_t>() + group * kGroup, bias, y, y_row});
  }
  const Finish<float> finish{.bias = bias};
  const Index pairs = depth_of(inputs_, 2);
  const auto* const weights = reinterpret_cast<const std::uint32_t*>(groups_.data<BFloat16>()) + group * pairs * kGroup;
  if (x.packed.defined()) {
    const auto* const in = reinterpret_cast<const std::uint32_t*>(x.packed.data<BFloat16>()) + row * pairs;
    bfloat16_kernels().multiply({rows, pairs, in, groups, weights, y, y_row});
    return finish(y, y_row, 0, rows, 0, groups * kGroup);
  }
  for (Index r = 0; r < rows && inputs_ == 0; ++r) std::fill_n(y + r * y_row, groups * kGroup, 0.0f);
  const auto widen = HWY_DYNAMIC_DISPATCH(Widen);
  const auto kernels = gemm_kernels<float>();
  const Index width = std::min(kGroup, (rows <= kernels.rows[4] ? 4 : 2) * kernels.lanes), depth = kPart / width;   // depth is even
  float panel[kPart];
  for (Index g = 0; g < groups; ++g)
    for (Index j = 0; j < kGroup; j += width)
      for (Index k = 0; k < inputs_; k += depth) {
        const Index some = std::min(depth, inputs_ - k);
        widen(weights + (g * pairs + k / 2) * kGroup, divide_up(some, 2), j, width, panel);
        kernels.panel(rows, some, x.x + row * x.stride + k, x.stride, panel, width, k > 0, y + g * kGroup + j, y_row);
      }
  finish(y, y_row, 0, rows, 0, groups * kGroup);
}

void LowPrecisionWeight::multiply(Index rows, const float* x, Index x_row, float* y, Finish<float> finish) const {
  if (rows == 0 || outputs_ == 0) return;
  const Rows in = rows_of(rows, x, x_row);
  const double seconds = double(rows) * double(outputs_) * double(inputs_) / 100e9 + double(outputs_ * inputs_) / 20e9;
  const Index unit = finish.run ? Finish<float>::kFinishColumns : kGroup, units = divide_up(outputs_, unit);
  const Cut down{rows, 2 * kTile, divide_up(rows, kRowBlock)};
  const Cut across{outputs_, unit, std::clamp(pieces(seconds, down.parts * units) / down.parts, divide_up(outputs_, kColumnBlock), units)};
  const auto chunk_of = [&](Index chunk) {
    const Index row_part = chunk / across.parts, row = down.begin(row_part), some = down.size(row_part);
    const Index column_part = chunk % across.parts, column = across.begin(column_part), columns = across.size(column_part),
                whole = columns / kGroup;
    const float* const bias = finish.bias ? finish.bias + column : nullptr;
    float* const to = y + row * outputs_ + column;
    multiply_block(in, row, some, column / kGroup, whole, bias, to, outputs_);
    if (const Index rest = columns % kGroup; rest != 0) {
      float edge[kRowBlock * kGroup], edge_bias[kGroup] = {};
      if (bias) std::copy_n(bias + whole * kGroup, rest, edge_bias);
      multiply_block(in, row, some, column / kGroup + whole, 1, bias ? edge_bias : nullptr, edge, kGroup);
      for (Index r = 0; r < some; ++r) std::copy_n(edge + r * kGroup, rest, to + r * outputs_ + whole * kGroup);
    }
    if (finish.run) finish.run(finish.self, row, some, column, columns);
  };
  run_chunks(seconds > kHandOff, down.parts * across.parts, chunk_of);
}

}  // namespace heed
#endif
