// SPDX-License-Identifier: Apache-2.0
#include "models/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>

#include "models/bpe.h"
#include "models/text.h"
#include "tensor/format.h"
#include "tensor/json.h"

namespace heed {

struct Tokenizer::Rule {
  virtual ~Rule() = default;
  virtual std::vector<std::string> tokens(std::string_view line) const = 0;
  virtual std::string text(std::span<const std::string> tokens) const = 0;
  virtual const std::string& model() const {
    static const std::string none;
    return none;
  }
  virtual std::vector<std::string> pieces() const { return {}; }
};

namespace {

std::string concatenated(std::span<const std::string> tokens, std::string_view between) {
  std::string text;
  for (const std::string& token : tokens) (text += &token == tokens.data() ? std::string_view() : between) += token;
  return text;
}

struct Space : Tokenizer::Rule {
  std::vector<std::string> tokens(std::string_view line) const override {
    std::vector<std::string> out;
    bool inside = false;
    for (std::size_t i = 0; i < line.size();) {
      const Character c = character_at(line, i);
      const bool space = is_space(c.code);
      if (!space && !inside) out.emplace_back();
      if (!space) append(out.back(), c.code);
      inside = !space;
      i += c.size;
    }
    return out;
  }
  std::string text(std::span<const std::string> tokens) const override { return concatenated(tokens, " "); }
};

struct Char : Tokenizer::Rule {
  std::vector<std::string> tokens(std::string_view line) const override { return characters(line); }
  std::string text(std::span<const std::string> tokens) const override { return concatenated(tokens, ""); }
};

struct Subwords : Tokenizer::Rule {
  Subwords(std::string_view model, const std::string& file) : bpe(model, file) {}
  std::vector<std::string> tokens(std::string_view line) const override { return bpe.tokens(line); }
  std::string text(std::span<const std::string> tokens) const override { return bpe.text(tokens); }
  const std::string& model() const override { return bpe.model(); }
  std::vector<std::string> pieces() const override { return bpe.pieces(); }
  Bpe bpe;
};

bool is_joiner(char32_t code) { return code == 0x200C || code == 0x200D; }            // zero-width non-joiner, joiner

// Words and marks of a cleaned line, and whether a space stood before each. What looks like one character is one: letters with accents,
// flags, emoji with a tone of skin (grapheme clusters, UAX 29).
struct Split { std::vector<std::string> tokens; std::vector<bool> spaced; };
Split split_words(std::string_view line) {
  Split out;
  bool in_word = false, space = false, joined = false;
  char32_t before = 0;
  std::int32_t cluster = 0;
  for (std::size_t i = 0; i < line.size();) {
    const Character c = character_at(line, i);
    i += c.size;
    if (is_space(c.code)) {
      in_word = joined = false, space = true, before = c.code, cluster = 0;
      continue;
    }
    const bool word = is_word(c.code), joiner = is_joiner(c.code), one = continues_cluster(before, c.code, cluster);
    const bool joins = !out.tokens.empty() && !space && ((word && in_word) || is_mark(c.code) || one || joiner || joined);
    if (!joins) out.tokens.emplace_back(), out.spaced.push_back(space);
    in_word = word || (joins && in_word);
    append(out.tokens.back(), c.code);
    space = false, joined = joiner, before = c.code;
  }
  return out;
}

bool begins_word(std::string_view token) { return !token.empty() && is_word(character_at(token, 0).code); }
bool begins_digit(std::string_view token) { return !token.empty() && token[0] >= '0' && token[0] <= '9'; }
bool separates_digits(std::string_view token) { return token == "." || token == "," || token == ":"; }
bool is_initial(std::string_view token) {
  return begins_word(token) && character_at(token, 0).size == token.size() && !begins_digit(token);
}

struct Word : Tokenizer::Rule {
  explicit Word(const TokenizerOptions& options)
      : no_space_before(characters(options.no_space_before)), no_space_after(characters(options.no_space_after)) {}

  std::vector<std::string> tokens(std::string_view line) const override { return split_words(clean(line)).tokens; }

  std::string text(std::span<const std::string> tokens) const override {
    std::string out;
    bool open = false;                                               // inside straight quotes
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && space_between(tokens, i, open)) out += ' ';
      if (tokens[i] == "\"") open = !open;
      out += tokens[i];
    }
    return out;
  }

  bool space_between(std::span<const std::string> tokens, std::size_t i, bool open) const {
    const std::string &left = tokens[i - 1], &right = tokens[i];
    if (left == "\"" && open) return false;
    if (right == "\"") return !open && std::ranges::find(no_space_after, left) == no_space_after.end();
    const auto digit = [&](std::size_t at) { return at < tokens.size() && begins_digit(tokens[at]); };  // 3.14  1,000  10:30
    if (separates_digits(left) && digit(i - 2) && digit(i)) return false;
    if (separates_digits(right) && digit(i - 1) && digit(i + 1)) return false;
    const auto initial = [&](std::size_t at) { return at < tokens.size() && is_initial(tokens[at]); };               // F.B.I.
    if (left == "." && initial(i - 2) && initial(i) && i + 1 < tokens.size() && tokens[i + 1] == ".") return false;
    return std::ranges::find(no_space_before, right) == no_space_before.end() &&
           std::ranges::find(no_space_after, left) == no_space_after.end();
  }

  std::vector<std::string> no_space_before, no_space_after;
};

