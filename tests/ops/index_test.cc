// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/index.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/error.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tests/every_target.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

const double kInfinity = INFINITY;

Tensor random_values(const Shape& shape, DType dtype = DType::f32, int seed = 1) {
  return uniform(Key{seed}, shape, -1, 1, dtype);
}
Tensor random_ids(const Shape& shape, Index n) { return randint(Key{2}, shape, 0, n); }

}  // namespace

TEST_CASE("embedding: scale, positions, any shape of ids") {
  const Tensor table = tensor({{1, 2}, {3, 4}, {5, 6}});
  const Tensor ids = tensor({{2, 0}, {1, 1}}, DType::i32);
  CHECK(embedding(table, ids).shape() == Shape{2, 2, 2});
  CHECK(embedding(table, ids).to_vector<float>() == std::vector<float>{5, 6, 1, 2, 3, 4, 3, 4});
  const Tensor positions = tensor({{10, 20}, {30, 40}});
  CHECK(embedding(table, ids, 2, positions).to_vector<float>() == std::vector<float>{20, 32, 32, 44, 16, 28, 36, 48});
  CHECK(embedding(table, tensor(2, DType::i64)).to_vector<float>() == std::vector<float>{5, 6});
  CHECK(embedding(table, zeros({3, 0}, DType::i32)).shape() == Shape{3, 0, 2});
  CHECK(embedding(zeros({3, 0}), ids).shape() == Shape{2, 2, 0});
  embedding_grad(ids, zeros({2, 2, 0}), 1, -1, {zeros({3, 0}), true});
  CHECK(embedding(transpose(tensor({{1, 3}, {2, 4}})), tensor({1}, DType::i32)).to_vector<float>() == std::vector<float>{3, 4});
}

TEST_CASE("embedding and its gradient are the same on every target and for any threads, and equal plain loops") {
  for (const Index n : {1, 15, 16, 17, 64, 300}) {
    const Index rows = 50, count = 700;
    const Tensor table = random_values({rows, n}), positions = random_values({10, n}, DType::f32, 3),
                 ids = random_ids({count / 10, 10}, rows);
    const Tensor dy = random_values({count / 10, 10, n}, DType::f32, 4), start = random_values({rows, n}, DType::f32, 5);
    const float scale = 1.7f;
    std::vector<float> y(size_t(count * n)), dtable = start.to_vector<float>();
    const Index* id = ids.data<Index>();
    for (Index p = 0; p < count; ++p)
      for (Index i = 0; i < n; ++i) {
        y[size_t(p * n + i)] = scale * table.data<float>()[id[p] * n + i] + positions.data<float>()[p % 10 * n + i];
        if (id[p] != 7) dtable[size_t(id[p] * n + i)] += scale * dy.data<float>()[p * n + i];
      }
    for_every_target([&] {
      for_threads([&] {
        CHECK(embedding(table, ids, double(scale), positions).to_vector<float>() == y);
        const Tensor sum = start.clone();
        embedding_grad(ids, dy, double(scale), 7, {sum, true});
        CHECK(sum.to_vector<float>() == dtable);
      });
    });
  }
}

TEST_CASE("embedding_grad: repeated ids add, untouched and padding rows are zero, strided destinations work") {
  const Tensor ids = tensor({2, 0, 2, 1}, DType::i32), dy = tensor({{1, 2}, {3, 4}, {5, 6}, {7, 8}}, DType::f64);
  const Tensor dtable = full({4, 2}, 9, DType::f64);
  embedding_grad(ids, dy, 10, 1, {dtable, false});
  CHECK(dtable.to_vector<double>() == std::vector<double>{30, 40, 0, 0, 60, 80, 0, 0});
  const Tensor across = transpose(full({2, 4}, 1, DType::f64));
  embedding_grad(ids, flip(dy, 1), 1, -1, {across, true});
  CHECK(across.to_vector<double>() == std::vector<double>{5, 4, 9, 8, 9, 7, 1, 1});
}

