// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent_decoder.h"

#include "autograd/trace.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// x W_ih[:, first : first + width of x]ᵀ + bias + sum, one block of what a cell reads      [..., gates n]
Variable input_block(const Path& path, const Parameter& weight_ih, const Variable& x, Index first, const Variable& bias,
                     const Variable& sum = {}) {
  const Inside inside(path);
  const Index width = x.size(-1);
  return linear(x, width == weight_ih.shape()(1) ? weight_ih.variable() : slice(weight_ih, 1, first, first + width), bias,
                {.residual = sum});
}

// "s = cell([E y; c], s of the step before)", for a Trace.
std::string cell_formula(std::string_view h, std::string_view reads, RecurrentUnit unit) {
  return fmt::format("{0} = cell({1}, {0} {2}of the step before)", h, reads, unit == RecurrentUnit::lstm ? "and m " : "");
}

// "state.1", where there are several layers.
std::string of_layer(std::string_view name, Index k, Index layers) {
  return layers > 1 ? fmt::format("{}.{}", name, k) : std::string(name);
}

// The state that a cell goes on from, m an LSTM's second one.
void trace_previous(std::string_view h, RecurrentState& state, Index layer = 0, Index layers = 1) {
  if (!Trace::current()) return;
  state.h = trace(of_layer("previous", layer, layers), fmt::format("{} of the step before", h), state.h);
  if (state.c.defined()) state.c = trace(of_layer("previous_cell", layer, layers), "m of the step before", state.c);
}

// The state between two cells, m' an LSTM's second one.
void trace_between(RecurrentState& state) {
  if (!state.c.defined()) {
    state.h = trace("between", "s' = cell(E y, s of the step before)", state.h);
  } else {
    state.h = trace("between", "s' = cell(E y, s and m of the step before)", state.h);
    state.c = trace("between_cell", "m' = what the cell keeps beside s'", state.c);
  }
}

// As many rows as the state has, which start() made.
void check_inputs(const Variable& inputs, const DecoderState& state) {
  const Index rows = state.layers.empty() ? 0 : state.layers[0].h.size(0);
  check<ShapeError>(inputs.rank() == 3 && !state.layers.empty() && inputs.size(1) == rows,
                    "decoder: needs inputs [T, R, E] and a state of R rows from start(): inputs {}, rows {}", inputs.shape(), rows);
}

// What no target word gives: [0, R, d], weights [R, 0, S].
Variable no_steps(const Variable& inputs, const DecoderState& state, Index d, Variable* weights) {
  if (weights && state.memory) *weights = constant(zeros({inputs.size(1), 0, state.memory->values.size(1)}, inputs.dtype()));
  return constant(zeros({0, inputs.size(1), d}, inputs.dtype()));
}

Variable zero_rows(Index rows, Index width, const Variable& like) { return constant(zeros({rows, width}, like.dtype())); }

std::optional<Attention> make(const std::string& name, const Scope& scope, ScoreOptions score, Index query, Index memory) {
  if (name == "none") return {};
  score.query_width = query, score.memory_width = memory;
  return make_attention(name, scope, score);
}

// query [R, T, n] -> context [R, T, M]; weights [R, T, S] when asked for. Rows of one sentence are queries of one memory.
Variable look(const Attention& attention, const Variable& query, DecoderState& state, Variable* weights) {
  const Memory& memory = *state.memory;
  const Index B = memory.values.size(0), R = query.size(0), T = query.size(1);
  const Variable q = R == B ? query : reshape(query, {B, R / std::max<Index>(B, 1), query.size(2)});   // several rows: T = 1
  state.attention.advance = R == B ? 1 : 0;
  Attended attended = attention(q, memory, state.attention, weights ? Want::weights : Want::context);
  if (weights) *weights = reshape(attended.weights, {R, T, attended.weights.size(2)});
  return reshape(attended.context, {R, T, attended.context.size(2)});
}

}  // namespace

