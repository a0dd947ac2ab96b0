// SPDX-License-Identifier: Apache-2.0
#include "nn/scope.h"

#include <doctest/doctest.h>

#include "attention/attend.h"
#include "attention/position.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/transformer.h"
#include "nn/checkpoint.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/optimizer.h"
#include "nn/recurrent.h"
#include "nn/summary.h"
#include "tensor/format.h"
#include "tests/close.h"
#include "tests/thrown.h"

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
  CHECK_THROWS_WITH_AS(scope.parameter("", {1}, constant_init(1)), "parameter: names are not empty and hold no *: \"a.\"", Error);
  CHECK_THROWS_WITH_AS(scope / "", "scope: an empty name under \"a\"", Error);
  CHECK_THROWS_WITH_AS(scope.alias("b*", weight.share(), {2, 3}), "parameter: names are not empty and hold no *: \"a.b*\"", Error);
  CHECK(parameters.count() == 6);
  CHECK_THROWS_WITH_AS(scope.alias("none", Parameter(), {2, 3}), "parameter: a.none shares one that is absent", Error);
  CHECK_FALSE(gradient(Parameter()).defined());
  CHECK_THROWS_WITH_AS(parameters.select("b.*"), "select: no parameter matches \"b.*\"; the nearest is a.other", Error);
}

TEST_CASE("scope: sizes are at least 1; an initial value that fails is named") {
  Parameters parameters(Seed{1});
  const Scope scope = parameters.root() / "a";
  for (const Shape& shape : {Shape{0}, Shape{2, 0}, Shape{-1, 3}})
    CHECK_THROWS_WITH_AS(scope.parameter("weight", shape, constant_init(1)),
                         ("parameter: sizes must be at least 1: a.weight " + to_string(shape)).c_str(), ShapeError);
  CHECK_THROWS_WITH_AS(scope.parameter("weight", {2, 3}, uniform_init(2, 1)), "in a.weight: uniform: lo must not exceed hi: lo 2, hi 1",
                       Error);
  CHECK(parameters.items().empty());
}

TEST_CASE("scope: a weight of other Parameters is not shared") {
  Parameters one(Seed{1}), two(Seed{2});
  const Linear a(one.root() / "one", {.in = 2, .out = 2}), b(two.root() / "one", {.in = 2, .out = 2});
  const auto share = [&](const char* name, const Parameter& weight) {
    Linear(two.root() / name, {.in = 2, .out = 2, .bias = false, .weight = weight.share()});
  };
  CHECK_THROWS_WITH_AS(share("two", a.weight), "parameter: two.weight shares one.weight, which belongs to other Parameters", Error);
  const Linear only(one.root() / "only", {.in = 2, .out = 2});
  CHECK_THROWS_WITH_AS(share("three", only.weight), "parameter: three.weight shares only.weight, which belongs to other Parameters", Error);
  CHECK_NOTHROW(share("two", b.weight));
  CHECK(state(two).at("two.weight").data<float>() == b.weight.value().data<float>());
}

TEST_CASE("select: tied parameters go by each of their paths, keys are cut at a point, an error names the nearest path") {
  Parameters parameters(Seed{1});
  CHECK_THROWS_WITH_AS(parameters.select("a"), "select: no parameter matches \"a\"; there are none", Error);
  const Scope scope = parameters.root();
  const Parameter table = (scope / "tok").parameter("weight", {3, 2}, constant_init(1)),
                  bias = (scope / "head").parameter("bias", {3}, constant_init(0));
  const Parameter output = (scope / "head").alias("weight", table.share(), {3, 2}),
                  weight = (scope / "encoder" / "a").parameter("weight", {2}, constant_init(2));
  const auto paths = [](const Selection& selection) {
    std::vector<std::string> out;
    for (const auto& item : selection) out.push_back(item->path);
    return out;
  };
  using Paths = std::vector<std::string>;
  CHECK(paths(parameters.select()) == Paths{"tok.weight", "head.bias", "encoder.a.weight"});
  CHECK(paths(parameters.select("head.weight")) == Paths{"tok.weight"});
  CHECK(paths(parameters.select("head.*")) == Paths{"tok.weight", "head.bias"});
  CHECK(paths(parameters.select("*.weight")) == Paths{"tok.weight", "encoder.a.weight"});
  const auto keys = [](const Selection& selection) {
    Paths out;
    for (const auto& [name, value] : state(selection)) out.push_back(name);
    return out;
  };
  CHECK(keys(parameters.select("head.*")) == Paths{"bias", "weight"});
  CHECK(keys(parameters.select("tok.*")) == Paths{"weight"});
  CHECK(keys(parameters.select("encoder.a.w*")) == Paths{"weight"});
  CHECK(keys(parameters.select("enc*")) == Paths{"encoder.a.weight"});
  load(parameters.select("head.*"), {{"bias", ones({3})}, {"weight", full({3, 2}, 5)}});
  CHECK(table.value()(2, 1).item() == 5);
  CHECK_THROWS_WITH_AS(load(parameters.select("head.*"), {{"bias", ones({3})}}, "file"), "file: does not fit the model; missing: weight",
                       FileError);
  CHECK_THROWS_WITH_AS(parameters.select("encodr.*.weight"),
                       "select: no parameter matches \"encodr.*.weight\"; the nearest is encoder.a.weight", Error);
  CHECK(&parameters.at("head.bias") == parameters.find("head.bias"));
  CHECK_THROWS_WITH_AS(parameters.at("haed.bias"), "parameters: there is none \"haed.bias\"; the nearest is head.bias", Error);
  CHECK_THROWS_WITH_AS(Parameters(Seed{1}).at("bias"), "parameters: there is none \"bias\"; there are none", Error);
  CHECK_THROWS_WITH_AS(parameters.select("haed.bias"), "select: no parameter matches \"haed.bias\"; the nearest is head.bias", Error);
}

