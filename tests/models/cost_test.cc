// SPDX-License-Identifier: Apache-2.0
#include "models/cost.h"

#include <doctest/doctest.h>

#include "attention/score.h"
#include "tests/every_model.h"

using namespace heed;

namespace {

double cost(const std::string& flags, double S, double T) {
  const SmallModel small(flags);
  return multiply_adds_per_word(small.run.config, *small.parameters, S, T);
}

}  // namespace

TEST_CASE("cost: a Transformer by hand") {
  // One layer, d = F = 16, V = 8, S = T = 1. A layer of the encoder: 4 d² + 2 d F = 1536; of the decoder: 8 d² + 2 d F = 2560;
  // output: d V = 128.
  // Attention over one word: 2 d in each of encoder, decoder, between them = 96.
  CHECK(cost("--layers 1 --heads 2", 1, 1) == doctest::Approx(1536 + 2560 + 128 + 96));
  // Keys and values of the memory, 2 d² of the decoder's 8 d², belong to the source words.
  const double more = cost("--layers 1 --heads 2", 2, 1) - cost("--layers 1 --heads 2", 1, 1);
  CHECK(more == doctest::Approx(1536 + 2 * 256 + 2 * 16 * 3 + 2 * 16));
}

TEST_CASE("cost: layers of the encoder alone, of the decoder alone, and of gates, by hand") {
  // S = 2, T = 3 as below: a layer of the encoder 1536 S + 2 d S²; one of the decoder 2048 T + 512 S + 2 d (6 + S T)
  const auto sentence = [](const std::string& flags) { return 3 * cost("--heads 2 " + flags, 2, 3); };
  const double encoder = 1536 * 2 + 32 * 4, decoder = 2048 * 3 + 512 * 2 + 32 * (6 + 6);
  CHECK(sentence("--layers 3 --decoder-layers 2") == doctest::Approx(3 * encoder + 2 * decoder + 128 * 3));
  // A gate is a third matrix, 16 · 16, of each feed-forward layer.
  CHECK(sentence("--layers 3 --decoder-layers 2 --gated") - sentence("--layers 3 --decoder-layers 2") ==
        doctest::Approx(256 * (3 * 2 + 2 * 3)));
  // Linear attention: sums and what reads them, 16 (8 + 1), of keys and of queries: S twice in the encoder;
  // T twice, S and T in the decoder.
  CHECK(sentence("--linear-attention --layers 3 --decoder-layers 2") ==
        doctest::Approx(3 * 1536 * 2 + 2 * (2048 * 3 + 512 * 2) + 128 * 3 + 16 * 9 * (3 * 4 + 2 * (2 + 9))));
  CHECK(sentence("--positions shaw --layers 3 --decoder-layers 2") - sentence("--layers 3 --decoder-layers 2") ==
        doctest::Approx(2 * 16 * 33 * (3 * 2 + 2 * 3)));
  // The second layer of Bahdanau's encoder reads both directions: 2 · 48 (32 + 16) a source word.
  CHECK(3 * cost("--model gru --layers 2 --decoder-layers 1", 2, 3) - 3 * cost("--model gru", 2, 3) == doctest::Approx(2 * 96 * 48));
}

TEST_CASE("cost: a sliding window costs the same for every word, however long the sentence") {
  const auto growth = [](const std::string& flags, double S, double T) { return (T * cost(flags, S, T) - cost(flags, 0, 0)); };
  // Encoder: 10 words that see up to 2 to each side: 5 · 10 - 6 pairs; decoder: 3 · 10 - 3; 2 d each. Without a window 100 and 55.
  const std::string flags = "--layers 1 --heads 2";
  CHECK(growth(flags, 10, 10) - growth(flags + " --sliding-window 2", 10, 10) == doctest::Approx(2 * 16 * (100 - 44 + 55 - 27)));
  CHECK(growth(flags + " --sliding-window 9", 10, 10) == growth(flags, 10, 10));
}