void DecoderState::reorder(std::span<const Index> rows, Index per_sentence) {
  check<Error>(!layers.empty(), "reorder: a decoder's state without states; start() of the decoder");
  const Tensor order = tensor(std::vector<std::int64_t>(rows.begin(), rows.end()), {Index(rows.size())});
  const Tensor sentences = reordered_sentences(rows, per_sentence, layers[0].h.size(0), group);
  group = per_sentence;
  const auto select = [](Variable& x, const Tensor& ids) {
    if (x.defined()) x = constant(index_select(x.value(), 0, ids));
  };
  for (RecurrentState& layer : layers) select(layer.h, order), select(layer.c, order);
  select(feed, order);
  select(context_gates, order);
  select(context_readout, order);
  if (!memory) return;
  attention.reorder(rows, per_sentence);
  if (!sentences.defined()) return;
  const bool shared = memory->keys.value().storage() == memory->values.value().storage();
  select(memory->values, sentences);
  if (shared) memory->keys = memory->values;
  else select(memory->keys, sentences);
  memory->mask = memory->mask.of_sentences(sentences, 3);   // of e [B, T, S]
}

// ---- Bahdanau -------------------------------------------------------------------------------------------------------

namespace {

BahdanauDecoder::Options settled(BahdanauDecoder::Options o) {
  if (o.readout_width == 0) o.readout_width = o.readout == Readout::maxout ? std::max<Index>(1, o.width / 2) : o.width;
  return o;
}

BahdanauDecoder::Options checked(const Scope& scope, BahdanauDecoder::Options o) {
  const Inside inside(scope.path());
  const bool two_ways = o.memory_width > o.encoder_width;
  check<Error>(o.start_state != StartState::backward || two_ways,
               "decoder: start_state backward needs an encoder in two directions; last, mean or zeros");
  check<Error>(o.start_state != StartState::context || o.attention == "none",
               "decoder: with attention no context stays: start_state context, attention {}", o.attention);
  check<Error>(!o.reset_context || o.attention == "none", "decoder: with attention no context stays: reset_context, attention {}",
               o.attention);
  check<Error>(!o.reset_context || o.unit == RecurrentUnit::gru_cudnn,
               "decoder: reset_context needs unit gru_cudnn, which resets after the product");
  check<Error>(!o.conditional || o.attention != "none",
               "decoder: two cells with nothing to look at between them: conditional needs an attention");
  check<Error>(o.attention != "none" || o.context != FixedContext::both_ends || two_ways,
               "decoder: context both_ends needs an encoder in two directions; every_step");
  return o;
}

// Width of what a context that stays is made of.
Index ends_width(const BahdanauDecoder::Options& o) { return o.context == FixedContext::both_ends ? 2 * o.encoder_width : o.encoder_width; }

// Width of c.
Index context_width(const BahdanauDecoder::Options& o) {
  return o.attention != "none" ? o.memory_width : o.reset_context ? o.width : ends_width(o);
}

Linear::Options readout_options(const BahdanauDecoder::Options& o, Index in, bool bias) {
  return {.in = in, .out = o.readout_width * (o.readout == Readout::maxout ? 2 : 1), .bias = bias};
}

// Σ_j h_j / len; padding is 0, and so is the mean of no words.   [B, M]
Variable mean_of_words(const Encoded& source) {
  const Variable& h = source.states;                                                                    // [B, S, M]
  const Index B = h.size(0), S = h.size(1);
  if (source.mask.lengths().defined() && source.mask.only_lengths())
    return sum(h, {1}) / constant(reshape(maximum(to(source.mask.lengths(), h.dtype()), 1.0), {B, 1}));
  const Tensor may = reshape(to(source.mask.dense({B, 1, S}), h.dtype()), {B, S, 1});
  return sum(h * constant(may), {1}) / constant(maximum(sum(may, {1}), 1.0));
}

std::string context_formula(const BahdanauDecoder::Options& o) {
  const std::string_view x = o.context == FixedContext::both_ends ? "[the encoder's last forward state; its last backward state]"
                                                                  : "the encoder's last forward state";
  return fmt::format("c = {}{}", o.reset_context ? "tanh(V x), x = " : "", x);
}

std::string start_formula(const BahdanauDecoder::Options& o) {
  if (o.start_state == StartState::context) return fmt::format("s = tanh(W c{})", o.start_bias ? " + b" : "");
  const std::string_view x = o.start_state == StartState::mean   ? "mean of the h_j"
                             : o.start_state == StartState::last ? "encoder's last forward state"
                                                                 : "encoder's last backward state";
  return fmt::format("s = tanh(W x{}), x the {}", o.start_bias ? " + b" : "", x);
}

std::string state_formula(const BahdanauDecoder::Options& o) {
  if (o.conditional) return o.unit == RecurrentUnit::lstm ? "s = cell(c, s' and m')" : "s = cell(c, s')";
  return cell_formula("s", "[E y; c]", o.unit) + (o.reset_context ? ", r over U s + C c" : "");
}

std::string readout_formula(const BahdanauDecoder::Options& o) {
  const std::string_view t = o.readout == Readout::tanh     ? "t = tanh(U s + V E y + C c + b)"
                             : o.readout == Readout::linear ? "t = U s + V E y + C c + b"
                                                            : "t_k = max of neighbours of U s + V E y + C c + b";
  return fmt::format("{}{}", t, o.readout_state == ReadoutState::previous ? ", s of the step before" : "");
}

Index start_width(const BahdanauDecoder::Options& o) {
  return o.start_state == StartState::mean ? o.memory_width : o.start_state == StartState::context ? context_width(o) : o.encoder_width;
}

}  // namespace

