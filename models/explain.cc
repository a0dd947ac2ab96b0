// SPDX-License-Identifier: Apache-2.0
#include "models/explain.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/drawing.h"
#include "models/recurrent_config.h"
#include "models/translate.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";

// 1 for "core.decoder.layers.0.norm1", 0 outside of layers.
Index layer_of(std::string_view path) {
  const std::size_t at = path.find(kLayers);
  Index layer = -1;
  if (at != path.npos) std::from_chars(path.data() + at + kLayers.size(), path.data() + path.size(), layer);
  return layer + 1;
}

// The encoder's insides are left out: the memory is what the decoder sees of them.
bool is_inside_encoder(std::string_view path) { return ("." + std::string(path) + ".").find(".encoder.") != std::string::npos; }

std::vector<double> doubles(const Tensor& x) { return to(x, DType::f64).to_vector<double>(); }

// One head, of pairs of heads the one that it belongs to, without the axes of one sentence and one step: [n], or [m, n] where words stand
// along the rows.
Tensor reduced(const Tensor& x, const Trace::Axes& axes, Index head, Index heads) {
  const Tensor one = (axes.heads ? select(x, 1, (head - 1) * x.size(1) / heads) : x).contiguous();
  const Index n = one.rank() > 0 ? one.size(-1) : 1, m = n > 0 ? one.numel() / n : 0;
  return m == 1 && axes.rows != Along::source ? reshape(one, {n}) : reshape(one, {m, n});
}

// A module's output that the module around it hands on as its own.
bool is_repeated(const Trace::Entry* entry, const Explanation::Value& before, const Explanation::Value& value) {
  if (!entry->name.empty() || before.once != value.once || before.value.numel() != value.value.numel()) return false;
  return doubles(before.value) == doubles(value.value);
}

// What a Trace collects of one step.
struct TracedStep {
  // in the encoder, once a sentence; in this step
  std::vector<Trace::Entry> once, now;
  Tensor log_probabilities;                                                                       // [1, V]
  std::optional<double> loss{};
};

// The step that reads the last of these words; from the sentence on, so that every score depends on a parameter.
TracedStep trace_step(const Run& run, const Seq2Seq& model, const std::vector<std::int32_t>& source, std::span<const std::int32_t> read,
                      std::int32_t wanted, bool backward) {
  std::optional<Tape> tape;
  if (backward) tape.emplace(evaluating);
  TracedStep out;
  std::unique_ptr<DecodingState> state;
  {
    const Trace trace;
    state = model.start(pad_sequences(std::span(&source, 1), run.source.vocabulary.pad));
    out.once = trace.entries();
  }
  const auto step = [&](std::int32_t id, Want want) { return model.step(tensor(std::vector{id}, {1}), *state, want).log_probabilities; };
  {
    // a Transformer's cache hands no gradients on
    std::optional<NoRecording> unrecorded;
    if (!is_recurrent(run.config.model)) unrecorded.emplace();
    for (const std::int32_t id : read.first(read.size() - 1)) step(id, Want::context);
  }
  const Trace trace;
  out.log_probabilities = step(read.back(), Want::weights);
  if (backward) {
    const Trace::Entry *const logits = trace.find("logits"), *const mixed = trace.find("distribution");
    check<Error>(logits && logits->variable.defined(), "explain: the model names no logits to go back from");
    const Variable loss = mixed ? -log(select(select(mixed->variable, 0, 0), 0, wanted))
                                : cross_entropy(logits->variable, tensor(std::vector{wanted}, {1}), {.ignore_index = -1}, Reduction::sum);
    tape->backward(loss);
    out.loss = loss.value().item();
  }
  out.now = trace.entries();
  return out;
}

