// SPDX-License-Identifier: Apache-2.0
#include "models/chart.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "models/drawing.h"
#include "tensor/error.h"
#include "tests/xml.h"

using namespace heed;
using Words = std::vector<std::string>;

TEST_CASE("chart: ticks are round, cover the values, and have just enough digits") {
  using drawing::ticks;
  CHECK(ticks(0, 10, 4).labels == Words{"0", "2", "4", "6", "8", "10"});
  CHECK(ticks(0.31, 0.93, 4).labels == Words{"0.2", "0.4", "0.6", "0.8", "1.0"});
  CHECK(ticks(-3, 12, 4).labels == Words{"-5", "0", "5", "10", "15"});
  CHECK(ticks(0, 1e-3, 4).labels == Words{"0", "2e-4", "4e-4", "6e-4", "8e-4", "1e-3"});
  CHECK(ticks(0, 20000, 4).labels == Words{"0", "5,000", "10,000", "15,000", "20,000"});
  CHECK(ticks(3, 3, 4).values.size() >= 3);
  CHECK(ticks(1, 1, 7, 1).labels == Words{"0", "1", "2"});
  CHECK(ticks(1, 3, 7, 1).labels == Words{"1", "2", "3"});
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 0}, {1e16, 1e16 + 2}, {-1e308, 1e308}, {1e-300, 2e-300}, {5e-324, 1e-323}, {0, 1e-310}, {5, 5.0000001}, {-7.3, -7.1},
           {INFINITY, -INFINITY}}) {
    const drawing::Ticks t = ticks(low, high, 5);
    CAPTURE(t.labels.front());
    CHECK((t.values.size() >= 2 && t.values.size() <= 20));
    CHECK(t.labels.size() == t.values.size());
    const double rounding = 1e-15 * std::max(std::abs(low), std::abs(high));
    if (std::abs(low) < 1e300 && low <= high) CHECK((t.values.front() <= low + rounding && t.values.back() >= high - rounding));
  }
}

TEST_CASE("chart: curves") {
  Curves curves;
  curves.title = "phrases <en → fr> & more";
  curves.panels = {{"loss per token", {{"train loss", {1, 2, 3, 4, 5, 6}, {9, 8, NAN, 4, INFINITY, 2}},
                                        {"dev loss", {6}, {2.5}}}},
                   {"dev BLEU", {{"dev BLEU", {}, {}}}}};
  const std::string svg = curves_svg(curves);
  CHECK(xml_fault(svg) == "");
  CHECK(count(svg, "<polyline") == 1);       // 9 8, then a gap; 4 and 2 stand alone
  CHECK(count(svg, "r=\"3.2\"") == 3);       // 4, 2 and the dev loss
  CHECK(has(svg, ">train loss<"));   // the name alone: a number behind it would read as a result
  CHECK(has(svg, ">dev loss<"));
  CHECK(has(svg, ">dev BLEU (no value)<"));
  CHECK(has(svg, "no values yet"));
  CHECK(has(svg, "&lt;en → fr&gt; &amp; more"));
  CHECK(has(svg, ">update<"));
  CHECK(!has(curves_svg({.panels = {{"", {{"", {1}, {300}}}}}}), ">0.5<"));   // updates are whole
  CHECK(has(curves_svg({.panels = {{"", {{"", {1.5}, {300}}}}}}), ">0.8<"));

  CHECK(xml_fault(curves_svg({})) == "");
  CHECK(xml_fault(curves_svg({.panels = {{}}})) == "");
  Curves diverged;
  diverged.panels = {{"loss", {{"loss", {1, 2, 3}, {-1e308, 1e308, NAN}}, {"nan", {NAN, 1}, {1, NAN}}}}};
  CHECK(xml_fault(curves_svg(diverged)) == "");
  CHECK(!has(curves_svg(diverged), "inf"));

  curves.panels[0].series[0].y.pop_back();
  CHECK_THROWS_WITH_AS(curves_svg(curves), "curves_svg: x and y differ in length: \"train loss\" has x [6], y [5]", ShapeError);
}

