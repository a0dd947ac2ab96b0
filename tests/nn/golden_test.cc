// SPDX-License-Identifier: Apache-2.0
// Modules, optimisers, schedules and initialisers against PyTorch.
#include "tests/golden.h"

#include <doctest/doctest.h>

#include <cmath>

#include "attention/multi_head.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"

using namespace heed;

TEST_CASE("golden: Linear") {
  golden::each("linear", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const Linear linear(parameters.root(), {.in = 5, .out = 7, .bias = c.options()["bias"]});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", linear(c.input("x"))}}, &parameters);
  });
}

TEST_CASE("golden: Embedding") {
  golden::each("embedding", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const auto& padding = c.options()["padding_idx"];
    const Embedding embedding(parameters.root(),
                              {.vocabulary = 11, .width = 5, .padding = padding.is_null() ? -1 : padding.get<Index>()});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", embedding(c.tensor("ids"))}}, &parameters);
  });
}

TEST_CASE("golden: LayerNorm") {
  golden::each("layer_norm", [](golden::Case& c) {
    LayerNorm::Options options{.width = c.options()["width"], .bias = c.options().value("bias", true)};
    if (c.options().contains("eps")) options.eps = c.options()["eps"];
    const bool affine = c.options().value("affine", true);
    Tape tape;
    if (!affine) return c.check(tape, {{"y", layer_norm(c.input("x"), {}, {}, options.eps)}});
    Parameters parameters(Seed{1}, c.dtype());
    const LayerNorm norm(parameters.root(), options);
    c.fill(parameters);
    c.check(tape, {{"y", norm(c.input("x"))}}, &parameters);
  });
}

TEST_CASE("golden: RMSNorm") {
  golden::each("rms_norm", [](golden::Case& c) {
    const auto& eps = c.options()["eps"];
    Parameters parameters(Seed{1}, c.dtype());
    const RMSNorm norm(
        parameters.root(),
        {.width = c.options()["width"], .eps = eps.is_null() ? 0x1p-52 : eps.get<double>()});  // PyTorch's None: f64's epsilon
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", norm(c.input("x"))}}, &parameters);
  });
}

TEST_CASE("golden: FeedForward") {
  static const std::map<std::string, Activation> activations = {
      {"relu", Activation::relu}, {"gelu", Activation::gelu}, {"silu", Activation::silu}, {"sigmoid", Activation::sigmoid}};
  golden::each("feed_forward", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const FeedForward layer(parameters.root(), {.width = 6,
                                                .inner = 11,
                                                .activation = activations.at(c.options()["activation"]),
                                                .gated = c.options().value("gated", false),
                                                .bias = c.options().value("bias", true)});
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", layer(c.input("x"))}}, &parameters);
  });
}

namespace {

// A model of one parameter whose gradient is whatever it is told.
void give_gradient(const Parameter& p, const Tensor& g) {
  Tape tape;
  const Variable y =
      record("given", p.value().clone(), {p.variable()}, [w = p.variable().slot()](const Tensor& dy) { w.adopt(dy); });
  tape.backward({&y, 1}, {&g, 1});
}

// What a file does not say is PyTorch's default, and has to be Heed's.
std::unique_ptr<Optimizer> optimizer(Parameters& p, const Json& o) {
  const std::string kind = o["optimizer"];
  const auto given = [&](auto& into, const char* name) {
    if (o.contains(name)) into = o[name];
  };
  const auto common = [&](auto options) {
    given(options.learning_rate, "lr"), given(options.weight_decay, "weight_decay");
    if constexpr (requires { options.eps; }) given(options.eps, "eps");
    if constexpr (requires { options.momentum; }) given(options.momentum, "momentum");
    return options;
  };
  const auto adam = [&](auto options) {
    if (o.contains("betas")) options.beta1 = o["betas"][0], options.beta2 = o["betas"][1];
    return options;
  };
  if (kind == "SGD") {
    auto options = common(SGD::Options{});
    given(options.dampening, "dampening"), given(options.nesterov, "nesterov");
    return std::make_unique<SGD>(p, options);
  }
  if (kind == "Adam") return std::make_unique<Adam>(p, adam(common(Adam::Options{})));
  if (kind == "AdamW") return std::make_unique<AdamW>(p, adam(common(AdamW::Options{})));
  if (kind == "Adagrad") {
    auto options = common(Adagrad::Options{});
    given(options.learning_rate_decay, "lr_decay"), given(options.initial_accumulator, "initial_accumulator_value");
    return std::make_unique<Adagrad>(p, options);
  }
  if (kind == "Adadelta") {
    auto options = common(Adadelta::Options{});
    given(options.rho, "rho");
    return std::make_unique<Adadelta>(p, options);
  }
  REQUIRE(kind == "RMSprop");
  auto options = common(RMSprop::Options{});
  given(options.alpha, "alpha");
  return std::make_unique<RMSprop>(p, options);
}

}  // namespace

