// SPDX-License-Identifier: Apache-2.0
#include "models/corpus.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "models/tokenizer.h"
#include "tensor/format.h"
#include "tensor/sha256.h"

namespace heed {
namespace {

using Digest = std::array<std::uint8_t, 32>;

TextReport operator+(const TextReport& a, const TextReport& b) {
  return {a.lines, a.invalid + b.invalid, a.byte_order_marks + b.byte_order_marks, a.carriage_returns + b.carriage_returns};
}

void add(Corpus& corpus, Pair pair, CorpusOptions options) {
  const bool empty = is_blank(pair.source) || is_blank(pair.target);
  if (empty) ++(options.skip_empty ? corpus.report.empty : corpus.report.empty_kept);
  if (empty && options.skip_empty) return;
  corpus.pairs.push_back(std::move(pair));
  ++corpus.report.pairs;
}

void check_not_empty(const Corpus& corpus) {
  check<FileError>(corpus.report.text.lines > 0, "{}: empty file", corpus.name);
  if (corpus.pairs.empty()) fail<FileError>("no sentence pairs: {}", to_string(corpus));
}

std::vector<Link> links(std::string_view column, char mark, const LineReader& reader) {
  try {
    return parse_links(column, mark);
  } catch (const Error& e) {
    throw FileError(
        fmt::format("{}: line {}: {}; `cut -f1,2` leaves out columns that hold no links", reader.path(), reader.number(), e.what()));
  }
}

// As links count words
Index word_count(std::string_view text) { return Index(Tokenizer().tokens(text).size()); }

std::string source_key(std::string_view source) { return lower(clean(source)); }

Digest digest(std::string_view source) {
  Sha256 hash;
  hash.update(source_key(source));
  return hash.digest();
}

}  // namespace

std::string to_string(const Corpus& corpus) {
  const CorpusReport& r = corpus.report;
  std::string out = fmt::format("{}: {}, {}", corpus.name, counted(r.text.lines, "line"), counted(r.pairs, "pair"));
  const auto tell = [&](Index n, std::string_view noun, std::string_view what) {
    if (n > 0) out += fmt::format(", {} {}", noun.empty() ? fmt::to_string(n) : counted(n, noun), what);
  };
  tell(r.too_long, "", "of them left out as too long");
  tell(r.empty, "line", "skipped for an empty side");
  tell(r.empty_kept, "", "with an empty side");
  tell(r.text.invalid, "invalid byte sequence", "replaced");
  tell(r.text.byte_order_marks, "byte order mark", "removed");
  tell(r.text.carriage_returns, "carriage return", "removed");
  tell(r.unlinked, "", "of them without their links, since cleaning took away a word");
  tell(r.further_columns, "line", "with further columns, which are ignored");
  return out;
}

Corpus read_tsv(const std::string& path, CorpusOptions options) {
  Corpus corpus{path, {}, {}};
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    std::array<std::string_view, 4> column{};
    std::size_t columns = 0;
    for (std::size_t at = 0; at <= line.size(); ++columns) {
      const std::size_t end = std::min(line.find('\t', at), line.size());
      if (columns < 4) column[columns] = std::string_view(line).substr(at, end - at);
      at = end + 1;
    }
    if (columns < 2 && !is_blank(line))
      fail<FileError>("{}: line {}: one column, expected source TAB target: {}", path, reader.number(), quote(line));
    corpus.report.further_columns += columns > 4;
    Alignment alignment{links(column[2], '-', reader), links(column[3], '?', reader)};
    add(corpus, {std::string(column[0]), std::string(column[1]), std::move(alignment), reader.number()}, options);
  }
  corpus.report.text = reader.report;
  check_not_empty(corpus);
  return corpus;
}

Corpus read_parallel(const std::string& source_path, const std::string& target_path, CorpusOptions options) {
  Corpus corpus{source_path + " + " + target_path, {}, {}};
  LineReader sources(source_path), targets(target_path);
  std::string source, target;
  for (;;) {
    const bool more = sources.next(source), more_targets = targets.next(target);
    if (more != more_targets) {
      while (sources.next(source)) {}
      while (targets.next(target)) {}
      fail<FileError>("numbers of lines differ: {} has {}, {} has {}", source_path, sources.number(), target_path,
                      targets.number());
    }
    if (!more) break;
    add(corpus, {source, target, {}, sources.number()}, options);
  }
  corpus.report.text = sources.report + targets.report;
  check_not_empty(corpus);
  return corpus;
}

CorpusSplit split_by_source(const Corpus& corpus, SplitOptions options) {
  check<Error>(options.dev >= 0 && options.test >= 0, "split by source: sizes must not be negative: dev {}, test {}",
               options.dev, options.test);
  std::vector<Digest> digests;
  for (const Pair& pair : corpus.pairs) digests.push_back(digest(pair.source));
  std::vector<Digest> order = digests;
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  const auto dev = std::size_t(options.dev), test = dev + std::size_t(options.test);
  check<Error>(test < order.size(),
               "split by source: nothing is left to train: dev {}, test {}, different source sentences {}; smaller dev and test",
               options.dev, options.test, order.size());
  CorpusSplit split{{corpus.name + " (train)", {}, {}}, {corpus.name + " (dev)", {}, {}}, {corpus.name + " (test)", {}, {}}};
  std::set<Digest> taken;
  split.train.report = corpus.report;
  for (Corpus* part : {&split.train, &split.dev, &split.test}) part->report.unlinked = 0;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    Corpus& part = digests[i] < order[dev] ? split.dev : digests[i] < order[test] ? split.test : split.train;
    if (&part != &split.train && !taken.insert(digests[i]).second) continue;
    const Pair& pair = corpus.pairs[i];
    Pair cleaned{clean(pair.source), clean(pair.target), pair.links, pair.line};
    if (word_count(cleaned.source) != word_count(pair.source) || word_count(cleaned.target) != word_count(pair.target)) {
      part.report.unlinked += !cleaned.links.sure.empty() || !cleaned.links.possible.empty();
      cleaned.links = {};
    }
    part.pairs.push_back(std::move(cleaned));
  }
  for (Corpus* part : {&split.train, &split.dev, &split.test}) {
    part->report.text.lines = corpus.report.text.lines;
    part->report.pairs = Index(part->pairs.size());
  }
  return split;
}

Index shared_sources(const Corpus& train, const Corpus& other) {
  std::unordered_set<std::string> known;
  for (const Pair& pair : train.pairs) known.insert(source_key(pair.source));
  return std::count_if(other.pairs.begin(), other.pairs.end(),
                       [&](const Pair& pair) { return known.contains(source_key(pair.source)); });
}

}  // namespace heed
