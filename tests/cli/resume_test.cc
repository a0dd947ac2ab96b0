// SPDX-License-Identifier: Apache-2.0
// A training that was stopped, killed or given more updates goes on as if nothing had happened: the same bits of weights, optimiser
// state and log, for any number of threads.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "models/run.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tests/cli/tiny_training.h"
#include "tests/close.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

void train(const TemporaryFolder& folder, const std::string& options) {
  const std::string batch = options.find("--batch") == options.npos ? "--batch-tokens 64 " : "";
  const Result result = heed_in(folder.path(), "train" + kTiny + batch + options);
  REQUIRE_MESSAGE(result.code == 0, result.err);
}

void go_on(const TemporaryFolder& folder, const std::string& options) {
  const Result result = heed_in(folder.path(), "train --resume --quiet " + options);
  REQUIRE_MESSAGE(result.code == 0, result.err);
}

void check_same(const TemporaryFolder& folder, const std::string& a, const std::string& b, int step) {
  const std::string file = "/checkpoints/" + std::to_string(step) + ".safetensors";
  CHECK((text_of(folder / (a + file)) == text_of(folder / (b + file))));
  CHECK((text_of(folder / (a + "/best.safetensors")) == text_of(folder / (b + "/best.safetensors"))));
  CHECK(log_without_timing(folder / a) == log_without_timing(folder / b));
}

void wait_for_checkpoint(const TemporaryFolder& folder, const std::string& run) {
  for (int i = 0; i < 3000 && checkpoint_steps(folder / run).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

TEST_CASE("resume: 2 N updates are N and N more, for every optimiser and schedule") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  int n = 0;
  for (const std::string options :
       {"--optimizer adam", "--optimizer adamw --weight-decay 0.1 --average 0.9",
        "--optimizer sgd --momentum 0.9 --schedule linear --schedule-steps 60", "--optimizer adagrad --schedule step --schedule-steps 8",
        "--optimizer adadelta --learning-rate 1 --schedule cosine --schedule-steps 70",
        "--optimizer rmsprop --momentum 0.5 --schedule plateau --best-by loss", "--schedule noam --learning-rate 0.5 --accumulate 3",
        "--schedule constant --batch-sentences 5 --accumulate 2", "--patience 3 --learning-rate 0"}) {
    INFO(options);
    const std::string a = "a" + std::to_string(++n), b = "b" + std::to_string(n);
    train(folder, options + " --steps 52 --out " + a);
    train(folder, options + " --steps 26 --out " + b);                 // in the middle of an epoch, between evaluations
    go_on(folder, "--steps 52 --save-every 3 --out " + b);
    check_same(folder, a, b, options.starts_with("--patience") ? 28 : 52);
  }
  // A run that is done is done, and is changed by nothing but a farther limit.
  const std::string before = listing(folder / "a1");
  const Result done = heed_in(folder.path(), "train --resume --out a1");
  CHECK(done.code == 0);
  CHECK(done.err == "a1 is finished: 52 updates (steps)\n");
  CHECK((listing(folder / "a1") == before));
  // What is lost of it and can be made again, is.
  const std::string best = text_of(folder / "a1/best.safetensors");
  fs::remove(folder / "a1/best.safetensors");
  CHECK(heed_in(folder.path(), "train --resume --out a1").code == 0);
  CHECK(text_of(folder / "a1/best.safetensors") == best);
  // It prints its result as at the end, that of an evaluation after the last checkpoint too.
  const auto result = [&](const std::string& line) {
    auto json = parse_json(heed_in(folder.path(), line + " --quiet --json").out);
    CHECK(json["seconds"].is_number());
    json.erase("seconds");
    return json;
  };
  const auto ended = result(
      "train --data data --out best --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 5 --steps 9 --evaluate-every 7 --seed 2");
  CHECK(ended["steps"] == 9);
  CHECK(ended["best"]["step"] == 9);
  CHECK(result("train --resume --out best") == ended);
}

TEST_CASE("train: the best model is that of the highest BLEU, or of the lowest loss") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  int flags_differ = 0;
  for (const std::string by : {"bleu", "loss"}) {
    CAPTURE(by);
    train(folder, "--steps 90 --learning-rate 0.03 --best-by " + by + " --out " + by);
    double best_bleu = -1, best_loss = INFINITY;
    Index best = 0;
    for (const std::string& line : lines_of(text_of(folder / (by + "/metrics.jsonl")))) {
      const Json json = parse_json(line);
      if (json["event"] != "dev") continue;
      const double bleu = json["bleu"], loss = json["loss"];
      const bool higher = bleu > best_bleu, lower = loss < best_loss;
      const bool better = by == "loss" ? lower || (loss == best_loss && higher) : higher || (bleu == best_bleu && lower);
      CHECK(json["best"] == better);
      flags_differ += higher != lower;
      if (better) best_bleu = bleu, best_loss = loss, best = json["step"];
    }
    CHECK(best_step(open_run(folder / by)) == best);
  }
  CHECK(flags_differ > 0);
}