TEST_CASE("golden: optimisers, ten steps each") {
  const SafetensorsFile& file = golden::file("optimizers");
  for (const std::string& name : golden::cases("optimizers"))
    for (const DType dtype : {DType::f64, DType::f32}) {
      Parameters parameters(Seed{1}, dtype);
      const Parameter w = parameters.root().parameter("w", {7}, constant_init(0));
      copy_into(w.value(), to(file.at("parameter"), dtype));
      const auto update = optimizer(parameters, parse_json(file.metadata.at(name)));
      for (Index step = 0; step < 10; ++step) {
        give_gradient(w, to(file.at("gradients")[step], dtype));
        update->step();
        golden::check_close(fmt::format("{} step {}", name, step + 1), w.value(), file.at(name)[step]);
      }
    }
}

TEST_CASE(
    "optimiser: parameters with factors are updated as by an optimiser of so much learning rate and decay, over schedules and a restored "
    "state") {
  const SafetensorsFile& file = golden::file("optimizers");
  for (const std::string& name : golden::cases("optimizers")) {
    CAPTURE(name);
    Parameters two(Seed{1}, DType::f64), one(Seed{1}, DType::f64);
    const Parameter plain = two.root().parameter("plain", {7}, constant_init(0)), w = two.root().parameter("w", {7}, constant_init(0)),
                    own = one.root().parameter("w", {7}, constant_init(0));
    for (const Parameter* p : {&plain, &w, &own}) copy_into(p->value(), file.at("parameter"));
    const Json options = parse_json(file.metadata.at(name));
    Json scaled = options;
    const auto grouped = [&] {
      auto made = optimizer(two, options);
      made->set_factors(two.select("w"), {.learning_rate = 0.5, .weight_decay = 0.25});
      return made;
    };
    auto both = grouped();
    scaled["lr"] = both->learning_rate() / 2;
    scaled["weight_decay"] = options.value("weight_decay", options["optimizer"] == "AdamW" ? AdamW::Options{}.weight_decay : 0) / 4;
    const auto alone = optimizer(one, scaled);
    for (Index step = 0; step < 12; ++step) {
      if (step == 5) {
        auto restored = grouped();
        restored->load_state(both->state());
        both = std::move(restored);
      }
      if (step == 10) both->set_learning_rate(0.25), alone->set_learning_rate(0.125);
      for (const Parameter* p : {&plain, &w, &own}) give_gradient(*p, file.at("gradients")[step % 10]);
      both->step();
      alone->step();
      CHECK(equal_bits(w.value(), own.value()));
      if (step < 10) golden::check_close(fmt::format("{} step {}", name, step + 1), plain.value(), file.at(name)[step]);
    }
  }
}

TEST_CASE("clipping: a selection is clipped by its own norm, and forgets its own gradients") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter g = parameters.root().parameter("g", {1}, constant_init(0)), d = parameters.root().parameter("d", {1}, constant_init(0));
  const auto play = [&] {
    Tape tape;
    tape.backward(sum(Variable(g) * 0.5 + Variable(d) * 100.0));
  };
  play();
  CHECK(clip_gradient_norm(parameters.select("g"), 0.25) == doctest::Approx(0.5));
  CHECK(gradient(g).item() == doctest::Approx(0.25));
  CHECK(gradient(d).item() == 100);
  clip_gradient_value(parameters.select("d"), 3);
  CHECK(gradient(d).item() == 3);
  parameters.select("d").forget_gradients();
  CHECK(!gradient(d).defined());
  CHECK(gradient(g).defined());
}