// The text's majority on whether a space parts a mark from what stands beside it; a mark seen less than five times keeps its
// default.
void learn_spacing(TokenizerOptions& options, std::span<const std::string> lines) {
  std::array<std::map<std::string, Index>, 2> balance, seen;  // [before, after]: with a space minus without, both together
  for (const std::string& line : lines) {
    const Split split = split_words(clean(line));
    for (std::size_t i = 1; i < split.tokens.size(); ++i) {
      const std::string &left = split.tokens[i - 1], &right = split.tokens[i];
      if (left == "\"" || right == "\"" || left == right) continue;
      const Index vote = split.spaced[i] ? 1 : -1;
      if (!begins_word(right)) balance[0][right] += vote, ++seen[0][right];
      if (!begins_word(left)) balance[1][left] += vote, ++seen[1][left];
    }
  }
  std::string* const lists[] = {&options.no_space_before, &options.no_space_after};
  for (std::size_t side = 0; side < 2; ++side) {
    std::vector<std::string> marks = characters(*lists[side]);
    for (const auto& [mark, votes] : balance[side]) {
      if (seen[side][mark] < 5 || votes == 0 || mark == "\"" || characters(mark).size() != 1) continue;
      const auto place = std::ranges::find(marks, mark);
      if (votes < 0 && place == marks.end()) marks.push_back(mark);
      if (votes > 0 && place != marks.end()) marks.erase(place);
    }
    *lists[side] = concatenated(marks, "");
  }
}

using RulePointer = std::shared_ptr<const Tokenizer::Rule>;
using Maker = RulePointer (*)(const TokenizerOptions&, std::string_view model, const std::string& file);
constexpr struct { std::string_view name, noun; Maker make; } kRules[] = {
    {"space", "word", [](const auto&, auto, const auto&) -> RulePointer { return std::make_shared<Space>(); }},
    {"word", "word", [](const auto& options, auto, const auto&) -> RulePointer { return std::make_shared<Word>(options); }},
    {"char", "character", [](const auto&, auto, const auto&) -> RulePointer { return std::make_shared<Char>(); }},
    {"bpe", "piece", [](const auto&, auto model, const auto& file) -> RulePointer { return std::make_shared<Subwords>(model, file); }},
};

const auto& rule_named(std::string_view name) {
  for (const auto& rule : kRules) if (name == rule.name) return rule;
  fail<Error>("tokenizer: unknown name: {}; there are {}", quote(name), fmt::join(tokenizer_names(), ", "));
}

// The line as a rule reads it.
std::string prepared(const TokenizerOptions& options, std::string_view line) {
  const std::string text = options.clean ? clean(line) : std::string(line);
  return options.lowercase ? nfc(lower(text)) : text;   // in this order: J with a caron is two characters, j with one is one
}

}  // namespace

std::string_view TokenizerOptions::noun() const { return rule_named(name).noun; }

Tokenizer::Tokenizer(TokenizerOptions options, std::string_view model, const std::string& file)
    : options_(std::move(options)), rule_(rule_named(options_.name).make(options_, model, file)) {}

std::vector<std::string> Tokenizer::tokens(std::string_view line) const { return rule_->tokens(prepared(options_, line)); }

std::string Tokenizer::text(std::span<const std::string> tokens) const { return rule_->text(tokens); }
const std::string& Tokenizer::model() const { return rule_->model(); }
std::vector<std::string> Tokenizer::pieces() const { return rule_->pieces(); }

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const auto& rule : kRules) if (rule.name != "bpe" || has_sentencepiece()) names.emplace_back(rule.name);
  return names;
}

Tokenizer train_tokenizer(TokenizerOptions options, std::span<const std::string> lines, Index vocabulary_size) {
  if (options.name == "word") learn_spacing(options, lines);
  if (options.name != "bpe") return Tokenizer(std::move(options));
  std::vector<std::string> text;
  for (const std::string& line : lines) text.push_back(prepared(options, line));
  const Bpe bpe = train_bpe(text, vocabulary_size);
  return Tokenizer(std::move(options), bpe.model());
}

std::string to_json(const TokenizerOptions& options) {
  Json json{{"name", options.name}, {"lowercase", options.lowercase}, {"clean", options.clean}};
  if (options.name == "word")
    json["no_space_before"] = options.no_space_before, json["no_space_after"] = options.no_space_after;
  return json_text(json);
}

namespace {

// Of a list only what it is: the text of one within another, and so on, takes a call a level.
std::string shown(const Json& value) {
  return value.is_string() ? quote(value.get<std::string>()) : value.is_structured() ? value.type_name() : json_text(value);
}

}  // namespace

TokenizerOptions tokenizer_options_from_json(std::string_view text) {
  TokenizerOptions options;
  const auto json = parse_json(text);
  check<Error>(json.is_object(), "tokenizer: options are no JSON object: {}", quote(text));
  for (const auto& [key, value] : json.items()) {
    std::string* const string = key == "name" ? &options.name : key == "no_space_before" ? &options.no_space_before
                              : key == "no_space_after" ? &options.no_space_after : nullptr;
    bool* const flag = key == "lowercase" ? &options.lowercase : key == "clean" ? &options.clean : nullptr;
    check<Error>(string || flag,
                 "tokenizer: unknown key: {}; there are name, lowercase, clean, no_space_before, no_space_after", quote(key));
    check<Error>(string ? value.is_string() : value.is_boolean(), "tokenizer: {} must be {}: {}", key,
                 string ? "a string" : "true or false", shown(value));
    if (string) *string = value.get<std::string>(); else *flag = value.get<bool>();
  }
  check<Error>(json.contains("name"), "tokenizer: no key \"name\": {}", quote(text));
  rule_named(options.name);
  return options;
}

}  // namespace heed