TEST_CASE("resume: a run of the first format is read, evaluated, and goes on") {
  const TemporaryFolder folder;
  fs::copy(HEED_SOURCE_DIR "/tests/golden/run", folder.path(), fs::copy_options::recursive);
  CHECK(heed_in(folder.path(), "inspect run").code == 0);
  const Json scores = parse_json(heed_in(folder.path(), "evaluate --run run --data data --json --quiet").out);
  CHECK(scores["loss"].get<double>() == doctest::Approx(2.3673591180281206).epsilon(1e-5));
  const Result longer = heed_in(folder.path(), "train --out run --resume --data data --steps 6 --json --quiet");
  REQUIRE_MESSAGE(longer.code == 0, longer.err);
  CHECK(parse_json(longer.out)["steps"] == 6);
  CHECK(checkpoint_steps(folder / "run").back() == 6);
}

TEST_CASE("resume: epochs, and a run that ends between evaluations") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const std::string by_epoch = " --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --batch-tokens 64 --warmup 5 --quiet ";
  REQUIRE(heed_in(folder.path(), "train --epochs 4 --out a" + by_epoch).code == 0);
  REQUIRE(heed_in(folder.path(), "train --epochs 2 --out b" + by_epoch).code == 0);
  REQUIRE(heed_in(folder.path(), "train --resume --epochs 4 --out b --quiet").code == 0);
  REQUIRE(heed_in(folder.path(), "train --steps 9 --out c" + by_epoch).code == 0);
  CHECK(best_step(open_run(folder / "c")) == 9);                        // the evaluation at its end
  const std::string best = text_of(folder / "c/best.safetensors");
  const Result longer = heed_in(folder.path(), "train --resume --epochs 4 --out c --quiet");
  REQUIRE(longer.code == 0);
  CHECK(longer.err == "warning: the best model was that of update 9, evaluated only because the training before ended there; this one goes "
                      "on as if it had not, by its own evaluations: that model is kept as c/best.safetensors.old\n");
  CHECK(text_of(folder / "c/best.safetensors.old") == best);
  const auto last = checkpoint_steps(folder / "a").back();
  check_same(folder, "a", "b", int(last));
  check_same(folder, "a", "c", int(last));
}

TEST_CASE("resume: best weights that are lost come back from their checkpoint, by all names of what is tied") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 8 --tie all --out run");
  const std::string best = text_of(folder / "run/best.safetensors");
  CHECK(!best.empty());
  fs::remove(folder / "run/best.safetensors");
  go_on(folder, "--steps 8 --out run");
  CHECK((text_of(folder / "run/best.safetensors") == best));
}

TEST_CASE("resume: limits that are flags go before those of a file, at the beginning and later") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  write_text(folder / "limits.json", "{\"steps\": 4}");
  train(folder, "--config limits.json --out run");
  CHECK(checkpoint_steps(folder / "run").back() == 4);
  go_on(folder, "--config limits.json --epochs 2 --out run");
  CHECK(checkpoint_steps(folder / "run").back() > 4);
  CHECK(!open_run(folder / "run").config.steps);
}

TEST_CASE("resume: a training that ended by patience goes on with more of it") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const std::string flat = "--learning-rate 0 --steps 100 ";             // the first evaluation, at update 7, is the best
  train(folder, flat + "--patience 5 --out whole");
  train(folder, flat + "--patience 2 --out run");
  CHECK(checkpoint_steps(folder / "run").back() == 21);
  go_on(folder, "--patience 5 --out run");
  check_same(folder, "whole", "run", 42);
  CHECK(open_run(folder / "run").config.patience == 5);
  go_on(folder, "--patience 3 --out run");                               // it has waited longer
  CHECK(checkpoint_steps(folder / "run").back() == 42);
}

