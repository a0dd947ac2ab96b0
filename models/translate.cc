// SPDX-License-Identifier: Apache-2.0
#include "models/translate.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/attend.h"
#include "autograd/trace.h"
#include "models/recurrent_config.h"
#include "tensor/format.h"

namespace heed {

SearchOptions search_options(const Run& run, SearchOptions options) {
  const Vocabulary& words = run.target.vocabulary;
  options.pad = words.pad, options.start = start_symbol(run.config, words), options.eos = words.eos, options.unk = words.unk,
  options.bos = words.bos;
  const Index limit = max_positions(run.config);
  options.max_length = options.max_length > 0 ? std::min(options.max_length, limit) : limit;
  return options;
}

std::vector<std::string> source_tokens(const Run& run, std::string_view line) {
  return is_blank(line) ? std::vector<std::string>{} : run.source.tokenizer.tokens(line);
}

std::vector<std::string> source_words(const Run& run, const Example& example) {
  std::vector<std::string> words = source_pieces(run.source.vocabulary, run.target.vocabulary, example.source, example.outside);
  for (std::size_t i = 0, k = 0; i < words.size() && k < example.unknown.size(); ++i)
    if (example.source[i] == run.source.vocabulary.unk) words[i] = example.unknown[k++] + " " + words[i];
  return words;
}

std::vector<std::string> target_words(const Run& run, std::span<const std::int32_t> ids, const OutsideWords& outside) {
  return target_pieces(run.target.vocabulary, ids, outside);
}

std::string source_text(const Run& run, const Example& example) {
  const std::vector<std::string> words = source_words(run, example);
  return run.source.tokenizer.text(std::span(words).first(words.size() - 1));
}

std::string target_text(const Run& run, const Example& example) {
  return run.target.tokenizer.text(target_words(run, std::span(example.target).first(example.target.size() - 1), example.outside));
}

namespace {

// The source word with the largest weight (equal weights: the first), -1 where none has any; eos, the last, is no word.
Index looked_at(const std::vector<float>& row) {
  const auto best = std::max_element(row.begin(), row.end() - 1);
  return *best > 0 ? best - row.begin() : -1;
}

// A line on its way through the search.
struct Asked {
  std::size_t number;
  std::vector<std::string> tokens, prefix;
  OutsideWords outside;                                                               // where words may be copied
};

Translation written(const Run& run, const Asked& asked, const Hypothesis& hypothesis, const TranslateOptions& options) {
  Translation made{.text = {},
                   .tokens = {},
                   .log_probability = hypothesis.log_probability,
                   .score = hypothesis.score,
                   .finished = hypothesis.finished};
  const std::size_t begun = std::min(asked.prefix.size(), hypothesis.ids.size());
  made.tokens.assign(asked.prefix.begin(), asked.prefix.begin() + std::ptrdiff_t(begun));
  const std::vector<std::string> words = target_words(run, hypothesis.ids, asked.outside);
  for (std::size_t t = 0; t < words.size(); ++t) {
    const bool replaced = options.replace_unk && t >= begun && hypothesis.ids[t] == run.target.vocabulary.unk;
    const Index source = replaced || options.links ? looked_at(hypothesis.attention[t]) : -1;
    if (t >= begun) made.tokens.push_back(replaced && source >= 0 ? asked.tokens[std::size_t(source)] : words[t]);
    if (options.links && source >= 0) made.links.push_back({source, Index(t)});
  }
  made.text = run.target.tokenizer.text(made.tokens);
  return made;
}

}  // namespace

std::vector<std::vector<Translation>> translate(const Run& run, const Translator& model, std::span<const std::string> lines,
                                                const TranslateOptions& options, std::span<const std::string> prefixes,
                                                Overlooked* overlooked) {
  check<Error>(prefixes.empty() || prefixes.size() == lines.size(), "translate: {} prefixes for {} lines", prefixes.size(), lines.size());
  const std::size_t longest = std::size_t(options.max_length > 0 ? options.max_length : run.config.max_length);
  std::vector<std::vector<Translation>> results(lines.size());
  std::vector<std::vector<std::int32_t>> sources, begins;
  std::vector<Asked> all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Asked asked{.number = i, .tokens = source_tokens(run, lines[i]), .prefix = {}, .outside = {}};
    if (asked.tokens.empty()) {
      results[i].push_back({});
      continue;
    }
    if (asked.tokens.size() > longest) {
      asked.tokens.resize(longest);
      if (overlooked) ++overlooked->cut;
    }
    const Vocabulary &source = run.source.vocabulary, &target = run.target.vocabulary;
    if (run.config.copy) asked.outside = outside_words(target, asked.tokens);
    sources.push_back(run.config.copy ? source_ids(source, target, asked.tokens, asked.outside) : source.ids(asked.tokens));
    if (overlooked && !run.config.copy)
      for (const std::string& token : asked.tokens)
        if (source.id(token) == source.unk) overlooked->unknown.insert(token);
    sources.back().push_back(source.eos);
    if (!prefixes.empty()) {
      asked.prefix = run.target.tokenizer.tokens(prefixes[i]);
      begins.push_back(target_ids(target, asked.prefix, asked.outside));
      for (std::size_t t = 0; overlooked && t < begins.back().size(); ++t)
        if (begins.back()[t] == target.unk) overlooked->unknown.insert(asked.prefix[t]);
    }
    all.push_back(std::move(asked));
  }
  SearchOptions search = search_options(run, options.search);
  search.attention |= options.replace_unk || options.links;
  const std::vector<std::vector<Hypothesis>> found = heed::search(model, sources, search, begins);
  for (std::size_t s = 0; s < found.size(); ++s)
    for (const Hypothesis& hypothesis : found[s]) {
      Translation made = written(run, all[s], hypothesis, options);
      std::vector<Translation>& best = results[all[s].number];
      if (options.search.sampling || std::ranges::find(best, made.text, &Translation::text) == best.end()) best.push_back(std::move(made));
    }
  return results;
}

