// SPDX-License-Identifier: Apache-2.0
// `heed train --precision bfloat16`.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "examples/cli/cli.h"
#include "models/run.h"
#include "tensor/json.h"
#include "tensor/test_hooks.h"
#include "tests/bfloat16.h"
#include "tests/cli/tiny_training.h"

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;

namespace {

const std::string kWide =
    "train --data data --layers 1 --width 32 --feed-forward 64 --batch-tokens 512 --warmup 5 --evaluate-every 6 --quiet ";

// `heed` in this process, and what it says on standard error.
Result heed_here(const TemporaryFolder& folder, std::vector<std::string> words) {
  std::vector<char*> arguments{const_cast<char*>("heed")};
  for (std::string& word : words) arguments.push_back(word.data());
  const std::string file = folder / "err";
  const int before = ::dup(STDERR_FILENO), to = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(to, STDERR_FILENO);
  Result result;
  result.code = heed::main(int(arguments.size()), arguments.data());
  ::dup2(before, STDERR_FILENO);
  ::close(to);
  ::close(before);
  result.err = text_of(file);
  return result;
}

}  // namespace

TEST_CASE("cli: --precision bfloat16 is refused where the processor lacks the instructions, and nothing is written") {
  const TemporaryFolder folder;
  make_tiny_data(folder);
  hide_bfloat16_products(true);
  const Result result = heed_here(folder, {"train", "--data", folder / "data", "--out", folder / "new", "--precision", "bfloat16"});
  hide_bfloat16_products(false);
  CHECK(result.code == 2);
  CHECK(result.err ==
        "heed train: no instructions: --precision bfloat16 needs AVX512-BF16, which this processor lacks; --precision float32\n");
  CHECK(!fs::exists(folder / "new"));
}

TEST_CASE("cli: training with --precision bfloat16 has the same bits for any threads, goes on with them, and evaluates in float32") {
  if (!bfloat16_there()) return;
  const TemporaryFolder folder;
  make_tiny_data(folder);
  const std::string last = "/checkpoints/12.safetensors";
  REQUIRE(heed_in(folder.path(), kWide + "--steps 12 --threads 1 --out plain").code == 0);
  for (const std::string threads : {"1", "2", "3"}) {
    const Result result = heed_in(folder.path(), kWide + "--steps 12 --precision bfloat16 --out t" + threads + " --threads " + threads);
    REQUIRE_MESSAGE(result.code == 0, result.err);
    CHECK((text_of(folder / ("t" + threads + last)) == text_of(folder / ("t1" + last))));
    CHECK(log_without_timing(folder / ("t" + threads)) == log_without_timing(folder / "t1"));
  }
  CHECK((text_of(folder / ("plain" + last)) != text_of(folder / ("t1" + last))));
  CHECK(text_of(folder / "t1/config.json").find("\"precision\": \"bfloat16\"") != std::string::npos);
  const Result shown = heed_in(folder.path(), "inspect t1");
  CHECK_MESSAGE(shown.out.find("precision") != std::string::npos, shown.out);
  for (const std::string step : {"3", "6"}) {                      // before and after the first evaluation
    const std::string run = "r" + step;
    REQUIRE(heed_in(folder.path(), kWide + "--precision bfloat16 --out " + run + " --steps " + step).code == 0);
    REQUIRE(heed_in(folder.path(), "train --resume --quiet --steps 12 --out " + run).code == 0);
    CHECK((text_of(folder / (run + last)) == text_of(folder / ("t1" + last))));
  }
  const Result other = heed_in(folder.path(), "train --resume --precision float32 --out t1");
  CHECK(other.code == 2);
  CHECK(other.err ==
        "heed train: contradicts the run: --precision float32, stored in t1 is bfloat16; the stored value, or another --out\n");

  // The dev loss in the log is that of `heed evaluate`, which knows no bfloat16, in other batches.
  const Result evaluated = heed_in(folder.path(), "evaluate --run t1 --data data --split dev --json");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  const std::string log = text_of(folder / "t1/metrics.jsonl");
  const std::size_t from = log.rfind("{\"event\": \"dev\"");
  const Json dev = parse_json(log.substr(from, log.find('\n', from) - from));
  CHECK(dev["best"] == true);
  CHECK(parse_json(evaluated.out)["loss"].get<double>() == doctest::Approx(dev["loss"].get<double>()).epsilon(1e-6));

  // config.json of a run from before the option was there
  std::string config = text_of(folder / "plain/config.json");
  const auto at = config.find("  \"precision\""), end = config.find('\n', at);
  REQUIRE(at != std::string::npos);
  write_text(folder / "plain/config.json", config.erase(at, end + 1 - at));
  REQUIRE(heed_in(folder.path(), "train --resume --quiet --steps 13 --out plain").code == 0);
  CHECK(open_run(folder / "plain").config.precision == "float32");
}
