// SPDX-License-Identifier: Apache-2.0
#include "models/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "models/python_text.h"
#include "tensor/format.h"

namespace heed {
namespace {

// Everything below U+0300 is its own NFC, whatever stands beside it.
bool surely_nfc(std::string_view text) {
  for (char c : text) if (std::uint8_t(c) >= 0xCC) return false;
  return true;
}

int combining_class(char32_t code) { return utf8proc_get_property(utf8proc_int32_t(code))->combining_class; }

// The same in Unicode's eyes (UAX 15), with each long run of marks decomposed and in order: utf8proc exchanges neighbours, n² of them.
std::string with_ordered_runs(const std::string& text) {
  constexpr std::size_t kLong = 32;                // characters
  std::string out;
  std::size_t begin = 0;                           // of the run
  std::vector<char32_t> run;
  for (std::size_t i = 0; i <= text.size();) {
    const Character c = character_at(text, i);
    utf8proc_int32_t parts[4]{};
    int ignored = 0;
    const auto count = i < text.size() ? utf8proc_decompose_char(utf8proc_int32_t(c.code), parts, 4, UTF8PROC_DECOMPOSE, &ignored) : 0;
    if (combining_class(char32_t(parts[0])) > 0) {
      run.insert(run.end(), parts, parts + count);
      i += c.size;
      continue;
    }
    if (run.size() < kLong) {
      out.append(text, begin, i - begin);
    } else {
      std::ranges::stable_sort(run, {}, combining_class);
      for (const char32_t code : run) append(out, code);
    }
    run.clear();
    out.append(text, i, c.size);
    begin = i += c.size;
  }
  return out;
}

bool is_letter(char32_t code) {
  const auto category = utf8proc_category(utf8proc_int32_t(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

}  // namespace

void append(std::string& text, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(utf8proc_int32_t(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), std::size_t(size));
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (!c.valid) return false;
    i += c.size;
  }
  return true;
}

std::string repaired(std::string_view text, Index* replaced) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (c.valid && c.code != 0) {
      out.append(text, i, c.size);
    } else {
      out += "\uFFFD";
      if (replaced) ++*replaced;
    }
    i += c.size;
  }
  return out;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (c.valid) out.emplace_back(text.substr(i, c.size)); else out.emplace_back("\uFFFD");
    i += c.size;
  }
  return out;
}

std::string nfc(std::string_view text) {
  if (surely_nfc(text)) return is_utf8(text) ? std::string(text) : repaired(text);
  const std::string valid = with_ordered_runs(is_utf8(text) ? std::string(text) : repaired(text));
  utf8proc_uint8_t* composed = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()), utf8proc_ssize_t(valid.size()),
                                 &composed, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) throw std::bad_alloc();                              // on valid UTF-8 only memory can be missing
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  return std::string(reinterpret_cast<const char*>(composed), std::size_t(size));
}

std::string lower(std::string_view text) { return python::utf8(python::lower(python::code_points(text))); }

bool is_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_blank(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (!is_space(c.code) && c.code != 0x200B && c.code != 0xAD && c.code != 0xFEFF) return false;
    i += c.size;
  }
  return true;
}

bool is_word(char32_t code) {
  if (code < 0x80)
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') || code == '_';
  const auto category = utf8proc_category(utf8proc_int32_t(code));
  return is_letter(code) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_mark(char32_t code) {
  const auto category = utf8proc_category(utf8proc_int32_t(code));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool continues_cluster(char32_t before, char32_t code, std::int32_t& state) {
  return !utf8proc_grapheme_break_stateful(utf8proc_int32_t(before), utf8proc_int32_t(code), &state);
}

std::string clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool space = false;
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (is_space(c.code)) {
      space = true;
    } else if (c.code != 0xAD && c.code != 0x200B) {
      if (space && !out.empty()) out += ' ';
      space = false;
      if (c.code == 0x2019) out += '\''; else out.append(text, i, c.size);
    }
    i += c.size;
  }
  return nfc(out);                                 // last: what a dropped character stood between may compose
}

std::vector<std::string> at_commas(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0, end; at <= list.size(); at = end + 1) {
    end = std::min(list.find(',', at), list.size());
    parts.emplace_back(list.substr(at, end - at));
  }
  return parts;
}

std::string counted(Index n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

void check_text(std::string_view block, const std::string& name) {
  check<FileError>(!block.starts_with("\xFF\xFE") && !block.starts_with("\xFE\xFF"), "{}: not UTF-8 text: UTF-16 byte order mark", name);
  Index zeros = 0, invalid = 0;
  for (std::size_t i = 0; i < block.size();) {
    const Character c = character_at(block, i);
    zeros += c.code == 0, invalid += !c.valid;
    i += c.size;
  }
  // Compressed data: one NUL in 256 bytes. Latin-1 prose: one accent in 20. Other 8-bit alphabets: invalid nearly everywhere.
  const Index n = Index(block.size());
  check<FileError>(zeros <= 4 + n / 1024, "{}: not text: {} NUL bytes among the first {}", name, zeros, n);
  check<FileError>(invalid <= 16 + n / 5, "{}: not UTF-8 text: {} invalid byte sequences among the first {} bytes", name, invalid, n);
}

bool LineReader::fill() {
  if (ended_) return false;
  buffer_.erase(0, at_);
  at_ = 0;
  const bool first = report.lines == 0 && buffer_.empty();
  const std::size_t old = buffer_.size();
  do {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + (std::size_t(1) << 16));
    const std::size_t count = file_.read_some(buffer_.data() + before, buffer_.size() - before);
    buffer_.resize(before + count);
    ended_ = count == 0;
  } while (first && !ended_ && buffer_.size() < 3);                           // a byte order mark is seen whole
  const std::size_t n = buffer_.size() - old;
  if (first) {
    if (buffer_.starts_with("\xEF\xBB\xBF")) at_ = 3, ++report.byte_order_marks;
    check_text(buffer_, path_);
  }
  return n > 0;
}

bool LineReader::next(std::string& line) {
  std::size_t end, dropped = 0;
  while ((end = buffer_.find('\n', at_)) == buffer_.npos) {
    const std::size_t unread = buffer_.size() - at_;
    if (unread > kLongestLine) dropped += unread, at_ = buffer_.size();          // only its length is wanted
    if (!fill()) break;
  }
  if (end == buffer_.npos && at_ == buffer_.size() && dropped == 0) return false;
  std::string_view raw = std::string_view(buffer_).substr(at_, std::min(end, buffer_.size()) - at_);
  at_ += raw.size() + (end != buffer_.npos);
  ++report.lines;
  const std::size_t length = dropped + raw.size();
  check<FileError>(length <= kLongestLine, "{}: line {}: {} bytes, at most {} allowed", path_, report.lines, length,
                   kLongestLine);
  if (raw.ends_with('\r')) raw.remove_suffix(1), ++report.carriage_returns;
  if (is_utf8(raw) && raw.find('\0') == raw.npos) line = raw;
  else line = repaired(raw, &report.invalid);
  return true;
}

}  // namespace heed
