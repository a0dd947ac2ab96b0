// SPDX-License-Identifier: Apache-2.0
// `heed evaluate` and `heed score`.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tensor/json.h"
#include "tests/cli/small_run.h"
#include "tests/run_program.h"

using namespace heed;
namespace fs = std::filesystem;

TEST_CASE("cli: evaluate and score agree") {
  const Result plain = call("evaluate --run run --data data --out translated.txt --quiet");
  CHECK_MESSAGE(plain.code == 0, plain.err);
  CHECK(std::regex_search(
      plain.out,
      std::regex(
          R"(\nBLEU [0-9.]+  \(nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:heed-[0-9.]+\)\n  [0-9./]+, brevity penalty [0-9.]+, length ratio [0-9.]+: \d+ tokens to \d+\n)")));
  const auto json = parse_json(call("evaluate --run run --json --quiet").out);     // the run's own data
  CHECK(json["sentences"] == 40);
  CHECK(json["loss"].get<double>() > 0);
  std::string references;
  for (const std::string& line : lines_of(text_of(small().folder / "data/test.tsv"))) {
    const std::size_t first = line.find('\t') + 1;
    references += line.substr(first, line.find('\t', first) - first) + "\n";
  }
  write_text(small().folder / "references.txt", references);
  const auto score = parse_json(call("score --hypotheses translated.txt --references references.txt --json").out);
  CHECK(score["bleu"] == json["bleu"]);
  CHECK(score["exact"] == json["exact"]);
  CHECK(call("score --hypotheses references.txt --references references.txt,references.txt --sources references.txt")
            .out.starts_with("BLEU 100.00  (nrefs:2|"));

  // With a second reference of each sentence, here its own translation, everything is as good as it can be.
  const auto second = parse_json(call("evaluate --run run --references translated.txt --json --quiet").out);
  CHECK(second["exact"] == 100);
  for (const char* name : {"bleu", "token_bleu", "chrf"}) CHECK(second[name].get<double>() == doctest::Approx(100));
  CHECK(second["loss"] == json["loss"]);
  CHECK(second["bleu_signature"].get<std::string>().starts_with("nrefs:2|"));
  std::string halves;
  for (std::size_t i = 0; const std::string& line : lines_of(text_of(small().folder / "translated.txt")))
    halves += (i++ % 2 ? line : "other words") + "\n";
  write_text(small().folder / "halves.txt", halves);
  const auto both = parse_json(call("evaluate --run run --references halves.txt,references.txt --json --quiet").out);
  CHECK(both["bleu"] ==
        parse_json(call("score --hypotheses translated.txt --references references.txt,halves.txt,references.txt --json").out)["bleu"]);

  CHECK(both["exact"].get<double>() >= 50);                                          // of one reference, whichever
  CHECK(both["length_ratio"].get<double>() > 0);
  CHECK(json["token_bleu_lowercase"] == json["token_bleu"]);                         // words are digits

  CHECK(call("evaluate --run run").err.find("warning") == std::string::npos);
  CHECK(call("evaluate --run run --split train").err.find("warning") == std::string::npos);
  CHECK(std::regex_search(call("evaluate --run run --data data --split train").err,
                          std::regex(R"(^warning: (\d+) of \1 source sentences of data/train.tsv stand in the training data as well\n)")));
  CHECK(call("evaluate --run run --data data --split train --quiet").err.empty());

  CHECK(call("evaluate --run run").err.find("sentence 0 of") == std::string::npos);
  CHECK(call("evaluate --run run").err.ends_with("sentence 40 of 40, 0:00 left\n"));
  const auto coarse = parse_json(call("evaluate --run run --json --quiet --precision int8").out);
  CHECK(coarse["loss"] != json["loss"]);
  CHECK(coarse["loss"].get<double>() == doctest::Approx(json["loss"].get<double>()).epsilon(0.05));

  const Result forced = call("evaluate --run run --data data --split dev --force --quiet");
  double sum = 0, tokens = 0;
  for (const std::string& line : lines_of(forced.out)) {
    std::istringstream in(line);
    double log_probability, count;
    in >> log_probability >> count;
    sum -= log_probability, tokens += count;
  }
  CHECK(lines_of(forced.out).size() == 40);
  const auto dev = parse_json(call("evaluate --run run --data data --split dev --json --quiet").out);
  CHECK(sum / tokens == doctest::Approx(dev["loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("cli: evaluate compares without case what a run has learned without case") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "data");
  for (const char* part : {"train", "dev", "test"}) {
    std::string letters;
    for (std::string line : lines_of(text_of(small().folder / ("data/" + std::string(part) + ".tsv")))) {
      line.resize(line.find('\t', line.find('\t') + 1));   // without the links
      for (char& c : line)
        if (c >= '0' && c <= '9') c = char('A' + (c - '0'));
      letters += line + "\n";
    }
    write_text(folder / ("data/" + std::string(part) + ".tsv"), letters);
  }
  const std::string train =
      "train --data data --layers 1 --width 16 --heads 2 --feed-forward 32 --batch-tokens 256 --steps 60 --warmup 20 --learning-rate 0.01 "
      "--quiet --out ";
  REQUIRE(heed_in(folder.path(), train + "run --lowercase").code == 0);
  const auto json = parse_json(heed_in(folder.path(), "evaluate --run run --data data --out translated --json --quiet").out);
  std::string references;
  // copies
  for (const std::string& line : lines_of(text_of(folder / "data/test.tsv"))) references += line.substr(0, line.find('\t')) + "\n";
  write_text(folder / "references", references);
  const auto score = [&](const std::string& how) {
    return parse_json(heed_in(folder.path(), "score --hypotheses translated --references references --json " + how).out);
  };
  CHECK(json["bleu"].get<double>() > 0);
  CHECK(json["bleu"] == score("--lowercase")["bleu"]);
  CHECK(json["chrf"] == score("--lowercase")["chrf"]);
  CHECK(json["exact"] == score("--lowercase")["exact"]);
  CHECK(json["chrf"] != score("")["chrf"]);
  // Where case counts, tokens are compared without it as well.
  REQUIRE(heed_in(folder.path(), train + "cased").code == 0);
  std::string lower = references;
  for (char& c : lower) c = char(std::tolower(c));
  write_text(folder / "lower", lower);
  const auto of_case = [&](const std::string& targets, const std::string& how) {
    return heed_in(folder.path(), "evaluate --run cased --quiet --files references " + targets + how).out;
  };
  const auto same = parse_json(of_case("references", " --json")), other = parse_json(of_case("lower", " --json"));
  CHECK(same["token_bleu"].get<double>() > 0);
  CHECK(same["token_bleu_lowercase"] == same["token_bleu"]);
  CHECK(other["token_bleu_lowercase"] == same["token_bleu"]);
  CHECK(other["token_bleu"] < same["token_bleu"]);
  CHECK(of_case("references", "").find("BLEU of lower-cased tokens") == std::string::npos);
  CHECK(
      of_case("lower", "").find(fmt::format("\nBLEU of lower-cased tokens {:.1f}  (nrefs:1|case:lc|", same["token_bleu"].get<double>())) !=
      std::string::npos);
}

TEST_CASE("cli: evaluate answers line n in line n") {
  const std::string& folder = small().folder.path();
  write_text(
      folder + "/some.s", "1 2\n\n3\t4\n5\n" + [] {
        std::string longer;
        for (int i = 0; i < 400; ++i) longer += "1 ";
        return longer;
      }() + "\n");
  write_text(folder + "/some.t", "1 2\n3\n3\t4\n\n1\n");
  const Result some = call("evaluate --run run --files some.s some.t --out some.out --json");
  CHECK(lines_of(text_of(folder + "/some.out")).size() == 5);
  const auto json = parse_json(some.out);
  CHECK(json["sentences"] == 5);
  CHECK(json["loss_sentences"] == 2);
  CHECK(some.err.find("1 of them left out as too long, 2 with an empty side") != std::string::npos);
  const std::vector<std::string> forced = lines_of(call("evaluate --run run --files some.s some.t --force --quiet").out);
  REQUIRE(forced.size() == 5);
  for (const std::string& line : forced) CHECK(std::ranges::count(line, '\t') == 3);
  CHECK(forced[4].starts_with("nan\t2\t1 1 "));
  const std::vector<std::string> forced_json = lines_of(call("evaluate --run run --files some.s some.t --force --json --quiet").out);
  REQUIRE(forced_json.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto pair = parse_json(forced_json[i]);
    CHECK(fmt::format("{}\t{}", i == 4 ? "nan" : fmt::format("{:.6f}", pair["log_probability"].get<double>()), pair["tokens"].get<int>()) ==
          forced[i].substr(0, forced[i].find('\t', forced[i].find('\t') + 1)));
    CHECK(pair["log_probability"].is_null() == (i == 4));
    CHECK(pair["source"].get<std::string>() == lines_of(text_of(folder + "/some.s"))[i]);
  }
  double sum = 0;
  for (const int i : {0, 2}) sum -= std::stod(forced[std::size_t(i)]);
  CHECK(sum / 6 == doctest::Approx(json["loss"].get<double>()).epsilon(1e-5));

  // Translations are compared where no pair gives a loss.
  write_text(folder + "/empty.t", "\n");
  write_text(folder + "/one.s", "1 2\n");
  CHECK(call("evaluate --run run --files one.s empty.t --quiet").out.starts_with("one.s + empty.t: 1 sentence, no loss: "));
  const auto no_loss = parse_json(call("evaluate --run run --files one.s empty.t --json --quiet").out);
  CHECK(no_loss["loss"].is_null());
  CHECK(no_loss["loss_sentences"] == 0);
  CHECK(no_loss["exact"] == 0);
  CHECK(call("evaluate --run run --files some.t some.s --out /dev/stdout --quiet").out.starts_with("some.t + some.s: 5 sentences, "));

  // Draws of one line differ from those of the same line further on, and are those of `heed translate`.
  std::string many;
  for (int i = 0; i < 300; ++i) many += "1 2 3\n";
  write_text(folder + "/many", many);
  CHECK(call("evaluate --run run --files many many --sample --temperature 3 --out many.out --quiet").code == 0);
  CHECK(text_of(folder + "/many.out") == call("translate --run run --sample --temperature 3 --quiet", many).out);
}

TEST_CASE("cli: data of the training that may not be looked at takes nothing but its warning and its links with it") {
  const std::string& folder = small().folder.path();
  fs::copy(folder + "/run", folder + "/apart", fs::copy_options::recursive);
  fs::create_symlink("circle", folder + "/circle");
  std::string config = text_of(folder + "/apart/config.json");
  const std::size_t begin = config.find("\"data\": \"") + 9;
  write_text(folder + "/apart/config.json", config.replace(begin, config.find('"', begin) - begin, folder + "/circle"));
  CHECK(call("evaluate --run apart --data data").code == 0);
  CHECK(call("attention --run apart --source 1 --out apart.txt").code == 0);
}

TEST_CASE("cli: score reads what it is given") {
  const std::string& folder = small().folder.path();
  write_text(folder + "/upper", "The Cat sat on it\n"), write_text(folder + "/lower", "the cat sat on it\n"),
      write_text(folder + "/a,b", "the cat sat on it\n");
  write_text(folder + "/latin", "caf\xe9 \xe0 la carte\n");
  const auto json = parse_json(call("score --hypotheses - --references a,b --lowercase --json", "The Cat sat on it\n").out);
  CHECK(json["exact"] == 100);
  write_text(folder + "/half-read", "read before\nThe Cat sat on it\n");
  run_program("cd '" + folder +
              "' && (read line; " HEED_BUILD_DIR
              "/examples/heed score --hypotheses - --references a,b --lowercase --json > rest.scores) < half-read");
  CHECK(parse_json(text_of(folder + "/rest.scores"))["exact"] == 100);
  CHECK(parse_json(call("score --hypotheses upper --references lower --lowercase=false --json=true").out)["exact"] == 0);
  CHECK(json["precisions"] == Json{100, 100, 100, 100});
  CHECK(json["chrf"] == 100);
  const auto others = parse_json(call("score --hypotheses upper --references lower --chrf-words --smooth floor --json").out);
  CHECK_MESSAGE(others["chrf_signature"].get<std::string>().find("|nw:2|") != std::string::npos, others);
  CHECK_MESSAGE(others["bleu_signature"].get<std::string>().find("|smooth:floor[0.10]|") != std::string::npos, others);
  CHECK(json["brevity_penalty"] == 1);
  CHECK(json["hypothesis_length"] == 5);
  CHECK(parse_json(call("score --hypotheses upper --references lower --json").out)["exact"] == 0);

  // "it." is one word, or two for 13a
  write_text(folder + "/point", "the cat sat on it.\n"), write_text(folder + "/parted", "the cat sat on it .\n");
  CHECK(parse_json(call("score --hypotheses point --references parted --json").out)["bleu"] == doctest::Approx(100));
  const auto as_it_is = parse_json(call("score --hypotheses point --references parted --tokenize none --json").out);
  CHECK(as_it_is["bleu_signature"].get<std::string>().find("|tok:none|") != std::string::npos);
  CHECK(as_it_is["precisions"][0] == doctest::Approx(80));
  CHECK(as_it_is["precisions"][3] == doctest::Approx(50));
  CHECK(as_it_is["reference_length"] == 6);
  write_text(folder + "/eleven", "1 2 3 4 5 6 7 8 9 10 11\n");
  CHECK(call("score --hypotheses point --references point --sources eleven")
            .out.ends_with("\n  11 to 20   words: BLEU 100.00  (1 sentence)\n"));
  const auto bucket = parse_json(call("score --hypotheses point --references point --sources eleven --json").out)["by_length"][0];
  CHECK(bucket["above"] == 10);
  CHECK(bucket["up_to"] == 20);
  CHECK(bucket["sentences"] == 1);
  CHECK(bucket["bleu"] == doctest::Approx(100));
  write_text(folder + "/letters", "a\nb\n");
  const std::string letters = "score --hypotheses letters --references letters --sources letters";
  CHECK(call(letters).out.ends_with("\n   1 to 10   words: BLEU 100.00  (2 sentences)\nlengths at which no reference has four tokens: their BLEU "
                                    "counts the orders there are (eff:yes)\n"));
  CHECK(parse_json(call(letters + " --json").out)["by_length"][0]["bleu_signature"].get<std::string>().find("|eff:yes|") !=
        std::string::npos);
  write_text(folder + "/three-words", "a b c\n");
  CHECK(call("score --hypotheses three-words --references three-words")
            .out.find("\nexact match 100.00 %  (1 of 1, by words)\nno hypothesis has four tokens: BLEU, as sacreBLEU has it, is 0 whatever "
                      "is right\n") != std::string::npos);
  CHECK(call("score --hypotheses latin --references lower").err == "latin: 2 invalid byte sequences replaced; is it UTF-8?\n");
}

TEST_CASE("cli: where no target has four words, right translations are the best") {
  REQUIRE(call("data copy --out three --symbols 12 --max-length 3 --train 800 --dev 60 --test 60").code == 0);
  const Result trained =
      call("train --data three --out of-three --steps 350 --evaluate-every 50 --width 32 --layers 1 --batch-tokens 500 --threads 1");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(trained.out.find("best dev BLEU 100.00 (") != trained.out.npos, trained.out);
  const Result measured = call("evaluate --run of-three");
  for (const char* line :
       {"\nBLEU 0.0  (", "\nBLEU of tokens 100.0  (nrefs:1|case:mixed|eff:yes|tok:none|", "\nno reference has four tokens: "})
    CHECK(measured.out.find(line) != measured.out.npos);
}
