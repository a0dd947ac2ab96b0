// SPDX-License-Identifier: Apache-2.0
#include "models/corpus.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tensor/format.h"
#include "tensor/random.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
using Links = std::vector<Link>;

namespace {

struct Written {
  TemporaryFolder folder;
  std::string path(const std::string& bytes, std::string_view name = "x.tsv") const {
    return folder.write(name, bytes);
  }
};

std::string joined(const Corpus& corpus) {
  std::string out;
  for (const Pair& pair : corpus.pairs) out += pair.source + "|" + pair.target + ";";
  return out;
}

}  // namespace

TEST_CASE("corpus: tab-separated pairs with and without links") {
  const Written w;
  const Corpus c = read_tsv(w.path("a b\tx y\nc\tz\t0-0\nd e\tu v\t0-1 1-0\t0?0  1?1\ng\th\t\t0?0\n"));
  CHECK(joined(c) == "a b|x y;c|z;d e|u v;g|h;");
  CHECK(c.pairs[0].links.sure.empty());
  CHECK(c.pairs[1].links.sure == Links{{0, 0}});
  CHECK(c.pairs[2].links.sure == Links{{0, 1}, {1, 0}});
  CHECK(c.pairs[2].links.possible == Links{{0, 0}, {1, 1}});
  CHECK(c.pairs[3].links.sure.empty());
  CHECK(c.pairs[3].links.possible == Links{{0, 0}});
  CHECK(c.pairs[3].line == 4);
  CHECK(to_string(c) == w.folder / "x.tsv: 4 lines, 4 pairs");
}

TEST_CASE("corpus: what is mended or left out is counted") {
  const Written w;
  const std::string path = w.path(
      "\xEF\xBB\xBF"
      "a\tb\r\n"
      "\tempty\n"
      "empty\t\n"
      "\u00A0\u202F\tblank\n"
      "\n"
      "bad \xff\tx\xC0\xAF\n"
      "four\tcolumns\t\t\n"
      "five\tcolumns\t\t\tmore\n"
      "six\tcolumns\t\t\tmore\tand more\n"
      "last\tline");
  const Corpus c = read_tsv(path);
  CHECK(joined(c) == "a|b;bad \uFFFD|x\uFFFD\uFFFD;four|columns;five|columns;six|columns;last|line;");
  CHECK(c.pairs[5].line == 10);
  CHECK(c.report.empty == 4);
  CHECK(c.report.further_columns == 2);
  CHECK(to_string(c) == path +
                            ": 10 lines, 6 pairs, 4 lines skipped for an empty side, 3 invalid byte sequences replaced, 1 byte "
                            "order mark removed, "
                            "1 carriage return removed, 2 lines with further columns, which are ignored");
  const Corpus all = read_tsv(path, {.skip_empty = false});              // pair n answers line n
  CHECK(all.pairs.size() == 10);
  CHECK(all.report.empty == 0);
  CHECK(all.report.empty_kept == 4);
  for (std::size_t i = 0; i < 10; ++i) CHECK(all.pairs[i].line == Index(i) + 1);
}

