// SPDX-License-Identifier: Apache-2.0
// What the three forms of an AttentionPicture have in common.
#pragma once
#include <string_view>

#include "models/picture.h"

namespace heed::picture {

using Map = AttentionPicture::Map;

// ShapeError, IndexError (op names the caller). Every function below takes a picture that passed.
void check_picture(std::string_view op, const AttentionPicture& picture);

const std::vector<std::string>& row_words(const AttentionPicture& picture, const Map& map);
const std::vector<std::string>& column_words(const AttentionPicture& picture, const Map& map);
std::string_view kind(AttentionPicture::Axes axes);   // "cross-attention", "encoder self-attention", "decoder self-attention"
std::string_view row_title(const AttentionPicture& picture, AttentionPicture::Axes axes);   // "target word being written"
std::string_view column_title(AttentionPicture::Axes axes);                                 // "source word looked at"
std::string caption(const AttentionPicture& picture);   // its own, or a sentence on rows, columns and heads

// Columns that lie side by side in a window, first and last
std::vector<std::pair<Index, Index>> runs(const AttentionPicture::Window& window, Index columns);

struct Scale {
  double full;       // weight of the darkest colour
  bool two_sided;    // some weight is negative
  bool gaps;         // some weight is not finite
  double operator()(float weight) const { return weight / full; }   // to the -1..1 of drawing::heat
};
Scale scale(const AttentionPicture& picture);

enum class Mark { none, possible, sure };
std::vector<Mark> gold_marks(const AttentionPicture& picture, const Map& map);   // [rows, columns], empty: none to be drawn

}  // namespace heed::picture
