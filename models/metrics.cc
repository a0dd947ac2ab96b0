// SPDX-License-Identifier: Apache-2.0
#include "models/metrics.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "models/python_text.h"
#include "models/text.h"
#include "tensor/format.h"

namespace heed {
namespace {

// ---- mteval-v13a.pl ----

void replace_all(std::u32string& text, std::u32string_view from, std::u32string_view to) {
  std::size_t begin = 0, at = text.find(from);
  if (at == text.npos) return;
  std::u32string out;
  for (; at != text.npos; begin = at + from.size(), at = text.find(from, begin)) out.append(text, begin, at - begin).append(to);
  text = out.append(text, begin);
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool not_digit(char32_t c) { return !is_digit(c); }
bool is_dash(char32_t c) { return c == '-'; }
bool is_stop(char32_t c) { return c == '.' || c == ','; }
bool is_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

// Every pair of neighbours x y with first(x) and second(y) becomes a x b y c, from the left and without overlap.
std::u32string space_out(const std::u32string& text, bool (*first)(char32_t), bool (*second)(char32_t), std::u32string_view a,
                         std::u32string_view b, std::u32string_view c) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && first(text[i]) && second(text[i + 1])) {
      out.append(a).append(1, text[i]).append(b).append(1, text[i + 1]).append(c);
      ++i;
    } else out += text[i];
  }
  return out;
}

std::u32string mteval_13a(std::u32string text) {
  replace_all(text, U"<skipped>", U"");
  replace_all(text, U"-\n", U"");
  replace_all(text, U"\n", U" ");
  replace_all(text, U"&quot;", U"\"");
  replace_all(text, U"&amp;", U"&");
  replace_all(text, U"&lt;", U"<");
  replace_all(text, U"&gt;", U">");
  std::u32string spaced = U" ";
  for (const char32_t c : text) {
    if (is_punctuation(c) && c != '\'' && c != ',' && c != '-' && c != '.') spaced.append({' ', c, ' '});
    else spaced += c;
  }
  spaced += U' ';
  spaced = space_out(spaced, not_digit, is_stop, U"", U" ", U" ");
  spaced = space_out(spaced, is_stop, not_digit, U" ", U" ", U"");
  return space_out(spaced, is_digit, is_dash, U"", U" ", U" ");
}

std::u32string bleu_text(std::string_view line, const BleuOptions& options) {
  std::u32string text = python::code_points(line);
  if (options.lowercase) text = python::lower(text);
  while (!text.empty() && is_space(text.back())) text.pop_back();
  return options.tokenizer == BleuTokenizer::mteval_13a ? mteval_13a(std::move(text)) : text;
}

// ---- n-grams ----

// An n-gram is a piece of a string of numbers: code points, or the numbers Words gives to words.
using Counts = std::unordered_map<std::u32string_view, Index>;

Counts ngrams(std::u32string_view text, int order) {
  Counts counts;
  const auto n = std::size_t(order);
  for (std::size_t i = 0; i + n <= text.size(); ++i) ++counts[text.substr(i, n)];
  return counts;
}

class Words {
 public:
  std::u32string numbers(const std::vector<std::u32string_view>& words) {
    std::u32string out;
    for (const std::u32string_view word : words) out += char32_t(ids_.emplace(word, ids_.size()).first->second);
    return out;
  }

 private:
  std::unordered_map<std::u32string, std::size_t> ids_;
};

void check_sizes(std::string_view op, std::size_t hypotheses, const References& references) {
  check<Error>(hypotheses == references.size(), "{}: numbers of lines differ: hypotheses {}, references {}", op, hypotheses,
               references.size());
  check<Error>(hypotheses > 0, "{}: nothing to score: hypotheses 0, references 0", op);
  for (std::size_t i = 0; i < references.size(); ++i)
    check<Error>(!references[i].empty(), "{}: segment {} has no reference", op, i);
}

std::string reference_count(const References& references) {
  const std::size_t n = references.empty() ? 0 : references.front().size();
  const bool equal =
      std::all_of(references.begin(), references.end(), [&](const auto& segment) { return segment.size() == n; });
  return equal ? fmt::format("{}", n) : "var";
}