TEST_CASE("corpus: bad files") {
  const Written w;
  const std::string x = w.folder / "x.tsv";
  const auto error = [&](const std::string& bytes) {
    return message_of<FileError>([&] { read_tsv(w.path(bytes)); });
  };
  CHECK(error("") == x + ": empty file");
  CHECK(error("a\tb\nonly one\n") == x + ": line 2: one column, expected source TAB target: \"only one\"");
  CHECK(error("one\ntwo\nthree\n") == x + ": line 1: one column, expected source TAB target: \"one\"");
  CHECK(error("\ta\nb\t\n\n") == "no sentence pairs: " + x + ": 3 lines, 0 pairs, 3 lines skipped for an empty side");
  CHECK(error("a\tb\t0-0 x-1\n") == x + ": line 1: alignment: a link is written i-j, source and target word counted from 0: \"x-1\"; `cut "
                                        "-f1,2` leaves out columns that hold no links");
  for (const char* link : {"0", "0-", "-0", "0-x", "0--1", "-1-0", "0-0-0", "0?0", "99999999999999999999-0", "0.5-1", "CC-BY"})
    CHECK(error("a\tb\nc\td\t0-0 " + std::string(link) + "\n").starts_with(x + ": line 2: alignment: "));
  CHECK(error("a\tb\t0-0\t0-0\n").starts_with(x + ": line 1: alignment: a link is written i?j"));
  CHECK(error(std::string(5000, '\0')) == x + ": not text: 5000 NUL bytes among the first 5000");
  CHECK(error("a\tb\n" + std::string((1 << 20) + 5, 'x') + "\n") == x + ": line 2: 1048581 bytes, at most 1048576 allowed");
  CHECK(message_of<FileError>([&] { read_tsv(w.folder / "none"); }) == w.folder / "none: cannot open: No such file or directory");
  CHECK(message_of<FileError>([&] { read_tsv(w.folder.path()); }) == w.folder.path() + ": cannot read: Is a directory");
}

TEST_CASE("corpus: two parallel files") {
  const Written w;
  const std::string en = w.path("one\ntwo\ttabs\n\nfour", "en"), fr = w.path(
                                                                     "\xEF\xBB\xBF"
                                                                     "un\r\ndeux\r\ntrois\r\nquatre\n",
                                                                     "fr");
  const Corpus c = read_parallel(en, fr);
  CHECK(joined(c) == "one|un;two\ttabs|deux;four|quatre;");
  CHECK(c.pairs[2].line == 4);
  CHECK(to_string(c) ==
        en + " + " + fr +
            ": 4 lines, 3 pairs, 1 line skipped for an empty side, 1 byte order mark removed, 3 carriage returns removed");
  CHECK(message_of<FileError>([&] { read_parallel(en, w.path("un\ndeux\n", "short")); }) ==
        "numbers of lines differ: " + en + " has 4, " + w.folder / "short" + " has 2");
  CHECK(message_of<FileError>([&] { read_parallel(w.path("", "empty"), en); }) ==
        "numbers of lines differ: " + w.folder / "empty" + " has 0, " + en + " has 4");
  CHECK(message_of<FileError>([&] { read_parallel(w.folder / "empty", w.folder / "empty"); }) ==
        w.folder / "empty + " + w.folder / "empty: empty file");
  CHECK(message_of<FileError>([&] { read_parallel(en, w.folder / "none"); }) == w.folder / "none: cannot open: No such file or directory");
}

