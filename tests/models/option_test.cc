// SPDX-License-Identifier: Apache-2.0
#include "models/option.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/run_config.h"
#include "models/transformer.h"
#include "nn/init.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

struct Values {
  bool on = false;
  Index count = 3;
  std::optional<Index> most;
  double rate = 0.5;
  std::string kind = "post", name;
  std::vector<std::string> files;
  std::vector<Option> table() {
    return {{.name = "on", .value = &on},
            {.name = "count", .value = &count, .low = 1, .high = 9, .standard = "3"},
            {.name = "most", .value = &most, .low = 1},
            {.name = "rate", .value = &rate, .low = 0, .high = 1, .below = true},
            {.name = "kind", .value = &kind, .choices = {"post", "pre"}},
            {.name = "name", .value = &name},
            {.name = "files", .value = &files, .count = 2}};
  }
};

std::string wrong(const std::string& name, std::vector<std::string> words) {
  Values values;
  for (const Option& option : values.table())
    if (option.name == name) return message_of([&] { set(option, words); });
  return {};
}

std::string wrong_json(const std::string& json, bool all_keys = false) {
  Values values;
  const std::vector<Option> table = values.table();
  const std::string before = to_json(table);
  const std::string text = message_of<FileError>([&] { from_json(table, json, "f.json", all_keys); });
  if (!text.empty()) CHECK(to_json(table) == before);
  return text;
}

}  // namespace

TEST_CASE("options from words") {
  Values v;
  const std::vector<Option> table = v.table();
  const std::vector<std::vector<std::string>> words{{}, {"9"}, {"12"}, {"1e-3"}, {"pre"}, {""}, {"a", "b"}};
  for (std::size_t i = 0; i < table.size(); ++i) set(table[i], words[i]);
  CHECK(v.on);
  CHECK(v.count == 9);
  CHECK(v.most == 12);
  CHECK(v.rate == 1e-3);
  CHECK(v.kind == "pre");
  CHECK(v.files == std::vector<std::string>{"a", "b"});
  Values again;
  const std::vector<Option> same = again.table();
  for (std::size_t i = 0; i < table.size(); ++i)
    if (const std::vector<std::string> given = value_words(table[i]); !given.empty()) set(same[i], given);
  CHECK(to_json(same) == to_json(table));
  CHECK(value_words(table[5]).empty());
  CHECK(wrong("count", {"0"}) == "out of range: --count 0; a whole number in [1, 9], default 3");
  CHECK(wrong("count", {"2.5"}) == "not a whole number: --count 2.5; a whole number in [1, 9], default 3");
  CHECK(wrong("count", {"two words"}) == "wrong type: --count \"two words\"; a whole number in [1, 9], default 3");
  CHECK(wrong("count", {"99999999999999999999"}).starts_with("out of range"));
  CHECK(wrong("count", {"1", "2"}).starts_with("wrong number of values: --count"));
  CHECK(wrong("most", {"0"}) == "out of range: --most 0; a whole number, at least 1");
  CHECK(wrong("rate", {"1"}) == "out of range: --rate 1; a number in [0, 1)");
  CHECK(wrong("rate", {"nan"}).starts_with("out of range: --rate nan"));
  CHECK(wrong("rate", {"0.5x"}).starts_with("wrong type"));
  CHECK(wrong("rate", {"1e400"}) == "out of range: --rate 1e400; a number in [0, 1)");
  CHECK(wrong("rate", {"-1e400"}) == "out of range: --rate -1e400; a number in [0, 1)");
  CHECK(wrong("count", {"1e400"}) == "out of range: --count 1e400; a whole number in [1, 9], default 3");
  CHECK(wrong("count", {"1e-400"}) == "not a whole number: --count 1e-400; a whole number in [1, 9], default 3");
  set(table[3], std::vector<std::string>{"1e-400"});
  CHECK(v.rate == 0);
  CHECK(wrong("kind", {"past"}) == "unknown name: --kind past; did you mean post? one of post, pre");
  CHECK(wrong("on", {"yes"}).starts_with("wrong type"));
}