TEST_CASE("resume: clipping, micro-batches and averages reach the training") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const auto last = [&](const std::string& run) { return checkpoint_steps(folder / run).back(); };
  const auto same_weights = [&](const std::string& a, const std::string& b) {
    const auto one = read_checkpoint(open_run(folder / a), last(a)).tensors, other = read_checkpoint(open_run(folder / b), last(b)).tensors;
    return std::ranges::all_of(one, [&](const auto& tensor) { return equal_bits(tensor.second, other.at(tensor.first)); });
  };
  train(folder, "--steps 3 --optimizer sgd --clip 0 --out free");
  train(folder, "--steps 3 --optimizer sgd --clip 0.001 --out held");
  train(folder, "--steps 3 --optimizer sgd --clip 1e9 --out loose");
  CHECK_FALSE(same_weights("free", "held"));
  CHECK(same_weights("free", "loose"));
  train(folder, "--epochs 1 --out one");
  train(folder, "--epochs 1 --accumulate 2 --out two");
  CHECK(last("two") == (last("one") + 1) / 2);
  for (const std::string run : {"--evaluate-every 1 --out often", "--evaluate-every 6 --out once"})
    REQUIRE(heed_in(folder.path(),
                    "train --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 5 --quiet --batch-tokens 64 --steps 6 "
                    "--average 0.9 " +
                        run)
                .code == 0);
  CHECK(same_weights("once", "often"));
}

TEST_CASE("resume: the loss of updates in the log is that of all their tokens, whatever stood together and however often it stopped") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  std::string pairs;
  for (int i = 0; i < 100; ++i) pairs += (i % 2 ? "1\t2\n" : "1 2 3 1 2 3 1 2 3\t1 1 1 2 2 2 3 3 3\n");
  for (const char* part : {"train", "dev"}) write_text(folder / ("data/" + std::string(part) + ".tsv"), pairs);
  // Nothing is learned, so that an epoch of 50 updates is an evaluation.
  const std::string still = "--batch-sentences 2 --learning-rate 0 --dropout 0 --label-smoothing 0 ";
  train(folder, still + "--epochs 1 --out run");
  train(folder, still + "--steps 20 --out stopped");
  go_on(folder, "--steps 50 --out stopped");
  for (const char* run : {"run", "stopped"}) {
    double loss = 0, dev_loss = -1;
    Index tokens = 0;
    for (const std::string& line : lines_of(text_of(folder / (std::string(run) + "/metrics.jsonl")))) {
      const auto json = parse_json(line);
      if (json["event"] == "update") loss = json["loss"], tokens = json["tokens"];
      if (json["event"] == "dev" && json["step"] == 50) dev_loss = json["loss"];
    }
    CHECK(tokens == 50 * (10 + 2));
    CHECK(loss == doctest::Approx(dev_loss).scale(0).epsilon(1e-6));
  }
}

