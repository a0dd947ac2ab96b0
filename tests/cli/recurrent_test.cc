// SPDX-License-Identifier: Apache-2.0
// Recurrent models from the command line: trained, stopped and resumed, translating, drawn.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/program.h"

namespace fs = std::filesystem;

TEST_CASE("cli: recurrent models are trained, go on with the same bits, translate, and show where they look") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 120 --dev 12 --test 12").code == 0);
  int n = 0;
  for (const std::string model :
       {"--model gru", "--model lstm --input-feeding --layers 2 --reverse-source --start eos",
        "--model rnn --attention local-p-dot --window 2", "--model gru --attention location-aware --one-direction --readout tanh",
        "--model lstm --attention none", "--model gru --decoder cho --context both_ends", "--model gru --decoder cho-exact"}) {
    INFO(model);
    const std::string a = "a" + std::to_string(++n), b = "b" + std::to_string(n);
    const std::string options = "train --data data --width 8 --batch-sentences 16 --evaluate-every 7 --quiet " + model + " --out ";
    const Result trained = heed_in(folder.path(), options + a + " --steps 30 --threads 1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    REQUIRE(heed_in(folder.path(), options + b + " --steps 16").code == 0);
    REQUIRE(heed_in(folder.path(), "train --resume --quiet --steps 30 --out " + b).code == 0);
    CHECK((text_of(folder / (a + "/checkpoints/30.safetensors")) == text_of(folder / (b + "/checkpoints/30.safetensors"))));
    CHECK(log_without_timing(folder / a) == log_without_timing(folder / b));
    CHECK(text_of(folder / (a + "/config.json")).find("\"auto\"") ==
          text_of(folder / (a + "/config.json")).find("\"final-norm\": \"auto\"") + 14);

    const Result translated = heed_in(folder.path(), "translate --beam 2 --run " + a, "1 2 3\n\n4\n");
    CHECK(translated.code == 0);
    CHECK(std::count(translated.out.begin(), translated.out.end(), '\n') == 3);
    CHECK(heed_in(folder.path(), "evaluate --data data --run " + a).code == 0);
    const bool attends = model.find("none") == model.npos && model.find("cho") == model.npos;
    const Result drawn = heed_in(folder.path(), "attention --source '1 2 3' --out where.svg --run " + a);
    CHECK(drawn.code == (attends ? 0 : 2));
    if (!attends) CHECK(drawn.err.find("no attention over the source: --run " + a) != std::string::npos);
    CHECK(fs::is_empty(folder / (a + "/attention")) == !attends);
    const Result unk = heed_in(folder.path(), "translate --replace-unk --run " + a, "1 9 3\n");
    CHECK(unk.code == (attends ? 0 : 2));
    if (attends) continue;
    CHECK(unk.err == "heed translate: no attention over the source: --replace-unk; a run trained with attention\n");
    CHECK(heed_in(folder.path(), "translate --alignment --run " + a, "1 9 3\n").err ==
          "heed translate: no attention over the source: --alignment; a run trained with attention\n");
    CHECK(heed_in(folder.path(), "evaluate --data data --coverage 0.2 --run " + a).err ==
          "heed evaluate: no attention over the source: --coverage 0.2; a run trained with attention\n");
  }
}

TEST_CASE("cli: --resume takes a name as it was written at the beginning") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 5 --test 5").code == 0);
  REQUIRE(heed_in(folder.path(), "train --data data --width 8 --model gru --attention local_p --steps 1 --quiet --out run").code == 0);
  for (const std::string again : {" --attention local_p", " --attention local-p", " --model gru --attention local_p"}) {
    const Result on = heed_in(folder.path(), "train --resume --quiet --out run" + again);
    CHECK_MESSAGE(on.code == 0, on.err);
  }
  CHECK(heed_in(folder.path(), "train --resume --quiet --out run --attention local_m")
            .err.find("contradicts the run: --attention local-m, stored in run is local-p; ") != std::string::npos);
}

TEST_CASE("cli: weights of a GRU of another form are refused, wherever they come from") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 120 --dev 12 --test 12").code == 0);
  const std::string options = "train --data data --model gru --width 8 --batch-sentences 16 --evaluate-every 7 --steps 14 --quiet --out ";
  for (const std::string form : {"bahdanau", "cho"})
    for (const std::string average : {"0", "0.9"})
      REQUIRE(heed_in(folder.path(), options + form + average + " --gru-form " + form + " --average " + average).code == 0);
  for (const std::string file : {"bahdanau0/best.safetensors", "bahdanau0.9/best.safetensors", "bahdanau0/checkpoints/14.safetensors",
                                 "bahdanau0.9/checkpoints/14.safetensors"}) {
    INFO(file);
    const Result seen = heed_in(folder.path(), std::string("inspect ") + file);
    CHECK(seen.out.find("gru_form.decoder: bahdanau\ngru_form.encoder: bahdanau\n") != seen.out.npos);
    CHECK(heed_in(folder.path(), std::string("translate --run bahdanau0 --checkpoint ") + file, "1 2\n").code == 0);
    const Result translated = heed_in(folder.path(), std::string("translate --run cho0 --checkpoint ") + file, "1 2\n");
    CHECK(translated.code == 2);
    CHECK(translated.err == std::string("heed translate: ") + file +
                                ": does not fit the model; GRUs of another form: gru_form.decoder (bahdanau, needs cho) gru_form.encoder "
                                "(bahdanau, needs cho)\n");
    CHECK(heed_in(folder.path(), options + "new --gru-form bahdanau --init " + file).code == 0);
    fs::remove_all(folder / "new");
    CHECK(heed_in(folder.path(), options + "new --gru-form cho --init " + file).code == 2);
    CHECK(!fs::exists(folder / "new"));
  }
  // A run into which another one's checkpoint was put.
  fs::copy_file(folder / "cho0/checkpoints/14.safetensors", folder / "bahdanau0/checkpoints/14.safetensors",
                fs::copy_options::overwrite_existing);
  const Result on = heed_in(folder.path(), "train --resume --steps 21 --out bahdanau0");
  CHECK(on.code == 2);
  CHECK_MESSAGE(on.err.find("\"gru-form\" has changed: bahdanau, cho when ") != on.err.npos, on.err);
}
