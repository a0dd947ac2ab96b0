// SPDX-License-Identifier: Apache-2.0
// `heed compare`; stopped, it goes on with what is finished, and ends with the table that it would have made without.
#include <doctest/doctest.h>
#include <signal.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <regex>
#include <thread>

#include "models/run.h"
#include "tensor/json.h"
#include "tests/cli/small_run.h"

using namespace heed;

namespace fs = std::filesystem;

namespace {

// Results without what depends on the clock.
Json results(const std::string& printed) {
  Json all = parse_json(printed);
  for (auto& one : all) one.erase("step_ms");
  return all;
}

void sleep_ms(int n) { std::this_thread::sleep_for(std::chrono::milliseconds(n)); }

}  // namespace

TEST_CASE("cli: compare goes on after signals, one or two" * doctest::test_suite("slow")) {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 300 --dev 30 --test 300").code == 0);
  const std::string command =
      "compare --data data --attention none,dot,additive --width 8 --epochs 12 --batch-sentences 16 --threads 1 --json --out ";
  const Result whole = heed_in(folder.path(), command + "whole");
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  int n = 0;
  for (const auto& [number, twice] :
       {std::pair(SIGINT, false), std::pair(SIGTERM, false), std::pair(SIGINT, true), std::pair(SIGINT, true)}) {
    const std::string out = "compared" + std::to_string(++n), first = folder / (out + "/none-1.json");
    INFO(out);
    const int process =
        Program{.words = split(command + out), .folder = folder.path(), .under = {"sh", "-c", "exec \"$0\" \"$@\" 2>err"}}.start();
    for (int i = 0; i < 6000 && !fs::exists(first); ++i) sleep_ms(5);
    sleep_ms(40 * n);                                                     // in the training of the second, or after it
    ::kill(process, number);
    if (twice) sleep_ms(2), ::kill(process, number);
    CHECK(wait_for(process) == 128 + number);
    const std::string said = text_of(folder / "err");
    CHECK(said.find("heed train") == said.npos);
    if (!twice) CHECK(said.ends_with("\nfinished models are kept; the same command goes on\n"));
    REQUIRE(fs::exists(first));
    const std::string kept = text_of(first), before = listing(folder / (out + "/none-1"));
    CHECK(text_of(folder / (out + "/table.txt")).find("\nnone ") != std::string::npos);
    CHECK(!fs::exists(folder / (out + "/additive-1.json")));

    const Result again = heed_in(folder.path(), command + out);
    REQUIRE_MESSAGE(again.code == 0, again.err);
    CHECK(results(again.out) == results(whole.out));
    CHECK(text_of(first) == kept);
    CHECK((listing(folder / (out + "/none-1")) == before));
    for (const auto& entry : fs::recursive_directory_iterator(folder / out))
      CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
  }
}

TEST_CASE("cli: compare leaves out the numbers of what diverges, in training or after it") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 200 --dev 10 --test 10").code == 0);
  for (const auto& [name, options] :
       {std::pair<std::string, std::string>("additive", "--steps 10"), {"transformer", "--steps 60 --evaluate-every 60"}}) {
    const std::string command = "compare --data data --attention " + name +
                                ",dot --width 8 --batch-tokens 100 --optimizer sgd --learning-rate 1000000 --clip 0 --out c --json " +
                                options;
    INFO(command);
    const Result compared = heed_in(folder.path(), command);
    REQUIRE_MESSAGE(compared.code == 0, compared.err);
    const Json all = parse_json(compared.out);
    REQUIRE(all.size() == 2);
    CHECK(all[0]["bleu"].is_null());
    CHECK(all[0]["train_loss"].is_null());
    CHECK(all[1]["bleu"].is_number());
    CHECK((compared.err.find("warning: transformer, seed 1: no finite loss: 20 updates in a row") != std::string::npos) ==
          options.starts_with("--steps 60"));
    if (name == "additive") CHECK(compared.err.find("warning: additive, seed 1: ") != std::string::npos);
    CHECK(text_of(folder / "c/table.txt").find("\n" + name) != std::string::npos);
    CHECK(results(heed_in(folder.path(), command).out) == results(compared.out));
    fs::remove_all(folder / "c");
  }
}

