// SPDX-License-Identifier: Apache-2.0
// Recurrent cells and layers; formulas in tensor/ops/recurrent.h. Names and packings are PyTorch's: weight_ih [gates n, in],
// weight_hh [gates n, n], bias_ih, bias_hh [gates n]; in layers they end in _l{k} and _l{k}_reverse.
#pragma once
#include <vector>

#include "autograd/ops.h"
#include "nn/scope.h"

namespace heed {

enum class GruForm { bahdanau, cho, cudnn };      // two papers', PyTorch's
RecurrentUnit gru_unit(GruForm form);

// Initial values, weight_ih and weight_hh gate by gate; what is left empty starts as PyTorch's, U(±1/√n).
struct RecurrentInit { Initializer weight_ih = {}, weight_hh = {}, bias = {}; };
RecurrentInit bahdanau_recurrent_init();          // N(0, 0.01²), W_hh orthogonal, biases 0       Bahdanau et al. 2015, B.1
RecurrentInit uniform_recurrent_init(double r);   // U(±r): Sutskever et al. 2014 r = 0.08, Luong et al. 2015 r = 0.1

// One step of a unit. RnnCell, LstmCell and GruCell are its makers with their own options.
struct RecurrentCell {
  struct Options {
    RecurrentUnit unit;
    Index in, width;
    bool bias = true;
    // written into the f block of an LSTM's bias_ih at the start, never added in the formula; Error without one
    double forget_bias = 0;
    RecurrentInit init = {};
  };
  RecurrentCell(Scope scope, Options options);

  // x [B, in], state [B, n]; h or c undefined: zero -> the next state. The output of the step is its h.
  RecurrentState operator()(const Variable& x, const RecurrentState& state) const;
  // The two halves of a step: x [..., in] of one or all steps -> its part of the gates, x W_ihᵀ + b_ih [..., gates n]; a further
  // input may have been added to it.
  Variable input(const Variable& x) const;
  RecurrentState step(const Variable& gates, const RecurrentState& state) const;
  // in place of b_hh: [gates n], or of each row [B, gates n]
  RecurrentState step(const Variable& gates, const RecurrentState& state, const Variable& bias) const;
  RecurrentState zero_state(Index batch) const;

  Parameter weight_ih, weight_hh, bias_ih, bias_hh;
  RecurrentUnit unit;
  Index width;
  Path path;
};

struct RnnCell : RecurrentCell {
  struct Options { Index in, width; bool relu = false, bias = true; RecurrentInit init = {}; };
  RnnCell(Scope scope, Options options);
};
struct LstmCell : RecurrentCell {
  struct Options { Index in, width; bool bias = true; double forget_bias = 0; RecurrentInit init = {}; };
  LstmCell(Scope scope, Options options);
};
struct GruCell : RecurrentCell {
  struct Options { Index in, width; GruForm form = GruForm::cudnn; bool bias = true; RecurrentInit init = {}; };
  GruCell(Scope scope, Options options);
};

// A stack of layers over time. Layer k reads layer k-1; both directions read the same input and their outputs are joined.
// ShapeError where a width or the number of layers is below 1.
struct RecurrentLayers {
  struct Options {
    RecurrentUnit unit;
    Index in, width;                // width of one direction
    Index layers = 1;
    bool bidirectional = false;
    double dropout = 0;             // between layers, as PyTorch's; Error with one layer
    double dropout_in = 0, dropout_out = 0;   // at both ends. Zaremba et al. 2014: all three equal
    bool bias = true;
    double forget_bias = 0;
    RecurrentInit init = {};
  };
  RecurrentLayers(Scope scope, Options options);

  struct Output {
    Variable outputs;                       // of the last layer [B, S, directions n]; 0 at s >= lengths[b]
    List<RecurrentState> states;            // [B, n] each at its sequence's own end: l0, l0_reverse, l1, ...
  };
  // x [B, S, in], lengths i32 [B] in [0, S] or undefined: S. Padding never enters a state; of a length 0 the state stays what it
  // was. initial: none (zero) or as many as in Output::states, else ShapeError.
  Output operator()(const Variable& x, const Tensor& lengths = {}, const List<RecurrentState>& initial = {}) const;

  Index directions() const { return bidirectional ? 2 : 1; }
  struct Direction { Parameter weight_ih, weight_hh, bias_ih, bias_hh; };
  std::vector<Direction> weights;           // in the order of Output::states
  RecurrentUnit unit;
  Index width, layers;
  bool bidirectional;
  double dropout, dropout_in, dropout_out;
  Path path;
};

struct Rnn : RecurrentLayers {
  struct Options {
    Index in, width, layers = 1;
    bool bidirectional = false, relu = false;
    double dropout = 0, dropout_in = 0, dropout_out = 0;
    bool bias = true;
    RecurrentInit init = {};
  };
  Rnn(Scope scope, Options options);
};
struct Lstm : RecurrentLayers {
  struct Options {
    Index in, width, layers = 1;
    bool bidirectional = false;
    double dropout = 0, dropout_in = 0, dropout_out = 0;
    bool bias = true;
    double forget_bias = 0;
    RecurrentInit init = {};
  };
  Lstm(Scope scope, Options options);
};
struct Gru : RecurrentLayers {
  struct Options {
    Index in, width, layers = 1;
    bool bidirectional = false;
    GruForm form = GruForm::cudnn;
    double dropout = 0, dropout_in = 0, dropout_out = 0;
    bool bias = true;
    RecurrentInit init = {};
  };
  Gru(Scope scope, Options options);
};

}  // namespace heed