TEST_CASE("clipping: an optimiser of some parameters leaves the clipped gradients of the others, and no factor behind") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(0)), b = parameters.root().parameter("b", {1}, constant_init(0));
  SGD sgd(parameters.select("a"), {.learning_rate = 1});
  const auto add = [&](double da, double db) {
    Tape tape;
    tape.backward(sum(Variable(a) * da + Variable(b) * db));
  };
  add(3, 4);
  CHECK(clip_gradient_norm(parameters, 1) == doctest::Approx(5));
  sgd.step();
  CHECK(a.value().item() == doctest::Approx(-0.6));
  CHECK(gradient(b).item() == doctest::Approx(0.8));
  add(0.1, 0);
  CHECK(clip_gradient_norm(parameters, 1) == doctest::Approx(std::hypot(0.1, 0.8)));
  sgd.step();
  CHECK(a.value().item() == doctest::Approx(-0.7));
}

TEST_CASE("clipping: a gradient that arrives later is not scaled") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(0)), b = parameters.root().parameter("b", {1}, constant_init(0));
  const auto add = [&](const Variable& x, double d) {
    Tape tape;
    tape.backward(sum(x * d));
  };
  add(a, 10);
  CHECK(clip_gradient_norm(parameters, 1) == doctest::Approx(10));
  CHECK(Variable(a).grad().item() == doctest::Approx(1));
  CHECK(clip_gradient_norm(parameters, 0.5) == doctest::Approx(1));
  add(a, 10), add(b, 3);
  CHECK(gradient(a).item() == doctest::Approx(10.5));
  CHECK(gradient(b).item() == 3);
  CHECK(clip_gradient_norm(parameters, 1) == doctest::Approx(std::hypot(10.5, 3)));
  parameters.forget_gradients();
  add(a, 10);
  SGD(parameters, {.learning_rate = 1}).step();
  CHECK(a.value().item() == -10);
}

TEST_CASE("clipping: a norm that is not a number leaves no gradient as it was") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(0)), b = parameters.root().parameter("b", {1}, constant_init(0));
  Tape tape;
  tape.backward(sum(Variable(a) * 1000.0 + Variable(b) * double(NAN)));
  CHECK(std::isnan(clip_gradient_norm(parameters, 1)));
  CHECK(std::isnan(gradient(a).item()));
}

TEST_CASE("clipping: an infinite norm is refused and changes nothing, or makes NaN of what is infinite and 0 of the rest") {
  Parameters parameters(Seed{1});
  const Parameter w = parameters.root().parameter("w", {2}, constant_init(0));
  Tape tape;
  tape.backward(sum(Variable(w) * constant(tensor({INFINITY, 1}))));
  CHECK_THROWS_AS(clip_gradient_norm(parameters, 1, true), NumericError);
  CHECK(gradient(w).to_vector<float>() == std::vector<float>{INFINITY, 1});
  CHECK(clip_gradient_norm(parameters, 1) == INFINITY);
  CHECK((std::isnan(gradient(w)[0].item()) && gradient(w)[1].item() == 0));
}

namespace {
// The kernel goes by the path.
struct Mixed : Optimizer {
  explicit Mixed(Parameters& parameters) : Optimizer(parameters.select(), 1, {"b"}) {}
  Update constants(const Item& item, UpdateConstants& c) const override {
    c.momentum = 0.5;
    return item.parameter->path == "b" ? Update::momentum : Update::sgd;
  }
};
}  // namespace

TEST_CASE("optimiser: every item is updated by its own kernel") {
  Parameters parameters(Seed{1}, DType::f64);
  std::vector<Parameter> p;
  for (const char* name : {"a", "b", "c"}) p.push_back(parameters.root().parameter(name, {1}, constant_init(0)));
  Mixed mixed(parameters);
  for (int step = 0; step < 2; ++step) {
    for (const Parameter& each : p) give_gradient(each, tensor({1}, DType::f64));
    mixed.step();
  }
  CHECK(p[0].value().item() == -2);
  CHECK(p[1].value().item() == -2.5);                // b = 1, then 0.5 + 1
  CHECK(p[2].value().item() == -2);
}