BahdanauDecoder::BahdanauDecoder(Scope scope, Options given)
    : options(checked(scope, settled(std::move(given)))),
      attention(make(options.attention, scope / "attention", options.score, options.width, options.memory_width)),
      cell(options.conditional ? scope / "decoder" / "cell1" : scope / "decoder",
           {.unit = options.unit, .in = options.embedding + (options.conditional ? 0 : context_width(options)), .width = options.width}),
      readout_state(scope / "readout" / "state", readout_options(options, options.width, true)),
      readout_embed(scope / "readout" / "embed", readout_options(options, options.embedding, false)),
      readout_context(scope / "readout" / "context", readout_options(options, context_width(options), false)) {
  if (options.conditional)
    second.emplace(scope / "decoder" / "cell2",
                   RecurrentCell::Options{.unit = options.unit, .in = options.memory_width, .width = options.width});
  if (options.reset_context)
    context_proj.emplace(scope / "context_proj", Linear::Options{.in = ends_width(options), .out = options.width, .bias = false});
  if (options.start_state != StartState::zeros)
    init.emplace(scope / "init", Linear::Options{.in = start_width(options), .out = options.width, .bias = options.start_bias});
}

DecoderState BahdanauDecoder::start(const Encoded& source) const {
  DecoderState state;
  const Index B = source.states.size(0);
  check<Error>(source.backward.empty() == (options.memory_width == options.encoder_width),
               "decoder: the encoder has {}, the options say widths {} and {}",
               source.backward.empty() ? "one direction" : "two directions", options.encoder_width, options.memory_width);
  const auto context = [&] {
    const Variable ends =
        options.context == FixedContext::both_ends ? concat({source.last.back().h, source.backward.back().h}, 1) : source.last.back().h;
    const Variable c = context_proj ? (*context_proj)(ends, {.activation = Activation::tanh}) : ends;
    return Trace::current() ? trace("context", context_formula(options), c) : c;
  };
  const Variable stays = attention ? Variable() : context();                                      // [B, M]
  Variable from;                                                                                  // [B, ·]
  switch (options.start_state) {
    case StartState::backward: from = source.backward.back().h; break;
    case StartState::last: from = source.last.back().h; break;
    case StartState::mean: from = mean_of_words(source); break;
    case StartState::context: from = stays; break;
    case StartState::zeros: break;
  }
  RecurrentState first{init ? (*init)(from, {.activation = Activation::tanh}) : zero_rows(B, options.width, source.states), {}};
  if (init && Trace::current()) first.h = trace("start", start_formula(options), first.h);
  if (options.unit == RecurrentUnit::lstm) first.c = zero_rows(B, options.width, source.states);
  state.layers.push_back(std::move(first));
  if (attention) {
    state.memory = attention->prepare(source.states, source.mask);
  } else {
    state.context_gates =
        input_block(cell.path, cell.weight_ih, stays, options.embedding, options.reset_context ? cell.bias_hh : Variable());
    state.context_readout = readout_context(stays);
  }
  return state;
}

