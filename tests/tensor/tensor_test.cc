// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tensor/ops/view.h"
#include "tests/every_target.h"

using namespace heed;

// x[0] = y must not compile: it would reseat a temporary and change no element.
static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<Tensor, Tensor>);
static_assert(std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);

namespace {

using Floats = std::vector<float>;
#define THROWS(expression, type, text) CHECK_THROWS_WITH_AS((void)(expression), text, type)

}  // namespace

TEST_CASE("a copy of a handle shares the elements, clone copies them") {
  Tensor x = tensor({{1, 2}, {3, 4}});
  const Tensor same = x, copy = x.clone();
  copy_into(x[0], tensor({7, 8}));
  CHECK(same.to_vector<float>() == Floats{7, 8, 3, 4});
  CHECK(copy.to_vector<float>() == Floats{1, 2, 3, 4});
  x = copy;                                                   // reseats this handle only
  CHECK(same.to_vector<float>() == Floats{7, 8, 3, 4});
  CHECK(transpose(x).contiguous().storage() != x.storage());
  CHECK(x.contiguous().storage() == x.storage());
  const Tensor moved = std::move(x);
  CHECK_FALSE(x.defined());
  CHECK(moved.numel() == 4);
}

TEST_CASE("writing raises the version that a tape looks at, reading does not") {
  const Tensor x = zeros({2, 2});
  const auto before = x.version();
  (void)x.data<float>();
  (void)x.span<float>();
  CHECK_THROWS_AS(x.mutable_span<double>(), DTypeError);
  CHECK_THROWS_AS(x.mutable_data<double>(), DTypeError);
  CHECK(x.version() == before);
  fill_(x[1], 3);
  CHECK(x.version() > before);
  CHECK(x[0].version() == x.version());
}

TEST_CASE("typed access is checked") {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  THROWS(x.data<double>(), DTypeError, "data: asked for f64 elements of a tensor of f32");
  THROWS(transpose(x).span<float>(), ShapeError,
         "span: needs a contiguous tensor: shape [2, 2], strides [1, 2]; use contiguous()");
  THROWS(x.item<float>(), ShapeError, "item: needs exactly one element: shape [2, 2]");
  THROWS(x[0][1].item<std::int32_t>(), DTypeError, "item: asked for an i32 element of a tensor of f32; item() gives any as a double");
  THROWS(Tensor().data<float>(), Error, "data: the tensor is empty (default constructed)");
  THROWS(Tensor()(0, 1), Error, "index: the tensor is empty (default constructed): 2 indices");
  THROWS(Tensor().size(-1), IndexError, "size: there is no dim -1: shape [], a single number or an empty tensor (default constructed)");
  CHECK(x[1][0].item<float>() == 3);
  CHECK(tensor(200, DType::u8).item() == 200);
  CHECK(tensor(1.5, DType::bf16).item() == 1.5);
  CHECK(reshape(x, {1, 4})[0][3].item() == 4);
  CHECK(x.mutable_span<float>().size() == 4);
}

TEST_CASE("a tensor of nothing is contiguous whatever its strides") {
  const Tensor x = transpose(zeros({3, 0}));
  CHECK(x.is_contiguous());
  CHECK(x.span<float>().empty());
  CHECK(zeros({0, 2, 3})(all, all, 1).is_contiguous());
}

