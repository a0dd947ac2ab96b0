// SPDX-License-Identifier: Apache-2.0
// The writing half of recurrent encoder-decoders. Three orders of a step:
//   BahdanauDecoder   e_t from s_{t-1};  α_t, c_t;  s_t = cell([E y_{t-1}; c_t], s_{t-1});  readout of s_t, E y_{t-1}, c_t
//     conditional     s'_t = cell1(E y_{t-1}, s_{t-1});  e_t from s'_t;  α_t, c_t;  s_t = cell2(c_t, s'_t);  the same readout
//   LuongDecoder      h_t = cell(E y_{t-1}, h_{t-1});  e_t from h_t;  α_t, c_t;  h~_t = tanh(W_c [c_t; h_t])
// Each takes any attention by its name, and all but conditional none.
// They call themselves with all T words of a target or, in search, with one.
#pragma once
#include <optional>

#include "attention/attend.h"
#include "models/recurrent_encoder.h"
#include "nn/linear.h"

namespace heed {

// All that a decoder remembers. R rows, in groups of one of the B sentences of the memory.
struct DecoderState {
  Index group = 1;                       // R/B
  List<RecurrentState> layers;           // h, for LSTMs c   [R, n] each
  Variable feed;                         // h~_{t-1} [R, n], with input feeding
  Variable context_gates, context_readout;   // C c [R, gates n], C_o c [R, 2l], where c is the same at every step
  std::optional<Memory> memory;
  AttentionState attention;

  void reorder(std::span<const Index> rows, Index per_sentence);   // as DecodingState's
};

// c = the last forward state; that and the backward one at the first word
enum class FixedContext { every_step, both_ends };
enum class Readout { maxout, tanh, linear };
enum class ReadoutState { current, previous };                     // s_t (Eq. 4), s_{t-1} (A.2.2)
enum class StartState { backward, last, mean, zeros, context };    // what s_0 is made of
enum class Bridge { copy, linear, tanh };

// Bahdanau, Cho, Bengio 2015, arXiv 1409.0473, sections 3.1, A.1.2, A.2. Without attention its RNNencdec (A.2.2), the model of
// Cho et al. 2014, arXiv 1406.1078, with c_t = c at every step. Conditional: Sennrich et al. 2017, arXiv 1703.04357, section 2.
// reset_context: the decoder of Cho et al. 2014 as A.1.2 prints it, whose reset gate acts after the product and on the context too:
//   c = tanh(V_c x), x the last forward state;  s_0 = tanh(V_s c);  s_t = z ⊙ s_{t-1} + (1-z) ⊙ tanh(W E y_{t-1} + r ⊙ (U s_{t-1} + C c))
struct BahdanauDecoder {
  struct Options {
    RecurrentUnit unit = RecurrentUnit::gru_bahdanau;
    Index embedding = 0, width;                    // E, n
    Index encoder_width = 0, memory_width = 0;     // of an encoder state in one direction; of both together: M
    std::string attention = "additive";            // none: c_t = c
    ScoreOptions score = {};                       // its widths are set here
    bool conditional = false;                      // two cells a step
    FixedContext context = FixedContext::every_step;   // without attention; with one it is not read
    bool reset_context = false;                    // unit gru_cudnn, no attention; s_0 is the paper's with StartState::context
    Readout readout = Readout::maxout;
    Index readout_width = 0;                       // l; 0: n/2 for maxout (the paper's 500 of 1000), else n
    ReadoutState readout_state = ReadoutState::current;
    StartState start_state = StartState::backward;
    bool start_bias = false;
  };
  // Error: a start_state, or a context that is read, of an encoder in two directions where it has one; start_state context with attention;
  // conditional without; reset_context with one or with another unit
  BahdanauDecoder(Scope scope, Options options);

  // s_0 = tanh(W_s bwd_0), projected keys or the context
  DecoderState start(const Encoded& source) const;
  // Embedded inputs [T, R, E] -> what the output layer reads [T, R, l];  weights: α [R, T, S] when asked for and there.
  Variable operator()(const Variable& inputs, DecoderState& state, Variable* weights = nullptr) const;
  Index features() const { return options.readout_width; }

  Options options;
  std::optional<Attention> attention;
  std::optional<Linear> context_proj;              // reset_context: V_c
  std::optional<Linear> init;                      // W_s, V_s
  RecurrentCell cell;                              // weight_ih [3n, E + M] = [W | C]; conditional: cell1, [3n, E]
  std::optional<RecurrentCell> second;             // conditional: cell2, weight_ih [3n, M]
  Linear readout_state, readout_embed, readout_context;   // U_o, V_o, C_o
};

// Luong, Pham, Manning 2015, arXiv 1508.04025, section 3. Without attention Sutskever et al. 2014, arXiv 1409.3215: p_t = softmax(W_s h_t).
struct LuongDecoder {
  struct Options {
    RecurrentUnit unit = RecurrentUnit::lstm, encoder_unit = RecurrentUnit::lstm;
    Index embedding = 0, width;                    // E, n
    Index encoder_width = 0, memory_width = 0;     // of an encoder state in one direction; of both together: M
    Index layers = 1, encoder_layers = 1;
    bool encoder_bidirectional = false;
    std::string attention = "general";             // none: h~_t = h_t
    ScoreOptions score = {};                       // its widths are set here
    bool input_feeding = false;                    // section 3.3
    // From the encoder's last states to h_0, in two directions [forward; backward], and of LSTMs to c_0; an LSTM after another unit has
    // c_0 = 0. Top layer goes to top layer; where the decoder has more, they start from the top one. copy needs equal layers and widths.
    Bridge bridge = Bridge::copy;
    double dropout = 0;                            // between layers
  };
  LuongDecoder(Scope scope, Options options);

  DecoderState start(const Encoded& source) const;
  Variable operator()(const Variable& inputs, DecoderState& state, Variable* weights = nullptr) const;   // [T, R, E] -> [T, R, n]
  Index features() const { return options.width; }

  Options options;
  std::optional<Attention> attention;
  std::vector<Linear> bridges;                     // h of each layer, then c of each
  RecurrentLayers layers;                          // weight_ih_l0 [4n, E], with input feeding [4n, E + n]
  std::optional<Linear> attn_out;                  // W_c [n, M + n]

 private:
  Variable attend(const Variable& h, DecoderState& state, Variable* weights) const;   // h [R, T, n] -> h~ [R, T, n]
  Variable traced_state(const Variable& h, Index layer) const;
};

}  // namespace heed
