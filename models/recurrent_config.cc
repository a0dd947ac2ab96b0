// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent_config.h"

#include <algorithm>

#include "attention/attend.h"
#include "models/recurrent.h"
#include "models/text.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

bool attends(const RunConfig& c) { return c.attention != "none"; }
bool is_local(const RunConfig& c) { return !window_of(c.attention).empty(); }
// Without attention, a context that stays.
bool is_cho(const RunConfig& c) { return c.decoder == "cho" || c.decoder == "cho-exact"; }
// Scores of papers that look from the previous state.
bool looks_first(std::string_view attention) {
  const std::string score = score_of(attention);
  return window_of(attention).empty() && (score == "additive" || score == "location-aware");
}
// Scores that compare query and memory as they are.
bool needs_equal_widths(std::string_view attention) {
  const std::string score = score_of(attention);
  return score == "dot" || score == "scaled-dot" || score == "cosine";
}

// The first of these options that differs from the default of its model, as text for a message.
std::string set_among(const RunConfig& config, const std::vector<std::string_view>& names) {
  RunConfig copy = config, standard = default_config(config.model);
  const std::vector<Option> now = options(copy), before = options(standard);
  for (std::size_t i = 0; i < now.size(); ++i)
    if (std::ranges::find(names, now[i].name) != names.end() && value_text(now[i]) != value_text(before[i]))
      return std::holds_alternative<bool*>(now[i].value) ? fmt::format("--{}", now[i].name)
                                                         : fmt::format("--{} {}", now[i].name, value_text(now[i]));
  return {};
}

}  // namespace

bool is_bahdanau(const RunConfig& c) { return c.decoder == "bahdanau" || c.decoder == "conditional" || is_cho(c); }
bool reads_both_ways(const RunConfig& c) { return is_bahdanau(c) && !c.one_direction && c.context != "every_step"; }

bool is_recurrent(std::string_view model) { return model == "rnn" || model == "lstm" || model == "gru"; }

std::vector<std::string_view> recurrent_options() {
  return {"attention", "decoder", "window", "input-feeding", "reverse-source", "one-direction", "gru-form", "readout", "readout-state",
          "start-state", "bridge", "context", "initial-values"};
}

std::vector<std::string_view> transformer_options() {
  return {"heads", "key-value-heads", "feed-forward", "activation", "gated", "attention-dropout", "activation-dropout", "norm",
          "final-norm",
          "rms-norm", "positions", "qk-norm", "sliding-window", "dilation", "global-tokens", "normalise", "talking-heads", "differential",
          "linear-attention", "random-features", "tie", "qkv-init"};
}

void settle_recurrent(RunConfig& c) {
  if (!is_recurrent(c.model)) return;
  c.attention = hyphenated(c.attention);
  const auto settle = [](std::string& name, std::string_view value) {
    if (name == "auto") name = value;
  };
  const bool plain = is_cho(c) || c.decoder == "sutskever";
  settle(c.attention, plain ? "none" : c.decoder == "bahdanau" ||
         c.decoder == "conditional" ? "additive" : c.decoder == "luong" ? "general" : c.model == "lstm" ? "general" : "additive");
  settle(c.decoder, attends(c) ? (looks_first(c.attention) ? "bahdanau" : "luong") : c.model == "gru" ? "cho" : "sutskever");
  if (!attends(c) && !plain) c.decoder = is_bahdanau(c) ? "cho" : "sutskever";
  const bool conditional = c.decoder == "conditional", exact = c.decoder == "cho-exact";
  // Nematus' GRU is PyTorch's
  if (c.model == "gru") settle(c.gru_form, exact ? "cho" : is_bahdanau(c) && !conditional ? "bahdanau" : "cudnn");
  if (is_local(c) && !c.window) c.window = 10;
  if (is_bahdanau(c)) {
    settle(c.readout, conditional ? "tanh" : "maxout");
    settle(c.readout_state, "current");
    if (is_cho(c)) settle(c.context, c.start_state == "backward" ? "both_ends" : "every_step");
    settle(c.start_state, conditional ? "mean" : exact ? "context" : c.one_direction || c.context == "every_step" ? "last" : "backward");
  } else {
    settle(c.bridge, decoder_layers(c) == c.layers ? "copy" : "tanh");
  }
}

void check_attention(std::string_view name, std::vector<std::string_view> others) {
  if (name == "auto" || std::ranges::find(others, name) != others.end()) return;
  try {
    check_attention_name(name);
  } catch (const Error&) {
    const std::string more = fmt::format("{}{}", fmt::join(others, ", "), others.empty() ? "" : ", ");
    const std::vector<std::string> names = attention_names();
    others.insert(others.end(), names.begin(), names.end());
    fail<Error>("unknown name: --attention {}; {}one of {}{}", quote(name), did_you_mean(name, others), more, attention_choices());
  }
}

