// SPDX-License-Identifier: Apache-2.0
#include "models/metrics.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "tensor/format.h"

namespace heed {
namespace {

// ---- text as Python's str sees it, for sacreBLEU's numbers ----

// Code points; a byte that is no UTF-8 counts as one.
std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t point = 0;
    const auto size =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i, utf8proc_ssize_t(text.size() - i), &point);
    points += size > 0 ? char32_t(point) : char32_t(0xDC00u + std::uint8_t(text[i]));
    i += size > 0 ? std::size_t(size) : 1;
  }
  return points;
}

// str.isspace
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_SK: return true;
    default:  // Word_Break = MidLetter, MidNumLet, Single_Quote
      return std::u32string_view(U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
  }
}

// str.lower: the simple mapping but for İ, and Σ at the end of a word (Unicode 3.13, Final_Sigma).
std::u32string lower(const std::u32string& text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'İ') out += U"i\u0307";
    else if (text[i] == U'Σ') {
      std::size_t before = i, after = i + 1;
      while (before > 0 && is_case_ignorable(text[before - 1])) --before;
      while (after < text.size() && is_case_ignorable(text[after])) ++after;
      out += before > 0 && is_cased(text[before - 1]) && !(after < text.size() && is_cased(text[after])) ? U'ς' : U'σ';
    } else out += char32_t(utf8proc_tolower(utf8proc_int32_t(text[i])));
  }
  return out;
}

// str.split
std::vector<std::u32string_view> split(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && !is_space(text[end])) ++end;
    if (end > i) words.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    if (c >= 0xDC00 && c <= 0xDCFF) out += char(c - 0xDC00);  // a byte that was no UTF-8
    else {
      utf8proc_uint8_t bytes[4];
      out.append(reinterpret_cast<const char*>(bytes), std::size_t(utf8proc_encode_char(utf8proc_int32_t(c), bytes)));
    }
  }
  return out;
}

void replace_all(std::u32string& text, std::u32string_view from, std::u32string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
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
  std::u32string text = code_points(line);
  if (options.lowercase) text = lower(text);
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
  for (const std::u32string_view word : split(text)) out.append(out.empty() ? "" : " ").append(utf8(word));
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
  const std::u32string h = words.numbers(split(bleu_text(hypothesis, options)));
  std::vector<std::u32string> refs;
  for (const std::string& reference : references) refs.push_back(words.numbers(split(bleu_text(reference, options))));

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
  struct Sum { Index segments = 0; BleuCounts counts; };
  std::vector<std::pair<Index, Sum>> buckets;  // sorted by number
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const Index number = std::max<Index>(source_lengths[i] - 1, 0) / width;
    auto at =
        std::lower_bound(buckets.begin(), buckets.end(), number, [](const auto& bucket, Index n) { return bucket.first < n; });
    if (at == buckets.end() || at->first != number) at = buckets.insert(at, {number, {}});
    ++at->second.segments;
    at->second.counts += bleu_counts(hypotheses[i], references[i], options);
  }
  std::vector<LengthBucket> result;
  for (const auto& [number, sum] : buckets) {
    result.push_back({number * width, (number + 1) * width, sum.segments, bleu_score(sum.counts, options)});
    result.back().bleu.signature = bleu_signature(references, options);
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
    std::u32string text = code_points(line);
    if (options.lowercase) text = lower(text);
    const auto pieces = split(text);
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
  return 100 * (1 + weight) * precision * recall / (weight * precision + recall);
}

}  // namespace

ChrfScore chrf(std::span<const std::string> hypotheses, const References& references, const ChrfOptions& options) {
  check_sizes("chrf", hypotheses.size(), references);
  check<Error>(
      options.character_order >= 0 && options.word_order >= 0 && options.character_order + options.word_order > 0 &&
          options.beta >= 0,
      "chrf: orders and beta must not be negative, one order at least positive: character_order {}, word_order {}, beta {}",
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
  const auto read = [&](const std::string& line) { return lowercase ? lower(code_points(line)) : code_points(line); };
  Index equal = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::u32string text = read(hypotheses[i]);
    const auto words = split(text);
    equal += std::any_of(references[i].begin(), references[i].end(), [&](const std::string& reference) {
      const std::u32string other = read(reference);
      return split(other) == words;
    });
  }
  return double(equal) / double(hypotheses.size());
}