TEST_CASE("optimiser: an update that fails counts for no item") {
  struct Failing : Mixed {
    using Mixed::Mixed;
    Update constants(const Item& item, UpdateConstants& c) const override {
      return item.parameter->path == "b" ? throw Error("b") : Mixed::constants(item, c);
    }
  };
  Parameters parameters(Seed{1}, DType::f64);
  std::vector<Parameter> p;
  for (const char* name : {"a", "b"})
    give_gradient(p.emplace_back(parameters.root().parameter(name, {1}, constant_init(0))), tensor({1}, DType::f64));
  Failing failing(parameters);
  CHECK_THROWS_WITH_AS(failing.step(), "b", Error);
  CHECK(failing.state().empty());
  CHECK(p[0].value().item() == 0);
}

TEST_CASE("optimiser: PyTorch's state is taken, what lacks in it is named") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter w = parameters.root().parameter("w", {1}, constant_init(0));
  const auto number = [](double x, DType dtype = DType::f64) { return full({1}, x, dtype); };
  SGD sgd(parameters, {.learning_rate = 1, .momentum = 0.5, .dampening = 0.5});
  sgd.load_state({{"w.momentum_buffer", number(4)}});
  give_gradient(w, number(1));
  sgd.step();
  CHECK(w.value().item() == -2.5);                   // 0.5 · 4 + 0.5 · 1
  Adam adam(parameters, {}), other(parameters, {});
  adam.load_state({{"w.step", full({}, 7, DType::f32)}, {"w.exp_avg", number(1)}, {"w.exp_avg_sq", number(2)}});
  CHECK(adam.state().at("w.step").item() == 7);
  other.load_state(adam.state());
  CHECK(other.state().at("w.step").item() == 7);
  const auto own = other.state();
  other.load_state({{"w.step", own.at("w.step")}, {"w.exp_avg", own.at("w.exp_avg_sq")}, {"w.exp_avg_sq", own.at("w.exp_avg")}});
  CHECK(other.state().at("w.exp_avg").item() == 2);
  CHECK(other.state().at("w.exp_avg_sq").item() == 1);
  CHECK_THROWS_WITH_AS(adam.load_state({{"w.step", full({}, 1, DType::f32)}, {"w.exp_avg", Tensor()}, {"w.exp_avg_sq", number(2)}}),
                       "optimizer state: does not fit the model; missing w.exp_avg", FileError);
  CHECK_THROWS_WITH_AS(adam.load_state({{"w.exp_avg", number(1)}, {"w.exp_avg_sq", number(2)}}),
                       "optimizer state: does not fit the model; missing w.step", FileError);
  CHECK_THROWS_WITH_AS(adam.load_state({{"w.step", full({}, 1.5, DType::f32)}, {"w.exp_avg", number(1)}, {"w.exp_avg_sq", number(2)}}),
                       "optimizer state: does not fit the model; w.step is f32 [] 1.5, needs one i64 or whole number", FileError);
  CHECK_THROWS_WITH_AS(adam.load_state({{"w.step", number(3)}, {"v.exp_avg", number(1)}}),
                       "optimizer state: does not fit the model; missing w.exp_avg; missing w.exp_avg_sq; unexpected v.exp_avg", FileError);
  CHECK(adam.state().at("w.step").item() == 7);
}

TEST_CASE("golden: gradient clipping") {
  const SafetensorsFile& file = golden::file("clip");
  for (const DType dtype : {DType::f64, DType::f32})
    for (const std::string name : {"norm_1", "norm_100", "value_0.5"}) {
      Parameters parameters(Seed{1}, dtype);
      std::vector<Parameter> p;
      for (int i = 0; i < 3; ++i) {
        const Tensor g = to(file.at(fmt::format("gradient.{}", i)), dtype);
        p.push_back(parameters.root().parameter(fmt::format("p{}", i), g.shape(), constant_init(0)));
      }
      for (int i = 0; i < 3; ++i) give_gradient(p[std::size_t(i)], to(file.at(fmt::format("gradient.{}", i)), dtype));
      if (name == "value_0.5") {
        clip_gradient_value(parameters, 0.5);
      } else {
        const double norm = clip_gradient_norm(parameters, name == "norm_1" ? 1 : 100);
        CHECK(norm == doctest::Approx(file.at(name + ".total_norm").item()).epsilon(dtype == DType::f64 ? 1e-12 : 1e-6));
      }
      for (int i = 0; i < 3; ++i)
        golden::check_close(fmt::format("clip {} {}", name, i), gradient(p[std::size_t(i)]),
                            file.at(fmt::format("{}.{}", name, i)));
    }
}

