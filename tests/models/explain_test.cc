// SPDX-License-Identifier: Apache-2.0
#include "models/explain.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention/attend.h"
#include "attention/random_features.h"
#include "attention/relative.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/recurrent_decoder.h"
#include "models/transformer.h"
#include "models/translate.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_model.h"

using namespace heed;

namespace {

const Explanation::Value& value_of(const Explanation& x, std::string_view ending) {
  const auto at = std::ranges::find_if(x.values, [&](const auto& v) { return v.name.ends_with(ending); });
  REQUIRE_MESSAGE(at != x.values.end(), ending);
  return *at;
}

// Σ α = 1 (local-p: less), c = Σ_j α_j h_j of the numbers shown, the words' probabilities are those of the model's own step.
void check_walk(const Explanation& x, double least, double most) {
  std::string prefix;
  for (const auto& v : x.values)
    if ((v.name == "weights" || v.name.ends_with(".weights")) && v.axes.columns == Along::source)
      prefix = v.name.substr(0, v.name.size() - 7);
  const std::vector<double> weights = doubles(value_of(x, prefix + "weights").value);
  const Explanation::Value &weighted = value_of(x, prefix + "weighted"), &context = value_of(x, prefix + "context");
  REQUIRE(weights.size() == x.source.size());
  double sum = 0;
  for (const double w : weights) sum += w;
  CHECK(sum <= most);
  CHECK(sum >= least);
  CHECK(weighted.rows == x.source);
  std::vector<double> total(std::size_t(context.value.numel()));
  for (std::size_t s = 0; s < weights.size(); ++s)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += doubles(weighted.value)[s * total.size() + i];
  const std::vector<double> shown = doubles(context.value);
  for (std::size_t i = 0; i < total.size(); ++i) CHECK(total[i] == doctest::Approx(shown[i]).epsilon(1e-5).scale(largest_of(shown)));
}

// One explanation, recomputed: what a formula names comes from the values shown and from the weights, and nothing else.
struct Recomputed {
  const SmallModel& small;
  const Explanation& x;
  std::string shown_formula = {};                  // of the value that is checked