namespace {

// Which word a row of weights, named for a word that was read or for the one it predicts, belongs to: Luong et al. 2015, footnote 14.
std::string row_note(RunConfig c, AttentionPicture::Rows rows) {
  settle_recurrent(c);
  const std::string score = c.model == "transformer" ? "none" : score_of(c.attention);
  if (score == "none" || score == "mean") return {};
  if (rows == AttentionPicture::Rows::input) {
    if (score == "location" || score == "gaussian")
      return fmt::format("A {} score aims at the word being written: that of the next row.", score);
    if (c.decoder == "bahdanau")
      return "The row looks from the state that had read the words before its own, to write the word of the next row.";
    return "The row looks from the state that has just read its word, to write the word of the next row.";
  }
  if (score == "location" || score == "gaussian")
    return fmt::format("A {} score aims at the word being written: its row aligns that word.", score);
  if (c.decoder == "bahdanau") return "The row looks from the state that had read all words but the last one, to write its word.";
  return "A content score looks from the state that has just read the word before: its row may align that word instead of the one written.";
}

// Of word t of a self-attention over n words, which sees w words to each side, each a gap after the one before, a decoder only those
// before; the first `global` words see all and are seen by all.
AttentionPicture::Window sliding_window(Index t, Index n, Index w, Index gap, bool both_ways, Index global) {
  if (t < global) return {0, n - 1};
  return {t - w * gap, both_ways ? t + w * gap : t, gap, global};
}

// |s - p| <= w; the nearest position for w = 0
AttentionPicture::Window window_around(double p, Index w) {
  if (w == 0) p = std::max(0.0, std::nearbyint(p));
  return {Index(std::ceil(p - double(w))), Index(std::floor(p + double(w)))};
}

}  // namespace