TEST_CASE("resume: the time since the last line of the log counts") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const std::string seldom =
      " --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 5 --evaluate-every 1000000 --quiet --json ";
  // A training that ended by its time is finished.
  REQUIRE(heed_in(folder.path(), "train --minutes 0.01 --out timed" + seldom).code == 0);
  const std::string before = listing(folder / "timed");
  CHECK(heed_in(folder.path(), "train --resume --out timed").err.find("timed is finished: ") == 0);
  CHECK((listing(folder / "timed") == before));
  // What was trained before the first line is not lost.
  const Result first = heed_in(folder.path(), "train --steps 10 --out run" + seldom);
  REQUIRE(first.code == 0);
  const auto stored = parse_json(text_of(folder / "run/seconds.json"));
  CHECK(stored["step"] == 10);
  CHECK(stored["seconds"] > 0);
  CHECK(stored["seconds"] <= parse_json(first.out)["seconds"].get<double>() + 0.051);
  int steps = 10;
  const std::string spaces(2000, ' ');
  for (const auto& [text, counts] :
       {std::pair("{\"step\": 10, \"seconds\": 1000.5}\n", true), std::pair("{\"step\": 10000, \"seconds\": 1000.5}\n", false),
        std::pair("{\"step\": 10}", false), std::pair("x", false), std::pair(spaces.c_str(), false)}) {
    const std::string holds = text;   // clang 14 captures no structured binding
    CAPTURE(holds);
    write_text(folder / "run/seconds.json", holds);
    const Result on = heed_in(folder.path(), "train --resume --quiet --json --out run --steps " + std::to_string(++steps));
    REQUIRE_MESSAGE(on.code == 0, on.err);
    CHECK((parse_json(on.out)["seconds"].get<double>() > 1000) == counts);
  }
  // The limit of a comparison counts the same time.
  const std::string compare = "compare --data data --attention none --width 8 --quiet --out compared";
  REQUIRE(heed_in(folder.path(), compare + " --steps 1").code == 0);
  write_text(folder / "compared/none-1/seconds.json", "{\"step\": 1, \"seconds\": 1000.5}\n");
  const Result beyond = heed_in(folder.path(), compare + " --minutes 1");
  CHECK(beyond.code == 2);
  CHECK_MESSAGE(beyond.err.find("compared/none-1 has 1 update: --minutes 1; --minutes 17, or another --out") != std::string::npos,
                beyond.err);
}

TEST_CASE("resume: with a limit that is passed, an evaluation shows no loss of updates, and the warm-up is over") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 10 --out run");
  const std::string log = text_of(folder / "run/metrics.jsonl");
  write_text(folder / "run/metrics.jsonl", log.substr(0, log.find("{\"event\": \"end\"")));   // killed before its end
  const Result on = heed_in(folder.path(), "train --resume --steps 3 --out run");
  CHECK(on.code == 0);
  CHECK_MESSAGE(on.err.find("warm-up") == std::string::npos, on.err);
  CHECK_MESSAGE(on.err.find("step 10 of 3, epoch ") != std::string::npos, on.err);
  CHECK_MESSAGE(on.err.find(", loss ") == std::string::npos, on.err);
}

TEST_CASE("resume: auto is no other value, nor a folder of that name") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 7 --final-norm always --out run");
  const Result norm = heed_in(folder.path(), "train --resume --steps 8 --final-norm auto --out run");
  CHECK(norm.code == 2);
  CHECK_MESSAGE(norm.err.find("contradicts the run: --final-norm auto, stored in run is always") != norm.err.npos, norm.err);
  fs::create_directory(folder / "auto");
  for (const char* part : {"train.tsv", "dev.tsv", "test.tsv"}) write_text(folder / ("auto/" + std::string(part)), "1\t1\n");
  const Result data = heed_in(folder.path(), "train --resume --steps 8 --data auto --out run");
  CHECK(data.code == 2);
  CHECK_MESSAGE(data.err.find("the data has changed") != data.err.npos, data.err);
}

TEST_CASE("resume: the data has moved") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 21 --out whole");
  train(folder, "--steps 14 --out run");
  fs::rename(folder / "data", folder / "elsewhere");
  CHECK(heed_in(folder.path(), "train --resume --out run --steps 21").err.find("no such directory: --data ") != std::string::npos);
  go_on(folder, "--steps 21 --data elsewhere --out run");
  check_same(folder, "whole", "run", 21);
  CHECK(open_run(folder / "run").config.data.ends_with("/elsewhere"));
  CHECK(heed_in(folder.path(), "evaluate --run run --quiet").code == 0);
  write_text(folder / "elsewhere/dev.tsv", text_of(folder / "elsewhere/dev.tsv") + "1\t1\n");
  const Result changed = heed_in(folder.path(), "train --resume --out run --steps 28");
  CHECK(changed.code == 2);
  CHECK_MESSAGE(changed.err.find("/elsewhere/dev.tsv; the data that") != std::string::npos, changed.err);
}