TEST_CASE("index_select along any axis of any view") {
  CHECK(rc::check("index_select", [] {
    Shape shape;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) shape.push_back(*rc::gen::inRange<Index>(1, 5));
    Tensor x = random_values(shape);
    x = transpose(x, *rc::gen::inRange(0, x.rank()), *rc::gen::inRange(0, x.rank()));
    if (*rc::gen::arbitrary<bool>()) x = flip(x, 0);
    const int dim = *rc::gen::inRange(0, x.rank());
    const auto ids = *rc::gen::container<std::vector<Index>>(rc::gen::inRange<Index>(0, x.size(dim)));
    const Tensor y = index_select(x, dim, tensor(ids, {Index(ids.size())}));
    for (size_t i = 0; i < ids.size(); ++i)
      RC_ASSERT(select(y, dim, Index(i)).to_vector<float>() == select(x, dim, ids[i]).to_vector<float>());
    RC_ASSERT(y.size(dim) == Index(ids.size()));
    // the derivative, against one addition after the other
    const Tensor dy = random_values(y.shape(), DType::f32, 3), dx = random_values(x.shape(), DType::f32, 4),
                 expected = dx.clone();
    index_select_grad(tensor(ids, {Index(ids.size())}), dy, dim, {dx, true});
    for (size_t i = 0; i < ids.size(); ++i) {
      const Tensor to = select(expected, dim, ids[i]);
      std::vector<float> sum = to.to_vector<float>();
      const std::vector<float> part = select(dy, dim, Index(i)).to_vector<float>();
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
      copy_into(to, tensor(sum, to.shape()));
    }
    RC_ASSERT(dx.to_vector<float>() == expected.to_vector<float>());
  }));
  CHECK(index_select(tensor({1, 2, 3}, DType::u8), 0, tensor({2, 2}, DType::i32)).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{3, 3});
}

TEST_CASE("gather, its gradient, scatter_add") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}}, DType::f64), index = tensor({{2, 0, 2, 1}, {1, 1, 0, 0}}, DType::i64);
  CHECK(gather(x, 1, index).to_vector<double>() == std::vector<double>{3, 1, 3, 2, 5, 5, 4, 4});
  CHECK(gather(transpose(x), 0, transpose(index)).to_vector<double>() == std::vector<double>{3, 5, 1, 5, 3, 4, 2, 4});
  CHECK(gather(x, 0, tensor({{1, 0}}, DType::i32)).to_vector<double>() == std::vector<double>{4, 2});   // fewer columns than x
  const Tensor dy = tensor({{1, 2, 3, 4}, {5, 6, 7, 8}}, DType::f64), dx = ones({2, 3}, DType::f64);
  gather_grad(index, dy, 1, {dx, true});
  CHECK(dx.to_vector<double>() == std::vector<double>{3, 5, 5, 16, 12, 1});
  gather_grad(index, dy, 1, {dx, false});
  CHECK(dx.to_vector<double>() == std::vector<double>{2, 4, 4, 15, 11, 0});
  CHECK(scatter_add(x, 1, index, dy).to_vector<double>() == std::vector<double>{3, 6, 7, 19, 16, 6});
  CHECK(x.to_vector<double>() == std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor bytes = scatter_add(tensor({250, 1}, DType::u8), 0, tensor({0, 0, 1}, DType::i64), tensor({3, 4, 5}, DType::u8));
  CHECK(bytes.to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 6});   // 257 wraps
  CHECK(gather(zeros({2, 0}), 1, zeros({2, 0}, DType::i64)).shape() == Shape{2, 0});
  const Tensor number = full({}, 7), none = zeros({}, DType::i64), dnumber = full({}, 1);
  gather_grad(none, number, 0, {dnumber, true});   // of sort and topk, which take numbers
  CHECK(dnumber.item() == 8);
}

