// SPDX-License-Identifier: Apache-2.0
#include "models/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "autograd/tape.h"
#include "autograd/trace.h"
#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/unary.h"
#include "tensor/packed.h"
#include "tensor/parallel.h"

namespace heed {

double length_penalty(LengthPenalty kind, double alpha, Index length) {
  if (kind == LengthPenalty::none) return 1;
  return std::pow(kind == LengthPenalty::gnmt ? (5.0 + double(length)) / 6.0 : double(length), alpha);
}

LengthPenalty length_penalty_named(std::string_view name) {
  if (name == "gnmt") return LengthPenalty::gnmt;
  if (name == "average") return LengthPenalty::average;
  if (name == "none") return LengthPenalty::none;
  fail<Error>("length penalty: unknown name {}; one of gnmt, average, none", quote(name));
}

Stop stop_named(std::string_view name) {
  if (name == "first-k") return Stop::first_k;
  if (name == "bound") return Stop::bound;
  fail<Error>("stop: unknown name {}; one of bound, first-k", quote(name));
}

namespace {

constexpr Index kMostWords = 1000000000, kMostBeam = 1000000;   // that an option may ask for
constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Live {
  std::vector<std::int32_t> ids;
  double log_probability = 0;
  Index row = 0;                                 // in the model's state
  std::vector<std::vector<float>> attention;
};

struct Candidate {
  double log_probability;
  std::size_t parent;
  std::int32_t word;
};

// Best first: score down, hypothesis up, word up.
bool better(const Candidate& a, const Candidate& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.parent != b.parent ? a.parent < b.parent : a.word < b.word;
}

bool higher(const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; }

// What is asked for: the source with this number, and which of several draws.
struct Request {
  std::size_t source;
  Index draw;
};

// One sentence being translated.
struct Sentence {
  std::size_t request, number;                   // among all requests, among all sources
  Index draw;
  Index longest, source_length;
  std::span<const std::int32_t> prefix;
  std::vector<Live> live;
  std::vector<Hypothesis> finished;
};

class Searcher {
 public:
  Searcher(const Translator& model, const SearchOptions& options)
      : model_(model), o_(options), width_(options.sampling ? 1 : options.beam) {}

  // Translates these requests together.
  void run(std::span<const std::vector<std::int32_t>> sources, std::span<const std::vector<std::int32_t>> prefixes,
           std::span<const Request> requests, std::span<const std::size_t> numbers, std::vector<std::vector<Hypothesis>>& results) {
    std::vector<Sentence> sentences;
    std::vector<std::vector<std::int32_t>> batch;
    for (std::size_t request : numbers) {
      const auto [number, draw] = requests[request];
      const auto& source = sources[number];
      Index longest = std::max(Index(source.size()) - 1 + o_.extra_length, o_.min_length + 1);
      if (!prefixes.empty()) longest = std::max(longest, Index(prefixes[number].size()) + 1);
      if (o_.max_length > 0) longest = std::min(longest, o_.max_length);
      sentences.push_back({request, number, draw, std::max<Index>(longest, 1), Index(source.size()),
                           prefixes.empty() ? std::span<const std::int32_t>() : prefixes[number], {}, {}});
      sentences.back().live.resize(1);
      sentences.back().live[0].row = Index(sentences.size()) - 1;
      batch.push_back(source);
    }
    const auto state = model_.start(pad_sequences(batch, o_.pad));
    Index per_sentence = 1;
    std::vector<std::int32_t> tokens(sentences.size(), o_.start);
    const Want want = o_.attention || o_.coverage != 0 ? Want::weights : Want::context;
    for (Index t = 0; !sentences.empty(); ++t) {
      const Step step = model_.step(tensor(tokens, {Index(tokens.size())}), *state, want);
      const Index V = step.log_probabilities.size(1);
      check<IndexError>(o_.eos >= 0 && o_.eos < V, "search: eos {} is not in [0, {})", o_.eos, V);
      const Tensor attention = want == Want::weights ? last_cross_row(step) : Tensor();
      std::vector<Index> order;
      std::vector<Sentence> going_on;
      tokens.clear();
      for (std::size_t i = 0; i < sentences.size(); ++i) {
        Sentence& sentence = sentences[i];
        const Index first_row = Index(i) * per_sentence;
        advance(sentence, t, step.log_probabilities, attention);
        if (!sentence.live.empty()) {
          place(sentence, first_row, Index(going_on.size()) * width_, order, tokens);
          going_on.push_back(std::move(sentence));
        } else {
          results[sentence.request] = best(std::move(sentence));
        }
      }
      sentences = std::move(going_on);
      if (!sentences.empty()) state->reorder(order, width_);
      per_sentence = width_;
    }
  }

