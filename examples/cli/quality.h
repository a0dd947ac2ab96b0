// SPDX-License-Identifier: Apache-2.0
// How good a model is on data: loss and greedy translations of the dev part; files of references.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/cli/command.h"
#include "models/metrics.h"
#include "models/translate.h"

namespace heed::cli {

struct DevScore {
  double loss = 0;                                 // per target token, eos counted, without smoothing
  double bleu = 0;                                 // greedy, on the model's tokens against those of the references
  double exact = 0;                                // percent of sentences
};

// "BLEU" where tokens are the words of the text, else "BLEU of tokens", that of DevScore.
std::string bleu_name(const RunConfig& config);

// BLEU of token lines. Where no reference has four tokens it counts the orders there are: for right translations all four would give 0.
BleuOptions token_bleu_options(const References& references);

// "42.9/25.0/16.7/12.5, brevity penalty 1.000, length ratio 1.000: 7 words to 7"
std::string bleu_parts(const BleuScore& score);

// Tokens with spaces between them; blanks among them made visible.
std::string token_line(std::span<const std::string> tokens);

// Lines of a file, or of standard input for "-". Mistake where there are none.
std::vector<std::string> read_lines(const std::string& path, const Manner& manner);
// Line n of each of the files A,B,.. becomes one more of references[n]. Mistake where their number is not that of `beside`.
void add_references(References& references, const std::string& list, const std::string& beside, const Manner& manner);

// The best translations of lines beside their references, both as tokens of the model as well.
struct Translated {
  std::vector<std::string> texts, token_lines;
  References reference_tokens;
  Index exact = 0;                                 // lines with the tokens of a reference
};
// `go_on` is called with the lines done, from 0 to all of them; nothing comes back after it said false.
std::optional<Translated> translate_lines(const Run& run, const Translator& model, std::span<const std::string> lines,
                                          const References& references, TranslateOptions options, const std::function<bool(Index)>& go_on,
                                          Overlooked* overlooked = nullptr);

// Where the last cross-attention looks while given pairs are read, its heads' mean. NaN where there is none, or no gold link.
struct AlignmentQuality {
  double error_predicted = NAN, error_input = NAN;   // alignment error rate: rows read as the word they predict, as the word before it
  double accuracy = NAN, monotone_share = NAN;       // of rows read as the word they predict: see AlignmentScore, AttentionNumbers
  double entropy = NAN;                              // of the weights of a row
};
AlignmentQuality alignment_quality(const Run& run, const Seq2Seq& model, std::span<const Example> examples);

class DevPart {
 public:
  DevPart(const Run& run, const Corpus& corpus, std::vector<Example> examples);
  // `go_on` is called now and then; nothing comes back after it said false.
  std::optional<DevScore> score(const Run& run, const Seq2Seq& model, const std::function<bool()>& go_on) const;
  const std::vector<Example>& examples() const { return examples_; }

 private:
  std::vector<Example> examples_;
  std::vector<std::vector<std::string>> references_;   // tokens, words that are <unk> to the model among them
};

}  // namespace heed::cli
