// SPDX-License-Identifier: Apache-2.0
// Text of tensors by the rules of NumPy's array2string: one format for all elements shown, up to 4 digits after the point,
// exponents where the magnitudes are far apart, each as long as it needs, 75 columns, three items at each edge of what is larger than 1000.
#include <charconv>
#include <cmath>
#include <ostream>

#include "tensor/format.h"
#include "tensor/tensor.h"

namespace heed {
namespace {

constexpr Index kThreshold = 1000, kEdge = 3;
constexpr std::size_t kLineWidth = 75;
constexpr int kDigits = 4;

// Shortest text that reads back as x, at most `digits` after the point, zeros at the end dropped: 0.1, 2., 1.25e-07.
template <class T> std::string number(T x, std::chars_format format, int digits, bool trim = true) {
  std::string buffer(std::size_t(digits) + 512, ' ');            // at most 309 digits before the point, 343 characters for the shortest
  char *const begin = buffer.data(), *const limit = begin + buffer.size();
  auto end = std::to_chars(begin, limit, x, format).ptr;
  const auto parts = [&] {
    const std::string_view text(begin, std::size_t(end - begin));
    const auto e = std::min(text.find('e'), text.size()), point = std::min(text.find('.'), e);
    return std::array{text.substr(0, point), point < e ? text.substr(point + 1, e - point - 1) : std::string_view{},
                      text.substr(e)};
  };
  if (!trim || int(parts()[1].size()) > digits) end = std::to_chars(begin, limit, x, format, digits).ptr;
  auto [whole, fraction, exponent] = parts();
  if (trim) fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  if (!trim && digits == 0 && exponent.empty()) return std::string(whole);
  return fmt::format("{}.{}{}", whole, fraction, exponent);
}

// Texts of equal width, points below one another.
template <class T> std::vector<std::string> texts_of(const std::vector<T>& values, int precision) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  std::size_t left = 0, right = 0;                               // columns up to the point, and from the point on
  if constexpr (std::is_integral_v<T>) {
    for (T value : values) texts.push_back(std::to_string(value));
  } else {
    double largest = 0, smallest = INFINITY;
    for (T value : values)
      if (std::isfinite(value) && value != 0) {
        largest = std::max(largest, double(std::abs(value)));
        smallest = std::min(smallest, double(std::abs(value)));
      }
    const bool scientific = precision < 0 && largest > 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
    const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
    int digits = precision < 0 ? kDigits : precision;
    if (scientific) {                                            // as many digits as the longest needs
      int most = 0;
      for (T value : values)
        if (std::isfinite(value)) {
          const std::string text = number(value, format, digits);
          most = std::max(most, int(text.find('e') - text.find('.')) - 1);
        }
      digits = most;
    }
    for (T value : values)
      texts.push_back(std::isfinite(value) ? number(value, format, digits, precision < 0 && !scientific)
                                           : std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
  }
  const auto point = [](const std::string& text) { return std::min(text.find('.'), text.size()); };
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (std::is_integral_v<T> || std::isfinite(double(values[i]))) {
      left = std::max(left, point(texts[i]));
      right = std::max(right, texts[i].size() - point(texts[i]));
    }
  for (const std::string& text : texts) left = std::max(left, text.size() < right ? 0 : text.size() - right);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string& text = texts[i];
    if (!std::is_integral_v<T> && !std::isfinite(double(values[i]))) {
      text.insert(0, left + right - std::min(text.size(), left + right), ' ');
    } else {
      text.insert(0, left - point(text), ' ');
      text.append(left + right - text.size(), ' ');
    }
  }
  return texts;
}

// The positions shown along each axis; -1 stands for the dots.
using Shown = std::vector<std::vector<Index>>;

template <class F> void visit_shown(const Tensor& x, const Shown& shown, int axis, Index offset, F&& f) {
  if (axis == x.rank()) return f(offset);
  for (Index i : shown[std::size_t(axis)])
    if (i >= 0) visit_shown(x, shown, axis + 1, offset + i * x.strides()[axis], f);
}

struct Writer {
  const Shown& shown;
  std::vector<std::string> texts;
  std::size_t next = 0;

  // Rows are broken where they would pass `width`; what follows is indented below the bracket.
  std::string write(int axis, const std::string& indent, std::size_t width) {
    const int left = int(shown.size()) - axis;
    if (left == 0) return texts[next++];
    std::string out;
    if (left == 1) {
      std::string line = indent;
      bool first = true;
      for (Index i : shown.back()) {
        if (!std::exchange(first, false)) line += ' ';
        const std::string word = i < 0 ? "..." : texts[next++];
        if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
          out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
          line = indent;
        }
        line += word;
      }
      out += line;
    } else {
      bool first = true;
      for (Index i : shown[std::size_t(axis)]) {
        if (!std::exchange(first, false)) out.append(std::size_t(left - 1), '\n');
        out += indent + (i < 0 ? "..." : write(axis + 1, indent + ' ', width - 1));
      }
    }
    return fmt::format("[{}]", std::string_view(out).substr(indent.size()));
  }
};

}  // namespace

std::string to_string(const Tensor& x, int precision) {
  if (!x.defined()) return "(no tensor)";
  if (x.numel() == 0) return "[]";
  Shown shown;
  for (Index size : x.shape()) {
    auto& axis = shown.emplace_back();
    const bool cut = x.numel() > kThreshold && size > 2 * kEdge;
    for (Index i = 0; i < (cut ? kEdge : size); ++i) axis.push_back(i);
    if (cut) axis.push_back(-1);
    for (Index i = cut ? size - kEdge : size; i < size; ++i) axis.push_back(i);
  }
  return visit_any(x.dtype(), [&]<class T>() {
    using Shortest = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
    std::vector<Shortest> values;
    const T* data = x.data<T>();
    visit_shown(x, shown, 0, 0, [&](Index offset) { values.push_back(Shortest(data[offset])); });
    auto texts = texts_of(values, std::min(precision, 1000));   // a double has no more
    if (x.rank() == 0) return texts[0].back() == '.' ? texts[0] + '0' : texts[0];
    return Writer{shown, std::move(texts)}.write(0, " ", kLineWidth);
  });
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace heed

auto fmt::formatter<heed::Tensor>::format(const heed::Tensor& x, format_context& ctx) const -> format_context::iterator {
  if (!shape_only) return format_to(ctx.out(), "{}", heed::to_string(x, precision));
  if (!x.defined()) return format_to(ctx.out(), "(no tensor)");
  return format_to(ctx.out(), "{} {}", x.shape(), x.dtype());
}
