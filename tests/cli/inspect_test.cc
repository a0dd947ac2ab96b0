// SPDX-License-Identifier: Apache-2.0
// `heed inspect`, `trace` and `diff`.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>

#include "tensor/json.h"
#include "tensor/safetensors.h"
#include "tests/cli/small_run.h"

using namespace heed;
namespace fs = std::filesystem;

TEST_CASE("cli: trace and diff") {
  const Result traced = call("trace --run run --source '1 2 3' --out one.safetensors");
  CHECK_MESSAGE(traced.code == 0, traced.err);
  const SafetensorsFile file = read_safetensors(small().folder / "one.safetensors");
  CHECK(file.at("core.encoder.layers.0.linear1").shape() == Shape{1, 4, 32});
  CHECK(file.at("core.decoder.layers.0.multihead_attn.weights").size(1) == 2);
  CHECK(file.metadata.at("heed.source") == "1 2 3");
  CHECK(call("diff one.safetensors one.safetensors").out.ends_with(": the same\n"));
  CHECK(call("diff one.safetensors one.safetensors").code == 0);
  // Another word: the first difference is where it is read.
  CHECK(call("trace --run run --source '1 2 4' --target '1 2 3' --out two.safetensors").code == 0);
  CHECK(call("trace --run run --source '1 2 3' --target '1 2 3' --out one.safetensors").code == 0);
  const Result other = call("diff one.safetensors two.safetensors");
  CHECK(other.code == 1);
  CHECK(other.out.starts_with("first    source_embedding [0, 2, 0]: "));
  CHECK(other.out.find("\nlargest  ") != other.out.npos);
  CHECK(call("diff one.safetensors two.safetensors --tolerance 1e6").code == 0);
  CHECK(parse_json(call("diff one.safetensors two.safetensors --json").out)["same"] == false);
  write_safetensors(small().folder / "a.safetensors", {{"x", tensor({1, 2})}, {"y", tensor({1})}, {"n", tensor({NAN})}});
  write_safetensors(small().folder / "b.safetensors", {{"x", tensor({{1, 2}})}, {"z", tensor({1})}, {"n", tensor({NAN})}});
  const Result unmatched = call("diff a.safetensors b.safetensors");
  CHECK(unmatched.code == 1);
  CHECK(unmatched.out ==
        "x: f32 [2] and f32 [1, 2]\nonly in a.safetensors: y\nonly in b.safetensors: z\n3 tensors without one of the same name, shape and "
        "type in the other file; of the 1 compared none differs\n");
  write_safetensors(small().folder / "b.safetensors", {{"x", tensor({{1, 2}})}, {"y", tensor({1})}, {"n", tensor({1.0})}});
  CHECK(call("diff a.safetensors b.safetensors")
            .out.ends_with("\n1 tensor without one of the same name, shape and type in the other file; of the 2 compared 1 differ\n"));
  for (const auto& [name, y] : {std::pair("a.safetensors", 1.0), {"b.safetensors", 3.0}})
    write_safetensors(small().folder / name, {{"x", tensor({y / 10})}, {"y", tensor({y})}, {"z", tensor({0.0})}});
  CHECK(call("diff a.safetensors b.safetensors").out.find("\nlargest  y [0]: 1 and 3, ") != std::string::npos);
  constexpr std::int64_t kBig = std::int64_t{1} << 60;                        // beyond 2^53
  for (const auto& [name, more] : {std::pair("a.safetensors", 0), {"b.safetensors", 1}})
    write_safetensors(small().folder / name, {{"n", tensor(std::vector{kBig, kBig + more}, {2})}});
  CHECK(call("diff a.safetensors b.safetensors").out.starts_with("first    n [1]: 1152921504606846976 and 1152921504606846977, 1 apart\n"));
  CHECK(call("diff a.safetensors b.safetensors --tolerance 1").code == 0);
  const auto half = [](const char* name, const std::string& last) {           // F16: 1, 2 and another number
    const std::string header = R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})";
    write_text(small().folder / name,
               std::string{char(header.size()), 0, 0, 0, 0, 0, 0, 0} + header + std::string("\x00\x3c\x00\x40", 4) + last);
  };
  half("a.safetensors", std::string("\x00\x42", 2)), half("b.safetensors", std::string("\x00\x7e", 2));
  CHECK(call("diff a.safetensors a.safetensors").out == "1 tensor, 3 numbers: the same\n");
  const Result bytes = call("diff a.safetensors b.safetensors");
  CHECK(bytes.code == 1);
  CHECK(bytes.out == "h: F16 [3]: 1 of 6 bytes differ\n1 of 1 tensor differ\n");
  CHECK(parse_json(call("diff a.safetensors b.safetensors --json").out)["same"] == false);
  write_safetensors(small().folder / "b.safetensors", {{"h", tensor({1, 2, 3})}});
  CHECK(call("diff a.safetensors b.safetensors").out.starts_with("h: F16 [3] and f32 [3]\n"));
  CHECK(call("inspect a.safetensors").out.ends_with("all values that were read are finite; not read: those of 1 tensor\n"));
  CHECK(parse_json(call("inspect a.safetensors --json").out)["tensors"][0]["nan"].is_null());
}