TEST_CASE("select: by a condition") {
  Parameters parameters(Seed{1});
  const Linear a(parameters.root() / "a", {.in = 2, .out = 3}), b(parameters.root() / "b", {.in = 3, .out = 1, .bias = false});
  const Selection matrices = parameters.select([](const Parameter::Data& p) { return p.variable.rank() > 1; });
  CHECK(matrices.count() == 9);
  CHECK(matrices.prefix().empty());
  std::vector<std::string> paths;
  for (const auto& item : matrices) paths.push_back(item->path);
  CHECK(paths == std::vector<std::string>{"a.weight", "b.weight"});
  CHECK_THROWS_WITH_AS(parameters.select([](const Parameter::Data&) { return false; }), "select: none of 3 parameters is chosen", Error);
}

TEST_CASE("fmt prints variables and parameters as their values") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(1.5));
  CHECK(fmt::format("{}|{:.2f}|{:s}", a, a.variable(), constant(ones({2, 1}))) == "[1.5 1.5]|[1.50 1.50]|[2, 1] f32");
  CHECK(fmt::format("{}", Parameter()) == "(no tensor)");
}

TEST_CASE("norm: either form refuses a sum of other shapes") {
  for (const bool rms : {false, true}) {
    Parameters parameters(Seed{1});
    const Norm norm(parameters.root() / "norm", {.width = 4, .rms = rms});
    CHECK(message_of<ShapeError>([&] { norm.after_sum(constant(ones({1, 2, 4})), constant(ones({3, 2, 4})), 0); })
              .ends_with("norm: shapes differ: residual [3, 2, 4], x [1, 2, 4]"));
  }
}

TEST_CASE("scope: a module that was moved from says so") {
  Parameters parameters(Seed{1});
  Linear from(parameters.root() / "a", {.in = 2, .out = 3});
  const Linear to(std::move(from));
  CHECK(to(constant(ones({1, 2}))).shape() == Shape{1, 3});
  CHECK_THROWS_WITH_AS(from(constant(ones({1, 2}))),
                       "in a: linear: the weight is empty (default constructed, or of a module that was moved from)", Error);
  const Variable x = constant(ones({1, 2, 4}));
  const auto says = [](auto from, auto&& call) {
    const auto to = std::move(from);
    call(to);
    return message_of([&] { call(from); });
  };
  const Scope b = parameters.root() / "b";
  const auto lines = [&](const char* op) { return fmt::format("in b.{0}: {0}: there are no weights (the module was moved from)", op); };
  CHECK(says(LayerNorm(b / "layer_norm", {.width = 4}), [&](auto& norm) { norm(x); }) == lines("layer_norm"));
  CHECK(says(RMSNorm(b / "rms_norm", {.width = 4}), [&](auto& norm) { norm(x); }) == lines("rms_norm"));
  CHECK(says(Norm(b / "norm", {.width = 4}), [&](auto& norm) { norm.after_sum(x, x, 0); }) == lines("norm"));
  CHECK(says(Embedding(b / "embedding", {.vocabulary = 3, .width = 2}), [](auto& table) { table(tensor({0, 2}, DType::i32)); }) ==
        lines("embedding"));
  CHECK(says(Lstm(b / "recurrent", {.in = 4, .width = 3}), [&](auto& layers) { layers(x); }) == lines("recurrent"));
  CHECK(says(PositionTable(b / "positions", {.kind = Positions::learned, .width = 4, .length = 3}),
             [](auto& table) { table.rows(0, 2); }) == lines("positions"));
  CHECK(says(make_attention("additive", b / "score", {.query_width = 4, .memory_width = 4}),
             [&](auto& attention) { attention.prepare(x, {}); }) == lines("score"));
  const TransformerOptions small{.width = 4, .heads = 2, .feed_forward = 4, .encoder_layers = 1, .decoder_layers = 1};
  CHECK(says(TransformerEncoder(b / "encoder", small), [&](auto& encoder) { encoder(x, {}); }) ==
        "transformer encoder: there are no weights (the module was moved from)");
  CHECK(says(TransformerDecoder(b / "decoder", small), [&](auto& decoder) { decoder(x, decoder.prepare(x, {})); }) ==
        "transformer decoder: there are no weights (the module was moved from)");
}

