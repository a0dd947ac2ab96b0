// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/drawing.h"
#include "models/picture.h"
#include "models/picture_parts.h"

namespace heed {
namespace {

using namespace drawing;
using namespace picture;

constexpr std::array<std::string_view, 5> kShades = {"· ", "░░", "▒▒", "▓▓", "██"};
// xterm's 256 colours, CIELAB lightness 94 87 74 62 50 32 17 and 94 89 79 69 61 45 28
constexpr std::array<int, 7> kBlues = {255, 189, 147, 105, 63, 21, 18}, kReds = {255, 224, 217, 210, 203, 160, 88};

std::string_view brackets_of(Mark link) { return link == Mark::sure ? "[]" : link == Mark::possible ? "()" : "  "; }

// Two columns for a weight of -1..1; in colour, brackets of a gold link stand on it.
std::string cell(double w, TerminalColour colour, Mark link = Mark::none) {
  if (!std::isfinite(w)) return "??";
  if (colour == TerminalColour::none) {
    const auto level = std::size_t(std::lround(std::min(std::abs(w), 1.0) * 4));
    if (w >= 0 || level == 0) return std::string(kShades[level]);
    return fmt::format("-{}", kShades[level].substr(0, kShades[level].size() / 2));
  }
  const std::string_view mark = brackets_of(link);
  if (colour == TerminalColour::indexed) {
    const auto level = std::size_t(std::lround(std::min(std::abs(w), 1.0) * (double(kBlues.size()) - 1)));
    const int ink = 2 * level < kBlues.size() ? 16 : 231;
    return fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", (w < 0 ? kReds : kBlues)[level], ink, mark);
  }
  const Rgb c = heat(w);
  return fmt::format("\x1b[48;2;{};{};{};38;5;{}m{}\x1b[0m", c.r, c.g, c.b, dark(c) ? 231 : 16, mark);
}

// Column words on a stair, so that each can be read level:      ┌ a
//                                                               │ ┌ beautiful
//                                                               │ │ ┌ dog
void draw_map(std::string& out, const AttentionPicture& picture, const Map& map, const Scale& scale, int limit,
              TerminalColour colour) {
  const auto &rows = row_words(picture, map), &words = column_words(picture, map);
  const std::vector<Mark> links = gold_marks(picture, map);
  const bool brackets = !links.empty() && colour == TerminalColour::none;
  const int step = brackets ? 4 : 2, all = int(words.size());
  int left = 0, widest = 0;
  for (const std::string& w : rows) left = std::max(left, columns(word(w)));
  for (const std::string& w : words) widest = std::max(widest, columns(word(w)));
  left = std::min(left, limit / 4) + 1;
  const int last_word = std::min(widest, limit / 5) + 2;   // stair and word of the last column
  const int piece = std::max(1, (limit - left - last_word - step / 4) / step + 1);
  const int pieces = std::max(1, divide_up(all, piece)), even = divide_up(all, pieces);
  for (int begin = 0; begin < std::max(all, 1); begin += std::max(even, 1)) {
    const int end = std::min(all, begin + even);
    if (pieces > 1) out += fmt::format("columns {} to {} of {}\n", begin + 1, end, all);
    for (int s = begin; s < end; ++s) {
      std::string line(std::size_t(left + step / 4), ' ');
      for (int before = begin; before < s; ++before) line += step == 2 ? "│ " : "│   ";
      const int room = limit - left - step / 4 - (s - begin) * step - 2;
      out += line + "┌ " + shorten(word(words[std::size_t(s)]), room) + "\n";
    }
    for (std::size_t t = 0; t < rows.size(); ++t) {
      std::string line = pad_left(shorten(word(rows[t]), left - 1), left - 1) + " ";
      for (int s = begin; s < end; ++s) {
        const std::size_t i = t * std::size_t(all) + std::size_t(s);
        const bool outside = !map.windows.empty() && !map.windows[t].sees(s);
        const Mark link = links.empty() ? Mark::none : links[i];
        const std::string body = !outside   ? cell(scale(map.weights[i]), colour, link)
                                 : brackets ? "  "
                                            : std::string(brackets_of(link));
        if (!brackets) line += body;
        else line += brackets_of(link)[0] + body + brackets_of(link)[1];
      }
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    if (all == 0) out += "no columns: nothing to look at\n";
    if (end < all) out += "\n";
  }
}

std::string legend(const Scale& scale, TerminalColour colour) {
  if (colour != TerminalColour::none) {
    std::string ramp;
    for (int i = scale.two_sided ? -6 : 0; i <= 6; i += scale.two_sided ? 2 : 1) ramp += cell(i / 6.0, colour);
    return fmt::format("weight  {:.3g} {} {:.3g}", scale.two_sided ? -scale.full : 0, ramp, scale.full);
  }
  std::string text = fmt::format("weight  · < {:.3g}", scale.full * 0.125);
  for (std::size_t level = 1; level < kShades.size(); ++level)
    text += level + 1 < kShades.size() ? fmt::format("  {} < {:.3g}", kShades[level], scale.full * (double(level) / 4 + 0.125))
                                       : fmt::format("  {} to {:.3g}", kShades[level], scale.full);
  return text + (scale.two_sided ? "  -▒ negative" : "") + (scale.gaps ? "  ?? not a number" : "");
}

}  // namespace

std::string attention_text(const AttentionPicture& picture, int columns, TerminalColour colour) {
  check_picture("attention_text", picture);
  const int limit = std::max(columns, 40);
  const Scale scale = picture::scale(picture);
  std::string out;
  const auto paragraph = [&](const std::string& text) {
    for (const std::string& line : wrap(printable(text), limit)) out += line + "\n";
  };
  paragraph(picture.title);
  bool cross = false;
  for (const Map& map : picture.maps) {
    if (!out.empty()) out += "\n";
    paragraph(label(map));
    draw_map(out, picture, map, scale, limit, colour);
    cross |= map.axes == AttentionPicture::Axes::cross;
  }
  out += "\n";
  if (colour == TerminalColour::none) paragraph(legend(scale, colour));
  else out += legend(scale, colour) + "\n";
  const auto hides = [](const Map& map) {
    for (std::size_t i = 0; !map.windows.empty() && i < map.weights.size(); ++i) {
      const std::size_t columns = map.weights.size() / map.windows.size();
      if (!map.windows[i / columns].sees(Index(i % columns))) return true;
    }
    return false;
  };
  if (std::ranges::any_of(picture.maps, hides))
    paragraph("blank: outside of the window of the attention");
  if (cross && !picture.gold.sure.empty()) paragraph("[] gold link, sure");
  if (cross && !picture.gold.possible.empty()) paragraph("() gold link, possible");
  paragraph(caption(picture));
  return out;
}

}  // namespace heed