double smoothing_value(const BleuOptions& options) {
  if (options.smoothing_value >= 0) return options.smoothing_value;
  return options.smoothing == BleuSmoothing::floor ? 0.1 : 1.0;
}

}  // namespace

References single_references(std::span<const std::string> lines) {
  References references;
  references.reserve(lines.size());
  for (const std::string& line : lines) references.push_back({line});
  return references;
}

// ---- BLEU ----

std::string tokenize_13a(std::string_view line) {
  const std::u32string text = bleu_text(line, {});
  std::string out;
  for (const std::u32string_view word : python::split(text)) out.append(out.empty() ? "" : " ").append(python::utf8(word));
  return out;
}

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (std::size_t n = 0; n < kBleuOrder; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  return *this;
}

double BleuScore::length_ratio() const {
  return counts.reference_length > 0 ? double(counts.hypothesis_length) / double(counts.reference_length) : 0;
}

BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string> references, const BleuOptions& options) {
  check<Error>(!references.empty(), "bleu: a segment has no reference");
  Words words;
  const std::u32string h = words.numbers(python::split(bleu_text(hypothesis, options)));
  std::vector<std::u32string> refs;
  for (const std::string& reference : references) refs.push_back(words.numbers(python::split(bleu_text(reference, options))));

  BleuCounts counts;
  counts.hypothesis_length = Index(h.size());
  const auto distance = [&](const std::u32string& r) {
    return std::pair(std::abs(Index(r.size()) - Index(h.size())), r.size());
  };
  const auto closest =
      std::min_element(refs.begin(), refs.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  counts.reference_length = Index(closest->size());
  for (int n = 1; n <= kBleuOrder; ++n) {
    Counts most;  // of an n-gram in any one reference
    for (const std::u32string& ref : refs) {
      for (const auto& [ngram, count] : ngrams(ref, n)) most[ngram] = std::max(most[ngram], count);
    }
    for (const auto& [ngram, count] : ngrams(h, n)) {
      counts.totals[std::size_t(n) - 1] += count;
      const auto found = most.find(ngram);
      if (found != most.end()) counts.matches[std::size_t(n) - 1] += std::min(count, found->second);
    }
  }
  return counts;
}

BleuScore bleu_score(const BleuCounts& counts, const BleuOptions& options) {
  BleuScore result;
  result.counts = counts;
  const double c = double(counts.hypothesis_length), r = double(counts.reference_length);
  result.brevity_penalty = c >= r ? 1 : c > 0 ? std::exp(1 - r / c) : 0;
  if (std::all_of(counts.matches.begin(), counts.matches.end(), [](Index n) { return n == 0; })) return result;

  const double value = smoothing_value(options);
  double halvings = 1;
  std::size_t orders = kBleuOrder;
  for (std::size_t n = 0; n < kBleuOrder; ++n) {
    const double added = options.smoothing == BleuSmoothing::add_k && n > 0 ? value : 0;
    const double matches = double(counts.matches[n]) + added, total = double(counts.totals[n]) + added;
    if (total == 0) break;
    if (options.effective_order) orders = n + 1;
    if (matches > 0) result.precisions[n] = 100 * matches / total;
    else if (options.smoothing == BleuSmoothing::exp) result.precisions[n] = 100 / ((halvings *= 2) * total);
    else if (options.smoothing == BleuSmoothing::floor) result.precisions[n] = 100 * value / total;
  }
  double sum = 0;
  for (std::size_t n = 0; n < orders; ++n) sum += std::log(result.precisions[n]);  // ln 0 = -∞ gives 0 below
  result.score = result.brevity_penalty * std::exp(sum / double(orders));
  return result;
}

std::string bleu_signature(const References& references, const BleuOptions& options) {
  constexpr const char* names[] = {"exp", "floor", "add-k", "none"};
  std::string smoothing = names[int(options.smoothing)];
  if (options.smoothing == BleuSmoothing::floor || options.smoothing == BleuSmoothing::add_k) {
    smoothing += fmt::format("[{:.2f}]", smoothing_value(options));
  }
  return fmt::format("nrefs:{}|case:{}|eff:{}|tok:{}|smooth:{}|version:heed-{}", reference_count(references),
                     options.lowercase ? "lc" : "mixed", options.effective_order ? "yes" : "no",
                     options.tokenizer == BleuTokenizer::none ? "none" : "13a", smoothing, HEED_VERSION);
}

BleuScore bleu(std::span<const std::string> hypotheses, const References& references, const BleuOptions& options) {
  check_sizes("bleu", hypotheses.size(), references);
  BleuCounts counts;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) counts += bleu_counts(hypotheses[i], references[i], options);
  BleuScore result = bleu_score(counts, options);
  result.signature = bleu_signature(references, options);
  return result;
}