  const Explanation::Value* find(std::string_view name) const {
    const auto at = std::ranges::find_if(x.values, [&](const auto& v) { return v.name == name; });
    return at == x.values.end() ? nullptr : &*at;
  }
  Variable shown(std::string_view name) const {
    const Explanation::Value* const value = find(name);
    REQUIRE_MESSAGE(value, "no value " << name);
    return constant(to(value->value, DType::f64));
  }
  Variable weight(const std::string& path) const {
    const Parameter::Data* const data = small.parameters->find(path);
    REQUIRE_MESSAGE(data, "no parameter " << path);
    return constant(to(data->variable.value(), DType::f64));
  }
  bool says(std::string_view part) const { return shown_formula.find(part) != shown_formula.npos; }
  // x Wᵀ, and the bias where the formula has `term`
  Variable product(const Variable& in, const std::string& path, std::string_view term = "+ b") const {
    return linear(in, weight(path + ".weight"), says(term) ? weight(path + ".bias") : Variable());
  }
  // block of the packed projection, as far as head 1 sees it
  Variable projected(const Variable& in, const std::string& path, Index block, Index width, std::string_view term) const {
    const std::string alone = path + (block == 0 ? ".q_proj" : block == 1 ? ".k_proj" : ".v_proj");
    if (small.parameters->find(alone + ".weight"))                 // where heads share keys and values
      return linear(in, slice(weight(alone + ".weight"), 0, 0, width),
                    says(term) ? slice(weight(alone + ".bias"), 0, 0, width) : Variable());
    const Index first = block * in.size(-1);
    return linear(in, slice(weight(path + ".in_proj_weight"), 0, first, first + width),
                  says(term) ? slice(weight(path + ".in_proj_bias"), 0, first, first + width) : Variable());
  }
  void check(std::string_view name, auto&& make) {
    const Explanation::Value* const value = find(name);
    if (!value) return;
    shown_formula = value->formula;
    INFO(name << "  " << shown_formula);
    const std::vector<double> made = doubles(make().value()), seen = doubles(value->value);
    REQUIRE(made.size() == seen.size());
    for (std::size_t i = 0; i < made.size(); ++i) CHECK(made[i] == doctest::Approx(seen[i]).epsilon(1e-4).scale(largest_of(seen)));
  }
};

Variable scaled(const Variable& a, const Variable& rows) { return reshape(a, {-1, 1}) * rows; }      // α_j h_j

Variable normed(const Recomputed& r, const Variable& in, const std::string& path) {
  if (r.small.run.config.rms_norm) return rms_norm(in, r.weight(path + ".weight"));
  return layer_norm(in, r.weight(path + ".weight"), r.says("+ β") || r.says("norm(") ? r.weight(path + ".bias") : Variable(), 1e-5);
}

// P of all words, from their logits and from what is copied; f is what the output layer reads.
void check_copying(Recomputed& r, const Variable& f) {
  if (!r.small.run.config.copy) return;
  r.check("gate", [&] { return r.product(f, "gate"); });
  r.check("copy", [&] { return matmul(tanh(linear(r.shown("memory"), r.weight("copy.key_proj.weight"), {})), f); });
  r.check("distribution", [&] {
    const bool gated = r.find("gate") != nullptr;
    const auto places = std::ranges::find_if(r.x.values, [&](const auto& v) {
      return gated ? v.name.ends_with("multihead_attn.weights") || v.name == "attention.weights" : v.name == "copy";
    });
    REQUIRE(places != r.x.values.end());
    const Variable z = r.shown("logits"), of_places = r.shown(places->name);
    const Variable shares = gated ? of_places * sigmoid(-r.shown("gate")) : exp(of_places);
    const Tensor p = zeros(r.shown("distribution").shape(), DType::f64);   // and behind them the words that no vocabulary has: none here
    copy_into(p(Slice{0, z.size(0)}), (gated ? softmax(z, -1) * sigmoid(r.shown("gate")) : exp(z)).value());
    const Vocabulary& words = r.small.run.target.vocabulary;
    for (std::size_t j = 0; j < places->columns.size(); ++j) {
      const std::int32_t id = j + 1 < places->columns.size() ? words.id(places->columns[j]) : words.eos;
      p.mutable_span<double>()[std::size_t(id)] += shares.value()[Index(j)].item();
    }
    return gated ? constant(p) : constant(p) / sum(constant(p));
  });
}

// The sublayers of the layer shown; x is what it reads, `other` the same step with head 2.
void check_transformer(Recomputed& r, const Explanation& other) {
  const RunConfig& c = r.small.run.config;
  const std::string layer = "core.decoder.layers." + std::to_string(decoder_layers(c) - 1) + ".";
  const bool pre = c.norm == "pre";
  Variable in = decoder_layers(c) == 1
                    ? r.shown("target_embedding")
                    : r.shown("core.decoder.layers." + std::to_string(decoder_layers(c) - 2) + (pre ? ".norm3.sum" : ".norm3"));
  const auto sublayer = [&](const std::string& norm, const std::string& last, auto&& inside) {
    if (pre) r.check(norm, [&] { return normed(r, in, norm); });
    inside(pre ? r.shown(norm) : in);
    r.check(pre ? norm + ".sum" : norm, [&] { return pre ? in + r.shown(last) : normed(r, in + r.shown(last), norm); });
    in = r.shown(pre ? norm + ".sum" : norm);
  };
  const Index width = c.width / c.heads;
  const auto turned = [&](const Variable& x) {                   // of the word read
    if (!r.says("turned by its place")) return x;
    return rotary(x, rotations(1, width, DType::f64, c.positions == "rope" ? RotaryLayout::interleaved : RotaryLayout::half, r.x.step - 1));
  };
  // rows as a query-key norm leaves them
  const auto normed_head = [&](const Variable& x, const std::string& path, const std::string& norm) {
    if (r.says("q/‖q‖") || r.says("k_j/‖k_j‖"))
      return r.says("g q/‖q‖") ? x / heed::norm(x, {-1}, true) * r.weight(path + ".g") : x / heed::norm(x, {-1}, true);
    if (r.says("mean")) return rms_norm(x, r.weight(path + "." + norm + ".weight"));
    return r.says("μ") ? layer_norm(x, r.weight(path + "." + norm + ".weight"), r.weight(path + "." + norm + ".bias")) : x;
  };
  const auto met = [&](const Variable& x, const std::string& path, const std::string& norm) {
    const Variable y = normed_head(x, path, norm);
    if (!r.says("random w")) return r.says("through elu(x) + 1") ? elu(y) + 1 : y;
    const RandomFeatures features({.number = *c.random_features, .head_width = width, .draw = decoder_layers(c), .dtype = DType::f64});
    return r.says("k_j")
               ? reshape(features.keys(reshape(y, {1, 1, -1, width}), r.says("max") ? Mask() : Mask::causal()), {-1, *c.random_features})
               : features.queries(y);
  };
  const auto attention = [&](const std::string& path, const Variable& reads, bool cross) {
    for (const Index block : {1, 2})
      r.check(path + (block == 1 ? ".keys" : ".values"), [&] {
        const Variable own = turned(met(r.projected(cross ? r.shown("memory") : reshape(reads, {1, -1}), path, block,
                                                    r.says("pair of heads") ? 2 * width : width, block == 1 ? "+ b_K" : "+ b_V"),
                                        path, "k_norm"));
        // those of words before come from the cache
        if (cross || r.x.step == 1) return own;
        return concat({slice(r.shown(path + (block == 1 ? ".keys" : ".values")), 0, 0, r.x.step - 1), own});
      });
    r.check(path + ".query", [&] {
      return reshape(turned(met(r.projected(reshape(reads, {1, -1}), path, 0, width, "+ b_Q"), path, "q_norm")), {-1});
    });
    const Variable keys = reshape(r.shown(path + ".keys"), {-1, c.random_features.value_or(width)}),
                   values = reshape(r.shown(path + ".values"), {-1, c.differential ? 2 * width : width});
    const auto of_second = [&](const std::string& name) { return Recomputed{r.small, other}.shown(path + name); };      // head
    const Index now = r.x.step - 1;                              // the place of the word read
    const auto offsets = [&](const std::string& table) {         // rows of head 1 for the words up to here
      List<Variable> rows;
      for (Index j = 0; j <= now; ++j) rows.push_back(select(select(r.weight(path + table), 0, 0), 0, j - now + 16));
      return stack(rows);
    };
    r.check(path + ".bias", [&]() -> Variable {
      List<Variable> b;
      const auto slope = [&] { return alibi_slopes(c.heads).data<double>()[0]; };
      for (Index j = 0; j <= now && !r.says("rel_k"); ++j)
        b.push_back(r.says("-m |j - i|")
                        ? constant(full({}, -slope() * double(now - j), DType::f64))
                        : select(select(r.weight("core.decoder.relative_attention_bias.weight"), 0, t5_bucket(j - now, true)), 0, 0));
      return r.says("rel_k") ? matmul(offsets(".rel_k.weight"), r.shown(path + ".query")) * (r.says("√") ? 1 / std::sqrt(double(width)) : 1) : stack(b);
    });
    r.check(path + ".scores", [&] {
      const Variable dots = matmul(keys, r.shown(path + ".query")) * (r.says("√") ? 1 / std::sqrt(double(width)) : 1);
      return r.says("+ b_j") ? dots + r.shown(path + ".bias") : dots;
    });
    const auto mixed = [&](const std::string& mix, const std::string& name) {       // by head 1, of two
      const Variable row = select(r.weight(path + mix), 0, 0);
      return r.shown(path + name) * select(row, 0, 0) + of_second(name) * select(row, 0, 1);
    };
    r.check(path + ".mixed_scores", [&] { return mixed(".logit_mix", ".scores"); });
    r.check(path + ".mixed_weights", [&] { return mixed(".weight_mix", ".weights"); });
    r.check(path + ".differences", [&] {
      const auto half = [&](const char* k, const char* q) { return exp(sum(r.weight(path + k) * r.weight(path + q))); };
      // of the last layer
      const double start = 0.8 - 0.6 * std::exp(-0.3 * double(decoder_layers(c) - 1));
      const char* const weights = c.talking_heads ? ".mixed_weights" : ".weights";
      return r.shown(path + weights) - of_second(weights) * (half(".lambda_q1", ".lambda_k1") - half(".lambda_q2", ".lambda_k2") + start);
    });
    const std::string weights = c.differential ? ".differences" : c.talking_heads ? ".mixed_weights" : ".weights";
    r.check(path + ".weights", [&] {
      const Variable e = r.shown(path + (c.talking_heads ? ".mixed_scores" : ".scores"));
      if (c.linear_attention) return e / sum(e);
      if (c.normalise == "learned-entmax")
        return alpha_entmax(e, sigmoid(reshape(slice(r.weight(path + ".entmax_order"), 0, 0, 1), {})) + 1);
      const Tensor seen = ones({e.size(0)}, DType::u8);
      const Index gap = c.dilation.empty() ? 1 : dilation(c)[0];                                                             // of head 1
      for (Index s = 0; s < seen.size(0) && !cross && c.sliding_window; ++s)
        fill_(seen[s], (now - s) % gap == 0 && now - s <= gap * *c.sliding_window);
      return reshape(normalise_named(c.normalise)(unsqueeze(e, 0), Mask::allowed(seen)), e.shape());
    });
    const auto read = [&] { return r.says("rel_v") || r.says("a_(j - i)") ? values + offsets(".rel_v.weight") : values; };
    r.check(path + ".weighted", [&] { return scaled(r.shown(path + weights), read()); });
    r.check(path + ".context", [&] { return matmul(r.shown(path + weights), read()); });
    r.check(path + ".normed", [&] {
      const double start = 0.8 - 0.6 * std::exp(-0.3 * double(decoder_layers(c) - 1));
      return rms_norm(r.shown(path + ".context"), r.weight(path + ".norm.weight")) * (1 - start);
    });
    if (c.heads == 2)
      r.check(path, [&] {
        return r.product(c.differential ? r.shown(path + ".normed") : concat({r.shown(path + ".context"), of_second(".context")}),
                         path + ".out_proj", "+ b_O");
      });
  };
  sublayer(layer + "norm1", layer + "self_attn", [&](const Variable& y) { attention(layer + "self_attn", y, false); });
  sublayer(layer + "norm2", layer + "multihead_attn", [&](const Variable& y) { attention(layer + "multihead_attn", y, true); });
  sublayer(layer + "norm3", layer + "linear2", [&](const Variable& y) {
    r.check(layer + "linear1", [&] {
      const Variable z = r.product(y, layer + "linear1");
      return r.says("gelu(") ? gelu(z) : r.says("silu(") ? silu(z) : relu(z);
    });
    r.check(layer + "linear3", [&] { return r.product(y, layer + "linear3"); });
    r.check(layer + "linear3.gated", [&] { return r.shown(layer + "linear1") * r.shown(layer + "linear3"); });
    r.check(layer + "linear2",
            [&] { return r.product(r.shown(layer + (r.find(layer + "linear3") ? "linear3.gated" : "linear1")), layer + "linear2"); });
  });
  if (r.find("core.decoder.norm"))
    r.check("core.decoder.norm", [&] { return normed(r, in, "core.decoder.norm"); }), in = r.shown("core.decoder.norm");
  r.check("logits", [&] { return r.product(in, "output"); });
  check_copying(r, in);
}

// x = √d E[word] + PE, of one word at its position
void check_embedding(Recomputed& r, Index word) {
  r.check("target_embedding", [&] {
    const Variable e = select(r.weight("target_embedding.weight"), 0, word);
    const Variable x = r.says("√d") ? e * std::sqrt(double(e.size(0))) : e;
    if (!r.says("+ PE")) return x;
    const Index position = r.x.step - 1;
    return x + (r.small.parameters->find("target_positions.weight")
                    ? select(r.weight("target_positions.weight"), 0, position)
                    : constant(select(sinusoids(position + 1, e.size(0), DType::f64), 0, position)));
  });
}

void check_attention(Recomputed& r) {
  const Variable q = r.shown("query"), memory = r.shown("memory");
  const Index S = memory.size(0);
  const auto inside = [&] {                        // of the tanh
    Variable sum = linear(q, r.weight("attention.query_proj.weight"), {}) + linear(memory, r.weight("attention.key_proj.weight"), {});
    if (r.says("+ b)")) sum = sum + r.weight("attention.b");
    if (r.says("+ w Σ_t α_tj")) sum = sum + linear(reshape(r.shown("attention.sum"), {-1, 1}), r.weight("attention.coverage.weight"), {});
    if (r.says("+ V (F * α)_j")) {
      const Variable padded = pad(r.shown("attention.previous"), 0, 3, 3);
      List<Variable> around;
      for (Index j = 0; j < S; ++j) around.push_back(slice(padded, 0, j, j + 7));
      sum = sum + linear(linear(stack(around), r.weight("attention.filters.weight"), {}), r.weight("attention.filter_proj.weight"), {});
    }
    return tanh(sum);
  };
  if (r.find("attention.scores")->formula.find("tanh") != std::string::npos) REQUIRE(r.find("attention.hidden"));
  r.check("attention.hidden", inside);
  r.check("attention.scores", [&]() -> Variable {
    if (r.says("tanh")) {
      const Variable v = r.weight("attention.v"), e = matmul(inside(), r.says("g vᵀ/‖v‖") ? v * (r.weight("attention.g") / norm(v)) : v);
      if (!r.says("of the words in the window")) return e;
      return e * constant(to(greater(r.shown("attention.weights").value(), 0), DType::f64));
    }
    if (r.says("qᵀ W h_j"))
      return matmul(linear(memory, r.weight("attention.key_proj.weight"), {}), q) *
             (r.says("g qᵀ") ? r.weight("attention.g") : constant(full({}, 1.0, DType::f64)));
    if (r.says("(W q)_j")) return slice(linear(q, r.weight("attention.proj.weight"), {}), 0, 0, S);
    if (r.says("a_k exp(-b_k")) {
      const Variable shape = reshape(linear(q, r.weight("attention.shapes.weight"), r.weight("attention.shapes.bias")), {2, -1}),
                     places = constant(arange(1, double(S) + 1, 1, DType::f64));
      return logsumexp(unsqueeze(select(shape, 0, 0), 1) -
                           unsqueeze(exp(select(shape, 0, 1)), 1) * square(unsqueeze(r.shown("attention.middles"), 1) - places),
                       {0});
    }
    if (r.says("e_j = 0")) return constant(zeros({S}, DType::f64));
    if (r.says("cos")) return matmul(memory, q) / (norm(q) * norm(memory, {-1}));
    return matmul(memory, q) * (r.says("√n") ? 1 / std::sqrt(double(q.size(0))) : 1);
  });
  r.check("attention.middles", [&] {
    return r.shown("attention.previous") + exp(linear(q, r.weight("attention.steps.weight"), r.weight("attention.steps.bias")));
  });
  r.check("attention.position", [&] {
    if (r.says("p = t - 1")) return constant(full({1}, double(r.x.step - 1), DType::f64));
    return reshape(
        sigmoid(matmul(tanh(linear(q, r.weight("attention.position_proj.weight"), {})), r.weight("attention.position_v"))) * double(S) - 1,
        {1});
  });
  const double sigma = double(r.small.run.config.window.value_or(10)) / 2;
  r.check("attention.factor", [&] {
    return exp(square(constant(arange(0, double(S), 1, DType::f64)) - r.shown("attention.position")) * (-1 / (2 * sigma * sigma)));
  });
  r.check("attention.damped", [&] { return r.shown("attention.weights") * r.shown("attention.factor"); });
  const auto weights = [&] { return r.shown(r.says("a_j h_j") ? "attention.damped" : "attention.weights"); };
  r.check("attention.weighted", [&] { return scaled(weights(), memory); });
  r.check("attention.context", [&] { return matmul(weights(), memory); });
}

void check_cells(Recomputed& r) {
  const RunConfig& c = r.small.run.config;
  const bool bahdanau = r.find("readout") != nullptr;
  for (Index k = 0; k < decoder_layers(c); ++k) {
    const std::string layer = decoder_layers(c) > 1 ? "." + std::to_string(k) : "", ending = bahdanau ? "" : "_l" + std::to_string(k);
    REQUIRE(r.find("state" + layer));
    const auto cell = [&](const std::string& path, const std::string& state, const std::string& kept) {
      List<Variable> reads;
      if (r.says("E y")) reads.push_back(r.shown("target_embedding"));
      if (r.says("; c]") || r.says("cell(c, ")) reads.push_back(r.shown(r.find("context") ? "context" : "attention.context"));
      if (r.says("; h~ of the step before]")) reads.push_back(r.shown("feed"));
      if (r.says("h of the layer below")) reads.push_back(r.shown("state." + std::to_string(k - 1)));
      const auto row = [](const Variable& v) { return reshape(v, {1, -1}); };
      const auto own = [&](const std::string& name) {
        return r.small.parameters->find(path + name + ending) ? r.weight(path + name + ending) : Variable();
      };
      const RecurrentUnit unit = c.model == "rnn"           ? RecurrentUnit::tanh
                                 : c.model == "lstm"        ? RecurrentUnit::lstm
                                 : own("bias_hh").defined() ? RecurrentUnit::gru_cudnn
                                                            : RecurrentUnit::gru_bahdanau;
      RecurrentState before{row(r.shown(state)), {}};
      if (r.says(" and m")) before.c = row(r.shown(kept));
      if (r.says("r over U s + C c")) {
        const Variable W_C = own("weight_ih"), y = row(reads[0]), c = row(reads[1]);
        const auto of = [&](Index from, const Variable& x, const std::string& bias) {
          return linear(x, slice(W_C, 1, from, from + x.size(1)), own(bias));
        };
        return recurrent_cell_by_definition(unit, of(0, y, "bias_ih"), before, own("weight_hh"), of(y.size(1), c, "bias_hh"));
      }
      return recurrent_cell_by_definition(unit, linear(row(concat(reads)), own("weight_ih"), own("bias_ih")), before, own("weight_hh"),
                                          own("bias_hh"));
    };
    if (r.find("between")) {
      r.check("between", [&] { return cell("decoder.cell1.", "previous", "previous_cell").h; });
      r.check("between_cell", [&] {
        r.shown_formula = r.find("between")->formula;
        return cell("decoder.cell1.", "previous", "previous_cell").c;
      });
      r.check("state", [&] { return cell("decoder.cell2.", "between", "between_cell").h; });
    } else {
      r.check("state" + layer, [&] { return cell("decoder.", "previous" + layer, "previous_cell" + layer).h; });
    }
  }
}

void check_recurrent(Recomputed& r) {
  check_cells(r);
  const std::string top =
      decoder_layers(r.small.run.config) > 1 ? "state." + std::to_string(decoder_layers(r.small.run.config) - 1) : "state";
  r.check("query", [&] { return r.shown(r.says("q = s of the step before") ? "previous" : r.says("q = s'") ? "between" : top); });
  if (r.find("query")) check_attention(r);
  r.check("context", [&] {
    const Variable memory = r.shown("memory");
    const Index S = memory.size(0), n = memory.size(1) / (r.says("backward") ? 2 : 1);
    const Variable last = slice(select(memory, 0, S - 1), 0, 0, n),
                   x = r.says("backward") ? concat({last, slice(select(memory, 0, 0), 0, n)}) : last;
    return r.says("tanh(V x)") ? tanh(linear(x, r.weight("context_proj.weight"), {})) : x;
  });
  r.check("start", [&] {
    const Variable memory = r.shown("memory");
    if (r.says("tanh(W c)")) return tanh(linear(r.shown("context"), r.weight("init.weight"), {}));
    const Index n = r.weight("init.weight").size(1), S = memory.size(0);
    return tanh(linear(r.says("mean")      ? mean(memory, {0})
                       : r.says("forward") ? slice(select(memory, 0, S - 1), 0, 0, n)
                                           : slice(select(memory, 0, 0), 0, n),
                       r.weight("init.weight"), {}));
  });
  r.check("joined", [&] { return concat({r.shown("attention.context"), r.shown(top)}); });
  r.check("attentional", [&] { return tanh(linear(r.shown("joined"), r.weight("attn_out.weight"), {})); });
  r.check("readout", [&] {
    const Variable s = r.shown(r.says("s of the step before") ? "previous" : "state"),
                   c = r.shown(r.find("context") ? "context" : "attention.context");
    const Variable sum = linear(s, r.weight("readout.state.weight"), r.says("+ b") ? r.weight("readout.state.bias") : Variable()) +
                         linear(r.shown("target_embedding"), r.weight("readout.embed.weight"), {}) +
                         linear(c, r.weight("readout.context.weight"), {});
    return r.says("tanh") ? tanh(sum) : r.says("max of neighbours") ? max(reshape(sum, {-1, 2}), {-1}) : sum;
  });
  const Variable f = r.shown(r.find("readout") ? "readout" : r.find("attentional") ? "attentional" : top);
  r.check("logits", [&] { return r.product(f, "out"); });
  check_copying(r, f);
}

}  // namespace