// The values outside of the layers, those of the chosen one, and what it reads: the last value of the one below.
std::vector<Explanation::Value> chosen_values(const TracedStep& traced, Explanation& words, const ExplainOptions& options,
                                              bool reverse_source) {
  Index layers = 0;
  for (const Trace::Entry& entry : traced.now) layers = std::max(layers, layer_of(entry.path));
  check<IndexError>(options.layer >= 0 && options.layer <= layers, "explain: layer {} is not in [1, {}]{}", options.layer, layers,
                    layers == 0 ? ": the model has no layers to choose from" : "");
  const Index layer = options.layer > 0 ? options.layer : layers;
  const Trace::Entry *below = nullptr, *before = nullptr;   // before: what was put last
  Index heads = 1;
  for (const Trace::Entry& entry : traced.now) {
    if (layer > 1 && layer_of(entry.path) == layer - 1) below = &entry;
    if (entry.axes.heads) heads = std::max(heads, entry.value.size(1));
  }
  check<IndexError>(options.head >= 1 && (options.head <= heads || layers == 0), "explain: head {} is not in [1, {}]", options.head, heads);
  words.layer = layer, words.layers = layers, words.head = options.head, words.heads = heads;
  std::vector<Explanation::Value> values;
  for (const auto* entries : {&traced.once, &traced.now})
    for (const Trace::Entry& entry : *entries) {
      if (is_inside_encoder(entry.path) || (layer_of(entry.path) > 0 && layer_of(entry.path) != layer && &entry != below)) continue;
      Explanation::Value value{.name = entry.key(), .formula = entry.formula, .once = entries == &traced.once, .axes = entry.axes,
                               .value = reduced(entry.value, entry.axes, options.head, heads)};
      if (&entry == below) value.formula = fmt::format("x, the output of layer {}", layer - 1);
      if (entry.gradient->defined()) value.gradient = reduced(*entry.gradient, entry.axes, options.head, heads);
      const auto along = [&](Along what, Index size) {
        const std::vector<std::string>& list = what == Along::source ? words.source : words.read;
        return (what == Along::source || what == Along::target) && Index(list.size()) == size ? list : std::vector<std::string>{};
      };
      value.columns = along(entry.axes.columns, value.value.size(-1));
      const bool projected = value.once && entry.axes.rows == Along::units;   // keys: a row for each source word
      if (value.value.rank() == 2) value.rows = along(projected ? Along::source : entry.axes.rows, value.value.size(0));
      if (entry.path == "source_embedding" && reverse_source) std::ranges::reverse(value.rows);   // as the encoder reads them
      if (before && is_repeated(before, values.back(), value)) values.pop_back();
      values.push_back(std::move(value));
      before = &entry;
    }
  return values;
}

}  // namespace

Explanation explain(const Run& run, const Seq2Seq& model, const Example& example, const ExplainOptions& options) {
  const auto word = [&](std::int32_t id) { return target_words(run, {&id, 1}, example.outside)[0]; };
  const Index steps = Index(example.target.size());
  check<IndexError>(options.step >= 1 && options.step <= steps, "explain: step {} is not in [1, {}]", options.step, steps);
  const SearchOptions search = search_options(run);
  std::vector<std::int32_t> read{search.start};
  read.insert(read.end(), example.target.begin(), example.target.begin() + options.step - 1);
  const std::int32_t wanted = example.target[std::size_t(options.step) - 1];
  Explanation out{.source = source_words(run, example), .read = target_words(run, read, example.outside), .step = options.step,
                  .steps = steps, .values = {}, .top = {}, .wanted = word(wanted)};
  const TracedStep traced = trace_step(run, model, example.source, read, wanted, options.backward);
  out.loss = traced.loss;
  out.values = chosen_values(traced, out, options, run.config.reverse_source);

  const std::vector<double> p = doubles(exp(traced.log_probabilities));
  std::vector<std::int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&, V = run.target.vocabulary.size()](Index id) {
    return id >= V && std::ranges::find(example.outside, id - V, &OutsideWord::place) == example.outside.end();
  });
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return p[std::size_t(a)] > p[std::size_t(b)]; });
  const auto of = [&](std::int32_t id) { return Explanation::Word{word(id), p[std::size_t(id)], id}; };
  out.written = of(*std::ranges::find_if(order, [&](std::int32_t id) { return search.writes(id); }));
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i < std::size_t(std::max<Index>(options.top, 1)) || order[i] == wanted) out.top.push_back(of(order[i]));
  return out;
}

// ---- text -----------------------------------------------------------------------------------------------------------