 private:
  // Mean over the heads of the last cross-attention: [R, S].
  Tensor last_cross_row(const Step& step) const {
    if (const AttentionMap* const last = last_cross_attention(step.attention)) return mean_of_heads(*last)(all, 0).contiguous();
    fail<Error>("search: {} needs attention over the source: this model has none",
                o_.coverage != 0 ? fmt::format("coverage {}", o_.coverage) : "attention or replace_unk");
  }

  // Whether the word would repeat an n-gram of the hypothesis.
  bool repeats(const std::vector<std::int32_t>& ids, std::int32_t word) const {
    const auto n = std::size_t(o_.no_repeat_ngram);
    if (n == 0 || ids.size() < n) return false;
    for (std::size_t i = 0; i + n <= ids.size(); ++i)
      if (ids[i + n - 1] == word && std::equal(ids.end() - std::ptrdiff_t(n - 1), ids.end(), ids.begin() + std::ptrdiff_t(i))) return true;
    return false;
  }

  bool may_follow(const Live& live, Index t, std::int32_t word) const {
    return o_.writes(word) && !(word == o_.eos && t < o_.min_length) && !repeats(live.ids, word);
  }
  // How many words may not follow, at most: pad, bos, start, eos, unk and repetitions
  Index forbidden(const Live& live) const { return 5 + (o_.no_repeat_ngram > 0 ? Index(live.ids.size()) : 0); }

  void advance(Sentence& sentence, Index t, const Tensor& log_probabilities, const Tensor& attention) {
    const auto wanted = std::size_t(2 * width_);
    std::vector<Candidate> candidates;
    for (std::size_t h = 0; h < sentence.live.size(); ++h) {
      const Live& live = sentence.live[h];
      visit_float(log_probabilities.dtype(), "search", [&]<class T>() {
        const Index V = log_probabilities.size(1);
        const T* row = log_probabilities.data<T>() + live.row * V;
        // all where one is
        check<NumericError>(!std::isnan(row[0]), "search: the words' probabilities are NaN: step {}, source of {} tokens", t + 1,
                            sentence.source_length);
        if (t < Index(sentence.prefix.size())) {
          const std::int32_t word = sentence.prefix[std::size_t(t)];
          check<IndexError>(word >= 0 && word < V, "search: prefix word {} at position {} is not in [0, {})", word, t, V);
          candidates.push_back({live.log_probability + double(row[word]), h, word});
        } else if (o_.sampling) {
          draw(sentence, h, t, row, V, candidates);
        } else {
          scan(live, h, t, row, V, wanted, candidates);
        }
      });
    }
    if (candidates.empty()) {                      // no word has a probability, or none is allowed: what there is stays, as impossible
      for (Live& live : sentence.live) {
        live.log_probability = kNever;
        if (sentence.finished.empty()) finish(sentence, std::move(live), false);
      }
      sentence.live.clear();
      return;
    }
    std::sort(candidates.begin(), candidates.end(), better);
    if (candidates.size() > wanted) candidates.resize(wanted);
    std::vector<Live> next;
    Index continued = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      const Live& parent = sentence.live[c.parent];
      const bool ends = c.word == o_.eos;
      if (ends ? Index(i) >= width_ : continued++ >= width_) continue;
      Live child{parent.ids, c.log_probability, parent.row, parent.attention};
      if (attention.defined()) {
        const float* row = attention.data<float>() + parent.row * attention.size(1);
        child.attention.emplace_back(row, row + sentence.source_length);
      }
      if (!ends) child.ids.push_back(c.word);
      if (ends || t + 1 >= sentence.longest) finish(sentence, std::move(child), ends);
      else next.push_back(std::move(child));
    }
    sentence.live = std::move(next);
    if (is_over(sentence)) sentence.live.clear();
  }

