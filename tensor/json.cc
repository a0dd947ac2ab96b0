// SPDX-License-Identifier: Apache-2.0
#include "tensor/json.h"

#include <set>
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

Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;       // of each open object
  bool once = true;
  const auto notice = [&](int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) once &= keys.back().insert(parsed.get_ref<const std::string&>()).second;
    return true;
  };
  const Json json = is_small(text) ? Json::parse(text, notice, false) : Json(Json::value_t::discarded);
  return once ? json : Json(Json::value_t::discarded);
}

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace heed
