// SPDX-License-Identifier: Apache-2.0
#include "models/text.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

#include "tensor/format.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
using Lines = std::vector<std::string>;

namespace {

Lines lines_of(const std::string& path, TextReport* report = nullptr) {
  LineReader reader(path);
  Lines lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  if (report) *report = reader.report;
  return lines;
}

}  // namespace

TEST_CASE("text: every code point survives UTF-8, nothing else is one") {
  for (char32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string s;
    append(s, code);
    const Character c = character_at(s, 0);
    const bool cut = s.size() > 1 && is_utf8(std::string_view(s).substr(0, s.size() - 1));
    if (!c.valid || c.code != code || c.size != s.size() || cut) FAIL_CHECK(std::uint32_t(code));
  }
  // maximal subparts, as Unicode 15.0 table 3-8 and Python's errors="replace" count them
  struct { std::string bytes, mended; Index count;
  } rows[] = {{"a\xff", "a\uFFFD", 1},
              {"\xc0\xaf", "\uFFFD\uFFFD", 2},
              {"\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD", 3},
              {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD", 3},
              {"\xf4\x91\x92\x93", "\uFFFD\uFFFD\uFFFD\uFFFD", 4},
              {"\xf0\x9f\x98z", "\uFFFDz", 1},
              {"\xe2\x82", "\uFFFD", 1},
              {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
               "A",
               "\uFFFD\uFFFD\uFFFD\uFFFD"
               "A",
               4},
              {"\x80"
               "é",
               "\uFFFD"
               "é",
               1},
              {std::string("a\0b", 3),
               "a\uFFFD"
               "b",
               1},
              {"plain é € 😀", "plain é € 😀", 0}};
  for (const auto& row : rows) {
    CAPTURE(row.bytes);
    Index count = 0;
    CHECK(repaired(row.bytes, &count) == row.mended);
    CHECK(count == row.count);
    CHECK(is_utf8(row.mended));
  }
  CHECK(characters("né€\xff") == Lines{"n", "é", "€", "\uFFFD"});
}

TEST_CASE("text: normal form and lower case") {
  CHECK(nfc("e\u0301te\u0301") == "été");
  CHECK(nfc("\u1E9B\u0323") == "\u1E9B\u0323");            // a composed pair that has no further composition
  CHECK(nfc("\u212B") == "\u00C5");                        // angstrom sign
  CHECK(nfc("q\u0307\u0323") == "q\u0323\u0307");          // canonical order
  CHECK(nfc("") == "");
  // Long runs of marks: those of each class keep their order; U+0F73 is no mark of a class, its parts are.
  std::string mixed = "a", ordered = "\u1EA1", further = "b", parts = "b";
  for (int i = 0; i < 100000; ++i) {
    mixed += i % 2 ? "\u0301\u0323" : "\u0307\u0323";
    further += "\u0F73";
  }
  for (int i = 1; i < 100000; ++i) ordered += "\u0323";
  for (int i = 0; i < 100000; ++i) ordered += i % 2 ? "\u0301" : "\u0307";
  for (const char* part : {"\u0F71", "\u0F72"})
    for (int i = 0; i < 100000; ++i) parts += part;
  const std::clock_t begin = std::clock();
  CHECK((nfc("é" + mixed + "é") == "é" + ordered + "é"));
  CHECK((nfc(further) == parts));
  CHECK(double(std::clock() - begin) / CLOCKS_PER_SEC < 20);         // two minutes where neighbours are exchanged
  CHECK(nfc("x\xff") == "x\uFFFD");
  CHECK(lower("ÀÉÎÕÜ Œ ẞ Ж Ǆ 𐐀 123") == "àéîõü œ ß ж ǆ 𐐨 123");
  CHECK(lower("İstanbul") == "i\u0307stanbul");
  CHECK(lower("ΟΔΥΣΣΕΥΣ ΣΟΣ Σ") == "οδυσσευς σος σ");      // Final_Sigma
  CHECK(lower("中Σ") == "中σ");                              // behind no cased letter
  CHECK(lower("ΟΣ.Α") == "οσ.α");                          // a full stop inside of a word is ignored
}

TEST_CASE("text: classes of characters") {
  for (char32_t c : {U' ', U'\t', U'\u00A0', U'\u202F', U'\u2009', U'\u3000', U'\u0085', U'\u2028'}) CHECK(is_space(c));
  for (char32_t c : {U'\u200B', U'_', U'a', U'\uFEFF', U'\0'}) CHECK_FALSE(is_space(c));
  for (char32_t c : {U'a', U'Z', U'0', U'_', U'é', U'Ж', U'中', U'²', U'½', U'Ⅷ', U'٣'}) CHECK(is_word(c));
  for (char32_t c : {U'-', U'\'', U'€', U'\u0301', U'«', U'😀', U'\u200B'}) CHECK_FALSE(is_word(c));
  CHECK(is_mark(U'\u0301'));
  CHECK_FALSE(is_mark(U'e'));
  for (const char* blank : {"", " ", "\t\u00A0\u202F", "\u200B", "\u00AD \uFEFF"}) CHECK(is_blank(blank));
  CHECK_FALSE(is_blank(" . "));
}

TEST_CASE("text: clean") {
  CHECK(clean("  L\u2019e\u0301te\u0301\u00A0\u202F: \tso\u00ADleil\u200B !  ") == "L'été : soleil !");
  CHECK(clean("\u00A0") == "");
  CHECK(clean("a\u2028b\u0085c\x1c" "d") == "a b c d");
  for (const char* text : {" x\u00A0 y ", "e\u200B\u0301", "\u1100\u00AD\u1161", "a\u0323\u200B\u0302"})
    CHECK(clean(clean(text)) == clean(text));
  CHECK(clean("e\u00AD\u0301") == "é");
}

TEST_CASE("text: quoted for messages") {
  CHECK(quote("a\"b\\\n\x01\u2028é\xff") == "\"a\\\"b\\\\\\u000a\\u0001\\u2028é\\xff\"");
  CHECK(quote(std::string(80, 'x')) == "\"" + std::string(80, 'x') + "\"");
  CHECK(quote(std::string(79, 'x') + "é") == "\"" + std::string(79, 'x') + "...\"");
}

TEST_CASE("lines: a byte order mark that a pipe gives in two pieces") {
  TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] {
    std::ofstream out(pipe, std::ios::binary);
    out << "\xEF" << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    out << "\xBB\xBF" "a\n";
  });
  CHECK(lines_of(pipe) == Lines{"a"});
  writer.join();
}