void check_recurrent(const RunConfig& given) {
  const auto nowhere = [&](const std::vector<std::string_view>& names, std::string_view owner) {
    const std::string set = set_among(given, names);
    check<Error>(set.empty(), "not an option of this model: {} --model {}{}; it belongs to {}", set, given.model,
                 given.decoder == "auto" ? "" : fmt::format(" --decoder {}", given.decoder), owner);
  };
  check_attention(given.attention);
  nowhere(transformer_options(), "--model transformer");
  RunConfig c = given;
  settle_recurrent(c);
  check<Error>((!is_cho(c) && c.decoder != "sutskever") || !attends(c),
               "a decoder without attention: --decoder {} --attention {}; --decoder bahdanau, conditional or luong, or --attention none",
               c.decoder, c.attention);
  check<Error>(given.decoder != "conditional" || attends(c),
               "nothing to look at between two cells: --decoder conditional --attention none; --decoder cho, or another attention");
  check<Error>(c.decoder != "cho-exact" || c.model == "gru",
               "a decoder with the reset gate of a GRU: --decoder cho-exact --model {}; --model gru, or --decoder cho", c.model);
  if (c.model != "gru") nowhere({"gru-form"}, "--model gru");
  if (is_bahdanau(c)) nowhere({"bridge"}, "--decoder luong and sutskever");
  else nowhere({"readout", "readout-state", "start-state", "one-direction"}, "--decoder bahdanau, conditional, cho and cho-exact");
  check<Error>(attends(c) || !c.input_feeding,
               "nothing to feed: --input-feeding without attention; --attention general, or leave out --input-feeding");
  const bool undivided = attends(c) && !sums_to_one(normalise_of(c.attention));
  check<Error>(!(is_local(c) || undivided) || !copies_by_attention(c),
               "weights that do not sum to 1: --copy --attention {}; another attention, gaussian has windows too, or --copy-form copynet",
               c.attention);
  check<Error>(attends(c) || !copies_by_attention(c),
               "nothing to copy by: --copy without attention; --attention general, --copy-form copynet, or leave out --copy");
  for (const auto& [name, value] : {std::pair("guided-alignment", c.guided_alignment), std::pair("coverage-loss", c.coverage_loss)}) {
    check<Error>(attends(c) || value == 0, "a loss on attention without any: --{0} {1}; --attention general, or leave out --{0}", name,
                 value);
    check<Error>(!undivided || value == 0, "weights that are no probabilities: --{} {} --attention {}; one of them", name, value,
                 c.attention);
  }
  if (c.decoder != "luong") nowhere({"input-feeding"}, "--decoder luong");
  if (!is_cho(c)) nowhere({"context"}, "--decoder cho and cho-exact");
  if (!is_local(c)) nowhere({"window"}, "--attention local-m and local-p");
  check<Error>(!is_bahdanau(c) || decoder_layers(c) == 1,
               "more than one layer: --decoder {} --{}layers {}; --decoder-layers 1, or --decoder {}", c.decoder,
               c.decoder_layers ? "decoder-" : "", decoder_layers(c), attends(c) ? "luong" : "sutskever");
  check<Error>(c.bridge != "copy" || decoder_layers(c) == c.layers,
               "states of other layers than there are: --bridge copy --layers {} --decoder-layers {}; --bridge tanh, or as many layers",
               c.layers, decoder_layers(c));
  const bool two_ways = reads_both_ways(c);
  check<Error>(c.start_state != "backward" || two_ways, "no backward states: --start-state backward {}; --start-state last",
               c.one_direction ? "--one-direction" : "--context every_step");
  check<Error>(c.start_state != "context" || !attends(c),
               "no context that stays: --start-state context --attention {}; --start-state last, or --decoder cho", c.attention);
  check<Error>(c.context != "both_ends" || !c.one_direction, "one end only: --context both_ends --one-direction; --context every_step");
  check<Error>(c.initial_values != "bahdanau" || c.attention.find("additive-normed") == c.attention.npos,
               "a vector of zeros has no direction: --initial-values bahdanau --attention {}; --attention additive", c.attention);
  check<Error>(!two_ways || !needs_equal_widths(c.attention) || c.width % 2 == 0,
               "two directions of equal width: --attention {} --width {}; an even width, or --one-direction", c.attention, c.width);
}

void check_not_recurrent(const RunConfig& c) {
  const std::string set = set_among(c, recurrent_options());
  check<Error>(set.empty(), "not an option of this model: {} --model {}; it belongs to --model rnn, lstm and gru", set, c.model);
}

