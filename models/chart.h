// SPDX-License-Identifier: Apache-2.0
// Lines and bars as SVG text: how a training went, how runs compare. No file is written here.
#pragma once
#include <string>
#include <vector>

namespace heed {

struct Curves {
  struct Series {
    std::string name{};            // "train loss"
    std::vector<double> x{}, y{};  // of equal length; a value that is not finite leaves a gap
    std::vector<double> spread{};  // half the height of a whisker, one a point; empty: none
  };
  struct Panel {
    std::string title{};           // "loss per token"
    std::vector<Series> series{};
  };
  std::string title{}, caption{}, x_title = "update";
  std::vector<Panel> panels{};     // one below the other over the same x
};
// ShapeError if x, y and spread of a series differ in length.
std::string curves_svg(const Curves& curves);

struct Bars {
  struct Series {
    std::string name{};            // "seed 1"
    std::vector<double> values{};  // one a group; not finite: "no value"
    std::vector<double> spread{};  // half the length of a whisker, one a group; empty: none
  };
  std::string title{}, caption{}, value_title{};
  std::vector<std::string> groups{};   // "additive", "general", ...
  std::vector<Series> series{};
};
// Bars lie level, so that long names stay readable. ShapeError if values, spreads and groups differ in number.
std::string bars_svg(const Bars& bars);

}  // namespace heed
