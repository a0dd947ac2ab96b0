// SPDX-License-Identifier: Apache-2.0
// Named options in one table, from which come flags, JSON files, help texts and what an error says.
#pragma once
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

// Where a value is kept. A bool is a switch; an optional that is empty is null in JSON; a list holds `count` values or none.
using OptionValue = std::variant<bool*, Index*, std::optional<Index>*, double*, std::string*, std::vector<std::string>*>;

struct Option {
  std::string_view name;                                  // key in JSON, flag with dashes in front
  OptionValue value;
  std::string_view takes{}, help{};                       // "N", "hidden units of the feed-forward layers"
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool below = false;                                     // high itself is not allowed
  std::vector<std::string_view> choices{};
  bool later = false;                                     // files from before it lack it, and mean its default
  std::size_t count = 1;                                  // of a list
  std::string standard{};                                 // the default, as text
  std::string_view heading{};                             // of the group in the help text that begins here
};

bool is_absent(const Option& option);                     // an optional, text or list that is empty
std::string value_text(const Option& option);             // "0.1", "post", "A B"; "none" for what is absent
std::vector<std::string> value_words(const Option& option);   // from which set makes it; none for what is absent
std::string allowed(const Option& option);                // "a whole number in [1, 1024], default 2"

// *to becomes what *from is; both of one type, as the same option of two configs.
void copy_value(const Option& from, const Option& to);

// From the words after a flag; a switch also takes none. Error `<what>: <where>; <what would be right>`, the value unchanged.
void set(const Option& option, std::span<const std::string> words);

// One object with every option, a key a line.
std::string to_json(std::span<const Option> options);
// Reads such an object. FileError, with line and key, on what is unknown (nearest known name), repeated, of the wrong type or out of
// range, and where all_keys on what is missing; then nothing has changed. Returns the names of the keys that were there.
std::vector<std::string> from_json(std::span<const Option> options, std::string_view json, const std::string& file, bool all_keys = true);

// The known name that is `name` but for case and underscores, else the first that begins with it, else the one that takes the fewest
// changes of letters to become it, less than half of all, else the one of these initials, else the longest that it goes beyond by a
// dash; empty where there is none.
std::string_view nearest(std::string_view name, std::span<const std::string_view> known);
// "did you mean heads? ", before the list of what there is; "" where nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known, std::string_view before = "");

}  // namespace heed
