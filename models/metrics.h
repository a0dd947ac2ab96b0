// SPDX-License-Identifier: Apache-2.0
// How good a translation is: BLEU and chrF with sacreBLEU's numbers, exact match, perplexity.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

// References by segment: references[i] holds those of hypothesis i. A segment may have more of them than another, never none.
// All functions throw Error when hypotheses and references differ in number, or there is no segment at all.
using References = std::vector<std::vector<std::string>>;
References single_references(std::span<const std::string> lines);    // one a segment

// ---- BLEU (Papineni et al. 2002) -----------------------------------------------------------------------------------
inline constexpr int kBleuOrder = 4;

enum class BleuTokenizer { mteval_13a, none };          // mteval-v13a.pl as in sacreBLEU; split at white space only
enum class BleuSmoothing { exp, floor, add_k, none };   // for an order without a match, see bleu_score

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  BleuSmoothing smoothing = BleuSmoothing::exp;
  double smoothing_value = -1;                          // floor, add_k; negative: 0.1 and 1
  bool effective_order = false;                         // average over the orders that exist: for single sentences
  bool lowercase = false;
};

// What BLEU needs of a segment, or summed over those of a corpus. Index n-1 holds order n.
struct BleuCounts {
  std::array<Index, kBleuOrder> matches{}, totals{};    // clipped matches, hypothesis n-grams
  Index hypothesis_length = 0, reference_length = 0;    // tokens; of several references the closest, then the shorter
  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore {
  double score = 0;                                     // 0 .. 100
  std::array<double, kBleuOrder> precisions{};          // percent, smoothed
  double brevity_penalty = 0;
  BleuCounts counts;
  std::string signature;                                // nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heed-0.1.0
  double length_ratio() const;                          // hypothesis length / reference length, 0 without a reference word
};

// BLEU = 100 BP exp(¼ Σ_n ln p_n),  p_n = matches / totals summed over the corpus,  BP = 1 if c >= r else exp(1 - r/c).
// p_n without a match: exp: the m-th such order gets 1/(2^m totals_n); floor: value/totals_n; none: BLEU = 0. add_k adds its
// value above and below for n > 1. No match at any order: 0. An order without n-grams ends the loop.
BleuScore bleu(std::span<const std::string> hypotheses, const References& references, const BleuOptions& options = {});
BleuScore sentence_bleu(const std::string& hypothesis, std::span<const std::string> references,
                        const BleuOptions& options = {.effective_order = true});

BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string> references, const BleuOptions& options = {});
BleuScore bleu_score(const BleuCounts& counts, const BleuOptions& options = {});     // without a signature
std::string bleu_signature(const References& references, const BleuOptions& options);
std::string tokenize_13a(std::string_view line);        // tokens joined by single spaces
// sacreBLEU's line:  BLEU|<signature> = 42.73 80.0/50.0/33.3/25.0 (BP = 1.000 ratio = 1.250 hyp_len = 5 ref_len = 4)
std::string to_string(const BleuScore& score);

// One corpus BLEU for the segments whose source has (0, width], (width, 2 width], .. words; empty buckets are left out. Of a
// bucket without a reference of four tokens the orders count that there are (eff:yes).
struct LengthBucket {
  Index above, up_to;                                   // above < source words <= up_to
  Index segments;
  BleuScore bleu;
};
std::vector<LengthBucket> bleu_by_length(std::span<const Index> source_lengths, std::span<const std::string> hypotheses,
                                         const References& references, Index width = 10, const BleuOptions& options = {});

// ---- chrF (Popović 2015), chrF++ (Popović 2017: word_order = 2) ------------------------------------------------------
struct ChrfOptions {
  int character_order = 6, word_order = 0;
  int beta = 2;                                         // weight of recall against precision
  bool lowercase = false, whitespace = false;           // whitespace: n-grams run across spaces
};

struct ChrfScore {
  double score = 0;                                     // 0 .. 100
  std::string name;                                     // chrF2, chrF2++
  std::string signature;                                // nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:heed-0.1.0
};

// F = 100 (1 + β²) P R / (β² P + R); P and R per order over the corpus, averaged over the orders found on both sides.
// Of several references the one with the best F counts. Where it lacks an order, the hypothesis adds no n-grams to that order.
ChrfScore chrf(std::span<const std::string> hypotheses, const References& references, const ChrfOptions& options = {});

// ---- whole sentences -----------------------------------------------------------------------------------------------
// Share (0 .. 1) of hypotheses whose words, split at white space, are those of one of their references; lowercase: but for case.
double exact_match(std::span<const std::string> hypotheses, const References& references, bool lowercase = false);
// exp(Σ NLL / tokens), eos counted, pad and start not.  Error without tokens
double perplexity(double negative_log_likelihood, Index tokens);

}  // namespace heed
