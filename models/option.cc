// SPDX-License-Identifier: Apache-2.0
#include "models/option.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "models/text.h"
#include "tensor/format.h"
#include "tensor/json.h"

namespace heed {
namespace {

template <class T> bool holds(const Option& option) { return std::holds_alternative<T*>(option.value); }
template <class T> T& held(const Option& option) { return *std::get<T*>(option.value); }

bool is_whole(const Option& option) { return holds<Index>(option) || holds<std::optional<Index>>(option); }

std::string_view kind(const Option& option) {
  if (holds<bool>(option)) return "true or false";
  if (is_whole(option)) return "a whole number";
  if (holds<double>(option)) return "a number";
  return option.count > 1 ? "a list of names" : "a text";
}

std::string bound(const Option& option, double x) { return is_whole(option) ? fmt::format("{:.0f}", x) : fmt::format("{}", x); }

bool in_range(const Option& option, long double x) {
  return x >= option.low && (option.below ? x < option.high : x <= option.high) && std::isfinite(x);
}

// What is wrong with a value: nothing, or the name of the fault.
std::string_view fault(const Option& option, const Json& value) {
  const auto whole = [&] {
    return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t(INT64_MAX));
  };
  if (holds<bool>(option)) return value.is_boolean() ? "" : "wrong type";
  if (is_whole(option)) {
    if (value.is_null() && holds<std::optional<Index>>(option)) return "";
    if (value.is_number() && !whole())
      return value.is_number_integer() || std::abs(value.get<double>()) >= 0x1p63 ? "out of range" : "not a whole number";
    return !whole() ? "wrong type" : in_range(option, static_cast<long double>(value.get<Index>())) ? "" : "out of range";
  }
  if (holds<double>(option)) return !value.is_number() ? "wrong type" : in_range(option, value.get<double>()) ? "" : "out of range";
  if (holds<std::vector<std::string>>(option)) {
    if (!value.is_array() || !std::ranges::all_of(value, [](const Json& item) { return item.is_string(); })) return "wrong type";
    return value.empty() || value.size() == option.count ? "" : "wrong number of values";
  }
  if (!value.is_string()) return "wrong type";
  return option.choices.empty() || std::ranges::find(option.choices, value.get_ref<const std::string&>()) != option.choices.end()
             ? ""
             : "unknown name";
}

void assign(const Option& option, const Json& value) {
  std::visit([&]<class T>(T* to) {
    if constexpr (std::is_same_v<T, std::optional<Index>>) *to = value.is_null() ? std::nullopt : std::optional(value.get<Index>());
    else *to = value.get<T>();
  }, option.value);
}

Json json_value(const Option& option) {
  return std::visit([]<class T>(const T* from) -> Json {
    if constexpr (std::is_same_v<T, std::optional<Index>>) return *from ? Json(**from) : Json(nullptr);
    else return Json(*from);
  }, option.value);
}

// A word of the command line as the option's type has it; what does not read as that stays a text, and is of the wrong type.
Json parse(const Option& option, const std::string& word) {
  const char *begin = word.data(), *end = begin + word.size();
  if (holds<bool>(option)) return word == "true" ? Json(true) : word == "false" ? Json(false) : Json(word);
  if (Index n; is_whole(option)) {
    const auto result = std::from_chars(begin, end, n);
    if (result.ptr == end && result.ec == std::errc()) return n;
    if (result.ptr == end && result.ec == std::errc::result_out_of_range) return word[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  }
  if (double x; is_whole(option) || holds<double>(option)) {
    const auto result = std::from_chars(begin, end, x);
    if (result.ptr == end && result.ec == std::errc()) return x;
    if (result.ptr == end && result.ec == std::errc::result_out_of_range) {
      const Json rounded = Json::parse(word, nullptr, false);                                 // 1e-400 is 0, 1e400 none
      return rounded.is_number() ? rounded : Json(HUGE_VAL);
    }
  }
  return word;
}

std::string shown(const std::string& text) { return text.size() <= 80 ? text : text.substr(0, 77) + "..."; }

const Option* find(std::span<const Option> options, std::string_view name) {
  const auto at = std::ranges::find(options, name, &Option::name);
  return at == options.end() ? nullptr : &*at;
}

// Characters of a text that count the lines they have passed; copies share the count.
class Counted {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  Counted(const char* at, Index* lines) : at_(at), lines_(lines) {}
  reference operator*() const { return *at_; }
  Counted& operator++() {
    *lines_ += *at_++ == '\n';
    return *this;
  }
  Counted operator++(int) {
    Counted old = *this;
    ++*this;
    return old;
  }
  friend bool operator!=(const Counted& a, const Counted& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  Index* lines_;
};

// Takes one object with values that are no objects, each key once.
struct Reader : nlohmann::json_sax<Json> {
  struct Entry {
    std::string key;
    Index line;
    Json value;
    std::string number{};                          // as written, where it is beyond double
  };
  Reader(const std::string& file, std::string_view text, const Index& line) : file_(file), text_(text), line_(line) {}
  std::vector<Entry> entries;

  bool null() override { return take(nullptr); }
  bool boolean(bool x) override { return take(x); }
  bool number_integer(number_integer_t x) override { return take(x); }
  bool number_unsigned(number_unsigned_t x) override { return take(x); }
  bool number_float(number_float_t x, const string_t&) override { return take(x); }
  bool string(string_t& x) override { return take(x); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (++depth_ > 1) wrong("a value is an object");
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 1 || in_list_) wrong("a list in a list, or without a key");
    in_list_ = true;
    entries.back().value = Json::array();
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool key(string_t& key) override {
    for (const Entry& entry : entries)
      if (entry.key == key)
        fail<FileError>("{}: repeated key: {} at line {}; it stands at line {} already", file_, quote(key), line_, entry.line);
    entries.push_back({key, line_, {}});
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) override {
    constexpr int kOverflow = 406;                 // of nlohmann's exceptions
    const Index line = 1 + std::ranges::count(text_.substr(0, position), '\n');             // the reader is ahead of it
    if (error.id != kOverflow || depth_ != 1) wrong("no JSON", line);
    take(HUGE_VAL);                                // wrong for every option: nothing behind it matters
    entries.back().number = token;
    return false;
  }

 private:
  bool take(Json value) {
    if (depth_ != 1) wrong("not an object");
    if (in_list_) entries.back().value.push_back(std::move(value));
    else entries.back().value = std::move(value);
    return true;
  }
  [[noreturn]] void wrong(std::string_view what) const { wrong(what, line_); }
  [[noreturn]] void wrong(std::string_view what, Index line) const {
    fail<FileError>("{}: {}: line {}; one object of keys and values is expected", file_, what, line);
  }

  const std::string& file_;
  std::string_view text_;
  const Index& line_;
  int depth_ = 0;
  bool in_list_ = false;
};

}  // namespace

bool is_absent(const Option& option) {
  return std::visit([]<class T>(const T* value) {
    if constexpr (std::is_same_v<T, std::optional<Index>>) return !value->has_value();
    else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>) return value->empty();
    else return false;
  }, option.value);
}

std::string value_text(const Option& option) {
  if (is_absent(option)) return "none";
  if (holds<std::vector<std::string>>(option)) return fmt::format("{}", fmt::join(held<std::vector<std::string>>(option), " "));
  if (holds<std::string>(option)) return held<std::string>(option);
  if (holds<double>(option)) return fmt::format("{}", held<double>(option));
  return json_text(json_value(option));
}

std::vector<std::string> value_words(const Option& option) {
  if (holds<std::vector<std::string>>(option)) return held<std::vector<std::string>>(option);
  return is_absent(option) ? std::vector<std::string>() : std::vector<std::string>{value_text(option)};
}

void copy_value(const Option& from, const Option& to) {
  std::visit([&]<class T>(T* value) { *value = held<T>(from); }, to.value);
}

std::string allowed(const Option& option) {
  std::string text(kind(option));
  const bool low = std::isfinite(option.low), high = std::isfinite(option.high);
  if (low && high) text += fmt::format(" in [{}, {}{}", bound(option, option.low), bound(option, option.high), option.below ? ")" : "]");
  else if (low) text += fmt::format(", at least {}", bound(option, option.low));
  if (!option.choices.empty()) text = fmt::format("one of {}", fmt::join(option.choices, ", "));
  else if (holds<std::string>(option) && !option.takes.empty()) text = option.takes;
  if (option.count > 1) text = fmt::format("{} names", option.count);
  if (!option.standard.empty()) text += fmt::format(", default {}", option.standard);
  return text;
}

void set(const Option& option, std::span<const std::string> words) {
  Json value;
  if (holds<std::vector<std::string>>(option)) value = std::vector<std::string>(words.begin(), words.end());
  else if (holds<bool>(option) && words.empty()) value = true;
  else if (words.size() == 1) value = parse(option, words[0]);
  else fail<Error>("wrong number of values: --{} takes 1, given {}; {}", option.name, words.size(), allowed(option));
  const std::string_view wrong = value.is_null() ? "wrong type" : fault(option, value);
  if (wrong.empty()) return assign(option, value);
  std::string given;
  for (const std::string& word : words)
    given += fmt::format("{}{}", holds<bool>(option) ? '=' : ' ',
                         word.empty() || word.find_first_of(" \t\n\r\"") != word.npos || word.size() > 80 ? quote(word) : word);
  fail<Error>("{}: --{}{}; {}{}", wrong, option.name, given, words.size() == 1 ? did_you_mean(words[0], option.choices) : "",
              allowed(option));
}

std::string to_json(std::span<const Option> options) {
  Json json = Json::object();
  for (const Option& option : options) json[std::string(option.name)] = json_value(option);
  return json_text(json, 2) + "\n";
}

std::vector<std::string> from_json(std::span<const Option> options, std::string_view json, const std::string& file, bool all_keys) {
  Index line = 1;
  Reader reader(file, json, line);
  Json::sax_parse(Counted(json.data(), &line), Counted(json.data() + json.size(), &line), &reader);
  std::vector<std::string_view> known;
  for (const Option& option : options) known.push_back(option.name);
  for (const auto& [key, at, value, number] : reader.entries) {
    const Option* option = find(options, key);
    if (!option) {
      const std::string_view near = nearest(key, known);
      fail<FileError>("{}: unknown key {} at line {}; {}", file, quote(key), at,
                      near.empty() ? fmt::format("known are {}", fmt::join(known, ", ")) : fmt::format("did you mean \"{}\"?", near));
    }
    if (const std::string_view wrong = fault(*option, value); !wrong.empty())
      fail<FileError>("{}: {}: \"{}\" at line {} is {}; {}", file, wrong, key, at,
                      shown(number.empty() ? value.dump(-1, ' ', true, Json::error_handler_t::replace) : number), allowed(*option));
  }
  std::vector<std::string> names;
  for (const Reader::Entry& entry : reader.entries) names.push_back(entry.key);
  if (all_keys)
    for (const Option& option : options)
      check<FileError>(option.later || std::ranges::find(names, option.name) != names.end(), "{}: missing key: \"{}\"; {}", file,
                       option.name, allowed(option));
  for (const Reader::Entry& entry : reader.entries) assign(*find(options, entry.key), entry.value);
  return names;
}

namespace {

// Lower case, dashes for underscores.
std::string plain(std::string_view word) {
  std::string text(word);
  for (char& c : text) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? char(c + 'a' - 'A') : c;
  return text;
}

// lr of learning-rate.
std::string initials(std::string_view word) {
  std::string letters;
  for (std::size_t i = 0; i < word.size(); ++i)
    if (i == 0 || word[i - 1] == '-') letters += word[i];
  return letters;
}

}  // namespace

std::string_view nearest(std::string_view given, std::span<const std::string_view> known) {
  const std::string name = plain(given);
  for (const std::string_view word : known)
    if (plain(word) == name) return word;
  std::string_view best;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const std::string_view word : known) {
    if (!name.empty() && word.starts_with(name)) return word;
    const std::size_t longer = std::max(name.size(), word.size());
    if (2 * (longer - std::min(name.size(), word.size())) >= longer) continue;     // at least so many changes
    // d_ij = changes from the first i letters of name to the first j of word: one row at a time (Wagner and Fischer 1974); neighbours that
    // changed places are one change
    std::vector<std::size_t> before, row(word.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::vector<std::size_t> next{i};
      for (std::size_t j = 1; j <= word.size(); ++j) {
        next.push_back(std::min({row[j - 1] + (name[i - 1] != word[j - 1]), row[j] + 1, next[j - 1] + 1}));
        if (i > 1 && j > 1 && name[i - 1] == word[j - 2] && name[i - 2] == word[j - 1]) next[j] = std::min(next[j], before[j - 2] + 1);
      }
      before = std::exchange(row, std::move(next));
    }
    if (row.back() < fewest && 2 * row.back() < longer) best = word, fewest = row.back();
  }
  if (!best.empty()) return best;
  for (const std::string_view word : known)
    if (name.size() > 1 && initials(word) == name) return word;
  for (const std::string_view word : known)
    if (word.size() > best.size() && name.starts_with(fmt::format("{}-", word))) best = word;
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known, std::string_view before) {
  const std::string_view near = nearest(name, known);
  return near.empty() ? "" : fmt::format("did you mean {}{}? ", before, near);
}

}  // namespace heed
