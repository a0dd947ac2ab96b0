// SPDX-License-Identifier: Apache-2.0
// Beam search against its definition, on a model whose hypotheses are often equally good.
#include "models/search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <span>
#include <tuple>

#include "autograd/trace.h"
#include "tensor/ops/view.h"
#include "tensor/random.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kPad = 0, kStart = 2, kEnd = 3;
constexpr std::int32_t kWords = 7, kBroken = 99;       // a source of which a model says NaN
constexpr std::int32_t kManyWords = 300, kFine = 1000; // from this source on numbers differ
constexpr std::int32_t kSymbols = 5;                   // unk and bos, too

const std::vector<float> kRow{0.75f, 0.25f, 0};         // what every word looks at in a source of three

// log p of a word after a source and words, not normalised: one of few numbers; or of many, where symbols and words read are the likeliest.
double log_probability(std::int32_t source, const Ids& words, std::int32_t word) {
  if (source == kBroken && words.size() == 1) return NAN;
  Key key(source, word);
  for (const std::int32_t before : words) key = key / before;
  if (source >= kFine && word < kSymbols) return -0.001 * (word + 1);
  if (source >= kFine) return (std::ranges::count(words, word) ? -0.01 : -1) - Random(key).uniform();
  return -0.5 * double(1 + Random(key).below(6));
}

struct Coarse : Translator {
  std::int32_t vocabulary = kWords;
  struct State : DecodingState {
    std::vector<std::pair<std::int32_t, Ids>> rows;      // source, words read
    bool opened = false;                                 // by the start symbol
    void reorder(std::span<const Index> order, Index) override {
      const auto old = rows;
      rows.clear();
      for (const Index from : order) rows.push_back(old[std::size_t(from)]);
    }
  };
  std::unique_ptr<DecodingState> start(const Sequences& source) const override {
    auto state = std::make_unique<State>();
    for (Index b = 0; b < source.size(); ++b) state->rows.emplace_back(std::int32_t(source.ids(b, 0).item()), Ids());
    return state;
  }
  Step step(const Tensor& tokens, DecodingState& base, Want want) const override {
    auto& [rows, opened] = dynamic_cast<State&>(base);
    std::vector<double> p;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      auto& [source, words] = rows[r];
      if (opened) words.push_back(tokens.to_vector<std::int32_t>()[r]);
      for (std::int32_t word = 0; word < vocabulary; ++word) p.push_back(log_probability(source, words, word));
    }
    opened = true;
    Step step{tensor(p, {Index(rows.size()), vocabulary}), {}};
    if (want == Want::weights)
      step.attention.push_back({AttentionMap::Kind::cross, 0, constant(expand(tensor(kRow, {1, 1, 3}), {Index(rows.size()), 1, 3}))});
    return step;
  }
};

