// SPDX-License-Identifier: Apache-2.0
#include "models/batch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "models/bpe.h"
#include "tests/every_model.h"
#include "tests/models/pairs.h"
#include "tests/thrown.h"

using namespace heed;
using Ids = std::vector<std::int32_t>;
using Lines = std::vector<std::string>;
using Batches = std::vector<std::vector<Index>>;

namespace {

std::vector<Example> random_examples(int n, Index longest) {
  Random random(Key(Seed{21}));
  std::vector<Example> examples;
  for (int i = 0; i < n; ++i) {
    const Index S = 1 + random.below(longest), T = std::max<Index>(1, S + random.below(5) - 2);
    examples.push_back({Ids(std::size_t(S), 4), Ids(std::size_t(T), 4), {}, i});
  }
  return examples;
}

std::vector<Index> all_of(const Batches& batches) {
  std::vector<Index> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Index> numbers(Index n) {
  std::vector<Index> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), Index(0));
  return out;
}

}  // namespace

TEST_CASE("side: lines to ids and back") {
  const Lines lines = {"The cat, the dog.", "A cat!"};
  const Side side = build_side(lines, {.name = "word", .lowercase = true}, {.min_count = 1, .max_size = 9});
  CHECK(side.vocabulary.pieces() == Lines{"<pad>", "<unk>", "<s>", "</s>", "cat", "the", "!", ",", "."});
  CHECK(encode(side, "The CAT, the bird.") == Ids{5, 4, 7, 5, 1, 8, 3});
  CHECK(decode(side, encode(side, "the cat, the bird.")) == "the cat, the <unk>.");
  CHECK(encode(side, "") == Ids{3});
  CHECK(decode(side, Ids{}) == "");
  if (has_sentencepiece()) {
    const Side bpe = build_side(Lines(20, "low lower lowest"), {.name = "bpe"}, {.max_size = 25});
    CHECK(bpe.vocabulary.size() <= 25);
    CHECK(decode(bpe, encode(bpe, "lowest low")) == "lowest low");
    const Side same = build_side(bpe.tokenizer, Lines{"lowest", "Яйцо"}, {.min_count = 9});   // letters that it does not know; its own stay
    CHECK(same.vocabulary.size() == Index(bpe.tokenizer.pieces().size()) + 4);
    CHECK(decode(same, encode(same, "low Я")) == "low <unk>");
    CHECK(decode(bpe, encode(bpe, "stew roll")) == "stew roll");                  // letters that stood inside of merges only
  }
}

TEST_CASE("links of a batch: equal shares among the source words of a target") {
  const std::vector<Example> examples{
      {{4, 5, 3}, {4, 5, 6, 3}, {{{1, 0}, {0, 2}, {1, 2}, {1, 2}}, {{0, 1}}}}, {{4, 3}, {4, 3}, {}}, {{4, 3}, {4, 3}, {{{0, 0}}, {}}}};
  const std::vector<Index> rows{2, 0};
  Batch batch = make_batch(examples, rows, 0, 2);
  CHECK(!batch.links.defined());
  add_links(batch, examples, rows);
  CHECK(batch.links.shape() == Shape{2, 4, 3});
  CHECK(batch.links.to_vector<float>() == std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0.5f, 0.5f, 0, 0, 0, 0});
  CHECK(batch.linked_tokens == 3);
  add_links(batch, examples, std::vector<Index>{1, 1});
  CHECK(batch.linked_tokens == 0);
}

