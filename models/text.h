// SPDX-License-Identifier: Apache-2.0
// Unicode text: UTF-8, NFC, lower case, classes of characters; lines of text files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/file.h"
#include "tensor/utf8.h"

namespace heed {

void append(std::string& text, char32_t code);

bool is_utf8(std::string_view text);
std::string repaired(std::string_view text, Index* replaced = nullptr);   // invalid sequences and NUL -> U+FFFD, counted
std::vector<std::string> characters(std::string_view text);               // one string a code point

std::string nfc(std::string_view text);
std::string lower(std::string_view text);          // full mapping of Unicode: İ -> i̇, Σ at the end of a word -> ς
bool is_space(char32_t code);                      // white space, the no-break ones included
bool is_blank(std::string_view text);              // nothing but white space, U+200B, U+00AD, U+FEFF
bool is_word(char32_t code);                       // letter (L*), number (N*) or underscore
bool is_mark(char32_t code);                       // combining mark (M*)
// Whether code is of the grapheme cluster that the character before is of (UAX 29). state: 0 at first, then what the last call left.
bool continues_cluster(char32_t before, char32_t code, std::int32_t& state);

// U+2019 -> apostrophe, no soft hyphens and zero-width spaces, every run of white space -> one space, none at the ends; then NFC.
std::string clean(std::string_view text);

std::string counted(Index n, std::string_view noun);   // "1 line", "2 lines"

std::vector<std::string> at_commas(std::string_view list);   // "a,,b": "a", "", "b"; of nothing one that is empty

// Counts of what was found in text and mended or left out.
struct TextReport {
  Index lines = 0, invalid = 0, byte_order_marks = 0, carriage_returns = 0;   // invalid: byte sequences that became U+FFFD
};

inline constexpr std::size_t kLongestLine = std::size_t(1) << 20;            // bytes

// FileError where the first block of a text is UTF-16, or full of NUL or invalid bytes.
void check_text(std::string_view block, const std::string& name);

// Lines of a UTF-8 file one by one; only LF ends a line. BOM and CR before LF are removed, invalid bytes and NUL become U+FFFD;
// all is counted. FileError: unreadable; a line over 1 MiB (number and length); those of check_text.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : path_(path), file_(path, InputFile::Kind::any) {}
  bool next(std::string& line);                    // false at the end
  const std::string& path() const { return path_; }
  Index number() const { return report.lines; }    // of the line read last, from 1
  TextReport report;

 private:
  bool fill();
  std::string path_, buffer_;
  std::size_t at_ = 0;                             // buffer_[at_ ..] is unread
  bool ended_ = false;
  InputFile file_;
};

}  // namespace heed
