// SPDX-License-Identifier: Apache-2.0
#include "models/tokenizer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "models/batch.h"
#include "models/bpe.h"
#include "models/text.h"
#include "tensor/random.h"
#include "tests/thrown.h"

using namespace heed;
using Tokens = std::vector<std::string>;

namespace {

std::string round_trip(const Tokenizer& tokenizer, const std::string& line) { return tokenizer.text(tokenizer.tokens(line)); }

const Tokens french = {
    "Où est-il ?",   "Quoi ! Tu viens ?", "Il dit : « Non ; jamais. »", "« Oui », dit-elle.",      "C'est l'été.",
    "Est-ce vrai ?", "« Ah ! »",          "Voici : un ; deux ; trois.", "Non : rien ; vraiment ?", "« Bon »",
    "Attends !",     "D'accord, viens !"};

// Random text of letters, accents, marks, spaces at every place, other alphabets, emoji.
Tokens random_lines(int count) {
  const Tokens alphabet = characters("aabcdeeéèçœßxyzAÉZ   .,;:!?'\"-«»()0123€—😀中文жѣ\u00A0\u0301\t_");
  Random random(Key(Seed{11}));
  Tokens lines;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (Index n = random.below(40); n > 0; --n) line += alphabet[std::size_t(random.below(Index(alphabet.size())))];
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("tokenizer: space") {
  const Tokenizer t;
  CHECK(t.tokens("  a  b\u00A0c\u202F?\td ") == Tokens{"a", "b", "c", "?", "d"});
  CHECK(t.tokens("").empty());
  CHECK(t.tokens(" \u00A0 ").empty());
  CHECK(t.tokens("A\xff") == Tokens{"A\uFFFD"});
  CHECK(t.text(Tokens{"a", "b", "?"}) == "a b ?");
  CHECK(t.text(Tokens{}) == "");
  CHECK(Tokenizer({.lowercase = true}).tokens("E\u0301TE\u0301 Là") == Tokens{"été", "là"});
}

// Expected tokens: python re.findall(r"\w+|[^\w\s]", s.lower()) on the cleaned line
TEST_CASE("tokenizer: word splits as Python's regular expression") {
  const Tokenizer t({.name = "word", .lowercase = true});
  const struct { std::string line; Tokens tokens; } rows[] = {
      {"Don't!", {"don", "'", "t", "!"}},
      {"L\u2019Été\u00A0: 3,5\u202F% d'hier...", {"l", "'", "été", ":", "3", ",", "5", "%", "d", "'", "hier", ".", ".", "."}},
      {"snake_case __x__ a1b2 x² ½ Ⅷ", {"snake_case", "__x__", "a1b2", "x²", "½", "ⅷ"}},
      {"«Non», dit-il—«jamais»", {"«", "non", "»", ",", "dit", "-", "il", "—", "«", "jamais", "»"}},
      {"Œuvre ŒUVRE Straße ΣΟΦΟΣ", {"œuvre", "œuvre", "straße", "σοφος"}},
      {"日本語 テスト 한국어 Ж", {"日本語", "テスト", "한국어", "ж"}},
      {"a\u00ADb c\u200Bd 5€ $5 😀😀", {"ab", "cd", "5", "€", "$", "5", "😀", "😀"}},
      {"e\u0301te\u0301", {"été"}},
      {"   ", {}}};
  for (const auto& row : rows) {
    CAPTURE(row.line);
    CHECK(t.tokens(row.line) == row.tokens);
  }
  CHECK(Tokenizer({.name = "word"}).tokens("Don't") == Tokens{"Don", "'", "t"});
  CHECK(t.tokens("q\u0307y हिन्दी") == Tokens{"q\u0307y", "हिन्दी"});      // differs: marks stay with their letter
}

TEST_CASE("tokenizer: word joins by rule, and learns the spacing of French") {
  const Tokenizer english({.name = "word"});
  for (const char* line : {"Don't worry, it's 10:30 (or 3.14, or 1,000,000)!", "She said \"hello\", then \"good-bye\".",
                           "Well? Yes; no: maybe...", "$5 is 20% of $25.", "The F.B.I. and the U.S.A. agreed.", "and/or",
                           "[a] {b}", "\"Why?\" he asked. \"Why not?\"", "", "one"}) {
    CHECK(round_trip(english, line) == line);
  }
  CHECK(round_trip(english, "Où est-il ?") == "Où est-il?");
  Tokens lines = french;
  lines.insert(lines.end(), french.begin(), french.end());
  const Tokenizer learned = train_tokenizer({.name = "word"}, lines);
  for (const std::string& line : french) CHECK(round_trip(learned, line) == line);
  for (const char* line : {"Qu'est-ce que c'est ?", "Il a dit : « Où ? »", "3,5 et 10:30."})
    CHECK(round_trip(learned, line) == line);
  const Tokenizer again(tokenizer_options_from_json(to_json(learned.options())));
  CHECK(again.options() == learned.options());
  CHECK(again.text(Tokens{"Quoi", "?"}) == "Quoi ?");
}

TEST_CASE("tokenizer: joiners join") {
  const Tokenizer t({.name = "word"});
  for (const char* line : {"\u0645\u06CC\u200C\u062E\u0648\u0627\u0647\u0645", "\U0001F469\u200D\U0001F469\u200D\U0001F467"}) {
    CHECK(t.tokens(line) == Tokens{line});
    CHECK(t.text(t.tokens(line)) == line);
  }
  CHECK(t.tokens("a \u200Db") == Tokens{"a", "\u200Db"});
}

TEST_CASE("tokenizer: a word's mark is all that looks like one character") {
  const Tokenizer t({.name = "word"});
  const std::string fr = "\U0001F1EB\U0001F1F7", de = "\U0001F1E9\U0001F1EA", thumb = "\U0001F44D\U0001F3FD";
  CHECK(t.tokens("ok" + thumb + fr + de + "!") == Tokens{"ok", thumb, fr, de, "!"});
  CHECK(t.tokens(fr + " " + thumb + thumb) == Tokens{fr, thumb, thumb});
  CHECK(t.tokens("\U0001F1EB \U0001F1F7") == Tokens{"\U0001F1EB", "\U0001F1F7"});
  CHECK(t.tokens("x\U0001F1EB " + fr + de + " " + fr) == Tokens{"x", "\U0001F1EB", fr, de, fr});   // half a flag before a space
  for (const std::string one : {"\u0600" "12", "\U0001F469\u200D" "ab"}) CHECK(t.tokens(one) == Tokens{one});
}

TEST_CASE("tokenizer: char and bpe undo themselves exactly") {
  std::vector<Tokenizer> tokenizers = {Tokenizer({.name = "char"})};
  const Tokens lines = random_lines(400);
  if (has_sentencepiece()) {
    const Tokens seen(lines.begin(), lines.begin() + 200);
    tokenizers.push_back(train_tokenizer({.name = "bpe"}, seen, 150));
    tokenizers.push_back(train_tokenizer({.name = "bpe"}, french, 60));          // most characters were never seen
  }
  for (const Tokenizer& t : tokenizers) {
    CAPTURE(t.options().name);
    for (const std::string& line : lines) CHECK(round_trip(t, line) == line);
    CHECK(round_trip(t, "") == "");
    CHECK(round_trip(t, "  two  spaces  ") == "  two  spaces  ");
    CHECK(round_trip(t, "e\u0301 is not é; <s> </s> <unk>") == "e\u0301 is not é; <s> </s> <unk>");
  }
  CHECK(tokenizers[0].tokens("né €") == Tokens{"n", "é", " ", "€"});
  const Tokenizer lowercase({.name = "char", .lowercase = true});
  CHECK(lowercase.tokens("NE\u0301") == Tokens{"n", "é"});
  CHECK(lowercase.tokens("J\u030C") == Tokens{"\u01F0"});                        // composed only where it is small
}

TEST_CASE("tokenizer: bpe learns merges, and its model is all it needs") {
  if (!has_sentencepiece()) return;
  Tokens lines(50, "the lowest of the low");
  const Tokenizer t = train_tokenizer({.name = "bpe"}, lines, 40);
  CHECK(t.tokens("the low") == Tokens{"▁the", "▁low"});
  CHECK(t.tokens("the q") == Tokens{"▁the", "▁", "q"});
  CHECK(train_tokenizer({.name = "bpe"}, lines, 40).model() == t.model());       // same text, same bytes
  const Tokenizer again(t.options(), t.model());
  CHECK(again.tokens("lowest of them") == t.tokens("lowest of them"));
  CHECK(again.model() == t.model());
  CHECK(train_tokenizer({.name = "bpe", .lowercase = true}, Tokens(50, "THE LOW"), 40).tokens("The Low") ==
        Tokens{"▁the", "▁low"});
  CHECK(message_of([&] { train_tokenizer({.name = "bpe"}, lines, 12); }) ==
        "bpe: vocabulary size 12: the text has 9 different characters; 13 or more");
  CHECK(train_tokenizer({.name = "bpe"}, lines, 13).pieces().size() == 9);       // no merge, four special pieces
  // a model trained with --treat_whitespace_as_suffix, field 24 of its trainer_spec, field 2: "low▁lower▁"
  const Tokenizer suffixed({.name = "bpe"}, t.model() + "\x12\x03\xc0\x01\x01");
  CHECK(suffixed.tokens("low lower").back().ends_with("▁"));
  CHECK(suffixed.text(suffixed.tokens("low lower")) == "low lower");
  const Tokenizer longest = train_tokenizer({.name = "bpe"},
                                            Tokens{[] {
                                                     std::string line;
                                                     while (line.size() < 6000) line += "ab cd ";
                                                     return line;
                                                   }(),
                                                   "xy z"},
                                            20);
  for (const char* character : {"a", "b", "c", "d", "x", "y", "z"}) CHECK(std::ranges::count(longest.pieces(), character) == 1);
  CHECK(message_of([&] { train_tokenizer({.name = "bpe"}, lines, 0); }) == "bpe: vocabulary size is not in [5, 1000000]: 0");
  CHECK(message_of([&] { train_tokenizer({.name = "bpe"}, {}, 100); }).starts_with("bpe: no text to learn from: 0 lines"));
}

TEST_CASE("tokenizer: bpe has a piece for every character of its text, alone or in what reads like a special piece, and cuts none off") {
  if (!has_sentencepiece()) return;
  for (const std::string odd : {"\t", "\u2585", "\t\u2585", "<s>", "</s>", "<unk>", "<pad>", "a,b", "\u0085", "\r", "\uE000", "\uFFFD"}) {
    CAPTURE(odd);
    Tokens lines(50, odd + "ab cd" + odd + odd + "e " + odd);
    const Side side = build_side(lines, {.name = "bpe"}, {.max_size = 40});
    CHECK(decode(side, encode(side, lines[0])) == lines[0]);
    for (const std::string& piece : side.tokenizer.pieces()) CHECK(side.vocabulary.id(piece) != side.vocabulary.unk);
    Tokens alone = characters(lines[0]);                                         // no merge
    std::ranges::sort(alone);
    const Index least = std::unique(alone.begin(), alone.end()) - alone.begin() + 4;
    CHECK(train_tokenizer({.name = "bpe"}, lines, least).pieces().size() == std::size_t(least - 4));
  }
}

TEST_CASE("tokenizer: cleaned text is read the same as text that was to be cleaned") {
  const std::string raw = " Je n\u2019ai\u00a0 pas\u200b de cafe\u0301 ", cleaned = "Je n'ai pas de café";
  for (const std::string& name : tokenizer_names()) {
    CAPTURE(name);
    const Tokenizer t = train_tokenizer({.name = name, .clean = true}, Tokens(20, cleaned), 40);
    CHECK(t.tokens(raw) == t.tokens(cleaned));
    CHECK(t.text(t.tokens(raw)) == cleaned);
    CHECK(train_tokenizer({.name = name, .clean = true}, Tokens(20, raw), 40).model() == t.model());
    const Tokenizer again(tokenizer_options_from_json(to_json(t.options())), t.model());
    CHECK(again.tokens(raw) == t.tokens(cleaned));
  }
}

TEST_CASE("tokenizer: names, options and their mistakes") {
  CHECK(message_of([] { Tokenizer({.name = "wrd"}); }) ==
        (has_sentencepiece() ? "tokenizer: unknown name: \"wrd\"; there are space, word, char, bpe"
                             : "tokenizer: unknown name: \"wrd\"; there are space, word, char"));
  for (const std::string& name : tokenizer_names()) {
    const TokenizerOptions options{.name = name, .lowercase = true};
    CHECK(tokenizer_options_from_json(to_json(options)) == options);
  }
  CHECK(to_json(TokenizerOptions{}) == R"({"name":"space","lowercase":false,"clean":false})");
  CHECK(message_of([] { tokenizer_options_from_json(R"({"nam": "word"})"); }) ==
        "tokenizer: unknown key: \"nam\"; there are name, lowercase, clean, no_space_before, no_space_after");
  CHECK(message_of([] { tokenizer_options_from_json(R"({"lowercase": "yes"})"); }) ==
        "tokenizer: lowercase must be true or false: \"yes\"");
  CHECK(message_of([] { tokenizer_options_from_json(R"({"name": 3})"); }) == "tokenizer: name must be a string: 3");
  // a key twice
  CHECK(message_of([] {
          tokenizer_options_from_json(R"({"name": "word", "clean": true, "name": "char"})");
        }).starts_with("tokenizer: options are no JSON object: "));
  for (const std::size_t levels : {99, 100, 400000}) {                  // those after the first of two keys would be copied, level by level
    const std::string deep =
        "{\"name\": " + std::string(levels, '[') + std::string(levels, ']') + ", \"clean\": false, \"lowercase\": true}";
    CHECK(message_of([&] {
            tokenizer_options_from_json(deep);
          }).starts_with(levels < 100 ? "tokenizer: name must be a string: array" : "tokenizer: options are no JSON object: "));
  }
  CHECK(message_of([] { tokenizer_options_from_json("{\"clean\": \"" + std::string(50000, 'x') + "\"}"); }) ==
        "tokenizer: clean must be true or false: \"" + std::string(80, 'x') + "...\"");
  CHECK(message_of([] { tokenizer_options_from_json("[1"); }) == "tokenizer: options are no JSON object: \"[1\"");
  CHECK(message_of([] { tokenizer_options_from_json(R"({"name": "x"})"); }).starts_with("tokenizer: unknown name: \"x\""));
}

namespace {

// A protobuf field: tag, length, content
std::string field(int number, const std::string& content) {
  std::string out(1, char(number << 3 | 2));
  std::size_t n = content.size();
  for (; n >= 0x80; n >>= 7) out += char(n | 0x80);
  return out + char(n) + content;
}

}  // namespace

TEST_CASE("bpe: a model from a stranger is scanned before the library sees it") {
  const std::string good = field(1, field(1, "a"));
  CHECK(scan_sentencepiece_model(good) == good);
  const auto error = [](const std::string& model) {
    return message_of<FileError>([&] { scan_sentencepiece_model(model, "m"); });
  };
  CHECK(error("") == "m: not a SentencePiece model: no pieces in 0 bytes");
  CHECK(error(good.substr(0, 3)) == "m: not a SentencePiece model: malformed at byte 2");
  CHECK(error(good + "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01") == "m: not a SentencePiece model: malformed at byte 16");
  CHECK(error(good + "\x0b") == "m: not a SentencePiece model: malformed at byte 5");          // group
  CHECK(error(good + std::string("\x02\x00", 2)) == "m: not a SentencePiece model: malformed at byte 5");      // field 0
  CHECK(error(good + std::string(20, '\xff')).starts_with("m: not a SentencePiece model: malformed at byte "));
  CHECK(error("hello, world") .starts_with("m: not a SentencePiece model: "));
  CHECK(error(good + field(1, field(1, ""))) == "m: piece 1 at byte 7 is empty");
  CHECK(error(good + field(1, field(1, std::string("x\0y", 3)))) == "m: piece 1 at byte 7 contains a NUL");
  CHECK(error(field(1, field(1, std::string(1025, 'x'))) + good) == "m: piece 0 at byte 3 has more than 1024 bytes");
  CHECK(error(field(1, field(1, std::string(100000, 'x')))).starts_with("m: piece 0 at byte "));
  CHECK(error(field(1, field(1, "\xff"))) == "m: piece 0 at byte 2 is not UTF-8");
  CHECK(error(field(1, "")) == "m: piece 0 at byte 2 has no text");
  CHECK(error(field(1, field(1, "a") + "\x0a\x05" "b")) == "m: not a SentencePiece model: malformed at byte 7");
  CHECK(error(std::string((64 << 20) + 1, 'x')) == "m: too large: 67108865 bytes, at most 67108864 allowed");
  std::string many;
  for (int i = 0; i <= 1000000; ++i) many += good;
  CHECK(error(many) == "m: piece 1000000 at byte 5000002 is one more than the million allowed");
  // an unknown normalisation table is taken out; everything else stays
  const std::string spec = field(1, "name"), table = field(2, std::string(3000, 'T'));
  CHECK(scan_sentencepiece_model(good + field(3, spec + table) + field(5, table) + field(2, "trainer")) ==
        good + field(3, spec) + field(5, "") + field(2, "trainer"));
}

TEST_CASE("bpe: what pieces spell is one line of text") {
  if (!has_sentencepiece()) return;
  const auto piece = [](const std::string& text, int type) { return field(1, field(1, text) + "\x18" + char(type)); };
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += piece(fmt::format("<0x{:02X}>", i), 6);
  const Tokenizer spelt({.name = "bpe"}, piece("<unk>", 2) + bytes + piece("x", 1) + field(2, "\x98\x02\x01"));       // byte_fallback
  CHECK(spelt.text(Tokens{"<0x61>", "<0x0A>", "<0x62>", "<0x00>", "<0xC3>"}) == "a b\uFFFD\uFFFD");
  // With treat_whitespace_as_suffix as well: the space behind a line goes, those within it stay.
  const Tokenizer suffixed({.name = "bpe"},
                           piece("<unk>", 2) + bytes + piece("x", 1) + piece("\u2581", 1) + field(2, "\x98\x02\x01\xc0\x01\x01"));
  CHECK(suffixed.tokens("x é").back() == "\u2581");
  CHECK(suffixed.text(suffixed.tokens("x é x")) == "x é x");
  const Tokenizer given({.name = "bpe"}, piece("<unk>", 2) + piece("a", 1) + piece("\n", 4));           // user-defined
  CHECK(given.text(Tokens{"a", "\n", "a"}) == "a a");
}

TEST_CASE("bpe: a damaged model is refused or works") {
  if (!has_sentencepiece()) {
    CHECK(message_of([] { Tokenizer({.name = "bpe"}); }) ==
          "tokenizer bpe: this build is without SentencePiece; install libsentencepiece-dev and build again");
    return;
  }
  CHECK(message_of<FileError>([] { Tokenizer({.name = "bpe"}); }) ==
        "sentencepiece model: not a SentencePiece model: no pieces in 0 bytes");
  CHECK(message_of<FileError>([] {
          Tokenizer({.name = "bpe"}, field(1, field(1, "a")), "run/source.model");
        }).starts_with("run/source.model: refused by the library: "));
  const std::string model = train_tokenizer({.name = "bpe"}, french, 60).model();
  Random random(Key(Seed{12}));
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = model;
    if (i % 3 == 0) damaged.resize(std::size_t(random.below(Index(model.size()))));
    else
      for (Index n = random.below(4); n >= 0; --n)
        damaged[std::size_t(random.below(Index(model.size())))] = char(random.next_u32());
    try {
      Tokenizer({.name = "bpe"}, damaged).tokens("Où est-il ?");
    } catch (const Error&) { ++refused; }
  }
  CHECK(refused > 100);
}

TEST_CASE("tokenizer: a spacing is learned of five places, and of none between two of a mark") {
  const auto joined = [](std::size_t count, const char* line, const char* mark) {
    return train_tokenizer({.name = "word"}, Tokens(count, line)).text(Tokens{"Non", mark});
  };
  CHECK(joined(4, "Non ;", ";") == "Non;");
  CHECK(joined(5, "Non ;", ";") == "Non ;");
  CHECK(joined(5, "Non !!", "!") == "Non !");
}
