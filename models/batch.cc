// SPDX-License-Identifier: Apache-2.0
#include "models/batch.h"

#include <algorithm>
#include <numeric>

#include "tensor/format.h"

namespace heed {

Side build_side(std::span<const std::string> lines, TokenizerOptions options, VocabularyOptions vocabulary) {
  constexpr Index standard = 8000;
  return build_side(train_tokenizer(std::move(options), lines, vocabulary.max_size > 0 ? vocabulary.max_size : standard), lines,
                    vocabulary);
}

Side build_side(Tokenizer tokenizer, std::span<const std::string> lines, VocabularyOptions vocabulary) {
  TokenCounts counts, own;
  for (const std::string& line : lines) count_tokens(counts, tokenizer.tokens(line));
  for (const std::string& piece : tokenizer.pieces()) own[piece] = std::max<Index>(counts[piece], 1);    // 1: merges always went on
  if (!own.empty()) vocabulary.min_count = 1;
  return {std::move(tokenizer), build_vocabulary(own.empty() ? counts : own, vocabulary)};
}

namespace {
std::vector<std::string> lines_of(const Corpus& corpus, std::string Pair::*side) {
  std::vector<std::string> lines;
  for (const Pair& pair : corpus.pairs) lines.push_back(pair.*side);
  return lines;
}
}  // namespace

std::vector<std::string> source_lines(const Corpus& corpus) { return lines_of(corpus, &Pair::source); }
std::vector<std::string> target_lines(const Corpus& corpus) { return lines_of(corpus, &Pair::target); }

std::vector<std::int32_t> encode(const Side& side, std::string_view line) {
  std::vector<std::int32_t> ids = side.vocabulary.ids(side.tokenizer.tokens(line));
  ids.push_back(side.vocabulary.eos);
  return ids;
}

std::string decode(const Side& side, std::span<const std::int32_t> ids) {
  return side.tokenizer.text(side.vocabulary.tokens(ids));
}

Example encode_pair(const Side& source, const Side& target, std::string_view source_line, std::string_view target_line, bool copies) {
  const std::vector<std::string> x = source.tokenizer.tokens(source_line), y = target.tokenizer.tokens(target_line);
  Example example{.source = {}, .target = {}};
  if (copies) example.outside = outside_words(target.vocabulary, x);
  example.source = copies ? source_ids(source.vocabulary, target.vocabulary, x, example.outside) : source.vocabulary.ids(x);
  example.target = target_ids(target.vocabulary, y, example.outside);
  example.source.push_back(source.vocabulary.eos);
  example.target.push_back(target.vocabulary.eos);
  return example;
}

std::vector<Example> make_examples(const Corpus& corpus, const Side& source, const Side& target, ExampleOptions options,
                                   Index* too_long) {
  check<Error>(options.max_length >= 0, "examples: max_length must not be negative: {}", options.max_length);
  std::vector<Example> examples;
  examples.reserve(corpus.pairs.size());
  Index left_out = 0;
  for (std::size_t i = 0; i < corpus.pairs.size(); ++i) {
    const Pair& pair = corpus.pairs[i];
    Example example = encode_pair(source, target, pair.source, pair.target, options.copies);
    example.pair = Index(i);
    const Index S = Index(example.source.size()) - 1, T = Index(example.target.size()) - 1;
    if (options.links) {
      for (const auto& [list, mark] : {std::pair(&pair.links.sure, '-'), std::pair(&pair.links.possible, '?')})
        for (const Link& link : *list)
          check<FileError>(link.source < S && link.target < T,
                           "{}: line {}: link {}{}{} points outside: source tokens {}, target tokens {}", corpus.name,
                           pair.line, link.source, mark, link.target, S, T);
      example.links = pair.links;
    }
    if (options.max_length > 0 && std::max(S, T) > options.max_length) ++left_out;
    else examples.push_back(std::move(example));
  }
  if (too_long) *too_long += left_out;
  return examples;
}

Batch make_batch(std::span<const Example> examples, std::int32_t pad, std::int32_t start) {
  std::vector<Index> rows(examples.size());
  std::iota(rows.begin(), rows.end(), Index(0));
  return make_batch(examples, rows, pad, start);
}

Batch make_batch(std::span<const Example> examples, std::span<const Index> rows, std::int32_t pad, std::int32_t start) {
  Batch batch;
  List<std::span<const std::int32_t>> sources, targets;
  for (const Index i : rows) {
    check<IndexError>(i >= 0 && i < Index(examples.size()), "batch: example {} is not in [0, {})", i, examples.size());
    const Example& example = examples[std::size_t(i)];
    sources.push_back(example.source);
    targets.push_back(example.target);
    batch.source_tokens += Index(example.source.size());
    batch.target_tokens += Index(example.target.size());
  }
  batch.source = pad_sequences(sources, pad);
  const Sequences y = pad_sequences(targets, pad);
  batch.targets = y.ids;
  batch.lengths = y.lengths;
  batch.inputs = y.ids.clone();
  auto* row = batch.inputs.mutable_data<std::int32_t>();
  for (const std::int32_t n : y.lengths.span<std::int32_t>()) {
    if (n > 0) std::copy_backward(row, row + n - 1, row + n), row[0] = start;
    row += y.ids.size(1);
  }
  return batch;
}

void add_links(Batch& batch, std::span<const Example> examples, std::span<const Index> rows) {
  const Index B = batch.source.size(), T = batch.targets.size(1), S = batch.source.ids.size(1);
  check<ShapeError>(B == Index(rows.size()), "links: of {} examples for a batch of {}", rows.size(), B);
  batch.links = zeros({B, T, S});
  batch.linked_tokens = 0;
  float* shares = batch.links.mutable_data<float>();                                              // [T, S] of a sentence
  List<Index> linked;                                                                             // source words of each target
  for (const Index i : rows) {
    check<IndexError>(i >= 0 && i < Index(examples.size()), "links: example {} is not in [0, {})", i, examples.size());
    const std::vector<Link>& links = examples[std::size_t(i)].links.sure;
    linked.assign(std::size_t(T), 0);
    for (const auto [s, t] : links) {
      check<IndexError>(s >= 0 && s < S && t >= 0 && t < T, "links: {}-{} of example {} points outside of source {}, target {}", s, t, i, S,
                        T);
      if (shares[t * S + s] == 0) ++linked[std::size_t(t)];
      shares[t * S + s] = 1;
    }
    for (Index t = 0; t < T; ++t) batch.linked_tokens += linked[std::size_t(t)] > 0;
    for (const auto [s, t] : links) shares[t * S + s] = 1 / float(linked[std::size_t(t)]);
    shares += T * S;
  }
}

BatchSampler::BatchSampler(std::span<const Example> examples, BatchOptions options, Key key) : options_(options), key_(key) {
  check<Error>(options.sentences > 0 || (options.sentences == 0 && options.tokens > 0),
               "batches: a batch needs at least one token or sentence: tokens {}, sentences {}", options.tokens,
               options.sentences);
  check<Error>(options.window > 0, "batches: window must be at least 1: {}", options.window);
  for (const Example& example : examples) lengths_.push_back({Index(example.source.size()), Index(example.target.size())});
}

std::vector<std::vector<Index>> BatchSampler::cut(std::span<const Index> order) const {
  std::vector<std::vector<Index>> batches;
  Index n = 0, longest_source = 0, longest_target = 0;
  for (Index i : order) {
    const auto [S, T] = lengths_[std::size_t(i)];
    longest_source = std::max(longest_source, S), longest_target = std::max(longest_target, T), ++n;
    const bool full = options_.sentences > 0 ? n > options_.sentences
                                             : n * longest_target > options_.tokens || (n * longest_source + 3) / 4 > options_.tokens;
    if (full || batches.empty()) batches.emplace_back(), n = 1, longest_source = S, longest_target = T;
    batches.back().push_back(i);
  }
  return batches;
}

std::vector<std::vector<Index>> BatchSampler::epoch(Index epoch) const {
  std::vector<Index> order(lengths_.size());
  std::iota(order.begin(), order.end(), Index(0));
  Random random(key_ / "batches" / epoch);
  random.shuffle(std::span(order));
  const auto length = [&](Index i) { return lengths_[std::size_t(i)]; };
  if (options_.sentences > 0) {
    const Index all = Index(order.size());
    const auto window = std::size_t(options_.sentences > all / options_.window ? all : options_.sentences * options_.window);
    for (std::size_t i = 0; i < order.size(); i += window)
      std::stable_sort(order.begin() + std::ptrdiff_t(i), order.begin() + std::ptrdiff_t(std::min(i + window, order.size())),
                       [&](Index a, Index b) { return length(a).source < length(b).source; });
  } else {
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
      return std::pair(length(a).target, length(a).source) < std::pair(length(b).target, length(b).source);
    });
  }
  std::vector<std::vector<Index>> batches = cut(order);
  random.shuffle(std::span(batches));
  return batches;
}

std::vector<std::vector<Index>> BatchSampler::by_length() const {
  std::vector<Index> order(lengths_.size());
  std::iota(order.begin(), order.end(), Index(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return lengths_[std::size_t(a)].source < lengths_[std::size_t(b)].source; });
  return cut(order);
}

}  // namespace heed
