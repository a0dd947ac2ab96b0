// SPDX-License-Identifier: Apache-2.0
// `heed attention`, and the pictures that a training leaves.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "models/run.h"
#include "tests/cli/small_run.h"
#include "tests/run_program.h"

using namespace heed;
namespace fs = std::filesystem;

TEST_CASE("cli: attention pictures stay a tenth of the training apart, and those of the newest evaluation and of the best") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 5 --test 5").code == 0);
  const auto steps = [&] {
    std::set<Index> found;
    for (const auto& entry : fs::directory_iterator(folder / "run/attention"))
      if (const std::string name = entry.path().stem().string(); name.starts_with("sentence-"))
        found.insert(std::stoll(name.substr(name.rfind('-') + 1)));
    return found;
  };
  REQUIRE(
      heed_in(folder.path(),
              "train --data data --out run --width 8 --heads 2 --feed-forward 8 --learning-rate 0 --evaluate-every 1 --steps 14 --quiet")
          .code == 0);
  CHECK(best_step(open_run(folder / "run")) == 1);
  CHECK(steps() == std::set<Index>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14});
  write_text(folder / "run/attention/mine-3.svg", "");
  REQUIRE(heed_in(folder.path(), "train --resume --out run --steps 16 --quiet").code == 0);
  CHECK(steps() == std::set<Index>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 16});
  CHECK(fs::exists(folder / "run/attention/mine-3.svg"));
}

TEST_CASE("cli: the pictures of a training: sentences of 5 to 14 words and marks before others, none beyond 40") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 6 --max-length 5 --train 50 --dev 5 --test 5").code == 0);
  const auto pair = [](int words, const std::string& word) {
    std::string text = word;
    for (int i = 1; i < words; ++i) text += " " + word;
    return text + "\t" + text + "\n";
  };
  write_text(folder / "data/dev.tsv", pair(40, "4") + pair(2, "6") + pair(39, "2") + pair(6, "3") + pair(3, "5"));
  REQUIRE(
      heed_in(folder.path(), "train --data data --out run --width 8 --heads 2 --feed-forward 8 --learning-rate 0 --steps 1 --quiet").code ==
      0);
  const std::string words = "362";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string svg = text_of(folder / ("run/attention/sentence-" + std::to_string(i + 1) + "-step-000001.svg"));
    for (char word = '2'; word <= '6'; ++word) CHECK((svg.find(std::string(">") + word + "<") != svg.npos) == (word == words[i]));
  }
  CHECK(std::distance(fs::directory_iterator(folder / "run/attention"), {}) == 3);
}

TEST_CASE("cli: attention") {
  for (const char* file : {"a.svg", "a.html", "a.txt", "b.SVG"}) {
    CHECK(call(std::string("attention --run run --source '1 2 3' --out ") + file).code == 0);
    const std::string text = text_of(small().folder / file);
    CHECK(text.find("layer 1") != text.npos);
    CHECK(text.find(std::string(file) == "a.txt" ? "</s>" : "&lt;/s&gt;") != text.npos);
  }
  for (const std::string all : {"", " --all"}) {
    CHECK(call("attention --run run --source '1 2 3' --out plain.svg" + all).code == 0);
    CHECK(call("attention --run run --source '1 2 3' --out numbers.svg --numbers" + all).code == 0);
    const auto elements = [](const char* file) { return lines_of(text_of(small().folder / file)).size(); };
    CHECK(elements("numbers.svg") > elements("plain.svg") + 20);
  }
  CHECK(call("attention --run run --source '1 2 3' --all --out all.txt").code == 0);
  const std::string all = text_of(small().folder / "all.txt");
  for (const char* label : {"encoder layer 1, head 2, self-attention", "decoder layer 1, head 2, self-attention",
                            "decoder layer 1, mean over 2 heads, cross-attention"})
    CHECK_MESSAGE(all.find(label) != all.npos, all);
  CHECK(text_of(small().folder / "all.txt").size() == call("attention --run run --source '1 2 3' --all").out.size());
  const std::string by_input = call("attention --run run --source '1 2' --target '5 6' --all --align-to input").out;
  const std::string decoder = by_input.substr(by_input.find("decoder layer 1, head 1, self-attention"));
  CHECK_MESSAGE(std::regex_search(decoder, std::regex("^[^\n]*\n( *[┌│][^\n]*\n)+ *<s> ")), decoder);
  CHECK(call("attention --run run --out escaped.txt --source '1 \x1b[31m'").err.find("\nescaped.txt: 1 \u241b[31m") != std::string::npos);
  const Result forced = call("attention --run run --source '1 2' --target '5 5 5'");
  CHECK(forced.code == 0);
  CHECK(forced.out.starts_with("1 2 → 5 5 5\n"));
  CHECK(forced.out.find("mean over 2 heads") != forced.out.npos);
}

