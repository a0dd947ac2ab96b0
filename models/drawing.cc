// SPDX-License-Identifier: Apache-2.0
#include "models/drawing.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/text.h"
#include "tensor/format.h"

namespace heed::drawing {
namespace {

// C1 controls, non-characters that XML forbids, line separators, marks that turn the direction.
bool never_shown(char32_t code) {
  return (code >= 0x80 && code < 0xA0) || (code & 0xFFFE) == 0xFFFE || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x200E || code == 0x200F || code == 0x061C;
}

// Whether some of it is read from right to left.
bool turns(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const auto direction = utf8proc_get_property(utf8proc_int32_t(c.code))->bidi_class;
    if (direction == UTF8PROC_BIDI_CLASS_R || direction == UTF8PROC_BIDI_CLASS_AL) return true;
    at += c.size;
  }
  return false;
}

// What stands before an arrow stays on its left, what stands behind it on its right: with U+200E on both sides of it.
std::string arrows_held(std::string text) {
  for (const std::string_view arrow : {"←", "→"}) {
    const std::string held = fmt::format("\u200E{}\u200E", arrow);
    for (std::size_t at = 0; (at = text.find(arrow, at)) != text.npos; at += held.size()) text.replace(at, arrow.size(), held);
  }
  return text;
}

struct Cluster {
  std::string_view text;
  int columns;
};

// Grapheme clusters (UAX 29). An emoji made of several code points is as wide as its widest; VS16 asks for the wide form.
std::vector<Cluster> clusters(std::string_view text) {
  std::vector<Cluster> result;
  char32_t before = 0;
  std::int32_t state = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length, valid] = character_at(text, at);
    const int columns = code == 0xFE0F ? 2 : utf8proc_charwidth(utf8proc_int32_t(code));
    if (at == 0 || !continues_cluster(before, code, state)) {
      result.push_back({text.substr(at, length), columns});
    } else {
      Cluster& last = result.back();
      last = {text.substr(std::size_t(last.text.data() - text.data()), last.text.size() + length),
              std::max(last.columns, columns)};
    }
    before = code;
    at += length;
  }
  return result;
}

// Advance in em: classes of DejaVu Sans and Verdana, the widest of the usual fonts; narrower ones leave some air.
double advance(char32_t code) {
  if (code >= 0x20 && code < 0x7F) {
    const char c = char(code);
    constexpr auto among = [](std::string_view set, char c) { return set.find(c) != std::string_view::npos; };
    if (among("ijl.,:;'|! I", c)) return 0.35;
    if (among("frt()[]{}/\\-\"`J", c)) return 0.42;
    if (among("mwMW@%", c)) return 0.97;
    if (among("<>+=~_^#&OQGDHNU", c)) return 0.82;
    return c >= 'A' && c <= 'Z' ? 0.70 : 0.62;
  }
  const int columns = utf8proc_charwidth(utf8proc_int32_t(code));
  return columns == 0 ? 0 : columns == 2 ? (code >= 0x1F000 ? 1.3 : 1.02) : 0.68;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length, valid] = character_at(text, at);
    if (!valid || never_shown(code)) append(result, 0xFFFD);
    else if (code < 0x20) append(result, 0x2400 + code);
    else if (code == 0x7F) append(result, 0x2421);
    else result += text.substr(at, length);
    at += length;
  }
  return result;
}

std::string word(std::string_view token) {
  const std::string shown = printable(token);
  if (!is_blank(shown)) return columns(shown) > 0 ? shown : "\u25CC" + shown;
  std::string blanks;
  for (std::size_t i = 0; i < characters(shown).size(); ++i) blanks += "\u2423";
  return blanks;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return turns(result) ? arrows_held(std::move(result)) : result;
}

int columns(std::string_view text) {
  int sum = 0;
  for (const Cluster& cluster : clusters(text)) sum += cluster.columns;
  return sum;
}

