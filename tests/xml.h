// SPDX-License-Identifier: Apache-2.0
// What stands in XML, and whether it is well-formed: elements, quoted attributes, the five entities and decimal references;
// no DTD, comments or CDATA.
#pragma once
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

inline std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++n;
  return n;
}
inline bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// "" if well-formed, else what is wrong and where.
inline std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  std::size_t at = 0;
  bool root = false;
  const auto fault = [&](std::string_view what) {
    return std::string(what) + " at byte " + std::to_string(at) + ": " + std::string(text.substr(at, 60));
  };
  const auto blanks = [&] { while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at; };
  const auto name = [&] {
    const std::size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '-' || text[at] == ':')) ++at;
    return std::string(text.substr(begin, at - begin));
  };
  const auto entity = [&] {   // at '&'
    const std::size_t end = text.find(';', at);
    if (end == std::string_view::npos) return false;
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (inside.size() > 1 && inside[0] == '#') return inside.find_first_not_of("0123456789", 1) == std::string_view::npos;
    return inside == "amp" || inside == "lt" || inside == "gt" || inside == "quot" || inside == "apos";
  };
  while (at < text.size()) {
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 && !std::isspace(c)) return fault("control character");
    if (c == '&') {
      if (!entity()) return fault("bad entity before");
    } else if (c != '<') {
      if (open.empty() && !std::isspace(c)) return fault("text outside of the root");
      if (c == '>') return fault("bare >");
      ++at;
    } else if (text.substr(at, 2) == "</") {
      at += 2;
      const std::string closed = name();
      blanks();
      if (open.empty() || open.back() != closed || text.substr(at, 1) != ">") return fault("unmatched end of " + closed);
      open.pop_back();
      ++at;
    } else {
      if (open.empty() && root) return fault("second root");
      root = true;
      ++at;
      open.push_back(name());
      if (open.back().empty()) return fault("no name");
      std::set<std::string> attributes;
      for (blanks(); at < text.size() && text[at] != '>' && text[at] != '/'; blanks()) {
        const std::string attribute = name();
        if (attribute.empty() || !attributes.insert(attribute).second) return fault("bad attribute " + attribute);
        if (text.substr(at, 2) != "=\"") return fault("no quoted value of " + attribute);
        for (at += 2; at < text.size() && text[at] != '"';) {
          if (text[at] == '<') return fault("< in a value");
          if (text[at] != '&') ++at;
          else if (!entity()) return fault("bad entity before");
        }
        ++at;
      }
      if (text.substr(at, 2) == "/>") open.pop_back(), ++at;
      if (text.substr(at, 1) != ">") return fault("unclosed tag");
      ++at;
    }
  }
  return !open.empty() ? "open at the end: " + open.back() : root ? "" : "no element";
}