Variable BahdanauDecoder::operator()(const Variable& inputs, DecoderState& state, Variable* weights) const {
  check_inputs(inputs, state);
  const Index T = inputs.size(0), R = inputs.size(1), E = options.embedding;
  if (T == 0) return no_steps(inputs, state, features(), weights);
  List<Variable> rows(weights ? std::size_t(T) : 0);
  List<Variable> states, contexts;
  Variable a = input_block(cell.path, cell.weight_ih, inputs, 0, cell.bias_ih);                    // W E y_{t-1} + b   [T, R, G]
  if (!attention && !options.reset_context) a = a + state.context_gates;
  const Variable with_state = options.reset_context ? state.context_gates : cell.bias_hh;          // added to U s
  const List<Variable> of_step = unbind(a);
  RecurrentState& s = state.layers[0];
  for (Index t = 0; t < T; ++t) {
    Variable a_t = of_step[std::size_t(t)];
    trace_previous("s", s);
    if (options.readout_state == ReadoutState::previous) states.push_back(s.h);
    if (second) {
      s = cell.step(a_t, s);
      trace_between(s);
    }
    if (attention) {
      const Variable query = trace("query", second ? "q = s'" : "q = s of the step before", reshape(s.h, {R, 1, options.width}));
      contexts.push_back(reshape(look(*attention, query, state, weights ? &rows[std::size_t(t)] : nullptr), {R, options.memory_width}));
      a_t = second ? second->input(contexts.back()) : input_block(cell.path, cell.weight_ih, contexts.back(), E, {}, a_t);
    }
    s = second ? second->step(a_t, s) : cell.step(a_t, s, with_state);
    if (Trace::current()) s.h = trace("state", state_formula(options), s.h);
    if (options.readout_state == ReadoutState::current) states.push_back(s.h);
  }
  if (weights && attention) *weights = concat(rows, 1);
  Variable y = attention ? readout_context(stack(contexts)) : state.context_readout;              // [T, R, 2l], [R, 2l]
  y = readout_state(stack(states), {.residual = attention ? readout_embed(inputs, {.residual = y}) : readout_embed(inputs) + y});
  const std::string formula = Trace::current() ? readout_formula(options) : std::string();
  if (options.readout == Readout::tanh) return trace("readout", formula, tanh(y));
  if (options.readout == Readout::linear) return trace("readout", formula, y);
  return trace("readout", formula, max(reshape(y, {T, y.size(1), options.readout_width, 2}), {-1}));
}

// ---- Luong ----------------------------------------------------------------------------------------------------------

namespace {

const LuongDecoder::Options& checked(const Scope& scope, const LuongDecoder::Options& o) {
  const Inside inside(scope.path());
  const bool alike = o.layers == o.encoder_layers && o.width == o.encoder_width && !o.encoder_bidirectional;
  check<Error>(o.bridge != Bridge::copy || alike,
               "decoder: a bridge that copies needs equal stacks: encoder {} layers of {}{}, decoder {} layers of {}; a bridge that is "
               "linear or tanh",
               o.encoder_layers, o.encoder_width, o.encoder_bidirectional ? " in two directions" : "", o.layers, o.width);
  check<Error>(!o.input_feeding || o.attention != "none", "decoder: input feeding without attention");
  return o;
}

bool hands_on_cells(const LuongDecoder::Options& o) { return o.unit == RecurrentUnit::lstm && o.encoder_unit == RecurrentUnit::lstm; }

}  // namespace

LuongDecoder::LuongDecoder(Scope scope, Options given)
    : options(checked(scope, given)),
      attention(make(options.attention, scope / "attention", options.score, options.width, options.memory_width)),
      layers(scope / "decoder", {.unit = options.unit,
                                 .in = options.embedding + (options.input_feeding ? options.width : 0),
                                 .width = options.width,
                                 .layers = options.layers,
                                 .dropout = options.dropout}) {
  const Index n = options.width;
  if (attention) attn_out.emplace(scope / "attn_out", Linear::Options{.in = options.memory_width + n, .out = n, .bias = false});
  if (options.bridge == Bridge::copy) return;
  for (const char* part : {"h", "c"})
    for (Index k = 0; k < options.layers && (*part == 'h' || hands_on_cells(options)); ++k)
      bridges.emplace_back(scope / "bridge" / part / k,
                           Linear::Options{.in = options.encoder_width * (options.encoder_bidirectional ? 2 : 1), .out = n, .bias = false});
}

