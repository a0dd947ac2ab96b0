// SPDX-License-Identifier: Apache-2.0
// One step of decoding taken apart: every value that the model computes, with its name, shape, numbers and formula, and backwards
// the gradient of the loss with respect to it. What is shown is what a Trace of the model's own step collects.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "autograd/trace.h"
#include "models/run.h"

namespace heed {

struct Explanation {
  struct Value {
    std::string name, formula;                     // "core.decoder.layers.0.multihead_attn.weights", "α = softmax(e)"
    bool once = false;                             // computed once a sentence, before the first step
    Trace::Axes axes;
    Tensor value;                                  // [n], or a row for each word [m, n]; of one head
    Tensor gradient{};                             // d loss / d value of the same shape; undefined where there is none
    std::vector<std::string> columns{}, rows{};    // words along the axes; empty where none stand there
  };
  struct Word {
    std::string word;
    double probability;
    std::int32_t id;
  };
  std::vector<std::string> source, read;           // read: the start symbol and the words so far; the last one is this step's input
  Index step = 1, steps = 1;                       // from 1; words of the target, eos counted
  Index layer = 0, layers = 0, head = 1, heads = 1;   // of the decoder, whose values these are, from 1; layers 0: none to choose from
  // in the order of computation; a stack without input feeding is one op: its lower states have no gradient
  std::vector<Value> values;
  std::vector<Word> top;                           // the likeliest next words, falling, the wanted one in any case
  Word written{};                                  // by the model: the likeliest that a search writes, no <pad>, no <s>
  std::string wanted{};                            // the target's word
  std::optional<double> loss{};                    // L = -log p(wanted) of this step alone
};

struct ExplainOptions {
  Index step = 1;
  Index layer = 0, head = 1;                       // of a Transformer's decoder, from 1; 0: the last layer
  Index top = 5;
  bool backward = false;
};
// The step of example.target that reads its words before `step`. IndexError where step, layer or head are not there.
Explanation explain(const Run& run, const Seq2Seq& model, const Example& example, const ExplainOptions& options = {});

struct ExplanationStyle {
  int columns = 100;                               // of the terminal
  bool colour = false;
  Index numbers = 8;                               // shown of a row of units
};
std::string explanation_text(const Explanation& explanation, const ExplanationStyle& style = {});
std::string explanation_json(const Explanation& explanation);   // with all numbers

}  // namespace heed
