// SPDX-License-Identifier: Apache-2.0
#include "tensor/json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace heed {

Json parse_json(std::string_view text) { return Json::parse(text, nullptr, false); }

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace heed