  // log P only falls, and the penalty divides it by most at the longest length.
  bool is_over(const Sentence& sentence) const {
    if (o_.stop == Stop::first_k || width_ == 1 || sentence.live.empty()) return Index(sentence.finished.size()) >= width_;
    std::vector<double> scores;
    for (const Hypothesis& done : sentence.finished) scores.push_back(done.score);
    if (Index(scores.size()) < o_.nbest) return false;
    const auto last = scores.begin() + std::ptrdiff_t(o_.nbest - 1);
    std::nth_element(scores.begin(), last, scores.end(), std::greater());
    double best = kNever;
    for (const Live& live : sentence.live) best = std::max(best, live.log_probability);
    return *last >= best / length_penalty(o_.penalty, o_.alpha, sentence.longest);
  }

  // The best `wanted` words of one hypothesis.
  template <class T>
  void scan(const Live& live, std::size_t h, Index t, const T* row, Index V, std::size_t wanted, std::vector<Candidate>& candidates) const {
    std::vector<Candidate> best;
    const auto consider = [&](std::int32_t word) {
      if (!may_follow(live, t, word)) return;
      const Candidate c{live.log_probability + double(row[word]), h, word};
      if (c.log_probability == kNever || std::isnan(c.log_probability)) return;
      if (best.size() == wanted && !better(c, best.back())) return;
      if (best.size() == wanted) best.pop_back();
      best.insert(std::upper_bound(best.begin(), best.end(), c, better), c);
    };
    const std::span words(row, std::size_t(V));
    T threshold = below_largest(words, Index(wanted) + forbidden(live));
    for (Index word = -1; (word = first_above(words, word + 1, threshold)) < V;) {   // an equal value with a higher id is never better
      consider(std::int32_t(word));
      if (best.size() == wanted) threshold = std::max(threshold, row[best.back().word]);
    }
    candidates.insert(candidates.end(), best.begin(), best.end());
  }

  // Temperature, then top-k, then nucleus, then one draw keyed by (key, sentence, draw, step).
  template <class T>
  void draw(const Sentence& sentence, std::size_t h, Index t, const T* row, Index V, std::vector<Candidate>& candidates) const {
    const Sampling& sampling = *o_.sampling;
    const Live& live = sentence.live[h];
    const auto most = std::size_t(sampling.temperature > 0 ? sampling.top_k : 1);
    const T threshold =
        most > 0 ? below_largest(std::span(row, std::size_t(V)), Index(most) + forbidden(live)) : -std::numeric_limits<T>::infinity();
    std::vector<Candidate> words;
    if (most == 0) words.reserve(std::size_t(V));
    for (std::int32_t word = 0; word < V; ++word)
      if (row[word] > threshold && may_follow(live, t, word)) words.push_back({double(row[word]), h, word});
    if (words.empty()) return;
    if (most > 0) std::sort(words.begin(), words.end(), better);
    if (most > 0 && words.size() > most) words.resize(most);
    if (sampling.top_p < 1) keep_nucleus(words);
    const auto i = std::size_t(
        multinomial(sampling.key / (Index(sentence.number) + sampling.first) / sentence.draw / t, weights_of(words), 1).item<Index>());
    candidates.push_back({live.log_probability + words[i].log_probability, h, words[i].word});
  }

  // (p / highest p)^(1/temperature)
  Tensor weights_of(const std::vector<Candidate>& words) const {
    const double highest = std::min_element(words.begin(), words.end(), better)->log_probability,
                 temperature = o_.sampling->temperature > 0 ? o_.sampling->temperature : 1;
    const Tensor logs = empty({Index(words.size())}, DType::f64);
    for (std::size_t i = 0; i < words.size(); ++i) logs.mutable_data<double>()[i] = (words[i].log_probability - highest) / temperature;
    return exp(logs);
  }

  // The fewest words, best first, that have a share of top_p
  void keep_nucleus(std::vector<Candidate>& words) const {
    struct Weighted {
      Candidate candidate;
      double weight;
    };
    const Tensor weights = weights_of(words);
    const double enough = o_.sampling->top_p * sum(weights).item();
    std::vector<Weighted> all;
    all.reserve(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) all.push_back({words[i], weights.data<double>()[i]});
    auto first = all.begin(), last = all.end();    // between them the last word of the nucleus
    double kept = 0;                               // by those before
    while (last - first > 1) {
      const auto middle = first + (last - first) / 2;
      std::nth_element(first, middle, last, [](const Weighted& a, const Weighted& b) { return better(a.candidate, b.candidate); });
      const double with_half = std::accumulate(first, middle, kept, [](double total, const Weighted& one) { return total + one.weight; });
      if (with_half >= enough) last = middle;
      else first = middle, kept = with_half;
    }
    std::erase_if(words, [worst = first->candidate](const Candidate& word) { return better(worst, word); });
  }

