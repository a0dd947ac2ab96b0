// SPDX-License-Identifier: Apache-2.0
// `heed compare` that was stopped goes on with what is finished, and ends with the table that it would have made without.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tensor/json.h"
#include "tests/cli/program.h"

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
  const std::string command = "compare --data data --attention none,dot,additive --width 8 --epochs 12 --batch-sentences 16 --threads 1 --json --out ";
  const Result whole = heed_in(folder.path(), command + "whole");
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  int n = 0;
  for (const auto& [number, twice] : {std::pair(SIGINT, false), std::pair(SIGTERM, false), std::pair(SIGINT, true), std::pair(SIGINT, true)}) {
    const std::string out = "compared" + std::to_string(++n), first = folder / (out + "/none-1.json");
    INFO(out);
    const int process = Program{.words = split(command + out), .folder = folder.path(), .under = {"sh", "-c", "exec \"$0\" \"$@\" 2>err"}}.start();
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
    for (const auto& entry : fs::recursive_directory_iterator(folder / out)) CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
  }
}

TEST_CASE("cli: compare leaves out the numbers of what diverges, in training or after it") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 200 --dev 10 --test 10").code == 0);
  for (const auto& [name, options] : {std::pair<std::string, std::string>("additive", "--steps 10"), {"transformer", "--steps 60 --evaluate-every 60"}}) {
    const std::string command = "compare --data data --attention " + name + ",dot --width 8 --batch-tokens 100 --optimizer sgd --learning-rate 1000000 --clip 0 --out c --json " + options;
    INFO(command);
    const Result compared = heed_in(folder.path(), command);
    REQUIRE_MESSAGE(compared.code == 0, compared.err);
    const Json all = parse_json(compared.out);
    REQUIRE(all.size() == 2);
    CHECK(all[0]["bleu"].is_null());
    CHECK(all[0]["train_loss"].is_null());
    CHECK(all[1]["bleu"].is_number());
    CHECK((compared.err.find("warning: transformer, seed 1: no finite loss: 20 updates in a row") != std::string::npos) == options.starts_with("--steps 60"));
    CHECK(text_of(folder / "c/table.txt").find("\n" + name) != std::string::npos);
    CHECK(results(heed_in(folder.path(), command).out) == results(compared.out));
    fs::remove_all(folder / "c");
  }
}
