// SPDX-License-Identifier: Apache-2.0
#include "nn/average.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

// Two weights that random steps change.
struct Walk {
  Parameters parameters{Seed{3}};
  Parameter matrix = parameters.root().parameter("matrix", {7, 5}, normal_init(0, 1));
  Parameter number = parameters.root().parameter("number", {}, constant_init(2));
  std::uint64_t steps = 0;
  void step() {
    for (const Parameter* each : {&matrix, &number}) copy_into(each->value(), each->value() + normal(Key(Seed{++steps}), each->shape()));
  }
};

}  // namespace

TEST_CASE("weight average: as its formula says, with a decay that rises to its value") {
  Walk walk;
  WeightAverage average(walk.parameters, 0.4), part(walk.parameters.select("number"), 0);
  CHECK(average.state().empty());
  std::vector<double> a;
  for (int t = 1; t <= 12; ++t) {
    walk.step();
    average.update();
    part.update();
    const std::vector<float> w = walk.matrix.value().to_vector<float>();
    const double decay = t == 1 ? 0 : std::min(0.4, (1.0 + t) / (10.0 + t));
    a.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) a[i] = decay * a[i] + (1 - decay) * w[i];
    const std::vector<float> seen = average.state().at("matrix").to_vector<float>();
    for (std::size_t i = 0; i < w.size(); ++i) CHECK(seen[i] == doctest::Approx(a[i]).epsilon(1e-6));
    CHECK((part.state().size() == 1 && part.state().at("number").item() == walk.number.value().item()));
  }
  CHECK(average.updates() == 12);
}

TEST_CASE("weight average: in place of the weights, and back with all bits") {
  Walk walk;
  WeightAverage average(walk.parameters, 0.9);
  const std::vector<float> first = walk.matrix.value().to_vector<float>();
  {
    const WeightAverage::InPlace nothing(average);
    CHECK(walk.matrix.value().to_vector<float>() == first);
  }
  for (int t = 0; t < 3; ++t) walk.step(), average.update();
  const std::vector<float> weights = walk.matrix.value().to_vector<float>(), averages = average.state().at("matrix").to_vector<float>();
  const double number = walk.number.value().item(), its_average = average.state().at("number").item();
  REQUIRE((weights != averages && number != its_average));
  {
    const WeightAverage::InPlace use(average);
    CHECK(walk.matrix.value().to_vector<float>() == averages);
    CHECK(walk.number.value().item() == its_average);
    CHECK(average.state().at("matrix").to_vector<float>() == weights);
    CHECK(thrown([&] { average.update(); }) == "Error: weight average: update() while the averages are in place of the weights");
    CHECK(thrown([&] { average.load_state({}, 0); }) ==
          "Error: weight average: load_state() while the averages are in place of the weights");
    CHECK(thrown([&] { const WeightAverage::InPlace again(average); }) == "Error: weight average: its averages are in place already");
    CHECK(walk.matrix.value().to_vector<float>() == averages);
  }
  CHECK(walk.matrix.value().to_vector<float>() == weights);
  CHECK(walk.number.value().item() == number);
  CHECK(average.state().at("matrix").to_vector<float>() == averages);
  CHECK(average.state().at("number").item() == its_average);
}

TEST_CASE("weight average: weights that rest are their average, to the bit") {
  Walk walk;
  for (const double decay : {0.4, 0.995, 0.9999}) {
    WeightAverage average(walk.parameters, decay);
    for (int t = 0; t < 100; ++t) average.update();
    CHECK(average.state().at("matrix").to_vector<float>() == walk.matrix.value().to_vector<float>());
  }
}

TEST_CASE("weight average: goes on from a state as if nothing had been between") {
  Walk walk;
  WeightAverage whole(walk.parameters, 0.9);
  for (int t = 0; t < 4; ++t) walk.step(), whole.update();
  WeightAverage resumed(walk.parameters, 0.9);
  auto state = whole.state();
  resumed.load_state(state, whole.updates());
  for (int t = 0; t < 4; ++t) walk.step(), whole.update(), resumed.update();
  CHECK(resumed.state().at("matrix").to_vector<float>() == whole.state().at("matrix").to_vector<float>());
  resumed.load_state({}, 0);
  CHECK(resumed.state().empty());
  resumed.update();
  CHECK(resumed.state().at("matrix").to_vector<float>() == walk.matrix.value().to_vector<float>());
  state.erase("number");
  CHECK(thrown([&] { whole.load_state(state, 4); }) == "FileError: weight average: the state has no number that is f32 []");
  state.emplace("number", full({}, 1, DType::f64));
  CHECK(thrown([&] { whole.load_state(state, 4); }) == "FileError: weight average: the state has no number that is f32 []");
  state.at("matrix") = full({5, 7}, 1);
  CHECK(thrown([&] { whole.load_state(state, 4); }) == "FileError: weight average: the state has no matrix that is f32 [7, 5]");
  CHECK(thrown([&] { whole.load_state(state, -1); }) == "Error: weight average: updates must be 0 or more: -1");
  CHECK(whole.updates() == 8);
  for (const double decay : {-0.1, 1.0, std::nan("")}) CHECK_THROWS_AS(WeightAverage(walk.parameters, decay), Error);
}