TEST_CASE("cli: diff reads of a checkpoint beside weights the weights alone") {
  CHECK(call("diff run/best.safetensors run/checkpoints/60.safetensors").out.ends_with(": the same\n"));
  CHECK(call("diff run run/best.safetensors").out == call("diff run/best.safetensors run").out);
  CHECK(call("diff run run/best.safetensors").code == 0);
  CHECK(call("diff run/checkpoints/60.safetensors run/best.safetensors --json").code == 0);
  CHECK(call("diff run/checkpoints/60.safetensors run/checkpoints/60.safetensors").out.find("numbers: the same") != std::string::npos);
}

TEST_CASE("cli: diff and --init say which weights they take where the best are damaged") {
  const std::string best = small().folder / "torn/best.safetensors";
  fs::copy(small().folder / "run", small().folder / "torn", fs::copy_options::recursive);
  std::string bytes = text_of(best);
  bytes[bytes.size() / 2] ^= 1;
  write_text(best, bytes);
  const std::string train = "train --data data --init torn --layers 1 --width 16 --heads 2 --feed-forward 32 --steps 1 --warmup 1 --out on";
  for (const std::string& line : {std::string("diff torn run"), train}) {
    const Result result = call(line);
    CHECK_MESSAGE(result.code == 0, result.err);
    CHECK_MESSAGE(std::regex_search(result.err, std::regex("warning: passed over: [^\n]*torn/best.safetensors: [^\n]*; using [^\n]*"
                                                           "torn/checkpoints/60.safetensors\n")),
                  result.err);
  }
}

TEST_CASE("cli: inspect") {
  const Result run = call("inspect run");
  CHECK(run.code == 0);
  CHECK(run.out.find("--width 16") != run.out.npos);
  CHECK(run.out.find("core.encoder.layers.0.linear1.weight") != run.out.npos);
  CHECK(run.out.find("finished: 60 (steps)") != run.out.npos);
  fs::copy(small().folder / "run", small().folder / "diverged", fs::copy_options::recursive);
  write_text(small().folder / "diverged/metrics.jsonl",
             "{\"event\": \"dev\", \"step\": 60, \"loss\": null, \"bleu\": 0, \"exact\": 0}\n{\"event\": \"end\", \"reason\": 0}\n");
  CHECK(call("inspect diverged").out.find("\nlast evaluation: update 60, dev loss nan, BLEU 0.00, exact 0.0 %\n\n") != std::string::npos);
  CHECK(call("train --data data --out unlike --model gru --width 8 --steps 1 --quiet").code == 0);
  const std::string unlike = call("inspect unlike").out;
  CHECK(unlike.find("\n  --width 8\n") != unlike.npos);
  for (const char* standard : {"--schedule", "--learning-rate", "--batch-tokens", "--layers"}) CHECK(unlike.find(standard) == unlike.npos);
  const Result best = call("inspect run/best.safetensors");
  CHECK(best.out.find("checksum right") != best.out.npos);
  CHECK(best.out.find("all values are finite") != best.out.npos);
  write_safetensors(small().folder / "far.safetensors", {{"x", tensor({1e300}, DType::f64)}});
  CHECK(call("inspect far.safetensors").out.find("all values are finite") != std::string::npos);
  write_safetensors(small().folder / "odd.safetensors", {{"x", tensor({1, NAN, INFINITY, -INFINITY})}, {"n", tensor({1, 2}, DType::i64)}},
                    {}, {.checksum = false});
  const auto odd = parse_json(call("inspect odd.safetensors --json").out);
  CHECK(odd["checksum"] == "none");
  CHECK(odd["tensors"][1]["nan"] == 1);
  CHECK(odd["tensors"][1]["inf"] == 2);

  // A damaged checkpoint, damaged best weights, and none.
  const std::string copy = small().folder / "damaged";
  fs::copy(small().folder / "run", copy, fs::copy_options::recursive);
  for (const char* file : {"/checkpoints/60.safetensors", "/best.safetensors"}) {
    std::string bytes = text_of(copy + file);
    bytes[bytes.size() / 2] ^= 1;
    write_text(copy + file, bytes);
  }
  const Result damaged = call("inspect damaged");
  CHECK(damaged.code == 1);
  CHECK(damaged.out.find("\nbest.safetensors: damaged\n") != damaged.out.npos);
  for (const char* file : {"checkpoints/60", "best"})
    CHECK(damaged.out.find(std::string("\ndamaged: damaged/") + file + ".safetensors: checksum differs: ") != damaged.out.npos);
  CHECK(parse_json(call("inspect damaged --json").out)["damaged"].size() == 2);
  fs::remove(copy + "/best.safetensors"), fs::remove(copy + "/checkpoints/60.safetensors");
  const Result without = call("inspect damaged");
  CHECK(without.code == 0);
  CHECK(without.out.find("\nbest.safetensors: none\n") != without.out.npos);
  CHECK(call("translate --run damaged", "1 2\n").err.starts_with("damaged has no best.safetensors: using damaged/checkpoints/"));
  // A model that the weights do not fit.
  const std::string config = text_of(copy + "/config.json");
  write_text(copy + "/config.json", std::regex_replace(config, std::regex("\"width\": [0-9]+"), "\"width\": 8"));
  CHECK(call("inspect damaged").code == 1);
}
