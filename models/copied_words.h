// SPDX-License-Identifier: Apache-2.0
// Ids of words that a model may copy from its source (models/copying_model.h). A target word that the target vocabulary of V words lacks
// is V + j where the source has it first at place j, from 0; a source word that the source vocabulary of U words lacks is U + its target
// id.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "models/vocabulary.h"
#include "tensor/tensor.h"

namespace heed {

// Source words that the target vocabulary lacks, by the first place of each.
struct OutsideWord {
  Index place;
  std::string word;
};
using OutsideWords = std::vector<OutsideWord>;
OutsideWords outside_words(const Vocabulary& target, std::span<const std::string> source_tokens);

// Without eos. <unk>, a target word that neither its vocabulary nor the source has.
std::vector<std::int32_t> source_ids(const Vocabulary& source, const Vocabulary& target, std::span<const std::string> tokens,
                                     const OutsideWords& outside);
std::vector<std::int32_t> target_ids(const Vocabulary& target, std::span<const std::string> tokens, const OutsideWords& outside);
// The words of ids. IndexError: neither vocabulary nor source has it.
std::vector<std::string> source_pieces(const Vocabulary& source, const Vocabulary& target, std::span<const std::int32_t> ids,
                                       const OutsideWords& outside);
std::vector<std::string> target_pieces(const Vocabulary& target, std::span<const std::int32_t> ids, const OutsideWords& outside);

// i32 [U]: the target word that each source word is, eos among them, -1 where the target vocabulary lacks it.
Tensor shared_words(const Vocabulary& source, const Vocabulary& target);

}  // namespace heed
