// SPDX-License-Identifier: Apache-2.0
#include "models/vocabulary.h"

#include <algorithm>

#include "models/text.h"
#include "tensor/file.h"
#include "tensor/format.h"

namespace heed {
namespace {

constexpr std::string_view kHeader = "heed-vocabulary 1";
constexpr std::size_t kLargestFile = std::size_t(1) << 30;
constexpr const char* kSpecial[] = {"<pad>", "<unk>", "<s>", "</s>"};
constexpr std::string_view kPlain = " \t\r\n\\", kLetter = "strn\\";

std::string escaped(std::string_view piece) {
  std::string out;
  for (char c : piece) {
    const std::size_t i = kPlain.find(c);
    if (i == kPlain.npos) out += c; else out += '\\', out += kLetter[i];
  }
  return out;
}

}  // namespace

Vocabulary::Vocabulary() : Vocabulary(std::vector<std::string>(std::begin(kSpecial), std::end(kSpecial))) {}

Vocabulary::Vocabulary(std::vector<std::string> pieces, const std::string& name, const char* unit, Index first)
    : pieces_(std::move(pieces)) {
  check<FileError>(pieces_.size() <= kMostPieces, "{}: {} pieces, at most {} allowed", name, pieces_.size(), kMostPieces);
  ids_.reserve(pieces_.size());
  for (Index i = 0; i < size(); ++i) {
    const std::string& piece = pieces_[std::size_t(i)];
    const auto rule = [&](bool holds, std::string_view what) {
      if (!holds) fail<FileError>("{}: {} {}: {}: {}", name, unit, i + first, what, quote(piece));
    };
    rule(!piece.empty(), "empty piece");
    rule(piece.size() <= kLongestPiece, "piece longer than 1024 bytes");
    rule(is_utf8(piece), "piece is not UTF-8");
    rule(piece.find('\0') == piece.npos, "piece contains a NUL");
    const auto [other, is_new] = ids_.emplace(piece, std::int32_t(i));
    rule(is_new, is_new ? "" : fmt::format("piece stands in {} {} already", unit, other->second + first));
  }
  std::int32_t* const fields[] = {&pad, &unk, &bos, &eos};
  for (int i = 0; i < 4; ++i) {
    const auto special = ids_.find(kSpecial[i]);
    check<FileError>(special != ids_.end(), "{}: special piece {} is missing", name, kSpecial[i]);
    *fields[i] = special->second;
  }
}

const std::string& Vocabulary::piece(Index id) const {
  check<IndexError>(id >= 0 && id < size(), "vocabulary: id {} is not in [0, {})", id, size());
  return pieces_[std::size_t(id)];
}

std::int32_t Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return unk;
  const std::int32_t id = found->second;
  return id == pad || id == bos || id == eos ? unk : id;
}

std::vector<std::int32_t> Vocabulary::ids(std::span<const std::string> tokens) const {
  std::vector<std::int32_t> out;
  out.reserve(tokens.size() + 1);
  for (const std::string& token : tokens) out.push_back(id(token));
  return out;
}

std::vector<std::string> Vocabulary::tokens(std::span<const std::int32_t> ids) const {
  std::vector<std::string> out;
  for (std::int32_t id : ids) {
    if (id == eos) break;
    if (id != pad && id != bos) out.push_back(piece(id));
  }
  return out;
}

void count_tokens(TokenCounts& counts, std::span<const std::string> tokens) {
  for (const std::string& token : tokens) ++counts[token];
}

Vocabulary build_vocabulary(const TokenCounts& counts, VocabularyOptions options) {
  check<Error>(options.min_count >= 1, "vocabulary: min_count must be at least 1: {}", options.min_count);
  check<Error>(options.max_size == 0 || options.max_size > 4,
               "vocabulary: max_size must be 0 or more than the 4 special pieces: {}", options.max_size);
  std::vector<std::pair<Index, std::string_view>> order;
  for (const auto& [token, count] : counts)
    if (count >= options.min_count && token.size() <= kLongestPiece &&
        std::find(std::begin(kSpecial), std::end(kSpecial), token) == std::end(kSpecial))
      order.emplace_back(-count, token);
  std::sort(order.begin(), order.end());
  const std::size_t most = options.max_size > 0 ? std::size_t(options.max_size) : kMostPieces;
  order.resize(std::min({order.size(), most - 4, kMostPieces - 4}));
  std::vector<std::string> pieces(std::begin(kSpecial), std::end(kSpecial));
  for (const auto& [count, token] : order) pieces.emplace_back(token);
  return Vocabulary(std::move(pieces));
}

void save_vocabulary(const std::string& path, const Vocabulary& vocabulary) {
  std::string text = fmt::format("{}\n", kHeader);
  for (const std::string& piece : vocabulary.pieces()) text += escaped(piece) + "\n";
  write_file_atomically(path, text);
}

Vocabulary load_vocabulary(const std::string& path) {
  const std::string text = read_file(path, kLargestFile, InputFile::Kind::regular);
  std::vector<std::string> pieces;
  std::size_t at = 0;
  for (std::size_t line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view raw = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line == 1) {
      check<FileError>(raw == kHeader, "{}: line 1: not a vocabulary of this version: expected \"{}\", found {}", path, kHeader,
                       quote(raw));
      continue;
    }
    std::string piece;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') { piece += raw[i]; continue; }
      const std::size_t letter = i + 1 < raw.size() ? kLetter.find(raw[++i]) : kLetter.npos;
      if (letter == kLetter.npos)
        fail<FileError>("{}: line {}: a backslash is followed by s, t, r, n or a backslash: {}", path, line, quote(raw));
      piece += kPlain[letter];
    }
    check<FileError>(line <= kMostPieces + 1, "{}: line {}: more than {} pieces", path, line, kMostPieces);
    pieces.push_back(std::move(piece));
  }
  check<FileError>(!text.empty(), "{}: empty file", path);
  return Vocabulary(std::move(pieces), path, "line", 2);
}

}  // namespace heed
