// SPDX-License-Identifier: Apache-2.0
// examples/run.sh, with the program built and the data made, interrupted as by Ctrl-C.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "models/run.h"
#include "tests/cli/program.h"

namespace fs = std::filesystem;

TEST_CASE("examples/run.sh: what an interruption leaves never takes the place of a finished model") {
  const TemporaryFolder folder;
  for (const char* sub : {"examples", "build/examples", "run-phrases"}) fs::create_directories(folder / sub);
  fs::copy_file(HEED_SOURCE_DIR "/examples/run.sh", folder / "examples/run.sh");
  write_text(folder / "examples/install.sh", text_of(HEED_SOURCE_DIR "/examples/install.sh") + "install_missing() { :; }\n");
  write_text(folder / "build/build.ninja", "build examples/heed: phony\n");
  fs::create_symlink(fs::absolute(HEED_BUILD_DIR "/examples/heed"), folder / "build/examples/heed");
  REQUIRE(heed_in(folder.path(), "data phrases --out run-phrases/data --train 300 --dev 5 --test 5").code == 0);
  const auto with = [&](const std::string& options) {
    return Program{.words = split(options),
                   .folder = folder.path(),
                   .under = {"setsid", "sh", "-c", "exec bash examples/run.sh \"$@\" >out 2>err"}};
  };
  const auto script = [&](const std::string& steps) {
    return with("--layers 1 --width 8 --heads 2 --feed-forward 8 --evaluate-every 3 --warmup 2 --steps " + steps);
  };
  REQUIRE_MESSAGE(script("3").run().code == 0, text_of(folder / "err"));
  CHECK(text_of(folder / "out").find("\nWhere it looked: ") != std::string::npos);
  const std::string finished = text_of(folder / "run-phrases/model/best.safetensors");
  for (const int signals : {1, 2, 2}) {
    CAPTURE(signals);
    fs::remove(folder / "out");
    const int process = script("1000000").start();
    const auto trains = [&] {
      return fs::exists(folder / "out") && text_of(folder / "out").ends_with("Training\n") &&
             fs::exists(folder / "run-phrases/model/best.safetensors");
    };
    for (int i = 0; i < 12000 && !trains(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(trains());
    for (int i = 0; i < signals; ++i) ::kill(-process, SIGINT);
    const int code = wait_for(process);
    CHECK((code == 128 + SIGINT || code == -SIGINT));
    CHECK(text_of(folder / "out").ends_with("Training\n"));
    CHECK(text_of(folder / "run-phrases/model.old/best.safetensors") == finished);
    CHECK(heed_in(folder.path(), "inspect run-phrases/model").code == 0);
  }
  CHECK(fs::exists(folder / "run-phrases/model.unfinished/config.json"));
  for (const auto& entry : fs::directory_iterator(folder / "run-phrases")) CHECK(entry.path().extension() != ".older");
  REQUIRE(script("4").run().code == 0);
  CHECK(text_of(folder / "run-phrases/model.old/best.safetensors") == finished);
  REQUIRE(script("5").run().code == 0);
  CHECK(text_of(folder / "run-phrases/model.old/best.safetensors") != finished);

  REQUIRE(with("--resume --steps 6").run().code == 0);
  CHECK(heed::checkpoint_steps(folder / "run-phrases/model").back() == 6);
  CHECK(with("--resume --width 16").run().code == 2);

  const std::string before = listing(folder / "run-phrases");
  CHECK(with("--help").run().code == 0);
  CHECK(text_of(folder / "out").find("Usage: examples/run.sh") != std::string::npos);
  CHECK(script("many").run().code == 2);
  CHECK(listing(folder / "run-phrases") == before);
  CHECK(with("--model gru --attention none --width 8 --steps 3").run().code == 0);
  CHECK(text_of(folder / "out").find("\nTranslations, ") != std::string::npos);
  CHECK(text_of(folder / "out").find("\nWhere it looked: ") == std::string::npos);
}