TEST_CASE("golden: schedules") {
  const Json rows = golden::json("schedules");
  // Row k of the file holds PyTorch's rate after k steps of the schedule; Heed counts updates from 1.
  const auto compare = [&](const std::string& name, const Schedule& schedule, int first_step) {
    for (int k = 0; k < 50; ++k)
      if (k + first_step >= 1)
        CHECK_MESSAGE(
            schedule.rate(k + first_step) == doctest::Approx(rows.at(name)[std::size_t(k)].get<double>()).epsilon(1e-12),
            name << " row " << k);
  };
  using enum Schedule::Kind;
  compare("linear_warmup(start_factor=0.1, total=8)", Schedule({.kind = constant, .peak = 1, .warmup = 8, .start = 0.1}), 0);
  compare("linear_decay(start_factor=1, end_factor=0, total=40)", Schedule({.kind = linear, .peak = 1, .total = 40}), 0);
  compare("step(size=7, gamma=0.5)", Schedule({.kind = step, .peak = 1, .factor = 0.5, .every = 7}), 1);
  compare("cosine(total=50, minimum=0.05)", Schedule({.kind = cosine, .peak = 1, .total = 50, .end = 0.05}), 0);
  compare("noam(width=512, warmup=16)", Schedule({.kind = noam, .warmup = 16, .factor = 1, .width = 512}), 1);
  compare("noam(width=512, warmup=16)", Schedule({.kind = noam, .warmup = 16}), 1);
  compare("step(size=7, gamma=0.5)", Schedule({.kind = step, .peak = 1, .every = 7}), 1);
  compare("inverse_sqrt(start=0, peak=0.01, warmup=16)", Schedule({.kind = inverse_sqrt, .peak = 0.01, .warmup = 16}), 1);
  compare("inverse_sqrt(start=0.001, peak=0.01, warmup=16)",
          Schedule({.kind = inverse_sqrt, .peak = 0.01, .warmup = 16, .start = 0.1}), 1);
  for (const bool higher : {false, true}) {
    Schedule schedule({.kind = plateau, .peak = 1, .factor = 0.5, .patience = 2, .higher_is_better = higher});
    const Json& row = rows.at(higher ? "plateau(factor=0.5, patience=2, threshold=0, maximise)"
                                               : "plateau(factor=0.5, patience=2, threshold=0)");
    for (std::size_t k = 0; k < 50; ++k) {
      schedule.observe(rows["metrics"][k]);
      CHECK_MESSAGE(schedule.rate(std::int64_t(k) + 1) == doctest::Approx(row[k].get<double>()).epsilon(1e-12),
                    "plateau row " << k);
    }
  }
  Schedule plateau_of_nan({.kind = plateau, .peak = 1, .patience = 1});
  // PyTorch: NaN is no better score
  for (const double score : {std::nan(""), 3.0, std::nan(""), std::nan("")}) plateau_of_nan.observe(score);
  CHECK(plateau_of_nan.rate(1) == 0.5);
  CHECK(plateau_of_nan.state().best == 3);
  Schedule in_its_rise({.kind = plateau, .peak = 1, .warmup = 8, .patience = 0});
  for (const double score : {3.0, 2.0}) in_its_rise.observe(score);
  CHECK(in_its_rise.rate(4) == 0.25);
}