AttentionPicture attention_picture(const Run& run, const Seq2Seq& model, const Example& example, AttentionPicture::Rows rows) {
  List<AttentionMap> maps;
  std::vector<AttentionPicture::Window> windows;                                      // of a local attention, one a row
  {
    std::optional<Trace> trace;                                                       // holds every value of the model
    if (run.config.window) trace.emplace();
    model.features(make_batch(run, {&example, 1}), &maps);
    if (trace)
      for (const Trace::Entry& entry : trace->entries())
        if (entry.name == "position")
          for (const double p : to(entry.value, DType::f64).to_vector<double>())
            windows.push_back(window_around(p, *run.config.window));
  }
  AttentionPicture picture{.source = source_words(run, example), .target = target_words(run, example.target, example.outside),
                           .note = row_note(run.config, rows), .gold = example.links, .rows = rows};
  std::vector<std::string> read = picture.target;                                     // <s> y_1 ..
  read.insert(read.begin(), run.target.vocabulary.piece(start_symbol(run.config, run.target.vocabulary)));
  read.pop_back();
  if (rows == AttentionPicture::Rows::input)
    for (auto* links : {&picture.gold.sure, &picture.gold.possible})
      for (Link& link : *links) ++link.target;
  const std::vector<Index> gaps = dilation(run.config);
  const bool mixed = run.config.talking_heads || run.config.differential;      // weights of several heads, which may have other windows
  const bool slides = run.config.sliding_window && (!mixed || std::ranges::adjacent_find(gaps, std::not_equal_to()) == gaps.end());
  for (const AttentionMap& map : maps) {
    using enum AttentionMap::Kind;
    const auto axes = map.kind == cross     ? AttentionPicture::Axes::cross
                      : map.kind == encoder ? AttentionPicture::Axes::encoder_self
                                            : AttentionPicture::Axes::decoder_self;
    const Tensor& w = map.weights.value();                                                    // [1, H, T, S] or [1, T, S]
    const Index heads = w.rank() == 4 ? w.size(1) : 1;
    for (Index h = 0; h < heads; ++h) {
      AttentionPicture::Map one{.weights = to(w.rank() == 4 ? w(0, h) : w(0), DType::f32).to_vector<float>(), .axes = axes,
                                .layer = int(map.layer) + 1, .head = int(h) + 1, .heads = int(heads)};
      if (axes == AttentionPicture::Axes::decoder_self) one.columns = read;            // its positions hold what has been read
      if (w.rank() == 3) {                                                            // of a recurrent decoder
        one.layer = one.head = 0;
        one.label = fmt::format("{} attention, {} decoder", run.config.attention, run.config.decoder);
      }
      if (axes != AttentionPicture::Axes::encoder_self && rows == AttentionPicture::Rows::input) one.rows = read;
      if (axes == AttentionPicture::Axes::cross && windows.size() == example.target.size()) one.windows = windows;
      if (axes != AttentionPicture::Axes::cross && slides)
        for (Index t = 0; t < w.size(-2); ++t) {
          const bool encoder = axes == AttentionPicture::Axes::encoder_self;
          const Index gap = gaps.empty() ? 1 : gaps[std::size_t(h)];
          one.windows.push_back(
              sliding_window(t, w.size(-1), *run.config.sliding_window, gap, encoder, encoder ? run.config.global_tokens.value_or(0) : 0));
        }
      picture.maps.push_back(std::move(one));
    }
  }
  return picture;
}

AttentionPicture last_cross_attention(const AttentionPicture& picture) {
  AttentionPicture last = picture;
  std::vector<AttentionPicture::Map> heads;
  for (const AttentionPicture::Map& map : picture.maps)
    if (map.axes == AttentionPicture::Axes::cross) {
      if (!heads.empty() && heads.back().layer != map.layer) heads.clear();
      heads.push_back(map);
    }
  last.maps.clear();
  if (heads.size() > 1) last.maps.push_back(mean_map(heads));
  else last.maps = heads;
  return last;
}

std::vector<Tensor> cross_attention_weights(const Run& run, const Seq2Seq& model, std::span<const Example> examples) {
  std::vector<Tensor> weights(examples.size());
  for (const std::vector<Index>& rows : BatchSampler(examples, {.tokens = 1024}, Key(Seed{0})).by_length()) {
    List<AttentionMap> maps;
    model.features(make_batch(run, examples, rows), &maps);
    const AttentionMap* const last = last_cross_attention(maps);
    if (!last) return {};
    const Tensor all_heads = mean_of_heads(*last);                                    // [B, T, S]
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const Example& example = examples[std::size_t(rows[b])];
      weights[std::size_t(rows[b])] =
          all_heads(Index(b), Slice{0, Index(example.target.size())}, Slice{0, Index(example.source.size())}).clone();
    }
  }
  return weights;
}

std::vector<double> negative_log_likelihoods(const Run& run, const Translator& model, std::span<const Example> examples) {
  std::vector<double> sums(examples.size());
  for (const std::vector<Index>& rows : BatchSampler(examples, {.tokens = 1024}, Key(Seed{0})).by_length()) {
    const Tensor losses = to(model.token_losses(make_batch(run, examples, rows), run.target.vocabulary.pad), DType::f64);   // [B, T]
    for (std::size_t b = 0; b < rows.size(); ++b)
      for (const double loss : losses[Index(b)].to_vector<double>()) sums[std::size_t(rows[b])] += loss;
  }
  return sums;
}

}  // namespace heed