TEST_CASE("examples: ids, links, lengths") {
  Corpus corpus{"x.tsv", {{"a b c", "x y", {{{2, 1}}, {{0, 0}}}, 1}, {"a", "x y x y", {}, 3}, {"b", "y", {}, 4}}, {}};
  const Side source = build_side(source_lines(corpus), {}), target = build_side(target_lines(corpus), {});
  std::vector<Example> examples = make_examples(corpus, source, target);
  REQUIRE(examples.size() == 3);
  CHECK(examples[0].source == Ids{4, 5, 6, 3});
  CHECK(examples[0].target == Ids{5, 4, 3});            // y is more frequent than x
  CHECK(examples[0].links.sure == std::vector<Link>{{2, 1}});
  CHECK(examples[0].links.possible == std::vector<Link>{{0, 0}});
  CHECK(examples[2].pair == 2);
  Index too_long = 1;
  examples = make_examples(corpus, source, target, {.max_length = 3}, &too_long);
  CHECK(examples.size() == 2);
  CHECK(examples[1].pair == 2);
  CHECK(too_long == 2);
  CHECK(make_examples(corpus, source, target, {.max_length = 1}).size() == 1);

  corpus.pairs[1].links.sure = {{1, 0}};
  CHECK(message_of<FileError>([&] { make_examples(corpus, source, target); }) ==
        "x.tsv: line 3: link 1-0 points outside: source tokens 1, target tokens 4");
  CHECK(make_examples(corpus, source, target, {.links = false})[0].links.sure.empty());
  corpus.pairs[1].links = {{}, {{0, 4}}};
  CHECK(message_of<FileError>([&] { make_examples(corpus, source, target); }) ==
        "x.tsv: line 3: link 0?4 points outside: source tokens 1, target tokens 4");
  CHECK(message_of([&] { make_examples(corpus, source, target, {.max_length = -1}); }) ==
        "examples: max_length must not be negative: -1");
}

TEST_CASE("batches by tokens: every example once, within the limit, little padding") {
  std::vector<Example> examples = random_examples(5000, 30);
  examples.push_back({Ids(5, 4), Ids(700, 4), {}, 5000});            // longer than a batch: alone
  examples.push_back({Ids(5000, 4), Ids(5, 4), {}, 5001});
  const Index limit = 512;
  const BatchSampler sampler(examples, {.tokens = limit}, Key(Seed{1}));
  const Batches batches = sampler.epoch(0);
  CHECK(all_of(batches) == numbers(5002));
  Index padded = 0, real = 0;
  for (const auto& batch : batches) {
    Index S = 0, T = 0;
    for (Index i : batch) {
      S = std::max(S, Index(examples[std::size_t(i)].source.size())),
      T = std::max(T, Index(examples[std::size_t(i)].target.size()));
      real += Index(examples[std::size_t(i)].source.size() + examples[std::size_t(i)].target.size());
    }
    const Index n = Index(batch.size());
    CHECK((n == 1 || (n * T <= limit && n * S <= 4 * limit)));
    padded += n * (S + T);
  }
  CHECK(double(padded) < 1.05 * double(real));
  CHECK(double(batches.size()) < 1.05 * double(real) / 2 / double(limit) + 3);      // and the batches are full
}

TEST_CASE("batches by sentences: sorted inside windows of so many batches") {
  const std::vector<Example> examples = random_examples(1000, 40);
  const BatchSampler sampler(examples, {.sentences = 8, .window = 10}, Key(Seed{1}));
  const Batches batches = sampler.epoch(3);
  CHECK(all_of(batches) == numbers(1000));
  CHECK(batches.size() == 125);
  Index spread = 0;
  for (const auto& batch : batches) {
    CHECK(batch.size() == 8);
    const auto length = [&](Index i) { return Index(examples[std::size_t(i)].source.size()); };
    CHECK(std::is_sorted(batch.begin(), batch.end(), [&](Index a, Index b) { return length(a) < length(b); }));
    spread += length(batch.back()) - length(batch.front());
  }
  CHECK((spread > 2 * 125 && spread < 8 * 125));         // a window of 80 lengths over 1..40: about 4 apart within 8 neighbours
  CHECK(BatchOptions().window == 50);
  CHECK(BatchSampler(examples, {.sentences = 7}, Key(Seed{1})).epoch(0).size() == 143);                  // the last one has 6
  const Batches one = BatchSampler(examples, {.sentences = Index(1) << 62, .window = Index(1) << 62}, Key(Seed{1})).epoch(0);
  CHECK(one.size() == 1);
}