// Each step the 2k best of all words after all live hypotheses, by (score down, hypothesis up, word up): an end among the first k is
// finished, others live until there are k. Ends with k finished, or, of more than one, where no other can be among the best;
// at the longest length what lives is finished.
std::vector<Hypothesis> by_definition(std::int32_t source, std::size_t k, Index longest, const SearchOptions& o,
                                      std::int32_t words = kWords) {
  std::vector<Hypothesis> live(1), finished;
  const auto over = [&] {
    if (o.stop == Stop::first_k || k == 1) return finished.size() >= k;
    if (Index(finished.size()) < o.nbest) return false;
    std::vector<double> scores;
    for (const auto& h : finished) scores.push_back(-h.score);
    std::sort(scores.begin(), scores.end());
    double best = -HUGE_VAL;
    for (const auto& h : live) best = std::max(best, h.log_probability);
    return -scores[std::size_t(o.nbest - 1)] >= best / length_penalty(o.penalty, o.alpha, longest);
  };
  for (Index t = 0; t < longest && !live.empty() && !over(); ++t) {
    std::vector<std::tuple<double, std::size_t, std::int32_t>> candidates;
    for (std::size_t h = 0; h < live.size(); ++h)
      for (std::int32_t word = 0; word < words; ++word)
        if (word != kPad && word != kStart && word != o.bos && (word != kEnd || t >= o.min_length) && !(o.forbid_unk && word == o.unk) &&
            !(o.no_repeat_ngram == 1 && std::ranges::count(live[h].ids, word)))
          candidates.emplace_back(-(live[h].log_probability + log_probability(source, live[h].ids, word)), h, word);
    std::sort(candidates.begin(), candidates.end());
    std::vector<Hypothesis> next;
    std::size_t others = 0;
    for (std::size_t i = 0; i < std::min(candidates.size(), 2 * k); ++i) {
      const auto& [minus, h, word] = candidates[i];
      const bool ends = word == kEnd;
      if (ends ? i >= k : others++ >= k) continue;
      Hypothesis one{live[h].ids, -minus, 0, ends, {}};
      if (!ends) one.ids.push_back(word);
      const double n = double(one.ids.size()) + (ends ? 1 : 0);
      one.score = one.log_probability /
                  (o.penalty == LengthPenalty::none ? 1 : std::pow(o.penalty == LengthPenalty::gnmt ? (5 + n) / 6 : n, o.alpha));
      if (o.coverage != 0)
        for (const float a : kRow) one.score += o.coverage * std::log(std::max(1e-10, std::min(n * double(a), 1.0)));
      (ends || t + 1 == longest ? finished : next).push_back(one);
    }
    live = next;
  }
  std::stable_sort(finished.begin(), finished.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (finished.size() > std::size_t(o.nbest)) finished.resize(std::size_t(o.nbest));
  return finished;
}

struct Traced : Coarse {
  mutable std::atomic<std::size_t> steps{0};
  Step step(const Tensor& tokens, DecodingState& state, Want want) const override {
    ++steps;
    trace("tokens", "the words read", tokens);
    return Coarse::step(tokens, state, want);
  }
};

}  // namespace

TEST_CASE("search: what is not asked for: greedy, 50 words more than the source, GNMT's penalty of 0.6, a bound as the end") {
  const SearchOptions standard;
  CHECK(standard.beam == 1);
  CHECK(standard.nbest == 1);
  CHECK(standard.extra_length == 50);
  CHECK(standard.penalty == LengthPenalty::gnmt);
  CHECK(standard.alpha == 0.6);
  CHECK(standard.stop == Stop::bound);
}

TEST_CASE("search: a Trace sees every step, for any number of threads") {
  std::vector<Ids> sources;
  for (std::int32_t source = 1; source <= 96; ++source) sources.push_back({source, source, kEnd});
  for_threads([&] {
    const Traced model;
    const Trace seen;
    search(model, sources, {.pad = kPad, .start = kStart, .eos = kEnd, .beam = 2, .extra_length = 4});
    CHECK(model.steps > 0);
    CHECK(seen.entries().size() == model.steps);
  });
}