TEST_CASE("nested lists make tensors and are checked") {
  CHECK(tensor({{{1}, {2}}, {{3}, {4}}}).shape() == Shape{2, 2, 1});
  CHECK(tensor(5).shape() == Shape{});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK(tensor({1, 2}, DType::i64).dtype() == DType::i64);
  THROWS(tensor({{1, 2}, {3}}), ShapeError, "tensor: ragged row at [1]: 1 items, expected 2: shape [2, 2]");
  THROWS(tensor({{1, 2}, 3}), ShapeError, "tensor: ragged nesting at [1]: expected shape [2, 2]");
  THROWS(tensor({1, {2}}), ShapeError, "tensor: ragged nesting at [1]: expected shape [2]");
  THROWS(tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7}}}), ShapeError,
         "tensor: ragged row at [1, 1]: 1 items, expected 2: shape [2, 2, 2]");
  THROWS(tensor({1.5}, DType::i32), DTypeError, "tensor: 1.5 at [0] does not fit i32");
  THROWS(tensor({{0, 256}}, DType::u8), DTypeError, "tensor: 256 at [0, 1] does not fit u8");
  THROWS(tensor({-1}, DType::u8), DTypeError, "tensor: -1 at [0] does not fit u8");
  THROWS(tensor({0x1p63}, DType::i64), DTypeError, "tensor: 9.223372036854776e+18 at [0] does not fit i64");
  CHECK(tensor(-0x1p63, DType::i64).item<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(tensor({-0x1p31, 0x1p31 - 1}, DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{-2147483648, 2147483647});
  THROWS(tensor({NAN}, DType::i64), DTypeError, "tensor: nan at [0] does not fit i64");
  THROWS(tensor(Floats{1, 2, 3}, {2, 2}), ShapeError, "tensor: 3 values for shape [2, 2]");
  CHECK(tensor(Floats{1, 2}, {2, 1}).shape() == Shape{2, 1});
}

TEST_CASE("indexing: positions, slices, new axes, ellipsis") {
  const Tensor x = reshape(arange(0, 24, 1, DType::f32), {2, 3, 4});
  CHECK(x(1, 2, 3).item() == 23);
  CHECK(x(-1, -1, -1).item() == 23);
  CHECK(x[-2].to_vector<float>() == x[0].to_vector<float>());
  CHECK(x(0, all, Slice{1, 3}).to_vector<float>() == Floats{1, 2, 5, 6, 9, 10});
  CHECK(x(0, 0, Slice{.step = -1}).to_vector<float>() == Floats{3, 2, 1, 0});
  CHECK(x(0, 0, Slice{-1, 0, -2}).to_vector<float>() == Floats{3, 1});
  CHECK(x(0, 0, Slice{1, 100}).to_vector<float>() == Floats{1, 2, 3});
  CHECK(x(0, 0, Slice{3, 1}).shape() == Shape{0});
  CHECK(x(ellipsis, 0).shape() == Shape{2, 3});
  CHECK(x(1, ellipsis, newaxis).shape() == Shape{3, 4, 1});
  CHECK(x(newaxis, ellipsis, Slice{0, 2}).shape() == Shape{1, 2, 3, 2});
  CHECK(x(0, ellipsis, 1, 2).item() == 6);
  CHECK(x(all).shape() == x.shape());
  CHECK(x(0, all, Slice{1, 3}).storage() == x.storage());
  THROWS(x(0, 3), IndexError, "index: 3 at dim 1 is not in [-3, 3): shape [2, 3, 4]");
  THROWS(x[2], IndexError, "index: 2 at dim 0 is not in [-2, 2): shape [2, 3, 4]");
  THROWS(x[-3], IndexError, "index: -3 at dim 0 is not in [-2, 2): shape [2, 3, 4]");
  THROWS(x(0, 0, 0, 0), IndexError, "index: 4 indices for 3 dims: shape [2, 3, 4]");
  THROWS(x(ellipsis, ellipsis), IndexError, "index: at most one ellipsis: 2 given");
  THROWS(x(Slice{.step = 0}), IndexError, "index: slice step 0 at dim 0: shape [2, 3, 4]");
  THROWS(tensor(1)[0], IndexError, "index: a tensor of rank 0 has no rows: index 0, shape []");
  float sum = 0;
  for (Tensor row : x(0)) sum += row[0].item<float>();
  CHECK(sum == 0 + 4 + 8);
}

TEST_CASE("sizes whose product overflows throw before anything is allocated") {
  const MemoryUse before = memory_use();
  THROWS(zeros({Index{1} << 40, Index{1} << 40}), ShapeError, "empty: too many elements: [1099511627776, 1099511627776]");
  THROWS(zeros({0, Index{1} << 40, Index{1} << 40}), ShapeError, "empty: too many elements: [0, 1099511627776, 1099511627776]");
  THROWS(zeros({2, -1}), ShapeError, "empty: sizes must not be negative: [2, -1]");
  THROWS(arange(0, 1e300), ShapeError, doctest::Contains("arange: too many elements"));
  THROWS(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError, "shape: at most 8 axes: 9 given");
  CHECK(memory_use().reserved == before.reserved);
}

TEST_CASE("arange, linspace, eye, full") {
  CHECK(linspace(0, 1, 5).to_vector<float>() == Floats{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(3, -1, 3, DType::i64).to_vector<Index>() == std::vector<Index>{3, 1, -1});
  CHECK(linspace(2, 7, 1).to_vector<float>() == Floats{2});
  CHECK(linspace(2, 7, 0).numel() == 0);
  const auto tenths = linspace(-0.3, 0.3, 7, DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < 3; ++i) CHECK(tenths[i] == -tenths[6 - i]);
  CHECK(linspace(0, 0.7, 12346, DType::f64)[-1].item() == 0.7);
  THROWS(linspace(0, 1, 3, DType::i64), DTypeError, "linspace: 0.5 does not fit i64");
  CHECK(arange(0, 5).to_vector<Index>() == std::vector<Index>{0, 1, 2, 3, 4});
  CHECK(arange(5, 0, -2, DType::f32).to_vector<float>() == Floats{5, 3, 1});
  CHECK(arange(3, 3).numel() == 0);
  CHECK(arange(0, 1, 0.25, DType::f64).to_vector<double>() == std::vector<double>{0, 0.25, 0.5, 0.75});
  THROWS(arange(0, 1, 0), Error, doctest::Contains("arange: needs finite bounds and a step that is not 0"));
  CHECK(eye(2).to_vector<float>() == Floats{1, 0, 0, 1});
  CHECK(full({2}, 7, DType::u8).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{7, 7});
  CHECK(full({1}, -0x1p63, DType::i64).item<Index>() == INT64_MIN);
  CHECK(full({1}, 0.1, DType::bf16).dtype() == DType::bf16);
  THROWS(full({2}, 300, DType::u8), DTypeError, "full: 300 does not fit u8");
  THROWS(full({2}, NAN, DType::i64), DTypeError, "full: nan does not fit i64");
  THROWS(full({2}, 0x1p63, DType::i64), DTypeError, "full: 9.223372036854776e+18 does not fit i64");
  THROWS(fill_(zeros({2}, DType::i32), 0.5), DTypeError, "fill_: 0.5 does not fit i32");
  THROWS(arange(0, 1, 0.25), DTypeError, "arange: 0.25 does not fit i64");
  THROWS(arange(0, 1000, 300, DType::u8), DTypeError, "arange: 300 does not fit u8");
}

TEST_CASE("conversion saturates, NaN gives 0, bf16 rounds to nearest even") {
  const Tensor x = tensor({NAN, 1e20, -1e20, 2.9, -2.9, 300});
  CHECK(to(x, DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, INT32_MAX, INT32_MIN, 2, -2, 300});
  CHECK(to(x, DType::i64).to_vector<Index>() == std::vector<Index>{0, INT64_MAX, INT64_MIN, 2, -2, 300});
  CHECK(to(x, DType::u8).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{0, 255, 0, 2, 0, 255});
  CHECK(to(tensor({1, 2}), DType::f32).dtype() == DType::f32);
  // 1 + 2⁻⁸ lies between 1 and 1 + 2⁻⁷: to even; 1 + 3·2⁻⁸ between 1 + 2⁻⁷ and 1 + 2⁻⁶: to even
  const Tensor halves = to(tensor({1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1.01p-8, 3.4e38, INFINITY}), DType::bf16);
  CHECK(to(halves, DType::f32).to_vector<float>() == Floats{1, 1 + 0x1p-6f, 1 + 0x1p-7f, INFINITY, INFINITY});
  CHECK(std::isnan(to(to(tensor({NAN}), DType::bf16), DType::f32)[0].item<float>()));
  CHECK(to(transpose(tensor({{1, 2}, {3, 4}})), DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 3, 2, 4});
}

namespace {

// The rules of `to`, by cases.
template <class To, class From> To by_cases(From x) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_same_v<From, BFloat16>) return by_cases<To>(float(x));
  else if constexpr (std::is_same_v<To, BFloat16>) return BFloat16(float(x));
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (std::isnan(x)) return 0;
    if (double(x) <= double(Limits::min())) return Limits::min();
    return double(x) >= double(Limits::max()) ? Limits::max() : To(x);
  } else return To(x);
}

}  // namespace