BleuScore sentence_bleu(const std::string& hypothesis, std::span<const std::string> references, const BleuOptions& options) {
  return bleu(std::span(&hypothesis, 1), {{references.begin(), references.end()}}, options);
}

std::string to_string(const BleuScore& score) {
  const auto& p = score.precisions;
  return fmt::format("BLEU{}{} = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
                     score.signature.empty() ? "" : "|", score.signature, score.score, p[0], p[1], p[2], p[3],
                     score.brevity_penalty, score.length_ratio(), score.counts.hypothesis_length,
                     score.counts.reference_length);
}

std::vector<LengthBucket> bleu_by_length(std::span<const Index> source_lengths, std::span<const std::string> hypotheses,
                                         const References& references, Index width, const BleuOptions& options) {
  check_sizes("bleu by length", hypotheses.size(), references);
  check<Error>(source_lengths.size() == hypotheses.size(),
               "bleu by length: numbers of lines differ: source lengths {}, hypotheses {}", source_lengths.size(),
               hypotheses.size());
  check<Error>(width > 0, "bleu by length: the width of a bucket must be positive: {}", width);
  struct Sum { Index segments = 0; BleuCounts counts; bool four = false; };   // has a reference of four tokens
  std::vector<std::pair<Index, Sum>> buckets;  // sorted by number
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const Index number = std::max<Index>(source_lengths[i] - 1, 0) / width;
    auto at =
        std::lower_bound(buckets.begin(), buckets.end(), number, [](const auto& bucket, Index n) { return bucket.first < n; });
    if (at == buckets.end() || at->first != number) at = buckets.insert(at, {number, {}});
    ++at->second.segments;
    at->second.counts += bleu_counts(hypotheses[i], references[i], options);
    at->second.four |= std::ranges::any_of(references[i], [&](const std::string& reference) {
      return bleu_counts("", {&reference, 1}, options).reference_length >= kBleuOrder;
    });
  }
  std::vector<LengthBucket> result;
  for (const auto& [number, sum] : buckets) {
    BleuOptions its = options;
    its.effective_order |= !sum.four;
    result.push_back({number * width, (number + 1) * width, sum.segments, bleu_score(sum.counts, its)});
    result.back().bleu.signature = bleu_signature(references, its);
  }
  return result;
}

// ---- chrF ----

namespace {

struct ChrfCounts { Index hypothesis = 0, reference = 0, matches = 0; };  // n-grams of one order

// A word of two or more characters loses one mark at its end or, without one there, at its start.
std::vector<std::u32string_view> split_marks(const std::vector<std::u32string_view>& words) {
  std::vector<std::u32string_view> out;
  for (const std::u32string_view word : words) {
    const bool back = word.size() > 1 && is_punctuation(word.back()),
               front = word.size() > 1 && !back && is_punctuation(word.front());
    const std::size_t cut = back ? word.size() - 1 : front ? 1 : 0;
    if (cut > 0) out.push_back(word.substr(0, cut));
    out.push_back(word.substr(cut));
  }
  return out;
}

struct ChrfText {
  std::u32string characters, words;
  ChrfText(std::string_view line, Words& numbers, const ChrfOptions& options) {
    std::u32string text = python::code_points(line);
    if (options.lowercase) text = python::lower(text);
    const auto pieces = python::split(text);
    if (options.word_order > 0) words = numbers.numbers(split_marks(pieces));
    if (options.whitespace) characters = text;
    else
      for (const std::u32string_view piece : pieces) characters += piece;
  }
  Counts counts(int order, const ChrfOptions& options) const {  // 0, 1, ..: characters first, then words
    return order < options.character_order ? ngrams(characters, order + 1) : ngrams(words, order - options.character_order + 1);
  }
};

double chrf_score(std::span<const ChrfCounts> orders, int beta) {
  double precision = 0, recall = 0;
  int found = 0;
  for (const ChrfCounts& n : orders) {
    if (n.hypothesis == 0 || n.reference == 0) continue;
    precision += double(n.matches) / double(n.hypothesis);
    recall += double(n.matches) / double(n.reference);
    ++found;
  }
  if (precision + recall == 0) return 0;
  precision /= found;
  recall /= found;
  const double weight = double(beta) * beta;
  // rounded as sacreBLEU does: of references equally good it takes the same
  return 100 * ((1 + weight) * precision * recall / (weight * precision + recall));
}

}  // namespace

