// SPDX-License-Identifier: Apache-2.0
#include "nn/scope.h"

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "nn/init.h"
#include "nn/optimizer.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("scope: a path is declared once, and a shared one has the shape of the other") {
  Parameters parameters(Seed{1});
  const Scope scope = parameters.root() / "a";
  const Parameter weight = scope.parameter("weight", {2, 3}, constant_init(1));
  CHECK(weight.path() == "a.weight");
  CHECK_THROWS_WITH_AS(scope.parameter("weight", {2, 3}, constant_init(1)), "parameter: declared twice: a.weight", Error);
  CHECK_THROWS_WITH_AS((parameters.root() / "a").parameter("weight", {1}, constant_init(1)), "parameter: declared twice: a.weight", Error);
  CHECK_THROWS_WITH_AS(scope.alias("weight", weight.share(), {2, 3}), "parameter: declared twice: a.weight", Error);
  CHECK_THROWS_AS(scope.alias("other", weight.share(), {3, 2}), ShapeError);
  const Parameter other = scope.alias("other", weight.share(), {2, 3});
  CHECK_THROWS_WITH_AS(scope.parameter("other", {1}, constant_init(1)), "parameter: declared twice: a.other", Error);
  CHECK(other.path() == "a.weight");
  CHECK(parameters.count() == 6);
  CHECK_THROWS_WITH_AS(parameters.select("b.*"), "select: no parameter matches 'b.*'; the first paths are: a.weight", Error);
}

TEST_CASE("scope: initial values go by the path, not by the order of declarations") {
  Parameters one(Seed{1}), two(Seed{1}), three(Seed{2});
  const auto draw = [](Parameters& parameters, const char* name) { return parameters.root().parameter(name, {20}, normal_init(0, 1)).value().clone(); };
  const Tensor a = draw(one, "a"), b = draw(one, "b");
  CHECK(equal_bits(draw(two, "b"), b));
  CHECK(equal_bits(draw(two, "a"), a));
  CHECK_FALSE(equal_bits(a, b));
  CHECK_FALSE(equal_bits(draw(three, "a"), a));
}

TEST_CASE("scope: what is frozen gets no gradient and no update, and learns again when it is not") {
  Parameters parameters(Seed{1});
  const Parameter a = (parameters.root() / "a").parameter("w", {2}, constant_init(1)), b = (parameters.root() / "b").parameter("w", {2}, constant_init(1));
  SGD sgd(parameters, {.learning_rate = 1, .weight_decay = 0.5});
  const auto update = [&] {
    Tape tape;
    tape.backward(sum(a.variable() * b.variable()));
    sgd.step();
  };
  parameters.select("a.*").freeze();
  update();
  CHECK(doubles(a.value()) == std::vector<double>{1, 1});
  CHECK(doubles(b.value()) == std::vector<double>{-0.5, -0.5});                 // 1 - (1 + 0.5)
  parameters.select("a.*").unfreeze();
  update();
  CHECK(doubles(a.value()) == std::vector<double>{1, 1});                       // 1 - (-0.5 + 0.5)
  CHECK(doubles(b.value()) == std::vector<double>{-1.25, -1.25});               // -0.5 - (1 - 0.25)
}

TEST_CASE("scope: loading lists all that is missing, unexpected and of another shape at once, and changes nothing") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(1)), b = parameters.root().parameter("b", {2}, constant_init(1)),
                  c = parameters.root().parameter("c", {2}, constant_init(1));
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"c", zeros({3})}, {"d", zeros({2})}}, "file"),
                       "file: does not fit the model; missing: b; unexpected: d; mismatched: c (f32 [3], needs f32 [2])", FileError);
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"b", zeros({2})}, {"c", zeros({2})}, {"d", zeros({2})}}, "file"),
                       "file: does not fit the model; unexpected: d", FileError);
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"b", zeros({2})}}, "file"), "file: does not fit the model; missing: c", FileError);
  for (const Parameter* p : {&a, &b, &c}) CHECK(doubles(p->value()) == std::vector<double>{1, 1});
}