TEST_CASE("golden: bounds and deviations of the initialisers") {
  const Json rows = golden::json("init");
  const double tanh_gain = rows["gains"]["tanh"], leaky = 1 / std::sqrt(3.0);
  struct Form {
    std::string row;
    Initializer uniform, normal;
  };
  const Form forms[] = {{"xavier(gain=1)", xavier_uniform(), xavier_normal()},
                        {"xavier(gain=1.66667)", xavier_uniform(tanh_gain), xavier_normal(tanh_gain)},
                        {"kaiming(relu, fan_in)", kaiming_uniform(), kaiming_normal()},
                        {"kaiming(leaky_relu, fan_in, a=sqrt(5))", kaiming_uniform(leaky), kaiming_normal(leaky)},
                        {"kaiming(linear, fan_in)", kaiming_uniform(1), kaiming_normal(1)}};
  for (const auto& item : rows.items()) {
    const std::string& size = item.key();   // clang 14 captures no structured binding
    const auto& row = item.value();
    if (!row.contains("shape")) continue;
    Shape shape;
    for (const Index n : row["shape"]) shape.push_back(n);
    for (const Form& form : forms) {
      const double bound = row[form.row]["bound"], std = row[form.row]["std"];
      double largest = 0, squares_uniform = 0, squares_normal = 0, count = 0;
      for (int draw = 0; draw < 400; ++draw) {  // 24,000 numbers at least: a standard error of the deviation below 0.5 %
        const Tensor u = empty(shape, DType::f64), n = empty(shape, DType::f64);
        form.uniform(u, Key(std::uint64_t(draw))), form.normal(n, Key(std::uint64_t(1000 + draw)));
        for (const double x : u.span<double>()) largest = std::max(largest, std::abs(x)), squares_uniform += x * x, ++count;
        for (const double x : n.span<double>()) squares_normal += x * x;
      }
      INFO(form.row << " " << size);
      CHECK(largest <= bound);
      CHECK(largest > 0.99 * bound);
      CHECK(std::sqrt(squares_uniform / count) == doctest::Approx(std).epsilon(0.025).scale(0));
      CHECK(std::sqrt(squares_normal / count) == doctest::Approx(std).epsilon(0.025).scale(0));
    }
  }
}

TEST_CASE("stacked: every block begins as one alone, with a key of its own") {
  const Tensor w = empty({6, 2}, DType::f64);
  stacked(3, uniform_init(-1, 1))(w, Key(1));
  for (Index block = 0; block < 3; ++block) {
    const Tensor alone = empty({2, 2}, DType::f64);
    uniform_init(-1, 1)(alone, Key(1) / block);
    CHECK(alone.to_vector<double>() == w(Slice{2 * block, 2 * block + 2}).to_vector<double>());
  }
  CHECK(w[0].to_vector<double>() != w[2].to_vector<double>());
  CHECK_THROWS_WITH_AS(stacked(1, constant_init(1))(empty({}), Key(1)), "stacked: the first axis does not divide into 1 blocks: []", ShapeError);
}

TEST_CASE("initial values: Linear, Embedding and MultiHeadAttention start as PyTorch's") {
  Parameters parameters(Seed{1}, DType::f64);
  const auto largest = [](const Parameter& p) {
    double most = 0;
    for (const double x : p.value().span<double>()) most = std::max(most, std::abs(x));
    return most;
  };
  const auto bounded = [&](const Parameter& p, double bound) {
    CAPTURE(p.path());
    CHECK(largest(p) <= bound);
    CHECK(largest(p) > 0.9 * bound);
  };
  const Linear plain(parameters.root() / "plain", {.in = 100, .out = 60}),
      given(parameters.root() / "given", {.in = 100, .out = 60, .init = xavier_uniform()});
  bounded(plain.weight, 0.1), bounded(plain.bias, 0.1), bounded(given.weight, std::sqrt(6.0 / 160));
  CHECK(largest(given.bias) == 0);

  const Embedding words(parameters.root() / "words", {.vocabulary = 400, .width = 50, .padding = 2});
  double squares = 0;
  for (const double x : words.weight.value().span<double>()) squares += x * x;
  CHECK(squares / (399 * 50) == doctest::Approx(1).epsilon(0.05));            // a standard error of 1 %
  for (const double x : words.weight.value()[2].to_vector<double>()) CHECK(x == 0);

  const MultiHeadAttention self(parameters.root() / "self", {.width = 64, .heads = 4}),
      cross(parameters.root() / "cross", {.width = 64, .heads = 4, .key_width = 32});
  bounded(self.in_proj_weight, std::sqrt(6.0 / (64 + 3 * 64))), bounded(self.out_proj.weight, 1 / 8.0);
  bounded(cross.q_proj_weight, std::sqrt(6.0 / 128)), bounded(cross.k_proj_weight, std::sqrt(6.0 / 96)),
      bounded(cross.v_proj_weight, std::sqrt(6.0 / 96));
  CHECK(largest(self.in_proj_bias) == 0);
  CHECK(largest(self.out_proj.bias) == 0);
}