ChrfScore chrf(std::span<const std::string> hypotheses, const References& references, const ChrfOptions& options) {
  check_sizes("chrf", hypotheses.size(), references);
  constexpr int kMostOrder = 1000;
  const int low = std::min(options.character_order, options.word_order), high = std::max(options.character_order, options.word_order);
  check<Error>(low >= 0 && high > 0 && high <= kMostOrder && options.beta >= 0,
               "chrf: needs orders in [0, {}], one of them positive, and beta >= 0: character_order {}, word_order {}, beta {}", kMostOrder,
               options.character_order, options.word_order, options.beta);
  std::vector<ChrfCounts> corpus(std::size_t(options.character_order + options.word_order));
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    Words words;
    const ChrfText hypothesis(hypotheses[i], words, options);
    std::vector<Counts> counts;
    for (int order = 0; order < int(corpus.size()); ++order) counts.push_back(hypothesis.counts(order, options));
    std::vector<ChrfCounts> best;
    double best_score = -1;
    for (const std::string& line : references[i]) {
      const ChrfText reference(line, words, options);
      std::vector<ChrfCounts> orders(corpus.size());
      for (int order = 0; order < int(corpus.size()); ++order) {
        ChrfCounts& n = orders[std::size_t(order)];
        const Counts found = reference.counts(order, options);
        for (const auto& [ngram, count] : found) n.reference += count;
        for (const auto& [ngram, count] : counts[std::size_t(order)]) {
          if (!found.empty()) n.hypothesis += count;
          const auto match = found.find(ngram);
          if (match != found.end()) n.matches += std::min(count, match->second);
        }
      }
      const double score = chrf_score(orders, options.beta);
      if (score > best_score) {
        best_score = score;
        best = std::move(orders);
      }
    }
    for (std::size_t order = 0; order < corpus.size(); ++order) {
      corpus[order].hypothesis += best[order].hypothesis;
      corpus[order].reference += best[order].reference;
      corpus[order].matches += best[order].matches;
    }
  }
  return {chrf_score(corpus, options.beta),
          fmt::format("chrF{}{}", options.beta, std::string(std::size_t(options.word_order), '+')),
          fmt::format("nrefs:{}|case:{}|eff:yes|nc:{}|nw:{}|space:{}|version:heed-{}", reference_count(references),
                      options.lowercase ? "lc" : "mixed", options.character_order, options.word_order,
                      options.whitespace ? "yes" : "no", HEED_VERSION)};
}

// ---- whole sentences ----

double exact_match(std::span<const std::string> hypotheses, const References& references, bool lowercase) {
  check_sizes("exact match", hypotheses.size(), references);
  const auto read = [&](const std::string& line) {
    return lowercase ? python::lower(python::code_points(line)) : python::code_points(line);
  };
  Index equal = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::u32string text = read(hypotheses[i]);
    const auto words = python::split(text);
    equal += std::any_of(references[i].begin(), references[i].end(), [&](const std::string& reference) {
      const std::u32string other = read(reference);
      return python::split(other) == words;
    });
  }
  return double(equal) / double(hypotheses.size());
}

double perplexity(double negative_log_likelihood, Index tokens) {
  check<Error>(tokens > 0, "perplexity: needs at least one token: {}", tokens);
  return std::exp(negative_log_likelihood / double(tokens));
}

}  // namespace heed