TEST_CASE("batches: an epoch is a function of key and number, nothing else") {
  const std::vector<Example> examples = random_examples(600, 20);
  for (const BatchOptions& options : {BatchOptions{.tokens = 200}, BatchOptions{.sentences = 16}}) {
    const BatchSampler a(examples, options, Key(Seed{1})), b(examples, options, Key(Seed{1})),
        c(examples, options, Key(Seed{2}));
    const Batches fifth = a.epoch(5);
    CHECK(b.epoch(5) == fifth);                          // without the epochs before
    CHECK(a.epoch(5) == fifth);
    CHECK(a.epoch(4) != fifth);
    CHECK(c.epoch(5) != fifth);
    std::set<std::vector<Index>> groups;                 // the groups change, not only their order
    for (auto batch : fifth) std::sort(batch.begin(), batch.end()), groups.insert(batch);
    std::size_t same = 0;
    for (auto batch : a.epoch(4)) std::sort(batch.begin(), batch.end()), same += groups.contains(batch);
    CHECK(same * 4 < fifth.size());                      // where only few have a length, they meet again
    std::size_t falls = 0;                               // long and short batches come in any order
    const auto length = [&](const std::vector<Index>& batch) {
      return examples[std::size_t(batch[0])].source.size() + examples[std::size_t(batch[0])].target.size();
    };
    for (std::size_t i = 1; i < fifth.size(); ++i) falls += length(fifth[i]) < length(fifth[i - 1]);
    CHECK(4 * falls > fifth.size());
    CHECK(4 * falls < 3 * fifth.size());
    CHECK(all_of(a.by_length()) == numbers(600));
    CHECK(a.by_length() == c.by_length());
  }
}

TEST_CASE("batches: nothing to batch, mistakes") {
  CHECK(BatchSampler({}, {}, Key(Seed{1})).epoch(0).empty());
  CHECK(BatchSampler({}, {}, Key(Seed{1})).by_length().empty());
  CHECK(message_of([] { BatchSampler({}, {.tokens = 0}, Key(Seed{1})); }) ==
        "batches: a batch needs at least one token or sentence: tokens 0, sentences 0");
  CHECK_THROWS_AS(BatchSampler({}, {.sentences = -2}, Key(Seed{1})), Error);
  CHECK(message_of([] { BatchSampler({}, {.window = 0}, Key(Seed{1})); }) == "batches: window must be at least 1: 0");
}

TEST_CASE("make_batch: pads, puts the start symbol in front of the target, counts words") {
  const std::vector<Example> examples{{Ids{5, 3}, Ids{6, 7, 3}, {}, 0}, {Ids{8, 9, 5, 3}, Ids{3}, {}, 1}};
  const Batch batch = make_batch(examples, 0, 2);
  CHECK(batch.source.ids.shape() == Shape{2, 4});
  CHECK(batch.source.ids.to_vector<std::int32_t>() == Ids{5, 3, 0, 0, 8, 9, 5, 3});
  CHECK(batch.source.lengths.to_vector<std::int32_t>() == Ids{2, 4});
  CHECK(batch.inputs.to_vector<std::int32_t>() == Ids{2, 6, 7, 2, 0, 0});
  CHECK(batch.targets.to_vector<std::int32_t>() == Ids{6, 7, 3, 3, 0, 0});
  CHECK(batch.lengths.to_vector<std::int32_t>() == Ids{3, 1});
  CHECK(batch.source_tokens == 6);
  CHECK(batch.target_tokens == 4);
  CHECK(make_batch(examples, std::vector<Index>{1}, 0, 2).inputs.to_vector<std::int32_t>() == Ids{2});
  CHECK(message_of<IndexError>([&] { make_batch(examples, std::vector<Index>{0, 2}, 0, 2); }) == "batch: example 2 is not in [0, 2)");
  CHECK(make_batch({}, 0, 2).source.size() == 0);
}

TEST_CASE("batches by tokens: source words count a fourth, to the word") {
  for (const auto& [longest, together] : {std::pair(129, 3), {130, 2}}) {                 // 3 · 129 <= 4 · 97 < 3 · 130
    const std::vector<Example> examples(3, Example{Ids(std::size_t(longest), 4), Ids(1, 4), {}, 0});
    CHECK(BatchSampler(examples, {.tokens = 97}, Key(Seed{1})).by_length()[0].size() == std::size_t(together));
  }
}

TEST_CASE("batch: target tokens that nobody counted are counted by lengths") {
  const SmallModel gru("--model gru");
  Batch batch = test::batch_of({{4, 5, 3}, {4, 3}}, {{4, 3}, {5, 4, 3}});
  CHECK(target_tokens(batch) == 5);
  const double mean = gru.model->loss(batch, {}).mean().value().item();
  batch.target_tokens = 0;
  CHECK(gru.model->loss(batch, {}).tokens == 5);
  CHECK(gru.model->loss(batch, {}).mean().value().item() == mean);
  batch.lengths = {};
  CHECK(message_of([&] { target_tokens(batch); }) == "loss: a batch of targets [2, 3] has target_tokens 0 and no lengths to count them by");
}
