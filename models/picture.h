// SPDX-License-Identifier: Apache-2.0
// Pictures of attention as text: SVG, one self-contained HTML page, or a terminal. No file is read or written here.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "models/alignment.h"

namespace heed {

// The weights of one sentence pair, one map for each layer and head that is to be shown.
struct AttentionPicture {
  enum class Axes { cross, encoder_self, decoder_self };  // rows look at columns: target at source, source at source, ..
  // Luong et al. 2015, footnote 14: row t aligns the word it predicts (location scores) or the word just read (content scores).
  enum class Rows { predicted, input };
  struct Window {                         // columns a row may look at
    Index first, last;                    // both included; parts beyond the words are cut off
    Index step = 1, front = 0;            // only every step-th of them, and besides [0, front)
    bool sees(Index s) const { return s < front || (s >= first && s <= last && (s - first) % step == 0); }
    bool operator==(const Window&) const = default;
  };
  struct Map {
    std::vector<float> weights{};         // [rows, columns], row-major
    Axes axes = Axes::cross;
    int layer = 0;                        // from 1; 0: the model has no layers of attention
    int head = 0;                         // from 1; 0: the mean over `heads` heads
    int heads = 1;
    std::string label{};                  // empty: made of the above, "decoder layer 2, head 3, cross-attention"
    std::vector<std::string> rows{}, columns{};  // empty: source or target, as the axes say
    std::vector<Window> windows{};        // empty, or one a row
  };

  std::vector<std::string> source{}, target{};
  std::vector<Map> maps{};
  std::string title{}, caption{};         // no caption: a sentence that says what rows, columns and heads are
  std::string note{};                     // what follows the caption
  Alignment gold{};                       // drawn over cross maps: sure links as squares, possible ones dashed
  Rows rows = Rows::predicted;
  double full = 1;                        // weight of the darkest colour; 0: the largest of all, as where one is larger
  bool numbers = false;                   // SVG: print the weights into the cells
};

// The mean of maps of equal size, as one map with head = 0, with windows where all have the same. ShapeError if their sizes differ.
AttentionPicture::Map mean_map(std::span<const AttentionPicture::Map> maps);
// The maps, and where several heads of a layer come without their mean, that mean before them.
std::vector<AttentionPicture::Map> with_means(std::span<const AttentionPicture::Map> maps);
std::string label(const AttentionPicture::Map& map);

// All three: ShapeError when weights, windows and words differ in number, IndexError for a link outside of the words.

// Source words on x, target words on y (Bahdanau et al. 2015, Fig. 3): one map, or all side by side, a row of them a layer.
std::string attention_svg(const AttentionPicture& picture);
// One page without any other file: choose kind, layer and head (or their mean); a word pointed at shows its numbers.
std::string attention_html(const AttentionPicture& picture);

enum class TerminalColour { none, indexed, rgb };  // shade blocks, 256 colours, 24-bit colours
// For a terminal `columns` wide (at least 40): long words are shortened, wide maps cut into pieces.
std::string attention_text(const AttentionPicture& picture, int columns, TerminalColour colour = TerminalColour::none);

}  // namespace heed