TEST_CASE("search: a beam is what its definition says, ties included, for every width, length and coverage penalty, opened by eos too") {
  const Coarse model;
  std::vector<Ids> sources;
  for (std::int32_t source = 1; source <= 40; ++source) sources.push_back({source, source, kEnd});
  for (const Index beam : {1, 2, 3, 5})
    for (const auto& [penalty, stop, nbest] : {std::tuple(LengthPenalty::gnmt, Stop::first_k, beam),
                                               {LengthPenalty::average, Stop::first_k, beam},
                                               {LengthPenalty::none, Stop::first_k, beam},
                                               {LengthPenalty::gnmt, Stop::bound, beam},
                                               {LengthPenalty::average, Stop::bound, 1},
                                               {LengthPenalty::none, Stop::bound, (beam + 1) / 2}})
      for (const auto& [min_length, coverage, start] : {std::tuple(Index{0}, 0.0, kStart), {4, 0.3, kStart}, {1, 0.0, kEnd}}) {
        const SearchOptions options{.pad = kPad, .start = start, .eos = kEnd, .bos = kStart, .beam = beam, .nbest = nbest,
                                    .penalty = penalty, .alpha = 0.8, .stop = stop, .coverage = coverage, .extra_length = 4,
                                    .min_length = min_length, .forbid_unk = start == kEnd, .batch = 7};
        const auto found = search(model, sources, options);
        for (std::size_t i = 0; i < sources.size(); ++i) {
          const std::vector<Hypothesis> expected = by_definition(sources[i][0], std::size_t(beam), 6, options);
          REQUIRE(found[i].size() == expected.size());
          for (std::size_t n = 0; n < expected.size(); ++n) {
            CHECK(found[i][n].ids == expected[n].ids);
            CHECK(found[i][n].log_probability == expected[n].log_probability);
            CHECK(found[i][n].score == expected[n].score);
            CHECK(found[i][n].finished == expected[n].finished);
          }
        }
      }
}

TEST_CASE("search: a beam among many words is what its definition says, where the likeliest are forbidden") {
  Coarse model;
  model.vocabulary = kManyWords;
  std::vector<Ids> sources;
  for (std::int32_t source = kFine; source < kFine + 20; ++source) sources.push_back({source, source, kEnd});
  for (const Index beam : {1, 4, 20})
    for (const Index no_repeat : {0, 1}) {
      const SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .bos = kSymbols - 1, .beam = beam, .nbest = beam,
                                  .extra_length = 10, .min_length = 11, .no_repeat_ngram = no_repeat, .forbid_unk = true};
      const auto found = search(model, sources, options);
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const std::vector<Hypothesis> expected = by_definition(sources[i][0], std::size_t(beam), 12, options, kManyWords);
        REQUIRE(found[i].size() == expected.size());
        for (std::size_t n = 0; n < expected.size(); ++n) {
          CHECK(found[i][n].ids == expected[n].ids);
          CHECK(found[i][n].log_probability == expected[n].log_probability);
        }
      }
    }
  // the best that may be written, and what top-k and top-p keep of them
  std::vector<std::pair<double, std::int32_t>> best;
  for (std::int32_t word = kSymbols; word < kManyWords; ++word) best.emplace_back(-log_probability(kFine, {}, word), word);
  std::sort(best.begin(), best.end());
  double all = 0;
  for (const auto& [minus, word] : best) all += std::exp(-minus);
  std::size_t half = 0;
  for (double kept = 0; kept < 0.5 * all; ++half) kept += std::exp(-best[half].first);
  for (const auto& [sampling, kept] :
       {std::pair(Sampling{.top_k = 3}, std::size_t{3}), {{.temperature = 0}, 1}, {{.top_p = 0.5}, half}, {{}, best.size()}}) {
    const auto drawn = search(model, std::vector<Ids>{{kFine, kFine, kEnd}},
                              {.pad = kPad, .start = kStart, .eos = kEnd, .bos = kSymbols - 1, .nbest = 3000, .max_length = 1,
                               .min_length = 1, .forbid_unk = true, .sampling = sampling});
    std::set<std::int32_t> different, expected;
    for (const Hypothesis& h : drawn[0]) different.insert(h.ids.at(0));
    for (std::size_t i = 0; i < kept; ++i) expected.insert(best[i].second);
    CHECK(std::ranges::includes(expected, different));
    CHECK(different.size() > kept * 9 / 10);
  }
}