TEST_CASE("explain: every formula gives the numbers beside it") {
  std::vector<std::string> models = every_model();
  models.insert(models.end(),
                {"--layers 1 --heads 2 --norm pre --tie output", "--layers 3 --heads 2 --final-norm always --positions none",
                 "--model gru --attention general --input-feeding", "--model rnn --attention coverage --input-feeding --layers 2",
                 "--model gru --attention location-aware --decoder luong --layers 2",
                 "--model lstm --attention additive --readout linear --readout-state previous --start-state mean",
                 "--model gru --attention none --decoder cho --context every_step",
                 "--model gru --attention local-p-location-aware --decoder bahdanau --start-state last --one-direction",
                 "--model gru --attention local-m-additive --decoder luong --window 1"});
  for (const std::string& options : models) {
    INFO(options);
    const SmallModel small(options);
    // Some parts start at 0, where no formula could be wrong.
    for (const auto& item : small.parameters->items())
      if (item->variable.shape().rank() == 1 || item->path.ends_with("_mix"))
        small.parameters->select(item->path).initialise(uniform_init(-0.5, 0.5));
    const Example example = small.example("a b c", "c b a");
    for (const Index step : {1, 2, 4}) {
      INFO("step " << step);
      const Explanation x = explain(small.run, *small.model, example, {.step = step});
      Recomputed r{small, x};
      check_embedding(r, step == 1 ? search_options(small.run).start : example.target[std::size_t(step - 2)]);
      if (options.find("--model") != options.npos) check_recurrent(r);
      else check_transformer(r, explain(small.run, *small.model, example, {.step = step, .head = 2}));
    }
  }
}

