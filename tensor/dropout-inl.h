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
// In the even 32-bit lanes of c[2 g] and c[2 g + 1]: the blocks philox(key, 16 (group + g) + lane) of the even lanes, then of the odd ones.
// MulEven ignores what stands between. A round waits for the one before, so that chains side by side cost little more than one.
template <size_t kChains, class D, class V>
HWY_INLINE void PhiloxChains(D d, uint64_t key, uint64_t group, size_t lane, V (&c)[kChains][4]) {
  const hn::Repartition<uint64_t, D> wide;
  HWY_UNROLL(4)
  for (size_t i = 0; i < kChains; ++i) {
    const auto counters = hn::Add(hn::Iota(d, 0), hn::Set(d, uint32_t(16 * (group + i / 2) + lane)));
    c[i][0] = i % 2 ? hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, counters))) : counters;
    c[i][1] = hn::Set(d, uint32_t((group + i / 2) >> 28));
    c[i][2] = c[i][3] = hn::Zero(d);
  }
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  auto k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const V key0 = hn::Set(d, k0), key1 = hn::Set(d, k1);
    HWY_UNROLL(4)
    for (size_t i = 0; i < kChains; ++i) {
      const auto p0 = hn::MulEven(m0, c[i][0]), p1 = hn::MulEven(m1, c[i][2]);
      c[i][0] = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p1)), c[i][1], key0);
      c[i][2] = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p0)), c[i][3], key1);
      c[i][1] = hn::BitCast(d, p1);
      c[i][3] = hn::BitCast(d, p0);
    }
  }
}
#endif

// words[64 g + 16 w + lane] = word w of philox(key, 16 (group + g) + lane), g < kGroups
template <size_t kGroups> HWY_INLINE void PhiloxGroups(uint64_t key, uint64_t group, uint32_t* HWY_RESTRICT words) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t lane = 0; lane < 16 * kGroups; ++lane) {
    const auto block = philox(Key::from_bits(key), 16 * group + lane);
    for (size_t w = 0; w < 4; ++w) words[lane / 16 * 64 + 16 * w + lane % 16] = block[w];
  }
#else
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Repartition<uint64_t, decltype(d)> wide;
  using V = hn::Vec<decltype(d)>;
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(d)) {
    V c[2 * kGroups][4];
    PhiloxChains(d, key, group, lane, c);
    HWY_UNROLL(2)
    for (size_t g = 0; g < kGroups; ++g)
      HWY_UNROLL(4)
      for (size_t w = 0; w < 4; ++w)
        hn::StoreU(hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(wide, c[2 * g + 1][w]))), c[2 * g][w]), d,
                   words + 64 * g + 16 * w + lane);
  }
#endif
}

// Groups whose random numbers are made at once: as many as the registers hold.
#undef HEED_PHILOX_GROUPS
#if HWY_TARGET <= HWY_AVX3
#define HEED_PHILOX_GROUPS 2
#else
#define HEED_PHILOX_GROUPS 1
#endif

// out[0 .. 128 kGroups - 1] = factors of elements 128 group ...
template <size_t kGroups> HWY_INLINE void DropoutGroups(const DropoutKey& dropout, uint64_t group, float* HWY_RESTRICT out) {
  uint32_t words[64 * kGroups];
  PhiloxGroups<kGroups>(dropout.key.bits(), group, words);
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto scale = hn::Set(d, float(dropout.scale));
  const auto below = hn::Set(di, int32_t(dropout.threshold) - 1);
  const auto mask = hn::Set(du, 0xffffu);
  for (size_t i = 0; i < 64 * kGroups; i += hn::Lanes(d)) {
    const auto word = hn::LoadU(du, words + i);
    const auto first = hn::BitCast(di, hn::And(word, mask)), second = hn::BitCast(di, hn::ShiftRight<16>(word));
    float* HWY_RESTRICT to = out + i / 16 * 32 + i % 16;
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(first, below)), scale), d, to);
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(second, below)), scale), d, to + 16);
  }
}

template <size_t kGroups> HWY_INLINE void DropoutGroups(const DropoutKey& dropout, uint64_t group, double* HWY_RESTRICT out) {
  uint32_t words[64 * kGroups];
  PhiloxGroups<kGroups>(dropout.key.bits(), group, words);
  for (size_t i = 0; i < 64 * kGroups; ++i) {
    double* HWY_RESTRICT to = out + i / 16 * 32 + i % 16;
    to[0] = (words[i] & 0xffff) >= dropout.threshold ? dropout.scale : 0;
    to[16] = (words[i] >> 16) >= dropout.threshold ? dropout.scale : 0;
  }
}

// out[j] = 0 or scale, the factor of element start + j, j < n. Cheapest where start is a multiple of 128 and n one of 256.
template <class T> void DropoutFactors(const DropoutKey& dropout, Index start, size_t n, T* HWY_RESTRICT out) {
  constexpr size_t kMany = HEED_PHILOX_GROUPS;
  const DropoutKey key = dropout;                          // a copy, so that its broadcasts leave the loop
  T edge[128];
  auto skip = size_t(start % 128);
  for (auto group = uint64_t(start) / 128; n > 0; skip = 0) {
    if (kMany > 1 && skip == 0 && n >= 128 * kMany) {
      DropoutGroups<kMany>(key, group, out);
      out += 128 * kMany, n -= 128 * kMany, group += kMany;
      continue;
    }
    const size_t count = HWY_MIN(128 - skip, n);
    T* const to = count == 128 ? out : edge;
    DropoutGroups<1>(key, group, to);
    if (to == edge) std::memcpy(out, edge + skip, count * sizeof(T));
    out += count;
    n -= count;
    ++group;
  }
}

}  // namespace
}  // namespace heed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
