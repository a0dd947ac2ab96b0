// SPDX-License-Identifier: Apache-2.0
// Words of the source that no vocabulary has, through the commands.
#include <doctest/doctest.h>

#include "tensor/json.h"
#include "tensor/random.h"
#include "tests/cli/program.h"

using namespace heed;

namespace {

// "my name is NAME" and "NAME sings", a new name in each line.
std::string pairs(int count, int seed) {
  Random random{Key(seed)};
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string name;
    for (int k = 0; k < 6; ++k) name += char('a' + random.below(26));
    lines += i % 2 ? name + " sings\t" + name + " chante\n" : "my name is " + name + "\tje m'appelle " + name + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("cli: --copy writes words of the source that no vocabulary has; pictures, explanations, scores and links name them") {
  const TemporaryFolder folder;
  const auto call = [&](const std::string& line, const std::string& input = {}) {
    const Result result = heed_in(folder.path(), line, input);
    REQUIRE_MESSAGE(result.code == 0, line << ": " << result.err);
    return result.out;
  };
  call("data copy --train 1 --dev 1 --test 1 --out data");                      // what says that its tokens stand between spaces
  for (const auto& [part, count] : {std::pair("train", 200), std::pair("dev", 10), std::pair("test", 20)})
    write_text(folder / "data/" + part + ".tsv", pairs(count, count));
  for (const std::string model :
       {"--layers 1 --heads 2 --feed-forward 32 --warmup 20", "--model gru --batch-tokens 500",
        "--model lstm --attention coverage --coverage-loss 0.1 --input-feeding",
        "--layers 1 --heads 2 --feed-forward 32 --warmup 20 --copy-form copynet", "--model gru --batch-tokens 500 --copy-form copynet"}) {
    CAPTURE(model);
    std::filesystem::remove_all(folder / "run");
    const std::string train = "train --out run --quiet " + (model.find("batch") == model.npos ? "--batch-sentences 25 " : std::string());
    call(train + "--data data --copy --min-count 4 --width 32 --learning-rate 0.01 --dropout 0 --epochs 10 " + model);
    call("train --out run --quiet --resume --epochs 12");
    for (const std::string search : {"", "--beam 3 --stop bound ", "--precision int8 "})
      CHECK(call("translate --quiet --run run " + search, "my name is qwerty\nyxcvbn sings\n") == "je m'appelle qwerty\nyxcvbn chante\n");
    CHECK(heed_in(folder.path(), "translate --run run", "my name is qwerty\n").err.find("unknown") == std::string::npos);
    CHECK(heed_in(folder.path(), "translate --run run --prefix 'qwerty asdf'", "my name is qwerty\n").err ==
          "unknown to the model: asdf\n");
    CHECK(heed_in(folder.path(), "attention --run run --source 'qwerty sings' --target 'qwerty asdf'").err ==
          "--target: unknown to the model: asdf\n");
    CHECK(call("translate --quiet --run run --prefix 'je m'", "my name is qwerty\n").starts_with("je m"));
    CHECK(call("translate --quiet --run run --prefix qwerty", "qwerty sings\n") == "qwerty chante\n");
    const bool pointed = !model.ends_with("copynet");                           // attention is what copies
    const auto links =
        parse_json(call("translate --quiet --run run --json --alignment", "qwerty sings\n"))["translations"][0]["links"].get<std::string>();
    CHECK((links.starts_with("0-0") || !pointed));
    const auto scores = parse_json(call("evaluate --quiet --run run --data data --json"));
    CHECK(scores["exact"] == 100);
    CHECK(scores["loss"] < 0.2);
    const std::string forced = call("evaluate --quiet --run run --data data --force");
    CHECK(forced.size() > 100);
    CHECK(forced.find("inf") == forced.npos);
    const std::string picture = call("attention --quiet --run run --source 'qwerty sings' --target 'qwerty chante'");
    CHECK(picture.find("qwerty") != picture.rfind("qwerty"));
    CHECK(picture.find("<unk>") == picture.npos);
    const auto step = parse_json(call("explain --quiet --run run --source 'qwerty sings' --target 'qwerty chante' --json --top 40"));
    CHECK(step["top"][0]["word"] == "qwerty");
    CHECK(step["source"][0] == "qwerty");
    CHECK(step["loss"].get<double>() == doctest::Approx(-std::log(step["top"][0]["probability"].get<double>())).epsilon(1e-4));
    const std::string text = call("explain --quiet --run run --source 'qwerty sings' --target 'qwerty chante' --step 2");
    CHECK(text.find("P, of the vocabulary and the source") != text.npos);
    CHECK(text.find("read     <s> qwerty") != text.npos);
    call("trace --run run --source 'qwerty sings' --out t.safetensors");
    CHECK(call("inspect run").find(pointed ? "gate.weight" : "copy.key_proj.weight") != std::string::npos);
  }
}
