// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/view.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/error.h"
#include "tensor/ops/random.h"
#include "tests/every_target.h"
#include "tests/op_table.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

bool shares(const Tensor& a, const Tensor& b) { return a.storage() == b.storage(); }

Tensor iota(const Shape& shape) { return reshape(arange(0, double(shape.numel()), 1, DType::f32), shape); }

// A random view: sizes, order of axes, steps and offset all vary.
Tensor random_view() {
  Shape shape;
  for (int i = *rc::gen::inRange(1, 5); i > 0; --i) shape.push_back(*rc::gen::inRange<Index>(1, 5));
  Tensor x = iota(shape);
  for (int axis = 0; axis < x.rank(); ++axis)
    if (*rc::gen::inRange(0, 3) == 0)
      x = slice(x, axis, *rc::gen::inRange<Index>(-4, 5), *rc::gen::element<Index>(-2, 2, 3, Slice::kToEnd),
                *rc::gen::element<Index>(-2, -1, 1, 2));
  return transpose(x, *rc::gen::inRange(0, x.rank()), *rc::gen::inRange(0, x.rank()));
}

// The elements of x in row-major order, read one by one.
std::vector<float> elements(const Tensor& x) {
  if (x.rank() == 0) return {x.item<float>()};
  std::vector<float> out;
  for (const Tensor& row : x)
    for (float value : elements(row)) out.push_back(value);
  return out;
}

}  // namespace

