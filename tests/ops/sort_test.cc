// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/sort.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

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

const double kNaN = std::nan(""), kInfinity = INFINITY;

}  // namespace

TEST_CASE("sort is stable, NaN is the largest, infinities stand beside it") {
  const Tensor x = tensor({2, kNaN, -1, kInfinity, 2, -kInfinity, kNaN, 2}, DType::f64);
  CHECK(argsort(x).to_vector<Index>() == std::vector<Index>{5, 2, 0, 4, 7, 3, 1, 6});
  CHECK(argsort(x, 0, true).to_vector<Index>() == std::vector<Index>{1, 6, 3, 0, 4, 7, 2, 5});
  const Sorted columns = sort(tensor({{3, 1}, {2, 5}, {2, 1}}, DType::i32), 0);
  CHECK(columns.values.to_vector<std::int32_t>() == std::vector<std::int32_t>{2, 1, 2, 1, 3, 5});
  CHECK(columns.indices.to_vector<Index>() == std::vector<Index>{1, 0, 2, 2, 0, 1});
  CHECK(sort(tensor({3, 200, 7}, DType::u8)).values.to_vector<std::uint8_t>() == std::vector<std::uint8_t>{3, 7, 200});
  CHECK(argsort(tensor({2, 1}, DType::bf16)).to_vector<Index>() == std::vector<Index>{1, 0});
  CHECK(sort(tensor(4)).values.item() == 4);
  const Variable scalar = variable(tensor(4));
  Tape tape;
  tape.backward(sort(scalar).values);
  CHECK(scalar.grad().item() == 1);
  CHECK(topk(tensor(4), 1).values.item() == 4);
  CHECK(topk(tensor(4), 1, 0).indices.shape() == Shape{});
  CHECK_THROWS_AS(topk(tensor(4), 2), IndexError);
  CHECK(sort(zeros({3, 0})).indices.shape() == Shape{3, 0});
}

TEST_CASE("topk = the head of a stable falling sort, on every target") {
  for_every_target([] {
    CHECK(rc::check("topk", [] {
      const auto n = *rc::gen::inRange<Index>(1, 200);
      const auto values = *rc::gen::container<std::vector<int>>(size_t(n), rc::gen::inRange(-3, 12));
      std::vector<double> row(values.begin(), values.end());
      for (double& value : row) value = value == 11 ? kNaN : value == 10 ? kInfinity : value == -3 ? -kInfinity : value;
      const Tensor x = tensor(row, {n});
      const auto k = *rc::gen::inRange<Index>(0, std::min<Index>(n, 80) + 1);
      const Sorted all_of_it = sort(x, 0, true);
      std::vector<Index> expected = all_of_it.indices.to_vector<Index>();
      expected.resize(size_t(k));
      RC_ASSERT(topk(x, k).indices.to_vector<Index>() == expected);
      RC_ASSERT(topk(to(x, DType::f32), k).indices.to_vector<Index>() == expected);
      RC_ASSERT(topk(transpose(stack({x, x})), k, 0).indices(all, 1).to_vector<Index>() == expected);
    }));
  });
  CHECK(topk(tensor({{1, 5, 3}, {9, 8, 7}}), 2).values.to_vector<float>() == std::vector<float>{5, 3, 9, 8});
  CHECK(topk(tensor({4, 9, 9}, DType::i64), 1).indices.item() == 1);
}

namespace {

// Positions in the order of a stable sort of a line
template <class T> std::vector<Index> order_of(const std::vector<T>& line, bool descending) {
  const auto value = [&](Index i) { return double(line[size_t(i)]); };
  const auto below = [&](Index a, Index b) { return value(a) < value(b) || (std::isnan(value(b)) && !std::isnan(value(a))); };
  std::vector<Index> order(line.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return descending ? below(b, a) : below(a, b); });
  return order;
}

}  // namespace

TEST_CASE("sort and topk of lines of any length and dtype equal a stable sort, for any number of threads") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
    for (const Index n : {2, 31, 32, 33, 100, 1000, 70000}) {
      CAPTURE(name(dtype));
      CAPTURE(n);
      // many equal values, and all kinds of bits
      Tensor x = to(floor(multiply(normal(Key(n), {n}, 0, 1, DType::f64), is_float(dtype) ? 100 : 1e9)), dtype);
      if (dtype == DType::u8) x = to(randint(Key(n), {n}, 0, 256), dtype);
      if (is_float(dtype)) {
        const Tensor special = to(tensor({NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 0x1p-140, -3e38}, DType::f64), dtype);
        for (Index i = 0; i < 2 * n; i += 5) copy_into(x[i * 7 % n], special[i / 5 % 8]);
      }
      visit_any(dtype, [&]<class T>() {
        std::vector<T> line = x.to_vector<T>();
        std::vector<double> wide(line.size());
        for (size_t i = 0; i < line.size(); ++i) {
          if constexpr (std::is_same_v<T, BFloat16>) wide[i] = float(line[i]);
          else wide[i] = double(line[i]);                       // no i64 here needs more than 53 bits
        }
        const std::vector<Index> rising = order_of(wide, false), falling = order_of(wide, true);
        for_threads([&] {
          CHECK(argsort(x).to_vector<Index>() == rising);
          CHECK(argsort(transpose(stack({x, x, x})), 0, true)(all, 1).to_vector<Index>() == falling);
          const Sorted y = sort(stack({x, x}), 1, true);
          CHECK(y.indices[1].to_vector<Index>() == falling);
          Index wrong = 0;                                       // the values come with their bits: -0, NaN
          for (Index i = 0; i < n; ++i) wrong += std::memcmp(&y.values.data<T>()[n + i], &line[size_t(falling[size_t(i)])], sizeof(T)) != 0;
          CHECK(wrong == 0);
          for (const Index k : {Index(0), Index(1), std::min<Index>(n, 70), n / 3, n}) {
            const std::vector<Index> head(falling.begin(), falling.begin() + k);
            CHECK(topk(x, k).indices.to_vector<Index>() == head);
          }
        });
      });
    }
}

TEST_CASE("sort: a dim that is not there, more than there is") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(topk(x, 4), "topk: k 4 is not in [0, 3]: x [2, 3], dim -1", IndexError);
  CHECK_THROWS_WITH_AS(topk(zeros({}), 2), "topk: k 2 is not in [0, 1]: x [1], dim -1", IndexError);
  CHECK(topk(zeros({}), 0).values.numel() == 0);
  CHECK_THROWS_WITH_AS(sort(x, 2), "sort: dim 2 is not in [-2, 2): shape [2, 3]", IndexError);
}

TEST_CASE("gradients of sort and topk") {
  const Tensor x = uniform(Key(1), {4, 5}, -2, 2, DType::f64);
  using Inputs = std::span<const Variable>;
  CHECK(check_gradient([](Inputs v) { return sort(v[0], 0, true).values; }, {x}).holds(1e-8));
  CHECK(check_gradient([](Inputs v) { return topk(v[0], 2).values; }, {x}).holds(1e-8));
}

namespace {

using reference::Arrays;
using reference::Position;

}  // namespace

static const InTable rows{
    {"sort", reference::along(-1, [](reference::Values v) {
       std::sort(v.begin(), v.end());
       return v;
     })},
    {"topk", [](const Arrays& x) {
       const auto sorted = reference::along(0, [](reference::Values v) {
         std::sort(v.rbegin(), v.rend());
         return v;
       })(x);
       return reference::make({2, x[0].shape[1]}, [&](Position p) { return sorted(p); });
     }},
};