TEST_CASE("conversion between any two dtypes follows the rules on every target") {
  std::vector<double> values{
      NAN,      -NAN,       INFINITY,       -INFINITY,  0.0,          -0.0,        0.5,    -0.5,    255,           255.5,  256,  -1,
      0x1p31,   -0x1p31,    0x1p31 - 128,   0x1p31 - 1, 0x1p31 - 0.5, -0x1p31 - 1, 0x1p63, -0x1p63, 0x1p63 - 1024, 0x1p62, 1e38, -1e300,
      0x1p-140, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 65537,      16777217};
  for (int i = 0; i < 311; ++i) values.push_back(std::ldexp(1 + i * 0x1.3579bp-9, i % 70 - 5) * (i % 3 ? 1 : -1));
  const DType all_dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};
  for (const DType between : all_dtypes)
    for (const DType dtype : all_dtypes) {
      CAPTURE(name(between));
      CAPTURE(name(dtype));
      for_every_target([&] {
        const Tensor x = to(tensor(values, {Index(values.size())}), between);
        const Tensor tall = transpose(reshape(x, {4, -1})), wide = transpose(reshape(x, {-1, 4}));
        for (const Tensor& strided : {x, slice(x, 0, 3, 67), slice(x, 0, 1, Slice::kToEnd, 2), tall, wide}) {
          const Tensor from = reshape(strided, {-1}), y = reshape(to(strided, dtype), {-1});
          visit_any(between, [&]<class From>() {
            visit_any(dtype, [&]<class To>() {
              Index wrong = 0;
              for (Index i = 0; i < from.numel(); ++i) {
                const To result = y[i].item<To>(), expected = by_cases<To>(from[i].item<From>());
                wrong += !(result == expected) && !(result != result && expected != expected);
              }
              CHECK(wrong == 0);
            });
          });
        }
      });
    }
}