namespace {

using namespace drawing;

// Numbers of equal width: four digits after the point, or exponents where that would show nothing or too much.
std::vector<std::string> numbers(const Tensor& x) {
  const std::vector<double> values = doubles(x);
  double largest = 0;
  for (const double v : values) largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
  const bool plain = largest == 0 || (largest >= 1e-2 && largest < 1e4);
  std::vector<std::string> out;
  for (const double v : values) out.push_back(!plain ? fmt::format("{:.2e}", v) : fmt::format("{:.4f}", std::abs(v) < 5e-5 ? 0.0 : v));
  return out;
}

class Writer {
 public:
  explicit Writer(const ExplanationStyle& style) : style_(style) {}
  void line(const std::string& text) { out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n"; }
  std::string bold(const std::string& text) const { return style_.colour ? "\x1b[1m" + text + "\x1b[0m" : text; }
  std::string faint(const std::string& text) const { return style_.colour ? "\x1b[36m" + text + "\x1b[0m" : text; }

  // Words over their numbers, a second row of gradients below; cut into pieces where the terminal ends.
  void over_words(const Explanation::Value& value) {
    const std::vector<std::string> texts = numbers(value.value),
                                   gradients = value.gradient.defined() ? numbers(value.gradient) : std::vector<std::string>{};
    const std::size_t n = value.columns.size(), rows = texts.size() / std::max<std::size_t>(n, 1);
    int cell = 8;
    for (const std::string& w : value.columns) cell = std::max(cell, std::min(columns(word(w)), 16));
    for (const auto* list : {&texts, &gradients})
      for (const std::string& text : *list) cell = std::max(cell, int(text.size()));
    cell += 2;
    const int left = gradients.empty() ? 2 : 7;
    const std::size_t piece = std::size_t(std::max(1, (style_.columns - left) / cell));
    for (std::size_t begin = 0; begin < n; begin += piece) {
      const std::size_t end = std::min(n, begin + piece);
      std::string heads(std::size_t(left), ' ');
      for (std::size_t j = begin; j < end; ++j) heads += pad_left(shorten(word(value.columns[j]), 16), cell);
      line(faint(heads));
      for (std::size_t r = 0; r < rows; ++r)
        for (const auto* list : {&texts, &gradients}) {
          if (list->empty()) continue;
          std::string row = list == &gradients ? pad_right("  dL", left) : std::string(std::size_t(left), ' ');
          for (std::size_t j = begin; j < end; ++j) row += pad_left((*list)[r * n + j], cell);
          line(row);
        }
    }
  }

  // The first numbers of each row, a row for each word where words stand along them; gradients below.
  void units(const Explanation::Value& value) {
    const Index n = value.value.size(-1), rows = value.value.rank() == 2 ? value.value.size(0) : 1;
    int left = 2;
    for (const std::string& w : value.rows) left = std::max(left, 2 + std::min(columns(word(w)), 16));
    if (value.gradient.defined()) left = std::max(left, 7);
    const Index fit = std::max<Index>(1, (style_.columns - left - 3) / 10), shown = std::min({n, style_.numbers, fit});
    const auto first = [&](const Tensor& x) { return x.defined() ? numbers(slice(x, -1, 0, shown)) : std::vector<std::string>{}; };
    const std::vector<std::string> texts = first(value.value), gradients = first(value.gradient);
    int cell = 10;
    for (const auto* list : {&texts, &gradients})
      for (const std::string& text : *list) cell = std::max(cell, int(text.size()) + 1);
    for (Index r = 0; r < rows; ++r)
      for (const auto* list : {&texts, &gradients}) {
        if (list->empty()) continue;
        std::string row = list == &gradients   ? pad_right("  dL", left)
                          : value.rows.empty() ? std::string(std::size_t(left), ' ')
                                               : pad_left(shorten(word(value.rows[std::size_t(r)]), 16), left);
        for (Index i = 0; i < shown; ++i) row += pad_left((*list)[std::size_t(r * shown + i)], cell);
        line(row + (shown < n ? " .." : ""));
      }
  }

  std::string out;

 private:
  ExplanationStyle style_;
};

bool is_distribution(const Explanation::Value& value) { return value.name == "distribution"; }
bool is_weights(const Explanation::Value& value) {
  return !value.columns.empty() && (value.name == "weights" || value.name.ends_with(".weights"));
}

}  // namespace

std::string explanation_text(const Explanation& x, const ExplanationStyle& style) {
  Writer writer(style);
  const auto joined = [](std::span<const std::string> words) {
    std::string text;
    for (const std::string& w : words) text += (text.empty() ? "" : " ") + word(w);
    return text;
  };
  writer.line(writer.bold(fmt::format("step {} of {}{}{}", x.step, x.steps,
                                      x.layers > 0 ? fmt::format(", decoder layer {} of {}", x.layer, x.layers) : "",
                                      x.heads > 1 ? fmt::format(", head {} of {}", x.head, x.heads) : "")));
  writer.line(fmt::format("source   {}", joined(x.source)));
  writer.line(fmt::format("read     {}", joined(x.read)));
  writer.line(fmt::format("writes   {}  (p = {:.4f})", word(x.written.word), x.written.probability));
  bool once = false, now = false;
  for (const Explanation::Value& value : x.values) {
    if (value.once && !once) writer.line("\n" + writer.bold("once a sentence"));
    if (!value.once && !now) writer.line("\n" + writer.bold(fmt::format("this step, which reads {}", word(x.read.back()))));
    once |= value.once, now |= !value.once;
    writer.line("");
    std::string head = fmt::format("{}  {}  {}", writer.bold(value.name), to_string(value.value.shape()), writer.faint(value.formula));
    if (is_weights(value)) {
      double sum = 0;
      for (const double w : doubles(value.value)) sum += w;
      head += fmt::format("  (sum {:.4f})", sum);
    }
    writer.line(head);
    if (value.axes.columns == Along::vocabulary) {
      const auto list = [](const Tensor& t) { return t.defined() ? doubles(t) : std::vector<double>{}; };
      const std::vector<double> values = list(value.value), gradients = list(value.gradient);
      for (const auto& [what, of] : {std::pair(is_distribution(value) ? "  P: " : "  z: ", &values), std::pair("  dL:", &gradients)}) {
        if (of->empty()) continue;
        std::string row = what;
        for (const Explanation::Word& w : x.top)
          // a copied word has no z
          if (std::size_t(w.id) < of->size()) row += fmt::format("  {} {:.4f}", word(w.word), (*of)[std::size_t(w.id)]);
        writer.line(row);
      }
    } else if (!value.columns.empty()) {
      writer.over_words(value);
    } else {
      writer.units(value);
    }
  }
  const bool mixed = std::ranges::any_of(x.values, is_distribution);
  writer.line("\n" + writer.bold("next word") + "  " + writer.faint(mixed ? "P, of the vocabulary and the source" : "p = softmax(z)"));
  int widest = 0;
  for (const Explanation::Word& w : x.top) widest = std::max(widest, columns(word(w.word)));
  for (const Explanation::Word& w : x.top) writer.line(fmt::format("  {}  {:.4f}", pad_right(word(w.word), widest), w.probability));
  if (x.loss)
    writer.line(
        fmt::format("\n{}  {} = {:.4f}", writer.bold("loss"), writer.faint(fmt::format("L = -log p({})", word(x.wanted))), *x.loss));
  const bool cached = std::ranges::any_of(x.values, [](const auto& v) { return v.name.ends_with("self_attn.keys"); });
  if (x.loss)
    writer.line(fmt::format("dL below a number: its gradient, the change of this step's L for each unit more of it{}",
                            cached ? "; keys and values of the words read before stay as they are" : ""));
  return writer.out;
}

std::string explanation_json(const Explanation& x) {
  const auto nested = [](const Tensor& t) -> Json {
    if (!t.defined()) return nullptr;
    if (t.rank() == 1) return doubles(t);
    auto list = Json::array();
    for (const Tensor row : t) list.push_back(doubles(row));
    return list;
  };
  Json json{{"step", x.step}, {"steps", x.steps}, {"source", x.source}, {"read", x.read}, {"values", Json::array()},
            {"top", Json::array()}};
  if (x.layers > 0) json.update({{"layer", x.layer}, {"layers", x.layers}, {"head", x.head}, {"heads", x.heads}});
  for (const Explanation::Value& v : x.values)
    json["values"].push_back({{"name", v.name}, {"formula", v.formula}, {"once", v.once}, {"columns", v.columns}, {"rows", v.rows},
                              {"value", nested(v.value)}, {"gradient", nested(v.gradient)}});
  const auto word_json = [](const Explanation::Word& w) { return Json{{"word", w.word}, {"probability", w.probability}}; };
  for (const Explanation::Word& w : x.top) json["top"].push_back(word_json(w));
  json["written"] = word_json(x.written);
  if (x.loss) json["wanted"] = x.wanted, json["loss"] = *x.loss;
  return json_text(json) + "\n";
}

}  // namespace heed
