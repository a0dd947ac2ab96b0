// SPDX-License-Identifier: Apache-2.0
#include "autograd/trace.h"

#include <doctest/doctest.h>

#include <memory>
#include <thread>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/inside.h"
#include "tensor/ops/binary.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("trace: nothing happens without one") {
  CHECK(Trace::current() == nullptr);
  const Variable x = constant(tensor({1, 2}));
  CHECK(trace("x", "", x).value().data<float>() == x.value().data<float>());
  trace("never made", "", [&]() -> Tensor { throw Error("made"); });
}

TEST_CASE("trace: values under the path of the module, with name, formula, number of the call") {
  const Variable x = constant(tensor({1, 2}));
  Trace outer;
  {
    const Inside inside("layers.0");
    trace("", "y = x", x);
    trace("scores", "e = x²", x * x, {.columns = Along::source, .heads = true});
    trace("scores", "e = x²", x * 3.0);
    trace("twice", "2 x", [&] { return x.value() * 2.0; });
  }
  trace("memory", "h", x.value());
  const auto& entries = outer.entries();
  REQUIRE(entries.size() == 5);
  CHECK(entries[0].key() == "layers.0");
  CHECK(entries[1].key() == "layers.0.scores");
  CHECK(entries[1].formula == "e = x²");
  CHECK(entries[1].axes.columns == Along::source);
  CHECK(entries[1].axes.heads);
  CHECK(entries[2].key() == "layers.0.scores#2");
  CHECK(entries[3].value.to_vector<float>() == std::vector<float>{2, 4});
  CHECK(!entries[3].variable.defined());
  CHECK(entries[4].key() == "memory");
  CHECK(outer.find("layers.0.scores#2")->value.to_vector<float>() == std::vector<float>{3, 6});
  CHECK(outer.find("layers.1") == nullptr);
}

TEST_CASE("trace: a copy, of this thread, of the innermost trace") {
  const Trace outer;
  const Tensor x = tensor({1, 2});
  {
    const Trace inner;
    trace("x", "", x);
    fill_(x, 7);
    CHECK(inner.find("x")->value.to_vector<float>() == std::vector<float>{1, 2});
    bool none = false;
    std::thread([&] { none = Trace::current() == nullptr; }).join();
    CHECK(none);
  }
  CHECK(outer.entries().empty());
  CHECK(Trace::current() == &outer);
  auto first = std::make_unique<Trace>(), second = std::make_unique<Trace>();   // they end in any order
  first.reset();
  CHECK(Trace::current() == second.get());
  second.reset();
  CHECK(Trace::current() == &outer);
}

TEST_CASE("trace: gradients of what was noted") {
  const Variable x = variable(tensor({1, 2, 3}));
  Trace seen;
  {
    Tape tape;
    const Variable y = trace("y", "y = 2 x", x * 2.0);
    trace("aside", "not on the way to the loss", y * 5.0);
    tape.backward(sum(y * y));                       // dy = 2 y
  }
  CHECK(seen.find("y")->gradient->to_vector<float>() == std::vector<float>{4, 8, 12});
  CHECK(!seen.find("aside")->gradient->defined());
  CHECK(x.grad().to_vector<float>() == std::vector<float>{8, 16, 24});
}

TEST_CASE("trace: what is computed again is noted once, with its gradient") {
  const Variable x = variable(tensor({1, 2}));
  Tape tape;
  Trace seen;
  tape.backward(sum(recompute([](const Variable& v) { return trace("square", "v²", v * v); }, x)));
  REQUIRE(seen.entries().size() == 1);
  CHECK(doubles(*seen.entries()[0].gradient) == std::vector<double>{1, 1});
}

TEST_CASE("trace: with_value keeps the value given and the graph of the other") {
  const Variable x = variable(tensor({{1, 2}, {3, 4}}));
  Tape tape;
  const Variable y = with_value(x * 3.0, transpose(constant(tensor({{10, 30}, {20, 40}}))).value());
  CHECK(y.value().contiguous().to_vector<float>() == std::vector<float>{10, 20, 30, 40});
  tape.backward(sum(y * constant(tensor({{1, 2}, {3, 4}}))));
  CHECK(x.grad().to_vector<float>() == std::vector<float>{3, 6, 9, 12});
}
