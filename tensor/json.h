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

// The value a text stands for; is_discarded() where it is no JSON.
Json parse_json(std::string_view text);

// On one line, or with so many spaces a level; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const Json& json, int indent = -1);

}  // namespace heed