TEST_CASE("resume: updates beyond the end of a schedule are warned of") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  for (const std::string schedule : {"cosine", "linear"}) {
    train(folder, "--schedule " + schedule + " --steps 7 --out " + schedule);
    const Result on = heed_in(folder.path(), "train --resume --steps 9 --out " + schedule);
    CHECK_MESSAGE(on.err.find("warning: nothing is learned after update 7, where --schedule " + schedule +
                              " ends with a learning rate of 0; ") != std::string::npos,
                  on.err);
    const Result within = heed_in(
        folder.path(), "train --data data --width 8 --heads 2 --feed-forward 8 --warmup 2 --schedule-steps 9 --steps 9 --schedule " +
                           schedule + " --out within-" + schedule);
    CHECK_MESSAGE(within.code == 0, within.err);
    CHECK(within.err.find("warning: nothing") == std::string::npos);
  }
}

namespace {

const std::string kFamilies[] = {"--dropout 0.3 --accumulate 2 --average 0.9 --schedule plateau --patience 40",
                                 "--model rnn --attention none --decoder cho --dropout 0.2 --optimizer sgd --momentum 0.9",
                                 "--model lstm --attention none --decoder sutskever --layers 2 --accumulate 2 --schedule plateau",
                                 "--model gru --attention additive --decoder bahdanau --dropout 0.2 --average 0.9",
                                 "--model lstm --attention general --decoder luong --input-feeding --dropout 0.2 --patience 40"};

// Wide enough for the work to be cut into pieces.
void same_for_any_threads(int steps) {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  for (const std::string& family : kFamilies) {
    INFO(family);
    const std::string wide =
        "train --data data --width 32 --evaluate-every 1000 --quiet " + family +
        (family.starts_with("--model") ? " --batch-sentences 32" : " --batch-tokens 512 --warmup 5 --feed-forward 64") + " --steps " +
        std::to_string(steps) + " --threads ";
    for (const int threads : {1, 2, 3, 7}) {
      const std::string run = "t" + std::to_string(threads);
      fs::remove_all(folder / run);
      const Result result = heed_in(folder.path(), wide + std::to_string(threads) + " --out " + run);
      REQUIRE_MESSAGE(result.code == 0, result.err);
      check_same(folder, "t1", run, steps);
    }
  }
}

bool catches(int process, int number) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:")) return std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1;
  return true;                                     // it is gone
}

// Stops after each update, and goes on.
void same_after_every_stop(int steps) {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  int n = 0;
  for (const std::string& family : kFamilies) {
    INFO(family);
    const std::string a = "a" + std::to_string(++n), b = "b" + std::to_string(n);
    const std::string tiny =
        "train --data data --width 8 --evaluate-every 7 --quiet --threads 1 --keep 1000 " + family +
        (family.starts_with("--model") ? " --batch-sentences 9" : " --heads 2 --feed-forward 8 --batch-tokens 64 --warmup 5") + " --out ";
    REQUIRE(heed_in(folder.path(), tiny + a + " --save-every 1 --steps " + std::to_string(steps)).code == 0);
    for (int step = 1; step <= steps; ++step) {
      const std::string file = "/checkpoints/" + std::to_string(step) + ".safetensors";
      const Result result =
          heed_in(folder.path(), (step == 1 ? tiny + b : "train --resume --quiet --out " + b) + " --steps " + std::to_string(step));
      REQUIRE_MESSAGE(result.code == 0, result.err);
      CHECK((text_of(folder / (a + file)) == text_of(folder / (b + file))));
    }
    check_same(folder, a, b, steps);
  }
}

}  // namespace

TEST_CASE("resume: the same bits for 1, 2, 3 and 7 threads, in every family of models") { same_for_any_threads(20); }
TEST_CASE("resume: the same bits for 1, 2, 3 and 7 threads after 200 updates" * doctest::skip()) { same_for_any_threads(200); }
TEST_CASE("resume: the same bits after a stop at every update, in every family of models") { same_after_every_stop(8); }
TEST_CASE("resume: the same bits after a stop at each of 50 updates" * doctest::skip()) { same_after_every_stop(50); }

TEST_CASE("resume: the first signal saves, a second one leaves at once") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  for (const int number : {0, SIGINT, SIGHUP}) {
    const std::string run = "run" + std::to_string(number);
    const int process =
        Program{.words = split("train --data data --width 8 --heads 2 --steps 1000000 --evaluate-every 1000000 --quiet --out " + run),
                .folder = folder.path()}
            .start();
    while (!fs::exists(folder / (run + "/config.json")) || !catches(process, SIGTERM))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(process, SIGSTOP);                      // so that it meets both at the same moment
    ::kill(process, SIGTERM);
    if (number != 0) ::kill(process, number);
    ::kill(process, SIGCONT);
    const int code = wait_for(process);
    CHECK((code == 143 || (number != 0 && code == 128 + number)));
    CHECK(checkpoint_steps(folder / run).size() == (number == 0 ? 1 : 0));
  }
}

