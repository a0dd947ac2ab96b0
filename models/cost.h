// SPDX-License-Identifier: Apache-2.0
// What a model costs by its formulas, so that models can be compared without a clock.
#pragma once
#include "models/run_config.h"

namespace heed {

// Multiply-adds, forward, for a source of S and a target of T words, eos counted, divided by T. Each matrix counts once for each row
// it is multiplied with: those of the encoder and of projected keys S times, those of the decoder and the output layer T times. An
// attention adds its scores and the weighted sum over the positions it may see: all S, a local one at most 2w + 1; what a score looks
// back on is read for all S T pairs. Each layer of a Transformer also has its self-attention, over the words before in the decoder.
double multiply_adds_per_word(const RunConfig& config, const Parameters& parameters, double source_words, double target_words);

}  // namespace heed
