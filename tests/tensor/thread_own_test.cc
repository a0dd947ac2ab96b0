// SPDX-License-Identifier: Apache-2.0
// What a thread keeps is gone when objects end that were made before it: they compute as ever.
#include "tensor/thread_own.h"

#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <thread>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tests/close.h"

using namespace heed;

namespace {

struct AtEnd {
  std::function<void()> run;
  ~AtEnd() { if (run) run(); }
};

// Runs `before` in a new thread, and `after` at its end.
void at_end_of_thread(const std::function<void()>& before, const std::function<void()>& after) {
  std::thread([&] {
    static thread_local AtEnd last;
    last.run = after;
    before();
  }).join();
}

}  // namespace

TEST_CASE("a thread's end: its own is there before, not after") {
  struct Number { int value = 3; };
  Number* own = nullptr;
  bool gone = false;
  at_end_of_thread([&] { own = own_of_thread<Number>(), own = own == own_of_thread<Number>() && own->value == 3 ? own : nullptr; },
                   [&] { gone = own_of_thread<Number>() == nullptr; });
  CHECK(own);
  CHECK(gone);
}

TEST_CASE("a thread's end: products of every way have the bits that they had") {
  List<Tensor> products;
  const auto each = [](const auto& use) {
    for (const Index m : {4, 17, 100, 300})
      for (const Index k : {128, 640, 1408})
        for (const Index n : {48, 500}) use(matmul(normal(Key(Seed{1}) / m / k, {m, k}), normal(Key(Seed{2}) / k / n, {k, n})));
  };
  std::size_t next = 0, same = 0;
  at_end_of_thread([&] { each([&](const Tensor& product) { products.push_back(product); }); },
                   [&] { each([&](const Tensor& product) { same += worst_absolute(product, products[next++]) == 0; }); });
  CHECK(next == products.size());
  CHECK(same == next);
}

TEST_CASE("a thread's end: a training goes on, and a tape that lived longer ends") {
  const auto trained = [](int steps, int at_end) {
    Parameters parameters(Seed{1});
    const Linear layer(parameters.root() / "layer", {.in = 40, .out = 30});
    Adam adam(parameters, {});
    std::optional<Tape> living;                     // made in the thread, it ends in AtEnd's destructor
    const auto step = [&](int count) {
      for (int i = 0; i < count; ++i) {
        Tape tape(Key(Seed{3}) / i);
        tape.backward(sum(square(layer(constant(normal(Key(Seed{4}), {50, 40}))))));
        adam.step();
      }
    };
    at_end_of_thread([&] { step(steps), living.emplace(); }, [&] { living.reset(), step(at_end); });
    return layer.weight.value().clone();
  };
  CHECK(worst_absolute(trained(4, 0), trained(2, 2)) == 0);
}