TEST_CASE("explain: a differential head shows the pair that it belongs to") {
  const SmallModel small("--layers 1 --heads 4 --differential");
  const Example example = small.example("a b c", "c b a");
  const auto shown = [&](Index head, std::string_view name) {
    const Explanation x = explain(small.run, *small.model, example, {.step = 2, .head = head});
    return std::ranges::find_if(x.values,
                                [&](const auto& v) { return v.name == "core.decoder.layers.0.multihead_attn." + std::string(name); })
        ->value;
  };
  const double lambda =
      dynamic_cast<const TranslationModel&>(*small.model).core.decoder.layers[0].multihead_attn->differential->lambda().value().item();
  for (const Index head : {1, 2, 3, 4}) {
    const Index first = (head - 1) / 2 * 2 + 1;
    const Tensor weights = subtract(shown(first, "weights"), multiply(shown(first + 1, "weights"), lambda));
    CHECK(worst_absolute(shown(head, "differences"), doubles(weights)) < 1e-6);
    CHECK(shown(head, "values").size(-1) == 8);
  }
}

TEST_CASE("explain: no bias in a formula where the layer has none") {
  Parameters parameters(Seed{1});
  const TransformerDecoder decoder(parameters.root() / "decoder",
                                   {.width = 8, .heads = 2, .feed_forward = 8, .decoder_layers = 1, .norm = NormAt::before, .bias = false});
  const Attention biased = make_attention("additive", parameters.root() / "attention", {.query_width = 8, .memory_width = 8, .bias = true});
  const Variable x = constant(full({1, 1, 8}, 1.0));
  const Trace plain;
  KeyValueCache cache(1, {2, 4}, {2, 4}, 4, DType::f32);
  decoder.next(x, decoder.prepare(x, {}), {&cache, 1});
  for (const Trace::Entry& entry : plain.entries())
    CHECK_MESSAGE((entry.formula.find("+ b") == std::string::npos && entry.formula.find("+ β") == std::string::npos),
                  entry.key() << "  " << entry.formula);
  const Trace with;
  biased(x, biased.prepare(x, {}));
  CHECK(with.find("attention.scores")->formula == "e_j = vᵀ tanh(W q + U h_j + b_U)");
}

