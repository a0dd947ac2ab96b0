// SPDX-License-Identifier: Apache-2.0
// From lines to lines: a trained model with its tokenizers and vocabularies.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/picture.h"
#include "models/run.h"
#include "models/search.h"

namespace heed {

struct Translation {
  std::string text;
  std::vector<std::string> tokens;               // the model's own; `text` joins them by the tokenizer's rule
  double log_probability = 0, score = 0;
  bool finished = true;                          // false: cut off at the longest length
  // where asked for: of each token to the source token it looks at most, where it looks at any
  std::vector<Link> links{};
};

struct TranslateOptions {
  SearchOptions search = {};                     // its special ids are those of the target vocabulary
  bool replace_unk = false;                      // <unk> becomes the source word most looked at, if any is (Luong et al. 2015, 1410.8206)
  bool links = false;                            // by the mean over the heads of the last cross-attention
  Index max_length = 0;                          // tokens of a source, eos not counted, beyond which it is cut; 0: RunConfig's
};

// What a model does not see of its lines.
struct Overlooked {
  Index cut = 0;                                 // lines beyond the longest length
  std::set<std::string> unknown = {};            // tokens of a line or prefix that the vocabulary lacks, where none can be copied
};

// Of a line to be translated: none of a blank one.
std::vector<std::string> source_tokens(const Run& run, std::string_view line);

// The words of ids, those outside of the vocabularies as the source has them (models/copied_words.h), of example.unknown with <unk> behind,
// eos among them; and the text before it.
std::vector<std::string> source_words(const Run& run, const Example& example);
std::vector<std::string> target_words(const Run& run, std::span<const std::int32_t> ids, const OutsideWords& outside);
std::string source_text(const Run& run, const Example& example);
std::string target_text(const Run& run, const Example& example);

// The n best of each line, best first; of those with the same text, which other pieces or replaced words make, only the first, unless they
// are draws. A line without tokens has one translation, which is empty. `prefixes`, one a line or none, are what every translation begins
// with, in their own words where the model knows them only as <unk>. What the model does not see is added to *overlooked.
std::vector<std::vector<Translation>> translate(const Run& run, const Translator& model, std::span<const std::string> lines,
                                                const TranslateOptions& options = {}, std::span<const std::string> prefixes = {},
                                                Overlooked* overlooked = nullptr);

// Search over ids that end in eos.
SearchOptions search_options(const Run& run, SearchOptions options = {});

// Teacher-forced attention of every layer and head; both sides end in eos, which is drawn as a word. Rows::input names each row of a
// cross-attention for the word that was read before it, and moves the gold links there. Local attentions have their windows.
AttentionPicture attention_picture(const Run& run, const Seq2Seq& model, const Example& example,
                                   AttentionPicture::Rows rows = AttentionPicture::Rows::predicted);
// The mean over the heads of the last cross-attention only.
AttentionPicture last_cross_attention(const AttentionPicture& picture);

// Teacher-forced weights of the last cross-attention, the mean over its heads: f32 [T, S] for each example, eos counted on both sides;
// row t is that which predicts target word t. Empty where the model has no attention.
std::vector<Tensor> cross_attention_weights(const Run& run, const Seq2Seq& model, std::span<const Example> examples);

// -log P(target | source) of each example, eos counted, without smoothing.
std::vector<double> negative_log_likelihoods(const Run& run, const Translator& model, std::span<const Example> examples);

}  // namespace heed