TEST_CASE("search: what stops at its bound is as good as what never stops, and better than the first k now and then") {
  const Coarse model;
  std::vector<Ids> sources;
  for (std::int32_t source = 1; source <= 60; ++source) sources.push_back({source, source, kEnd});
  for (const auto& [penalty, alpha] :
       {std::pair(LengthPenalty::gnmt, 0.6), {LengthPenalty::gnmt, 2.0}, {LengthPenalty::average, 1.0}, {LengthPenalty::none, 0.0}}) {
    SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .beam = 2, .nbest = 2, .penalty = penalty, .alpha = alpha,
                          .stop = Stop::first_k, .coverage = 0.2, .extra_length = 6};
    const auto first = search(model, sources, options);
    options.stop = Stop::bound;
    const auto bound = search(model, sources, options);
    int better = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      // of every hypothesis that a beam of 2 ever finishes
      std::vector<double> all;
      for (Index longest = 1; longest <= 8; ++longest) {
        SearchOptions on = options;
        on.nbest = 1000;
        for (const Hypothesis& h : by_definition(sources[i][0], 2, longest, on))
          if (h.finished || longest == 8) all.push_back(-h.score);
      }
      std::sort(all.begin(), all.end());
      CHECK(-bound[i][0].score == all[0]);
      CHECK(bound[i][0].score >= first[i][0].score);
      better += bound[i][0].score > first[i][0].score;
    }
    if (penalty != LengthPenalty::none) CHECK(better > 0);
  }
  CHECK_THROWS_WITH_AS(search(model, sources, {.pad = kPad, .start = kStart, .eos = kEnd, .alpha = -1, .stop = Stop::bound}),
                       "search: stop at a bound needs alpha >= 0: -1", Error);
}

TEST_CASE("search: the same for any number of sentences, batches and threads") {
  const Coarse model;
  std::vector<Ids> sources;
  for (std::int32_t source = 1; source <= 40; ++source) sources.push_back({source, source, kEnd});
  SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .beam = 2, .nbest = 2, .extra_length = 4};
  const auto expected = search(model, sources, options);
  for_threads([&] {
    for (const std::size_t count : {1, 3, 4, 9, 40})
      for (const Index batch : {1, 2, 7, 40}) {
        options.batch = batch;
        const auto found = search(model, std::span(sources).first(count), options);
        REQUIRE(found.size() == count);
        for (std::size_t i = 0; i < count; ++i) {
          REQUIRE(found[i].size() == expected[i].size());
          for (std::size_t n = 0; n < found[i].size(); ++n) {
            CHECK(found[i][n].ids == expected[i][n].ids);
            CHECK(found[i][n].score == expected[i][n].score);
          }
        }
      }
  }, {1, 2, 5, 16});
}

TEST_CASE("search: no n-gram comes twice, not right after itself either") {
  const Coarse model;
  for (const Index n : {0, 1, 2}) {
    int repeated = 0;
    for (std::int32_t source = 100; source < 160; ++source) {
      const auto found = search(
          model, std::vector<Ids>{{source}},
          {.pad = kPad, .start = kStart, .eos = kEnd, .beam = 1 + source % 3, .max_length = 8, .min_length = 3, .no_repeat_ngram = n});
      const Ids& ids = found[0][0].ids;
      std::set<Ids> seen;
      const Index length = std::max<Index>(n, 1);
      for (Index i = 0; i + length <= Index(ids.size()); ++i) repeated += !seen.emplace(ids.begin() + i, ids.begin() + i + length).second;
    }
    CHECK((repeated > 0) == (n == 0));
  }
}

