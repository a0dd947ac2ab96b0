// SPDX-License-Identifier: Apache-2.0
// Lesson 13: the bottleneck of one vector. Two encoder-decoders learn to copy words of 1 to 12 letters; in the one every step reads the
// encoder's last states, always as many numbers however long the word, in the other attention looks the letters up. Equal widths, equal
// data, equal updates.                        Cho et al. 2014, arXiv 1409.1259, Fig. 4; Bahdanau et al. 2015, arXiv 1409.0473, Fig. 2
#include "models/batch.h"
#include "models/chart.h"
#include "models/recurrent.h"
#include "models/search.h"
#include "models/train.h"
#include "tensor/file.h"
#include "tensor/format.h"

using namespace heed;

// Ids as in lesson 7
constexpr std::int32_t kPad = 0, kStart = 2, kEnd = 3, kFirstLetter = 4, kLetters = 8;
constexpr Index kWidth = 32, kLongest = 12;
using Ids = std::vector<std::int32_t>;

Ids letters(Random& random, Index count) {
  Ids out(static_cast<std::size_t>(count));
  for (std::int32_t& letter : out) letter = kFirstLetter + std::int32_t(random.below(kLetters));
  return out;
}

Batch batch(Random& random, std::size_t size) {
  std::vector<Example> pairs(size);
  for (Example& pair : pairs) {
    pair.source = letters(random, 1 + random.below(kLongest));
    pair.source.push_back(kEnd);
    pair.target = pair.source;
  }
  return make_batch(pairs, kPad, kStart);
}

// Percent of 50 new words of each length that come back whole, after so many updates.
std::vector<double> exact_by_length(const std::string& attention, int updates) {
  Parameters parameters(Seed{1});
  const RecurrentModel model(parameters.root(), {.source_vocabulary = 12,
                                                 .target_vocabulary = 12,
                                                 .encoder = {.unit = RecurrentUnit::gru_bahdanau, .width = kWidth / 2},
                                                 .decoder = BahdanauDecoder::Options{.unit = RecurrentUnit::gru_bahdanau,
                                                                                     .width = kWidth,
                                                                                     .attention = attention,
                                                                                     .context = FixedContext::both_ends}});
  Adam adam(parameters, {});
  Trainer trainer(model, parameters, adam, Schedule({.kind = Schedule::Kind::constant, .peak = 4e-3}), {.loss = {.pad = kPad}});
  Random random{Key(Seed{1})};
  for (int update = 0; update < updates; ++update) {
    const Batch one = batch(random, 32);
    trainer.update({&one, 1});
  }
  std::vector<double> percent;
  for (Index length = 1; length <= kLongest; ++length) {
    std::vector<Ids> words, sources;
    for (int i = 0; i < 50; ++i) {
      words.push_back(letters(random, length));
      sources.push_back(words.back());
      sources.back().push_back(kEnd);
    }
    const auto answers = search(model, sources, {.pad = kPad, .start = kStart, .eos = kEnd});
    int right = 0;
    for (std::size_t i = 0; i < words.size(); ++i) right += answers[i][0].ids == words[i];
    percent.push_back(2.0 * right);
  }
  return percent;
}

int main() {
  Curves curves{.title = "Copied without a mistake", .x_title = "letters of a word", .panels = {{.title = "percent of new words"}}};
  fmt::print("{:<10}", "letters");
  for (Index length = 1; length <= kLongest; ++length) fmt::print("{:>5}", length);
  for (const char* attention : {"none", "additive"}) {
    const std::vector<double> percent = exact_by_length(attention, 600);
    fmt::print("\n{:<10}{:>5.0f}", attention, fmt::join(percent, ""));
    Curves::Series line{.name = attention, .y = percent};
    for (Index length = 1; length <= kLongest; ++length) line.x.push_back(double(length));
    curves.panels[0].series.push_back(line);
  }
  write_file_atomically("13_bottleneck.svg", curves_svg(curves));
  fmt::print("\ndrawn: 13_bottleneck.svg\n");
}

/* Output:
letters       1    2    3    4    5    6    7    8    9   10   11   12
none        100  100  100  100   84   58   40   20    2    2    0    0
additive    100  100  100  100   94   94   94   92   98   96   92   94
drawn: 13_bottleneck.svg
*/