TEST_CASE("lines: ends, marks and what is mended") {
  TemporaryFolder folder;
  TextReport report;
  const auto read = [&](std::string_view bytes) {
    write_file_atomically(folder / "x", bytes);
    return lines_of(folder / "x", &report);
  };
  CHECK(read("a\nb\n") == Lines{"a", "b"});
  CHECK(read("a\nb") == Lines{"a", "b"});                                        // the last line counts
  CHECK(read("\n\na") == Lines{"", "", "a"});
  CHECK(read("").empty());
  CHECK(report.lines == 0);
  CHECK(read("\xEF\xBB\xBF"
             "a\r\nb\rc\r\n\xEF\xBB\xBF"
             "d\r") == Lines{"a", "b\rc",
                             "\uFEFF"
                             "d"});  // BOM at the start only, CR before LF only
  CHECK(report.lines == 3);
  CHECK(report.byte_order_marks == 1);
  CHECK(report.carriage_returns == 3);
  CHECK(read("\xEF\xBB\xBF").empty());
  CHECK(read("a\u2028b\u0085c\nd\x0b" "e\x0c\n") == Lines{"a\u2028b\u0085c", "d\x0b" "e\x0c"});      // only LF ends a line
  CHECK(read(std::string_view("a\0b\n\xff\xc3\n", 7)) == Lines{"a\uFFFD" "b", "\uFFFD\uFFFD"});
  CHECK(report.invalid == 3);
  std::string many;
  for (int i = 0; i < 50000; ++i)
    many += "ligne numéro " + std::to_string(i) + "\n";  // over several blocks, cut inside characters
  const Lines lines = read(many);
  CHECK(lines.size() == 50000);
  CHECK(lines[49999] == "ligne numéro 49999");
  CHECK(report.invalid == 0);
}

TEST_CASE("lines: over 1 MiB, binary, other encodings, missing") {
  TemporaryFolder folder;
  const std::string x = folder / "x", limit(std::size_t(1) << 20, 'a');
  const auto error = [&](const std::string& bytes) {
    write_file_atomically(x, bytes);
    return message_of<FileError>([&] { lines_of(x); });
  };
  write_file_atomically(x, "first\n" + limit + "\nlast");
  CHECK((lines_of(x) == Lines{"first", limit, "last"}));
  CHECK(error("first\n" + limit + "b\nlast") == x + ": line 2: 1048577 bytes, at most 1048576 allowed");
  CHECK(error(limit + limit + limit + limit + "bc\nlast") == x + ": line 1: 4194306 bytes, at most 1048576 allowed");
  CHECK(error(limit + limit) == x + ": line 1: 2097152 bytes, at most 1048576 allowed");
  CHECK(error(std::string(3000, '\0')) == x + ": not text: 3000 NUL bytes among the first 3000");
  std::string noise;
  for (unsigned i = 0, v = 1; i < 100000; ++i) noise += char((v = v * 1664525 + 1013904223) >> 24);
  CHECK(error(noise).starts_with(x + ": not text: "));
  CHECK(error("\xFF\xFE" "a\0") == x + ": not UTF-8 text: UTF-16 byte order mark");
  CHECK(
      error(
          "\xCF\xF0\xE8\xE2\xE5\xF2 \xEC\xE8\xF0 \xCF\xF0\xE8\xE2\xE5\xF2 \xEC\xE8\xF0 \xCF\xF0\xE8\xE2\xE5\xF2 \xEC\xE8\xF0\n")
          .starts_with(x + ": not UTF-8 text: "));
  CHECK(error("l'\xE9t\xE9 est l\xE0, et la mer est belle\n") == "");                                  // Latin-1 prose: mended
  CHECK(message_of<FileError>([&] { lines_of(folder / "none"); }) == folder / "none: cannot open: No such file or directory");
  CHECK(message_of<FileError>([&] { lines_of(folder.path()); }) == folder.path() + ": cannot read: Is a directory");
}

TEST_CASE("text: a sigma before a soft hyphen and a letter ends no word") {
  CHECK(lower("ΑΣ\u00ADΑ") == "ασ\u00ADα");
  CHECK(lower("ΑΣ\u00AD") == "ας\u00AD");
}