double width(std::string_view text, double size) {
  double em = 0;
  for (const Cluster& cluster : clusters(text)) {
    double widest = 0;
    for (std::size_t at = 0; at < cluster.text.size();) {
      const Character c = character_at(cluster.text, at);
      widest = std::max(widest, advance(c.code));
      at += c.size;
    }
    em += cluster.columns == 2 ? std::max(widest, 1.02) : widest;
  }
  return em * size;
}

std::string shorten(std::string_view text, int limit) {
  const std::size_t most = std::size_t(std::max(0, limit)) * 16;                        // bytes: a letter may have any number of marks
  if (text.size() <= most && columns(text) <= limit) return std::string(text);
  std::string result;
  int used = 1;
  for (const Cluster& cluster : clusters(text)) {
    if ((used += cluster.columns) > limit || result.size() + cluster.text.size() > most) break;
    result += cluster.text;
  }
  return limit > 0 ? result + "…" : std::string();
}

std::string pad_left(std::string_view text, int limit) {
  return std::string(std::size_t(std::max(0, limit - columns(text))), ' ') + std::string(text);
}

std::string pad_right(std::string_view text, int limit) {
  return std::string(text) + std::string(std::size_t(std::max(0, limit - columns(text))), ' ');
}

std::vector<std::string> wrap(std::string_view text, double limit, double size) {
  std::vector<std::string> lines;
  std::string line;
  for (const Cluster& cluster : clusters(text)) {
    line += cluster.text;
    if ((size > 0 ? width(line, size) : columns(line)) <= limit || line.size() == cluster.text.size()) continue;
    const std::size_t blank = line.rfind(' '), cut = blank == std::string::npos ? line.size() - cluster.text.size() : blank;
    lines.push_back(line.substr(0, cut));
    line.erase(0, cut + (cut == blank));
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string px(double value) { return fmt::format("{}", std::round(value * 10) / 10 + 0.0); }

std::string weight(double value) {
  if (!std::isfinite(value)) return "not a number";
  return fmt::format("{:.3f}", std::abs(value) < 0.0005 ? 0.0 : value);
}

std::string number(double value) {
  if (!std::isfinite(value)) return "no value";
  if (std::abs(value) >= 9999.5 && std::abs(value) < 1e12) return with_commas(fmt::format("{:.0f}", value));
  std::string text = fmt::format("{:.4g}", value + 0.0);
  for (const std::string_view exponent : {"e-0", "e+0"})   // 5e-05 -> 5e-5
    if (const std::size_t at = text.find(exponent); at != std::string::npos) text.erase(at + 2, 1);
  if (const std::size_t at = text.find("e+"); at != std::string::npos) text.erase(at + 1, 1);
  return text;
}

double radians(double degrees) { return degrees * 3.14159265358979323846 / 180; }

Rgb heat(double x) {
  if (!std::isfinite(x)) return {196, 196, 196};
  const double w = std::min(std::abs(x), 1.0);
  const double L = 0.975 - 0.675 * w;
  const double C = std::min(0.010 + 0.33 * w, 0.16 - 0.06 * w);  // within sRGB for both hues at every lightness used
  const double hue = radians(x < 0 ? 20 : 258);
  const double a = C * std::cos(hue), b = C * std::sin(hue);
  const auto cube = [](double v) { return v * v * v; };
  const double l = cube(L + 0.3963377774 * a + 0.2158037573 * b), m = cube(L - 0.1055613458 * a - 0.0638541728 * b),
               s = cube(L - 0.0894841775 * a - 1.2914855480 * b);
  const auto channel = [](double linear) {
    const double v = std::clamp(linear, 0.0, 1.0);
    return int(std::lround(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * std::pow(v, 1 / 2.4) - 0.055)));
  };
  return {channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

std::string hex(Rgb colour) { return fmt::format("#{:02x}{:02x}{:02x}", colour.r, colour.g, colour.b); }

bool dark(Rgb colour) { return 299 * colour.r + 587 * colour.g + 114 * colour.b < 140000; }

void Page::grow(double x, double y) {
  right_ = std::max(right_, x);
  bottom_ = std::max(bottom_, y);
}

void Page::text(double x, double y, std::string_view text, const TextStyle& style, std::string_view title) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"", px(x), px(y), px(style.size), style.colour);
  if (style.anchor == Anchor::middle) body_ += " text-anchor=\"middle\"";
  if (style.anchor == Anchor::end) body_ += " text-anchor=\"end\"";
  if (style.bold) body_ += " font-weight=\"600\"";
  if (style.angle != 0) body_ += fmt::format(" transform=\"rotate({} {} {})\"", px(style.angle), px(x), px(y));
  body_ += '>';
  if (!title.empty()) body_ += fmt::format("<title>{}</title>", escape(title));
  body_ += escape(text) + "</text>\n";
  const double after = style.anchor == Anchor::start ? 1 : style.anchor == Anchor::middle ? 0.5 : 0;   // share right of x
  grow(x + after * width(text, style.size) * (style.bold ? kBold : 1) * std::cos(radians(style.angle)), y);
}

void Page::rect(double x, double y, double width, double height, std::string_view attributes, std::string_view title) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}", px(x), px(y), px(width), px(height),
                       attributes);
  body_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape(title));
  grow(x + width, y + height);
}

