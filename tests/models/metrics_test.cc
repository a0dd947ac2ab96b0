// SPDX-License-Identifier: Apache-2.0
#include "models/metrics.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/python_text.h"
#include "tensor/error.h"
#include "tensor/file.h"
#include "tensor/json.h"

using namespace heed;
using Lines = std::vector<std::string>;

namespace {

Json golden() { return parse_json(read_file(HEED_SOURCE_DIR "/tests/golden/bleu.json")); }

// Equal but for the last bits of exp and log: a sum of four logarithms and one exp.
bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

BleuOptions bleu_options(const Json& row) {
  const std::string smoothing = row["smooth_method"];
  BleuOptions options;
  options.tokenizer = row["tokenize"] == "none" ? BleuTokenizer::none : BleuTokenizer::mteval_13a;
  options.smoothing = smoothing == "exp"     ? BleuSmoothing::exp
                      : smoothing == "floor" ? BleuSmoothing::floor
                      : smoothing == "add-k" ? BleuSmoothing::add_k
                                             : BleuSmoothing::none;
  if (row["smooth_value"].is_number()) options.smoothing_value = row["smooth_value"];
  options.effective_order = row["effective_order"];
  options.lowercase = row["lowercase"];
  return options;
}

const References kReference{{"a b c d"}};

}  // namespace

// Expected: python's str.lower
TEST_CASE("metrics: lower case is Python's, Σ after characters that are no letters too") {
  for (const auto& [text, expected] :
       {std::pair("ΑΣⅧ ΑΣⓐ ΑΣª", "ασⅷ ασⓐ ασª"), {"ⅧΣ ⒶΣ ºΣ \U0001F130Σ", "ⅷς ⓐς ºς \U0001F130ς"}, {"ΑΣ1 ΑΣʰ 1Σ", "ας1 αςʰ 1σ"}})
    CHECK(python::utf8(python::lower(python::code_points(text))) == expected);
}

TEST_CASE("bleu has sacreBLEU's numbers") {
  const auto file = golden();
  for (const auto& corpus : file["corpora"]) {
    const Lines hypotheses = corpus["hypotheses"];
    const References references = corpus["references"];
    for (std::size_t i = 0; i < file["bleu settings"].size(); ++i) {
      const auto& settings = file["bleu settings"][i];
      const std::vector<double> want = corpus["bleu"][i];  // score, four precisions, brevity penalty, lengths
      INFO(corpus["name"].get<std::string>(), ", ", settings["signature"].get<std::string>());
      const BleuScore got = bleu(hypotheses, references, bleu_options(settings));
      INFO(to_string(got), " wanted ", want[0]);
      CHECK(close(got.score, want[0]));
      for (std::size_t n = 0; n < 4; ++n) CHECK(close(got.precisions[n], want[n + 1]));
      CHECK(close(got.brevity_penalty, want[5]));
      CHECK(got.counts.hypothesis_length == Index(want[6]));
      CHECK(got.counts.reference_length == Index(want[7]));
      CHECK(got.signature ==
            std::string(corpus["nrefs"]) + "|" + std::string(settings["signature"]) + "|version:heed-" HEED_VERSION);
    }
  }
}

TEST_CASE("chrf refuses orders that no text has") {
  const std::vector<std::string> text{"a"};
  CHECK_THROWS_WITH_AS(chrf(text, single_references(text), {.character_order = 2000000000}),
                       "chrf: needs orders in [0, 1000], one of them positive, and beta >= 0: character_order 2000000000, word_order 0, "
                       "beta 2",
                       Error);
  CHECK_THROWS_AS(chrf(text, single_references(text), {.character_order = 0, .word_order = 0}), Error);
}

TEST_CASE("chrf has sacreBLEU's numbers") {
  const auto file = golden();
  for (const auto& corpus : file["corpora"]) {
    const Lines hypotheses = corpus["hypotheses"];
    const References references = corpus["references"];
    for (std::size_t i = 0; i < file["chrf settings"].size(); ++i) {
      const auto& settings = file["chrf settings"][i];
      INFO(corpus["name"].get<std::string>(), ", ", settings["signature"].get<std::string>());
      const ChrfScore got = chrf(hypotheses, references,
                                 {.character_order = settings["char_order"],
                                  .word_order = settings["word_order"],
                                  .beta = settings["beta"],
                                  .lowercase = settings["lowercase"],
                                  .whitespace = settings["whitespace"]});
      CHECK(close(got.score, corpus["chrf"][i]));
      CHECK(got.name == std::string(settings["name"]));
      CHECK(got.signature ==
            std::string(corpus["nrefs"]) + "|" + std::string(settings["signature"]) + "|version:heed-" HEED_VERSION);
    }
  }
}

TEST_CASE("the 13a tokeniser") {
  const auto file = golden();
  for (const auto& pair : file["tokens"]) CHECK(tokenize_13a(pair[0].get<std::string>()) == pair[1].get<std::string>());
  CHECK(tokenize_13a("a \xff\xc3, b") == "a \xff\xc3 , b");  // bytes that are no UTF-8 stay as they are
}