TEST_CASE("cost: gaps and global tokens: the pairs that are seen, and projections of their own") {
  const std::string flags = "--layers 1 --heads 2 --sliding-window 2";
  const auto sentence = [&](const std::string& more, Index S, Index T) { return double(T) * cost(flags + more, double(S), double(T)); };
  for (const Index n : {1, 2, 5, 10, 11})
    for (const std::vector<Index>& gaps : {std::vector<Index>{1, 1}, {3, 3}, {1, 4}})
      for (const Index global : {0, 1, 3, 30}) {
        double pairs = 0, plain = 0;                                              // of both heads and stacks
        for (const Index g : gaps)
          for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) {
              const bool near = (i - j) % g == 0 && std::abs(i - j) <= 2 * g, side = std::abs(i - j) <= 2;
              pairs += (near || i < global || j < global) + (near && j <= i), plain += side + (side && j <= i);
            }
        const double rows = double(std::min(global, n)), projected = global > 0 ? 16 * 16 * (rows + 2 * double(n)) : 0;
        std::string more = " --dilation " + std::to_string(gaps[0]) + "," + std::to_string(gaps[1]);
        if (global > 0) more += " --global-tokens " + std::to_string(global);
        CAPTURE(n);
        CAPTURE(more);
        CHECK(sentence(more, n, n) - sentence("", n, n) == doctest::Approx(16 * (pairs - plain) + projected));
      }
}

TEST_CASE(
    "cost: talking heads mix two numbers a head of each pair of words, differential ones cost what plain ones do, linear ones grow with "
    "the words") {
  const auto sentence = [](const std::string& flags) { return 7 * cost("--layers 2 --heads 4" + flags, 5, 7); };
  // Encoder 25 pairs, decoder 28 and 35; a layer 2 · 4² for each
  CHECK(sentence(" --talking-heads") - sentence("") == doctest::Approx(2 * (25 + 28 + 35) * 2 * 16));
  CHECK(sentence(" --differential") == sentence(""));
  // Encoder 5 words, decoder 7: sums and what reads them, 16 (4 + 1) each; of pairs 2 · 16 (25 + 28 + 35)
  CHECK(sentence(" --linear-attention") - sentence("") == doctest::Approx(2 * (16 * 5 * 3 * (5 + 7) - 2 * 16 * (25 + 28 + 35))));
  // 10 features of each of 4 heads, made of 4 numbers
  CHECK(sentence(" --linear-attention --random-features 10") - sentence("") ==
        doctest::Approx(2 * (4 * 10 * (5 + 4) * 3 * (5 + 7) - 2 * 16 * (25 + 28 + 35))));
}

TEST_CASE("cost: Shaw's positions, 16 to each side, are read by every query and written by every weight") {
  CHECK(cost("--layers 1 --heads 2 --positions shaw", 3, 4) * 4 - cost("--layers 1 --heads 2", 3, 4) * 4 ==
        doctest::Approx(2 * (3 + 4) * 16 * 33));
}

TEST_CASE("cost: CopyNet's keys once a source word, and their products with each target word's features") {
  CHECK(cost("--layers 1 --heads 2 --copy --copy-form copynet", 3, 4) * 4 - cost("--layers 1 --heads 2", 3, 4) * 4 ==
        doctest::Approx(3 * 16 * 16 + 3 * 4 * 16));
  // l = 8, M = 32
  CHECK(cost("--model gru --copy --copy-form copynet", 3, 4) * 4 - cost("--model gru", 3, 4) * 4 ==
        doctest::Approx(3 * 8 * 32 + 3 * 4 * 8));
}