TEST_CASE("gather, scatter_add, index_select of any shape equal plain loops, for any number of threads") {
  for (const Shape& shape : {Shape{300}, Shape{7, 300}, Shape{300, 70}, Shape{130, 200}, Shape{5, 70, 131}, Shape{40, 3, 3, 90}})
    for (int dim = 0; dim < shape.rank(); ++dim) {
      CAPTURE(shape);
      CAPTURE(dim);
      const Index n = shape[dim], count = n / 2 + 3;
      Shape part = shape;
      part[dim] = count;
      const int other = (dim + 1) % shape.rank();
      if (other != dim) part[other] -= 1;                        // fewer lines than x
      const Tensor x = random_values(shape), index = random_ids(part, n), src = random_values(part, DType::f32, 3),
                   list = random_ids({count}, n);
      // where x has the element `flat` of a tensor of shape `of` if id(flat, j) stands for its position j along dim
      const auto place = [&](Index flat, const Shape& of, auto id) {
        Shape position = of;
        Index rest = flat, from = 0;
        for (int axis = of.rank() - 1; axis >= 0; --axis) { position[axis] = rest % of[axis]; rest /= of[axis]; }
        for (int axis = 0; axis < of.rank(); ++axis) from = from * shape[axis] + (axis == dim ? id(flat, position[axis]) : position[axis]);
        return size_t(from);
      };
      std::vector<float> values = x.to_vector<float>(), gathered(size_t(index.numel())), sums = values, selected_sums = values;
      const Tensor selected = index_select(x, dim, list), dy = random_values(selected.shape(), DType::f32, 5);
      std::vector<float> chosen(size_t(selected.numel()));
      for (Index i = 0; i < index.numel(); ++i) {
        const size_t from = place(i, part, [&](Index flat, Index) { return index.data<Index>()[flat]; });
        gathered[size_t(i)] = values[from];
        sums[from] += src.data<float>()[i];
      }
      for (Index i = 0; i < selected.numel(); ++i) {
        const size_t from = place(i, selected.shape(), [&](Index, Index j) { return list.data<Index>()[j]; });
        chosen[size_t(i)] = values[from];
        selected_sums[from] += dy.data<float>()[i];
      }
      for_every_target([&] {
        for_threads([&] {
          CHECK(gather(x, dim, to(index, DType::i32)).to_vector<float>() == gathered);
          CHECK(scatter_add(x, dim, index, src).to_vector<float>() == sums);
          CHECK(index_select(x, dim, to(list, DType::i32)).to_vector<float>() == chosen);
          const Tensor dx = x.clone();
          index_select_grad(list, dy, dim, {dx, true});
          CHECK(dx.to_vector<float>() == selected_sums);
        });
      });
      // the same of views with their axes in another order
      if (shape.rank() < 2) continue;
      const auto turned = [&](const Tensor& t) { return transpose(transpose(t, 0, -1).clone(), 0, -1); };
      CHECK(gather(turned(x), dim, turned(index)).to_vector<float>() == gathered);
      CHECK(scatter_add(turned(x), dim, turned(index), turned(src)).to_vector<float>() == sums);
      CHECK(index_select(turned(x), dim, list).to_vector<float>() == chosen);
    }
}

TEST_CASE("gather and scatter_add by an expanded index equal those by its copy") {
  for (DType dtype : {DType::f32, DType::f64, DType::i32})
    for (DType id_dtype : {DType::i32, DType::i64})
      for (int dim : {0, 1, 2})
        for (int along : {0, 1, 2}) {
          CAPTURE(dim);
          CAPTURE(along);
          Shape one{6, 5, 37};
          one[along] = 1;
          const Shape shape{6, 5, 37};
          const Tensor ids = to(random_ids(one, 4), id_dtype), index = expand(ids, shape), copy = index.contiguous();
          const Tensor x = to(multiply(random_values(shape, DType::f64), 50), dtype),
                       src = to(multiply(random_values(shape, DType::f64, 2), 50), dtype);
          CHECK(equal_bits(gather(x, dim, index), gather(x, dim, copy)));
          CHECK(equal_bits(scatter_add(x, dim, index, src), scatter_add(x, dim, copy, src)));
          if (!is_float(dtype)) continue;
          const Tensor a = ones(shape, dtype), b = ones(shape, dtype);
          gather_grad(index, src, dim, {a, true});
          gather_grad(copy, src, dim, {b, true});
          CHECK(equal_bits(a, b));
        }
  CHECK_THROWS_WITH_AS(gather(zeros({2, 3}), 0, expand(tensor({{1}, {2}}, DType::i64), {2, 3})),
                       "gather: index 2 at position [1, 0] is not in [0, 2)", IndexError);
}