TEST_CASE("search: min_length counts words without eos, greedy, in a beam and drawn; the longest length is at least as long") {
  const Coarse model;
  std::vector<Ids> sources;
  for (std::int32_t source = 1; source <= 40; ++source) sources.push_back({source, source, kEnd});
  for (const Index beam : {1, 4})
    for (const bool draws : {false, true}) {
      SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .beam = beam, .nbest = beam, .extra_length = 8, .min_length = 4};
      if (draws) options.sampling = Sampling{}, options.beam = 1;
      const auto shortest = [&] {
        std::size_t least = 100;
        for (const auto& hypotheses : search(model, sources, options))
          for (const Hypothesis& h : hypotheses) least = std::min(least, h.ids.size());
        return least;
      };
      CHECK(shortest() == 4);
      options.min_length = 14, options.extra_length = 2;                                // 2 + 2 words otherwise
      CHECK(shortest() == 14);
      int finished = 0;
      for (const auto& hypotheses : search(model, sources, options)) finished += hypotheses[0].ids.size() == 14 && hypotheses[0].finished;
      CHECK((finished > 0 && finished < 40));                                           // eos may, but need not come as word 15
      options.max_length = 14;
      CHECK(shortest() == 14);
      options.max_length = 13;
      CHECK_THROWS_WITH_AS(search(model, sources, options), "search: min_length 14 is beyond max_length 13", Error);
    }
}

TEST_CASE("search: a prefix is whole, holds no pad, bos, start or eos, and is no longer than max_length") {
  const Coarse model;
  const std::vector<Ids> source{{1, 1, kEnd}};
  SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .beam = 2, .extra_length = 0};
  const auto found = [&](const Ids& prefix) { return search(model, source, options, std::vector<Ids>{prefix})[0][0].ids; };
  const Ids prefix{4, 5, 6, 5};
  for (const Index max_length : {0, 4, 5}) {
    options.max_length = max_length;
    const Ids ids = found(prefix);
    REQUIRE(ids.size() >= 4);
    CHECK(Ids(ids.begin(), ids.begin() + 4) == prefix);
  }
  options.max_length = 0;
  int finished = 0;                                                                     // eos may come as word 5, nothing else
  for (std::int32_t one = 1; one <= 40; ++one) {
    const Hypothesis best = search(model, std::vector<Ids>{{one, kEnd}}, options, std::vector<Ids>{prefix})[0][0];
    finished += best.finished && best.ids == prefix;
    CHECK(best.ids.size() <= 5);
  }
  CHECK(finished > 0);
  options.max_length = 3;
  CHECK_THROWS_WITH_AS(found(prefix), "search: a prefix of 4 words is longer than max_length 3", Error);
  options.max_length = 0;
  options.bos = 6;
  for (const std::int32_t word : {kPad, kStart, kEnd, *options.bos})
    CHECK_THROWS_WITH_AS(found({4, word, 5}),
                         ("search: prefix word " + std::to_string(word) + " at position 1 is pad, bos, start or eos").c_str(), Error);
  CHECK_THROWS_WITH_AS(found({4, 9}), "search: prefix word 9 at position 1 is not in [0, 7)", IndexError);
}

TEST_CASE("search: NaN is an error, not a translation") {
  const Coarse model;
  const std::vector<Ids> sources{{1, 1, kEnd}, {kBroken, 1, kEnd}}, prefixes{{}, {4, 5, 6}};
  const SearchOptions greedy{.pad = kPad, .start = kStart, .eos = kEnd, .min_length = 4},
      beam{.pad = kPad, .start = kStart, .eos = kEnd, .beam = 3, .min_length = 4};
  SearchOptions drawn = greedy;
  drawn.sampling = Sampling{.key = Key(1, 2)};
  for (const SearchOptions& options : {greedy, beam, drawn}) {
    CHECK_THROWS_WITH_AS(search(model, sources, options), "search: the words' probabilities are NaN: step 2, source of 3 tokens",
                         NumericError);
    CHECK_THROWS_AS(search(model, sources, options, prefixes), NumericError);
  }
}