TEST_CASE("cli: attention has the data's links of this very pair") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 5 --test 5").code == 0);
  REQUIRE(
      heed_in(folder.path(),
              "train --data data --out run --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --vocabulary-size 5 --quiet")
          .code == 0);
  write_text(folder / "data/test.tsv", "1 2\t2 1\t0-1 1-0\n3 4\t4 3\t0-0 5-1\t0?1 1?7\n");      // the second with links to nowhere
  const auto picture = [&](const std::string& source, const std::string& target) {
    const Result drawn = heed_in(folder.path(), "attention --run run --quiet --source '" + source + "' --target '" + target + "'");
    CHECK_MESSAGE(drawn.code == 0, drawn.err);
    return drawn.out;
  };
  CHECK(picture("1 2", "2 1").find("gold link, sure") != std::string::npos);
  const std::string unknown = picture("x y", "y x");                                                 // both words are, to the model
  CHECK(unknown.find("gold link") == std::string::npos);
  CHECK_MESSAGE(unknown.find("x <unk> y <unk> → <unk> <unk>") != std::string::npos, unknown);
  CHECK(picture("3 4", "4 3").find("gold link, sure") != std::string::npos);
  // a part that is missing hides no other
  fs::rename(folder / "data/test.tsv", folder / "data/dev.tsv");
  CHECK(picture("1 2", "2 1").find("gold link, sure") != std::string::npos);
}

TEST_CASE("cli: attention has the links of data that the run split itself") {
  const TemporaryFolder folder;
  write_text(folder / "pairs.tsv", "1 2\t2 1\t0-1 1-0\n3\t3\t0-0\n4\t4\t0-0\n");
  REQUIRE(heed_in(folder.path(),
                  "train --train pairs.tsv --split-by-source --split-dev 1 --split-test 0 --tokenizer space --out run --layers 1 --width 8 "
                  "--heads 2 --feed-forward 8 --warmup 1 --steps 1 --quiet")
              .code == 0);
  const Result drawn = heed_in(folder.path(), "attention --run run --quiet --source '1 2' --target '2 1'");
  CHECK_MESSAGE(drawn.out.find("gold link, sure") != drawn.out.npos, drawn.err);
}

TEST_CASE("cli: nobody reads what goes to --out") {
  const std::string folder = small().folder.path();
  run_program(
      "cd '" + folder +
      "' && (sleep 0.2; " HEED_BUILD_DIR
      "/examples/heed evaluate --run run --quiet --out /dev/fd/3 3>&1 > unread.scores 2> unread.err; echo $? > unread.code) | true");
  CHECK(text_of(small().folder / "unread.code") == "0\n");
  CHECK(text_of(small().folder / "unread.err") == "");
  CHECK(text_of(small().folder / "unread.scores").find("BLEU") != std::string::npos);
}

TEST_CASE("cli: attention of recurrent models") {
  CHECK(call("data reverse --out rev --symbols 5 --max-length 6 --train 200 --dev 20 --test 20").code == 0);
  for (const std::string options :
       {"--model gru --attention additive", "--model lstm --attention location", "--model gru --attention local-p --window 1"}) {
    INFO(options);
    fs::remove_all(small().folder / "look");
    const Result trained = call("train --data rev --out look --width 16 --steps 5 --quiet " + options);
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    std::istringstream pair(lines_of(text_of(small().folder / "rev/test.tsv")).at(0));
    std::string source, target, links;
    std::getline(pair, source, '\t'), std::getline(pair, target, '\t'), std::getline(pair, links, '\t');
    const std::string sentence = "--source '" + source + "' --target '" + target + "'";
    CHECK(call("attention --run look " + sentence + " --out look.svg --quiet").code == 0);
    const std::string svg = text_of(small().folder / "look.svg");
    CHECK(svg.find("target word being written") != svg.npos);
    CHECK((svg.find("gold link, sure") != svg.npos) == !links.empty());
    CHECK((svg.find("window of the attention") != svg.npos) == (options.find("local-") != options.npos));
    // a sentence may go on in the next line
    const std::string joined = std::regex_replace(svg, std::regex("</text>\\s*<text[^>]*>"), " ");
    CHECK((joined.find("aims at the word being") != joined.npos) == (options.find(" location") != options.npos));
    const Result read = call("attention --run look " + sentence + " --align-to input --quiet");
    CHECK(read.out.find("target word just read") != read.out.npos);
    CHECK(read.out.find("\n") != read.out.npos);
    CHECK(call("attention --run look --source '1 2' --target '2 1' --links '0-1 1-0' --out own.html --quiet").code == 0);
    CHECK(call("explain --run look --source '1 2' --step 2 --target '2 1'").out.find("  dL ") != std::string::npos);
    CHECK(call("trace --run look --source '1 2' --out look.safetensors --quiet").code == 0);
  }
}
