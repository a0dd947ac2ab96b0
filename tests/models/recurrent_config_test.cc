// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent_config.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/recurrent.h"
#include "tensor/format.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

std::string wrong(std::string_view model, auto&& change) {
  RunConfig c = default_config(model);
  c.data = "d";
  change(c);
  return message_of([&] {
    check_config(c);
    settle_recurrent(c);
    check_config(c);   // what auto became is right too
  });
}

RunConfig settled(std::string_view model, auto&& change) {
  RunConfig c = default_config(model);
  change(c);
  settle_recurrent(c);
  return c;
}

}  // namespace

TEST_CASE("recurrent options: the paper's choices by default") {
  const RunConfig gru = settled("gru", [](RunConfig&) {});
  CHECK(gru.attention == "additive");
  CHECK(gru.decoder == "bahdanau");
  CHECK(gru.gru_form == "bahdanau");
  CHECK(gru.readout == "maxout");
  CHECK(gru.start_state == "backward");
  const RunConfig lstm = settled("lstm", [](RunConfig&) {});
  CHECK(lstm.attention == "general");
  CHECK(lstm.decoder == "luong");
  CHECK(lstm.bridge == "copy");
  for (const auto& [attention, decoder] : {std::pair("additive", "bahdanau"), {"additive-sparsemax", "bahdanau"},
                                           {"location-aware", "bahdanau"}, {"additive-normed", "luong"}, {"local-m-additive", "luong"},
                                           {"coverage", "luong"}, {"location", "luong"}})
    CHECK(settled("lstm", [name = attention](RunConfig& c) { c.attention = name; }).decoder == decoder);
  CHECK(settled("gru", [](RunConfig& c) { c.attention = "concat"; }).decoder == "luong");
  CHECK(settled("gru", [](RunConfig& c) { c.attention = "concat"; }).gru_form == "cudnn");
  CHECK(settled("gru", [](RunConfig& c) { c.attention = "none"; }).decoder == "cho");
  CHECK(settled("lstm", [](RunConfig& c) { c.attention = "none"; }).decoder == "sutskever");
  CHECK(settled("gru", [](RunConfig& c) { c.attention = "none"; }).context == "every_step");
  CHECK(settled("gru", [](RunConfig& c) { c.attention = "none", c.start_state = "backward"; }).context == "both_ends");
  CHECK(settled("gru", [](RunConfig& c) { c.decoder = "sutskever"; }).attention == "none");
  CHECK(settled("rnn", [](RunConfig& c) { c.decoder = "luong"; }).attention == "general");
  CHECK(settled("lstm", [](RunConfig& c) { c.attention = "local_m"; }).attention == "local-m");
  CHECK(settled("lstm", [](RunConfig& c) { c.attention = "local-m"; }).window == 10);
  const auto conditional = [](RunConfig& c) { c.decoder = "conditional"; };                          // Nematus
  const RunConfig nematus = settled("gru", conditional);
  CHECK(nematus.attention == "additive");
  CHECK(nematus.gru_form == "cudnn");
  CHECK(nematus.readout == "tanh");
  CHECK(nematus.start_state == "mean");
  CHECK(settled("lstm", conditional).attention == "additive");
  const RunConfig cho = settled("gru", [](RunConfig& c) { c.decoder = "cho-exact"; });                // Cho et al. 2014
  CHECK(cho.attention == "none");
  CHECK(cho.decoder == "cho-exact");
  CHECK(cho.gru_form == "cho");
  CHECK(cho.readout == "maxout");
  CHECK(cho.start_state == "context");
  CHECK(cho.context == "every_step");
  CHECK(settled("gru", [](RunConfig& c) { c.decoder = "cho-exact", c.start_state = "backward"; }).context == "both_ends");
  CHECK(settled("transformer", [](RunConfig&) {}).attention == "auto");
}

