// SPDX-License-Identifier: Apache-2.0
// Several runs that decode together.
#include <doctest/doctest.h>

#include "models/run.h"
#include "models/train.h"
#include "tensor/json.h"
#include "tensor/safetensors.h"
#include "tests/cli/program.h"

using namespace heed;

TEST_CASE("cli: an ensemble of runs, or of the weights of one, translates and is evaluated; runs that do not fit are refused") {
  const TemporaryFolder folder;
  const auto call = [&](const std::string& line, const std::string& input = {}) {
    const Result result = heed_in(folder.path(), line, input);
    REQUIRE_MESSAGE(result.code == 0, line << ": " << result.err);
    return result.out;
  };
  const auto mistake = [&](const std::string& line) {
    const Result result = heed_in(folder.path(), line, "the dog\n");
    CHECK(result.code == 2);
    return result.err;
  };
  call("data phrases --train 300 --dev 10 --test 40 --out data --seed 1");
  const std::string train = "train --data data --quiet --layers 1 --width 16 --batch-sentences 20 --learning-rate 0.01 ";
  call(train + "--out a --heads 2 --feed-forward 16 --warmup 20 --save-every 30 --keep 9 --epochs 4");
  call(train + "--out b --heads 2 --feed-forward 16 --warmup 20 --seed 2 --epochs 4");
  call(train + "--out c --model gru --epochs 4");
  const auto loss = [&](const std::string& flags) {
    return parse_json(call("evaluate --quiet --json --data data " + flags))["loss"].get<double>();
  };
  const double a = loss("--run a"), b = loss("--run b"), c = loss("--run c");
  CHECK(loss("--run a --ensemble b,c") < (a + b + c) / 3);
  CHECK(loss("--run a --ensemble b,c --ensemble-mean log-mean") < (a + b + c) / 3);
  CHECK(loss("--run a --ensemble a") == doctest::Approx(a).epsilon(1e-4));
  CHECK(loss("--run a --ensemble a/checkpoints/30.safetensors") != doctest::Approx(a).epsilon(1e-4));

  // The mean of the weights in several files
  std::vector<std::map<std::string, Tensor>> weights;
  for (const std::string step : {"30", "60"})
    weights.push_back(read_weights(folder / ("a/checkpoints/" + step + ".safetensors")).tensors);
  write_safetensors(folder / "mean.safetensors", mean_weights(weights));
  const std::string two = "--run a --checkpoint a/checkpoints/30.safetensors,a/checkpoints/60.safetensors";
  CHECK(loss(two) == loss("--run a --checkpoint mean.safetensors"));
  std::map<std::string, Tensor> half = read_weights(folder / "a/best.safetensors").tensors;
  for (auto& [name, value] : half) value = to(value, DType::bf16);
  write_safetensors(folder / "half.safetensors", half);
  CHECK(loss("--run a --checkpoint half.safetensors") == doctest::Approx(a).epsilon(0.02));
  CHECK(loss(two) != loss("--run a --checkpoint a/checkpoints/60.safetensors"));
  CHECK(mistake(std::string("trace --source 'the dog' --out a/checkpoints/60.safetensors ") + two)
            .starts_with("heed trace: input and output are the same file: a/checkpoints/60.safetensors and "));
  CHECK(mistake("translate --run a --checkpoint mean.safetensors,b/config.json").starts_with("heed translate: b/config.json: "));
  CHECK(mistake("translate --run a --checkpoint mean.safetensors,") ==
        "heed translate: a file without a name: --checkpoint mean.safetensors,; A,B,..\n");
  CHECK(mistake("translate --run a --checkpoint mean.safetensors,c/best.safetensors")
            .starts_with("heed translate: c/best.safetensors: does not fit the model; "));
  const std::string lines = "the dog\na small cat\n\n";
  CHECK(call("translate --quiet --run a --ensemble a", lines) == call("translate --quiet --run a", lines));
  CHECK(call("translate --quiet --run a --ensemble b,c --beam 3 --nbest 2 --alignment --precision int8", lines).size() > 20);
  const std::string fit = "heed translate: models that do not fit: --ensemble d: ",
                    other_words = "; runs of the same data and text options, or of one's --vocabularies\n";
  call(train + "--out d --model gru --attention none --epochs 1");
  CHECK(call("translate --quiet --run d --ensemble a --alignment --replace-unk", lines).size() > 20);
  CHECK(mistake("translate --run d --alignment") ==
        "heed translate: no attention over the source: --alignment; a run trained with attention\n");
  std::filesystem::remove_all(folder / "d");
  call(train + "--out d --model gru --start eos --epochs 1");
  CHECK(mistake("translate --run a --ensemble b,d") == fit + "--start not as in a" + other_words);
  std::filesystem::remove_all(folder / "d");
  call(train + "--out d --model gru --min-count 20 --epochs 1");
  CHECK(mistake("translate --run a --ensemble d") == fit + "vocabularies not as in a" + other_words);
  std::filesystem::remove_all(folder / "d");
  call(train + "--out d --model gru --copy --epochs 1");
  CHECK(mistake("translate --run a --ensemble d") == fit + "--copy not as in a" + other_words);
  std::filesystem::remove_all(folder / "d");
  call(train + "--out d --model gru --max-length 100 --epochs 1");
  CHECK(mistake("translate --run a --ensemble d") == fit + "--max-length not as in a" + other_words);
  CHECK(mistake("translate --run a --ensemble b,,c") == "heed translate: a file without a name: --ensemble b,,c; A,B,..\n");
  CHECK(mistake("translate --run a --ensemble nowhere") == "heed translate: no such run: nowhere; a directory that `heed train` made\n");
  CHECK(mistake("translate --run a --ensemble-mean log-mean") ==
        "heed translate: one model alone: --ensemble-mean log-mean; it goes with --ensemble\n");
  CHECK(mistake("translate --run a --sample --stop bound") == "heed translate: nothing is searched: --sample --stop bound; one of them\n");
}
