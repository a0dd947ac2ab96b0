// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tensor/ops/linear.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

const std::byte* packed_panels(const Tensor& weight) { return PackedWeights::current() ? (*PackedWeights::current())(weight).panels : nullptr; }

bool same_bits(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.span<float>(), b.span<float>()); }

}  // namespace

TEST_CASE("packed weights: the bits of a product stay, for rows, columns and depths of any number, on every target") {
  for_every_target([] {
    for (Index rows : {1, 3, 14, 15, 32, 130})
      for (Index out : {1, 31, 64, 300})
        for (Index in : {1, 24, 700}) {
          const Key key(Seed{std::uint64_t(rows + out + in)});
          const Tensor x = normal(key / 0, {rows, in}), w = normal(key / 1, {out, in}), b = normal(key / 2, {out});
          const Tensor expected = linear(x, w, b).y;
          PackedWeights packed;
          const PackedWeights::Use use(packed);
          for (int meeting = 0; meeting < 3; ++meeting) CHECK(same_bits(linear(x, w, b).y, expected));
          CHECK(same_bits(linear(x, transpose(transpose(w).clone()), b).y, expected));
        }
  });
}

TEST_CASE("packed weights: made at the second meeting, anew after a write, one for each view, forgotten with the weight; a scope ends") {
  const Tensor w = normal(Key(Seed{1}), {64, 16}), x = normal(Key(Seed{2}), {2, 16});
  PackedWeights packed;
  CHECK(!packed_panels(w));
  {
    const PackedWeights::Use use(packed);
    CHECK(!packed_panels(w));
    const std::byte* const panels = packed_panels(w);
    CHECK(panels);
    CHECK(packed_panels(w) == panels);
    CHECK(!packed_panels(slice(w, 0, 32, 64)));
    const Tensor lower = linear(x, slice(w, 0, 32, 64), {}).y.clone();
    fill_(w, 2);
    CHECK(!packed_panels(w));
    CHECK(packed_panels(w));
    CHECK(same_bits(linear(x, w, {}).y(all, 0).contiguous(), linear(x, full({1, 16}, 2), {}).y(all, 0).contiguous()));
    CHECK(!same_bits(linear(x, slice(w, 0, 32, 64), {}).y, lower));
    {
      PackedWeights other;
      const PackedWeights::Use inner(other);
      CHECK(!packed_panels(w));
    }
    CHECK(packed_panels(w));
  }
  CHECK(!packed_panels(w));

  const std::size_t before = memory_use().in_use;
  for (int i = 0; i < 20; ++i) {
    const Tensor passing = ones({256, 256});
    for (int meeting = 0; meeting < 3; ++meeting) (void)packed(passing);
  }
  CHECK(memory_use().in_use <= before + 4 * 256 * 256 * sizeof(float));
}