TEST_CASE("explain: what looks back, is fed or was kept is the step before's") {
  for (const std::string options : {"--model gru --attention location-aware", "--model gru --attention coverage",
                                    "--model lstm --input-feeding --layers 2", "--model gru --attention local-p-coverage"}) {
    INFO(options);
    const SmallModel small(options);
    const Example example = small.example("a b c", "c b a");
    const Explanation first = explain(small.run, *small.model, example), second = explain(small.run, *small.model, example, {.step = 2});
    const auto same = [&](std::string_view now, std::string_view before) {
      CHECK_MESSAGE(doubles(Recomputed{small, second}.shown(now).value()) == doubles(Recomputed{small, first}.shown(before).value()), now);
    };
    if (options.find("location-aware") != options.npos) same("attention.previous", "attention.weights");
    if (options.find("coverage") != options.npos)
      same("attention.sum", options.find("local-p") == options.npos ? "attention.weights" : "attention.damped");
    if (options.find("feeding") != options.npos) {
      same("feed", "attentional");
      same("previous.0", "state.0");
      same("previous.1", "state.1");
    } else {
      same("previous", "state");
    }
    for (const Explanation::Value& v : first.values)
      if (v.name == "attention.previous" || v.name == "attention.sum" || v.name == "feed")
        CHECK(doubles(v.value) == std::vector<double>(std::size_t(v.value.numel())));
  }
}