TEST_CASE("recurrent options: what does not fit together") {
  {
    const ExtraScores extra({NamedScore{"locality", [](Scope s, const ScoreOptions& o) { return make_score("dot", s, o); }}});
    CHECK(!settled("gru", [](RunConfig& c) { c.attention = "locality"; }).window);      // a score, no window
    CHECK(wrong("gru", [](RunConfig& c) { c.attention = "locality", c.window = 3; }).starts_with("not an option of this model: --window"));
    CHECK(wrong("gru", [](RunConfig& c) { c.attention = "local-p-locality", c.window = 3; }) == "");
  }
  for (const char* model : {"rnn", "lstm", "gru"})
    for (const std::string attention :
         {"auto", "none", "additive", "dot", "general", "concat", "location", "cosine", "local-m", "local-p", "local-p-dot-hard"})
      for (const char* decoder : {"auto", "bahdanau", "luong", "conditional"}) {
        CAPTURE(attention);
        if (attention == "none" && std::string_view(decoder) == "conditional") continue;
        CHECK(wrong(model, [&](RunConfig& c) { c.attention = attention, c.decoder = decoder; }) == "");
      }
  const std::string unknown = wrong("gru", [](RunConfig& c) { c.attention = "aditive"; });
  CHECK(unknown.starts_with("unknown name: --attention \"aditive\"; did you mean additive? one of none, mean, additive, "));
  CHECK(unknown.find("unknown name", 1) == unknown.npos);
  CHECK(wrong("gru", [](RunConfig& c) { c.attention = "additive-normed", c.initial_values = "bahdanau"; }) ==
        "a vector of zeros has no direction: --initial-values bahdanau --attention additive-normed; --attention additive");
  CHECK(wrong("transformer", [](RunConfig& c) { c.initial_values = "luong"; }) ==
        "not an option of this model: --initial-values luong --model transformer; it belongs to --model rnn, lstm and gru");
  CHECK(wrong("gru", [](RunConfig& c) { c.heads = 8; }) ==
        "not an option of this model: --heads 8 --model gru; it belongs to --model transformer");
  CHECK(wrong("lstm", [](RunConfig& c) { c.qkv_init = "packed"; }) ==
        "not an option of this model: --qkv-init packed --model lstm; it belongs to --model transformer");
  CHECK(wrong("transformer", [](RunConfig& c) { c.attention = "dot"; }) ==
        "not an option of this model: --attention dot --model transformer; it belongs to --model rnn, lstm and gru");
  CHECK(wrong("transformer", [](RunConfig& c) {
          c.input_feeding = true;
        }).starts_with("not an option of this model: --input-feeding --model transformer"));
  CHECK(wrong("lstm", [](RunConfig& c) { c.gru_form = "cho"; }) ==
        "not an option of this model: --gru-form cho --model lstm; it belongs to --model gru");
  CHECK(wrong("gru", [](RunConfig& c) { c.input_feeding = true; }) ==
        "not an option of this model: --input-feeding --model gru; it belongs to --decoder luong");
  CHECK(wrong("lstm", [](RunConfig& c) { c.readout = "tanh"; }) ==
        "not an option of this model: --readout tanh --model lstm; it belongs to --decoder bahdanau, conditional, cho and cho-exact");
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "sutskever", c.one_direction = true; }) ==
        "not an option of this model: --one-direction --model gru --decoder sutskever; it belongs to --decoder bahdanau, conditional, cho "
        "and cho-exact");
  CHECK(wrong("gru", [](RunConfig& c) { c.bridge = "tanh"; }) ==
        "not an option of this model: --bridge tanh --model gru; it belongs to --decoder luong and sutskever");
  CHECK(wrong("lstm", [](RunConfig& c) { c.decoder = "sutskever", c.bridge = "tanh"; }) == "");
  CHECK(wrong("gru", [](RunConfig& c) { c.window = 3; }) ==
        "not an option of this model: --window 3 --model gru; it belongs to --attention local-m and local-p");
  CHECK(wrong("gru", [](RunConfig& c) { c.layers = 2; }) ==
        "more than one layer: --decoder bahdanau --layers 2; --decoder-layers 1, or --decoder luong");
  CHECK(wrong("gru", [](RunConfig& c) {
          c.decoder = "cho", c.attention = "dot";
        }).starts_with("a decoder without attention: --decoder cho --attention dot; "));
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "conditional", c.attention = "none"; }) ==
        "nothing to look at between two cells: --decoder conditional --attention none; --decoder cho, or another attention");
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "cho-exact", c.attention = "dot"; }) ==
        "a decoder without attention: --decoder cho-exact --attention dot; --decoder bahdanau, conditional or luong, or --attention none");
  for (const char* model : {"lstm", "rnn"})
    CHECK(wrong(model, [](RunConfig& c) { c.decoder = "cho-exact"; }) ==
          fmt::format("a decoder with the reset gate of a GRU: --decoder cho-exact --model {}; --model gru, or --decoder cho", model));
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "cho-exact", c.layers = 2; }) ==
        "more than one layer: --decoder cho-exact --layers 2; --decoder-layers 1, or --decoder sutskever");
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "cho-exact", c.context = "every_step", c.start_state = "backward"; }) ==
        "no backward states: --start-state backward --context every_step; --start-state last");
  CHECK(wrong("gru", [](RunConfig& c) { c.start_state = "context"; }) ==
        "no context that stays: --start-state context --attention additive; --start-state last, or --decoder cho");
  CHECK(wrong("gru", [](RunConfig& c) { c.context = "every_step"; }) ==
        "not an option of this model: --context every_step --model gru; it belongs to --decoder cho and cho-exact");
  for (const char* decoder : {"cho", "cho-exact"})
    for (const char* start : {"backward", "last", "mean", "zeros", "context"})
      CHECK(wrong("gru", [&](RunConfig& c) { c.decoder = decoder, c.start_state = start; }) == "");
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder = "conditional", c.layers = 2; }) ==
        "more than one layer: --decoder conditional --layers 2; --decoder-layers 1, or --decoder luong");
  CHECK(wrong("gru", [](RunConfig& c) { c.decoder_layers = 2; }) ==
        "more than one layer: --decoder bahdanau --decoder-layers 2; --decoder-layers 1, or --decoder luong");
  CHECK(wrong("gru", [](RunConfig& c) { c.layers = 2, c.decoder_layers = 1; }) == "");
  CHECK(wrong("lstm", [](RunConfig& c) { c.layers = 2, c.decoder_layers = 1; }) == "");
  CHECK(wrong("lstm", [](RunConfig& c) { c.layers = 2, c.decoder_layers = 2, c.bridge = "copy"; }) == "");
  CHECK(wrong("lstm", [](RunConfig& c) { c.layers = 2, c.decoder_layers = 1, c.bridge = "copy"; }) ==
        "states of other layers than there are: --bridge copy --layers 2 --decoder-layers 1; --bridge tanh, or as many layers");
  for (const char* name : {"gelu", "silu"})
    CHECK(wrong("gru", [&](RunConfig& c) { c.activation = name; }) ==
          fmt::format("not an option of this model: --activation {} --model gru; it belongs to --model transformer", name));
  CHECK(wrong("lstm", [](RunConfig& c) { c.gated = true; }) ==
        "not an option of this model: --gated --model lstm; it belongs to --model transformer");
  CHECK(wrong("gru", [](RunConfig& c) { c.one_direction = true, c.start_state = "backward"; }) ==
        "no backward states: --start-state backward --one-direction; --start-state last");
  CHECK(wrong("gru", [](RunConfig& c) {
          c.attention = "dot", c.decoder = "bahdanau", c.width = 13;
        }).starts_with("two directions of equal width: --attention dot --width 13; "));
  CHECK(wrong("gru", [](RunConfig& c) { c.width = 13; }) == "");
}

