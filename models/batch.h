// SPDX-License-Identifier: Apache-2.0
// From sentence pairs to ids, and from ids to batches.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/alignment.h"
#include "models/copied_words.h"
#include "models/corpus.h"
#include "models/seq2seq.h"
#include "models/tokenizer.h"
#include "models/vocabulary.h"
#include "tensor/random.h"

namespace heed {

// How one language becomes ids.
struct Side {
  Tokenizer tokenizer{};
  Vocabulary vocabulary{};
};

// Tokenizer and vocabulary learned from lines; bpe learns pieces for a vocabulary of max_size (8000 if 0).
Side build_side(std::span<const std::string> lines, TokenizerOptions tokenizer, VocabularyOptions vocabulary = {});
// Vocabulary of what this tokenizer makes of lines; where it has pieces of its own, of all of these, however rare, and nothing else.
Side build_side(Tokenizer tokenizer, std::span<const std::string> lines, VocabularyOptions vocabulary = {});
std::vector<std::string> source_lines(const Corpus& corpus);
std::vector<std::string> target_lines(const Corpus& corpus);

std::vector<std::int32_t> encode(const Side& side, std::string_view line);             // ids and eos
std::string decode(const Side& side, std::span<const std::int32_t> ids);               // the line up to eos

// One pair of sentences, both ending in eos.
struct Example {
  std::vector<std::int32_t> source, target;
  Alignment links{};                   // of tokens, eos not among them
  Index pair = 0;                      // which of corpus.pairs
  OutsideWords outside{};              // of encode_pair with copies
  std::vector<std::string> unknown{};  // for those who show it: the source's words that are <unk>, in order; none where nobody asks
};
// Both sides tokenized, with eos; with copies, words outside of the vocabularies have the ids of models/copied_words.h instead of <unk>.
Example encode_pair(const Side& source, const Side& target, std::string_view source_line, std::string_view target_line,
                    bool copies = false);

struct ExampleOptions {
  Index max_length = 0;                // tokens without eos: pairs with a longer side are left out; 0: no limit
  bool links = true;                   // false: leave them out, as where the tokenizer is not the one they count by
  bool copies = false;                 // of encode_pair
};
// FileError, with line and both numbers of tokens, on a link that points outside. *too_long grows by the pairs left out.
std::vector<Example> make_examples(const Corpus& corpus, const Side& source, const Side& target, ExampleOptions options = {},
                                   Index* too_long = nullptr);

// These examples, or those with the numbers `rows` (IndexError), padded, with `start` in front of the inputs.
Batch make_batch(std::span<const Example> examples, std::int32_t pad, std::int32_t start);
Batch make_batch(std::span<const Example> examples, std::span<const Index> rows, std::int32_t pad, std::int32_t start);
// batch.links and linked_tokens of a batch of these examples, from their sure links: α should be 1/n on each of the n source words of a
// target. ShapeError, IndexError: not the batch's examples, links of other words.
void add_links(Batch& batch, std::span<const Example> examples, std::span<const Index> rows);

struct BatchOptions {
  Index tokens = 2048;   // target tokens, padding counted: sentences x longest target; source tokens at most 4 times as many
  Index sentences = 0;   // > 0: this many sentences a batch instead
  Index window = 50;     // by sentences: sorted by source length inside windows of so many batches
};

// The batches of every epoch, as lists of example indices: a pure function of (key, epoch), so that (epoch, number of the
// batch) is all there is to resume.
// By tokens: shuffled, sorted by length (random among equals), cut, batches shuffled. By sentences: sorted inside windows.
class BatchSampler {
 public:
  BatchSampler(std::span<const Example> examples, BatchOptions options, Key key);      // Error on a size below 1
  std::vector<std::vector<Index>> epoch(Index epoch) const;
  std::vector<std::vector<Index>> by_length() const;  // every example once, no chance: for evaluation

 private:
  struct Lengths { Index source, target; };
  std::vector<std::vector<Index>> cut(std::span<const Index> order) const;
  std::vector<Lengths> lengths_;
  BatchOptions options_;
  Key key_;
};

}  // namespace heed