TEST_CASE("search: words are drawn as temperature, top-k and top-p say") {
  const Coarse model;
  constexpr Index kDraws = 5000;
  const auto shares = [&](const Sampling& sampling) {   // of each word as the first
    const SearchOptions options{
        .pad = kPad, .start = kStart, .eos = kEnd, .unk = 1, .nbest = kDraws, .max_length = 1, .sampling = sampling};
    std::vector<double> found(kWords);
    const auto drawn = search(model, std::vector<Ids>{{5, 5, kEnd}}, options);
    for (const Hypothesis& h : drawn[0]) {
      const std::int32_t word = h.ids.empty() ? kEnd : h.ids[0];
      found[std::size_t(word)] += 1.0 / kDraws;
      CHECK(h.log_probability == log_probability(5, {}, word));                         // the model's, whatever was kept
    }
    return found;
  };
  // p(word)^(1/temperature), likeliest first; the k first of them; of these the fewest with a share of at least top_p
  const auto expected = [&](const Sampling& sampling) {
    std::vector<std::pair<double, std::int32_t>> words;
    for (const std::int32_t word : {1, 3, 4, 5, 6})
      words.emplace_back(-std::exp(log_probability(5, {}, word) / sampling.temperature), word);
    std::sort(words.begin(), words.end());
    if (sampling.top_k > 0) words.resize(std::size_t(sampling.top_k));
    double all = 0, kept = 0;
    for (const auto& [minus, word] : words) all -= minus;
    std::size_t count = 0;
    for (; count < words.size() && kept < sampling.top_p * all; ++count) kept -= words[count].first;
    std::vector<double> p(kWords);
    for (std::size_t i = 0; i < count; ++i) p[std::size_t(words[i].second)] = -words[i].first / kept;
    return p;
  };
  const Key key(3);
  for (const Sampling& sampling : {Sampling{.key = key}, {.temperature = 2.5, .key = key}, {.temperature = 0.5, .key = key},
                                   {.top_k = 3, .key = key}, {.top_p = 0.5, .key = key},
                                   {.temperature = 2.5, .top_k = 4, .top_p = 0.7, .key = key}}) {
    INFO("temperature ", sampling.temperature, " top_k ", sampling.top_k, " top_p ", sampling.top_p);
    const std::vector<double> found = shares(sampling), p = expected(sampling);
    // four deviations; what is cut never
    for (std::size_t word = 0; word < p.size(); ++word)
      CHECK(std::abs(found[word] - p[word]) <= 4 * std::sqrt(p[word] * (1 - p[word]) / kDraws));
  }
}

TEST_CASE("search: draws of each source, of each step, wherever the source stands; the best first") {
  const Coarse model;
  const std::vector<Ids> sources(20, Ids{5, 5, kEnd});
  SearchOptions options{.pad = kPad, .start = kStart, .eos = kEnd, .nbest = 10, .max_length = 4, .min_length = 4,
                        .sampling = Sampling{.temperature = 1e9, .key = Key(3)}};
  const auto found = search(model, sources, options);
  std::set<Ids> different;
  // of the first two words, each of four equally likely ones
  int same_rank = 0;
  const auto rank = [](const Ids& before, std::int32_t word) {
    int better = 0;
    for (const std::int32_t other : {1, 4, 5, 6}) {
      const double p = log_probability(5, before, other), q = log_probability(5, before, word);
      better += p > q || (p == q && other < word);
    }
    return better;
  };
  for (const auto& draws : found)
    for (std::size_t i = 0; i < draws.size(); ++i) {
      different.insert(draws[i].ids);
      same_rank += rank({}, draws[i].ids[0]) == rank({draws[i].ids[0]}, draws[i].ids[1]);
      if (i > 0) CHECK(draws[i - 1].score >= draws[i].score);
    }
  CHECK(different.size() > 80);                                                         // of 256, by 200 draws
  CHECK(std::abs(same_rank - 50) < 4 * std::sqrt(200 * 0.25 * 0.75));                   // four deviations
  options.sampling->first = 12;                                                         // the text comes in two calls
  const auto later = search(model, std::span(sources).subspan(12), options);
  for (std::size_t s = 0; s < later.size(); ++s)
    for (std::size_t i = 0; i < later[s].size(); ++i) CHECK(later[s][i].ids == found[s + 12][i].ids);
}
