// SPDX-License-Identifier: Apache-2.0
#include "models/translate.h"

#include <doctest/doctest.h>

#include "autograd/trace.h"
#include "models/alignment_metrics.h"
#include "tensor/ops/softmax.h"
#include "tests/every_model.h"

using namespace heed;

TEST_CASE("translate: an unknown word becomes the source word most looked at, and stays where none is looked at") {
  // Word t looks at source word t alone, and all words are <unk>.
  const SmallModel small("--model gru --decoder bahdanau --attention local-m --window 0");
  fill_(small.parameters->find("out.bias")->variable.value()[1], 1e3);
  const auto tokens = [&](bool replace_unk) {
    return translate(small.run, *small.model, std::vector<std::string>{"a b c"},
                     {.search = {.max_length = 5, .min_length = 5}, .replace_unk = replace_unk})[0][0]
        .tokens;
  };
  CHECK(tokens(false) == std::vector<std::string>(5, "<unk>"));
  CHECK(tokens(true) == std::vector<std::string>{"a", "b", "c", "<unk>", "<unk>"});       // the fourth looks at eos, the fifth at nothing
}

TEST_CASE("translate: of hypotheses that have become one text the best one stays; draws all stay") {
  const SmallModel small("--model gru --decoder bahdanau --attention local-m --window 0");
  const Vocabulary& words = small.run.target.vocabulary;
  const Tensor bias = small.parameters->find("out.bias")->variable.value();
  fill_(bias[words.unk], 1e3), fill_(bias[words.id("a")], 990), fill_(bias[words.id("b")], 980);
  const auto found = [&](const SearchOptions& search, bool replace_unk) {
    std::vector<std::pair<std::string, double>> texts;
    const auto of_line = translate(small.run, *small.model, std::vector<std::string>{"a"}, {.search = search, .replace_unk = replace_unk});
    for (const Translation& t : of_line[0]) texts.emplace_back(t.text, t.score);
    return texts;
  };
  const SearchOptions search{.beam = 3, .nbest = 3, .max_length = 1, .min_length = 1};
  const auto three = found(search, false);
  REQUIRE(three.size() == 3);
  CHECK((three[0].first == "<unk>" && three[1].first == "a" && three[2].first == "b"));
  using Texts = std::vector<std::pair<std::string, double>>;
  CHECK(found(search, true) == Texts{{"a", three[0].second}, three[2]});
  CHECK(found({.nbest = 8, .max_length = 1, .min_length = 1, .sampling = Sampling{}}, true).size() == 8);
}

TEST_CASE("translate: links to the source words most looked at, of every hypothesis, of a prefix too; eos is no word") {
  for (const std::string flags :
       {"--model gru --attention dot", "--layers 2 --heads 4", "--model gru --decoder bahdanau --attention local-m --window 0"}) {
    CAPTURE(flags);
    const SmallModel small(flags);
    const std::vector<std::string> lines{"a b c d", "", "d"}, prefixes{"b a", "b a", "b a"};
    const TranslateOptions options{.search = {.beam = 3, .nbest = 2, .max_length = 7, .min_length = 6}, .links = true};
    const auto found = translate(small.run, *small.model, lines, options, prefixes);
    CHECK(found[1][0].links.empty());
    for (const std::size_t line : {0, 2})
      for (const Translation& translation : found[line]) {
        std::string target;
        for (const std::string& token : translation.tokens) target += (target.empty() ? "" : " ") + token;
        const std::vector<Tensor> weights =
            cross_attention_weights(small.run, *small.model, std::vector<Example>{small.example(lines[line], target)});
        const Index T = Index(translation.tokens.size());
        CHECK(T >= 6);
        CHECK(translation.links == attention_links(weights[0](Slice{0, T}, Slice{0, weights[0].size(1) - 1})));
      }
    CHECK(translate(small.run, *small.model, lines)[0][0].links.empty());
  }
}