  void finish(Sentence& sentence, Live live, bool ended) const {
    Hypothesis done{std::move(live.ids), live.log_probability, 0, ended, std::move(live.attention)};
    done.score = done.log_probability / length_penalty(o_.penalty, o_.alpha, Index(done.ids.size()) + ended);
    if (o_.coverage != 0)
      for (Index j = 0; j < sentence.source_length; ++j) {
        double covered = 0;
        for (const auto& row : done.attention) covered += double(row[std::size_t(j)]);
        done.score += o_.coverage * std::log(std::max(1e-10, std::min(covered, 1.0)));
      }
    if (!o_.attention) done.attention.clear();
    sentence.finished.push_back(std::move(done));
  }

  // Gives every live hypothesis a row: its parent's where that is free, so that its past mostly lies in one piece.
  void place(Sentence& sentence, Index first_row, Index new_first, std::vector<Index>& order, std::vector<std::int32_t>& tokens) const {
    constexpr Index kFree = -1;
    std::vector<Index> parent_of(std::size_t(width_), kFree);
    std::vector<bool> placed(sentence.live.size());
    const auto put = [&](std::size_t h, Index slot) {
      parent_of[std::size_t(slot)] = sentence.live[h].row;
      sentence.live[h].row = new_first + slot;
      placed[h] = true;
    };
    for (std::size_t h = 0; h < sentence.live.size(); ++h)
      if (const Index slot = sentence.live[h].row - first_row; parent_of[std::size_t(slot)] == kFree) put(h, slot);
    for (std::size_t h = 0; h < sentence.live.size(); ++h)
      if (!placed[h]) put(h, std::find(parent_of.begin(), parent_of.end(), kFree) - parent_of.begin());
    std::vector<std::int32_t> words(std::size_t(width_), o_.pad);
    for (const Live& live : sentence.live) words[std::size_t(live.row - new_first)] = live.ids.back();
    for (Index slot = 0; slot < width_; ++slot)
      order.push_back(parent_of[std::size_t(slot)] == kFree ? first_row : parent_of[std::size_t(slot)]);
    tokens.insert(tokens.end(), words.begin(), words.end());
  }

  std::vector<Hypothesis> best(Sentence sentence) const {
    auto& done = sentence.finished;
    std::stable_sort(done.begin(), done.end(), higher);
    if (Index(done.size()) > o_.nbest) done.resize(std::size_t(o_.nbest));
    return std::move(done);
  }

