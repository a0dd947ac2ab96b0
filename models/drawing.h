// SPDX-License-Identifier: Apache-2.0
// What the pictures share: text made safe and measured, the colours of weights, an SVG page. No number depends on the locale.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace heed::drawing {

// ---- text ------------------------------------------------------------------------------------------
// Valid UTF-8 that any XML, HTML or terminal takes: control characters as their pictures (␀ .. ␡); bytes that are no UTF-8,
// and marks that turn the direction of what follows, as U+FFFD.
std::string printable(std::string_view text);
// printable; white space alone becomes ␣, a mark without a letter stands on ◌: other tokens stay other words
std::string word(std::string_view token);
// printable, then & < > " ' as entities: for XML text and attributes. Arrows keep what stands on which side, also beside words that are read
// from right to left.
std::string escape(std::string_view text);

int columns(std::string_view text);                 // terminal columns of printable text: grapheme clusters of 0, 1 or 2
double width(std::string_view text, double size);   // px at a font size of `size` px, estimated for a wide sans serif
inline constexpr double kBold = 1.17;               // how much wider bold letters are at most, those of DejaVu Sans
std::string shorten(std::string_view text, int columns);    // "extraord…" within that many columns
std::string pad_left(std::string_view text, int columns);   // with blanks before it
std::string pad_right(std::string_view text, int columns);
// Lines broken at blanks, or inside of what is longer than a line. The limit is in px, or in terminal columns where size = 0.
std::vector<std::string> wrap(std::string_view text, double limit, double size = 0);

std::string px(double value);                       // a coordinate: "12.5", rounded to 0.1
std::string weight(double value);                   // "0.832", "-0.050", "not a number"
std::string number(double value);                   // four digits or the whole part: "41.08", "5e-5", "12,345"; "no value"

// ---- colours ---------------------------------------------------------------------------------------
struct Rgb {
  int r, g, b;
};
// OKLCH (Ottosson 2020), lightness 0.975 at x = 0, falling evenly to 0.30 at |x| = 1; blue above 0, red below. NaN is grey.
Rgb heat(double x);
std::string hex(Rgb colour);                        // "#08306b"
bool dark(Rgb colour);                              // white text reads better on it than black

inline constexpr std::string_view kInk = "#1f2933", kMuted = "#5f6b7a", kRule = "#dfe4ea", kGold = "#f08c00";
inline constexpr std::string_view kFont =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";

// ---- SVG -------------------------------------------------------------------------------------------
double radians(double degrees);

enum class Anchor { start, middle, end };
struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  std::string_view colour = kInk;
  double angle = 0;       // degrees, clockwise, about (x, y)
  bool bold = false;
};

// A white page that grows with what is drawn on it. Lengths in px from its upper left corner; `title` is a tooltip.
class Page {
 public:
  static constexpr double kMargin = 24;
  void text(double x, double y, std::string_view text, const TextStyle& style, std::string_view title = {});   // y: base line
  void rect(double x, double y, double width, double height, std::string_view attributes, std::string_view title = {});
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double thickness = 1);
  void add(std::string_view element) { body_ += element; }       // does not grow the page
  double paragraph(double y, std::string_view text, double limit);   // returns the y below; "" draws nothing
  void heading(std::string_view title);    // in lines no wider than what is drawn so far, which moves down for it
  double right() const { return right_; }
  std::string svg(std::string_view title) const;                 // the document; `title` for screen readers

 private:
  void grow(double x, double y);
  std::string body_;
  double right_ = kMargin + 420, bottom_ = 0;
};

// Steps of 1, 2, 5 · 10^k, not below `least`, that cover [low, high] in about `count` intervals, and their labels with just enough digits.
struct Ticks {
  std::vector<double> values;
  std::vector<std::string> labels;
};
Ticks ticks(double low, double high, int count, double least = 0);

}  // namespace heed::drawing