TEST_CASE("options to JSON and back") {
  Values v, w;
  v.on = true, v.most = 7, v.rate = 0.1 + 0.2, v.kind = "pre", v.name = "ü \"quoted\"\n", v.files = {"a", "b"};
  const std::string json = to_json(v.table());
  CHECK(from_json(w.table(), json, "f.json").size() == 7);
  CHECK(to_json(w.table()) == json);
  CHECK(w.rate == 0.1 + 0.2);
  CHECK(from_json(w.table(), R"({"most": null, "count": 2})", "f.json", false) == std::vector<std::string>{"most", "count"});
  CHECK(!w.most);

  CHECK(wrong_json("{\n\"cuont\": 1}") == "f.json: unknown key \"cuont\" at line 2; did you mean \"count\"?");
  CHECK(wrong_json("{\"count\": 2,\n\n\"count\": 3}") == "f.json: repeated key: \"count\" at line 3; it stands at line 1 already");
  CHECK(wrong_json("{\"rate\": 0.25,\n \"count\": \"2\"}") ==
        "f.json: wrong type: \"count\" at line 2 is \"2\"; a whole number in [1, 9], default 3");
  CHECK(wrong_json("{\"count\": 2.0}").starts_with("f.json: not a whole number"));
  CHECK(wrong_json("{\"count\": null}").starts_with("f.json: wrong type"));
  CHECK(wrong_json("{\"count\": 18446744073709551615}").starts_with("f.json: out of range"));
  CHECK(wrong_json("{\"count\": 18446744073709551616}").starts_with("f.json: out of range"));
  CHECK(wrong_json("{\"count\": 2,\n\"rate\":\n1e400, \"cuont\": 1}") ==
        "f.json: out of range: \"rate\" at line 2 is 1e400; a number in [0, 1)");
  CHECK(wrong_json("{\"count\": -1e400}") == "f.json: out of range: \"count\" at line 1 is -1e400; a whole number in [1, 9], default 3");
  CHECK(wrong_json("{\"files\": [\"a\", 1e400]}") == "f.json: wrong type: \"files\" at line 1 is 1e400; 2 names");
  CHECK(wrong_json("{\"cuont\": 1e400}") == "f.json: unknown key \"cuont\" at line 1; did you mean \"count\"?");
  CHECK(wrong_json("{\"rate\": 7}").starts_with("f.json: out of range: \"rate\" at line 1 is 7"));
  CHECK(wrong_json("{\"files\": [\"a\"]}").starts_with("f.json: wrong number of values"));
  CHECK(wrong_json("{\"files\": [1, 2]}").starts_with("f.json: wrong type"));
  CHECK(wrong_json("{\"on\": 1}").starts_with("f.json: wrong type: \"on\" at line 1 is 1; true or false"));
  CHECK(wrong_json("{\"rate\": 0.5}", true) == "f.json: missing key: \"on\"; true or false");
  for (const std::string text :
       {"", "[]", "3", "{", "{\"rate\": {}}", "{\"files\": [[]]}", "{\"rate\": 0.5} x", "nonsense", "{\"rate\"}"}) {
    INFO(text);
    CHECK(wrong_json(text).starts_with("f.json: "));
  }
}

