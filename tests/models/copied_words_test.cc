// SPDX-License-Identifier: Apache-2.0
#include "models/copied_words.h"

#include <doctest/doctest.h>

#include "models/batch.h"

using namespace heed;

namespace {

using Ids = std::vector<std::int32_t>;
using Words = std::vector<std::string>;

Side side_of(const std::string& words) { return build_side(std::vector<std::string>{words}, {}); }   // ids from 4, in order of bytes

}  // namespace

TEST_CASE("copied words: a word outside of a vocabulary has an id by its first place in the source, on both sides") {
  const Side source = side_of("a b c"), target = side_of("b d");        // U = 7, V = 6; a and c are no target words
  const Example pair = encode_pair(source, target, "x a d x b a", "a d x b y", true);
  REQUIRE(pair.outside.size() == 2);
  CHECK((pair.outside[0].place == 0 && pair.outside[0].word == "x"));
  CHECK((pair.outside[1].place == 1 && pair.outside[1].word == "a"));
  CHECK(pair.source == Ids{7 + 6 + 0, 4, 7 + 5, 7 + 6 + 0, 5, 4, 3});   // d is no source word, but a target word
  CHECK(pair.target == Ids{6 + 1, 5, 6 + 0, 4, 1, 3});
  CHECK(source_pieces(source.vocabulary, target.vocabulary, pair.source, pair.outside) == Words{"x", "a", "d", "x", "b", "a", "</s>"});
  CHECK(target_pieces(target.vocabulary, pair.target, pair.outside) == Words{"a", "d", "x", "b", "<unk>", "</s>"});
  CHECK_THROWS_AS(target_pieces(target.vocabulary, Ids{6 + 2}, pair.outside), IndexError);
  CHECK(shared_words(source.vocabulary, target.vocabulary).to_vector<std::int32_t>() == Ids{-1, -1, -1, 3, -1, 4, -1});
}

TEST_CASE("copied words: without copies such words are <unk>; the names of special words are words like others") {
  const Side source = side_of("a b c"), target = side_of("b d");
  const Example plain = encode_pair(source, target, "x a d", "a x d");
  CHECK(plain.outside.empty());
  CHECK(plain.source == Ids{1, 4, 1, 3});
  CHECK(plain.target == Ids{1, 1, 5, 3});
  const Example special = encode_pair(source, target, "</s> <unk> b", "</s> <unk>", true);
  CHECK(special.source == Ids{7 + 6, 7 + 6 + 1, 5, 3});
  CHECK(special.target == Ids{6, 6 + 1, 3});
}

TEST_CASE("copied words: examples of a corpus have them where asked for") {
  Corpus corpus;
  corpus.pairs = {{"a x", "x b", {}, 1}, {"b", "x", {}, 2}};
  const Side source = side_of("a b"), target = side_of("b");
  const std::vector<Example> examples = make_examples(corpus, source, target, {.copies = true});
  CHECK(examples[0].target == Ids{5 + 1, 4, 3});
  CHECK(examples[1].target == Ids{1, 3});                                // no word of its source
  CHECK(examples[1].pair == 1);
  CHECK(make_examples(corpus, source, target)[0].target == Ids{1, 4, 3});
}