TEST_CASE("explain: words of a sentence read backwards stand beside their own vectors") {
  const SmallModel forwards("--model lstm --attention dot"), backwards("--model lstm --attention dot --reverse-source");
  const Example example = forwards.example("a b c", "c b a");
  const Explanation there = explain(forwards.run, *forwards.model, example), back = explain(backwards.run, *backwards.model, example);
  const Explanation::Value &x = value_of(there, "source_embedding"), &y = value_of(back, "source_embedding");
  for (Index i = 0; i < 4; ++i) {
    CHECK(x.rows[std::size_t(i)] == y.rows[std::size_t(3 - i)]);
    CHECK(doubles(select(x.value, 0, i)) == doubles(select(y.value, 0, 3 - i)));
  }
}

TEST_CASE("explain: a gradient of what a Transformer reads is that of the loss") {
  const SmallModel small("--layers 1 --heads 2");
  const Example example = small.example("a b c", "c b a");
  const auto now = [&] { return explain(small.run, *small.model, example, {.step = 2, .backward = true}); };
  const Explanation explained = now();
  // Words that are read once: in this step, and as the second one of the source.
  for (const auto& [read, word, place] :
       {std::tuple("target_embedding", example.target[0], Index{0}), std::tuple("source_embedding", example.source[1], Index{1})}) {
    const std::string table = read;
    INFO(table);
    const Tensor& all = value_of(explained, table).gradient;
    const std::vector<double> gradient = doubles(all.rank() == 2 ? select(all, 0, place) : all);
    const Tensor row = select(small.parameters->find(table + ".weight")->variable.value(), 0, word);
    const auto loss_at = [&](Index i, double more) {
      float& number = row.mutable_data<float>()[i];
      const float before = number;
      number += float(more);
      const double loss = *now().loss;
      number = before;
      return loss;
    };
    const double h = 1e-2, scale = std::sqrt(16.0);
    for (Index i = 0; i < 16; ++i)
      CHECK((loss_at(i, h) - loss_at(i, -h)) / (2 * h * scale) ==
            doctest::Approx(gradient[std::size_t(i)]).epsilon(2e-2).scale(largest_of(gradient)));
  }
}

