// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/random.h"
#include "tensor/ops/recurrent.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

const std::byte* packed_panels(const Tensor& weight) {
  return PackedWeights::current() ? (*PackedWeights::current())(weight).panels : nullptr;
}

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
          for (int meeting = 0; meeting < 3; ++meeting) CHECK(equal_bits(linear(x, w, b).y, expected));
          CHECK(equal_bits(linear(x, transpose(transpose(w).clone()), b).y, expected));
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
    if (has_bfloat16_products()) {
      const ProductPrecision rounded(Precision::bfloat16);                      // whose products read none
      CHECK(!packed_panels(w));
    }
    const std::byte* const panels = packed_panels(w);
    CHECK(panels);
    CHECK(packed_panels(w) == panels);
    CHECK(!packed_panels(slice(w, 0, 32, 64)));
    const Tensor lower = linear(x, slice(w, 0, 32, 64), {}).y.clone();
    fill_(w, 2);
    CHECK(!packed_panels(w));
    CHECK(packed_panels(w));
    CHECK(equal_bits(linear(x, w, {}).y(all, 0).contiguous(), linear(x, full({1, 16}, 2), {}).y(all, 0).contiguous()));
    CHECK(!equal_bits(linear(x, slice(w, 0, 32, 64), {}).y, lower));
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

TEST_CASE("packed weights: a recurrent cell's bits stay, and its weights are not packed in fewer bits") {
  const Index B = 5, n = 24;
  for (const auto unit : {RecurrentUnit::tanh, RecurrentUnit::lstm, RecurrentUnit::gru_bahdanau, RecurrentUnit::gru_cudnn}) {
    const Index rows = gate_count(unit) * n;
    const Tensor a = normal(Key(Seed{1}), {B, rows}), h = normal(Key(Seed{2}), {B, n}), c = normal(Key(Seed{3}), {B, n}),
                 w = normal(Key(Seed{4}), {rows, n});
    const auto next = [&] { return recurrent_cell(unit, a, h, unit == RecurrentUnit::lstm ? c : Tensor(), w, {}).h; };
    const Tensor expected = next();
    for (const auto precision : {Precision::float32, Precision::int8}) {
      PackedWeights packed(precision);
      const PackedWeights::Use use(packed);
      for (int meeting = 0; meeting < 3; ++meeting) CHECK(equal_bits(next(), expected));
    }
  }
}

TEST_CASE("packed weights: parts of a weight that is gone are forgotten together") {
  PackedWeights packed;
  const PackedWeights::Use use(packed);
  const Tensor x = normal(Key(Seed{1}), {2, 64});
  std::size_t after_two = 0;
  for (int round = 0; round < 20; ++round) {
    const Tensor w = normal(Key(Seed{2}), {768, 64});
    for (const Index first : {0, 256, 512})
      for (int meeting = 0; meeting < 2; ++meeting) linear(x, slice(w, 0, first, first + 256), {});
    if (round == 1) after_two = memory_use().in_use;
  }
  CHECK(memory_use().in_use <= after_two + (std::size_t{64} << 10));
}

TEST_CASE("packed weights: a thread that packs and threads of a region that look for weights do not wait for each other") {
  const int before = threads();
  set_threads(2);
  PackedWeights packed;
  std::atomic<bool> done{false};
  std::thread regions([&] {
    const Tensor x = normal(Key(Seed{1}), {2, 64}), w = normal(Key(Seed{2}), {64, 64});
    while (!done)
      parallel_for(8, 1, [&](Index, Index) {
        const PackedWeights::Use use(packed);
        for (int i = 0; i < 20; ++i) linear(x, w, {});
      });
  });
  {
    const PackedWeights::Use use(packed);
    const Tensor x = normal(Key(Seed{1}), {2, 512});
    for (std::uint64_t i = 0; i < 150; ++i) {
      const Tensor w = normal(Key(Seed{i}), {512, 512});
      const Tensor expected = linear(x, w, {}).y;
      CHECK(equal_bits(linear(x, w, {}).y, expected));
    }
  }
  done = true;
  regions.join();
  set_threads(before);
}