TEST_CASE("chart: an axis of zeros alone begins at 0") {
  Curves curves;
  curves.panels = {{"dev BLEU", {{"dev BLEU", {1, 2, 3}, {0, 0, 0}}}}};
  CHECK(!has(curves_svg(curves), ">-"));
}

TEST_CASE("chart: curves with whiskers") {
  Curves curves;
  curves.panels = {
      {"BLEU", {{.name = "none", .x = {1, 2, 3}, .y = {10, 20, 90}, .spread = {0, 5, 10}}, {.name = "dot", .x = {1}, .y = {8}}}}};
  const std::string svg = curves_svg(curves);
  CHECK(xml_fault(svg) == "");
  CHECK(has(svg, "<title>none: 20 ± 5 at 2</title>"));
  CHECK(has(svg, "<title>none: 10 at 1</title>"));
  CHECK(count(svg, "stroke=\"#1f62b5\" stroke-width=\"1\"") == 2 * 3);
  CHECK(has(svg, ">100<"));   // a whisker has its place on the axis

  // a rate is not negative, and no whisker says that it might be: bleu of 0.3 and 0.02, half a point and 0.01 to each side
  const Curves low{.panels = {{"BLEU", {{.name = "dot", .x = {1, 2}, .y = {0.3, 0.02}, .spread = {0.5, 0.01}}}}}};
  CHECK(!has(curves_svg(low), ">-"));
  const Curves losses{.panels = {{"difference", {{.name = "dot", .x = {1, 2}, .y = {0.3, -0.1}, .spread = {0.5, 0.3}}}}}};
  CHECK(has(curves_svg(losses), ">-0.4<"));
  const Bars rates{.groups = {"a", "b"}, .series = {{"", {0.3, 0.1}, {0.5, 0}}}};
  CHECK(!has(bars_svg(rates), ">-"));
  CHECK(has(bars_svg({.groups = {"a", "b"}, .series = {{"", {0.3, -0.1}, {0.5, 0}}}}), ">-0.2<"));
  curves.panels[0].series[0].spread.pop_back();
  CHECK_THROWS_WITH_AS(curves_svg(curves), "curves_svg: needs no spread or one a point: \"none\" has y [3], spread [2]", ShapeError);
}