DecoderState LuongDecoder::start(const Encoded& source) const {
  DecoderState state;
  const Activation activation = options.bridge == Bridge::tanh ? Activation::tanh : Activation::none;
  check<Error>(Index(source.last.size()) == options.encoder_layers && source.backward.empty() != options.encoder_bidirectional,
               "decoder: the encoder has {} layers{}, the options say {}{}", source.last.size(),
               source.backward.empty() ? "" : " in two directions", options.encoder_layers,
               options.encoder_bidirectional ? " in two directions" : "");
  const Index above = options.encoder_layers - 1, skipped = std::max<Index>(0, options.encoder_layers - options.layers);
  for (Index k = 0; k < options.layers; ++k) {
    const auto from = std::size_t(std::min(k + skipped, above));
    RecurrentState layer = source.last[from];
    if (!hands_on_cells(options)) layer.c = {};
    if (options.bridge != Bridge::copy) {
      const auto bridged = [&](Variable RecurrentState::* part, Index i) {
        const Variable& x = layer.*part;
        return bridges[std::size_t(i)](options.encoder_bidirectional ? concat({x, source.backward[from].*part}, 1) : x,
                                       {.activation = activation});
      };
      layer.h = bridged(&RecurrentState::h, k);
      if (layer.c.defined()) layer.c = bridged(&RecurrentState::c, options.layers + k);
    }
    state.layers.push_back(std::move(layer));
  }
  if (attention) state.memory = attention->prepare(source.states, source.mask);
  if (options.input_feeding) state.feed = zero_rows(source.states.size(0), options.width, source.states);   // footnote 11
  return state;
}

Variable LuongDecoder::operator()(const Variable& inputs, DecoderState& state, Variable* weights) const {
  check_inputs(inputs, state);
  const Index T = inputs.size(0), R = inputs.size(1), E = options.embedding;
  if (T == 0) return no_steps(inputs, state, features(), weights);
  if (!options.input_feeding && !(attention && attention->looks_back())) {
    for (Index k = 0; k < options.layers; ++k) trace_previous("h", state.layers[std::size_t(k)], k, options.layers);
    RecurrentLayers::Output read = layers(permute(inputs, {1, 0, 2}), {}, state.layers);
    state.layers = std::move(read.states);
    for (Index k = 0; T == 1 && k + 1 < options.layers; ++k) traced_state(state.layers[std::size_t(k)].h, k);
    const Variable h = traced_state(read.outputs, options.layers - 1);                             // [R, T, n]
    if (!attention) return permute(h, {1, 0, 2});
    return permute(attend(h, state, weights), {1, 0, 2});
  }
  List<Variable> rows(weights ? std::size_t(T) : 0);
  List<Variable> outputs;
  const auto& first = layers.weights[0];
  const Variable a = input_block(layers.path, first.weight_ih, inputs, 0, first.bias_ih);                      // [T, R, 4n]
  const List<Variable> of_step = unbind(a);
  for (Index t = 0; t < T; ++t) {
    Variable x = of_step[std::size_t(t)];
    if (options.input_feeding) x = input_block(layers.path, first.weight_ih, trace("feed", "h~ of the step before", state.feed), E, {}, x);
    for (Index k = 0; k < options.layers; ++k) {
      const auto& w = layers.weights[std::size_t(k)];
      RecurrentState& layer = state.layers[std::size_t(k)];
      trace_previous("h", layer, k, options.layers);
      {
        const Inside inside(layers.path);
        if (k > 0) x = linear(dropout(x, options.dropout), w.weight_ih, w.bias_ih);
        layer = recurrent_cell(options.unit, x, layer, w.weight_hh, w.bias_hh);
      }
      x = layer.h = traced_state(layer.h, k);
    }
    const Variable h = reshape(x, {R, 1, options.width});
    outputs.push_back(reshape(attend(h, state, weights ? &rows[std::size_t(t)] : nullptr), {R, options.width}));
    if (options.input_feeding) state.feed = outputs.back();
  }
  if (weights) *weights = concat(rows, 1);
  return stack(outputs);                                                                          // [T, R, n]
}

Variable LuongDecoder::traced_state(const Variable& h, Index layer) const {
  if (!Trace::current()) return h;
  const std::string_view reads = layer > 0 ? "h of the layer below" : options.input_feeding ? "[E y; h~ of the step before]" : "E y";
  return trace(of_layer("state", layer, options.layers), cell_formula("h", reads, options.unit), h);
}

// h [R, T, n] -> h~ = tanh(W_c [c; h])   [R, T, n]
Variable LuongDecoder::attend(const Variable& h, DecoderState& state, Variable* weights) const {
  const Variable c = look(*attention, trace("query", "q = h", h), state, weights);
  const Variable joined = trace("joined", "[c; h], the context and the state", concat({c, h}, 2));
  return trace("attentional", "h~ = tanh(W_c [c; h])", (*attn_out)(joined, {.activation = Activation::tanh}));
}

}  // namespace heed
