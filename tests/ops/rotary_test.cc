// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/rotary.h"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>

#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/play.h"

using namespace heed;

namespace {

// (a + ib) e^iφ
reference::Function turned(RotaryLayout layout) {
  return [layout](const reference::Arrays& x) {
    const Shape& shape = x[0].shape;
    const Index d = shape[shape.rank() - 1];
    return reference::make(shape, [&](reference::Position at) {
      const auto axis = std::size_t(shape.rank() - 1);
      const Index j = at[axis], p = layout == RotaryLayout::half ? j % (d / 2) : j / 2;
      const double angle = double(2 + at[axis - 1]) * std::pow(50.0, -2.0 * double(p) / double(d));
      reference::Position a = at, b = at;
      a[axis] = layout == RotaryLayout::half ? p : 2 * p, b[axis] = layout == RotaryLayout::half ? p + d / 2 : 2 * p + 1;
      const std::complex<double> z = std::complex(x[0](a), x[0](b)) * std::polar(1.0, angle);
      return j == a[axis] ? z.real() : z.imag();
    });
  };
}

}  // namespace

TEST_CASE("rotary: a product of turned rows depends on their distance alone, length is kept, any layout of memory") {
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half})
    for (const Index d : {2, 6, 16, 32, 50}) {
      const Rotations all_of = rotations(40, d, DType::f64, layout);
      const Tensor q = normal(Key(1), {1, d}, 0, 1, DType::f64), k = normal(Key(2), {1, d}, 0, 1, DType::f64);
      const auto product = [&](Index i, Index j) {
        return sum(rotary(q, all_of.rows(i, i + 1)) * rotary(k, all_of.rows(j, j + 1))).item<double>();
      };
      for (const Index r : {0, 1, 7}) CHECK(product(3 + r, 3) == doctest::Approx(product(20 + r, 20)).epsilon(1e-12));
      CHECK(product(5, 5) == doctest::Approx(sum(q * k).item<double>()).epsilon(1e-12));
      const Tensor x = normal(Key(3), {2, 40, 3, d}, 0, 1, DType::f64), heads = transpose(x, 1, 2), y = rotary(heads, all_of);
      for_every_target([&] { CHECK(equal_bits(rotary(heads, all_of), y)); });
      for_threads([&] { CHECK(equal_bits(rotary(heads.clone(), all_of), y)); });
      CHECK(equal_bits(rotary(transpose(transpose(heads).clone()), all_of), y));
      CHECK(equal_bits(rotary(heads[1][2], all_of), y[1][2]));
      CHECK(equal_bits(rotary(slice(heads, 2, 7, 9), rotations(2, d, DType::f64, layout, 7)), slice(y, 2, 7, 9)));
      // back again, added into a view
      const Tensor back = ones({2, 40, 3, d}, DType::f64);
      rotary_grad(y, all_of, {transpose(back, 1, 2), true});
      CHECK(worst_absolute(back, doubles(x + 1.0)) < 1e-14);
    }
  // converting a head's columns: half column p is interleaved 2p, half column p + d/2 interleaved 2p + 1
  const Index d = 6;
  const Tensor x = normal(Key(4), {5, d}), half = concat({slice(x, 1, 0, d, 2), slice(x, 1, 1, d, 2)}, 1);
  const Tensor y = rotary(x, rotations(5, d));
  CHECK(equal_bits(rotary(half, rotations(5, d, DType::f32, RotaryLayout::half)), concat({slice(y, 1, 0, d, 2), slice(y, 1, 1, d, 2)}, 1)));
  CHECK(rotary(zeros({3, 0, 4}), rotations(0, 4)).shape() == Shape{3, 0, 4});
}

TEST_CASE("rotary: what does not fit is refused") {
  const Rotations r = rotations(3, 4);
  CHECK_THROWS_WITH_AS(rotary(zeros({4, 4}), r), "rotary: rotations do not fit the last two axes: x [4, 4], rotations [3, 4]", ShapeError);
  CHECK_THROWS_WITH_AS(rotary(zeros({4}), r), "rotary: needs at least 2 dimensions [.., T, d]: x [4]", ShapeError);
  CHECK_THROWS_WITH_AS(rotary(zeros({3, 4}, DType::f64), r), "rotary: dtypes differ: x f64, rotations f32", DTypeError);
  CHECK_THROWS_WITH_AS(rotary_grad(zeros({3, 4}), r, {zeros({4, 3})}), "rotary_grad: shapes differ: dy [3, 4], dx [4, 3]", ShapeError);
  CHECK_THROWS_WITH_AS(rotations(3, 5), "rotary: needs length >= 0 and an even width: [3, 5]", ShapeError);
  CHECK_THROWS_WITH_AS(rotations(3, 4, DType::f32, RotaryLayout::half, 0, 0), "rotary: base must be positive: 0", Error);
}

static const InTable rows{
    {.name = "rotary", .reference = turned(RotaryLayout::interleaved)},
    {.name = "rotary half", .reference = turned(RotaryLayout::half)},
    {.name = "rotary wide", .reference = turned(RotaryLayout::interleaved)},
    {.name = "rotary half wide", .reference = turned(RotaryLayout::half)},
};