TEST_CASE("resume: after signals and kills at any time") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 120 --keep 1000 --out whole");
  int n = 0;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGKILL, SIGKILL, SIGKILL}) {
    INFO(number);
    const std::string run = "run" + std::to_string(++n);
    const int process =
        Program{.words = split("train" + kTiny + "--batch-tokens 64 --steps 120 --save-every 1 --out " + run), .folder = folder.path()}
            .start();
    wait_for_checkpoint(folder, run);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * n));
    ::kill(process, number);
    const int code = wait_for(process);
    CHECK((code == (number == SIGKILL ? -SIGKILL : 128 + number) || code == 0));      // 0: it was done before
    go_on(folder, "--out " + run);
    check_same(folder, "whole", run, 120);
    for (const auto& entry : fs::recursive_directory_iterator(folder / run))
      CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
  }
}

TEST_CASE("resume: a signal within an evaluation leaves the weights that go on learning, not their averages") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 120 --dev 3000 --test 5").code == 0);
  train(folder, "--batch-tokens 64 --average 0.9 --steps 14 --out whole");
  for (int n = 1; n <= 2; ++n) {
    const std::string run = "run" + std::to_string(n);
    const int process = Program{.words = split("train" + kTiny + "--batch-tokens 64 --average 0.9 --steps 14 --save-every 6 --out " + run),
                                .folder = folder.path()}
                            .start();
    wait_for_checkpoint(folder, run);                       // of update 6: the evaluation after update 7 is next, and takes longest
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * n));
    ::kill(process, SIGTERM);
    const int code = wait_for(process);
    CHECK((code == 143 || code == 0));                      // 0: it was done before
    go_on(folder, "--out " + run);
    check_same(folder, "whole", run, 14);
  }
}

TEST_CASE("resume: updates that are skipped: so many in a row end a training, stopped meanwhile or not; others between them do not") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const auto diverged = [&](const std::string& line) {
    const Result result = heed_in(folder.path(), line);
    CHECK(result.code == 1);
    return result.err;
  };
  const std::string wild = "train" + kTiny + "--batch-tokens 64 --optimizer sgd --learning-rate 1e6 --clip 0 --save-every 1 ";
  const std::string said = diverged(wild + "--steps 60 --out whole");
  const std::size_t at = said.find("the last number ") + 16;
  REQUIRE(at > 16);
  const int last = std::stoi(said.substr(at));
  CHECK(heed_in(folder.path(), wild + "--out part --steps " + std::to_string(last - 5)).code == 0);
  CHECK(diverged("train --resume --quiet --steps 60 --out part") == said);

  // One word makes numbers beyond f32: of a pair a batch those with it are skipped.
  train(folder, "--batch-sentences 1 --steps 1 --out begun");
  SafetensorsFile best = read_safetensors(folder / "begun/best.safetensors");
  std::map<std::string, Tensor> weights;
  for (const auto& [name, value] : best.tensors) weights[name] = value.clone();
  fill_(weights.at("source_embedding.weight")[4], 1e38);
  write_safetensors(folder / "odd.safetensors", weights);
  train(folder, "--batch-sentences 1 --average 0 --init odd.safetensors --steps 100 --out odd");
  const std::string log = text_of(folder / "odd/metrics.jsonl");
  const std::size_t skipped = log.rfind("\"skipped\": ") + 11;
  CHECK(std::stoi(log.substr(skipped)) > 20);
  CHECK(std::stoi(log.substr(skipped)) < 80);
}