TEST_CASE("corpus: split by source sentence") {
  const Written w;
  std::string bytes;
  for (int i = 0; i < 60; ++i)
    for (int j = 0; j <= i % 3; ++j)
      bytes += (j == 1 ? "THE\u00A0sentence  " : "the sentence ") + std::to_string(i) + "\tla phrase " + std::to_string(i) +
               " " + std::to_string(j) + "\n";
  const Corpus corpus = read_tsv(w.path(bytes));
  const CorpusSplit split = split_by_source(corpus, {.dev = 5, .test = 4});
  // sha256("the sentence <i>"), sorted: made with Python's hashlib
  CHECK(joined(split.dev) ==
        "the sentence 4|la phrase 4 0;the sentence 6|la phrase 6 0;the sentence 9|la phrase 9 0;the sentence 26|la phrase 26 "
        "0;the sentence 31|la phrase 31 0;");
  CHECK(joined(split.test) ==
        "the sentence 13|la phrase 13 0;the sentence 14|la phrase 14 0;the sentence 44|la phrase 44 0;the sentence 55|la "
        "phrase 55 0;");
  CHECK(split.train.pairs.size() == 101);
  CHECK(shared_sources(split.train, split.dev) == 0);
  CHECK(shared_sources(split.train, split.test) == 0);
  CHECK(shared_sources(split.dev, split.test) == 0);
  CHECK(shared_sources(corpus, split.dev) == 5);
  CHECK(shared_sources(split.dev, Corpus{"", {{"the  Sentence 4", "x"}, {"the sentence 5", "x"}}, {}}) == 1);
  CHECK(to_string(split.dev) == corpus.name + " (dev): 120 lines, 5 pairs");

  Corpus reversed = corpus;                              // the order of lines decides nothing but which target is first
  std::reverse(reversed.pairs.begin(), reversed.pairs.end());
  const CorpusSplit other = split_by_source(reversed, {.dev = 5, .test = 4});
  CHECK(shared_sources(other.dev, split.dev) == 5);
  CHECK(shared_sources(other.test, split.test) == 4);
  CHECK(split_by_source(corpus, {.dev = 0, .test = 59}).train.pairs.size() >= 1);
  CHECK(message_of([&] { split_by_source(corpus, {.dev = 30, .test = 30}); }) ==
        "split by source: nothing is left to train: dev 30, test 30, different source sentences 60; smaller dev and test");
  CHECK(message_of([&] { split_by_source(corpus, {.dev = -1, .test = 3}); }) ==
        "split by source: sizes must not be negative: dev -1, test 3");
}

TEST_CASE("corpus: links stay where cleaning leaves all words") {
  const Alignment links{{{0, 0}}, {{1, 1}}};
  const Corpus corpus{
      "c", {{"a\u00A0 b", "x  y", links}, {"c d", "x \u200B y", links}, {"e \u00AD", "x y", {}}, {"f \u00ADg", "x y", links}}, {}};
  const Corpus train = split_by_source(corpus, {.dev = 0, .test = 0}).train;
  CHECK(joined(train) == "a b|x y;c d|x y;e|x y;f g|x y;");
  std::vector<std::size_t> kept;
  for (const Pair& pair : train.pairs) kept.push_back(pair.links.sure.size() + pair.links.possible.size());
  CHECK(kept == std::vector<std::size_t>{2, 0, 0, 2});
  CHECK(to_string(train) == "c (train): 0 lines, 4 pairs, 1 of them without their links, since cleaning took away a word");
}

TEST_CASE("corpus: any bytes are read or refused with a FileError") {
  const Written w;
  const std::string good = "\xEF\xBB\xBF" "a b\tx y\t0-0 1-1\t0?1\r\nc é €\tz\n\u00A0\tw\nlast\tline 😀";
  Random random(Key(Seed{31}));
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (Index n = random.below(4); n >= 0; --n) {
      const auto at = std::size_t(random.below(Index(bytes.size())));
      const Index kind = random.below(4);
      if (kind == 0) bytes[at] = char(random.next_u32());
      if (kind == 1) bytes.erase(at, 1 + std::size_t(random.below(5)));
      if (kind == 2) bytes.insert(at, 1, "\t\n\r\0-?0\xff"[random.below(8)]);
      if (kind == 3) bytes.insert(at, bytes.substr(0, at));
      if (bytes.empty()) bytes = "\n";
    }
    const std::string path = w.path(bytes);
    for (bool parallel : {false, true}) {
      try {
        const Corpus c = parallel ? read_parallel(path, path) : read_tsv(path);
        for (const Pair& pair : c.pairs)
          if (!is_utf8(pair.source) || !is_utf8(pair.target) || is_blank(pair.source)) FAIL_CHECK(quote(bytes));
        if (c.report.text.lines < c.report.pairs + c.report.empty) FAIL_CHECK(quote(bytes));
        ++read;
      } catch (const FileError& e) {
        if (std::string(e.what()).find(path) == std::string::npos) FAIL_CHECK(e.what());
        ++refused;
      }
    }
  }
  CHECK(read > 1000);
  CHECK(refused > 500);
}