TEST_CASE("nearest names") {
  const std::vector<std::string_view> known{"width", "heads", "layers"};
  CHECK(nearest("widht", known) == "width");
  CHECK(nearest("head", known) == "heads");
  CHECK(nearest("ehads", known) == "heads");
  CHECK(nearest("l", known) == "layers");
  CHECK(nearest("wheat", known).empty());          // heads and width: half of the letters and more
  CHECK(nearest("zzzzz", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest("Width", known) == "width");
  CHECK(nearest("layers-of-encoder", known) == "layers");
  CHECK(nearest("widthless", known) == "width");
  CHECK(nearest("size-of-layers", known).empty());
  const std::vector<std::string_view> long_names{"learning-rate", "both_ends", "train-files", "train"};
  CHECK(nearest("lr", long_names) == "learning-rate");
  CHECK(nearest("LEARNING_RATE", long_names) == "learning-rate");
  CHECK(nearest("both-ends", long_names) == "both_ends");
  CHECK(nearest("Train", long_names) == "train");
  CHECK(nearest("train-on-gpu-now", long_names) == "train");
}

TEST_CASE("a run's options fit together") {
  const auto wrong_config = [](auto&& change) {
    RunConfig config;
    config.data = "d";
    change(config);
    return message_of([&] { check_config(config); });
  };
  CHECK(wrong_config([](RunConfig&) {}).empty());
  // a translation may be 50 words longer, eos counted
  CHECK(max_positions(RunConfig{}) == 250 + 51);
  CHECK(wrong_config([](RunConfig& c) { c.width = 250, c.heads = 8; }) ==
        "the heads do not divide the width: --width 250 --heads 8; --width 248 or 256 would do, or --heads 10");
  CHECK(wrong_config([](RunConfig& c) { c.heads = 8, c.key_value_heads = 3; }) ==
        "heads that cannot be shared out: --heads 8 --key-value-heads 3; a divisor of 8, as 2");
  CHECK(wrong_config([](RunConfig& c) { c.heads = 4, c.key_value_heads = 8; }) ==
        "heads that cannot be shared out: --heads 4 --key-value-heads 8; a divisor of 4, as 4");
  CHECK(wrong_config([](RunConfig& c) { c.width = 9, c.heads = 3, c.differential = true; }) ==
        "no pairs of heads: --differential --heads 3; even numbers");
  CHECK(wrong_config([](RunConfig& c) { c.heads = 4, c.key_value_heads = 1, c.differential = true; }) ==
        "no pairs of heads: --differential --heads 4 --key-value-heads 1; even numbers");
  CHECK(wrong_config([](RunConfig& c) {
          c.heads = 4, c.positions = "shaw", c.differential = true;
        }).starts_with("values of heads and of pairs: --differential --positions shaw; "));
  const std::pair<void (*)(RunConfig&), std::string> without_scores[] = {
      {[](RunConfig& c) { c.positions = "t5"; }, "--positions t5"},
      {[](RunConfig& c) { c.normalise = "top-2"; }, "--normalise top-2"},
      {[](RunConfig& c) { c.talking_heads = true; }, "--talking-heads"},
      {[](RunConfig& c) { c.differential = true; }, "--differential"},
      {[](RunConfig& c) { c.sliding_window = 3; }, "--sliding-window 3"},
      {[](RunConfig& c) { c.attention_dropout = 0.1; }, "--attention-dropout 0.1"}};
  for (const auto& [set, name] : without_scores)
    CHECK(wrong_config([&, set = set](RunConfig& c) { c.linear_attention = true, set(c); }) ==
          "no scores and no weights: --linear-attention " + name + "; only one of them");
  CHECK(wrong_config([](RunConfig& c) { c.dilation = "2"; }) == "no sliding window: --dilation 2; with --sliding-window N");
  CHECK(wrong_config([](RunConfig& c) { c.global_tokens = 2; }) == "no sliding window: --global-tokens 2; with --sliding-window N");
  for (const char* list : {"0", "2,", ",2", "1,,2", "2 3", "-1", "1.5", "two", "2,1000001"})
    CHECK(wrong_config([&](RunConfig& c) { c.sliding_window = 2, c.dilation = list; }) ==
          "no list of gaps: --dilation \"" + std::string(list) + "\"; whole numbers in [1, 1000000] with commas between, as 1,1,2,4");
  CHECK(wrong_config([](RunConfig& c) { c.heads = 4, c.sliding_window = 2, c.dilation = "1,2"; }) ==
        "gaps of some heads: --dilation 1,2 --heads 4; a number for each of 4, or one for all");
  CHECK(wrong_config([](RunConfig& c) { c.heads = 4, c.sliding_window = 2, c.dilation = "1,2,3,1", c.global_tokens = 3; }).empty());
  CHECK(wrong_config([](RunConfig& c) { c.random_features = 8; }) ==
        "features of no linear attention: --random-features 8; with --linear-attention");
  CHECK(wrong_config([](RunConfig& c) { c.linear_attention = true, c.random_features = 8; }).empty());
  CHECK(wrong_config([](RunConfig& c) { c.normalise = "sparsmax"; }) ==
        "unknown name: --normalise \"sparsmax\"; did you mean sparsemax? one of softmax, exp, sparsemax, entmax, hard, learned-entmax, "
        "top-K");
  CHECK(wrong_config([](RunConfig& c) { c.normalise = "dot-top-3"; }) ==
        "unknown name: --normalise \"dot-top-3\"; one of softmax, exp, sparsemax, entmax, hard, learned-entmax, top-K");
  CHECK(wrong_config([](RunConfig& c) { c.normalise = "top-3"; }).empty());
  CHECK(wrong_config([](RunConfig& c) { c.width = 12, c.heads = 4, c.positions = "rope"; }) ==
        "an odd width of a head: --positions rope --width 12 --heads 4; it turns pairs of units, --width 16 would do");
  CHECK(wrong_config([](RunConfig& c) { c.width = 12, c.heads = 5; }) ==
        "the heads do not divide the width: --width 12 --heads 5; --width 10 or 15 would do, or --heads 6");
  CHECK(wrong_config([](RunConfig& c) { c.width = 3, c.heads = 8; }) ==
        "the heads do not divide the width: --width 3 --heads 8; --width 8 would do, or --heads 3");
  CHECK(wrong_config([](RunConfig& c) { c.steps = {}; }).starts_with("no end: "));
  CHECK(wrong_config([](RunConfig& c) { c.data = ""; }).starts_with("no data: "));
  // Each option stands in the table under a name of its own, with its default.
  RunConfig config;
  std::vector<std::string_view> names;
  for (const Option& option : options(config)) {
    CHECK(std::find(names.begin(), names.end(), option.name) == names.end());
    CHECK(!option.help.empty());
    names.push_back(option.name);
  }
}

TEST_CASE("a run's options reach the model, the optimizer and the schedule") {
  const auto made = [](auto&& change) {
    RunConfig config;
    config.width = 16, config.heads = 4;
    change(config);
    auto parameters = std::make_unique<Parameters>(Seed{1});
    make_model(config, parameters->root(), 30, 20);
    return parameters;
  };
  const auto has = [&](std::string_view path, auto&& change) { return made(change)->find(path) != nullptr; };
  CHECK_FALSE(has("core.encoder.norm.weight", [](RunConfig&) {}));
  CHECK(has("core.encoder.norm.weight", [](RunConfig& c) { c.norm = "pre"; }));
  CHECK(has("core.decoder.norm.weight", [](RunConfig& c) { c.final_norm = "always"; }));
  CHECK(has("core.decoder.layers.2.norm3.weight", [](RunConfig& c) { c.layers = 3; }));
  CHECK_FALSE(has("core.decoder.layers.2.norm3.weight", [](RunConfig& c) { c.layers = 3, c.decoder_layers = 2; }));
  CHECK(has("core.encoder.layers.2.norm2.weight", [](RunConfig& c) { c.layers = 3, c.decoder_layers = 2; }));
  CHECK(has("core.decoder.layers.3.linear3.bias", [](RunConfig& c) { c.decoder_layers = 4, c.gated = true; }));
  CHECK_FALSE(has("core.decoder.layers.0.linear3.bias", [](RunConfig&) {}));
  for (const char* path : {"core.encoder.layers.0.norm1", "core.encoder.norm", "core.decoder.layers.1.norm3", "core.decoder.norm"})
    for (const bool rms : {false, true}) {
      INFO(path);
      CHECK(has(path + std::string(".weight"), [&](RunConfig& c) { c.rms_norm = rms, c.norm = "pre"; }));
      CHECK(has(path + std::string(".bias"), [&](RunConfig& c) { c.rms_norm = rms, c.norm = "pre"; }) == !rms);
    }
  const auto activation = [](std::string_view name) {
    RunConfig config;
    config.activation = name;
    Parameters parameters(Seed{1});
    const auto model = make_model(config, parameters.root(), 30, 20);
    return dynamic_cast<const TranslationModel&>(*model).core.encoder.layers[0].feed_forward.activation;
  };
  for (const auto& [name, kind] : {std::pair("relu", Activation::relu), {"gelu", Activation::gelu}, {"gelu-tanh", Activation::gelu_tanh},
                                   {"silu", Activation::silu}, {"tanh", Activation::tanh}, {"sigmoid", Activation::sigmoid}})
    CHECK(activation(name) == kind);
  CHECK(RunConfig().activation == "relu");
  CHECK(message_of([&] { activation("swish"); }) == "unknown activation: \"swish\"; there are relu, gelu, gelu-tanh, silu, tanh, sigmoid");
  CHECK(has("target_positions.weight", [](RunConfig& c) { c.positions = "learned"; }));
  CHECK(has("output.bias", [](RunConfig&) {}));
  CHECK_FALSE(has("output.bias", [](RunConfig& c) { c.tie = "output"; }));
  const auto largest = [&](auto&& change) {
    return max(abs(made(change)->find("core.encoder.layers.0.self_attn.in_proj_weight")->variable.value())).item();
  };
  CHECK(largest([](RunConfig&) {}) > std::sqrt(6.0 / 64));                                   // Glorot's bound of the packed [48, 16]
  CHECK(largest([](RunConfig& c) { c.qkv_init = "packed"; }) <= std::sqrt(6.0 / 64));

  const auto rate = [](std::int64_t step, auto&& change) {
    RunConfig config;
    config.learning_rate = 0.5, config.warmup = 4, config.width = 64, config.schedule_steps = 10;
    change(config);
    return make_schedule(config).rate(step);
  };
  CHECK(rate(4, [](RunConfig& c) { c.schedule = "noam"; }) == doctest::Approx(0.5 / (8 * 2)));                // factor d^-1/2 warmup^-1/2
  CHECK(rate(16, [](RunConfig& c) { c.schedule = "inverse_sqrt"; }) == doctest::Approx(0.25));
  CHECK(rate(7, [](RunConfig& c) { c.schedule = "linear"; }) == doctest::Approx(0.25));
  CHECK(rate(21, [](RunConfig& c) { c.schedule = "step"; }) == doctest::Approx(0.125));                       // two times 10 updates
  CHECK(rate(25, [](RunConfig& c) { c.schedule = "step", c.schedule_after = 5; }) == doctest::Approx(0.25));
  CHECK(rate(26, [](RunConfig& c) { c.schedule = "step", c.schedule_after = 5; }) == doctest::Approx(0.125));

  // θ = start, its gradient 1, then second
  const auto updated = [](std::string_view optimizer, auto&& change, double start = 1, double second = 1) {
    RunConfig config;
    config.optimizer = optimizer, config.learning_rate = 0.1;
    change(config);
    Parameters parameters(Seed{1}, DType::f64);
    const Parameter theta = parameters.root().parameter("theta", {}, constant_init(start));
    const auto update = make_optimizer(config, parameters);
    for (int step = 0; step < 2; ++step) {
      Tape tape;
      tape.backward(theta * (step ? second : 1.0));
      update->step();
    }
    return theta.value().item();
  };
  const auto nothing = [](RunConfig&) {};
  CHECK(updated("sgd", nothing) == doctest::Approx(0.8));
  CHECK(updated("sgd", [](RunConfig& c) { c.momentum = 0.5; }) == doctest::Approx(1 - 0.1 - 0.15));
  CHECK(updated("sgd", [](RunConfig& c) { c.weight_decay = 1; }) == doctest::Approx(1 - 0.2 - 0.18));
  CHECK(updated("adam", nothing) == doctest::Approx(0.8));                                                    // m^/√v^ = 1
  CHECK(updated("adamw", [](RunConfig& c) { c.weight_decay = 1; }) == doctest::Approx((1 * 0.9 - 0.1) * 0.9 - 0.1));
  for (const char* optimizer : {"adam", "adamw"})
    CHECK(updated(optimizer, [](RunConfig& c) { c.eps = 0.5; }) == doctest::Approx(1 - 2 * 0.1 / 1.5));
  // m^ = (1/4 + 3/2)/(3/4), v^ = 9
  for (const char* optimizer : {"adam", "adamw"})
    CHECK(updated(
              optimizer, [](RunConfig& c) { c.beta1 = 0.5, c.beta2 = 0, c.weight_decay = 0; }, 1, 3) ==
          doctest::Approx(1 - 0.1 - 0.1 * 7 / 9));
  CHECK(default_config("transformer").eps == 1e-8);
  CHECK(default_config("transformer", "noam").eps == 1e-9);
  CHECK(updated("adagrad", nothing) == doctest::Approx(1 - 0.1 - 0.1 / std::sqrt(2)));
  CHECK(updated("rmsprop", nothing) == doctest::Approx(1 - 0.1 / std::sqrt(0.01) - 0.1 / std::sqrt(0.0199)));
  for (const double rho : {0.9, 0.95}) {   // v = 1 - ρ, (1 - ρ)(1 + ρ); steps √(u + ε)/√(v + ε)
    const double eps = 1e-6, first = std::sqrt(eps / (1 - rho + eps)),
                 second = std::sqrt(((1 - rho) * first * first + eps) / ((1 - rho) * (1 + rho) + eps));
    CHECK(updated("adadelta", [rho](RunConfig& c) { c.rho = rho; }) == doctest::Approx(1 - 0.1 * (first + second)).epsilon(1e-9));
  }
  CHECK(updated("rmsprop", [](RunConfig& c) { c.momentum = 0.5; }) ==
        doctest::Approx(1 - 1.5 * 0.1 / std::sqrt(0.01) - 0.1 / std::sqrt(0.0199)));
  // decay adds to the gradient what takes it away here
  for (const char* optimizer : {"adam", "adagrad", "adadelta", "rmsprop"}) {
    INFO(optimizer);
    CHECK(updated(optimizer, [](RunConfig& c) { c.weight_decay = 1; }, -1) == doctest::Approx(-1));
  }
}