TEST_CASE("roll: any shift goes around, of nothing too") {
  const Tensor x = iota({2, 5});
  CHECK(roll(x, 2, 1).to_vector<float>() == std::vector<float>{3, 4, 0, 1, 2, 8, 9, 5, 6, 7});
  for (const Index shift : {Index{-3}, Index{-8}, Index{7}, Index{2 + 5'000'000'000}}) CHECK(equal_bits(roll(x, shift, -1), roll(x, 2, 1)));
  CHECK(equal_bits(roll(x, 5, 1), x));
  CHECK(roll(x, 1, 0).to_vector<float>() == std::vector<float>{5, 6, 7, 8, 9, 0, 1, 2, 3, 4});
  CHECK(roll(zeros({2, 0}), 3, 1).shape() == Shape{2, 0});
  CHECK(roll(tensor({1, 2, 3}), std::numeric_limits<Index>::min(), 0).shape() == Shape{3});
  CHECK_THROWS_AS(roll(x, 1, 2), IndexError);
}

TEST_CASE("repeat: NumPy's tile, of any rank, no times too; never a view") {
  const Tensor x = iota({2, 3});
  CHECK(elements(repeat(x, {1, 2})) == std::vector<float>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(elements(repeat(x, {2, 1})) == std::vector<float>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(equal_bits(repeat(transpose(x), {1, 2}), transpose(repeat(x, {2, 1})).clone()));
  CHECK(equal_bits(repeat(x, {3, 1, 1}), expand(x, {3, 2, 3}).clone()));
  for (const Shape& counts : {Shape{1, 1}, {5, 1, 1}}) {
    const Tensor y = repeat(x, counts);
    CHECK(y.storage() != x.storage());
    CHECK(y.is_contiguous());
  }
  CHECK(elements(repeat(full({}, 7), {3})) == std::vector<float>{7, 7, 7});
  CHECK(repeat(ones({1, 2, 1, 2, 1, 2, 1, 2}), {2, 2, 2, 2, 2, 2, 2, 2}).shape() == Shape{2, 4, 2, 4, 2, 4, 2, 4});
  CHECK(repeat(x, {2, 0}).shape() == Shape{4, 0});
  CHECK(repeat(zeros({0, 3}), {2, 2}).shape() == Shape{0, 6});
  CHECK(repeat(arange(0, 2), {2}).to_vector<Index>() == std::vector<Index>{0, 1, 0, 1});
  const Tensor dx = ones({2, 3}, DType::f64);
  repeat_grad(zeros({4, 0}, DType::f64), {2, 0}, {dx, true});
  CHECK(dx.to_vector<double>() == std::vector<double>(6, 1));
  repeat_grad(zeros({4, 0}, DType::f64), {2, 0}, {dx, false});
  CHECK(dx.to_vector<double>() == std::vector<double>(6, 0));
}

TEST_CASE("reshape keeps row-major order and is a view where strides allow") {
  const Tensor x = iota({2, 3, 4});
  CHECK(shares(reshape(x, {6, -1}), x));
  CHECK(reshape(x, {6, -1}).shape() == Shape{6, 4});
  CHECK(reshape(x, {24}).to_vector<float>() == x.to_vector<float>());
  const Tensor t = transpose(x, 0, 1);                       // [3, 2, 4] with strides 4, 12, 1
  CHECK(shares(reshape(t, {3, 2, 2, 2}), x));
  CHECK(shares(reshape(t, {3, 1, 2, 4, 1}), x));
  CHECK_FALSE(shares(reshape(t, {6, 4}), x));
  CHECK(elements(reshape(t, {6, 4})) == elements(t));
  CHECK(shares(reshape(x(all, all, Slice{.step = -1}), {6, 4}), x));
  CHECK(shares(reshape(expand(tensor({1, 2}), {5, 2}), {5, 2, 1}), expand(tensor({1, 2}), {5, 2})) == false);
  CHECK(reshape(zeros({0, 3}), {3, 0, 7}).shape() == Shape{3, 0, 7});
  CHECK(reshape(zeros({0, 3}), {-1, 3}).shape() == Shape{0, 3});
  CHECK(reshape(tensor(5), {1, 1}).item() == 5);
  CHECK(reshape(tensor({5}), {}).rank() == 0);
  CHECK(flatten(x).shape() == Shape{24});
  CHECK(flatten(x, 1).shape() == Shape{2, 12});
  CHECK(flatten(x, 0, -2).shape() == Shape{6, 4});
  CHECK(flatten(tensor(5)).shape() == Shape{1});
}

TEST_CASE("reshape of any view = reshape of its copy") {
  CHECK(rc::check("reshape", [] {
    const Tensor x = random_view();
    Shape to;                                                // factors of the count, shuffled by chance
    Index rest = x.numel();
    while (to.rank() < 5 && *rc::gen::inRange(0, 4) != 0) {
      const Index factor = rest == 0 ? *rc::gen::inRange<Index>(0, 4) : *rc::gen::inRange<Index>(1, 5);
      if (rest != 0 && rest % factor != 0) continue;
      to.push_back(factor);
      rest = rest == 0 ? 0 : rest / factor;
    }
    to.push_back(rest);
    if (to.numel() != x.numel()) return;
    const Tensor y = reshape(x, to);
    RC_ASSERT(y.shape() == to);
    RC_ASSERT(elements(y) == elements(x));
    RC_ASSERT(elements(reshape(y, x.shape())) == elements(x));
  }));
}

TEST_CASE("permute and its inverse, transpose, squeeze, unsqueeze, flip") {
  CHECK(rc::check("permute", [] {
    const Tensor x = random_view();
    std::vector<int> dims;
    for (int i = 0; i < x.rank(); ++i) dims.insert(dims.begin() + *rc::gen::inRange(0, i + 1), i);
    std::vector<int> back(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) back[size_t(dims[i])] = int(i);
    const Tensor y = permute(x, Dims(dims));
    RC_ASSERT(shares(x, y));
    RC_ASSERT(elements(permute(y, Dims(back))) == elements(x));
    for (size_t i = 0; i < dims.size(); ++i) RC_ASSERT(y.size(int(i)) == x.size(dims[i]));
    RC_ASSERT(elements(flip(flip(x, Dims(dims)), Dims(dims))) == elements(x));
  }));
  const Tensor x = iota({2, 3});
  CHECK(elements(transpose(x)) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(elements(flip(x, -1)) == std::vector<float>{2, 1, 0, 5, 4, 3});
  CHECK(elements(flip(x, {0, 1})) == std::vector<float>{5, 4, 3, 2, 1, 0});
  CHECK(unsqueeze(x, 0).shape() == Shape{1, 2, 3});
  CHECK(unsqueeze(x, -1).shape() == Shape{2, 3, 1});
  CHECK(unsqueeze(x, 1).is_contiguous());
  CHECK(squeeze(unsqueeze(x, 1), 1).shape() == Shape{2, 3});
}

TEST_CASE("slices follow Python's rule") {
  CHECK(rc::check("slice", [] {
    const auto n = *rc::gen::inRange<Index>(0, 7);
    const auto bound = rc::gen::oneOf(rc::gen::inRange<Index>(-9, 10),
                                      rc::gen::element(Slice::kFromStart, Slice::kToEnd, INT64_MIN + 1, INT64_MAX - 1));
    const Index start = *bound, stop = *bound;
    const Index step = *rc::gen::element<Index>(1, 2, 3, -1, -2, -3, INT64_MAX, INT64_MIN, 9, -9);
    // the rule, step by step: open ends, then count from the end, then cut to [0, n] or [-1, n - 1], then walk
    const auto place = [&](Index i, bool is_start) -> Index {
      const Index low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
      if (is_start && i == Slice::kFromStart) return step > 0 ? low : high;
      if (!is_start && i == Slice::kToEnd) return step > 0 ? high : low;
      if (i < 0) i += n;
      return i < low ? low : i > high ? high : i;
    };
    std::vector<float> expected;
    const Index end = place(stop, false);
    for (Index i = place(start, true); step > 0 ? i < end : i > end;) {
      expected.push_back(float(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    const Tensor x = arange(0, double(n), 1, DType::f32);
    RC_ASSERT(elements(slice(x, 0, start, stop, step)) == expected);
    RC_ASSERT(elements(x(Slice{start, stop, step})) == expected);
  }));
  const Tensor x = iota({2, 5});
  CHECK(elements(slice(x, -1, 1, 4, 2)) == std::vector<float>{1, 3, 6, 8});
  CHECK(elements(slice(x, 1, -2)) == std::vector<float>{3, 4, 8, 9});
  CHECK(elements(select(x, 1, -1)) == std::vector<float>{4, 9});
  CHECK(select(x, 0, 1).shape() == Shape{5});
  CHECK(shares(slice(x, 0, 1), x));
}

TEST_CASE("expand is NumPy's broadcasting") {
  CHECK(rc::check("expand", [] {
    const Tensor x = random_view();
    Shape to = x.shape();
    for (int i = 0; i < x.rank(); ++i)
      if (to[i] == 1) to[i] = *rc::gen::inRange<Index>(0, 4);
    const auto front = *rc::gen::inRange<Index>(1, 4);
    if (to.rank() < kMaxRank) to.insert(0, front);
    const Tensor y = expand(x, to);
    RC_ASSERT(shares(x, y));
    RC_ASSERT(y.shape() == to);
    RC_ASSERT(broadcast_shapes("test", x.shape(), to) == to);
    RC_ASSERT(elements(y) == elements([&] {
      Tensor copy = empty(to);
      copy_into(copy, x);
      return copy;
    }()));
  }));
  CHECK(expand(zeros({3, 1}), {-1, 4}).shape() == Shape{3, 4});
  CHECK(expand(tensor(1), {2, 0}).shape() == Shape{2, 0});
}

TEST_CASE("the broadcast shape follows NumPy's rule") {
  CHECK(rc::check("broadcast_shapes", [] {
    const auto sizes = rc::gen::container<std::vector<Index>>(rc::gen::inRange<Index>(0, 4));
    const auto a = *sizes, b = *sizes;
    if (a.size() > 8 || b.size() > 8) return;
    std::vector<Index> expected;
    bool fits = true;
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {   // from the back, missing axes are 1
      const Index m = i < a.size() ? a[a.size() - 1 - i] : 1, n = i < b.size() ? b[b.size() - 1 - i] : 1;
      fits &= m == n || m == 1 || n == 1;
      expected.insert(expected.begin(), m == 1 ? n : m);
    }
    const Shape x{std::span<const Index>(a)}, y{std::span<const Index>(b)};
    if (fits) RC_ASSERT(broadcast_shapes("test", x, y) == Shape{std::span<const Index>(expected)});
    else RC_ASSERT_THROWS_AS(broadcast_shapes("test", x, y), ShapeError);
  }));
}

TEST_CASE("split, unbind, concat and stack undo one another") {
  const Tensor x = iota({2, 6});
  for (const Tensor& part : split(x, 3, 1)) CHECK(part.shape() == Shape{2, 2});
  CHECK(equal_bits(concat(split(x, 3, 1), 1), x));
  CHECK(equal_bits(concat(split(x, {1, 0, 5}, -1), -1), x));
  CHECK(split(x, {1, 0, 5}, -1)[1].shape() == Shape{2, 0});
  CHECK(equal_bits(stack(unbind(x, 1), 1), x));
  CHECK(equal_bits(stack(unbind(x), 0), x));
  CHECK(equal_bits(stack(unbind(x), -1), transpose(x)));
  CHECK(equal_bits(concat({x(all, Slice{.step = -1}), x}, 0)[0], flip(x, 1)[0]));
  CHECK(equal_bits(concat({zeros({0, 6}), x}, 0), x));
  CHECK(stack({tensor(1), tensor(2)}).to_vector<float>() == std::vector<float>{1, 2});
  for (const Shape& shape : {Shape{300, 7, 33}, Shape{1, 90, 200}, Shape{64, 1, 2000}}) {   // on all threads
    const Tensor a = uniform(Key(1), shape, -1, 1), b = uniform(Key(2), shape, -1, 1);
    for (const int axis : {0, 1, 2}) {
      const Tensor y = concat({a, slice(b, axis, 0, 1), b}, axis);
      const Index n = shape[axis];
      CHECK(equal_bits(slice(y, axis, 0, n), a));
      CHECK(equal_bits(slice(y, axis, n, n + 1), slice(b, axis, 0, 1)));
      CHECK(equal_bits(slice(y, axis, n + 1), b));
      for_threads([&] { CHECK(equal_bits(stack({a, b}, axis), concat({unsqueeze(a, axis), unsqueeze(b, axis)}, axis))); });
      CHECK(equal_bits(select(stack({a, b}, axis), axis, 1), b));
    }
  }
  CHECK(concat({tensor({1, 2}, DType::i32), tensor({3}, DType::i32)}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1, 2, 3});
}

TEST_CASE("pad, tril, triu") {
  const Tensor x = iota({2, 3});
  CHECK(elements(pad(x, 1, 1, 2, 9)) == std::vector<float>{9, 0, 1, 2, 9, 9, 9, 3, 4, 5, 9, 9});
  CHECK(pad(x, 0, 0, 0).shape() == x.shape());
  const Tensor ones_ = ones({3, 3});
  CHECK(elements(tril(ones_)) == std::vector<float>{1, 0, 0, 1, 1, 0, 1, 1, 1});
  CHECK(elements(tril(ones_, -1)) == std::vector<float>{0, 0, 0, 1, 0, 0, 1, 1, 0});
  CHECK(elements(triu(ones_, 1)) == std::vector<float>{0, 1, 1, 0, 0, 1, 0, 0, 0});
  CHECK(elements(triu(ones_, -9)) == std::vector<float>(9, 1));
  constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();
  for (const Index far : {Index{3}, most - 1, most}) {
    CHECK(elements(tril(ones_, far)) == std::vector<float>(9, 1));
    CHECK(elements(triu(ones_, far)) == std::vector<float>(9, 0));
  }
  for (const Index far : {Index{-3}, least + 1, least}) {
    CHECK(elements(tril(ones_, far)) == std::vector<float>(9, 0));
    CHECK(elements(triu(ones_, far)) == std::vector<float>(9, 1));
  }
  CHECK(elements(tril(transpose(iota({2, 2})))) == std::vector<float>{0, 0, 1, 3});
  CHECK(elements(tril(ones({2, 1, 2}))) == std::vector<float>{1, 0, 1, 0});
}

TEST_CASE("wrong shapes, dims and indices of views say both sides") {
  const Tensor x = iota({2, 3});
#define THROWS(expression, type, text) CHECK_THROWS_WITH_AS((void)(expression), text, type)
  THROWS(reshape(x, {4, -1}), ShapeError, "reshape: element counts differ: from [2, 3], to [4, -1] (6 and 4)");
  THROWS(reshape(x, {-1, -1}), ShapeError, "reshape: more than one size is -1: from [2, 3], to [-1, -1]");
  THROWS(reshape(x, {-2, -3}), ShapeError, "reshape: sizes must not be negative: from [2, 3], to [-2, -3]");
  THROWS(reshape(zeros({0}), {0, -1}), ShapeError, "reshape: size -1 is not determined: from [0], to [0, -1]");
  THROWS(reshape(x, {Index{1} << 40, Index{1} << 40}), ShapeError,
         "reshape: too many elements: from [2, 3], to [1099511627776, 1099511627776]");
  THROWS(transpose(x, 0, 2), IndexError, "transpose: dim 2 is not in [-2, 2): shape [2, 3]");
  THROWS(permute(x, {0, 0}), ShapeError, "permute: dims must name each axis once: x [2, 3], dims [0, 0]");
  THROWS(permute(x, {0}), ShapeError, "permute: dims must name each axis once: x [2, 3], dims [0]");
  THROWS(squeeze(x, 1), ShapeError, "squeeze: size at dim 1 is not 1: x [2, 3]");
  THROWS(unsqueeze(x, 3), IndexError, "unsqueeze: dim 3 is not in [-3, 3): x [2, 3]");
  THROWS(expand(x, {2, 4}), ShapeError, "expand: only size 1 expands: x [2, 3], to [2, 4] (3 and 4 at dim 1)");
  THROWS(expand(x, {3}), ShapeError, "expand: fewer axes asked for: x [2, 3], to [3]");
  THROWS(expand(x, {-1, 2, 3}), ShapeError, "expand: -1 keeps a size, and a new axis has none: x [2, 3], to [-1, 2, 3]");
  THROWS(expand(x, {-2, 3}), ShapeError, "expand: sizes must not be negative: x [2, 3], to [-2, 3]");
  THROWS(expand(tensor(1), {Index{1} << 40, Index{1} << 40}), ShapeError,
         "expand: too many elements: [1099511627776, 1099511627776]");
  THROWS(slice(x, 0, 0, 1, 0), Error, "slice: step must not be 0: x [2, 3], dim 0");
  THROWS(select(x, 1, 3), IndexError, "select: index 3 is not in [-3, 3): x [2, 3], dim 1");
  THROWS(split(x, 2, 1), ShapeError, "split: size 3 at dim 1 is not a multiple of 2 parts: x [2, 3]");
  THROWS(split(x, {1, 1}, 1), ShapeError, "split: sizes [1, 1] do not add up to 3: x [2, 3], dim 1");
  THROWS(split(x, {4, -1}, 1), ShapeError, "split: sizes must not be negative: [4, -1], x [2, 3], dim 1");
  THROWS(concat({x, zeros({3, 3})}, 1), ShapeError, "concat: shapes differ beside dim 1: tensor 0 [2, 3], tensor 1 [3, 3]");
  THROWS(concat({x, zeros({2, 3}, DType::f64)}), DTypeError, "concat: dtypes differ: tensor 0 is f32, tensor 1 is f64");
  THROWS(concat(std::vector<Tensor>{}), ShapeError, "concat: needs at least one tensor: 0 given");
  THROWS(stack({x, zeros({3, 2})}), ShapeError, "stack: shapes differ: tensor 0 [2, 3], tensor 1 [3, 2]");
  THROWS(stack({x}, 3), IndexError, "stack: dim 3 is not in [-3, 3): tensors [2, 3]");
  THROWS(pad(x, 0, -1, 0), ShapeError, "pad: before -1 and after 0 must not be negative: x [2, 3]");
  THROWS(tril(tensor({1, 2})), ShapeError, "tril: needs at least 2 axes: x [2]");
  constexpr Index kMost = std::numeric_limits<Index>::max();
  THROWS(reshape(zeros({2, 1, 0}), {0, 3, 2, kMost}), ShapeError, "reshape: too many elements: [0, 3, 2, 9223372036854775807]");
  THROWS(pad(x, 0, 2, kMost), ShapeError, "pad: too many elements: before 2, after 9223372036854775807, x [2, 3]");
  THROWS(pad(x, 0, kMost, 0), ShapeError, "pad: too many elements: before 9223372036854775807, after 0, x [2, 3]");
  THROWS(concat(std::vector<Tensor>(40, expand(zeros({1}), {Index{1} << 58}))), ShapeError, "concat: too many elements at dim 0");
  THROWS(split(zeros({0}), kMost), ShapeError, "split: too many parts: 9223372036854775807, x [0]");
  THROWS(reshape(Tensor(), {1, 1}), Error, "view: the tensor is empty (default constructed)");
  THROWS(unsqueeze(Tensor(), 0), Error, "view: the tensor is empty (default constructed)");
  THROWS(flatten(x, 1, 0), IndexError, "flatten: first dim 1 is behind last dim 0: x [2, 3]");
#undef THROWS
}

TEST_CASE("views of variables: several views of one tensor add into one gradient") {
  const Variable x = variable(tensor({{1, 2, 3}, {4, 5, 6}}, DType::f64));
  {
    Tape tape;                                               // (x₀₀ + x₀₁), (x₀₁ + x₀₂) by overlapping slices, and x₁ twice
    const Variable y = concat({slice(x, 1, 0, 2), slice(x, 1, 1, 3), flip(x, 1)}, 1), z = reshape(transpose(y), {-1});
    const Tensor dz = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, DType::f64);
    tape.backward({&z, 1}, {&dz, 1});
  }
  // y[0] = (x00 x01 | x01 x02 | x02 x01 x00) gets the odd numbers 1 .. 13, y[1] the even ones
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1 + 13, 3 + 5 + 11, 7 + 9, 2 + 14, 4 + 6 + 12, 8 + 10});
}

TEST_CASE("variables: indexed as tensors are, and changed by += without changing what others have") {
  static_assert(!std::is_assignable_v<Variable, const Variable&> && !std::is_assignable_v<Variable, Variable>);   // x[0] = y
  static_assert(std::is_assignable_v<Variable&, const Variable&> && std::is_nothrow_move_constructible_v<Variable>);
  const Variable x = variable(tensor({{1, 2}, {3, 4}}, DType::f64));
  Tape tape;
  Variable y = x[1];                                          // 3 4
  const Variable before = y;
  y += x(0, all);                                             // 4 6
  y *= x(all, -1);                                            // 8 24
  y -= 1;
  y /= 2;
  CHECK(y.value().to_vector<double>() == std::vector<double>{3.5, 11.5});
  CHECK(before.value().to_vector<double>() == std::vector<double>{3, 4});
  tape.backward(sum(y));                                      // ((x10 + x00) x01 + (x11 + x01) x11 - 2) / 2
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1, 2 + 2, 1, 5});
  CHECK_THROWS_WITH_AS((void)x[2], "index: 2 at dim 0 is not in [-2, 2): shape [2, 2]", IndexError);
  CHECK_THROWS_WITH_AS((void)x(0, all, 0), message_of<IndexError>([&] { (void)x.value()(0, all, 0); }).c_str(), IndexError);
}

// What backward hands on may be an expanded view (of sum) or lie in a value still saved: later additions must not write there.
TEST_CASE("a gradient that arrived as a view takes further gradients") {
  const Variable x = variable(tensor({{1, 2}, {3, 4}}, DType::f64));
  {
    Tape tape;
    const Variable y = reshape(x, {4});
    tape.backward(sum(y) + sum(transpose(x)) + sum(square(slice(x, 0, 1))));
  }
  CHECK(x.grad().to_vector<double>() == std::vector<double>{2, 2, 8, 10});
  x.forget_gradient();
  const Tensor upstream = expand(tensor({1}, DType::f64), {2, 2}), kept = tensor({{1, 2}, {3, 4}}, DType::f64);
  for (const Tensor& dy : {upstream, kept}) {
    Tape tape;
    const Variable y = transpose(x), z = x + x;
    const Variable outputs[] = {y, z};
    const Tensor gradients[] = {dy, dy};
    tape.backward(outputs, gradients);
    CHECK(kept.to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  }
  // dyᵀ + 2 dy for both
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3 + 3, 3 + 3 + 4, 3 + 2 + 6, 3 + 12});
}

TEST_CASE("gradients of views") {
  const Tensor x = reshape(arange(0, 24, 1, DType::f64), {2, 3, 4}), y = reshape(arange(5, 29, 1, DType::f64), {2, 3, 4});
  using Inputs = std::span<const Variable>;
  const auto holds = [&](const DifferentiableFunction& f) {
    const GradientReport report = check_gradient(f, {x, transpose(y, 0, 2).clone()});
    INFO(report.worst);
    CHECK(report.holds(1e-8));
  };
  holds([](Inputs v) { return reshape(v[0], {4, -1}); });
  holds([](Inputs v) { return reshape(transpose(v[0], 0, 1), {6, 4}); });
  holds([](Inputs v) { return flatten(v[0], 1); });
  holds([](Inputs v) { return permute(v[0], {2, 0, 1}); });
  holds([](Inputs v) { return squeeze(unsqueeze(v[0], 1), 1); });
  holds([](Inputs v) { return flip(v[0], {0, -1}); });
  holds([](Inputs v) { return slice(slice(v[0], 2, 0, Slice::kToEnd, 2), 1, 2, Slice::kToEnd, -1); });
  holds([](Inputs v) { return v[0](-1, all, Slice{.step = -2}); });
  holds([](Inputs v) { return v[0][1] * v[0](0); });
  holds([](Inputs v) { return select(v[0], -1, -1); });
  holds([](Inputs v) { return expand(unsqueeze(v[0], 1), {5, 2, -1, 3, 4}); });
  holds([](Inputs v) { return toeplitz(transpose(v[0], 0, 2), 2); });
  holds([](Inputs v) { return concat({v[0], transpose(v[1], 0, 2), v[0]}, 1); });
  holds([](Inputs v) { return stack({v[0], transpose(v[1], 0, 2)}, 2); });
  holds([](Inputs v) { return concat(split(v[0], {1, 3}, 2), 2); });
  holds([](Inputs v) { return split(slice(v[0], 1, 1, 3), 2, 2)[1]; });
  holds([](Inputs v) { return stack({unbind(v[0], 1)[2], unbind(v[0], 1)[0]}); });
  holds([](Inputs v) { return pad(v[0], 1, 2, 1, 7); });
  holds([](Inputs v) { return tril(v[0], 1); });
  holds([](Inputs v) { return triu(transpose(v[0])); });
}

TEST_CASE("toeplitz: a view, of any strides, up to no columns at all; its gradient sums diagonals") {
  const Tensor x = arange(0, 5);
  CHECK(equal_bits(toeplitz(x, 2), tensor({{1, 2, 3, 4}, {0, 1, 2, 3}}, DType::i64)));
  CHECK(equal_bits(toeplitz(x, 5), tensor({{4}, {3}, {2}, {1}, {0}}, DType::i64)));
  CHECK(toeplitz(x, 2).storage() == x.storage());
  CHECK(toeplitz(x, 6).shape() == Shape{6, 0});
  CHECK(toeplitz(zeros({3, 0}), 1).shape() == Shape{3, 1, 0});
  CHECK(equal_bits(toeplitz(flip(x, {0}), 2), tensor({{3, 2, 1, 0}, {4, 3, 2, 1}}, DType::i64)));
  const Tensor sum = ones({5}, DType::f64);
  toeplitz_grad(tensor({{1, 2, 3, 4}, {10, 20, 30, 40}}, DType::f64), {sum, true});
  CHECK(sum.to_vector<double>() == std::vector<double>{11, 22, 33, 44, 5});
  for (const Index rows : {0, -1, 7}) CHECK_THROWS_AS(toeplitz(x, rows), ShapeError);
  CHECK_THROWS_AS(toeplitz(expand(ones({1}), {Index(1) << 40}), Index(1) << 39), ShapeError);
  CHECK_THROWS_WITH_AS(toeplitz(x, 7), "toeplitz: needs 1 <= rows <= n + 1: rows 7, x [5]", ShapeError);
}

namespace {

using reference::Arrays;
using reference::Position;

const auto as_it_is = [](Shape s) { return s; };

}  // namespace

static const InTable rows{
    {"reshape", [](const Arrays& x) { return reference::Array{{3, 4, 2}, x[0].values}; }},
    {"flatten", [](const Arrays& x) { return reference::Array{{6, x[0].shape[2]}, x[0].values}; }},
    {"transpose", reference::moved([](Shape s) { return Shape{s[2], s[1], s[0]}; },
                                   [](Position p, Shape) { return Position{p[2], p[1], p[0]}; })},
    {"permute", reference::moved([](Shape s) { return Shape{s[2], s[0], s[1]}; },
                                 [](Position p, Shape) { return Position{p[1], p[2], p[0]}; })},
    {"squeeze", [](const Arrays& x) { return reference::Array{{3, x[0].shape[2]}, x[0].values}; }},
    {"unsqueeze", [](const Arrays& x) { return reference::Array{{2, 1, 3, x[0].shape[2]}, x[0].values}; }},
    {"flip", reference::moved(as_it_is, [](Position p, Shape s) { return Position{s[0] - 1 - p[0], p[1], s[2] - 1 - p[2]}; })},
    {"roll", reference::moved(as_it_is, [](Position p, Shape) { return Position{p[0], (p[1] + 1) % 3, p[2]}; })},
    {"slice", reference::moved([](Shape s) { return Shape{s[0], 2, s[2]}; },
                               [](Position p, Shape) { return Position{p[0], 2 - 2 * p[1], p[2]}; })},
    {"select", reference::moved([](Shape s) { return Shape{s[0], s[2]}; }, [](Position p, Shape) { return Position{p[0], 2, p[1]}; })},
    {"expand", [](const Arrays& x) { return reference::make({2, 3, 4, x[0].shape[2]}, x[0]); }},
    {"toeplitz", [](const Arrays& x) { return reference::make({2, 3, 5}, [&](Position p) { return x[0]({p[0], 2 - p[1] + p[2]}); }); }},
    {"split", reference::moved(as_it_is, [](Position p, Shape) { return Position{p[0], 2 - p[1], p[2]}; })},
    {"split sizes", reference::moved(as_it_is, [](Position p, Shape) { return Position{p[0], (p[1] + 1) % 3, p[2]}; })},
    {"unbind", reference::moved([](Shape s) { return Shape{s[1], s[0], s[2]}; },
                                [](Position p, Shape) { return Position{p[1], 2 - p[0], p[2]}; })},
    {.name = "concat", .reference = [](const Arrays& x) {
       return reference::make({2, 7, x[0].shape[2]},
                              [&](Position p) { return p[1] == 3 ? x[1]({p[0], 0, p[2]}) : x[0]({p[0], p[1] % 4, p[2]}); });
     }, .wrong = {{{{2, 3, 4}, {2, 1, 5}}}}},
    {.name = "stack", .reference = [](const Arrays& x) {
       return reference::make({2, 2, x[0].shape[1]}, [&](Position p) { return x[std::size_t(p[1])]({p[0], p[2]}); });
     }, .wrong = {{{{2, 3}, {3, 2}}}}},
    {"repeat", [](const Arrays& x) {
       const Index n = x[0].shape[2];
       return reference::make({2, 2, 9, 2 * n}, [&](Position p) { return x[0]({p[1], p[2] % 3, p[3] % n}); });
     }},
    {"pad", [](const Arrays& x) {
       const Index n = x[0].shape[2];
       return reference::make({2, 3, n + 3}, [&](Position p) { return p[2] < 2 || p[2] >= n + 2 ? 5 : x[0]({p[0], p[1], p[2] - 2}); });
     }},
    {"tril", [](const Arrays& x) { return reference::make(x[0].shape, [&](Position p) { return p[2] <= p[1] + 1 ? x[0](p) : 0; }); }},
    {"triu", [](const Arrays& x) { return reference::make(x[0].shape, [&](Position p) { return p[2] >= p[1] - 1 ? x[0](p) : 0; }); }},
};
