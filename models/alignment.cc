// SPDX-License-Identifier: Apache-2.0
#include "models/alignment.h"

#include <algorithm>
#include <charconv>

#include "tensor/format.h"

namespace heed {

std::vector<Link> parse_links(std::string_view text, char mark) {
  std::vector<Link> links;
  for (std::size_t at = text.find_first_not_of(' '); at != text.npos; at = text.find_first_not_of(' ', at)) {
    const std::string_view pair = text.substr(at, std::min(text.find(' ', at), text.size()) - at);
    const char* const end = pair.data() + pair.size();
    Link link{-1, -1};
    const auto source = std::from_chars(pair.data(), end, link.source);
    const bool marked = source.ec == std::errc() && source.ptr != end && *source.ptr == mark;
    const auto target = marked ? std::from_chars(source.ptr + 1, end, link.target) : source;
    check<Error>(marked && target.ec == std::errc() && target.ptr == end && link.source >= 0 && link.target >= 0,
                 "alignment: a link is written i{}j, source and target word counted from 0: {}", mark, quote(pair));
    links.push_back(link);
    at += pair.size();
  }
  return links;
}

std::string to_string(std::span<const Link> links, char mark) {
  std::string text;
  for (const Link& link : links) text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", link.source, mark, link.target);
  return text;
}

}  // namespace heed
