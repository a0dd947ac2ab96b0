// SPDX-License-Identifier: Apache-2.0
// How good an alignment is, and what attention weights say of one.
#pragma once
#include <span>
#include <vector>

#include "models/alignment.h"
#include "tensor/tensor.h"

namespace heed {

// Links A against gold: sure S ⊆ possible P (Och & Ney 2003), |·| summed over sentences.
struct AlignmentScore {
  double error_rate = 0;                                // AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|), 0 where both are empty
  double precision = 1, recall = 1;                     // |A∩P| / |A|, |A∩S| / |S|; 1 where there is nothing
  double accuracy = 1;                                  // share of surely linked target words with a link in P
};
AlignmentScore alignment_score(std::span<const std::vector<Link>> links, std::span<const Alignment> gold);

// Attention weights of one sentence are a Tensor [T, S], f32 or f64, row t looking at the source words; eos is left out by a
// view: weights(Slice{0, T}, Slice{0, S}).  ShapeError, DTypeError otherwise
// One link a target word: the largest weight of its row (equal weights: the first). A row of zeros or NaN gives none.
std::vector<Link> attention_links(const Tensor& weights);
// Σ_t α_tj, how much source word j was looked at.   [S]
std::vector<double> coverage(const Tensor& weights);

struct AttentionNumbers {
  // mean over rows of -Σ_j α_tj ln α_tj, in nats; NaN where a weight is negative or a row has more than 1
  double row_entropy = 0;
  double monotone_share = 1;                            // adjacent target words whose arg max does not move back
  double repeated = 0;                                  // share of target words whose arg max an earlier one had
  double dropped = 0;                                   // share of source words that are no row's arg max
};
AttentionNumbers attention_numbers(std::span<const Tensor> sentences);

}  // namespace heed
