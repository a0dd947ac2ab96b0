// SPDX-License-Identifier: Apache-2.0
#include "models/picture.h"

#include <algorithm>
#include <cmath>

#include "models/picture_parts.h"
#include "tensor/format.h"

namespace heed {

using Axes = AttentionPicture::Axes;

AttentionPicture::Map mean_map(std::span<const AttentionPicture::Map> maps) {
  check<ShapeError>(!maps.empty(), "mean_map: needs at least one map: maps 0");
  AttentionPicture::Map mean = maps[0];
  std::vector<double> sum(mean.weights.size());
  for (const auto& map : maps) {
    check<ShapeError>(map.weights.size() == sum.size() && map.rows.size() == mean.rows.size() &&
                          map.columns.size() == mean.columns.size(),
                      "mean_map: sizes differ: \"{}\" has {} weights, \"{}\" has {}", label(maps[0]), sum.size(), label(map),
                      map.weights.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += map.weights[i];
    if (map.windows != maps[0].windows) mean.windows.clear();
  }
  for (std::size_t i = 0; i < sum.size(); ++i) mean.weights[i] = float(sum[i] / double(maps.size()));
  mean.head = 0;
  mean.heads = int(maps.size());
  mean.label.clear();
  return mean;
}

std::vector<AttentionPicture::Map> with_means(std::span<const AttentionPicture::Map> maps) {
  std::vector<AttentionPicture::Map> result;
  while (!maps.empty()) {
    const AttentionPicture::Map& first = maps[0];
    std::size_t count = 0;
    bool plain = true;
    for (; count < maps.size() && maps[count].axes == first.axes && maps[count].layer == first.layer; ++count)
      plain &= maps[count].head > 0 && maps[count].rows == first.rows && maps[count].columns == first.columns;
    const auto heads = maps.first(count);
    if (plain && count > 1) result.push_back(mean_map(heads));
    result.insert(result.end(), heads.begin(), heads.end());
    maps = maps.subspan(count);
  }
  return result;
}

std::string label(const AttentionPicture::Map& map) {
  if (!map.label.empty()) return map.label;
  std::string text = map.axes == Axes::encoder_self ? "encoder" : "decoder";
  if (map.layer > 0) text += fmt::format(" layer {}", map.layer);
  if (map.head > 0) text += fmt::format(", head {}", map.head);
  else if (map.heads > 1) text += fmt::format(", mean over {} heads", map.heads);
  return text + (map.axes == Axes::cross ? ", cross-attention" : ", self-attention");
}

namespace picture {

std::vector<std::pair<Index, Index>> runs(const AttentionPicture::Window& window, Index columns) {
  if (window.step == 1 && window.front == 0) return {{window.first, window.last}};
  std::vector<std::pair<Index, Index>> all;
  for (Index s = 0; s < columns; ++s) {
    if (!window.sees(s)) continue;
    if (all.empty() || all.back().second + 1 < s) all.emplace_back(s, s);
    all.back().second = s;
  }
  return all;
}

const std::vector<std::string>& row_words(const AttentionPicture& picture, const Map& map) {
  return !map.rows.empty() ? map.rows : map.axes == Axes::encoder_self ? picture.source : picture.target;
}

const std::vector<std::string>& column_words(const AttentionPicture& picture, const Map& map) {
  return !map.columns.empty() ? map.columns : map.axes == Axes::decoder_self ? picture.target : picture.source;
}

void check_picture(std::string_view op, const AttentionPicture& picture) {
  check<ShapeError>(!picture.maps.empty(), "{}: needs at least one map: maps 0", op);
  for (std::size_t m = 0; m < picture.maps.size(); ++m) {
    const Map& map = picture.maps[m];
    const std::size_t rows = row_words(picture, map).size(), columns = column_words(picture, map).size();
    check<ShapeError>(map.weights.size() == rows * columns,
                      "{}: weights and words differ in number: map {} \"{}\" has {} weights, words [{}, {}] ({} and {})", op, m,
                      label(map), map.weights.size(), rows, columns, map.weights.size(), rows * columns);
    check<ShapeError>(map.windows.empty() || map.windows.size() == rows,
                      "{}: needs no window or one a row: map {} \"{}\" has {} windows, {} rows", op, m, label(map),
                      map.windows.size(), rows);
    for (const auto& window : map.windows)
      check<IndexError>(window.step >= 1, "{}: a window without steps: map {} \"{}\": step {}, at least 1", op, m, label(map), window.step);
    if (map.axes != Axes::cross) continue;
    for (const auto* links : {&picture.gold.sure, &picture.gold.possible})
      for (const auto [s, t] : *links)
        check<IndexError>(s >= 0 && s < Index(columns) && t >= 0 && t < Index(rows),
                          "{}: link {}-{} is not in [0, {}) x [0, {}), the words of map {} \"{}\"", op, s, t, columns, rows, m,
                          label(map));
  }
}

std::string_view kind(Axes axes) {
  if (axes == Axes::cross) return "cross-attention";
  return axes == Axes::encoder_self ? "encoder self-attention" : "decoder self-attention";
}

std::string_view row_title(const AttentionPicture& picture, Axes axes) {
  if (axes == Axes::encoder_self) return "source word that looks";
  return picture.rows == AttentionPicture::Rows::predicted ? "target word being written" : "target word just read";
}

std::string_view column_title(Axes axes) {
  return axes == Axes::decoder_self ? "target word looked at" : "source word looked at";
}

namespace {

std::string sentences(const AttentionPicture& picture) {
  const Map& first = picture.maps[0];
  const auto count = [&](auto holds) { return std::size_t(std::count_if(picture.maps.begin(), picture.maps.end(), holds)); };
  std::string text;
  if (picture.maps.size() == 1) {
    text = label(first) + ". ";
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = char(text[0] - 'a' + 'A');
  }
  if (count([&](const Map& m) { return m.axes == first.axes; }) == picture.maps.size())
    text += fmt::format("Row: the {}. Column: the {}. ", row_title(picture, first.axes), column_title(first.axes));
  else
    text += fmt::format("Row: the word that looks, in the decoder the {}. Column: the word looked at. ",
                        row_title(picture, Axes::cross));
  const std::size_t averaged = count([](const Map& m) { return m.head == 0 && m.heads > 1; });
  if (count([](const Map& m) { return m.head > 0 || m.heads > 1; }) == 0) return text.substr(0, text.find_last_not_of(' ') + 1);
  if (averaged == 0) return text + "No heads were averaged.";
  if (averaged < picture.maps.size()) return text + "Heads were averaged where the label says so.";
  return text + fmt::format("Each weight is the mean over {} heads.", first.heads);
}

}  // namespace

std::string caption(const AttentionPicture& picture) {
  const std::string text = picture.caption.empty() ? sentences(picture) : picture.caption;
  return picture.note.empty() ? text : text + " " + picture.note;
}

Scale scale(const AttentionPicture& picture) {
  Scale scale{picture.full, false, false};
  for (const Map& map : picture.maps)
    for (const float w : map.weights) {
      scale.gaps |= !std::isfinite(w);
      scale.two_sided |= w < 0;
      const double size = std::isfinite(w) ? std::abs(w) : 0;
      if (size > 1.0001 * picture.full) scale.full = std::max(scale.full, size);   // not for the rounding of a softmax
    }
  if (!(scale.full > 0)) scale.full = 1;
  return scale;
}

std::vector<Mark> gold_marks(const AttentionPicture& picture, const Map& map) {
  if (map.axes != Axes::cross || (picture.gold.sure.empty() && picture.gold.possible.empty())) return {};
  const std::size_t columns = column_words(picture, map).size();
  std::vector<Mark> cells(map.weights.size(), Mark::none);
  for (const auto [s, t] : picture.gold.possible) cells[std::size_t(t) * columns + std::size_t(s)] = Mark::possible;
  for (const auto [s, t] : picture.gold.sure) cells[std::size_t(t) * columns + std::size_t(s)] = Mark::sure;
  return cells;
}

}  // namespace picture
}  // namespace heed