TEST_CASE("recurrent models: the papers' names and shapes of parameters") {
  const auto names = [](std::string_view model, auto&& change) {
    RunConfig c = default_config(model);
    c.width = 8;
    change(c);
    Parameters parameters(Seed{1});
    make_model(c, parameters.root(), 11, 7);
    std::map<std::string, Shape> out;
    for (const auto& item : parameters.items()) out[item->path] = item->variable.shape();
    return out;
  };
  using Names = std::map<std::string, Shape>;
  CHECK(names("gru", [](RunConfig&) {}) ==
        Names{{"source_embedding.weight", {11, 8}}, {"target_embedding.weight", {7, 8}}, {"encoder.weight_ih_l0", {24, 8}},
              {"encoder.weight_hh_l0", {24, 8}}, {"encoder.bias_ih_l0", {24}}, {"encoder.weight_ih_l0_reverse", {24, 8}},
              {"encoder.weight_hh_l0_reverse", {24, 8}}, {"encoder.bias_ih_l0_reverse", {24}}, {"init.weight", {8, 8}},
              {"attention.query_proj.weight", {8, 8}}, {"attention.key_proj.weight", {8, 16}}, {"attention.v", {8}},
              {"decoder.weight_ih", {24, 24}}, {"decoder.weight_hh", {24, 8}}, {"decoder.bias_ih", {24}}, {"readout.state.weight", {8, 8}},
              {"readout.state.bias", {8}}, {"readout.embed.weight", {8, 8}}, {"readout.context.weight", {8, 16}}, {"out.weight", {7, 4}},
              {"out.bias", {7}}});
  CHECK(names("gru", [](RunConfig& c) { c.decoder = "conditional"; }) ==
        Names{{"source_embedding.weight", {11, 8}}, {"target_embedding.weight", {7, 8}}, {"encoder.weight_ih_l0", {24, 8}},
              {"encoder.weight_hh_l0", {24, 8}}, {"encoder.bias_ih_l0", {24}}, {"encoder.bias_hh_l0", {24}},
              {"encoder.weight_ih_l0_reverse", {24, 8}}, {"encoder.weight_hh_l0_reverse", {24, 8}}, {"encoder.bias_ih_l0_reverse", {24}},
              {"encoder.bias_hh_l0_reverse", {24}}, {"init.weight", {8, 16}}, {"attention.query_proj.weight", {8, 8}},
              {"attention.key_proj.weight", {8, 16}}, {"attention.v", {8}}, {"decoder.cell1.weight_ih", {24, 8}},
              {"decoder.cell1.weight_hh", {24, 8}}, {"decoder.cell1.bias_ih", {24}}, {"decoder.cell1.bias_hh", {24}},
              {"decoder.cell2.weight_ih", {24, 16}}, {"decoder.cell2.weight_hh", {24, 8}}, {"decoder.cell2.bias_ih", {24}},
              {"decoder.cell2.bias_hh", {24}}, {"readout.state.weight", {8, 8}}, {"readout.state.bias", {8}},
              {"readout.embed.weight", {8, 8}}, {"readout.context.weight", {8, 16}}, {"out.weight", {7, 8}}, {"out.bias", {7}}});
  CHECK(names("gru", [](RunConfig& c) { c.decoder = "cho-exact"; }) ==
        Names{{"source_embedding.weight", {11, 8}}, {"target_embedding.weight", {7, 8}}, {"encoder.weight_ih_l0", {24, 8}},
              {"encoder.weight_hh_l0", {24, 8}}, {"encoder.bias_ih_l0", {24}}, {"context_proj.weight", {8, 8}}, {"init.weight", {8, 8}},
              {"decoder.weight_ih", {24, 16}}, {"decoder.weight_hh", {24, 8}}, {"decoder.bias_ih", {24}}, {"decoder.bias_hh", {24}},
              {"readout.state.weight", {8, 8}}, {"readout.state.bias", {8}}, {"readout.embed.weight", {8, 8}},
              {"readout.context.weight", {8, 8}}, {"out.weight", {7, 4}}, {"out.bias", {7}}});
  CHECK(names("lstm", [](RunConfig& c) { c.input_feeding = true; }) ==
        Names{{"source_embedding.weight", {11, 8}}, {"target_embedding.weight", {7, 8}}, {"encoder.weight_ih_l0", {32, 8}},
              {"encoder.weight_hh_l0", {32, 8}}, {"encoder.bias_ih_l0", {32}}, {"encoder.bias_hh_l0", {32}},
              {"attention.key_proj.weight", {8, 8}}, {"decoder.weight_ih_l0", {32, 16}}, {"decoder.weight_hh_l0", {32, 8}},
              {"decoder.bias_ih_l0", {32}}, {"decoder.bias_hh_l0", {32}}, {"attn_out.weight", {8, 16}}, {"out.weight", {7, 8}}});
}