TEST_CASE("masked_select and nonzero of large tensors, for any number of threads") {
  for (const Shape& shape : {Shape{50000}, Shape{17, 3001}, Shape{40, 1, 1000, 1}, Shape{30, 20, 3, 29}}) {
    const Tensor mask = bernoulli(Key{1}, shape, 0.3), x = random_values(shape);
    std::vector<float> values;
    std::vector<Index> positions;
    for (Index i = 0; i < x.numel(); ++i) {
      if (!mask.data<std::uint8_t>()[i]) continue;
      values.push_back(x.data<float>()[i]);
      Index rest = i;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) { positions.push_back(rest % shape[axis]); rest /= shape[axis]; }
      std::reverse(positions.end() - shape.rank(), positions.end());
    }
    for_threads([&] {
      CHECK(masked_select(x, mask).to_vector<float>() == values);
      CHECK(nonzero(to(mask, DType::f32)).to_vector<Index>() == positions);
    });
  }
  CHECK(nonzero(zeros({3, 0})).shape() == Shape{0, 2});
  CHECK(nonzero(zeros({200, 200}, DType::bf16)).shape() == Shape{0, 2});
  CHECK(masked_select(zeros({0}), zeros({0}, DType::u8)).shape() == Shape{0});
  CHECK(nonzero(tensor({-0.0, kInfinity, std::nan("")})).to_vector<Index>() == std::vector<Index>{1, 2});
}

TEST_CASE("masked_fill and its gradient of any dtype and size, masks of any byte but 0") {
  for (const Shape& of_mask : {Shape{7, 9, 300}, Shape{9, 1}, Shape{300}, Shape{7, 1, 300}})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8}) {
      const Tensor mask = to(relu(subtract(to(randint(Key{3}, of_mask, 0, 400), DType::f32), 145)), DType::u8);
      const Tensor x = to(multiply(random_values({7, 9, 300}), 200), dtype), wide = expand(mask, x.shape()).contiguous();
      if (is_float(dtype)) fill_(x[3], dtype == DType::f32 ? -0.0 : std::nan(""));
      visit_any(dtype, [&]<class T>() {
        const T value = to(tensor({7}), dtype).item<T>();
        const Tensor y = masked_fill(x, mask, 7), turned = masked_fill(transpose(x, 0, 2), transpose(wide, 0, 2), 7).clone();
        Index wrong = turned.shape() != Shape{300, 9, 7};
        for (Index i = 0; i < x.numel(); ++i) {
          const T expected = wide.data<std::uint8_t>()[i] ? value : x.data<T>()[i];
          wrong += std::memcmp(y.data<T>() + i, &expected, sizeof(T)) != 0;
          wrong += std::memcmp(turned.data<T>() + i % 300 * 63 + i / 300 % 9 * 7 + i / 2700, &expected, sizeof(T)) != 0;
        }
        if constexpr (std::is_floating_point_v<T>)
          for (const bool add : {false, true}) {
            const Tensor start = random_values(x.shape(), dtype, 5), dx = start.clone();
            masked_fill_grad(mask, y, {dx, add});
            for (Index i = 0; i < x.numel(); ++i) {
              const T expected = (add ? start.data<T>()[i] : T(0)) + (wide.data<std::uint8_t>()[i] ? T(0) : y.data<T>()[i]);
              wrong += !(dx.data<T>()[i] == expected) && !(std::isnan(dx.data<T>()[i]) && std::isnan(expected));
            }
          }
        CHECK(wrong == 0);
      });
    }
}

TEST_CASE("a wrong id far behind is found") {
  Tensor ids = zeros({300, 300}, DType::i32);
  fill_(ids(123, 45), 7);
  fill_(ids(299, 299), -1);
  CHECK_THROWS_WITH_AS((void)embedding(zeros({7, 2}), ids), "embedding: id 7 at position [123, 45] is not in [0, 7)", IndexError);
  CHECK_THROWS_WITH_AS((void)embedding(zeros({8, 2}), to(ids, DType::i64)), "embedding: id -1 at position [299, 299] is not in [0, 8)",
                       IndexError);
  fill_(ids(299, 299), double(INT32_MIN));
  CHECK_THROWS_WITH_AS((void)embedding(zeros({8, 2}), ids), "embedding: id -2147483648 at position [299, 299] is not in [0, 8)",
                       IndexError);
}