TEST_CASE("cli: compare takes options from a file, which flags go before") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 60 --dev 9 --test 9").code == 0);
  write_text(
      folder / "c.json",
      R"({"data": "data", "attention": "dot,none", "model": "lstm", "seeds": 1, "bucket": 3, "steps": 5, "epochs": null, "width": 8, "batch-sentences": 8, "lowercase": true,
                                    "learning-rate": 0.0123456789, "optimizer": "adamw", "window": null, "decoder": "luong"})");
  const auto options_of = [&](const std::string& flags, const std::string& run) {
    const Result compared = heed_in(folder.path(), "compare --config c.json --quiet " + flags);
    REQUIRE_MESSAGE(compared.code == 0, compared.err);
    return parse_json(text_of(folder / run));
  };
  const Json dot = options_of("--out a", "a/dot-1/config.json");
  CHECK(dot["model"] == "lstm");
  CHECK(dot["decoder"] == "luong");
  CHECK(dot["steps"] == 5);
  CHECK(dot["epochs"].is_null());
  CHECK(dot["batch-sentences"] == 8);
  CHECK(dot["batch-tokens"].is_null());
  CHECK(dot["lowercase"] == true);
  CHECK(dot["learning-rate"] == 0.0123456789);
  CHECK(dot["weight-decay"] == 0.01);                                     // adamw's
  CHECK(text_of(folder / "a/table.txt").find(" 1 to 3 ") != std::string::npos);
  CHECK(fs::exists(folder / "a/none-1/config.json"));
  const Json transformer = options_of("--out b --attention transformer,general --epochs 1 --batch-tokens 64 --lowercase=false --heads 2",
                                      "b/transformer-1/config.json");
  CHECK(transformer["steps"].is_null());
  CHECK(transformer["epochs"] == 1);
  CHECK(transformer["batch-tokens"] == 64);
  CHECK(transformer["batch-sentences"].is_null());
  CHECK(transformer["lowercase"] == false);
  CHECK(transformer["learning-rate"] == 0.0123456789);
  CHECK(!fs::exists(folder / "b/dot-1"));
}

TEST_CASE("cli: compare counts characters where they are the tokens") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data numbers --out data --train 20 --dev 2 --test 2").code == 0);
  const Result compared =
      heed_in(folder.path(), "compare --data data --attention dot --tokenizer char --steps 1 --width 8 --bucket 100 --out c");
  REQUIRE_MESSAGE(compared.code == 0, compared.err);
  CHECK(compared.out.find("  mult-adds/character  ") != std::string::npos);
  CHECK(compared.err.find("counts batches") == std::string::npos);
  const std::string both = "compare --data data --attention dot,transformer --layers 1 --heads 2 --width 8 --out d";
  CHECK(heed_in(folder.path(), both + " --steps 1").err.find(
            "--steps counts batches: of 64 sentences in dot, of 2048 tokens in transformer; --epochs gives all the same data\n") !=
        std::string::npos);
  CHECK(heed_in(folder.path(), both + "2 --epochs 1").err.find("counts batches") == std::string::npos);
  CHECK(compared.out.find("\nBLEU of tokens by source characters (sentences), test\n") != std::string::npos);
  for (const char* shown : {"Buckets of 100 characters;", ">source characters<"})
    CHECK_MESSAGE(text_of(folder / "c/length.svg").find(shown) != std::string::npos, shown);
}

