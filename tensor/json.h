// SPDX-License-Identifier: Apache-2.0
// nlohmann-json as Heed uses it, for .cc files: objects keep the order of their keys.
#pragma once
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

// Instantiated once, in json.cc: every file with JSON would take a second longer to compile.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace heed {

using Json = nlohmann::ordered_json;

// The value a text stands for; is_discarded() where it is no JSON, where an object has a key twice, and where it nests more than 100 levels
// or an object has more than 10,000 keys: one that grows copies what it holds, level by level, and looks at all its keys for each new one.
Json parse_json(std::string_view text);

// On one line, or with so many spaces a level; bytes that are no UTF-8 become U+FFFD, numbers that are not finite null.
std::string json_text(const Json& json, int indent = -1);

}  // namespace heed
