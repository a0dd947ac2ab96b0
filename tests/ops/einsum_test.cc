// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/einsum.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tensor/random.h"
#include "tests/op_table.h"

using namespace heed;

namespace {

// Σ over all letters of the product of the operands, one number for each position of the result: spec without "...".
std::vector<double> by_loops(std::vector<std::string> inputs, const std::string& output, const std::vector<Tensor>& operands) {
  std::map<char, Index> size, at;
  std::string letters = output;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t axis = 0; axis < inputs[i].size(); ++axis) {
      const char letter = inputs[i][axis];
      if (letters.find(letter) == letters.npos) letters += letter;
      size[letter] = std::max(size[letter], operands[i].shape()[int(axis)]);
    }
  Index results = 1, count = 1;
  for (char letter : output) results *= size[letter];
  for (char letter : letters) count *= size[letter];
  std::vector<double> y(std::size_t(results), 0.0);
  for (Index n = 0; n < count; ++n) {
    Index rest = n, position = 0;
    for (std::size_t l = letters.size(); l-- > 0; rest /= size[letters[l]]) at[letters[l]] = rest % size[letters[l]];
    for (char letter : output) position = position * size[letter] + at[letter];
    double product = 1;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor x = operands[i];
      for (char letter : inputs[i]) x = x[x.shape()[0] == 1 ? 0 : at[letter]];
      product *= x.item();
    }
    y[std::size_t(position)] += product;
  }
  return y;
}

struct Case {
  std::vector<std::string> inputs;
  std::string output;
  std::vector<Shape> shapes;
};

const Case cases[] = {
    {{"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
    {{"ij", "kj"}, "ki", {{3, 4}, {5, 4}}},
    {{"bthd", "bshd"}, "bhts", {{2, 3, 2, 4}, {2, 5, 2, 4}}},
    {{"bhts", "bshd"}, "bthd", {{2, 2, 3, 5}, {2, 5, 2, 4}}},
    {{"i", "i"}, "", {{6}, {6}}},
    {{"i", "j"}, "ij", {{3}, {4}}},
    {{"i", "i"}, "i", {{3}, {3}}},
    {{"ij"}, "ji", {{3, 4}}},
    {{"ij"}, "", {{3, 4}}},
    {{"ijk"}, "j", {{3, 4, 2}}},
    {{"ii"}, "i", {{4, 4}}},
    {{"ii"}, "", {{4, 4}}},
    {{"iji"}, "ji", {{3, 2, 3}}},
    {{"iii"}, "i", {{3, 3, 3}}},
    {{"ii", "ij"}, "j", {{3, 3}, {3, 4}}},
    {{"bi", "bi"}, "b", {{3, 4}, {3, 4}}},
    {{"bi", "bij", "bj"}, "b", {{3, 4}, {3, 4, 5}, {3, 5}}},
    {{"ij", "jk", "kl"}, "il", {{2, 3}, {3, 4}, {4, 5}}},
    {{"abc", "cd", "ade"}, "be", {{2, 3, 4}, {4, 2}, {2, 2, 3}}},
    {{"ij", "jk"}, "", {{3, 4}, {4, 2}}},
    {{"ij", "jk"}, "ik", {{3, 1}, {4, 5}}},
    {{"aij", "bjk"}, "ik", {{2, 3, 4}, {3, 4, 2}}},
    {{"ab", "ab"}, "ba", {{3, 0}, {3, 0}}},
};

}  // namespace

TEST_CASE("einsum: equals loops over all letters, value and gradients") {
  for (const Case& c : cases) {
    std::string spec;
    std::vector<Tensor> operands, strided;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      spec += (i ? "," : "") + c.inputs[i];
      operands.push_back(uniform(Key(Seed{3}) / i, c.shapes[i], -1, 1, DType::f64));
      Tensor other = operands.back();
      if (other.rank() > 1) other = transpose(transpose(other, 0, -1).clone(), 0, -1);
      strided.push_back(other);
    }
    spec += "->" + c.output;
    INFO(spec);
    const auto expected = by_loops(c.inputs, c.output, operands);
    for (const auto& given : {operands, strided}) {
      const auto y = einsum(spec, given).to_vector<double>();
      REQUIRE(y.size() == expected.size());
      for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y[i] - expected[i]) < 1e-14);
    }
    if (operands[0].numel() == 0) continue;
    const auto report =
        check_gradient([&](std::span<const Variable> x) { return einsum(spec, std::vector<Variable>(x.begin(), x.end())); },
                       std::span<const Tensor>(operands));
    CHECK_MESSAGE(report.holds(1e-8), report.worst);
  }
}