TEST_CASE("cli: compare") {
  const std::string command =
      "compare --data data --attention none,additive,general,transformer --out compared --epochs 1 --width 16 --layers 1 --heads 2 "
      "--feed-forward 32 --start eos --seeds 2 --bucket 3";
  const Result first = call(command);
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const std::vector<std::string> table = lines_of(first.out);
  CHECK(table[0].starts_with("attention "));
  CHECK(table[1].starts_with("none "));
  CHECK(table[4].starts_with("transformer "));
  CHECK(!std::regex_search(first.out, std::regex(" [0-9]{4} ")));   // "7,932" as "20,228" beside it
  for (const char* run : {"additive-1", "transformer-1"})
    CHECK(parse_json(text_of(small().folder / ("compared/" + std::string(run) + "/config.json")))["start"] == "eos");
  CHECK(first.out.find("BLEU by source words (sentences), test\n") != first.out.npos);
  CHECK(text_of(small().folder / "compared/table.txt") == first.out);
  for (const char* file : {"bleu.svg", "length.svg"}) {
    const std::string svg = text_of(small().folder / (std::string("compared/") + file));
    CHECK(svg.starts_with("<svg"));
    for (const char* word : {"Means", "whiskers:", " ± "}) CHECK(svg.find(word) != svg.npos);
  }
  CHECK(text_of(small().folder / "compared/bleu.svg").find(" allow: ") != std::string::npos);   // of models this small
  const std::vector<std::string> csv = lines_of(text_of(small().folder / "compared/table.csv"));
  CHECK(csv.size() == 9);
  CHECK(csv[0].starts_with("attention,seed,parameters,width,"));
  const auto all = parse_json(call(command + " --json --quiet").out);
  REQUIRE(all.size() == 8);
  const double wanted = all[0]["parameters"];
  for (const auto& one : all) {
    CHECK(std::abs(one["parameters"].get<double>() / wanted - 1) < 0.25);        // of models this small a step of the width is much
    CHECK(one["dev_loss"].get<double>() > 0);
    CHECK(one["entropy"].is_null() == (one["name"] == "none"));
  }
  const double a = all[0]["dev_loss"], b = all[1]["dev_loss"];                     // none's two seeds
  CHECK(table[1].find(fmt::format("{:.4f} ±{:.4f}", (a + b) / 2, std::abs(a - b) / std::sqrt(2.0))) != table[1].npos);
  // What is finished is kept; a lost table is made again from the runs, without training.
  const std::string before = listing(small().folder / "compared");
  const Result again = call(command);
  CHECK(again.out == first.out);
  CHECK(again.err.find("general, seed 2 (7 of 8): width ") != again.err.npos);
  CHECK(again.err.find("update") == again.err.npos);
  fs::remove(small().folder / "compared/general-1.json");
  CHECK(call(command + " --quiet").code == 0);
  const Result shorter = call("compare --data data --attention concat,none,general --out compared --steps 1 --width 16 --layers 1");
  CHECK(shorter.code == 2);
  CHECK(std::regex_search(
      shorter.err, std::regex("trained beyond the limit: compared/none-1 has ([0-9]+) updates: --steps 1; --steps \\1, or another --out")));
  CHECK(!fs::exists(small().folder / "compared/concat-1"));
  const Result sooner = call(command + " --patience 1");
  CHECK(sooner.code == 2);
  CHECK_MESSAGE(sooner.err.find(": --patience 1; --patience 1000000000, or another --out") != sooner.err.npos, sooner.err);
  const Result other = call(command + " --dropout 0.3");
  CHECK(other.code == 2);
  CHECK(other.err.find("contradicts the run: --dropout 0.3, stored in compared/none-1 is ") != other.err.npos);
}

TEST_CASE("cli: compare gives a model the first one's width where that comes nearest, and says which pairs it leaves out") {
  const Result odd = call("compare --data data --attention dot,scaled-dot,general --width 6 --steps 1 --max-length 3 --out odd --json");
  REQUIRE_MESSAGE(odd.code == 0, odd.err);
  for (const auto& one : parse_json(odd.out)) CHECK(one["width"] == 6);
  CHECK(std::regex_search(odd.err, std::regex("data/test.tsv: 40 pairs, [1-9][0-9]? of them left out as too long\n")));
}

TEST_CASE("cli: compare counts no result of other data") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 10 --test 10").code == 0);
  const auto again = [&](const std::string& options = "") {
    return heed_in(folder.path(), "compare --data data --attention none --steps 1 --width 8 --out compared" + options);
  };
  const auto is_new = [](const Result& result) { return result.code == 0 && result.err.find("done before") == result.err.npos; };
  CHECK(is_new(again()));
  CHECK(!is_new(again()));
  for (const std::string options : {" --bucket 2", " --split dev", ""}) {             // measured in another way
    CHECK(is_new(again(options)));
    CHECK(!is_new(again(options)));
  }
  std::string test = text_of(folder / "data/test.tsv");
  // another pair; another link
  for (const std::string& other : {test + "1\t1\n", test.replace(test.find("\t0-0 1-1"), 8, "\t0-1 1-1")}) {
    write_text(folder / "data/test.tsv", other);
    CHECK(is_new(again()));
    CHECK(!is_new(again()));
  }
  for (const std::string part : {"data/dev.tsv", "data/train.tsv"}) {
    const std::string text = text_of(folder / part);
    write_text(folder / part, text + "1\t1\n");
    const Result refused = again();
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find("the data has changed since compared/none-1/checkpoints/1.safetensors was written") != std::string::npos,
                  refused.err);
    write_text(folder / part, text);
  }
}