TEST_CASE("recurrent options reach the model") {
  const auto with_model = [](std::string_view model, auto&& change, auto&& look) {
    RunConfig c = default_config(model);
    c.width = 8;
    change(c);
    Parameters parameters(Seed{1});
    const auto made = make_model(c, parameters.root(), 10, 10);
    return look(dynamic_cast<const RecurrentModel&>(*made));
  };
  const auto bahdanau = [&](auto&& change) {
    return with_model("gru", change, [](const RecurrentModel& m) { return std::get<BahdanauDecoder>(m.decoder).options; });
  };
  const auto luong = [&](auto&& change) {
    return with_model("lstm", change, [](const RecurrentModel& m) { return std::get<LuongDecoder>(m.decoder).options; });
  };
  CHECK(bahdanau([](RunConfig& c) { c.decoder = "conditional"; }).conditional);
  CHECK(!bahdanau([](RunConfig&) {}).conditional);
  const auto exact = [](RunConfig& c) { c.decoder = "cho-exact"; };
  CHECK(bahdanau(exact).reset_context);
  CHECK(bahdanau(exact).unit == RecurrentUnit::gru_cudnn);
  CHECK(bahdanau(exact).start_state == StartState::context);
  CHECK(!bahdanau([](RunConfig& c) { c.decoder = "cho"; }).reset_context);
  CHECK(with_model("gru", exact, [](const RecurrentModel& m) { return m.encoder.options.unit; }) == RecurrentUnit::gru_cho);
  CHECK_FALSE(with_model("gru", exact, [](const RecurrentModel& m) { return m.encoder.options.bidirectional; }));
  for (const auto& [name, readout] : {std::pair("maxout", Readout::maxout), {"tanh", Readout::tanh}, {"linear", Readout::linear}})
    CHECK(bahdanau([name = name](RunConfig& c) { c.readout = name; }).readout == readout);
  for (const auto& [name, state] : {std::pair("current", ReadoutState::current), {"previous", ReadoutState::previous}})
    CHECK(bahdanau([name = name](RunConfig& c) { c.readout_state = name; }).readout_state == state);
  for (const auto& [name, start] :
       {std::pair("backward", StartState::backward), {"last", StartState::last}, {"mean", StartState::mean}, {"zeros", StartState::zeros}})
    CHECK(bahdanau([name = name](RunConfig& c) { c.start_state = name; }).start_state == start);
  for (const auto& [name, context] : {std::pair("every_step", FixedContext::every_step), {"both_ends", FixedContext::both_ends}})
    CHECK(bahdanau([name = name](RunConfig& c) { c.decoder = "cho", c.context = name; }).context == context);
  for (const auto& [name, unit] :
       {std::pair("bahdanau", RecurrentUnit::gru_bahdanau), {"cho", RecurrentUnit::gru_cho}, {"cudnn", RecurrentUnit::gru_cudnn}})
    CHECK(bahdanau([name = name](RunConfig& c) { c.gru_form = name; }).unit == unit);
  for (const auto& [name, bridge] : {std::pair("copy", Bridge::copy), {"linear", Bridge::linear}, {"tanh", Bridge::tanh}})
    CHECK(luong([name = name](RunConfig& c) { c.bridge = name; }).bridge == bridge);
  CHECK(luong([](RunConfig& c) { c.input_feeding = true; }).input_feeding);
  CHECK(luong([](RunConfig& c) { c.layers = 3; }).layers == 3);
  CHECK(luong([](RunConfig& c) { c.layers = 3, c.decoder_layers = 3; }).bridge == Bridge::copy);
  CHECK(luong([](RunConfig& c) { c.layers = 3, c.decoder_layers = 2; }).layers == 2);
  CHECK(luong([](RunConfig& c) { c.layers = 3, c.decoder_layers = 2; }).bridge == Bridge::tanh);
  CHECK(luong([](RunConfig& c) { c.layers = 2, c.decoder_layers = 1, c.dropout = 0.3; }).dropout == 0);
  CHECK(luong([](RunConfig& c) { c.attention = "local-p", c.window = 3; }).score.window == 3);
  CHECK(luong([](RunConfig& c) { c.attention = "local-p"; }).score.window == 10);
  CHECK(luong([](RunConfig& c) { c.layers = 2, c.dropout = 0.3; }).dropout == 0.3);
  const auto encoder = [](const RecurrentModel& m) { return m.encoder.options; };
  CHECK(with_model("lstm", [](RunConfig& c) { c.reverse_source = true; }, encoder).reverse_source);
  CHECK(with_model("gru", [](RunConfig&) {}, encoder).bidirectional);
  for (const char* model : {"gru", "lstm"}) {
    CHECK(with_model(model, [](RunConfig& c) { c.layers = 3, c.decoder_layers = 1, c.dropout = 0.3; }, encoder).layers == 3);
    CHECK(with_model(model, [](RunConfig& c) { c.layers = 3, c.decoder_layers = 1, c.dropout = 0.3; }, encoder).dropout == 0.3);
  }
  CHECK_FALSE(with_model("gru", [](RunConfig& c) { c.one_direction = true; }, encoder).bidirectional);
}

