// SPDX-License-Identifier: Apache-2.0
// The classic example: one decode step of "a beautiful dog" after the other, in a model that was just trained on phrases.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tensor/json.h"
#include "tests/cli/small_run.h"

using namespace heed;

namespace {

const Json& value_of(const Json& explanation, std::string_view ending) {
  for (const auto& value : explanation["values"])
    if (value["name"].get<std::string>().ends_with(ending)) return value;
  FAIL("no value " << ending);
  return explanation;
}

struct Said { std::string word, looked_at; };

// Weights that sum to 1, a context that is the sum of the weighted states; the likeliest word, the source word with the largest weight.
Said check_step(const Json& explanation) {
  const auto& weights = value_of(explanation, "attention.weights");
  const auto weighted = value_of(explanation, "attention.weighted")["value"].get<std::vector<std::vector<double>>>();
  const auto context = value_of(explanation, "attention.context")["value"].get<std::vector<double>>();
  CHECK(weights["columns"] == Json{"a", "beautiful", "dog", "</s>"});
  double sum = 0;
  for (const double w : weights["value"]) sum += w;
  CHECK(sum == doctest::Approx(1).epsilon(1e-6));
  REQUIRE(weighted.size() == 4);
  for (std::size_t i = 0; i < context.size(); ++i)
    CHECK(std::abs(weighted[0][i] + weighted[1][i] + weighted[2][i] + weighted[3][i] - context[i]) < 1e-6);
  const auto largest = std::max_element(weights["value"].begin(), weights["value"].end()) - weights["value"].begin();
  return {explanation["top"][0]["word"], weights["columns"][std::size_t(largest)]};
}

}  // namespace

TEST_CASE("cli: a beautiful dog, explained step by step in two languages" * doctest::test_suite("slow")) {
  struct Case { std::string language, translation, looked_at, options; };
  for (const Case& c : {Case{"fr", "un beau chien", "beautiful dog ", "--model gru --epochs 8 --seed 4"},   // Bahdanau's order of a step
                        Case{"es", "un perro bonito", "dog beautiful ", "--model gru --epochs 8"},
                        Case{"es", "un perro bonito", "dog beautiful ", "--model lstm --epochs 14"}}) {   // Luong's
    INFO(c.language << " " << c.options);
    const TemporaryFolder folder;
    const auto call = [&](const std::string& line, const std::string& input = {}) {
      const Result result = heed_in(folder.path(), line, input);
      REQUIRE_MESSAGE(result.code == 0, result.err);
      return result.out;
    };
    call("data phrases --train 6000 --dev 20 --test 20 --out data --to " + c.language);
    call("train --data data --out run --quiet --width 48 --learning-rate 3e-3 " + c.options);
    CHECK(call("translate --run run", "a beautiful dog\n") == c.translation + "\n");
    std::string said, looked;
    for (int step = 1; step <= 4; ++step) {
      const std::string explain = "explain --source 'a beautiful dog' --run run --step " + std::to_string(step);
      const auto [word, source] = check_step(parse_json(call(explain + " --json")));
      said += word + " ";
      if (step == 2 || step == 3) looked += source + " ";
      const std::string text = call(explain);
      CHECK(text.find("\nattention.weights  [4]  α = softmax(e) over the words that may be seen  (sum 1.0000)\n") != text.npos);
      CHECK(text.find("\nwrites   " + word + "  (p = ") != text.npos);
    }
    CHECK(said == c.translation + " </s> ");
    CHECK(looked == c.looked_at);                                   // of the noun and the adjective
  }
}

TEST_CASE("cli: explain") {
  const std::string written = lines_of(call("translate --run run --quiet --tokens", "1 2 3\n").out).at(0);
  const std::string first = written.substr(0, written.find(' '));
  const std::string unknown = " --run run --source '1 y 2 x y' --target '1 z'",
                    named = "--source: unknown to the model: y, x\n--target: unknown to the model: z\n";
  CHECK(call("attention" + unknown).err == named);
  CHECK(call("explain" + unknown).err == named);
  CHECK(call("trace --out unknown.safetensors" + unknown).err == named);
  CHECK(call("trace --out unknown.safetensors --quiet" + unknown).err == "");
  const Result walk = call("explain --run run --source '1 2 3'");
  CHECK_MESSAGE(walk.code == 0, walk.err);
  CHECK(walk.out.find("\nwrites   " + first + "  (p = ") != walk.out.npos);
  CHECK(walk.out.find("core.decoder.layers.0.multihead_attn.weights  [4]  α = softmax(e)") != walk.out.npos);
  CHECK(walk.out.find("dL") == walk.out.npos);
  const Result back = call("explain --run run --source '1 2 3' --target '1 2 3' --step 2 --head 2");
  CHECK(back.out.find("L = -log p(2) = ") != back.out.npos);
  CHECK(back.out.find("\n  dL ") != back.out.npos);
  const auto json = parse_json(call("explain --run run --source '1 2 3' --step 2 --json --top 2").out);
  CHECK(json["top"].size() == 2);
  CHECK(json["step"] == 2);
}
