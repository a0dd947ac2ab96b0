// SPDX-License-Identifier: Apache-2.0
#include "tensor/json.h"

#include <vector>

#include "tensor/dtype.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace heed {

namespace {

constexpr std::size_t kLevels = 100;
constexpr Index kKeys = 10000;

bool is_small(std::string_view text) {
  std::vector<Index> keys;                       // of each open bracket
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    else if (quoted) i += c == '\\';
    else if (c == '{' || c == '[') keys.push_back(0);
    else if ((c == '}' || c == ']') && !keys.empty()) keys.pop_back();
    else if (c == ':' && !keys.empty() && ++keys.back() > kKeys) return false;
    if (keys.size() > kLevels) return false;
  }
  return true;
}

}  // namespace

Json parse_json(std::string_view text) { return is_small(text) ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded); }

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace heed