TEST_CASE("translate: no special word is written, whatever a target starts with") {
  for (const std::string start : {"bos", "eos"}) {
    const SmallModel small("--model gru --start " + start);
    const Vocabulary& words = small.run.target.vocabulary;
    for (const std::int32_t id : {words.pad, words.bos}) fill_(small.parameters->find("out.bias")->variable.value()[id], 1e3);
    for (const bool draws : {false, true}) {
      SearchOptions search{.max_length = 5, .min_length = 5};
      if (draws) search.sampling = Sampling{};
      const auto found = translate(small.run, *small.model, std::vector<std::string>{"a b c"}, {.search = search});
      for (const std::string& token : found[0][0].tokens) CHECK_MESSAGE((token != "<pad>" && token != "<s>"), start);
    }
  }
}

TEST_CASE("negative_log_likelihoods: of each sentence alone, eos counted, without smoothing") {
  const SmallModel small("--model gru --label-smoothing 0.3");
  const std::vector<Example> examples{small.example("a b c", "c"), small.example("a", "d c b a"), small.example("b b", "a d")};
  const std::vector<double> found = negative_log_likelihoods(small.run, *small.model, examples);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Tensor p = log_softmax(small.model->logits(small.model->features(make_batch({&examples[i], 1}, 0, 2))).value());
    double expected = 0;
    for (std::size_t t = 0; t < examples[i].target.size(); ++t) expected -= p(0, Index(t), examples[i].target[t]).item();
    CHECK(found[i] == doctest::Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("mean_of_heads: of each pair of words over the heads") {
  // [2, 4, 1, 2]
  const Tensor heads = tensor({{{{0.25, 0.75}}, {{0.75, 0.25}}, {{1, 0}}, {{0, 1}}}, {{{1, 0}}, {{1, 0}}, {{1, 0}}, {{0, 1}}}});
  CHECK(mean_of_heads({AttentionMap::Kind::cross, 0, constant(heads)}).to_vector<float>() == std::vector<float>{0.5f, 0.5f, 0.75f, 0.25f});
  const Tensor one = heads(all, 0);
  CHECK(mean_of_heads({AttentionMap::Kind::cross, 0, constant(one)}).to_vector<float>() == std::vector<float>{0.25f, 0.75f, 1, 0});
}

TEST_CASE("translate: a picture says which word a row aligns, by its score") {
  const auto note = [](const std::string& attention) {
    const SmallModel small("--model lstm --decoder luong --attention " + attention);
    return attention_picture(small.run, *small.model, small.example("a b", "c d")).note;
  };
  for (const char* location : {"location", "location-entmax", "local-m-location"}) CHECK(note(location).starts_with("A location score"));
  CHECK(note("gaussian") == "A gaussian score aims at the word being written: its row aligns that word.");
  for (const char* content : {"general", "local-m", "location-aware"}) CHECK(note(content).starts_with("A content score"));
  CHECK(note("mean-sparsemax").empty());
}

TEST_CASE("translate: rows named for the word that was read: their note, and gold links a row below") {
  using Rows = AttentionPicture::Rows;
  const auto drawn = [](const std::string& flags, Rows rows) {
    const SmallModel small(flags);
    Example example = small.example("a b", "c d");
    example.links = {{{0, 0}, {1, 1}}, {{0, 1}}};
    return attention_picture(small.run, *small.model, example, rows);
  };
  CHECK(drawn("--model lstm --attention general", Rows::input).note ==
        "The row looks from the state that has just read its word, to write the word of the next row.");
  CHECK(drawn("--model lstm --attention location", Rows::input).note ==
        "A location score aims at the word being written: that of the next row.");
  CHECK(drawn("--model gru --attention additive", Rows::input).note ==
        "The row looks from the state that had read the words before its own, to write the word of the next row.");
  const AttentionPicture predicted = drawn("--layers 1 --heads 2", Rows::predicted), input = drawn("--layers 1 --heads 2", Rows::input);
  CHECK(input.note.empty());
  CHECK(to_string(predicted.gold.sure) == "0-0 1-1");
  CHECK(to_string(input.gold.sure) == "0-1 1-2");
  CHECK(to_string(predicted.gold.possible) == "0-1");
  CHECK(to_string(input.gold.possible) == "0-2");
}

TEST_CASE("translate: a window of no words to a side is the nearest word, never one before the first") {
  const SmallModel small("--model gru --attention local-p --window 0");
  int first = 0, last = 0;
  for (const double v : {-1e4, 1e4}) {                                                // p = -1 or S - 1, the other one with the other sign
    fill_(small.parameters->find("attention.position_v")->variable.value(), v);
    const AttentionPicture picture = attention_picture(small.run, *small.model, small.example("a b", "c d"));
    for (const AttentionPicture::Window& window : picture.maps.back().windows)
      first += window.first == 0 && window.last == 0, last += window.first == 2 && window.last == 2;
  }
  CHECK((first == 3 && last == 3));
}

TEST_CASE("translate: a picture of self-attention shows its sliding window") {
  const SmallModel small("--layers 1 --heads 2 --sliding-window 1");
  const AttentionPicture picture = attention_picture(small.run, *small.model, small.example("a b c", "c d"));
  const auto windows = [&](AttentionPicture::Axes axes) {
    return std::ranges::find_if(picture.maps, [&](const AttentionPicture::Map& map) { return map.axes == axes; })->windows;
  };
  using Windows = std::vector<AttentionPicture::Window>;
  const auto equal = [](const Windows& a, const Windows& b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.first == y.first && x.last == y.last; });
  };
  CHECK(equal(windows(AttentionPicture::Axes::encoder_self), {{-1, 1}, {0, 2}, {1, 3}, {2, 4}}));   // a b c </s>
  CHECK(equal(windows(AttentionPicture::Axes::decoder_self), {{-1, 0}, {0, 1}, {1, 2}}));
  CHECK(windows(AttentionPicture::Axes::cross).empty());
}

