// SPDX-License-Identifier: Apache-2.0
#include "models/explain.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "models/translate.h"
#include "tensor/ops/softmax.h"
#include "tests/every_model.h"

using namespace heed;

namespace {

const Explanation::Value& value_of(const Explanation& x, std::string_view ending) {
  const auto at = std::ranges::find_if(x.values, [&](const auto& v) { return v.name.ends_with(ending); });
  REQUIRE_MESSAGE(at != x.values.end(), ending);
  return *at;
}

std::vector<double> numbers(const Tensor& x) { return to(x, DType::f64).contiguous().to_vector<double>(); }

// Σ α = 1 (local-p: less), c = Σ_j α_j h_j of the numbers shown, the words' probabilities are those of the model's own step.
void check_walk(const Explanation& x, double least, double most) {
  std::string prefix;
  for (const auto& v : x.values)
    if (v.name.ends_with("weights") && v.axes.columns == Along::source) prefix = v.name.substr(0, v.name.size() - 7);
  const std::vector<double> weights = numbers(value_of(x, prefix + "weights").value);
  const Explanation::Value &weighted = value_of(x, prefix + "weighted"), &context = value_of(x, prefix + "context");
  REQUIRE(weights.size() == x.source.size());
  double sum = 0;
  for (const double w : weights) sum += w;
  CHECK(sum <= most);
  CHECK(sum >= least);
  CHECK(weighted.rows == x.source);
  std::vector<double> total(std::size_t(context.value.numel()));
  for (std::size_t s = 0; s < weights.size(); ++s)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += numbers(weighted.value)[s * total.size() + i];
  const std::vector<double> shown = numbers(context.value);
  for (std::size_t i = 0; i < total.size(); ++i) CHECK(total[i] == doctest::Approx(shown[i]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("explain: a step is the model's own") {
  for (const std::string& options : every_model()) {
    INFO(options);
    const SmallModel small(options);
    const Example example = small.example("a b c", "c b a");
    for (Index step = 1; step <= 4; ++step) {
      const Explanation x = explain(small.run, *small.model, example, {.step = step, .top = 3});
      CHECK(x.read.size() == std::size_t(step));
      CHECK(x.steps == 4);
      CHECK(!x.loss);
      // The same step without a trace.
      const std::vector<std::vector<std::int32_t>> source{example.source};
      auto state = small.model->start(pad_sequences(source, 0));
      Step plain;
      for (Index t = 0; t < step; ++t) {
        const std::int32_t id = t == 0 ? search_options(small.run).start : example.target[std::size_t(t - 1)];
        plain = small.model->step(tensor(std::vector{id}, {1}), *state);
      }
      std::vector<double> p = numbers(plain.log_probabilities);
      CHECK(x.top[0].probability == doctest::Approx(std::exp(*std::ranges::max_element(p))).epsilon(1e-6));
      CHECK(x.top[0].probability >= x.top[1].probability);
      CHECK(value_of(x, "logits").value.numel() == small.run.target.vocabulary.size());
      if (options.find("none") == options.npos) check_walk(x, options.find("local-p") == options.npos ? 1 - 1e-5 : 0, 1 + 1e-5);
    }
    CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.step = 5}), "explain: step 5 is not in [1, 4]", IndexError);
  }
}

TEST_CASE("explain: gradients of the scores are those of the loss") {
  for (const std::string& options : every_model()) {
    if (options.find("none") != options.npos || options.find("mean") != options.npos) continue;
    INFO(options);
    const SmallModel small(options);
    const Example example = small.example("a b c", "c b a");
    const Explanation x = explain(small.run, *small.model, example, {.step = 2, .backward = true});
    CHECK(x.wanted == "b");
    REQUIRE(x.loss);
    const std::vector<double> logits = numbers(value_of(x, "logits").value), gradient = numbers(value_of(x, "logits").gradient);
    double norm = 0;
    for (const double z : logits) norm += std::exp(z);
    const auto wanted = std::size_t(example.target[1]);
    CHECK(*x.loss == doctest::Approx(std::log(norm) - logits[wanted]).epsilon(1e-5));
    for (std::size_t k = 0; k < logits.size(); ++k) CHECK(gradient[k] == doctest::Approx(std::exp(logits[k]) / norm - (k == wanted)).epsilon(1e-4));
    // de = α ⊙ (dα - Σ_k α_k dα_k), where a softmax makes the weights and nothing else follows it
    const Explanation::Value &scores = value_of(x, "scores"), &weights = value_of(x, "weights");
    REQUIRE(scores.gradient.defined());
    if (weights.gradient.defined() && options.find("local-p") == options.npos && options.find("sparsemax") == options.npos) {
      const std::vector<double> a = numbers(weights.value), da = numbers(weights.gradient), de = numbers(scores.gradient);
      double mean = 0;
      for (std::size_t s = 0; s < a.size(); ++s) mean += a[s] * da[s];
      for (std::size_t s = 0; s < a.size(); ++s) CHECK(de[s] == doctest::Approx(a[s] * (da[s] - mean)).epsilon(1e-3));
    }
  }
}

TEST_CASE("explain: layers and heads of a Transformer") {
  const SmallModel small("--layers 2 --heads 2");
  const Example example = small.example("a b", "b a");
  const Explanation last = explain(small.run, *small.model, example), first = explain(small.run, *small.model, example, {.layer = 1, .head = 2});
  const auto has = [](const Explanation& x, std::string_view part) { return std::ranges::any_of(x.values, [&](const auto& v) { return v.name.find(part) != v.name.npos; }); };
  CHECK(has(last, "decoder.layers.1."));
  CHECK(!has(last, "decoder.layers.0."));
  CHECK(has(first, "decoder.layers.0."));
  CHECK(!has(first, "decoder.layers.1."));
  CHECK(!has(first, "encoder.layers"));
  const Explanation other = explain(small.run, *small.model, example, {.layer = 1, .head = 1});
  CHECK(numbers(value_of(first, "multihead_attn.weights").value) != numbers(value_of(other, "multihead_attn.weights").value));
  CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.layer = 3}), "explain: layer 3 is not in [1, 2]", IndexError);
  CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.head = 3}), "explain: head 3 is not in [1, 2]", IndexError);
}

TEST_CASE("explain: text and JSON") {
  const SmallModel small("--layers 1 --heads 2");
  const Example example = small.example("a b c", "c b a");
  const Explanation x = explain(small.run, *small.model, example, {.step = 2, .backward = true});
  const std::string text = explanation_text(x, {.columns = 80});
  CHECK(text.starts_with("step 2 of 4\nsource   a b c </s>\nread     <s> c\nwritten  "));
  CHECK(text.find("\n       " "         a") != text.npos);
  CHECK(text.find("α = softmax(e)") != text.npos);
  CHECK(text.find("(sum 1.0000)") != text.npos);
  CHECK(text.find("L = -log p(b) = ") != text.npos);
  CHECK(text.find('\x1b') == text.npos);
  CHECK(explanation_text(x, {.colour = true}).find("\x1b[1m") != text.npos);
  const auto json = nlohmann::json::parse(explanation_json(x));
  CHECK(json["step"] == 2);
  CHECK(json["read"] == nlohmann::json({"<s>", "c"}));
  CHECK(json["values"].size() == x.values.size());
  CHECK(json["loss"].get<double>() == doctest::Approx(*x.loss));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto& value = json["values"][i]["value"];
    CHECK((value[0].is_array() ? Index(value.size() * value[0].size()) : Index(value.size())) == x.values[i].value.numel());
  }
}
