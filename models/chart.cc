// SPDX-License-Identifier: Apache-2.0
#include "models/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/drawing.h"
#include "tensor/format.h"

namespace heed {
namespace {

using namespace drawing;

constexpr double kPlot = 700;   // width of a plot, px
// Told apart by most colour-blind readers, in hue and lightness.
constexpr std::array<std::string_view, 6> kColours = {"#1f62b5", "#e0701a", "#23936b", "#a6439b", "#8a6d00", "#4fa8d8"};

std::string_view colour(std::size_t series) { return kColours[series % kColours.size()]; }

// A line's colour and, when all colours are used up, its dashes: no two alike among the first 18 series.
std::string line_style(std::size_t series) {
  constexpr std::array<std::string_view, 3> dashes = {"", " stroke-dasharray=\"6 4\"", " stroke-dasharray=\"2 3\""};
  return fmt::format("stroke=\"{}\"{}", colour(series), dashes[series / kColours.size() % dashes.size()]);
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  bool empty() const { return low > high; }
  void reach(const Range& whiskers) {   // which end at 0 where no value is negative: no count and no rate is
    if (!whiskers.empty()) low = low < 0 ? whiskers.low : std::max(whiskers.low, 0.0), high = whiskers.high;
  }
};

struct Axis {
  Ticks ticks;
  double start, length;   // px of the first tick and to the last one; negative length: upwards
  double low() const { return ticks.values.front(); }
  double operator()(double value) const {
    return start + length * (value - ticks.values.front()) / (ticks.values.back() - ticks.values.front());
  }
};

bool drawable(double value) { return std::abs(value) <= 1e300; }   // not NaN, and no axis is infinitely long
bool drawable(const Curves::Series& series, std::size_t i) { return drawable(series.x[i]) && drawable(series.y[i]); }

double spread(const auto& series, std::size_t i) {
  return series.spread.empty() || !drawable(series.spread[i]) ? 0 : std::abs(series.spread[i]);
}

std::string plus_minus(double around) { return around > 0 ? " ± " + number(around) : ""; }

// [begin, end) of a series, more points than a plot can show: the mean over every 3 px as a line, least to greatest as a band.
void draw_dense(Page& page, const Curves::Series& series, std::size_t begin, std::size_t end, const Axis& x, const Axis& y,
                std::size_t k) {
  constexpr double kBin = 3;
  std::string mean, above, below;
  while (begin < end) {
    const double bin = std::floor(x(series.x[begin]) / kBin);
    std::size_t stop = begin;
    Range range;
    double sum_x = 0, sum_y = 0;
    for (; stop < end && std::floor(x(series.x[stop]) / kBin) == bin; ++stop) {
      range.add(series.y[stop]);
      sum_x += series.x[stop], sum_y += series.y[stop];
    }
    const double count = double(stop - begin);
    const std::string at = px(x(sum_x / count)) + ",";
    mean += at + px(y(sum_y / count)) + " ";
    above += at + px(y(range.high)) + " ";
    below = at + px(y(range.low)) + " " + below;
    begin = stop;
  }
  page.add(fmt::format("<polygon points=\"{}{}\" fill=\"{}\" fill-opacity=\"0.25\"/>\n", above, below, colour(k)));
  page.add(fmt::format("<polyline points=\"{}\" fill=\"none\" {} stroke-width=\"1.6\"/>\n", mean, line_style(k)));
}

// A line through the points, broken where one is not finite; single points, and those of a short series, as dots; whiskers.
void draw_series(Page& page, const Curves::Series& series, const Axis& x, const Axis& y, std::size_t k) {
  const bool dense = double(series.x.size()) > kPlot, dots = series.x.size() <= 60;
  for (std::size_t begin = 0, end; begin < series.x.size(); begin = end + 1) {
    for (end = begin; end < series.x.size() && drawable(series, end);) ++end;
    const bool single = end == begin + 1;
    if (end > begin && !single && dense) draw_dense(page, series, begin, end, x, y, k);
    if (end > begin && !single && !dense) {
      std::string points;
      for (std::size_t i = begin; i < end; ++i) points += px(x(series.x[i])) + "," + px(y(series.y[i])) + " ";
      page.add(fmt::format("<polyline points=\"{}\" fill=\"none\" {} stroke-width=\"1.8\"/>\n", points, line_style(k)));
    }
    for (std::size_t i = begin; i < end && (dots || single); ++i)
      page.add(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"><title>{}: {}{} at {}</title></circle>\n",
                           px(x(series.x[i])), px(y(series.y[i])), single ? "3.2" : "2.3", colour(k), escape(series.name),
                           number(series.y[i]), plus_minus(spread(series, i)), number(series.x[i])));
    for (std::size_t i = begin; i < end; ++i) {
      const double around = spread(series, i), middle = x(series.x[i]), top = y(series.y[i] + around),
                   bottom = y(std::max(series.y[i] - around, y.low()));
      if (around == 0) continue;
      page.line(middle, top, middle, bottom, colour(k));
      for (const double tip : {top, bottom}) page.line(middle - 3, tip, middle + 3, tip, colour(k));
    }
  }
}

// Names with a swatch, broken into lines of at most `limit`. Returns the y below.
double draw_keys(Page& page, const std::vector<std::string>& keys, double x, double y, double limit, bool boxes) {
  const double start = x;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double wide = 24 + width(keys[k], 11.5);
    if (x + wide > start + limit && x > start) x = start, y += 18;
    if (boxes) page.rect(x, y, 12, 12, fmt::format("fill=\"{}\"", colour(k)));
    else
      page.add(fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {} stroke-width=\"2.5\"/>\n", px(x), px(y + 6), px(x + 18),
                           px(y + 6), line_style(k)));
    page.text(x + (boxes ? 18 : 24), y + 10, keys[k], {.size = 11.5});
    x += wide + 16;
  }
  return keys.empty() ? y : y + 18;
}