TEST_CASE("translate: a picture of self-attention shows gaps and global tokens: blank exactly where weights are 0") {
  const SmallModel small("--layers 1 --heads 2 --sliding-window 1 --dilation 1,3 --global-tokens 2");
  const AttentionPicture picture = attention_picture(small.run, *small.model, small.example("a b c d a b c d a", "c d a b c"));
  int maps = 0;
  for (const AttentionPicture::Map& map : picture.maps) {
    if (map.axes == AttentionPicture::Axes::cross) continue;
    ++maps;
    const std::size_t columns = map.weights.size() / map.windows.size();
    for (std::size_t i = 0; i < map.weights.size(); ++i) CHECK(map.windows[i / columns].sees(Index(i % columns)) == (map.weights[i] > 0));
  }
  CHECK(maps == 4);
}

TEST_CASE("translate: a picture shows no window of weights that are of heads with other gaps") {
  for (const auto& [flags, shown] : {std::pair("--talking-heads --dilation 1,3", false),
                                     {"--differential --dilation 1,3", false},
                                     {"--differential --dilation 3", true},
                                     {"--dilation 1,3", true}}) {
    const std::string options = std::string("--layers 1 --heads 2 --sliding-window 1 ") + flags;
    INFO(options);
    const SmallModel small(options);
    for (const AttentionPicture::Map& map : attention_picture(small.run, *small.model, small.example("a b c d", "c d")).maps)
      CHECK(map.windows.empty() == (!shown || map.axes == AttentionPicture::Axes::cross));
  }
}

TEST_CASE("translate: a picture traces only models whose windows it shows") {
  for (const auto& [flags, traces] : {std::pair("--model gru --attention local-p --window 2", true),
                                      {"--model gru --attention general", false},
                                      {"--layers 1 --heads 2", false}}) {
    const SmallModel small(flags);
    const Trace outer;                                                                // sees what no inner one takes
    const AttentionPicture picture = attention_picture(small.run, *small.model, small.example("a b", "c d"));
    CHECK(outer.entries().empty() == traces);
    CHECK(picture.maps.back().windows.empty() != traces);
  }
}
