// SPDX-License-Identifier: Apache-2.0
#include "tensor/mask.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>

#include "tensor/error.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

namespace {

constexpr Index B = 3, T = 5, S = 7;
using Rule = std::function<bool(Index b, Index t, Index s)>;

std::vector<double> by_rule(const Rule& may) {
  std::vector<double> out;
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index s = 0; s < S; ++s) out.push_back(may(b, t, s));
  return out;
}

}  // namespace

TEST_CASE("mask: of some sentences, in any order") {
  const Tensor ids = tensor({2, 0, 0, 1}, DType::i64), whole = empty({B, 1, S}, DType::u8);
  for (Index i = 0; i < B * S; ++i) whole.mutable_data<std::uint8_t>()[i] = i % 3 != 1;
  const Mask lengths = Mask::lengths(tensor({7, 4, 2}, DType::i32));
  for (const Mask& mask : {Mask(), lengths, Mask::causal(1), lengths & Mask::window(1, 2), lengths & Mask::allowed(whole),
                           Mask::allowed(whole[0]), Mask::allowed(whole(Slice{0, 1})), Mask::allowed(zeros({1}, DType::u8))})
    CHECK(doubles(mask.of_sentences(ids, 3).dense({4, T, S})) == doubles(index_select(mask.dense({B, T, S}), 0, ids)));
}

TEST_CASE("mask: every kind by its rule, and what two of them allow together") {
  const std::vector<std::int32_t> lengths{7, 4, 0};
  const Tensor allowed = empty({T, S}, DType::u8);
  for (Index i = 0; i < T * S; ++i) allowed.mutable_data<std::uint8_t>()[i] = i % 3 != 1;
  struct Kind {
    std::string name;
    Mask mask;
    Rule may;
  };
  const Kind kinds[] = {
      {"everything", {}, [](Index, Index, Index) { return true; }},
      {"lengths", Mask::lengths(tensor(lengths, {B})), [&](Index b, Index, Index s) { return s < lengths[std::size_t(b)]; }},
      {"causal", Mask::causal(), [](Index, Index t, Index s) { return s <= t; }},
      {"causal, 2 cached", Mask::causal(2), [](Index, Index t, Index s) { return s <= t + 2; }},
      {"window", Mask::window(1, 2), [](Index, Index t, Index s) { return t - 1 <= s && s <= t + 2; }},
      {"window, 1 cached", Mask::window(2, 0, 1), [](Index, Index t, Index s) { return t - 1 <= s && s <= t + 1; }},
      {"allowed", Mask::allowed(allowed), [](Index, Index t, Index s) { return (t * S + s) % 3 != 1; }},
  };
  for (const Kind& a : kinds) {
    CHECK_MESSAGE(doubles(a.mask.dense({B, T, S})) == by_rule(a.may), a.name);
    for (const Kind& b : kinds) {
      if (a.mask.lengths().defined() && b.mask.lengths().defined()) continue;
      INFO(a.name << " & " << b.name);
      CHECK(doubles((a.mask & b.mask).dense({B, T, S})) ==
            by_rule([&](Index i, Index t, Index s) { return a.may(i, t, s) && b.may(i, t, s); }));
    }
  }
}

TEST_CASE("mask: causal and window need an axis of sentences before the last two") {
  const Tensor scores = zeros({4, 4});
  for (const Mask& mask : {Mask::causal(), Mask::window(1, 1)}) {
    CHECK_THROWS_WITH_AS(mask.dense({4, 4}), doctest::Contains("need scores [B, ..., T, S]: scores [4, 4]; unsqueeze(x, 0)"), ShapeError);
    CHECK_THROWS_AS(softmax(scores, -1, mask), ShapeError);
  }
  CHECK(sum(Mask::causal().dense({1, 4, 4})).item() == 10);
  CHECK(doubles(Mask().dense({3})) == std::vector<double>(3, 1));
  CHECK(Mask().dense({}).item() == 1);
}

TEST_CASE("mask: any byte but 0 allows; offsets of any size") {
  const Mask one = Mask::allowed(tensor({1, 2, 0, 4}, DType::u8)), two = Mask::allowed(tensor({2, 1, 1, 0}, DType::u8));
  CHECK((one & two).dense({1, 4}).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 1, 0, 0});
  CHECK(one.dense({1, 4}).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 1, 0, 1});
  CHECK(doubles(Mask::causal(INT64_MAX).dense({1, 2, 2})) == std::vector<double>(4, 1));
  CHECK(doubles(Mask::causal(INT64_MIN).dense({1, 2, 2})) == std::vector<double>(4, 0));
  CHECK(doubles(Mask::window(INT64_MAX, INT64_MAX).dense({1, 2, 2})) == std::vector<double>(4, 1));
}

