// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "models/drawing.h"
#include "models/picture.h"
#include "models/picture_parts.h"

namespace heed {
namespace {

using namespace drawing;
using namespace picture;
using Words = std::vector<std::string>;

constexpr int kLongestWord = 26;          // columns; the whole word stands in the tooltip
constexpr std::size_t kTooltips = 20000;  // more cells than that are drawn as one path a shade, without tooltips
constexpr int kShades = 100;
constexpr double kLeft = Page::kMargin;

std::string shown(const std::string& token) { return shorten(word(token), kLongestWord); }
std::string uncut(const std::string& token) { return shown(token) == word(token) ? "" : word(token); }   // as a tooltip
std::string fill(Rgb colour) { return fmt::format("fill=\"{}\"", hex(colour)); }

// Maps over the same words, drawn under one heading; a strip is one row of panels, a layer.
struct Section {
  const Words *rows, *columns;
  AttentionPicture::Axes axes;
  std::vector<std::vector<const Map*>> strips;
};

std::vector<Section> sections(const AttentionPicture& picture) {
  std::vector<Section> result;
  for (const Map& map : picture.maps) {
    const Words &rows = row_words(picture, map), &columns = column_words(picture, map);
    auto section = std::find_if(result.begin(), result.end(), [&](const Section& s) {
      return s.axes == map.axes && *s.rows == rows && *s.columns == columns;
    });
    if (section == result.end()) section = result.insert(result.end(), {&rows, &columns, map.axes, {}});
    auto& strips = section->strips;
    auto strip = std::find_if(strips.begin(), strips.end(), [&](const auto& s) { return s[0]->layer == map.layer; });
    if (strip == strips.end()) strip = strips.insert(strip, std::vector<const Map*>{});
    strip->push_back(&map);
  }
  return result;
}

// Sizes in px. Column words stand level where they are short, else turned by `angle` degrees.
struct Layout {
  double cell, font, angle;
  double left, top;        // room for the words beside and above the cells
  double gap, wide, high;  // between cells; all cells
};

Layout layout(const Section& section, double cell, bool alone) {
  const double font = std::clamp(std::floor(cell * (alone && cell >= 24 ? 0.5 : 0.72)), 8.0, 13.0), line = font * 1.25;
  double left = 0, widest = 0;
  for (const std::string& w : *section.rows) left = std::max(left, width(shown(w), font) + 9);
  for (const std::string& w : *section.columns) widest = std::max(widest, width(shown(w), font));
  const double angle = widest <= cell - 2 ? 0 : !alone || cell * 0.83 < line ? 90 : cell * 0.71 < line ? 56 : 45;
  const double top = std::sin(radians(angle)) * widest + line * std::max(std::cos(radians(angle)), 0.4) + 5;
  return {.cell = cell, .font = font, .angle = angle, .left = left, .top = top, .gap = cell >= 12 ? 1.0 : 0.0,
          .wide = cell * double(section.columns->size()), .high = cell * double(section.rows->size())};
}

// A square in a cell, with a white casing that keeps it visible on dark ones.
void draw_link(Page& page, double x, double y, double side, Mark mark) {
  if (mark == Mark::none) return;
  const double inset = side >= 14 ? 1.5 : 0.75, stroke = side >= 14 ? 2 : 1.2;
  const auto frame = [&](std::string_view colour, double thickness, std::string_view dashes) {
    page.rect(x + inset, y + inset, side - 2 * inset, side - 2 * inset,
              fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}", colour, px(thickness), dashes));
  };
  frame("#ffffff", stroke + 1.4, "");
  frame(kGold, stroke, mark == Mark::possible ? " stroke-dasharray=\"3 2.4\"" : "");
}

void draw_window(Page& page, double x, double y, double width, double height) {
  page.rect(x + 0.5, y + 0.5, width - 1, height - 1, "rx=\"2\" fill=\"none\" stroke=\"#475569\"");
}

void draw_cells(Page& page, const Map& map, const Section& section, const Layout& at, const Scale& scale, double x, double y) {
  const std::size_t columns = section.columns->size();
  const double side = at.cell - at.gap;
  for (std::size_t i = 0; i < map.weights.size(); ++i) {
    const std::string &row = (*section.rows)[i / columns], &column = (*section.columns)[i % columns];
    const double left = x + double(i % columns) * at.cell, top = y + double(i / columns) * at.cell;
    page.rect(left, top, side, side, fill(heat(scale(map.weights[i]))),
              fmt::format("{} ← {}: {}", word(row), word(column), weight(map.weights[i])));
  }
}

// The cells of a shade as one path: small enough for 6 x 8 heads over sentences of 50 words.
void draw_shades(Page& page, const Map& map, const Section& section, const Layout& at, const Scale& scale, double x, double y) {
  const std::size_t columns = section.columns->size();
  std::array<std::string, 2 * kShades + 2> paths;   // -1 .. 1, and not a number
  for (std::size_t i = 0; i < map.weights.size(); ++i) {
    const double w = scale(map.weights[i]);
    const auto shade = std::isfinite(w) ? std::size_t(std::lround((std::clamp(w, -1.0, 1.0) + 1) * kShades)) : paths.size() - 1;
    if (shade != kShades) fmt::format_to(std::back_inserter(paths[shade]), "M{} {}h1v1h-1z", i % columns, i / columns);
  }
  page.rect(x, y, at.wide, at.high, fill(heat(0)));
  page.add(fmt::format("<g transform=\"translate({} {}) scale({})\">\n", px(x), px(y), px(at.cell)));
  for (std::size_t shade = 0; shade < paths.size(); ++shade) {
    const double w = shade + 1 == paths.size() ? NAN : double(shade) / kShades - 1;
    if (!paths[shade].empty()) page.add(fmt::format("<path {} d=\"{}\"/>\n", fill(heat(w)), paths[shade]));
  }
  page.add("</g>\n");
}

// px, the size of a number and the least side of its cell, more where one has a sign: it fits into the frame of a link
constexpr double kNumber = 9;
double numbered_side(const AttentionPicture& picture) {
  const auto has_sign = [](const Map& map) { return std::ranges::any_of(map.weights, [](float w) { return w < 0; }); };
  return std::ranges::any_of(picture.maps, has_sign) ? 34 : 28;
}

// Two digits in each cell; nothing in those that round to 0.
void draw_numbers(Page& page, const AttentionPicture& picture, const Map& map, const Section& section, const Layout& at,
                  const Scale& scale, double x, double y) {
  const double size = kNumber * at.cell / numbered_side(picture);
  const std::size_t columns = section.columns->size();
  for (std::size_t i = 0; i < map.weights.size(); ++i)
    if (std::abs(map.weights[i]) >= 0.005f)
      page.text(x + double(i % columns) * at.cell + (at.cell - at.gap) / 2, y + (double(i / columns) + 0.6) * at.cell,
                fmt::format("{:.2f}", map.weights[i]),
                {.size = size, .anchor = Anchor::middle, .colour = dark(heat(scale(map.weights[i]))) ? "#ffffff" : kInk});
}

// Words, cells, windows and gold links of one map; (x, y) is the corner of its cells.
void draw_panel(Page& page, const AttentionPicture& picture, const Map& map, const Section& section, const Layout& at,
                const Scale& scale, double x, double y, bool row_labels, bool tooltips) {
  const Words &rows = *section.rows, &columns = *section.columns;
  const double turn = radians(at.angle), down = at.font * 0.35;   // from the middle of a line of text to its base line
  for (std::size_t s = 0; s < columns.size(); ++s)
    page.text(x + (double(s) + 0.5) * at.cell - at.gap / 2 + down * std::sin(turn),
              y - 5 + (at.angle > 0 ? down * 0.6 * std::cos(turn) : 0), shown(columns[s]),
              {.size = at.font, .anchor = at.angle > 0 ? Anchor::start : Anchor::middle, .angle = -at.angle},
              uncut(columns[s]));
  for (std::size_t t = 0; row_labels && t < rows.size(); ++t)
    page.text(x - 7, y + (double(t) + 0.5) * at.cell - at.gap / 2 + down, shown(rows[t]),
              {.size = at.font, .anchor = Anchor::end}, uncut(rows[t]));
  if (map.weights.empty()) {
    page.text(x, y + 14, columns.empty() ? "no columns: nothing to look at" : "no rows", {.colour = kMuted});
    return;
  }
  if (tooltips) draw_cells(page, map, section, at, scale, x, y);
  else draw_shades(page, map, section, at, scale, x, y);
  if (picture.numbers) draw_numbers(page, picture, map, section, at, scale, x, y);
  for (std::size_t t = 0; t < map.windows.size(); ++t)
    for (const auto& [from, to] : runs(map.windows[t], Index(columns.size()))) {
      const double first = double(std::max<Index>(from, 0)), last = double(std::min(to, Index(columns.size()) - 1));
      if (first <= last)
        draw_window(page, x + first * at.cell, y + double(t) * at.cell, (last - first + 1) * at.cell - at.gap, at.cell - at.gap);
    }
  const std::vector<Mark> marks = gold_marks(picture, map);
  for (std::size_t i = 0; i < marks.size(); ++i)
    draw_link(page, x + double(i % columns.size()) * at.cell, y + double(i / columns.size()) * at.cell, at.cell - at.gap,
              marks[i]);
}

// A picture of one map: large cells, titled axes. Returns the y below it.
double draw_alone(Page& page, const AttentionPicture& picture, const Section& section, const Scale& scale, double y) {
  const double most = double(std::max({section.rows->size(), section.columns->size(), std::size_t(1)}));
  const Layout at = layout(section, std::clamp(std::floor(760 / most), picture.numbers ? numbered_side(picture) : 14.0, 36.0), true);
  const Map& map = *section.strips[0][0];
  page.text(kLeft, y + 11, printable(label(map)), {.size = 12.5, .colour = kMuted});
  y += 30;
  const std::string across = fmt::format("{} →", column_title(section.axes));
  const std::string down = fmt::format("← {}", row_title(picture, section.axes));
  const TextStyle style{.size = 11.5, .anchor = Anchor::middle, .colour = kMuted};
  const double x = kLeft + 20 + at.left, grid = y + 18 + at.top;
  page.text(x + std::max(at.wide / 2, width(across, 11.5) / 2 - at.left), y + 10, across, style);
  const double high = std::max(at.high, width(down, 11.5));   // a long title begins beside the column words
  const double bottom = std::max(grid + at.high, y + high);
  TextStyle upright = style;
  upright.angle = -90;
  page.text(kLeft + 10, high > at.high ? bottom - high / 2 : grid + high / 2, down, upright);
  draw_panel(page, picture, map, section, at, scale, x, grid, true, map.weights.size() <= kTooltips);
  return bottom + 18;
}

// The name of a panel; the heading above says the kind already.
std::string panel_name(const Map& map) {
  if (!map.label.empty() || map.layer + map.head == 0) return shorten(printable(label(map)), 60);
  std::string head;
  if (map.head > 0) head = fmt::format("head {}", map.head);
  else if (map.heads > 1) head = fmt::format("mean of {} heads", map.heads);
  if (map.layer == 0) return head;
  return fmt::format("layer {}{}{}", map.layer, head.empty() ? "" : ", ", head);
}

// All maps of a section, a strip for each layer. Returns the y below them.
double draw_section(Page& page, const AttentionPicture& picture, const Section& section, const Scale& scale, double y,
                    bool tooltips) {
  std::size_t most = 1;
  double name = 0;
  for (const auto& strip : section.strips) {
    most = std::max(most, strip.size());
    for (const Map* map : strip) name = std::max(name, width(panel_name(*map), 11) * kBold);
  }
  const double columns = double(std::max<std::size_t>(1, section.columns->size()) * std::min<std::size_t>(most, 8));
  const Layout at = layout(section, picture.numbers ? numbered_side(picture) : std::clamp(std::floor(1400 / columns), 9.0, 22.0), false);
  const double pitch = std::max(at.wide, name) + 16;
  const std::size_t in_a_line = std::max<std::size_t>(1, std::size_t(1800 / pitch));

  std::string heading(kind(section.axes));
  heading[0] = char(heading[0] - 'a' + 'A');
  page.text(kLeft, y + 14, heading, {.size = 13.5, .bold = true});
  const std::string axes = fmt::format("row: {}; column: {}", row_title(picture, section.axes), column_title(section.axes));
  page.text(kLeft + width(heading, 13.5) * kBold + 10, y + 14, axes, {.size = 11.5, .colour = kMuted});
  y += 26;
  for (const auto& strip : section.strips)
    for (std::size_t i = 0; i < strip.size(); ++i) {
      const std::size_t place = i % in_a_line;
      const double x = kLeft + at.left + double(place) * pitch, grid = y + 16 + at.top;
      page.text(x, y + 11, panel_name(*strip[i]), {.size = 11, .bold = true});
      draw_panel(page, picture, *strip[i], section, at, scale, x, grid, place == 0, tooltips);
      if (place + 1 == in_a_line || i + 1 == strip.size()) y = grid + at.high + 20;
    }
  return y + 8;
}

// The colour scale, then what the outlines mean. Returns the y below.
double draw_legend(Page& page, const AttentionPicture& picture, const Scale& scale, double y) {
  constexpr double kBar = 180, kHigh = 12;
  constexpr int kSteps = 60;
  const double low = scale.two_sided ? -1 : 0;
  page.text(kLeft, y + 10, "attention weight", {.size = 11, .colour = kMuted});
  y += 17;
  page.add("<g shape-rendering=\"crispEdges\">\n");
  for (int i = 0; i < kSteps; ++i)
    page.rect(kLeft + i * kBar / kSteps, y, kBar / kSteps, kHigh, fill(heat(low + (1 - low) * (i + 0.5) / kSteps)));
  page.add("</g>\n");
  page.rect(kLeft, y, kBar, kHigh, fmt::format("fill=\"none\" stroke=\"{}\"", kRule));
  for (const double at : {0.0, 0.25, 0.5, 0.75, 1.0})
    page.text(kLeft + at * kBar, y + kHigh + 13, fmt::format("{:.3g}", scale.full * (low + (1 - low) * at)),
              {.size = 10.5, .anchor = Anchor::middle, .colour = kMuted});

  double x = kLeft + kBar + 28, bottom = y + kHigh + 18;
  const auto key = [&](std::string_view text, const auto& mark) {
    const double wide = 20 + width(text, 11);
    if (x + wide > page.right()) x = kLeft, y = bottom + 4, bottom += 24;
    mark(x, y - 1);
    page.text(x + 20, y + 10, text, {.size = 11, .colour = kMuted});
    x += wide + 18;
  };
  const auto link = [&](Mark mark) {
    return [&page, mark](double x, double y) {
      page.rect(x, y, 14, 14, fill(heat(0.25)));
      draw_link(page, x, y, 14, mark);
    };
  };
  const auto any = [&](auto holds) { return std::any_of(picture.maps.begin(), picture.maps.end(), holds); };
  const bool cross = any([](const Map& m) { return m.axes == AttentionPicture::Axes::cross; });
  if (cross && !picture.gold.sure.empty()) key("gold link, sure", link(Mark::sure));
  if (cross && !picture.gold.possible.empty()) key("gold link, possible", link(Mark::possible));
  if (any([](const Map& m) { return !m.windows.empty(); }))
    key("window of the attention", [&](double x, double y) { draw_window(page, x, y + 2, 15, 10); });
  if (scale.gaps) key("not a number", [&](double x, double y) { page.rect(x, y, 14, 14, fill(heat(NAN))); });
  return bottom + 6;
}

}  // namespace

std::string attention_svg(const AttentionPicture& picture) {
  check_picture("attention_svg", picture);
  const Scale scale = picture::scale(picture);
  std::size_t cells = 0;
  for (const Map& map : picture.maps) cells += map.weights.size();

  Page page;
  double y = Page::kMargin;
  for (const Section& section : sections(picture))
    y = picture.maps.size() == 1 ? draw_alone(page, picture, section, scale, y)
                                 : draw_section(page, picture, section, scale, y, cells <= kTooltips);
  y = draw_legend(page, picture, scale, y);
  page.paragraph(y, caption(picture), std::min(page.right() - kLeft, 900.0));
  page.heading(picture.title);
  return page.svg(picture.title.empty() ? "attention weights" : picture.title);
}

}  // namespace heed