TEST_CASE("masked_fill, masked_select, nonzero, one_hot") {
  const Tensor x = tensor({{1, 2}, {3, 4}}), mask = tensor({1, 0}, DType::u8);
  CHECK(masked_fill(x, mask, -1).to_vector<float>() == std::vector<float>{-1, 2, -1, 4});
  CHECK(masked_fill(transpose(x), unsqueeze(mask, 1), -kInfinity).to_vector<float>() ==
        std::vector<float>{-INFINITY, -INFINITY, 2, 4});
  CHECK(masked_fill(tensor(3), tensor(1, DType::u8), 5).item() == 5);
  CHECK(masked_fill(tensor({1, 2}, DType::i32), mask, 7).to_vector<std::int32_t>() == std::vector<std::int32_t>{7, 2});
  const Tensor dx = ones({2, 2});
  masked_fill_grad(mask, x, {dx, true});
  CHECK(dx.to_vector<float>() == std::vector<float>{1, 3, 1, 5});
  masked_fill_grad(mask, x, {dx, false});
  CHECK(dx.to_vector<float>() == std::vector<float>{0, 2, 0, 4});
  CHECK(masked_select(transpose(x), tensor({{1, 0}, {1, 1}}, DType::u8)).to_vector<float>() == std::vector<float>{1, 2, 4});
  CHECK(nonzero(tensor({{0, 3}, {4, 0}})).to_vector<Index>() == std::vector<Index>{0, 1, 1, 0});
  CHECK(nonzero(tensor(2)).shape() == Shape{1, 0});
  CHECK(one_hot(tensor({{2}, {0}}, DType::i32), 3).to_vector<float>() == std::vector<float>{0, 0, 1, 1, 0, 0});
  CHECK(one_hot(tensor(1, DType::i64), 2, DType::u8).shape() == Shape{2});
}

TEST_CASE("wrong ids, shapes and dtypes of indexing say where and what") {
  const Tensor table = zeros({3, 2}), x = zeros({2, 3});
#define THROWS(expression, type, text) CHECK_THROWS_WITH_AS((void)(expression), text, type)
  THROWS(embedding(table, tensor({5}, DType::i32)), IndexError, "embedding: id 5 at position [0] is not in [0, 3)");
  THROWS(embedding(table, tensor({{0, 1}, {2, -1}}, DType::i64)), IndexError,
         "embedding: id -1 at position [1, 1] is not in [0, 3)");
  THROWS(embedding(table, tensor(3, DType::i64)), IndexError, "embedding: id 3 at position [] is not in [0, 3)");
  THROWS(embedding(table, tensor({1})), DTypeError, "embedding: takes ids of i32 or i64: f32");
  THROWS(embedding(zeros({3}), tensor({1}, DType::i32)), ShapeError, "embedding: table needs 2 axes [ids, width]: table [3]");
  THROWS(embedding(table, tensor({1}, DType::i32), 1, zeros({2, 2})), ShapeError,
         "embedding: positions do not fit: table [3, 2], ids [1], positions [2, 2], expected [1, 2]");
  THROWS(embedding(table, tensor({1}, DType::i32), 1, zeros({1, 2}, DType::f64)), DTypeError,
         "embedding: dtypes differ: table f32, positions f64");
  THROWS(embedding(zeros({3, 2}, DType::bf16), tensor({1}, DType::i32)), DTypeError, "embedding: takes f32 or f64: bf16");
  THROWS(embedding_grad(tensor({1}, DType::i32), zeros({2, 2}), 1, -1, {table, true}), ShapeError,
         "embedding_grad: dy does not fit ids: dy [2, 2], ids [1], dtable [3, 2]");
  THROWS(index_select(x, 1, tensor({0, 3}, DType::i64)), IndexError, "index_select: id 3 at position [1] is not in [0, 3)");
  THROWS(index_select(x, 1, zeros({1, 1}, DType::i64)), ShapeError, "index_select: ids need 1 axis: x [2, 3], ids [1, 1]");
  THROWS(gather(x, 1, tensor({{0}, {7}}, DType::i64)), IndexError, "gather: index 7 at position [1, 0] is not in [0, 3)");
  THROWS(gather(x, 1, zeros({3, 1}, DType::i64)), ShapeError,
         "gather: index must have x's rank and, beside dim 1, at most x's sizes: x [2, 3], index [3, 1]");
  THROWS(scatter_add(x, 1, zeros({2, 1}, DType::i64), zeros({2, 2})), ShapeError,
         "scatter_add: index and src differ: index [2, 1], src [2, 2]");
  THROWS(scatter_add(x, 1, zeros({2, 1}, DType::i64), zeros({2, 1}, DType::f64)), DTypeError,
         "scatter_add: dtypes differ: x f32, src f64");
  THROWS(masked_fill(x, zeros({2, 3}), 0), DTypeError, "masked_fill: takes a mask of u8: f32");
  THROWS(masked_fill(x, zeros({4, 2, 3}, DType::u8), 0), ShapeError,
         "masked_fill: mask does not broadcast to x: x [2, 3], mask [4, 2, 3]");
  THROWS(masked_select(x, zeros({3}, DType::u8)), ShapeError, "masked_select: shapes differ: x [2, 3], mask [3]");
  THROWS(one_hot(tensor({3}, DType::i32), 3), IndexError, "one_hot: id 3 at position [0] is not in [0, 3)");
#undef THROWS
}