namespace {

// Bahdanau et al. 2015, B.1; nothing: stays as it started.
Initializer bahdanau_init(std::string_view path, const Shape& shape) {
  const std::string_view name = path.substr(path.rfind('.') + 1);
  if (shape.rank() == 0) return {};                                                                     // factors of a score
  if (shape.rank() == 1) return constant_init(0);                                                       // biases, v
  if (name.starts_with("weight_hh")) return stacked(shape(0) / shape(1), orthogonal());
  if (path.starts_with("attention.")) return normal_init(0, 0.001);                                     // W_a, U_a
  return normal_init(0, 0.01);
}

// All parameters start as in the paper instead of as in PyTorch; the row of padding stays 0.
void start_as(std::string_view paper, const Selection& parameters, std::int32_t pad) {
  // Sutskever et al. 2014, 3.4; Luong et al. 2015, 4.1
  const double r = paper == "sutskever" ? 0.08 : 0.1;
  for (const auto& item : parameters) {
    const Shape& shape = item->variable.shape();
    const Initializer init = paper == "bahdanau" ? bahdanau_init(item->path.substr(parameters.prefix().size()), shape)
                             : shape.rank() > 0  ? uniform_init(-r, r)
                                                 : Initializer();
    if (init) Selection(parameters.owner(), {item}).initialise(item->multiplied ? init : zero_row(pad, init));
  }
}

}  // namespace

std::unique_ptr<Seq2Seq> make_recurrent(const RunConfig& given, Scope scope, Index source_vocabulary, Index target_vocabulary,
                                        std::int32_t pad) {
  RunConfig c = given;
  settle_recurrent(c);
  const RecurrentUnit unit = c.model == "rnn"             ? RecurrentUnit::tanh
                             : c.model == "lstm"          ? RecurrentUnit::lstm
                             : c.gru_form == "bahdanau"   ? RecurrentUnit::gru_bahdanau
                             : c.gru_form == "cho"        ? RecurrentUnit::gru_cho
                                                          : RecurrentUnit::gru_cudnn;
  const bool two_ways = reads_both_ways(c);
  const Index width = two_ways && needs_equal_widths(c.attention) ? c.width / 2 : c.width;
  const auto between_layers = [&](Index layers) { return layers > 1 ? c.dropout : 0; };
  const ScoreOptions score{.query_width = c.width, .memory_width = 0, .longest = max_positions(c), .window = c.window.value_or(10)};
  RecurrentModel::Options options{.source_vocabulary = source_vocabulary,
                                  .target_vocabulary = target_vocabulary,
                                  .encoder = {.unit = unit,
                                              .embedding = c.width,
                                              .width = width,
                                              .layers = c.layers,
                                              .bidirectional = two_ways,
                                              .reverse_source = c.reverse_source,
                                              .dropout = between_layers(c.layers)},
                                  .decoder = BahdanauDecoder::Options{.width = c.width},
                                  .dropout = c.dropout,
                                  .output_bias = is_bahdanau(c),
                                  .pad = pad};
  if (is_bahdanau(c)) {
    auto& decoder = std::get<BahdanauDecoder::Options>(options.decoder);
    decoder.reset_context = c.decoder == "cho-exact";
    decoder.unit = decoder.reset_context ? RecurrentUnit::gru_cudnn : unit;   // r after the product
    decoder.attention = c.attention, decoder.score = score;
    decoder.conditional = c.decoder == "conditional";
    decoder.context = c.context == "both_ends" ? FixedContext::both_ends : FixedContext::every_step;
    decoder.readout = c.readout == "tanh" ? Readout::tanh : c.readout == "linear" ? Readout::linear : Readout::maxout;
    decoder.readout_state = c.readout_state == "previous" ? ReadoutState::previous : ReadoutState::current;
    decoder.start_state = c.start_state == "last"      ? StartState::last
                          : c.start_state == "mean"    ? StartState::mean
                          : c.start_state == "zeros"   ? StartState::zeros
                          : c.start_state == "context" ? StartState::context
                                                       : StartState::backward;
  } else {
    const Bridge bridge = c.bridge == "linear" ? Bridge::linear : c.bridge == "tanh" ? Bridge::tanh : Bridge::copy;
    options.decoder = LuongDecoder::Options{.unit = unit,
                                            .width = c.width,
                                            .layers = decoder_layers(c),
                                            .attention = c.attention,
                                            .score = score,
                                            .input_feeding = c.input_feeding,
                                            .bridge = bridge,
                                            .dropout = between_layers(decoder_layers(c))};
  }
  auto model = std::make_unique<RecurrentModel>(scope, std::move(options));
  if (c.initial_values != "pytorch") start_as(c.initial_values, scope.select(), pad);
  return model;
}

}  // namespace heed