TEST_CASE("resume: bad checkpoints are passed over, loudly") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 21 --out whole");
  train(folder, "--steps 14 --out run");
  const std::string newest = folder / "run/checkpoints/14.safetensors";
  std::string bytes = text_of(newest);
  bytes[bytes.size() / 2] ^= 1;
  write_text(newest, bytes);
  const Result on = heed_in(folder.path(), "train --resume --steps 21 --out run");
  CHECK(on.code == 0);
  CHECK_MESSAGE(on.err.starts_with("warning: passed over: run/checkpoints/14.safetensors: "), on.err);
  CHECK(on.err.find("going on after update 7") != std::string::npos);
  check_same(folder, "whole", "run", 21);

  // Where the checkpoints were removed the best weights and the log are kept.
  const auto remove_checkpoints = [&] { fs::remove_all(folder / "run/checkpoints"); };
  remove_checkpoints();
  const std::string best = text_of(folder / "run/best.safetensors"), log = text_of(folder / "run/metrics.jsonl");
  const Result anew = heed_in(folder.path(), "train --resume --out run");
  CHECK(anew.code == 0);
  CHECK_MESSAGE(anew.err.starts_with("warning: its checkpoints are gone: what there is of the training before is now "
                                     "run/best.safetensors.old and run/metrics.jsonl.old\n"),
                anew.err);
  CHECK(text_of(folder / "run/best.safetensors.old") == best);
  CHECK(text_of(folder / "run/metrics.jsonl.old") == log);
  check_same(folder, "whole", "run", 21);
  remove_checkpoints();
  CHECK(
      heed_in(folder.path(), "train --resume --out run").err.find("is now run/best.safetensors.old.old and run/metrics.jsonl.old.old\n") !=
      std::string::npos);
  CHECK(text_of(folder / "run/best.safetensors.old") == best);
  CHECK(text_of(folder / "run/best.safetensors.old.old") == best);
  CHECK(text_of(folder / "run/metrics.jsonl.old") == log);

  // No checkpoint yet: from 0, with a note.
  remove_checkpoints();
  fs::remove(folder / "run/best.safetensors");
  const Result again = heed_in(folder.path(), "train --resume --out run");
  CHECK(again.err.starts_with("run has no checkpoint yet: starting from 0\n"));
  check_same(folder, "whole", "run", 21);

  // Translation takes the newest whole checkpoint where the best weights are broken.
  write_text(folder / "run/best.safetensors", "broken");
  const Result translated = heed_in(folder.path(), "translate --run run", "1 2\n");
  CHECK(translated.code == 0);
  CHECK(translated.err.find("warning: passed over: run/best.safetensors: ") != std::string::npos);
}

TEST_CASE("resume: what the log holds beyond the checkpoint is cut off") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 21 --out whole");
  train(folder, "--steps 14 --out run");
  write_text(folder / "run/metrics.jsonl", text_of(folder / "run/metrics.jsonl") + std::string(100000, 'x') + "\n");
  go_on(folder, "--steps 21 --out run");
  check_same(folder, "whole", "run", 21);
}

TEST_CASE("resume: a log that is gone, cut or edited takes no checkpoint with it") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 21 --out whole");
  train(folder, "--steps 14 --out run");
  fs::copy(folder / "run", folder / "gone", fs::copy_options::recursive);
  fs::remove(folder / "gone/metrics.jsonl");
  fs::copy(folder / "run", folder / "cut", fs::copy_options::recursive);
  write_text(folder / "cut/metrics.jsonl", "half a li");
  fs::copy(folder / "run", folder / "edited", fs::copy_options::recursive);
  std::string log = text_of(folder / "edited/metrics.jsonl");
  write_text(folder / "edited/metrics.jsonl", log.replace(log.find("\"step\": 7"), 9, "\"step\":\"\""));
  for (const std::string run : {"gone", "cut", "edited"}) {
    INFO(run);
    const Result on = heed_in(folder.path(), "train --resume --steps 21 --quiet --out " + run);
    CHECK(on.code == 0);
    for (const std::string& says : {"passed over: " + run + "/checkpoints/14.safetensors: its log " + run + "/metrics.jsonl: ",
                                    std::string("no checkpoint has a whole log: a new one begins after update 14")})
      CHECK_MESSAGE(on.err.find("warning: " + says) != std::string::npos, on.err);
    CHECK((text_of(folder / (run + "/best.safetensors")) == text_of(folder / "whole/best.safetensors")));
    CHECK(fs::exists(folder / (run + "/metrics.jsonl.old")) == (run != "gone"));
    CHECK(heed_in(folder.path(), "train --resume --out " + run).err == run + " is finished: 21 updates (steps)\n");
  }
  // Of a finished training too: a checkpoint goes with the new log.
  fs::remove(folder / "whole/metrics.jsonl");
  CHECK(heed_in(folder.path(), "train --resume --quiet --out whole").err.find("a new one begins after update 21") != std::string::npos);
  CHECK(heed_in(folder.path(), "train --resume --out whole").err == "whole is finished: 21 updates (steps)\n");
  CHECK(!fs::exists(folder / "whole/metrics.jsonl.old"));
}