TEST_CASE("explain: what L depends on has a gradient, in every model") {
  for (const std::string& options : every_model()) {
    INFO(options);
    const SmallModel small(options);
    const Explanation x = explain(small.run, *small.model, small.example("a b c", "c b a"), {.step = 2, .backward = true});
    for (const Explanation::Value& v : x.values) {
      INFO(v.name);
      const auto where = [&](std::string_view option, std::initializer_list<std::string_view> names) {
        return options.find(option) != options.npos && std::ranges::find(names, v.name) != names.end();
      };
      // constants
      const bool none = where("mean", {"query", "attention.scores", "attention.weights"}) || where("local-m", {"attention.position"}) ||
                        (options.find("alibi") != options.npos && v.name.ends_with("self_attn.bias")) ||
                        // L does not depend on it
                        (where("none", {"memory"}) && !small.run.config.copy) ||
                        where("readout-state previous", {"state", "between_cell"}) ||
                        // inside of a fused op
                        (decoder_layers(small.run.config) > 1 && !small.run.config.input_feeding && v.name == "state.0");
      CHECK(v.gradient.defined() != none);
      if (!v.name.ends_with(".weighted") || !v.gradient.defined()) continue;
      const std::vector<double> context = doubles(value_of(x, v.name.substr(0, v.name.size() - 8) + "context").gradient),
                                each = doubles(v.gradient);
      // c = Σ_j α_j v_j
      for (std::size_t i = 0; i < each.size(); ++i) CHECK(each[i] == doctest::Approx(context[i % context.size()]).scale(0));
    }
  }
}

TEST_CASE("explain: a step is the model's own") {
  for (const std::string& options : every_model()) {
    INFO(options);
    const SmallModel small(options);
    const Example example = small.example("a b c", "c b a");
    for (Index step = 1; step <= 4; ++step) {
      const Explanation x = explain(small.run, *small.model, example, {.step = step, .top = 3});
      CHECK(x.read.size() == std::size_t(step));
      CHECK(x.steps == 4);
      CHECK(!x.loss);
      // The same step without a trace.
      const std::vector<std::vector<std::int32_t>> source{example.source};
      auto state = small.model->start(pad_sequences(source, 0));
      Step plain;
      for (Index t = 0; t < step; ++t) {
        const std::int32_t id = t == 0 ? search_options(small.run).start : example.target[std::size_t(t - 1)];
        plain = small.model->step(tensor(std::vector{id}, {1}), *state);
      }
      std::vector<double> p = doubles(plain.log_probabilities);
      CHECK(x.top[0].probability == doctest::Approx(std::exp(*std::ranges::max_element(p))).epsilon(1e-6));
      CHECK(x.top[0].probability >= x.top[1].probability);
      const auto wanted = std::ranges::find(x.top, x.wanted, &Explanation::Word::word);           // among the likeliest or after them
      REQUIRE(wanted != x.top.end());
      CHECK(wanted->probability == doctest::Approx(std::exp(p[std::size_t(example.target[std::size_t(step - 1)])])).epsilon(1e-6));
      CHECK(x.top.size() == (wanted - x.top.begin() == 3 ? 4 : 3));
      CHECK(value_of(x, "logits").value.numel() == small.run.target.vocabulary.size());
      const bool divided = options.find("-exp") == options.npos, whole = divided && options.find("local-p") == options.npos;
      if (options.find("none") == options.npos) check_walk(x, whole ? 1 - 1e-5 : 0, divided ? 1 + 1e-5 : HUGE_VAL);
    }
    CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.step = 5}), "explain: step 5 is not in [1, 4]", IndexError);
  }
}

TEST_CASE("explain: gradients of the scores are those of the loss") {
  for (const std::string& options : every_model()) {
    if (options.find("none") != options.npos || options.find("mean") != options.npos) continue;
    INFO(options);
    const SmallModel small(options);
    const Example example = small.example("a b c", "c b a");
    const Explanation x = explain(small.run, *small.model, example, {.step = 2, .backward = true});
    CHECK(x.wanted == "b");
    REQUIRE(x.loss);
    const std::vector<double> logits = doubles(value_of(x, "logits").value), gradient = doubles(value_of(x, "logits").gradient);
    double norm = 0;
    for (const double z : logits) norm += std::exp(z);
    const auto wanted = std::size_t(example.target[1]);
    // of P(wanted) that comes from the logits; of what all of them take
    double loss = std::log(norm) - logits[wanted], part = 1, all = 1;
    if (small.run.config.copy) {
      double rest = 0;                                                                                         // beside Σ e^z
      if (copies_by_attention(small.run.config)) rest = norm * std::exp(-doubles(value_of(x, "gate").value)[0]);
      else for (const double psi : doubles(value_of(x, "copy").value)) rest += std::exp(psi);
      const double share = norm / (norm + rest), p = doubles(value_of(x, "distribution").value)[wanted];
      part = all = share * std::exp(-loss) / p, loss = -std::log(p);
      if (!copies_by_attention(small.run.config)) all = share;
    }
    CHECK(*x.loss == doctest::Approx(loss).epsilon(1e-5));
    for (std::size_t k = 0; k < logits.size(); ++k)
      CHECK(gradient[k] == doctest::Approx(all * std::exp(logits[k]) / norm - part * (k == wanted)).epsilon(1e-4).scale(0));
    // de = α ⊙ (dα - Σ_k α_k dα_k), where a softmax makes the weights and nothing else follows it; of e^e alone α ⊙ dα
    const Explanation::Value &scores = value_of(x, "scores"), &weights = value_of(x, "weights");
    REQUIRE(scores.gradient.defined());
    if (weights.gradient.defined() && options.find("local-p") == options.npos && options.find("sparsemax") == options.npos &&
        options.find("learned") == options.npos && options.find("linear") == options.npos) {
      const std::vector<double> a = doubles(weights.value), da = doubles(weights.gradient), de = doubles(scores.gradient);
      double mean = 0;
      for (std::size_t s = 0; s < a.size() && options.find("-exp") == options.npos; ++s) mean += a[s] * da[s];
      for (std::size_t s = 0; s < a.size(); ++s) CHECK(de[s] == doctest::Approx(a[s] * (da[s] - mean)).epsilon(1e-3).scale(largest_of(de)));
    }
  }
}