TEST_CASE("mask: a sliding window with gaps of heads and global positions by its rule, alone and with others") {
  const Index H = 3;
  const std::vector<std::int32_t> lengths{7, 4, 0}, gaps{1, 2, 5};
  const Tensor allowed = empty({B, 1, T, S}, DType::u8);
  for (Index i = 0; i < B * T * S; ++i) allowed.mutable_data<std::uint8_t>()[i] = i % 3 != 1;
  for (const Index left : {0, 1, 3})
    for (const Index right : {0, 2})
      for (const Index offset : {-3, 0, 1, 4, 20})
        for (const Index global : {0, 1, 3, 9})
          for (const bool with_gaps : {false, true}) {
            const Mask sliding = Mask::sliding({left, right, offset, with_gaps ? tensor(gaps, {H}) : Tensor(), global});
            const auto check = [&](const Mask& mask, const Rule& may) {
              std::vector<double> expected;
              for (Index b = 0; b < B; ++b)
                for (Index h = 0; h < H; ++h)
                  for (Index t = 0; t < T; ++t)
                    for (Index s = 0; s < S; ++s) {
                      const Index g = with_gaps ? gaps[std::size_t(h)] : 1, i = t + offset;
                      bool near = s < global;
                      for (Index m = -left; m <= right; ++m) near = near || s == i + m * g;
                      expected.push_back(near && may(b, t, s));
                    }
              CHECK(doubles(mask.dense({B, H, T, S})) == expected);
              if (mask.allowed().defined() || !mask.sliding()) return;
              std::vector<double> in_steps;
              for (Index i = 0; i < B * H * T; ++i) {
                const Mask::Steps r = mask.steps(i / (H * T), i / T % H, i % T, S);
                CHECK((r.first >= 0 && r.first <= r.last && r.last <= S && r.step >= 1 && r.front <= S));
                for (Index s = 0; s < S; ++s)
                  in_steps.push_back(s < r.front || (s >= r.first && s < r.last && (s - r.first) % r.step == 0));
              }
              CHECK(in_steps == expected);
            };
            CAPTURE(left);
            CAPTURE(right);
            CAPTURE(offset);
            CAPTURE(global);
            CAPTURE(with_gaps);
            check(sliding, [](Index, Index, Index) { return true; });
            check(Mask::causal(offset) & sliding, [&](Index, Index t, Index s) { return s <= t + offset; });
            check(sliding & Mask::lengths(tensor(lengths, {B})) & Mask::causal(1),
                  [&](Index b, Index t, Index s) { return s < lengths[std::size_t(b)] && s <= t + 1; });
            if (global == 0)
              check(sliding & Mask::window(2, 1, offset) & Mask::lengths(tensor(lengths, {B})),
                    [&](Index b, Index t, Index s) { return s < lengths[std::size_t(b)] && t + offset - 2 <= s && s <= t + offset + 1; });
            check(Mask::allowed(allowed) & sliding, [](Index b, Index t, Index s) { return ((b * T + t) * S + s) % 3 != 1; });
            const Tensor ids = tensor({2, 0}, DType::i64);
            const Mask all = sliding & Mask::lengths(tensor(lengths, {B})) & Mask::allowed(allowed);
            CHECK(doubles(all.of_sentences(ids, 4).dense({2, H, T, S})) == doubles(index_select(all.dense({B, H, T, S}), 0, ids)));
            CHECK(doubles(all.of_first_rows(2).dense({B, H, 2, S})) == doubles(slice(all.dense({B, H, T, S}), 2, 0, 2)));
          }
  const Mask plain = Mask::sliding({1, 2, 0, tensor({1, 1, 1}, DType::i32)});
  CHECK((!plain.sliding() && !plain.differs_by_head()));                                  // the window it is
  CHECK(doubles(plain.dense({B, T, S})) == doubles(Mask::window(1, 2).dense({B, T, S})));
  const Mask gapped = Mask::sliding({1, 1, 0, tensor(gaps, {H})}), global = Mask::sliding({1, 1, 0, {}, 1});
  CHECK((gapped.differs_by_head() && !global.differs_by_head()));
  CHECK_FALSE((gapped.everything() || gapped.only_lengths() || (gapped & Mask::causal()).only_causal()));
  CHECK(sum(Mask::sliding({INT64_MAX, INT64_MAX, 0, tensor({2}, DType::i32)}).dense({1, 1, 4, 4})).item() == 8);
  CHECK(sum(Mask::sliding({INT64_MAX, INT64_MAX, INT64_MAX, tensor({INT32_MAX}, DType::i32), INT64_MAX}).dense({1, 1, 4, 4})).item() == 16);
  CHECK_THROWS_WITH_AS(gapped & global, "mask: both sides of & have a sliding window with gaps or global positions", Error);
  CHECK_THROWS_WITH_AS(global & Mask::window(1, 1),
                       "mask: a window hides global positions from the rows beyond it: a window & a sliding window with 1 of them", Error);
  for (const Mask& both : {gapped, global}) {
    CHECK_THROWS_WITH_AS(both.dense({B, T, S}),
                         "mask: a sliding window with gaps or global positions needs scores [B, H, T, S]: scores [3, 5, 7]", ShapeError);
  }
  CHECK_THROWS_WITH_AS(gapped.dense({B, 2, T, S}),
                       "mask: the mask has gaps for 3 heads, the scores have 2: dilation [3], scores [3, 2, 5, 7]", ShapeError);
  CHECK_THROWS_WITH_AS(Mask::sliding({1, 1, 0, tensor({2, 0}, DType::i32)}), "mask: gaps must be at least 1, which is none: dilation 0",
                       Error);
  CHECK_THROWS_WITH_AS(Mask::sliding({1, 1, 0, tensor({2, 2}, DType::i64)}), "mask: dilation needs dtype i32: dilation i64", DTypeError);
  CHECK_THROWS_WITH_AS(Mask::sliding({1, 1, 0, ones({2, 2}, DType::i32)}),
                       "mask: dilation needs 1 dimension, a gap for each head: dilation [2, 2]", ShapeError);
  CHECK_THROWS_WITH_AS(Mask::sliding({1, 1, 0, {}, -1}), "mask: a negative number of global positions: -1", Error);
  CHECK_THROWS_WITH_AS(Mask::sliding({-1, 1, 0, tensor({2}, DType::i32)}),
                       doctest::Contains("mask: window sizes must not be negative: left -1, right 1"), Error);
}