TEST_CASE("resume: broken later checkpoints crowd out no whole one") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 21 --out whole");
  train(folder, "--steps 14 --out run");
  write_text(folder / "run/checkpoints/14.safetensors", "broken");
  write_text(folder / "run/checkpoints/13.safetensors", "broken");
  go_on(folder, "--steps 10 --save-every 1 --keep 1 --out run");
  CHECK(checkpoint_steps(folder / "run") == std::vector<Index>{7, 10, 13, 14});
  go_on(folder, "--steps 21 --save-every 50 --keep 3 --out run");
  check_same(folder, "whole", "run", 21);
}

TEST_CASE("resume: a state that makes no sense is passed over") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  train(folder, "--steps 15 --out whole");
  train(folder, "--steps 14 --save-every 1 --out run");
  const Run run = open_run(folder / "run");
  const Checkpoint good = read_checkpoint(run, 14);
  const auto state = parse_json(good.state);
  int n = 0;
  const auto passes_over = [&](Checkpoint bad, const std::string& says) {
    CAPTURE(bad.state);
    fs::remove_all(folder / "copy");
    fs::copy(folder / "run", folder / "copy", fs::copy_options::recursive);
    write_checkpoint(open_run(folder / "copy"), bad);
    const Result on = heed_in(folder.path(), "train --resume --steps 15 --out copy");
    CHECK(on.code == 0);
    CHECK_MESSAGE(on.err.starts_with("warning: passed over: "), on.err);
    CHECK_MESSAGE(on.err.find(says) != std::string::npos, on.err);
    CHECK(on.err.find("going on after update 13") != std::string::npos);
    check_same(folder, "whole", "copy", 15);
    ++n;
  };
  const auto with = [&](const char* key, const Json& value) {
    auto other = state;
    other[key] = value;
    return Checkpoint{14, good.tensors, other.dump()};
  };
  for (const char* key : {"epoch", "batch", "evaluated", "best", "waited", "skipped_in_a_row", "tokens", "log_bytes"}) {
    passes_over(with(key, -7), fmt::format("\"{}\" is -7, at least ", key));
    passes_over(with(key, std::numeric_limits<Index>::max()), fmt::format("\"{}\" is 9223372036854775807, at most 2^53 expected", key));
    passes_over(with(key, 1.5), fmt::format("no whole number \"{}\"", key));
  }
  passes_over(with("evaluated", std::numeric_limits<std::uint64_t>::max()), "\"evaluated\" is 18446744073709551615, at most 2^53 expected");
  passes_over(with("batch", 1000000), "\"batch\" is 1000000, the epoch has ");
  passes_over(with("log_bytes", 1000000), "does not fit the checkpoint");
  passes_over(with("best_loss", "much"), "no number \"best_loss\"");
  passes_over(with("trainer", {{"step", "13"}}), "of the trainer: step \"13\"");
  passes_over(with("trainer", 5), "entries are missing");
  for (const auto& [key, value] : {std::pair("schedule.falls", "-1"), {"schedule.waited", "-1"}, {"skipped", "-1"}, {"skipped", "15"},
                                   {"schedule.waited", "2147483647"}}) {
    auto trainer = state["trainer"];
    trainer[key] = value;
    passes_over(with("trainer", trainer), "none below 0, skipped at most step");
  }
  passes_over({14, good.tensors, "{"}, "no JSON object");
  Checkpoint odd = good;
  odd.tensors.lower_bound("model.")->second = tensor({1, 2}, DType::f32);
  passes_over(odd, "does not fit the model");
  for (auto& [name, value] : (odd = good).tensors)
    if (name.ends_with(".step")) value = tensor({1, 2}, DType::i64);
  passes_over(odd, ".step is i64 [2], needs one i64");
  CHECK(n == 38);
}