TEST_CASE("chart: a whisker is as long to each side; a bar's number stands beyond it") {
  const Curves curves{.panels = {{"BLEU", {{.name = "a", .x = {1, 2}, .y = {20, 100}, .spread = {5, 0}}}}}};
  const std::string svg = curves_svg(curves), dot = svg.substr(svg.rfind("<circle", svg.find("<title>a: 20 ± 5")));
  const auto number = [](const std::string& text, const std::string& name) {
    return std::stod(text.substr(text.find(name + "=\"") + name.size() + 2));
  };
  const double x = number(dot, "cx"), y = number(dot, "cy");                 // 220 px for 100
  CHECK(has(svg, fmt::format("x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"", drawing::px(x), drawing::px(y - 11), drawing::px(y + 11))));

  const std::string bars = bars_svg({.groups = {"a", "b"}, .series = {{"", {50, -10}, {10, 5}}}});
  const auto place = [&](const std::string& label) { return number(bars.substr(bars.rfind("<text", bars.find(">" + label + "<"))), "x"); };
  CHECK(std::abs(place("50") - place("-10") - (520.0 * (60 + 15) / 80 + 6 + 6)) < 0.11);   // from -20 to 60; both rounded to 0.1
}

TEST_CASE("chart: more series than colours differ in their dashes, in the plot and in its key") {
  Curves curves;
  curves.panels = {{"BLEU", {}}};
  for (int k = 0; k < 13; ++k) curves.panels[0].series.push_back({std::to_string(k), {1, 2}, {double(k), double(k)}});
  const std::string svg = curves_svg(curves);
  CHECK(xml_fault(svg) == "");
  CHECK(count(svg, "stroke-dasharray=\"6 4\"") == 2 * 6);
  CHECK(count(svg, "stroke-dasharray=\"2 3\"") == 2 * 1);
}

TEST_CASE("chart: a hundred thousand points make a small picture") {
  Curves curves;
  curves.panels = {{"loss", {{"train loss", {}, {}}}}};
  auto& series = curves.panels[0].series[0];
  for (int i = 0; i < 100000; ++i) series.x.push_back(i), series.y.push_back(5 + (i % 7) + (i == 50000 ? 40 : 0));
  const std::string svg = curves_svg(curves);
  CHECK(xml_fault(svg) == "");
  CHECK(svg.size() < 50000);
  CHECK(has(svg, "<polygon"));
  CHECK(has(svg, ">60<"));   // the outlier has its place on the axis, 0 to 60
}

TEST_CASE("chart: the line of a thinned series is its mean, the band from its least to its greatest") {
  Curves curves;
  Curves::Series some{"one in four", {}, {}}, steady{"steady", {}, {}};
  for (int i = 0; i < 40000; ++i) {
    some.x.push_back(i), some.y.push_back(i % 4 == 3 ? 8 : 0);
    steady.x.push_back(i), steady.y.push_back(2);
  }
  curves.panels = {{"loss", {some, steady}}};
  const std::string svg = curves_svg(curves);
  const auto heights = [&](const std::string& element, std::size_t from) {               // of the next such element's points
    std::vector<double> y;
    const std::size_t begin = svg.find("<" + element + " points=\"", from) + element.size() + 10;
    std::istringstream points(svg.substr(begin, svg.find('"', begin) - begin));
    for (std::string point; points >> point;) y.push_back(std::stod(point.substr(point.find(',') + 1)));
    return y;
  };
  const std::size_t second = svg.find("<polygon", svg.find("<polyline"));
  const std::vector<double> mean = heights("polyline", 0), constant = heights("polyline", second), band = heights("polygon", 0);
  REQUIRE(mean.size() == constant.size());
  for (std::size_t i = 1; i + 1 < mean.size(); ++i) CHECK(std::abs(mean[i] - constant[i]) < 2);   // px; at the ends are few points
  // 0 to 8; 2
  CHECK(std::ranges::max(band) - std::ranges::min(band) == doctest::Approx(4 * (std::ranges::max(band) - constant[0])).epsilon(1e-2));
}

TEST_CASE("chart: bars") {
  Bars bars{.title = "scores", .value_title = "dev BLEU", .groups = {"none", "dot & more", "general"}, .series = {}};
  bars.series = {{"seed 1", {60, 88.4, NAN}, {}}, {"seed 2", {61, 90, -3}, {1, NAN, 2}}};
  const std::string svg = bars_svg(bars);
  CHECK(xml_fault(svg) == "");
  CHECK(count(svg, "<title>") == 5);
  CHECK(has(svg, "<title>dot &amp; more, seed 1: 88.4</title>"));
  CHECK(has(svg, "<title>none, seed 2: 61 ± 1</title>"));
  CHECK(has(svg, ">no value<"));

  // 100 on an axis from -20 to 100 is 520 px · 5/6, from 0
  const Bars plain{.groups = {"a", "b"}, .series = {{"", {100, -20}, {}}}};
  CHECK(has(bars_svg(plain), "width=\"433.3\""));
  CHECK(has(bars_svg(plain), "width=\"86.7\""));

  CHECK(xml_fault(bars_svg({})) == "");
  CHECK(xml_fault(bars_svg({.groups = {"a"}})) == "");
  bars.series[1].spread.pop_back();
  CHECK_THROWS_WITH_AS(bars_svg(bars), "bars_svg: needs one value a group: \"seed 2\" has values [3], spreads [2], groups [3]",
                       ShapeError);
}