void Page::line(double x1, double y1, double x2, double y2, std::string_view colour, double thickness) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", px(x1), px(y1),
                       px(x2), px(y2), colour, px(thickness));
  grow(std::max(x1, x2), std::max(y1, y2));
}

double Page::paragraph(double y, std::string_view content, double limit) {
  for (const std::string& line : wrap(printable(content), limit, 11.5)) {
    text(kMargin, y + 11, line, {.size = 11.5, .colour = kMuted});
    y += 16;
  }
  return y;
}

void Page::heading(std::string_view title) {
  constexpr double kSize = 17, kLine = 22;
  const std::string below = std::exchange(body_, "");
  const std::vector<std::string> lines = wrap(printable(title), (right_ - kMargin) / kBold, kSize);
  for (std::size_t i = 0; i < lines.size(); ++i) text(kMargin, kMargin + 15 + kLine * double(i), lines[i], {.size = kSize, .bold = true});
  const double moved = lines.empty() ? 0 : kLine * double(lines.size()) + 8;
  body_ += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", px(moved), below);
  bottom_ += moved;
}

std::string Page::svg(std::string_view title) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-label=\"{2}\" font-family=\"{3}\" direction=\"ltr\" unicode-bidi=\"isolate\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{4}</svg>\n",
      px(std::ceil(right_ + kMargin)), px(std::ceil(bottom_ + kMargin)), escape(title), kFont, body_);
}

Ticks ticks(double low, double high, int count, double least) {
  constexpr double kHuge = 1e300, kTiny = 1e-290;
  for (double* const end : {&low, &high}) *end = std::abs(*end) < kTiny ? 0 : std::clamp(*end, -kHuge, kHuge);
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {   // one value: make room around it
    const double room = low == 0 ? 1 : std::abs(low) * 0.5;
    low -= room, high = low + 2 * room;
  }
  const double rough = (high - low) / std::max(count, 1), power = std::pow(10.0, std::floor(std::log10(rough)));
  const double fraction = rough / power, step = std::max(least, power * (fraction < 1.5 ? 1 : fraction < 3.2 ? 2 : fraction < 7 ? 5 : 10));
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  const double largest = std::max(std::abs(first), std::abs(last)) * step;
  const int exponent = int(std::floor(std::log10(step) + 1e-9));
  Ticks result;
  for (double k = first; k <= last; ++k) {
    const double value = k * step + 0.0;   // no -0
    result.values.push_back(value);
    if (value == 0) {
      result.labels.push_back("0");
    } else if (largest < 1e-2 || largest >= 1e7) {   // "2e-4"
      const int tens = int(std::floor(std::log10(std::abs(value)) + 1e-9));
      result.labels.push_back(fmt::format("{:.{}g}e{}", value / std::pow(10.0, tens), tens - exponent + 1, tens));
    } else {
      const std::string label = fmt::format("{:.{}f}", value, std::max(0, -exponent));
      result.labels.push_back(largest >= 10000 ? with_commas(label) : label);
    }
  }
  return result;
}

}  // namespace heed::drawing
