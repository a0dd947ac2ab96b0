// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/cli/model.h"
#include "models/alignment_metrics.h"
#include "models/drawing.h"
#include "models/text.h"

namespace heed::cli {
namespace {

constexpr std::size_t kBlock = 256;                // sentences after which a wish to stop is heard

}  // namespace

std::vector<std::string> read_lines(const std::string& path, const Manner& manner) {
  LineReader reader(path == "-" ? "/dev/stdin" : path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  if (lines.empty()) throw Mistake(fmt::format("empty file: {}; a sentence a line", path));
  if (reader.report.invalid > 0 && !manner.quiet)
    note(fmt::format("{}: {} replaced; is it UTF-8?", path, counted(reader.report.invalid, "invalid byte sequence")));
  return lines;
}

void add_references(References& references, const std::string& list, const std::string& beside, const Manner& manner) {
  for (const std::string& file : listed_files(list, "references")) {
    const std::vector<std::string> lines = read_lines(file, manner);
    if (lines.size() != references.size())
      throw Mistake(fmt::format("numbers of lines differ: {} has {}, {} has {}; line n is compared with line n", beside, references.size(),
                                file, lines.size()));
    for (std::size_t i = 0; i < lines.size(); ++i) references[i].push_back(lines[i]);
  }
}

std::string bleu_name(const RunConfig& config) { return config.tokenizer == "space" ? "BLEU" : "BLEU of tokens"; }

std::string bleu_parts(const BleuScore& s) {
  return fmt::format("{:.1f}/{:.1f}/{:.1f}/{:.1f}, brevity penalty {:.3f}, length ratio {:.3f}: {} to {}", s.precisions[0], s.precisions[1],
                     s.precisions[2], s.precisions[3], s.brevity_penalty, s.length_ratio(), counted(s.counts.hypothesis_length, "token"),
                     s.counts.reference_length);
}

std::string token_line(std::span<const std::string> tokens) {
  std::string line;
  for (const std::string& token : tokens) {
    if (!line.empty()) line += ' ';
    line += drawing::word(token);
  }
  return line;
}

std::optional<Translated> translate_lines(const Run& run, const Translator& model, std::span<const std::string> lines,
                                          const References& references, TranslateOptions options, const std::function<bool(Index)>& go_on,
                                          Overlooked* overlooked) {
  Translated out;
  out.reference_tokens.resize(references.size());
  while (go_on(Index(out.texts.size()))) {
    if (out.texts.size() == lines.size()) return out;
    const std::span<const std::string> block = lines.subspan(out.texts.size(), std::min(kBlock, lines.size() - out.texts.size()));
    for (const auto& best : heed::translate(run, model, block, options, {}, overlooked)) {
      const std::size_t line = out.texts.size();
      bool any = false;
      for (const std::string& reference : references[line]) {
        const std::vector<std::string> wanted = run.target.tokenizer.tokens(reference);
        any |= best[0].tokens == wanted;
        out.reference_tokens[line].push_back(token_line(wanted));
      }
      out.exact += any;
      out.texts.push_back(best[0].text);
      out.token_lines.push_back(token_line(best[0].tokens));
    }
    draw_on(options, run, block);
  }
  return {};
}

BleuOptions token_bleu_options(const References& references) {
  const bool short_ones = std::ranges::all_of(references, [](const std::vector<std::string>& of_one) {
    return std::ranges::all_of(of_one, [](const std::string& line) { return std::ranges::count(line, ' ') + 1 < kBleuOrder; });
  });
  return {.tokenizer = BleuTokenizer::none, .effective_order = short_ones};
}

AlignmentQuality alignment_quality(const Run& run, const Seq2Seq& model, std::span<const Example> examples) {
  const std::vector<Tensor> weights = cross_attention_weights(run, model, examples);
  AlignmentQuality quality;
  if (weights.empty()) return quality;
  quality.entropy = attention_numbers(weights).row_entropy;
  std::vector<std::vector<Link>> predicted, input;
  std::vector<Tensor> words;
  std::vector<Alignment> gold;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Index T = weights[i].size(0), S = weights[i].size(1);
    if (T == 1 || S == 1 || (examples[i].links.sure.empty() && examples[i].links.possible.empty())) continue;   // no word, or none linked
    words.push_back(weights[i](Slice{0, T - 1}, Slice{0, S - 1}));
    predicted.push_back(attention_links(words.back()));                                   // row t: the word it predicts
    input.push_back(attention_links(weights[i](Slice{1, T}, Slice{0, S - 1})));           // row t + 1: the word it has read
    gold.push_back(examples[i].links);
  }
  if (std::ranges::all_of(gold, [](const Alignment& links) { return links.sure.empty(); })) return quality;
  const AlignmentScore score = alignment_score(predicted, gold);
  quality.error_predicted = score.error_rate, quality.accuracy = score.accuracy;
  quality.monotone_share = attention_numbers(words).monotone_share;
  quality.error_input = alignment_score(input, gold).error_rate;
  return quality;
}

DevPart::DevPart(const Run& run, const Corpus& corpus, std::vector<Example> examples) : examples_(std::move(examples)) {
  for (const Example& example : examples_)
    references_.push_back(run.target.tokenizer.tokens(corpus.pairs[std::size_t(example.pair)].target));
}

std::optional<DevScore> DevPart::score(const Run& run, const Seq2Seq& model, const std::function<bool()>& go_on) const {
  DevScore score;
  Index tokens = 0;
  for (const auto& rows : BatchSampler(examples_, {.tokens = 4096}, Key(Seed{0})).by_length()) {
    const Batch batch = make_batch(run, examples_, rows);
    score.loss += model.loss(batch, {.pad = run.target.vocabulary.pad}).sum.value().item();
    tokens += batch.target_tokens;
    if (!go_on()) return {};
  }
  score.loss /= double(tokens);
  if (std::isnan(score.loss)) return DevScore{.loss = NAN};   // nor would a search find numbers

  // Blocks of like length, longest first: padding costs least, and a wish to stop is heard.
  std::vector<std::size_t> order(examples_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return examples_[a].source.size() > examples_[b].source.size(); });
  std::vector<std::string> hypotheses(examples_.size());
  Index exact = 0;
  for (std::size_t first = 0; first < order.size(); first += kBlock) {
    if (!go_on()) return {};
    const std::span<const std::size_t> block = std::span(order).subspan(first, std::min(kBlock, order.size() - first));
    std::vector<std::vector<std::int32_t>> sources;
    for (const std::size_t i : block) sources.push_back(examples_[i].source);
    const auto found = search(model, sources, search_options(run));
    for (std::size_t k = 0; k < block.size(); ++k) {
      const std::vector<std::string> tokens_found = target_words(run, found[k][0].ids, examples_[block[k]].outside);
      exact += tokens_found == references_[block[k]];
      hypotheses[block[k]] = token_line(tokens_found);
    }
  }
  std::vector<std::string> lines;
  for (const auto& reference : references_) lines.push_back(token_line(reference));
  const References references = single_references(lines);
  score.bleu = bleu(hypotheses, references, token_bleu_options(references)).score;
  score.exact = 100 * double(exact) / double(examples_.size());
  return score;
}

}  // namespace heed::cli