constexpr TextStyle kTick{.size = 11, .anchor = Anchor::middle, .colour = kMuted};

Ticks axis_ticks(Range range, int count, double least = 0) {
  if (range.empty()) range = {0, 1};
  if (range.low > 0 && range.low < 0.5 * range.high) range.low = 0;   // where values begin near 0, so does the axis
  if (range.low == 0 && range.high == 0) range.high = 1;
  return ticks(range.low, range.high, count, least);
}

// Legend, grid, axes and series of one panel. Returns the y of its lower edge.
double draw_panel(Page& page, const Curves::Panel& panel, const Axis& x, const Ticks& values, double y, double high) {
  const double right = x.start + x.length;
  page.text(x.start, y + 12, shorten(printable(panel.title), 90), {.size = 12.5, .bold = true});
  std::vector<std::string> keys;
  bool any = false;
  for (const auto& series : panel.series) {
    const bool drawn = std::ranges::any_of(series.y, [](double v) { return drawable(v); });
    any |= drawn;
    keys.push_back(shorten(printable(series.name), 50) + (drawn ? "" : " (no value)"));
  }
  y = draw_keys(page, keys, x.start, y + 22, x.length, false) + 8;
  const Axis vertical{values, y + high, -high};
  for (std::size_t i = 0; any && i < values.values.size(); ++i) {
    const double at = vertical(values.values[i]);
    page.line(x.start, at, right, at, kRule);
    page.text(x.start - 8, at + 4, values.labels[i], {.size = 11, .anchor = Anchor::end, .colour = kMuted});
  }
  for (const double value : x.ticks.values) page.line(x(value), y + high, x(value), y + high + 4, kMuted);
  page.line(x.start, y + high, right, y + high, kMuted);
  for (std::size_t s = 0; s < panel.series.size(); ++s) draw_series(page, panel.series[s], x, vertical, s);
  if (!any) page.text(x.start + x.length / 2, y + high / 2 + 4, "no values yet", kTick);
  return y + high;
}

// One bar from the axis at x(0), its whisker and its number.
void draw_bar(Page& page, const Bars::Series& series, std::size_t group, const Axis& x, double y, double high,
              std::string_view fill, const std::string& name) {
  const double value = series.values[group], around = spread(series, group), zero = x(0), middle = y + high / 2;
  if (!drawable(value)) {
    page.text(zero + 6, middle + 4, "no value", {.size = 11, .colour = kMuted});
    return;
  }
  page.rect(std::min(zero, x(value)), y, std::max(0.5, std::abs(x(value) - zero)), high, fmt::format("fill=\"{}\"", fill),
            fmt::format("{}: {}{}", name, number(value), plus_minus(around)));
  if (around > 0) {
    const double low = std::max(value - around, x.low());
    page.line(x(low), middle, x(value + around), middle, kInk, 1.2);
    for (const double end : {low, value + around}) page.line(x(end), middle - 3, x(end), middle + 3, kInk, 1.2);
  }
  const double sign = value < 0 ? -1 : 1;
  page.text(x(value + sign * around) + sign * 6, middle + 4, number(value),
            {.size = 11, .anchor = value < 0 ? Anchor::end : Anchor::start, .colour = kMuted});
}

}  // namespace

