// SPDX-License-Identifier: Apache-2.0
// The dropout mask of tensor/dropout.h for kernels: 128 elements from 16 Philox blocks, the same bits on every target.
#include <cstring>

#include "tensor/dropout.h"
#include "tensor/simd-inl.h"

#if defined(HEED_TENSOR_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_TENSOR_DROPOUT_INL_H_
#undef HEED_TENSOR_DROPOUT_INL_H_
#else
#define HEED_TENSOR_DROPOUT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
// Ten rounds on the blocks in the even 32-bit lanes; MulEven ignores what stands in the odd ones.
template <class D, class V> HWY_INLINE void PhiloxEven(D d, uint64_t key, V& c0, V& c1, V& c2, V& c3) {
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  auto k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const auto p0 = hn::MulEven(m0, c0), p1 = hn::MulEven(m1, c2);
    c0 = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p1)), hn::Xor(c1, hn::Set(d, k0)));
    c2 = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p0)), hn::Xor(c3, hn::Set(d, k1)));
    c1 = hn::BitCast(d, p1);
    c3 = hn::BitCast(d, p0);
  }
}
#endif

// words[16 w + lane] = word w of philox(key, 16 group + lane)
HWY_INLINE void PhiloxGroup(uint64_t key, uint64_t group, uint32_t* HWY_RESTRICT words) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t lane = 0; lane < 16; ++lane) {
    const auto block = philox(Key::from_bits(key), 16 * group + lane);
    for (size_t w = 0; w < 4; ++w) words[16 * w + lane] = block[w];
  }
#else
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Repartition<uint64_t, decltype(d)> wide;
  using V = hn::Vec<decltype(d)>;
  const auto low = uint32_t(16 * group), high = uint32_t(group >> 28);
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(d)) {
    V even0 = hn::Add(hn::Iota(d, 0), hn::Set(d, low + uint32_t(lane))), even1 = hn::Set(d, high), even2 = hn::Zero(d), even3 = even2;
    V odd0 = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, even0))), odd1 = even1, odd2 = even2, odd3 = even2;
    PhiloxEven(d, key, even0, even1, even2, even3);
    PhiloxEven(d, key, odd0, odd1, odd2, odd3);
    const auto join = [&](V odd, V even) HWY_ATTR {
      return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(wide, odd))), even);
    };
    hn::StoreU(join(odd0, even0), d, words + lane);
    hn::StoreU(join(odd1, even1), d, words + 16 + lane);
    hn::StoreU(join(odd2, even2), d, words + 32 + lane);
    hn::StoreU(join(odd3, even3), d, words + 48 + lane);
  }
#endif
}

// out[0..127] = factors of elements 128 group ...
HWY_INLINE void DropoutGroup(const DropoutKey& dropout, uint64_t group, float* HWY_RESTRICT out) {
  uint32_t words[64];
  PhiloxGroup(dropout.key.bits(), group, words);
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto scale = hn::Set(d, float(dropout.scale));
  const auto below = hn::Set(di, int32_t(dropout.threshold) - 1);
  const auto mask = hn::Set(du, 0xffffu);
  for (size_t i = 0; i < 64; i += hn::Lanes(d)) {
    const auto word = hn::LoadU(du, words + i);
    const auto first = hn::BitCast(di, hn::And(word, mask)), second = hn::BitCast(di, hn::ShiftRight<16>(word));
    float* HWY_RESTRICT to = out + i / 16 * 32 + i % 16;
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(first, below)), scale), d, to);
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(second, below)), scale), d, to + 16);
  }
}

HWY_INLINE void DropoutGroup(const DropoutKey& dropout, uint64_t group, double* HWY_RESTRICT out) {
  uint32_t words[64];
  PhiloxGroup(dropout.key.bits(), group, words);
  for (size_t i = 0; i < 64; ++i) {
    double* HWY_RESTRICT to = out + i / 16 * 32 + i % 16;
    to[0] = (words[i] & 0xffff) >= dropout.threshold ? dropout.scale : 0;
    to[16] = (words[i] >> 16) >= dropout.threshold ? dropout.scale : 0;
  }
}

// out[j] = 0 or scale, the factor of element start + j, j < n. Cheapest where start and n are multiples of 128.
template <class T> void DropoutFactors(const DropoutKey& dropout, Index start, size_t n, T* HWY_RESTRICT out) {
  const DropoutKey key = dropout;                          // a copy, so that its broadcasts leave the loop
  T edge[128];
  auto skip = size_t(start % 128);
  for (auto group = uint64_t(start) / 128; n > 0; ++group, skip = 0) {
    const size_t count = HWY_MIN(128 - skip, n);
    T* const to = count == 128 ? out : edge;
    DropoutGroup(key, group, to);
    if (to == edge) std::memcpy(out, edge + skip, count * sizeof(T));
    out += count;
    n -= count;
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