TEST_CASE("gradients of indexing") {
  const Tensor x = random_values({4, 5}, DType::f64), src = random_values({4, 3}, DType::f64, 7);
  using Inputs = std::span<const Variable>;
  const auto holds = [&](const DifferentiableFunction& f) {
    const GradientReport report = check_gradient(f, {x, src});
    INFO(report.worst);
    CHECK(report.holds(1e-8));
  };
  const Tensor ids = tensor({{3, 0}, {0, 0}}, DType::i32), index = random_ids({4, 3}, 5), mask = random_ids({5}, 2);
  holds([&](Inputs v) { return embedding(v[0], ids, 1.5); });
  holds([&](Inputs v) { return embedding(v[0], ids, 1.5, -1, ones({2, 5}, DType::f64)); });
  holds([&](Inputs v) { return index_select(v[0], 1, tensor({4, 4, 0}, DType::i64)); });
  holds([&](Inputs v) { return gather(v[0], 1, index); });
  holds([&](Inputs v) { return gather(transpose(v[0]), 0, transpose(index)); });
  holds([&](Inputs v) { return scatter_add(v[0], 1, index, v[1]); });
  holds([&](Inputs v) { return masked_fill(v[0], to(mask, DType::u8), 3); });
}

TEST_CASE("the padding row of an embedding gets no gradient") {
  const Variable table = variable(random_values({3, 2}, DType::f64));
  Tape tape;
  const Variable y = embedding(table, tensor({0, 1, 0}, DType::i32), 1, 0);
  const Tensor dy = ones({3, 2}, DType::f64);
  tape.backward({&y, 1}, {&dy, 1});
  CHECK(table.grad().to_vector<double>() == std::vector<double>{0, 0, 1, 1, 0, 0});
}

namespace {

using reference::Arrays;
using reference::Position;

}  // namespace

static const InTable rows{
    {"embedding", [](const Arrays& x) {
       const Index ids[] = {2, 0, 2, 1, 3, 2};
       return reference::make({2, 3, x[0].shape[1]}, [&](Position p) { return 2 * x[0]({ids[p[0] * 3 + p[1]], p[2]}); });
     }},
    {"index_select", [](const Arrays& x) {
       const Index ids[] = {2, 0, 2, 1};
       return reference::make({4, x[0].shape[1]}, [&](Position p) { return x[0]({ids[p[0]], p[1]}); });
     }},
    {"gather", [](const Arrays& x) {
       const Index at[] = {1, 0, 1};
       return reference::make({3, 1}, [&](Position p) { return x[0]({p[0], at[p[0]]}); });
     }},
    {"scatter_add", [](const Arrays& x) {
       const Index at[] = {1, 0, 1};
       return reference::make({3, 2}, [&](Position p) { return x[0](p) + (at[p[0]] == p[1] ? x[1]({p[0], 0}) : 0); });
     }},
    {"masked_fill", [](const Arrays& x) { return reference::make(x[0].shape, [&](Position p) { return p[0] == 1 ? x[0](p) : -3; }); }},
};