std::string curves_svg(const Curves& curves) {
  Range steps;
  std::vector<Ticks> values;
  double left = 30;
  bool whole = true;                               // x counts
  for (const auto& panel : curves.panels) {
    Range range, whiskers;
    for (const auto& series : panel.series) {
      check<ShapeError>(series.x.size() == series.y.size(), "curves_svg: x and y differ in length: \"{}\" has x [{}], y [{}]",
                        series.name, series.x.size(), series.y.size());
      check<ShapeError>(series.spread.empty() || series.spread.size() == series.y.size(),
                        "curves_svg: needs no spread or one a point: \"{}\" has y [{}], spread [{}]", series.name, series.y.size(),
                        series.spread.size());
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!drawable(series, i)) continue;
        steps.add(series.x[i]);
        whole &= series.x[i] == std::floor(series.x[i]);
        range.add(series.y[i]);
        for (const double around : {-spread(series, i), spread(series, i)}) whiskers.add(series.y[i] + around);
      }
    }
    range.reach(whiskers);
    values.push_back(axis_ticks(range, 4));
    for (const std::string& text : values.back().labels) left = std::max(left, width(text, 11) + 10);
  }
  const Axis x{axis_ticks(steps, 7, whole ? 1 : 0), Page::kMargin + left, kPlot};

  Page page;
  double y = Page::kMargin;
  for (std::size_t p = 0; p < curves.panels.size(); ++p)
    y = draw_panel(page, curves.panels[p], x, values[p], y, p == 0 ? 220 : 140) + 22;
  if (!steps.empty()) {
    for (std::size_t i = 0; i < x.ticks.values.size(); ++i) page.text(x(x.ticks.values[i]), y - 4, x.ticks.labels[i], kTick);
    page.text(x.start + kPlot / 2, y + 14, shorten(printable(curves.x_title), 60), kTick);
    y += 24;
  }
  page.paragraph(y, curves.caption, left + kPlot);
  page.heading(curves.title);
  return page.svg(curves.title.empty() ? "training curves" : curves.title);
}

std::string bars_svg(const Bars& bars) {
  Range values, whiskers;
  for (Range* range : {&values, &whiskers}) range->add(0);
  double names = 40, before = 0;   // room for the names, and for the numbers left of negative bars
  for (const auto& series : bars.series) {
    const std::size_t groups = bars.groups.size();
    check<ShapeError>(series.values.size() == groups && (series.spread.empty() || series.spread.size() == groups),
                      "bars_svg: needs one value a group: \"{}\" has values [{}], spreads [{}], groups [{}]", series.name,
                      series.values.size(), series.spread.size(), groups);
    for (std::size_t g = 0; g < groups; ++g) {
      if (!drawable(series.values[g])) continue;
      values.add(series.values[g]);
      for (const double around : {-spread(series, g), spread(series, g)}) whiskers.add(series.values[g] + around);
      if (series.values[g] < 0) before = std::max(before, width(number(series.values[g]), 11) + 12);
    }
  }
  values.reach(whiskers);
  for (const std::string& group : bars.groups) names = std::max(names, width(shorten(word(group), 36), 12.5) + 12);
  const Axis x{ticks(values.low, values.high > values.low ? values.high : 1, 5), Page::kMargin + names + before, kPlot - 180};

  Page page;
  double y = Page::kMargin;
  if (bars.series.size() > 1) {
    std::vector<std::string> keys;
    for (const auto& series : bars.series) keys.push_back(shorten(printable(series.name), 50));
    y = draw_keys(page, keys, Page::kMargin, y, names + before + x.length, true) + 8;
  }
  const double thick = bars.series.size() > 3 ? 13 : 17, group = thick * double(std::max<std::size_t>(1, bars.series.size()));
  const double bottom = y + (group + 12) * double(std::max<std::size_t>(1, bars.groups.size())) + 4;
  for (std::size_t i = 0; i < x.ticks.values.size(); ++i) {
    const double at = x(x.ticks.values[i]);
    page.line(at, y, at, bottom, kRule);
    page.text(at, bottom + 15, x.ticks.labels[i], kTick);
  }
  page.line(x(0), y, x(0), bottom, kMuted);
  if (bars.groups.empty()) page.text(x(0) + 6, y + 20, "no groups", {.size = 11, .colour = kMuted});
  for (std::size_t g = 0; g < bars.groups.size(); ++g) {
    const double top = y + 7 + (group + 12) * double(g);
    const std::string name = word(bars.groups[g]), text = shorten(name, 36);
    page.text(Page::kMargin + names - 10, top + group / 2 + 3.5, text, {.size = 12.5, .anchor = Anchor::end},
              text == name ? "" : name);
    for (std::size_t s = 0; s < bars.series.size(); ++s)
      draw_bar(page, bars.series[s], g, x, top + thick * double(s), thick - 2, colour(s),
               bars.series.size() > 1 ? name + ", " + bars.series[s].name : name);
  }
  y = bottom + 24;
  if (!bars.value_title.empty()) {
    page.text(x.start + x.length / 2, y + 12, shorten(printable(bars.value_title), 80), kTick);
    y += 20;
  }
  page.paragraph(y + 4, bars.caption, names + before + x.length);
  page.heading(bars.title);
  return page.svg(bars.title.empty() ? "comparison" : bars.title);
}

}  // namespace heed
