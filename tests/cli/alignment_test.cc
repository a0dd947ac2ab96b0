// SPDX-License-Identifier: Apache-2.0
// Gold links of the data: what a model is trained by and measured against.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "tensor/json.h"
#include "tests/cli/program.h"

using namespace heed;

namespace {

std::string call(const TemporaryFolder& folder, const std::string& line) {
  const Result result = heed_in(folder.path(), line);
  REQUIRE_MESSAGE(result.code == 0, result.err);
  return result.out;
}

// Without the columns behind the first two.
std::string without_links(const std::string& pairs) {
  std::string plain;
  std::istringstream lines(pairs);
  for (std::string line; std::getline(lines, line);) plain += line.substr(0, line.find('\t', line.find('\t') + 1)) + "\n";
  return plain;
}

}  // namespace

TEST_CASE("cli: tabs of a translation are spaces where columns stand behind tabs") {
  const TemporaryFolder folder;
  std::string sources, targets;
  for (int i = 0; i < 40; ++i) sources += std::string(std::size_t(1 + i % 9), 'a') + "\n", targets += "x\tx\tx\tx\n";
  write_text(folder / "s", sources), write_text(folder / "t", targets);
  call(folder, "train --train-files s t --dev-files s t --tokenizer char --layers 1 --width 16 --heads 2 --feed-forward 16 --steps 60 "
               "--warmup 5 --learning-rate 0.01 --quiet --out run");
  const auto translated = [&](const std::string& options) {
    return heed_in(folder.path(), "translate --run run --quiet " + options, "aa\n").out;
  };
  CHECK(translated("") == "x\tx\tx\tx\n");
  CHECK(translated("--alignment").starts_with("x x x x\t"));
  CHECK(std::regex_match(translated("--beam 3 --nbest 3"), std::regex("(1\t-?[0-9.]+\t[^\t\n]*\n){3}")));
}

TEST_CASE("cli: guided alignment shows a model where to look; evaluate says how well it knows") {
  const TemporaryFolder folder;
  call(folder, "data phrases --train 600 --dev 10 --test 60 --out data");
  for (const std::string model :
       {"--heads 2 --feed-forward 16", "--model gru --attention general", "--model lstm --attention additive --reverse-source"}) {
    CAPTURE(model);
    const auto evaluated = [&](const std::string& options) {
      std::filesystem::remove_all(folder / "run");
      call(folder,
           "train --data data --out run --layers 1 --width 24 --batch-sentences 20 --learning-rate 0.01 --warmup 20 --epochs 12 --quiet " +
               model + options);
      return parse_json(call(folder, "evaluate --run run --data data --json --quiet"));
    };
    const double plain = evaluated("")["alignment_error"], guided = evaluated(" --guided-alignment 1")["alignment_error"];
    CHECK(guided < 0.5 * plain);
    CHECK(guided < 0.2);
    const std::string log = text_of(folder / "run/metrics.jsonl");
    CHECK(log.find("\"alignment_loss\": ") != log.npos);
    CHECK(std::regex_search(
        call(folder, "evaluate --run run --data data --quiet"),
        std::regex(R"(\nalignment error 0\.\d+  \(.*\)\nalignment accuracy \d+\.\d %  \(.*\), monotone share \d+\.\d % \()")));
    const auto scores = parse_json(call(folder, "evaluate --run run --data data --json --quiet"));
    for (const char* name : {"alignment_accuracy", "monotone_share"})
      CHECK((scores[name].get<double>() > 0.6 && scores[name].get<double>() < 1));
    CHECK(scores["alignment_error_input"].get<double>() > guided);
  }
  const auto translated = [&](const std::string& options, const std::string& lines) {
    return heed_in(folder.path(), "translate --run run --quiet " + options, lines).out;
  };
  const std::string text = translated("", "the dog\n"),
                    links = parse_json(translated("--alignment --json", "the dog\n"))["translations"][0]["links"];
  CHECK(links.starts_with("0-0 1-1"));
  CHECK(translated("--alignment", "the dog\n\n") == text.substr(0, text.size() - 1) + "\t" + links + "\n\t\n");
  CHECK(std::regex_match(translated("--alignment --beam 2 --nbest 2", "the dog\n"), std::regex("(1\t-?[0-9.]+\t[^\t]+\t[-0-9 ]+\n){2}")));
  // Other links are other data, where they are trained on.
  const std::string train = text_of(folder / "data/train.tsv");
  write_text(folder / "data/train.tsv", train.substr(0, train.find('\n')) + " 0-1" + train.substr(train.find('\n')));
  CHECK(heed_in(folder.path(), "train --out run --resume --epochs 13 --quiet").err.find("the data has changed since ") !=
        std::string::npos);
  // Sentences without links measure nothing.
  const auto error = [&](const std::string& test) {
    write_text(folder / "data/test.tsv", test);
    const Json scores = parse_json(call(folder, "evaluate --run run --data data --json --quiet"));
    return scores.contains("alignment_error") ? scores["alignment_error"].get<double>() : -1;
  };
  const std::string test = text_of(folder / "data/test.tsv");
  const double linked = error(test);
  CHECK(linked >= 0);
  CHECK(error(test + without_links(test)) == linked);
  CHECK(error(without_links(test)) == -1);
  // Links of other words than those of the run are named, a decoder that became another one too.
  const std::string other = "train --data data --layers 1 --width 8 --steps 1 --model gru --attention none --decoder luong --out other";
  const std::string said = heed_in(folder.path(), other + " --tokenizer word").err;
  CHECK_MESSAGE(said.find("its links count words of --tokenizer space: not read with --tokenizer word\n") != said.npos, said);
  CHECK_MESSAGE(said.find("--decoder luong without attention is sutskever\n") != said.npos, said);
}