double perplexity(double negative_log_likelihood, Index tokens) {
  check<Error>(tokens > 0, "perplexity: needs at least one token: {}", tokens);
  return std::exp(negative_log_likelihood / double(tokens));
}

// ---- alignment ----

AlignmentScore alignment_score(std::span<const std::vector<Link>> links, std::span<const Alignment> gold) {
  check<Error>(links.size() == gold.size(), "alignment score: numbers of sentences differ: links {}, gold {}", links.size(),
               gold.size());
  Index a = 0, s = 0, a_and_s = 0, a_and_p = 0, surely_linked = 0, accurate = 0;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const std::set<Link> made(links[i].begin(), links[i].end()), sure(gold[i].sure.begin(), gold[i].sure.end()),
        unsure(gold[i].possible.begin(), gold[i].possible.end());
    std::set<Index> linked;
    for (const Link& link : sure) linked.insert(link.target);
    a += Index(made.size());
    s += Index(sure.size());
    for (const Link& link : made) {
      const bool in_s = sure.contains(link), in_p = in_s || unsure.contains(link);
      a_and_s += in_s;
      a_and_p += in_p;
      surely_linked += linked.contains(link.target);
      accurate += in_p && linked.contains(link.target);
    }
  }
  AlignmentScore score;
  if (a + s > 0) score.error_rate = 1 - double(a_and_s + a_and_p) / double(a + s);
  if (a > 0) score.precision = double(a_and_p) / double(a);
  if (s > 0) score.recall = double(a_and_s) / double(s);
  if (surely_linked > 0) score.accuracy = double(accurate) / double(surely_linked);
  return score;
}

namespace {

struct Rows {
  Rows(std::string_view op, const Tensor& x) {
    check<ShapeError>(x.rank() == 2, "{}: weights need 2 dimensions: weights {}", op, x.shape());
    rows = x.size(0);
    columns = x.size(1);
    visit_float(x.dtype(), op, [&]<class T>() {
      const std::vector<T> values = x.to_vector<T>();
      weights.assign(values.begin(), values.end());
    });
  }
  double operator()(Index t, Index j) const { return weights[std::size_t(t * columns + j)]; }
  Index rows, columns;
  std::vector<double> weights;
};

std::vector<Link> largest(const Rows& x) {
  std::vector<Link> links;
  for (Index t = 0; t < x.rows; ++t) {
    Index best = -1;
    for (Index j = 0; j < x.columns; ++j) {
      if (!std::isnan(x(t, j)) && (best < 0 || x(t, j) > x(t, best))) best = j;
    }
    if (best >= 0) links.push_back({best, t});
  }
  return links;
}

}  // namespace

std::vector<Link> attention_links(const Tensor& weights) { return largest(Rows("attention links", weights)); }

std::vector<double> coverage(const Tensor& weights) {
  const Rows x("coverage", weights);
  std::vector<double> sums(std::size_t(x.columns));
  for (Index t = 0; t < x.rows; ++t) {
    for (Index j = 0; j < x.columns; ++j) sums[std::size_t(j)] += x(t, j);
  }
  return sums;
}

AttentionNumbers attention_numbers(std::span<const Tensor> sentences) {
  double entropy = 0;
  Index rows = 0, columns = 0, steps = 0, forward = 0, repeated = 0, seen = 0;
  for (const Tensor& weights : sentences) {
    const Rows x("attention numbers", weights);
    for (const double weight : x.weights) {
      if (weight != 0) entropy -= weight * std::log(weight);
    }
    const std::vector<Link> links = largest(x);
    std::set<Index> looked_at;
    for (std::size_t i = 0; i < links.size(); ++i) {
      repeated += !looked_at.insert(links[i].source).second;
      if (i > 0 && links[i - 1].target + 1 == links[i].target) {
        ++steps;
        forward += links[i].source >= links[i - 1].source;
      }
    }
    rows += x.rows;
    columns += x.columns;
    seen += Index(looked_at.size());
  }
  AttentionNumbers numbers;
  if (rows > 0) numbers.row_entropy = entropy / double(rows);
  if (rows > 0) numbers.repeated = double(repeated) / double(rows);
  if (columns > 0) numbers.dropped = double(columns - seen) / double(columns);
  if (steps > 0) numbers.monotone_share = double(forward) / double(steps);
  return numbers;
}

}  // namespace heed
