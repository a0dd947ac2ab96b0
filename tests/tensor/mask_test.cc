// SPDX-License-Identifier: Apache-2.0
#include "tensor/mask.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>

#include "tensor/error.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
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
  for (const Mask& mask : {Mask(), lengths, Mask::causal(1), lengths & Mask::window(1, 2), lengths & Mask::allowed(whole), Mask::allowed(whole[0]), Mask::allowed(whole(Slice{0, 1})), Mask::allowed(zeros({1}, DType::u8))})
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
      CHECK(doubles((a.mask & b.mask).dense({B, T, S})) == by_rule([&](Index i, Index t, Index s) { return a.may(i, t, s) && b.may(i, t, s); }));
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
}

TEST_CASE("mask: any byte but 0 allows; offsets of any size") {
  const Mask one = Mask::allowed(tensor({1, 2, 0, 4}, DType::u8)), two = Mask::allowed(tensor({2, 1, 1, 0}, DType::u8));
  CHECK((one & two).dense({1, 4}).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 1, 0, 0});
  CHECK(doubles(Mask::causal(INT64_MAX).dense({1, 2, 2})) == std::vector<double>(4, 1));
  CHECK(doubles(Mask::causal(INT64_MIN).dense({1, 2, 2})) == std::vector<double>(4, 0));
  CHECK(doubles(Mask::window(INT64_MAX, INT64_MAX).dense({1, 2, 2})) == std::vector<double>(4, 1));
}