TEST_CASE("cost: recurrent models") {
  // Bahdanau, n = E = 16, M = 32, A = 16, l = 8, V = 8, S = T = 1:
  //   encoder 2 · 48 · 32 = 3072, U h 512 a source word; W s 256, cell 48 · (48 + 16) = 3072, readout 16 · (16 + 16 + 32) = 1024, output 64;
  //   W_s once 256; score 16 and sum 32 for each source word
  CHECK(cost("--model gru --attention additive", 1, 1) == doctest::Approx(3072 + 512 + 256 + 3072 + 1024 + 64 + 256 + 16 + 32));
  CHECK(cost("--model gru --attention additive", 2, 1) - cost("--model gru --attention additive", 1, 1) ==
        doctest::Approx(3072 + 512 + 48));
  // Two cells instead of one that reads E y and c: one W_hh more
  CHECK(cost("--model gru --decoder conditional --readout maxout --start-state backward", 3, 2) - cost("--model gru", 3, 2) ==
        doctest::Approx(48 * 16));
  // A local attention costs the same for every length beyond its window, but for reading the words.
  const auto growth = [](const std::string& flags) { return (cost(flags, 60, 1) - cost(flags, 50, 1)) / 10; };
  CHECK(growth("--model lstm --attention general") - growth("--model lstm --attention local-m --window 3") == doctest::Approx(16 + 16));
  {
    const ExtraScores extra({NamedScore{"locality", [](Scope s, const ScoreOptions& o) { return make_score("general", s, o); }}});
    CHECK(growth("--model lstm --attention locality") == growth("--model lstm --attention general"));   // by its name no window
  }
  // Coverage, A = 16, reads A numbers for each pair of words; location-aware 7 · 8 + 8 A, F * α and V f.
  const auto score = [](const std::string& name) { return cost("--model gru --decoder luong --attention " + name, 5, 3); };
  CHECK(score("coverage") - score("concat") == doctest::Approx(5 * 16));
  CHECK(score("location-aware") - score("concat") == doctest::Approx(5 * (7 * 8 + 8 * 16)));
  // A location score costs its matrix, in every form the sum beside it.
  CHECK(score("location-entmax") == score("location"));
  CHECK(score("local-m-mean") == score("mean"));
  CHECK(cost("--model gru", 5, 3) == cost("--model gru --attention additive", 5, 3));
  // A bridge is crossed once a sentence: h and c of an LSTM, each 16 · 16.
  for (const double T : {1.0, 3.0})
    CHECK(T * (cost("--model lstm --bridge linear", 5, T) - cost("--model lstm --bridge copy", 5, T)) == doctest::Approx(2 * 256));
  // Without attention one more target word costs its cell, 48 · (16 + 16), readout 16 · (16 + 16) and output 64:
  // what the context gives stays.
  const auto none = [](double T) { return T * cost("--model gru --attention none --decoder cho", 1, T); };
  CHECK(none(3) - none(2) == doctest::Approx(48 * 32 + 16 * 32 + 64));
  CHECK(none(1) == doctest::Approx(cost("--model gru --attention none --decoder cho", 1, 1)));
  // Cho's as it is printed has one matrix more, V_c, once a sentence.
  for (const double T : {1.0, 3.0})
    CHECK(T * cost("--model gru --attention none --decoder cho-exact", 5, T) -
              T * cost("--model gru --attention none --decoder cho", 5, T) ==
          doctest::Approx(256));
  CHECK(cost("--model gru --attention none --decoder cho", 9, 9) < cost("--model gru --attention additive", 9, 9));
}

TEST_CASE("cost: a Transformer of three target words by hand") {
  // As above, with S = 2, T = 3: the encoder's 1536 S; of the decoder 8 d² + 2 d F = 2560 those of keys and values of the memory, 2 d² =
  // 512, S times, else T times; output 128 T. Attention:
  // 2 d S² in the encoder, over 1, 2 and 3 words 2 d (1 + 2 + 3), between them 2 d S T.
  CHECK(3 * cost("--layers 1 --heads 2", 2, 3) == doctest::Approx(1536 * 2 + 2048 * 3 + 512 * 2 + 128 * 3 + 32 * 4 + 32 * 6 + 32 * 6));
}
