// SPDX-License-Identifier: Apache-2.0
// Greedy search, beam search and sampling, written once for every model. Results do not depend on batch, order or threads,
// nor on a Tape that lives: nothing is recorded and dropout does not act.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/seq2seq.h"
#include "tensor/random.h"

namespace heed {

enum class LengthPenalty { gnmt, average, none };
// gnmt ((5 + n)/6)^α (Wu et al. 2016, arXiv 1609.08144, Eq. 14); average n^α; none 1.    n counts eos
double length_penalty(LengthPenalty kind, double alpha, Index length);
LengthPenalty length_penalty_named(std::string_view name);   // Error lists the names

// When a sentence ends. bound: when of those that live none can come to a better score than the nbest best finished ones have
// (tensor2tensor); first_k: with as many finished hypotheses as the beam is wide, which is sooner and may miss a better one (fairseq).
// Greedily: with its eos.
enum class Stop { bound, first_k };
Stop stop_named(std::string_view name);                      // Error lists the names

struct Sampling {
  double temperature = 1;
  Index top_k = 0;            // keep the k likeliest words; 0 = all
  double top_p = 1;           // then the smallest set whose probability reaches p
  Key key{Seed{1}};
  Index first = 0;            // number of the first source, where a text comes in several calls
};

struct SearchOptions {
  std::int32_t pad = 0, start = 2, eos = 3, unk = 1;
  std::optional<std::int32_t> bos = {};   // never written, whatever start is
  Index beam = 1;             // 1 = greedy
  Index nbest = 1;            // at most beam; with sampling, the number of draws
  LengthPenalty penalty = LengthPenalty::gnmt;
  double alpha = 0.6;
  Stop stop = Stop::bound;    // which needs alpha >= 0
  double coverage = 0;        // β of the coverage penalty β Σ_j ln min(Σ_t α_tj, 1)    (1609.08144, section 7)
  // at most source length + this many words, eos counted; but as many as a prefix or min_length asks for, and eos
  Index extra_length = 50;
  Index max_length = 0;       // a limit of its own, not below prefix and min_length; 0 = none
  Index min_length = 0;       // eos is no candidate before so many words
  Index no_repeat_ngram = 0;
  bool forbid_unk = false;
  bool attention = false;     // keep the mean cross-attention row of the last layer
  Index batch = 32;           // sentences decoded together at most: fewer where a wide beam fills the cache or threads would wait
  std::optional<Sampling> sampling = {};
  // Whether a hypothesis may go on with this word, or end by it.
  bool writes(std::int32_t word) const {
    return word == eos || (word != pad && word != start && word != bos && !(forbid_unk && word == unk));
  }
};

struct Hypothesis {
  std::vector<std::int32_t> ids;                 // without start and eos
  double log_probability = 0, score = 0;         // Σ log p, eos counted; log P / penalty + coverage penalty
  bool finished = false;                         // false: cut off at the longest length
  std::vector<std::vector<float>> attention;     // a row a word, eos included; empty unless asked for
};

// The n best translations of every source (ids with eos), best first, at least one, distinct unless they are drawn. `prefixes` (one a
// source, or none) are words that every hypothesis begins with; they replace choices, not scores. Error: an option out of range, a prefix
// beyond max_length or with pad, bos, start or eos in it; IndexError: an eos or a prefix word that the model does not have; NumericError:
// NaN as the first of a row of Step::log_probabilities, as all are where one of a softmax is.
std::vector<std::vector<Hypothesis>> search(const Translator& model, std::span<const std::vector<std::int32_t>> sources,
                                            const SearchOptions& options, std::span<const std::vector<std::int32_t>> prefixes = {});

}  // namespace heed
