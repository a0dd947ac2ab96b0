// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/drawing.h"
#include "models/picture.h"
#include "models/picture_page.h"
#include "models/picture_parts.h"
#include "tensor/json.h"

namespace heed {
namespace {

using namespace drawing;
using namespace picture;

constexpr int kUnit = 10000;    // weights travel as integers, in 1 / kUnit ...
constexpr double kMost = 1e15;   // ... that a page reads exactly: beyond, weights of exp are drawn as this

// Shown first: a cross map of the last layer, the mean if there is one.
std::size_t opening(const std::vector<Map>& maps) {
  std::size_t best = 0;
  const auto rank = [](const Map& m) { return std::tuple(m.axes == AttentionPicture::Axes::cross, m.layer, -m.head); };
  for (std::size_t m = 1; m < maps.size(); ++m)
    if (rank(maps[m]) > rank(maps[best])) best = m;
  return best;
}

Json links(const std::vector<Link>& list) {
  Json result = Json::array();
  for (const auto [s, t] : list) result.push_back({s, t});
  return result;
}

Json page_data(const AttentionPicture& picture, std::size_t first) {
  const Scale scale = picture::scale(picture);
  Json data = {{"unit", kUnit}, {"full", scale.full}, {"two_sided", scale.two_sided},
               {"first", first}, {"sure", links(picture.gold.sure)}, {"possible", links(picture.gold.possible)}};
  for (const double sign : {1.0, -1.0}) {
    Json colours = Json::array();
    for (int i = 0; i <= 100; ++i) colours.push_back(hex(heat(sign * i / 100)));
    data["colours"].push_back(colours);
  }
  std::map<std::vector<std::string>, std::size_t> lists;   // each list of words once
  const auto list = [&](const std::vector<std::string>& words) {
    const auto [entry, is_new] = lists.try_emplace(words, lists.size());
    if (is_new) {
      Json shown = Json::array();
      for (const std::string& w : words) shown.push_back(word(w));
      data["words"].push_back(shown);
    }
    return entry->second;
  };
  for (const Map& map : picture.maps) {
    Json weights = Json::array();
    for (const float w : map.weights)
      weights.push_back(std::isfinite(w) ? Json(std::llround(std::clamp(double(w) * kUnit, -kMost, kMost))) : Json());
    Json entry = {{"kind", kind(map.axes)}, {"layer", map.layer}, {"head", map.head}, {"heads", map.heads},
                  {"label", printable(label(map))}, {"rows", list(row_words(picture, map))},
                  {"columns", list(column_words(picture, map))}, {"row_title", row_title(picture, map.axes)},
                  {"column_title", column_title(map.axes)}, {"weights", weights}};
    for (const AttentionPicture::Window& window : map.windows) {
      Json row = Json::array();
      for (const auto& [from, to] : runs(window, Index(column_words(picture, map).size()))) row.push_back(from), row.push_back(to);
      entry["windows"].push_back(row);
    }
    data["maps"].push_back(entry);
  }
  return data;
}

// JSON that may stand inside <script>: no <, > or & of the text is left as it is.
std::string script_safe(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&') result += fmt::format("\\u{:04x}", int(c));
    else result += c;
  }
  return result;
}

}  // namespace

std::string attention_html(const AttentionPicture& picture) {
  check_picture("attention_html", picture);
  AttentionPicture whole = picture;
  whole.maps = with_means(picture.maps);
  const std::size_t first = opening(whole.maps);
  AttentionPicture still = picture;
  still.maps = {whole.maps[first]};
  still.title.clear();
  still.caption.clear();
  still.note.clear();
  const std::string title = escape(picture.title.empty() ? "attention weights" : picture.title);
  std::string style(kPageStyle);
  style.replace(style.find("FONT"), 4, kFont);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1><bdi dir=\"ltr\">{0}</bdi></h1>\n<p>{2}</p>\n"
      "<noscript>\n<p>Scripts are off: this is one of {3} maps.</p>\n{4}</noscript>\n"
      "<div id=\"app\" hidden>\n<div id=\"controls\"></div>\n<div id=\"main\">\n"
      "<div id=\"view\"><p id=\"label\"></p><div id=\"scroll\"><div id=\"grid\"></div></div><div id=\"legend\"></div></div>\n"
      "<div id=\"side\"><div id=\"all\"><h2>All layers and heads</h2><div id=\"overview\"></div></div>"
      "<h2 id=\"about\"></h2><div id=\"reading\"></div>"
      "<p id=\"hint\">Point at a word, or press ↑ and ↓, to see its numbers; ← and → change the head; Esc lets go.</p>"
      "</div>\n"
      "</div>\n</div>\n<script type=\"application/json\" id=\"data\">{5}</script>\n<script>{6}</script>\n</body>\n</html>\n",
      title, style, escape(caption(whole)), whole.maps.size(), attention_svg(still),
      script_safe(json_text(page_data(whole, first))), kPageScript);
}

}  // namespace heed