TEST_CASE("large tensors are made and filled in parallel") {
  for_threads([] {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64}) {
      const Tensor x = to(arange(-70000, 330000, 3, dtype), DType::f64),
                   y = slice(to(arange(5e15, 5e15 + 300000, 2), DType::i64), 0, 100000);
      Index wrong = x.numel() != 133334 || y.numel() != 50000;
      for (Index i = 0; i < x.numel(); ++i) wrong += x.data<double>()[i] != double(3 * i - 70000);
      for (Index i = 0; i < y.numel(); ++i) wrong += y.data<Index>()[i] != 5000000000200000 + 2 * i;
      CHECK(wrong == 0);
    }
    const Tensor fine = arange(0.125, 10000, 0.0625, DType::f64), x = zeros({3, 300, 500});
    fill_(slice(x, 2, 1, 500, 2), 2);
    fill_(slice(x, 2, 0, 100), 3);
    Index wrong = 0;
    for (Index i = 0; i < fine.numel(); ++i) wrong += fine.data<double>()[i] != 0.125 + double(i) * 0.0625;
    for (Index i = 0; i < x.numel(); ++i) wrong += x.data<float>()[i] != (i % 500 < 100 ? 3 : i % 2 ? 2 : 0);
    CHECK(wrong == 0);
  });
  THROWS(arange(0, 500, 1, DType::u8), DTypeError, "arange: 256 does not fit u8");
  THROWS(arange(-2, 500, 1, DType::u8), DTypeError, "arange: -2 does not fit u8");
  CHECK(arange(3, 4, 1e300).to_vector<Index>() == std::vector<Index>{3});
  CHECK(expand(tensor({{1}, {2}}), {2, 3}).clone().to_vector<float>() == Floats{1, 1, 1, 2, 2, 2});
}

TEST_CASE("copy_into broadcasts and checks") {
  const Tensor x = zeros({2, 3});
  copy_into(x, tensor({1, 2, 3}));
  CHECK(x.to_vector<float>() == Floats{1, 2, 3, 1, 2, 3});
  copy_into(x(all, Slice{.step = -1}), tensor({{1}, {2}}));
  CHECK(x.to_vector<float>() == Floats{1, 1, 1, 2, 2, 2});
  THROWS(copy_into(x, zeros({4})), ShapeError, "copy_into: cannot broadcast y [4] to x [2, 3]");
  THROWS(copy_into(x, zeros({5, 2, 3})), ShapeError, "copy_into: cannot broadcast y [5, 2, 3] to x [2, 3]");
  THROWS(copy_into(x, zeros({3}, DType::f64)), DTypeError, "copy_into: dtypes differ: x f32, y f64; use to(y, dtype)");
  const Tensor wide = expand(zeros({1, 3}), {2, 3});
  THROWS(copy_into(wide, x), Error,
         "copy_into: writes through a view whose elements share memory: shape [2, 3], strides [0, 1]");
  THROWS(fill_(wide, 1), Error,
         "fill_: writes through a view whose elements share memory: shape [2, 3], strides [0, 1]");
  THROWS(copy_into(toeplitz(zeros({5}), 3), zeros({3, 3})), Error,
         "copy_into: writes through a view whose elements share memory: shape [3, 3], strides [-1, 1]");
  fill_(toeplitz(zeros({5}), 1), 1);
  fill_(transpose(zeros({2, 3}))(Slice{.step = -2}, all), 1);
  THROWS(copy_into(Tensor(), x), Error, "copy_into: an operand is empty (default constructed)");
}