TEST_CASE("recurrent models: the papers' initial values") {
  struct Made {
    Made(std::string_view model, std::string attention, std::string initial) : parameters(Seed{1}, DType::f64) {
      RunConfig c = default_config(model);
      c.width = 48, c.attention = std::move(attention), c.initial_values = std::move(initial);
      made = make_model(c, parameters.root() / "net", 50, 60);
    }
    std::vector<double> values(std::string_view path) const {
      return parameters.find(fmt::format("net.{}", path))->variable.value().contiguous().to_vector<double>();
    }
    Parameters parameters;
    std::unique_ptr<Seq2Seq> made;
  };
  const auto deviation = [](const std::vector<double>& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / double(x.size()));
  };
  const auto largest = [](const std::vector<double>& x) {
    return std::abs(*std::ranges::max_element(x, {}, [](double v) { return std::abs(v); }));
  };

  const Made bahdanau("gru", "additive", "bahdanau");
  for (const auto& item : bahdanau.parameters.items()) {
    const std::string path = item->path.substr(4);
    CAPTURE(path);
    const std::vector<double> x = bahdanau.values(path);
    const bool embedding = path.find("embedding") != path.npos;
    if (item->variable.rank() == 1) {
      CHECK(largest(x) == 0);                                                    // biases, v
    } else if (path.find("weight_hh") != path.npos) {
      for (Index gate = 0; gate < 3; ++gate) {                                   // U Uᵀ = 1, gate by gate
        const Tensor u = item->variable.value()(Slice{48 * gate, 48 * (gate + 1)});
        CHECK(worst_absolute(matmul(u, transpose(u)), eye(48, DType::f64).contiguous().to_vector<double>()) < 1e-12);
      }
    } else {
      CHECK(deviation(x) == doctest::Approx(path.starts_with("attention.") ? 0.001 : 0.01).epsilon(0.06).scale(0));
      for (Index i = 0; embedding && i < 48; ++i) CHECK(x[std::size_t(i)] == 0);   // <pad>
    }
  }
  for (const auto& [name, r] : {std::pair("sutskever", 0.08), std::pair("luong", 0.1)})
    for (const char* model : {"gru", "lstm"}) {
      const Made uniform(model, "general-scaled", name), again(model, "general-scaled", name), pytorch(model, "general-scaled", "pytorch");
      for (const auto& item : uniform.parameters.items()) {
        const std::string path = item->path.substr(4);
        CAPTURE(path);
        const std::vector<double> x = uniform.values(path);
        CHECK(x == again.values(path));
        if (item->variable.rank() == 0) {
          CHECK(x == std::vector<double>{1});                                    // g
          continue;
        }
        CHECK(x != pytorch.values(path));
        CHECK(largest(x) <= r);
        CHECK(largest(x) > 0.95 * r);
        CHECK(deviation(x) == doctest::Approx(r / std::sqrt(3)).epsilon(0.1).scale(0));
      }
    }
}
