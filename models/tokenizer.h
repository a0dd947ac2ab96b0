// SPDX-License-Identifier: Apache-2.0
// Tokenizers: a line of text to tokens and back.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

// space  split at white space, joined with one space
// word   runs of letters, digits and underscores, every other mark alone, always of the cleaned line; joined by rule
// char   one code point a token; undoes itself exactly
// bpe    SentencePiece's byte pair merges; undoes itself exactly, but for models of one's own that change characters
// Differs: combining marks and what U+200C and U+200D join stay with the character before them, where Python's r"\w+|[^\w\s]" splits
// them off.
struct TokenizerOptions {
  std::string name = "space";
  bool lowercase = false;                             // then NFC
  bool clean = false;                                 // `clean` of models/text.h first; "exactly" holds for the line so prepared
  // word: marks that take no space on one side when they stand beside a word. A straight " opens and closes in turns.
  std::string no_space_before = ".,!?;:%)]}'-…»”/", no_space_after = "([{'-«“/$#@";
  std::string_view noun() const;                      // of a token: word, character, piece
  friend bool operator==(const TokenizerOptions&, const TokenizerOptions&) = default;
};

class Tokenizer {
 public:
  // Error, listing the names there are, on an unknown one. `model`: the bytes of a SentencePiece model, for bpe (FileError with `file`).
  explicit Tokenizer(TokenizerOptions options = {}, std::string_view model = {}, const std::string& file = "sentencepiece model");

  std::vector<std::string> tokens(std::string_view line) const;
  std::string text(std::span<const std::string> tokens) const;
  const TokenizerOptions& options() const { return options_; }
  const std::string& model() const;                   // to be saved beside the options; empty unless bpe
  std::vector<std::string> pieces() const;            // all that tokens() can give; none unless bpe

  struct Rule;                                        // what a name stands for

 private:
  TokenizerOptions options_;
  std::shared_ptr<const Rule> rule_;
};

std::vector<std::string> tokenizer_names();

// Learns from lines what the tokenizer needs: word the spacing of each mark (French sets ? apart, English does not), bpe its
// merges, for a vocabulary of about this size, the special pieces of models/vocabulary.h among it.
Tokenizer train_tokenizer(TokenizerOptions options, std::span<const std::string> lines, Index vocabulary_size = 8000);

// {"name": "word", "lowercase": true, ...}. Error on an unknown key, a wrong type, an unknown name.
std::string to_json(const TokenizerOptions& options);
TokenizerOptions tokenizer_options_from_json(std::string_view json);

}  // namespace heed