TEST_CASE("copy_into, fill_ and to: any order of axes on both sides") {
  const Dims orders[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const Dims& to_order : orders)
    for (const Dims& from_order : orders) {
      const Tensor whole = zeros({5, 18, 35}), x = permute(whole, to_order);
      Shape laid;                                       // so that y has x's shape
      for (int axis = 0; axis < 3; ++axis) laid.push_back(x.shape()[int(std::ranges::find(from_order, axis) - from_order.begin())]);
      const Tensor y = permute(reshape(arange(0, 5 * 18 * 35, 1, DType::f32), laid), from_order);
      REQUIRE(y.shape() == x.shape());
      copy_into(x, y);
      Index wrong = 0;
      for (Index i = 0; i < x.size(0); ++i)
        for (Index j = 0; j < x.size(1); ++j)
          for (Index k = 0; k < x.size(2); ++k) wrong += x(i, j, k).item() != y(i, j, k).item();
      CHECK(wrong == 0);
      CHECK(equal_bits(to(to(y, DType::f64), DType::f32), y));
      fill_(x, 3);
      CHECK(equal_bits(whole, full({5, 18, 35}, 3)));
    }
}

TEST_CASE("copy_into is right when source and destination overlap") {
  CHECK(rc::check("overlap", [] {
    const auto n = *rc::gen::inRange<Index>(1, 7);
    const Tensor x = reshape(arange(0, double(n * n), 1, DType::f32), {n, n});
    const auto view = [&] {
      Tensor v = x;
      if (*rc::gen::arbitrary<bool>()) v = transpose(v);
      if (*rc::gen::arbitrary<bool>()) v = flip(v, 0);
      if (*rc::gen::arbitrary<bool>()) v = flip(v, 1);
      return v;
    };
    const auto rows = *rc::gen::inRange<Index>(0, n + 1), skip_a = *rc::gen::inRange<Index>(0, n - rows + 1),
               skip_b = *rc::gen::inRange<Index>(0, n - rows + 1);
    const Tensor to = slice(view(), 0, skip_a, skip_a + rows), from = slice(view(), 0, skip_b, skip_b + rows);
    const Floats expected = from.to_vector<float>();
    copy_into(to, from);
    RC_ASSERT(to.to_vector<float>() == expected);
  }));
}

TEST_CASE("copies of large tensors in any order of axes are right") {
  const Tensor x = reshape(arange(0, 70 * 33 * 50, 1, DType::f32), {70, 33, 50});
  for (const Dims& dims : {Dims{0, 2, 1}, Dims{2, 1, 0}, Dims{1, 0, 2}, Dims{2, 0, 1}}) {
    const Tensor view = permute(x, dims), copy = view.clone();
    bool right = copy.is_contiguous();
    const float* p = copy.data<float>();
    for (Index i = 0; i < view.size(0); ++i)
      for (Index j = 0; j < view.size(1); ++j)
        for (Index k = 0; k < view.size(2); ++k)
          right &= *p++ == view.data<float>()[i * view.strides()[0] + j * view.strides()[1] + k * view.strides()[2]];
    CHECK(right);
  }
  for (const Index width : {3, 17}) {   // few long rows are made in parts
    const Tensor rows = reshape(arange(0, 20001 * width, 1, DType::i32), {20001, width}), turned = transpose(rows).clone(),
                 wide = to(transpose(rows), DType::i64);
    Index wrong = 0;
    for (Index i = 0; i < width; ++i)
      for (Index j = 0; j < 20001; ++j)
        wrong += turned.data<std::int32_t>()[i * 20001 + j] != j * width + i || wide.data<Index>()[i * 20001 + j] != j * width + i;
    CHECK(wrong == 0);
  }
}

TEST_CASE("dims may be negative, sizes beyond them throw") {
  const Tensor x = zeros({2, 3});
  CHECK(x.size(-1) == 3);
  THROWS(x.size(2), IndexError, "size: dim 2 is not in [-2, 2): shape [2, 3]");
  THROWS(broadcast_shapes("add", {2, 3}, {4, 3}), ShapeError,
         "add: shapes do not broadcast: a [2, 3], b [4, 3] (2 and 4 at dim -2)");
  CHECK(broadcast_shapes("add", {2, 1, 3}, {4, 1}) == Shape{2, 4, 3});
  CHECK(zeros({}).numel() == 1);
  CHECK(zeros({2, 0}).is_contiguous());
}

TEST_CASE("may_overlap: columns of one matrix are told apart, to the column") {
  const Tensor x = zeros({4, 6});
  for (Index a = 0; a < 6; ++a)
    for (Index to_a = a + 1; to_a <= 6; ++to_a)
      for (Index b = 0; b < 6; ++b)
        for (Index to_b = b + 1; to_b <= 6; ++to_b)
          CHECK(may_overlap(slice(x, 1, a, to_a), slice(x, 1, b, to_b)) == (a < to_b && b < to_a));
}