TEST_CASE("explain: layers and heads of a Transformer") {
  const SmallModel small("--layers 2 --heads 2");
  const Example example = small.example("a b", "b a");
  const Explanation last = explain(small.run, *small.model, example),
                    first = explain(small.run, *small.model, example, {.layer = 1, .head = 2});
  const auto has = [](const Explanation& x, std::string_view part) {
    return std::ranges::any_of(x.values, [&](const auto& v) { return v.name.find(part) != v.name.npos; });
  };
  CHECK(has(last, "decoder.layers.1."));
  CHECK(value_of(last, "decoder.layers.0.norm3").formula == "x, the output of layer 1");
  CHECK(!has(last, "decoder.layers.0.multihead_attn"));
  CHECK(has(first, "decoder.layers.0."));
  CHECK(!has(first, "decoder.layers.1."));
  CHECK(!has(first, "encoder.layers"));
  const Explanation other = explain(small.run, *small.model, example, {.layer = 1, .head = 1});
  CHECK(doubles(value_of(first, "multihead_attn.weights").value) != doubles(value_of(other, "multihead_attn.weights").value));
  CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.layer = 3}), "explain: layer 3 is not in [1, 2]", IndexError);
  CHECK_THROWS_WITH_AS(explain(small.run, *small.model, example, {.head = 3}), "explain: head 3 is not in [1, 2]", IndexError);
}

TEST_CASE("explain: what is written is what a search would write") {
  const SmallModel small("--layers 1 --heads 2");
  const Vocabulary& words = small.run.target.vocabulary;
  const Tensor& bias = small.parameters->find("output.bias")->variable.value();
  for (const std::int32_t id : {words.pad, words.bos}) copy_into(bias(Index(id)), tensor(10.0f));
  const Example example = small.example("a b c", "c b a");
  const Explanation x = explain(small.run, *small.model, example, {.top = 1});
  const Hypothesis found = search(*small.model, std::span(&example.source, 1), search_options(small.run))[0][0];
  CHECK((x.top[0].id == words.pad || x.top[0].id == words.bos));
  CHECK(x.written.id == (found.ids.empty() ? words.eos : found.ids[0]));
  CHECK(explanation_text(x).find(fmt::format("\nwrites   {}  (p = ", x.written.word)) != std::string::npos);
}

TEST_CASE("explain: text and JSON") {
  const SmallModel small("--layers 1 --heads 2");
  const Example example = small.example("a b c", "c b a");
  const Explanation x = explain(small.run, *small.model, example, {.step = 2, .backward = true});
  const std::string text = explanation_text(x, {.columns = 80});
  CHECK(text.starts_with("step 2 of 4, decoder layer 1 of 1, head 1 of 2\nsource   a b c </s>\nread     <s> c\nwrites   "));
  CHECK(text.find("\n       " "         a") != text.npos);
  CHECK(text.find("α = softmax(e)") != text.npos);
  CHECK(text.find("(sum 1.0000)") != text.npos);
  CHECK(text.find("L = -log p(b) = ") != text.npos);
  CHECK(text.find("\n  z:   ") != text.npos);
  const Explanation few = explain(small.run, *small.model, example, {.step = 2, .top = 1, .backward = true});
  // dL/dz = p - 1 of the wanted word
  CHECK(explanation_text(few).find(fmt::format("  b {:.4f}\n", std::exp(-*few.loss) - 1)) != text.npos);
  const std::size_t memory = text.find("memory  [4, 16]");
  REQUIRE(memory != text.npos);
  CHECK(std::ranges::count(text.substr(memory, text.find("\n\n", memory) - memory), 'L') == 4);       // a row of each word's dL
  CHECK(text.find('\x1b') == text.npos);
  CHECK(explanation_text(x, {.colour = true}).find("\x1b[1m") != text.npos);
  const auto json = parse_json(explanation_json(x));
  CHECK(json["step"] == 2);
  CHECK(json["read"] == Json({"<s>", "c"}));
  CHECK(json["written"]["word"] == x.written.word);
  CHECK(json["values"].size() == x.values.size());
  CHECK(json["loss"].get<double>() == doctest::Approx(*x.loss));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto& value = json["values"][i]["value"];
    CHECK((value[0].is_array() ? Index(value.size() * value[0].size()) : Index(value.size())) == x.values[i].value.numel());
  }
}