TEST_CASE("chrf: of references that are equally good but for rounding the one that sacreBLEU takes") {
  // F of the first segment is 125/6 against both references, in sacreBLEU's arithmetic one bit more against the second.
  const References references{{"x-a", "!a"}, {"a cat", "the hat"}};
  CHECK(close(chrf(Lines{"xb,a", "the cat"}, references).score, 35.601265822784804));
}

TEST_CASE("bleu by hand") {
  // 1-grams 4/5, 2-grams 2/4, 3-grams 1/3, 4-grams 0/2 -> 1/(2·2); c = 5 > r = 4
  const BleuScore score = sentence_bleu("a b c x d", kReference[0], {});
  CHECK(close(score.score, 100 * std::pow(0.8 * 0.5 * (1.0 / 3) * 0.25, 0.25)));
  CHECK(score.brevity_penalty == 1);
  CHECK(score.length_ratio() == 1.25);
  CHECK(to_string(score) == "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heed-" HEED_VERSION
                            " = 42.73 80.0/50.0/33.3/25.0 (BP = 1.000 ratio = 1.250 hyp_len = 5 ref_len = 4)");
  CHECK(close(sentence_bleu("a b", kReference[0]).score, 100 * std::exp(1 - 4.0 / 2)));  // orders 1 and 2 exist, both perfect
  CHECK(bleu(Lines{"a b"}, kReference).score == 0);
}

TEST_CASE("bleu by source length") {
  const Lines hypotheses{"a b c d", "a b c d", "e f g h", "x"};
  const Lines references{"a b c d", "a b c e", "e f g h", "y"};
  const std::vector<Index> lengths{10, 11, 20, 41};
  const auto buckets = bleu_by_length(lengths, hypotheses, single_references(references));
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].above == 0);
  CHECK(buckets[0].up_to == 10);
  CHECK(buckets[0].segments == 1);
  CHECK(close(buckets[0].bleu.score, 100));
  CHECK(buckets[1].above == 10);
  CHECK(buckets[1].segments == 2);
  CHECK(buckets[1].bleu.score == bleu(std::span(hypotheses).subspan(1, 2), {{"a b c e"}, {"e f g h"}}).score);
  CHECK(buckets[2].above == 40);
  CHECK(buckets[2].up_to == 50);
  CHECK(buckets[2].bleu.score == 0);
  // Where no reference has four tokens the orders count that there are.
  const auto brief =
      bleu_by_length(std::vector<Index>{2, 3, 5}, Lines{"a b", "c d e", "a b c d e"}, {{"a b"}, {"c d e"}, {"a b c d e"}}, 3);
  CHECK((close(brief[0].bleu.score, 100) && close(brief[1].bleu.score, 100)));
  CHECK(brief[0].bleu.signature.find("|eff:yes|") != std::string::npos);
  CHECK(brief[1].bleu.signature.find("|eff:no|") != std::string::npos);
  // One of several is enough, the closest or not.
  const auto either = bleu_by_length(std::vector<Index>{3}, Lines{"a b c"}, {{"a b c", "a b c d"}});
  CHECK(either[0].bleu.signature.find("|eff:no|") != std::string::npos);
  CHECK(bleu_by_length(std::vector<Index>{4}, Lines{"a b c d"}, kReference)[0].bleu.signature.find("|eff:no|") != std::string::npos);
  CHECK_THROWS_WITH_AS(bleu_by_length(std::vector<Index>{1}, hypotheses, single_references(references)),
                       "bleu by length: numbers of lines differ: source lengths 1, hypotheses 4", Error);
}

TEST_CASE("exact match, perplexity") {
  CHECK(exact_match(Lines{"\u00C0 B"}, {{"\u00E0 b"}}) == 0);
  CHECK(exact_match(Lines{"\u00C0 B"}, {{"\u00E0 b"}}, true) == 1);
  CHECK(exact_match(Lines{"a b", " a\tb ", "a  c", "A B"}, {{"a b"}, {"x", "a b"}, {"a b"}, {"a b"}}) == 0.5);
  CHECK(perplexity(0, 7) == 1);
  CHECK(close(perplexity(8 * std::log(5.0), 8), 5));
  CHECK_THROWS_WITH_AS(perplexity(1, 0), "perplexity: needs at least one token: 0", Error);
}

TEST_CASE("wrong input to metrics") {
  CHECK_THROWS_WITH_AS(bleu(Lines{"a", "b"}, kReference), "bleu: numbers of lines differ: hypotheses 2, references 1", Error);
  CHECK_THROWS_WITH_AS(chrf(Lines{}, {}), "chrf: nothing to score: hypotheses 0, references 0", Error);
  CHECK_THROWS_WITH_AS(bleu(Lines{"a", "b"}, {{"a"}, {}}), "bleu: segment 1 has no reference", Error);
  CHECK_THROWS_AS(exact_match(Lines{"a"}, {}), Error);
  CHECK_THROWS_AS(chrf(Lines{"a"}, {{"a"}}, {.character_order = 0}), Error);
}