TEST_CASE("cli: compare keeps no picture of a table before, and says what a decoder without attention is") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 10 --test 10").code == 0);
  const auto compare = [&](const std::string& names) {
    const Result result = heed_in(folder.path(), "compare --data data --steps 1 --width 8 --decoder luong --out c --attention " + names);
    CHECK_MESSAGE(result.code == 0, result.err);
    return result.err;
  };
  CHECK(compare("dot").find("without attention") == std::string::npos);
  CHECK(fs::exists(folder / "c/alignment.svg"));
  CHECK(compare("none").find("none: --decoder luong without attention is sutskever\n") != std::string::npos);
  CHECK(fs::exists(folder / "c/bleu.svg"));
  CHECK(!fs::exists(folder / "c/alignment.svg"));
}

TEST_CASE(
    "cli: compare: milliseconds of an update are those of all updates, whatever lies between evaluations; a limit in epochs counts a begun "
    "one") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 10 --test 10").code == 0);
  const auto compare = [&](const std::string& limit) {
    return heed_in(
        folder.path(),
        "compare --data data --attention none --evaluate-every 6 --batch-sentences 10 --width 8 --json --quiet --out c " + limit);
  };
  REQUIRE(compare("--steps 9").code == 0);
  std::string log = text_of(folder / "c/none-1/metrics.jsonl");
  for (std::size_t at = 0, n = 0; (at = log.find("\"update_ms\": ", at)) != log.npos; at += 22)
    log.replace(at + 13, 9, n++ == 0 ? "    2.000" : "    5.000");
  write_text(folder / "c/none-1/metrics.jsonl", log);
  fs::remove(folder / "c/none-1.json");
  CHECK(parse_json(compare("--steps 9").out)[0]["step_ms"] == 3);
  const Result less = compare("--epochs 1");
  CHECK_MESSAGE(less.err.find("c/none-1 has 9 updates: --epochs 1; --epochs 2, or another --out") != std::string::npos, less.err);
}

TEST_CASE("cli: compare goes on with no run of other options, and with no folder of another's") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 10 --test 10").code == 0);
  const std::string brief = "compare --data data --attention transformer --width 8 --quiet --out ",
                    line = "compare --data data --attention transformer --width 8 --quiet --steps 1 --out ";
  REQUIRE(heed_in(folder.path(), line + "c --sliding-window 1").code == 0);
  for (const std::string other : {"", " --sliding-window 2", " --sliding-window 1 --decoder-layers 1"}) {
    const Result result = heed_in(folder.path(), line + "c" + other);
    CHECK(result.code == 2);
    CHECK_MESSAGE(result.err.find("contradicts the run: --") != result.err.npos, result.err);
  }
  CHECK(heed_in(folder.path(), line + "c --sliding-window 1").code == 0);
  for (const char* steps : {"3", "4"}) {                       // the first of them fixes where the schedule ends
    const Result result = heed_in(folder.path(), brief + "cosine --schedule cosine --warmup 1 --steps " + steps);
    CHECK_MESSAGE(result.code == 0, result.err);
  }
  fs::create_directory(folder / "mine");
  write_text(folder / "mine/table.txt", "precious");
  const Result mine = heed_in(folder.path(), line + "mine");
  CHECK(mine.code == 2);
  CHECK_MESSAGE(mine.err.find("exists, is not empty and no comparison: --out mine") != mine.err.npos, mine.err);
  CHECK(text_of(folder / "mine/table.txt") == "precious");
}

TEST_CASE("cli: compare takes over what an end within a write leaves") {
  for (const char* left : {"before", "after"}) {
    fs::create_directory(small().folder / left);
    write_text(small().folder / (std::string(left) + "/.heed-tmp-1-2f"), "half");
  }
  write_text(small().folder / "after/table.txt", "the first of its files");
  write_text(small().folder / "after/lock", "1");
  for (const std::string left : {"before", "after"}) {
    const Result result = call("compare --data data --attention none --steps 1 --width 8 --quiet --out " + left);
    CHECK_MESSAGE(result.code == 0, result.err);
    CHECK(!fs::exists(small().folder / (left + "/.heed-tmp-1-2f")));
    // While another is at work, neither its files nor its table are touched.
    const RunLock another(small().folder / left);
    write_text(small().folder / (left + "/.heed-tmp-1-30"), "half");
    const std::string before = listing(small().folder / left);
    const Result second = call("compare --data data --attention none,dot --steps 1 --width 8 --quiet --out " + left);
    CHECK(second.code == 2);
    CHECK_MESSAGE(second.err.starts_with("heed compare: another training holds " + left + ": process "), second.err);
    CHECK((listing(small().folder / left) == before));
    CHECK(text_of(small().folder / (left + "/bleu.svg")).find(" nearly ") != std::string::npos);
  }
}