TEST_CASE("scope: initial values go by the path, not by the order of declarations") {
  Parameters one(Seed{1}), two(Seed{1}), three(Seed{2});
  const auto draw = [](Parameters& parameters, const char* name) {
    return parameters.root().parameter(name, {20}, normal_init(0, 1)).value().clone();
  };
  const Tensor a = draw(one, "a"), b = draw(one, "b");
  CHECK(equal_bits(draw(two, "b"), b));
  CHECK(equal_bits(draw(two, "a"), a));
  CHECK_FALSE(equal_bits(a, b));
  CHECK_FALSE(equal_bits(draw(three, "a"), a));
}

TEST_CASE("scope: what is frozen gets no gradient and no update, and learns again when it is not") {
  Parameters parameters(Seed{1});
  const Parameter a = (parameters.root() / "a").parameter("w", {2}, constant_init(1)),
                  b = (parameters.root() / "b").parameter("w", {2}, constant_init(1));
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

TEST_CASE("scope: whether a weight learns is decided where it is read") {
  Parameters parameters(Seed{1});
  const Parameter w = parameters.root().parameter("w", {3}, constant_init(2));
  const Variable kept = w.variable(), x = variable(tensor({1, 2, 3}));
  using Function = Variable (*)(const Variable&, const Variable&);
  for (const Function f : {Function{multiply}, Function{divide}, Function{pow}, Function{matmul}})
    for (const Variable* read : {&w.variable(), &kept}) {
      x.forget_gradient();
      parameters.select().freeze();
      Tape frozen;
      const Variable y = sum(f(x, *read));
      parameters.select().unfreeze();
      frozen.backward(y);
      CHECK(!gradient(w).defined());
      const Tensor dx = x.grad().clone();
      x.forget_gradient();
      Tape tape;
      tape.backward(sum(f(x, constant(w.value()))));
      CHECK(equal_bits(x.grad(), dx));
      parameters.forget_gradients();
    }
}

TEST_CASE("scope: loading lists all that is missing, unexpected and of another shape at once, and changes nothing") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(1)), b = parameters.root().parameter("b", {2}, constant_init(1)),
                  c = parameters.root().parameter("c", {2}, constant_init(1));
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"c", zeros({3})}, {"d", zeros({2})}}, "file"),
                       "file: does not fit the model; missing: b; unexpected: d; mismatched: c (f32 [3], needs f32 [2])", FileError);
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"b", zeros({2})}, {"c", zeros({2})}, {"d", zeros({2})}}, "file"),
                       "file: does not fit the model; unexpected: d", FileError);
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({2})}, {"b", zeros({2})}}, "file"),
                       "file: does not fit the model; missing: c", FileError);
  for (const Parameter* p : {&a, &b, &c}) CHECK(doubles(p->value()) == std::vector<double>{1, 1});
}

TEST_CASE("scope: of a long list of keys an error shows ten") {
  Parameters parameters(Seed{1});
  for (Index i = 10; i < 25; ++i) (parameters.root() / i).parameter("w", {1}, constant_init(0));
  CHECK_THROWS_WITH_AS(load(parameters.select(), {{"a", zeros({1})}}, "file"),
                       "file: does not fit the model; missing: 10.w 11.w 12.w 13.w 14.w 15.w 16.w 17.w 18.w 19.w and 5 more; unexpected: a",
                       FileError);
}

TEST_CASE("scope: what is frozen forgets the gradient that it has") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {1}, constant_init(1)), b = parameters.root().parameter("b", {1}, constant_init(1));
  {
    Tape tape;
    tape.backward(sum(a * 3.0 + b * 4.0));
  }
  parameters.select("a").freeze();
  CHECK_FALSE(gradient(a).defined());
  CHECK(clip_gradient_norm(parameters, 100) == 4);
}

TEST_CASE("scope: a summary counts the bytes of weights, and of what training keeps beside them") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {10, 100}, constant_init(0));
  (void)parameters.root().alias("b", a.share(), {10, 100});
  parameters.select("a").freeze();
  const std::string text = summary(parameters, 7);
  CHECK_MESSAGE(text.find("\n7,000 multiply-adds forward for 7 rows\n") != std::string::npos, text);
  CHECK_MESSAGE(text.find("  frozen\n") != std::string::npos, text);
  CHECK_MESSAGE(text.find("\nb          = a\n") != std::string::npos, text);
  CHECK_MESSAGE(text.find("total 1,000 parameters, 3.9 KiB of weights, 15.6 KiB when training with two moments\n") != std::string::npos,
                text);
}