  const Translator& model_;
  const SearchOptions& o_;
  const Index width_;                            // rows a sentence
};

// Number of batches of like size: as many for each thread, which decodes its own. Fewer than threads where those would be too small to be
// fast. What is found does not depend on it.
Index batches_of(Index requests, const SearchOptions& o) {
  constexpr Index kManyRows = 128;                        // with more, keys and values take longest to read
  const Index few = std::max<Index>(2, 32 / threads());   // with fewer, weights do; but many threads of one batch wait for one another
  const Index width = o.sampling ? 1 : o.beam, most = std::clamp<Index>(kManyRows / width, 1, o.batch);
  const Index batches = divide_up(requests, most), spread = round_up(batches, threads());
  return spread * few <= requests * width && spread <= requests ? spread : batches;
}

void check_options(const SearchOptions& options, std::size_t sources, std::span<const std::vector<std::int32_t>> prefixes) {
  check<Error>(options.beam >= 1 && options.beam <= kMostBeam, "search: beam must be in [1, {}]: {}", kMostBeam, options.beam);
  check<Error>(options.nbest >= 1 && (options.sampling || options.nbest <= options.beam),
               "search: nbest must be in [1, beam]: nbest {}, beam {}", options.nbest, options.beam);
  check<Error>(options.batch >= 1, "search: batch must be at least 1: {}", options.batch);
  check<Error>(!options.sampling || options.beam == 1, "search: sampling draws each translation alone: beam {}, needs 1", options.beam);
  check<Error>(options.pad != options.eos, "search: pad and eos are one word, so that nothing could end: {}", options.eos);
  for (const auto& [name, number] : {std::pair("max_length", options.max_length), std::pair("min_length", options.min_length),
                                     std::pair("extra_length", options.extra_length),
                                     std::pair("no_repeat_ngram", options.no_repeat_ngram)})
    check<Error>(number >= 0 && number <= kMostWords, "search: {} must be in [0, {}]: {}", name, kMostWords, number);
  check<Error>(std::isfinite(options.alpha), "search: alpha must be finite: {}", options.alpha);
  check<Error>(options.stop == Stop::first_k || options.penalty == LengthPenalty::none || options.alpha >= 0,
               "search: stop at a bound needs alpha >= 0: {}", options.alpha);
  check<Error>(options.coverage >= 0 && std::isfinite(options.coverage), "search: coverage must be finite and not negative: {}",
               options.coverage);
  check<Error>(prefixes.empty() || prefixes.size() == sources, "search: {} prefixes for {} sources", prefixes.size(), sources);
  check<Error>(options.max_length == 0 || options.min_length <= options.max_length, "search: min_length {} is beyond max_length {}",
               options.min_length, options.max_length);
  for (const auto& prefix : prefixes) {
    const Index words = Index(prefix.size());
    check<Error>(options.max_length == 0 || words <= options.max_length, "search: a prefix of {} words is longer than max_length {}", words,
                 options.max_length);
    for (Index t = 0; t < words; ++t) {
      const std::int32_t word = prefix[std::size_t(t)];
      check<Error>(word != options.pad && word != options.start && word != options.eos && word != options.bos,
                   "search: prefix word {} at position {} is pad, bos, start or eos", word, t);
    }
  }
  if (const auto& s = options.sampling) {
    check<Error>(s->temperature >= 0 && std::isfinite(s->temperature), "search: temperature must be finite and not negative: {}",
                 s->temperature);
    check<Error>(s->top_k >= 0 && s->top_p > 0 && s->top_p <= 1, "search: needs top_k >= 0 and top_p in (0, 1]: top_k {}, top_p {}",
                 s->top_k, s->top_p);
  }
}

}  // namespace

std::vector<std::vector<Hypothesis>> search(const Translator& model, std::span<const std::vector<std::int32_t>> sources,
                                            const SearchOptions& options, std::span<const std::vector<std::int32_t>> prefixes) {
  check_options(options, sources.size(), prefixes);
  std::vector<Request> requests;
  for (std::size_t source = 0; source < sources.size(); ++source)
    for (Index draw = 0; draw < (options.sampling ? options.nbest : 1); ++draw) requests.push_back({source, draw});
  // Sentences of like length are decoded together.
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[requests[a].source].size() > sources[requests[b].source].size(); });
  std::vector<std::vector<Hypothesis>> answers(requests.size());
  PackedWeights own;
  PackedWeights& weights = PackedWeights::current() ? *PackedWeights::current() : own;
  const Index batches = batches_of(Index(requests.size()), options);
  const auto decode = [&, precision = product_precision()](Index b) {
    const PackedWeights::Use use(weights);
    const ProductPrecision product(precision);                                           // also in another thread
    const Tape quiet(evaluating);                                                        // a tape of the caller would draw dropout
    const NoRecording unrecorded;
    const auto at = [&](Index batch) { return std::size_t(Index(order.size()) * batch / batches); };
    Searcher(model, options).run(sources, prefixes, requests, std::span(order).subspan(at(b), at(b + 1) - at(b)), answers);
  };
  // Two or three batches are faster one after another by all threads; a trace of this thread sees them all.
  if (batches >= std::min(threads(), 4) && !Trace::current())
    run_chunks(batches, decode);
  else
    for (Index b = 0; b < batches; ++b) decode(b);
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (Hypothesis& hypothesis : answers[r]) results[requests[r].source].push_back(std::move(hypothesis));
  if (options.sampling)
    for (auto& draws : results) std::stable_sort(draws.begin(), draws.end(), higher);
  return results;
}

}  // namespace heed