TEST_CASE("einsum: implicit result, ellipsis, spaces") {
  const Tensor a = uniform(Key(Seed{4}) / 0, {2, 1, 3, 4}, -1, 1, DType::f64),
               b = uniform(Key(Seed{4}) / 1, {5, 4, 6}, -1, 1, DType::f64);
  CHECK(equal_bits(einsum("...ij,...jk->...ik", {a, b}), matmul(a, b)));
  CHECK(equal_bits(einsum("... i j, ... j k", {a, b}), matmul(a, b)));
  CHECK(equal_bits(einsum("ba", {b[0]}), transpose(b[0])));
  CHECK(equal_bits(einsum("ij,jk", {a[0][0], b[0]}), matmul(a[0][0], b[0])));
  CHECK(einsum("ii", {eye(5)}).item() == 5);
  CHECK(einsum("...->", {ones({2, 3})}).item() == 6);
}

TEST_CASE("einsum: errors") {
  const Tensor a = ones({3, 4}), b = ones({5, 6});
  CHECK_THROWS_WITH_AS(einsum("ij,jk->ik", {a, b}),
                       "einsum: sizes of 'j' differ: 4 and 5: operands [3, 4], [5, 6]: spec \"ij,jk->ik\"", ShapeError);
  CHECK_THROWS_WITH_AS(einsum("ii->i", {zeros({1, 3})}), "einsum: sizes of 'i' differ: 1 and 3: operands [1, 3]: spec \"ii->i\"",
                       ShapeError);
  CHECK_THROWS_WITH_AS(einsum("ijk->i", {a}),
                       "einsum: operand 0 has 2 axes, its part of the spec \"ijk\" names 3: operand [3, 4]", ShapeError);
  CHECK_THROWS_WITH_AS(einsum("ij,jk->ik", {a}), "einsum: more operands in the spec than given: spec \"ij,jk->ik\", 1 operands",
                       Error);
  CHECK_THROWS_WITH_AS(einsum("ij", {a, b}), "einsum: fewer operands in the spec than given: spec \"ij\", 2 operands", Error);
  CHECK_THROWS_WITH_AS(einsum("ij->ik", {a}), "einsum: 'k' is in the result but in no operand: spec \"ij->ik\"", Error);
  CHECK_THROWS_WITH_AS(einsum("ij->ii", {a}), "einsum: 'i' occurs twice in the result: spec \"ij->ii\"", Error);
  CHECK_THROWS_WITH_AS(einsum("i1->i", {a}), "einsum: names of axes are letters, and one \"...\": \"1\" at 1 in spec \"i1->i\"",
                       Error);
  CHECK_THROWS_AS(einsum("...i...->i", {a}), Error);
  CHECK_THROWS_AS(einsum("", std::vector<Tensor>{}), Error);
  CHECK_THROWS_AS(einsum("ii->i", {a}), ShapeError);
  CHECK_THROWS_AS(einsum("ij,jk->ik", {a, ones({4, 2}, DType::f64)}), DTypeError);
}

// Up to 211 products of numbers up to 2.
static const InTable rows{
    {.name = "einsum", .reference = reference::matmul, .definition = [](std::span<const Variable> x) { return matmul(x[0], x[1]); },
     .wrong = {{{{2, 3, 5}, {2, 4, 4}}}}, .ulp = 100},
    {.name = "einsum heads", .reference = [](const reference::Arrays& x) {
       return reference::make({2, 2, 3, 4}, [&](const reference::Position& p) {   // p = b, h, t, s
         double total = 0;
         for (Index d = 0; d < x[0].shape[3]; ++d) total += x[0]({p[0], p[2], p[1], d}) * x[1]({p[0], p[3], p[1], d});
         return total;
       });
     }, .ulp = 100},
};
