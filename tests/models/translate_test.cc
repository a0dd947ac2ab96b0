// SPDX-License-Identifier: Apache-2.0
#include "models/translate.h"

#include <doctest/doctest.h>

#include "tests/every_model.h"

using namespace heed;

TEST_CASE("translate: an unknown word becomes the source word most looked at, and stays where none is looked at") {
  // Word t looks at source word t alone, and all words are <unk>.
  const SmallModel small("--model gru --decoder bahdanau --attention local-m --window 0");
  fill_(small.parameters->find("out.bias")->variable.value()[1], 1e3);
  const auto tokens = [&](bool replace_unk) {
    return translate(small.run, *small.model, std::vector<std::string>{"a b c"}, {.search = {.max_length = 5, .min_length = 5}, .replace_unk = replace_unk})[0][0].tokens;
  };
  CHECK(tokens(false) == std::vector<std::string>(5, "<unk>"));
  CHECK(tokens(true) == std::vector<std::string>{"a", "b", "c", "<unk>", "<unk>"});       // the fourth looks at eos, the fifth at nothing
}

TEST_CASE("translate: a picture says which word a row aligns, by its score") {
  const auto note = [](const std::string& attention) {
    const SmallModel small("--model lstm --decoder luong --attention " + attention);
    return attention_picture(small.run, *small.model, small.example("a b", "c d")).note;
  };
  for (const char* location : {"location", "location-entmax", "local-m-location"}) CHECK(note(location).starts_with("A location score"));
  for (const char* content : {"general", "local-m", "location-aware"}) CHECK(note(content).starts_with("A content score"));
  CHECK(note("mean-sparsemax").empty());
}
