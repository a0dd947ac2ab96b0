// SPDX-License-Identifier: Apache-2.0
// Subwords by SentencePiece (Kudo & Richardson 2018, arXiv 1808.06226)
// with byte pair merges (Sennrich et al. 2016, arXiv 1508.07909).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

bool has_sentencepiece();                          // was the library there when Heed was built?

inline constexpr std::size_t kLargestModel = std::size_t(64) << 20;   // bytes

class Bpe {
 public:
  // Bytes of a SentencePiece model, scanned first. FileError with the name; Error without the library
  explicit Bpe(std::string_view model, const std::string& name = "sentencepiece model");
  std::vector<std::string> tokens(std::string_view line) const;
  std::string text(std::span<const std::string> tokens) const;  // text(tokens(line)) = line, except that U+2581 becomes a space
  const std::string& model() const;
  std::vector<std::string> pieces() const;                      // all but control, unknown and unused ones

 private:
  struct Model;
  std::shared_ptr<const Model> model_;
};

// Learns pieces for a vocabulary of about this size, its four special pieces counted, smaller where the text has no more, and changes
// no character. Error where it cannot, as where the text has more characters than that.
Bpe train_bpe(std::span<const std::string> lines, Index vocabulary_size);

// What the library should never see, refused before it does: not a protobuf message, over 64 MB, over a million pieces, a piece
// that is empty, over 1 KiB, no UTF-8 or holds a NUL. Tables of character normalisation are taken out unless they are the
// library's own. Returns the model as it may be loaded. FileError with piece and byte offset.
std::string scan_sentencepiece_model(std::string_view model, const std::string& name = "sentencepiece model");

}  // namespace heed
