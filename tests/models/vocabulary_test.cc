// SPDX-License-Identifier: Apache-2.0
#include "models/vocabulary.h"

#include <doctest/doctest.h>


#include "tensor/file.h"
#include "tensor/random.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
using Pieces = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

namespace {

TokenCounts counts_of(const Pieces& tokens) {
  TokenCounts counts;
  count_tokens(counts, tokens);
  return counts;
}

const std::string head = "heed-vocabulary 1\n<pad>\n<unk>\n<s>\n</s>\n";

}  // namespace

TEST_CASE("vocabulary: built by falling count, then by bytes") {
  const TokenCounts counts = counts_of({"b", "a", "é", "c", "b", "z", "c", "b", "Z", "</s>", "<pad>", "</s>"});
  const Vocabulary v = build_vocabulary(counts);
  CHECK(v.pieces() == Pieces{"<pad>", "<unk>", "<s>", "</s>", "b", "c", "Z", "a", "z", "é"});
  CHECK((v.pad == 0 && v.unk == 1 && v.bos == 2 && v.eos == 3));
  CHECK(build_vocabulary(counts, {.min_count = 2}).pieces() == Pieces{"<pad>", "<unk>", "<s>", "</s>", "b", "c"});
  CHECK(build_vocabulary(counts, {.max_size = 7}).pieces() == Pieces{"<pad>", "<unk>", "<s>", "</s>", "b", "c", "Z"});
  CHECK(build_vocabulary({}).size() == 4);
  CHECK(build_vocabulary(counts_of({std::string(1025, 'x'), "y"})).size() == 5);          // too long for a piece: unk
  CHECK(message_of([&] { build_vocabulary(counts, {.min_count = 0}); }) ==
        "vocabulary: min_count must be at least 1: 0");
  CHECK(message_of([&] { build_vocabulary(counts, {.max_size = 4}); }) ==
        "vocabulary: max_size must be 0 or more than the 4 special pieces: 4");
}

TEST_CASE("vocabulary: ids and back") {
  const Vocabulary v = build_vocabulary(counts_of({"the", "cat", "the"}));
  CHECK(v.ids(Pieces{"the", "dog", "cat"}) == Ids{4, 1, 5});
  CHECK(v.ids(Pieces{"</s>", "<pad>", "<s>", "<unk>"}) == Ids{1, 1, 1, 1});               // text cannot end a sentence
  CHECK(v.tokens(Ids{2, 4, 0, 1, 5, 3, 4, 4}) == Pieces{"the", "<unk>", "cat"});
  CHECK(v.tokens(Ids{}) == Pieces{});
  CHECK(v.piece(5) == "cat");
  CHECK(message_of<IndexError>([&] { v.piece(6); }) == "vocabulary: id 6 is not in [0, 6)");
  CHECK(message_of<IndexError>([&] { v.tokens(Ids{4, -1}); }) == "vocabulary: id -1 is not in [0, 6)");
}

TEST_CASE("vocabulary: special pieces may stand anywhere") {
  const Vocabulary v(Pieces{"a", "</s>", "b", "<pad>", "<s>", "<unk>"});
  CHECK((v.pad == 3 && v.unk == 5 && v.bos == 4 && v.eos == 1));
  CHECK(v.ids(Pieces{"b", "c"}) == Ids{2, 5});
}

TEST_CASE("vocabulary: saved and loaded, any piece, same bytes") {
  TemporaryFolder folder;
  const std::string path = folder / "source.vocabulary";
  const Vocabulary v = build_vocabulary(counts_of(
      {"the", " ", "\t", "\\", "\\n", "\r", "a\nb", "é", "#", "\u00A0", "\u2028", "x\r", "a b", "heed-vocabulary 1"}));
  save_vocabulary(path, v);
  const Vocabulary w = load_vocabulary(path);
  CHECK(w == v);
  CHECK(w.id("a\nb") == v.id("a\nb"));
  const std::string bytes = read_file(path);
  save_vocabulary(path, w);
  CHECK(read_file(path) == bytes);
  save_vocabulary(path, build_vocabulary(counts_of({"the", " "})));
  CHECK(read_file(path) == head + "\\s\nthe\n");
  write_file_atomically(path, head + "the");                                              // no newline at the end
  CHECK(load_vocabulary(path).id("the") == 4);
}

TEST_CASE("vocabulary: bad files") {
  TemporaryFolder folder;
  const std::string path = folder / "v", long_piece(1025, 'x');
  std::string many = head;
  for (int i = 0; i < 1000000; ++i) many += std::to_string(i) + "\n";
  const struct { std::string bytes, error;
  } rows[] = {{"", "empty file"},
              {"<pad>\n<unk>\n", "line 1: not a vocabulary of this version: expected \"heed-vocabulary 1\", found \"<pad>\""},
              {"heed-vocabulary 2\n",
               "line 1: not a vocabulary of this version: expected \"heed-vocabulary 1\", found \"heed-vocabulary 2\""},
              {"heed-vocabulary 1\n<pad>\n<unk>\n</s>\n", "special piece <s> is missing"},
              {"heed-vocabulary 1\n", "special piece <pad> is missing"},
              {head + "the\ncat\nthe\n", "line 8: piece stands in line 6 already: \"the\""},
              {head + "the\n\ncat\n", "line 7: empty piece: \"\""},
              {head + std::string("a\0b\n", 4), "line 6: piece contains a NUL: \"a\\u0000b\""},
              {head + "a\xff\n", "line 6: piece is not UTF-8: \"a\\xff\""},
              {head + long_piece + "\n", "line 6: piece longer than 1024 bytes: \"" + std::string(80, 'x') + "...\""},
              {head + "a\\b\n", "line 6: a backslash is followed by s, t, r, n or a backslash: \"a\\\\b\""},
              {head + "a\\\n", "line 6: a backslash is followed by s, t, r, n or a backslash: \"a\\\\\""},
              {many, "line 1000002: more than 1000000 pieces"}};
  for (const auto& row : rows) {
    write_file_atomically(path, row.bytes);
    CHECK(message_of<FileError>([&] { load_vocabulary(path); }) == path + ": " + row.error);
  }
  CHECK(message_of<FileError>([&] { load_vocabulary(folder / "none"); }) == folder / "none: cannot open: No such file or directory");
}

TEST_CASE("vocabulary: any bytes are loaded or refused with a FileError") {
  TemporaryFolder folder;
  const std::string path = folder / "v", good = head + "the\n\\s\ncat\n\\\\\né\n";
  Random random(Key(Seed{32}));
  int loaded = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (Index n = random.below(2); n >= 0; --n) {
      const auto at = std::size_t(random.below(Index(bytes.size())));
      const Index kind = random.below(3);
      if (kind == 0) bytes[at] = char(random.next_u32());
      if (kind == 1) bytes.erase(at, 1 + std::size_t(random.below(5)));
      if (kind == 2) bytes.insert(at, 1, "\n\\\0s<"[random.below(5)]);
      if (bytes.empty()) bytes = "\n";
    }
    folder.write("v", bytes);
    try {
      const Vocabulary v = load_vocabulary(path);
      if (v.size() < 4 || v.piece(v.eos) != "</s>") FAIL_CHECK(bytes);
      ++loaded;
    } catch (const FileError& e) {
      if (!std::string(e.what()).starts_with(path + ": ")) FAIL_CHECK(e.what());
      ++refused;
    }
  }
  CHECK(loaded > 100);
  CHECK(refused > 300);
}