TEST_CASE("orthogonal: the rows or columns of the shorter side are orthonormal, times gain") {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{4, 2, 3}, Shape{40, 40}, Shape{1, 7}})
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(to_string(shape));
      const Tensor w = empty(shape, dtype);
      orthogonal(2)(w, Key(1));
      const Tensor flat = reshape(to(w, DType::f64), {shape[0], -1}), q = flat.size(0) <= flat.size(1) ? flat : transpose(flat);
      CHECK(worst_absolute(matmul(q, transpose(q)), 4 * eye(q.size(0), DType::f64)) < (dtype == DType::f32 ? 2e-6 : 1e-13));
    }
}

TEST_CASE("schedules: a linear decay ends where it is told, after the warm-up; steps begin after others") {
  using enum Schedule::Kind;
  const Schedule falling({.kind = linear, .peak = 2, .warmup = 10, .total = 30, .end = 0.1}),
      steps({.kind = step, .peak = 2, .every = 10, .after = 100});
  CHECK(falling.rate(20) == doctest::Approx(2 * 0.55));
  for (const std::int64_t late : {30, 31, 1000}) CHECK(falling.rate(late) == doctest::Approx(0.2));
  for (const auto& [update, rate] : {std::pair(1, 2.0), {101, 2.0}, {110, 2.0}, {111, 1.0}, {120, 1.0}, {121, 0.5}})
    CHECK(steps.rate(update) == rate);
  const Schedule late({.kind = step, .peak = 2, .warmup = 4, .every = 3, .after = 4});
  for (const auto& [update, rate] : {std::pair(1, 0.5), {3, 1.5}, {4, 2.0}, {7, 2.0}, {8, 1.0}, {11, 0.5}})
    CHECK(late.rate(update) == rate);
}

TEST_CASE("optimiser: what a loaded state lacks begins anew, with its first accumulator") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(0)), b = parameters.root().parameter("b", {1}, constant_init(0));
  Adagrad adagrad(parameters, {.learning_rate = 1, .initial_accumulator = 4});
  give_gradient(a, tensor({1}, DType::f64)), give_gradient(b, tensor({1}, DType::f64));
  adagrad.step();
  std::map<std::string, Tensor> state = adagrad.state();
  state.erase("b.step"), state.erase("b.sum");
  adagrad.load_state(state);
  CHECK_FALSE(adagrad.state().contains("b.sum"));
  fill_(b.value(), 0);
  give_gradient(b, tensor({3}, DType::f64));
  adagrad.step();
  CHECK(b.value().item() == doctest::Approx(-3 / std::sqrt(4 + 9)));
}

TEST_CASE("clipping: by norm twice, by value after the norm") {
  Parameters parameters(Seed{1}, DType::f64);
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(0)), b = parameters.root().parameter("b", {1}, constant_init(0));
  give_gradient(a, tensor({3}, DType::f64)), give_gradient(b, tensor({4}, DType::f64));
  CHECK(clip_gradient_norm(parameters, 1) == doctest::Approx(5));
  CHECK(clip_gradient_norm(parameters, 0.5) == doctest::Approx(1));
  CHECK(gradient(b).item() == doctest::Approx(0.4));
  clip_gradient_value(parameters, 0.35);
  CHECK(gradient(a).item() == doctest::Approx(0.3));
  CHECK(gradient(b).item() == doctest::Approx(0.35));
}

TEST_CASE("clipping by value takes no memory, so that it is never half done") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {1 << 20}, constant_init(0)),
                  b = parameters.root().parameter("b", {1 << 20}, constant_init(0));
  for (const Parameter& p : {a.share(), b.share()}) give_gradient(p, full({1 << 20}, 3));
  reset_peak_memory();
  const std::size_t before = memory_use().in_use;
  clip_gradient_value(parameters, 0.5);
  CHECK(memory_use().peak - before < 1 << 20);
  CHECK(max(gradient(a)).item() == 0.5);
  CHECK(min(gradient(b)).item() == 0.5);
}
