// SPDX-License-Identifier: Apache-2.0
// Vocabulary: the pieces of one language and their ids.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T> using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

class Vocabulary {
 public:
  Vocabulary();                                      // the special pieces alone
  // Piece i has id i. FileError `<name>: <unit> <first + i>: ...` on a piece that is empty, repeated, no UTF-8, with a NUL or
  // over 1 KiB, on a missing special piece and beyond a million pieces.
  explicit Vocabulary(std::vector<std::string> pieces, const std::string& name = "vocabulary", const char* unit = "piece",
                      Index first = 0);

  std::int32_t pad, unk, bos, eos;                   // ids of <pad> <unk> <s> </s>; 0, 1, 2, 3 in vocabularies built here

  Index size() const { return Index(pieces_.size()); }
  const std::string& piece(Index id) const;          // IndexError
  // Text cannot name a special piece: the id of a token "</s>" is unk, like that of every token that is not there.
  std::int32_t id(std::string_view token) const;
  std::vector<std::int32_t> ids(std::span<const std::string> tokens) const;         // without bos and eos
  // Up to the first eos, without pad and bos; unk as "<unk>". IndexError
  std::vector<std::string> tokens(std::span<const std::int32_t> ids) const;
  const std::vector<std::string>& pieces() const { return pieces_; }
  friend bool operator==(const Vocabulary& a, const Vocabulary& b) { return a.pieces_ == b.pieces_; }

 private:
  std::vector<std::string> pieces_;
  StringMap<std::int32_t> ids_;
};

inline constexpr std::size_t kMostPieces = 1000000, kLongestPiece = 1024;   // of a vocabulary, and bytes of one

using TokenCounts = StringMap<Index>;
void count_tokens(TokenCounts& counts, std::span<const std::string> tokens);

struct VocabularyOptions {
  Index min_count = 1;                               // rarer tokens become unk
  Index max_size = 0;                                // special pieces included; 0: no limit
};
// Special pieces, then tokens by falling count, equal counts by bytes; without those that read as special pieces, of more than 1 KiB, and
// beyond a million. Error: min_count < 1, a max_size in 1 .. 4 or negative
Vocabulary build_vocabulary(const TokenCounts& counts, VocabularyOptions options = {});

// A header line, then one piece a line; space, tab, carriage return, newline and backslash written \s \t \r \n \\.
void save_vocabulary(const std::string& path, const Vocabulary& vocabulary);
Vocabulary load_vocabulary(const std::string& path);     // FileError with line and piece

}  // namespace heed
