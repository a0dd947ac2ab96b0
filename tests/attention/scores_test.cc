// SPDX-License-Identifier: Apache-2.0
// Every attention by name: numbers made by hand, plain loops, gradients, padding, steps, edges.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/attend.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

constexpr DType f64 = DType::f64;
const double ln2 = std::log(2.0), ln3 = std::log(3.0), half = std::atanh(0.5);   // tanh(half) = 1/2

using Numbers = std::map<std::string, Nested>;

struct Built {
  Built(std::string_view name, ScoreOptions options, const Numbers& numbers = {})
      : attention(make_attention(name, parameters.root() / "a", options)) {
    for (const auto& [path, values] : numbers) {
      REQUIRE(parameters.find("a." + path));
      const Tensor into = parameters.find("a." + path)->variable.value(), from = tensor(values, f64);
      REQUIRE(from.shape() == into.shape());
      copy_into(into, from);
    }
  }
  Tensor operator[](const std::string& path) const { return parameters.find("a." + path)->variable.value(); }
  Parameters parameters{Seed{3}, f64};
  Attention attention;
};

// Query by query, the state carried along.
std::vector<Attended> steps(const Attention& attention, const Variable& queries, const Memory& memory) {
  AttentionState state;
  std::vector<Attended> out;
  for (Index t = 0; t < queries.size(1); ++t) out.push_back(attention(slice(queries, 1, t, t + 1), memory, state, Want::weights));
  return out;
}
Variable contexts(const Attention& attention, const Variable& queries, const Memory& memory) {
  if (!attention.looks_back()) return attention(queries, memory).context;
  std::vector<Variable> all;
  for (Attended& step : steps(attention, queries, memory)) all.push_back(step.context);
  return concat(all, 1);
}

bool equal_widths(std::string_view name) { return name.find("dot") != name.npos || name.find("cosine") != name.npos; }
std::vector<std::string> all_attentions() {
  std::vector<std::string> names = attention_names();
  names.insert(names.end(), {"local-m-dot", "local-p-concat", "local-p-location", "general-exp", "gaussian-exp", "local-p-general-exp",
                             "general-sparsemax", "additive-entmax", "local-p-dot-entmax", "coverage-sparsemax", "dot-top-2",
                             "local-p-top-3", "coverage-top-8", "general-learned-entmax"});
  return names;
}
ScoreOptions options_for(std::string_view name) {
  return {.query_width = 3, .memory_width = equal_widths(name) ? 3 : 4, .hidden_width = 5, .window = 2};
}

}  // namespace

TEST_CASE("attention: two steps by hand") {
  // Two encoder states h_0 = (1, 0), h_1 = (0, 2); two steps with the queries q_0, q_1; expected the weights of both steps.
  struct Hand {
    std::string name;
    Nested queries;
    Numbers numbers;
    std::vector<double> weights;
    Index hidden = 1, window = 10;
    double error = 1e-15;
  };
  const double r = std::exp(-0.5), l = std::exp(-0.125);
  const std::vector<double> two{2.0 / 3, 1.0 / 3, 0.25, 0.75};        // e = (ln 2, 0), then (0, ln 3)
  const Nested queries{{{ln2, 0}, {0, ln3 / 2}}};
  const auto entmax = [](double d, double sign) { return std::pow((std::sqrt(2 - d * d) + sign * d) / 2, 2); };
  const Hand hands[] = {
      {"none", queries, {}, {0, 0, 0, 0}},
      {"mean", queries, {}, {0.5, 0.5, 0.5, 0.5}},
      // q_0·h = (ln 2, 0), q_1·h = (0, ln 3)
      {"dot", queries, {}, two},
      {"scaled-dot", {{{ln2 * std::sqrt(2.0), 0}, {0, ln3 / std::sqrt(2.0)}}}, {}, two},
      // W_a swaps: W_a h_0 = (0, 1), W_a h_1 = (2, 0)
      {"general", {{{0, ln2}, {ln3 / 2, 0}}}, {{"key_proj.weight", {{0, 1}, {1, 0}}}}, two},
      {"general-scaled", {{{0, ln2 / 4}, {ln3 / 8, 0}}}, {{"key_proj.weight", {{0, 1}, {1, 0}}}, {"g", 4}}, two},
      // W q_0 = half, U h = (0, -half): tanh = (1/2, 0), e = 2 ln 2 · tanh = (ln 2, 0).  W q_1 = 0: tanh = (0, -1/2), e = (0, -ln 2)
      {"additive", {{{half, 0}, {0, 9}}}, {{"query_proj.weight", {{1, 0}}}, {"key_proj.weight", {{0, -half / 2}}}, {"v", {2 * ln2}}},
       {2.0 / 3, 1.0 / 3, 2.0 / 3, 1.0 / 3}},
      {"concat", {{{half, 0}, {0, 9}}}, {{"query_proj.weight", {{1, 0}}}, {"key_proj.weight", {{0, -half / 2}}}, {"v", {2 * ln2}}},
       {2.0 / 3, 1.0 / 3, 2.0 / 3, 1.0 / 3}},
      // g v / ‖v‖ = 2 ln 2 (-5) / 5; W q = 0, b = half: tanh(half + U h) = (1/2, 0): e = (-ln 2, 0) at both steps
      {"additive-normed", {{{1, 0}, {0, 9}}}, {{"query_proj.weight", {{0, 0}}}, {"key_proj.weight", {{0, -half / 2}}}, {"v", {-5}},
                                               {"g", 2 * ln2}, {"b", {half}}}, {1.0 / 3, 2.0 / 3, 1.0 / 3, 2.0 / 3}},
      // rows of W_a: e_0 = q's first number, e_1 = twice its second; the third row belongs to no state
      {"location", queries, {{"proj.weight", {{1, 0}, {0, 2}, {9, 9}}}}, two},
      // β = 1: cos(q_0, h) = (1, 0), e = (1, 0);  cos(q_1, h) = (0, -1)
      {"cosine", {{{3, 0}, {0, -5}}}, {}, {1 / (1 + std::exp(-1.0)), 1 / (1 + std::exp(1.0)), 1 / (1 + std::exp(-1.0)),
                                           1 / (1 + std::exp(1.0))}},
      // window 0: step 0 sees h_0 alone, step 1 h_1 alone
      {"local-m-dot", queries, {}, {1, 0, 0, 1}, 1, 0},
      // q_0: W_p q_0 = 0, p = 2 σ(0) - 1 = 0; q_1: tanh(ln 3 / 2) = 1/2, p = 2 σ(2 ln 3 / 2) - 1 = 2 · 3/4 - 1 = 1/2.  σ_w = 2/2 = 1:
      // factors (e^0, e^-1/2), then (e^-1/8, e^-1/8)
      {"local-p-dot", queries, {{"position_proj.weight", {{0, 1}}}, {"position_v", {2 * ln3}}}, {2.0 / 3, r / 3, l / 4, 3 * l / 4}, 1, 2},
      {"dot-exp", queries, {}, {2, 1, 1, 3}},
      // e = (ln 2, 0): τ = (ln 2 - 1) / 2, p = ((1 + ln 2) / 2, (1 - ln 2) / 2);  e = (0, ln 3), ln 3 > 1: p = (0, 1)
      {"dot-sparsemax", queries, {}, {(1 + ln2) / 2, (1 - ln2) / 2, 0, 1}},
      // u = e/2, u_0 - u_1 = d: p = (a², (a - d)²) with a = (d + √(2 - d²)) / 2, so that Σ p = 1
      {"dot-entmax", queries, {}, {entmax(ln2 / 2, 1), entmax(ln2 / 2, -1), entmax(ln3 / 2, -1), entmax(ln3 / 2, 1)}},
      {"dot-learned-entmax", queries, {{"entmax_order", -1e9}}, two, 1, 10, 1e-4},           // α = 1
      {"dot-learned-entmax", queries, {{"entmax_order", 0}}, {entmax(ln2 / 2, 1), entmax(ln2 / 2, -1), entmax(ln3 / 2, -1),
                                                              entmax(ln3 / 2, 1)}, 1, 10, 1e-14},
      {"dot-top-2", queries, {}, two},
      {"dot-top-1", queries, {}, {1, 0, 0, 1}},
      // no tape: the likeliest
      {"dot-hard", queries, {}, {1, 0, 0, 1}},
  };
  const Variable states = constant(tensor({{{1, 0}, {0, 2}}}, f64));
  for (const Hand& hand : hands) {
    CAPTURE(hand.name);
    const Built built(hand.name, {.query_width = 2, .memory_width = 2, .hidden_width = hand.hidden, .longest = 3, .window = hand.window},
                      hand.numbers);
    const auto out = steps(built.attention, constant(tensor(hand.queries, f64)), built.attention.prepare(states, {}));
    for (std::size_t t = 0; t < 2; ++t) {
      const double a = hand.weights[2 * t], b = hand.weights[2 * t + 1];
      CHECK(worst_absolute(out[t].weights.value(), std::vector<double>{a, b}) < hand.error);
      CHECK(worst_absolute(out[t].context.value(), std::vector<double>{a, 2 * b}) < 2 * hand.error);     // α_0 (1, 0) + α_1 (0, 2)
    }
  }
}

TEST_CASE("attention: factors of a score start as their sources say") {
  CHECK(ScoreOptions().window == 10);                                                     // Luong et al. 2015, 4.1
  CHECK(ScoreOptions().sharpness == 1);
  // tf/nmt: normed_bahdanau g = √(1/A), b = 0; scaled_luong g = 1
  const Built normed("additive-normed", {.query_width = 2, .memory_width = 2, .hidden_width = 4}),
      scaled("general-scaled", {.query_width = 2, .memory_width = 2});
  CHECK(normed["g"].item() == 0.5);
  CHECK(normed["b"].to_vector<double>() == std::vector<double>(4));
  CHECK(scaled["g"].item() == 1);
}

TEST_CASE("attention that looks back: two steps by hand") {
  // Step 0: W q_0 = half, U h = (0, -half), e = 2 ln 2 (1/2, 0), α = (2/3, 1/3), as in additive.
  // Step 1: W q_1 = 0 and w α_0 = 3/2 ln 3 (2/3, 1/3) = (ln 3, ln 3 / 2): tanh(ln 3) = 8/10; and U h_1 = -half = -ln 3 / 2 takes the
  // second to 0: e = 2 ln 2 (0.8, 0), α = (2^1.6, 1) / (2^1.6 + 1). A filter that is 1 in its middle gives the same f.
  const Variable states = constant(tensor({{{1, 0}, {0, 2}}}, f64)), queries = constant(tensor({{{half, 0}, {0, 9}}}, f64));
  const double c = std::pow(2, 1.6);
  Numbers numbers{{"query_proj.weight", {{1, 0}}}, {"key_proj.weight", {{0, -half / 2}}}, {"v", {2 * ln2}}};
  const auto check_steps = [&](const char* name) {
    const Built built(name, {.query_width = 2, .memory_width = 2, .hidden_width = 1}, numbers);
    const auto out = steps(built.attention, queries, built.attention.prepare(states, {}));
    CHECK(worst_absolute(out[0].weights.value(), std::vector<double>{2.0 / 3, 1.0 / 3}) < 1e-15);
    CHECK(worst_absolute(out[1].weights.value(), std::vector<double>{c / (c + 1), 1 / (c + 1)}) < 1e-15);
  };
  numbers.emplace("coverage.weight", Nested{{1.5 * ln3}});
  check_steps("coverage");
  numbers.erase("coverage.weight");
  const Nested off{0, 0, 0, 0, 0, 0, 0};
  numbers.emplace("filters.weight", Nested{{0, 0, 0, 1, 0, 0, 0}, off, off, off, off, off, off, off});
  numbers.emplace("filter_proj.weight", Nested{{1.5 * ln3, 7, 7, 7, 7, 7, 7, 7}});
  check_steps("location-aware");
}

TEST_CASE("attention: windows that move forward only, two steps by hand") {
  // W = 0 but for biases: κ = 2, then 4; a = 1, b = ln 2: two places away the weight is 2^-4 of the middle's.
  const Numbers numbers{{"steps.weight", Nested{{0, 0}, {0, 0}, {0, 0}}},
                        {"steps.bias", Nested{ln2, ln2, ln2}},
                        {"shapes.weight", Nested{{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}},
                        {"shapes.bias", Nested{0, 0, 0, std::log(ln2), std::log(ln2), std::log(ln2)}}};
  const Built built("gaussian", {.query_width = 2, .memory_width = 2}, numbers);
  const Variable states = constant(zeros({1, 4, 2}, f64)), queries = constant(ones({1, 2, 2}, f64));
  const auto out = steps(built.attention, queries, built.attention.prepare(states, {}));
  const double first = 0.5 + 1 + 0.5 + 1.0 / 16, second = 1.0 / 512 + 1.0 / 16 + 0.5 + 1;
  CHECK(worst_absolute(out[0].weights.value(), std::vector<double>{0.5 / first, 1 / first, 0.5 / first, 1 / (16 * first)}) < 1e-15);
  CHECK(worst_absolute(out[1].weights.value(), std::vector<double>{1 / (512 * second), 1 / (16 * second), 0.5 / second, 1 / second}) <
        1e-15);
}

TEST_CASE("attention: windows far beyond the source, and as narrow, leave weights and gradients finite") {
  const auto finite = [](const Tensor& x) { return std::ranges::all_of(doubles(x), [](double v) { return std::isfinite(v); }); };
  for (const double x : {19.0, 1000.0, 1e30}) {
    INFO(x);
    const Built built("gaussian", {.query_width = 2, .memory_width = 2},
                      {{"steps.bias", Nested{x, x, x}}, {"shapes.bias", Nested{0, 0, 0, x, x, x}}});
    const Variable states = variable(ones({1, 4, 2}, f64)), queries = variable(ones({1, 3, 2}, f64));
    Tape tape;
    for (const Attended& step : steps(built.attention, queries, built.attention.prepare(states, {}))) CHECK(finite(step.weights.value()));
    tape.backward(sum(square(contexts(built.attention, queries, built.attention.prepare(states, {})))));
    for (const Variable& leaf : {states, queries}) CHECK(finite(leaf.grad()));
  }
}

TEST_CASE("attention: what a score remembers follows the hypotheses of a beam") {
  for (const char* name : {"gaussian", "coverage", "location-aware"}) {
    INFO(name);
    const Built built(name, {.query_width = 3, .memory_width = 2});
    const Memory memory = built.attention.prepare(constant(normal(Key(1), {1, 5, 2}, 0, 1, f64)), {});
    const Tensor first = normal(Key(2), {1, 2, 3}, 0, 1, f64), second = normal(Key(3), {1, 2, 3}, 0, 1, f64);      // a row a hypothesis
    AttentionState together{.advance = 0};
    built.attention(constant(first), memory, together);
    together.reorder(std::vector<Index>{1, 0}, 2);
    const Tensor found = built.attention(constant(second), memory, together, Want::weights).weights.value();
    for (const Index row : {0, 1}) {
      AttentionState alone;
      built.attention(constant(slice(first, 1, 1 - row, 2 - row)), memory, alone);
      const Tensor expected = built.attention(constant(slice(second, 1, row, row + 1)), memory, alone, Want::weights).weights.value();
      CHECK(worst_absolute(found(0, row), expected(0, 0)) < 1e-15);
    }
  }
}

TEST_CASE("attention: plain loops in f64") {
  const Index B = 2, T = 4, S = 6, lengths[2] = {6, 3};
  const Mask mask = Mask::lengths(tensor({6, 3}, DType::i32));
  for (const std::string& name : all_attentions()) {
    if (name == "none" || (normalise_in(name) != "" && normalise_in(name) != "exp")) continue;   // tests/ops, and below
    CAPTURE(name);
    const ScoreOptions options = options_for(name);
    const Index n = options.query_width, M = options.memory_width, A = options.hidden_width;
    const Built p(name, options);
    const Tensor h = normal(Key(1), {B, S, M}, 0, 1, f64), q = normal(Key(2), {B, T, n}, 0, 1, f64);
    const auto at = [&](const char* path, Index i, Index j) { const Tensor x = p[path]; return x.data<double>()[i * x.size(-1) + j]; };
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    const bool divided = !has("exp"), additive = has("additive") || has("concat") || has("coverage") || has("location-aware");
    const auto out = steps(p.attention, constant(q), p.attention.prepare(constant(h), mask));
    for (Index b = 0; b < B; ++b) {
      std::vector<double> previous(std::size_t(S), 0), before(std::size_t(S), 0), middles(3, 0);
      for (Index t = 0; t < T; ++t) {
        const auto Q = [&](Index i) { return q.data<double>()[(b * T + t) * n + i]; };
        const auto H = [&](Index s, Index i) { return h.data<double>()[(b * S + s) * M + i]; };
        std::vector<double> e(std::size_t(S), 0);
        for (Index s = 0; s < S; ++s) {
          double& score = e[std::size_t(s)];
          double dot = 0, qq = 0, hh = 0;
          if (equal_widths(name))
            for (Index i = 0; i < n; ++i) dot += Q(i) * H(s, i), qq += Q(i) * Q(i), hh += H(s, i) * H(s, i);
          if (has("dot")) score = has("scaled") ? dot / std::sqrt(double(n)) : dot;
          if (has("cosine")) score = dot / std::sqrt(qq * hh);
          if (has("general") || name == "local-m" || name == "local-p") {
            for (Index i = 0; i < n; ++i)
              for (Index j = 0; j < M; ++j) score += Q(i) * at("key_proj.weight", i, j) * H(s, j);
            if (has("scaled")) score *= p["g"].item();
          }
          if (has("gaussian")) {
            const auto made = [&](const std::string& path, Index row) {
              double x = p[path + ".bias"].data<double>()[row];
              for (Index i = 0; i < n; ++i) x += at((path + ".weight").c_str(), row, i) * Q(i);
              return std::exp(x);
            };
            for (Index k = 0; k < 3; ++k) {
              if (s == 0) middles[std::size_t(k)] += made("steps", k);
              const double away = middles[std::size_t(k)] - double(s + 1);
              score += made("shapes", k) * std::exp(-made("shapes", 3 + k) * away * away);
            }
            score = std::log(score);
          }
          if (has("location") && !additive)
            for (Index i = 0; i < n; ++i) score += at("proj.weight", s, i) * Q(i);
          if (additive) {
            double length = 0;
            for (Index a = 0; a < A; ++a) length += at("v", 0, a) * at("v", 0, a);
            for (Index a = 0; a < A; ++a) {
              double pre = has("normed") ? at("b", 0, a) : 0;
              for (Index i = 0; i < n; ++i) pre += at("query_proj.weight", a, i) * Q(i);
              for (Index j = 0; j < M; ++j) pre += at("key_proj.weight", a, j) * H(s, j);
              if (has("coverage")) pre += at("coverage.weight", a, 0) * before[std::size_t(s)];
              if (has("location-aware"))
                for (Index f = 0; f < 8; ++f)
                  for (Index d = -3; d <= 3; ++d)
                    if (s + d >= 0 && s + d < S)
                      pre += at("filter_proj.weight", a, f) * at("filters.weight", f, d + 3) * previous[std::size_t(s + d)];
              score += at("v", 0, a) * std::tanh(pre) * (has("normed") ? p["g"].item() / std::sqrt(length) : 1);
            }
          }
        }
        double first = 0, last = double(lengths[b] - 1), center = double(t);
        if (has("local-p")) {
          double x = 0;
          for (Index a = 0; a < A; ++a) {
            double pre = 0;
            for (Index i = 0; i < n; ++i) pre += at("position_proj.weight", a, i) * Q(i);
            x += at("position_v", 0, a) * std::tanh(pre);
          }
          center = double(lengths[b]) / (1 + std::exp(-x)) - 1;
        }
        if (has("local-")) first = std::max(first, center - 2), last = std::min(last, center + 2);
        double total = 0;
        std::vector<double> alpha(std::size_t(S), 0), context(std::size_t(M), 0);
        const auto allowed = [&](Index s) { return double(s) >= first && double(s) <= last; };
        for (Index s = 0; s < S; ++s) total += allowed(s) ? std::exp(e[std::size_t(s)]) : 0;
        for (Index s = 0; s < S; ++s) {
          if (allowed(s)) alpha[std::size_t(s)] = std::exp(e[std::size_t(s)]) / (divided ? total : 1);
          if (name == "mean") alpha[std::size_t(s)] = allowed(s) ? 1 / double(lengths[b]) : 0;
          if (has("local-p")) alpha[std::size_t(s)] *= std::exp(-(double(s) - center) * (double(s) - center) / 2);   // σ = w/2 = 1
          for (Index i = 0; i < M; ++i) context[std::size_t(i)] += alpha[std::size_t(s)] * H(s, i);
          before[std::size_t(s)] += alpha[std::size_t(s)];
        }
        previous = alpha;
        CHECK(worst_absolute(out[std::size_t(t)].weights.value()[b], alpha) < 1e-10);
        CHECK(worst_absolute(out[std::size_t(t)].context.value()[b], context) < 1e-10);
        if (has("local-")) CHECK(out[std::size_t(t)].position[b].item() == doctest::Approx(center).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("attention: gradients of queries, states and all parameters agree with central differences") {
  for (const std::string& name : all_attentions()) {
    CAPTURE(name);
    Built built(name, options_for(name));
    const Tensor states = normal(Key(1), {2, 5, options_for(name).memory_width}, 0, 1, f64), queries = normal(Key(2), {2, 3, 3}, 0, 1, f64);
    const Mask mask = Mask::lengths(tensor({5, 3}, DType::i32));
    const auto f = [&](std::span<const Variable> x) { return contexts(built.attention, x[1], built.attention.prepare(x[0], mask)); };
    const GradientReport report = check_gradient(f, {states, queries});
    CHECK_MESSAGE(report.holds(1e-7), report.worst);

    const Tensor dy = normal(Key(3), {2, 3, states.size(2)}, 0, 1, f64);
    built.parameters.forget_gradients();
    const auto loss = [&] { return sum(f(std::array{constant(states), constant(queries)}) * constant(dy)); };
    {
      Tape tape(evaluating);
      const Variable y = loss();
      if (y.wants_gradient()) tape.backward(y);
    }
    for (const auto& item : built.parameters.items()) {
      CAPTURE(item->path);
      const Tensor value = item->variable.value();
      double largest = 0;
      for (Index i = 0; i < value.numel(); ++i) {
        double& x = value.mutable_data<double>()[i];
        const double x0 = x, h = 6e-6;
        x = x0 + h;
        const double above = loss().value().item();
        x = x0 - h;
        const double below = loss().value().item();
        x = x0;
        const double difference = (above - below) / (2 * h),
                     tape = item->gradient->written() ? item->gradient->value().contiguous().data<double>()[i] : 0;
        CHECK(tape == doctest::Approx(difference).epsilon(1e-7).scale(1));
        largest = std::max(largest, std::abs(tape));
      }
      CHECK(largest > 0);       // every parameter gets a gradient
    }
  }
}

TEST_CASE("attention: a score that does not hand the mask on is masked all the same") {
  struct Forgetful {
    Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
      return matmul(query, transpose(memory.keys));
    }
    Memory prepare(const Variable& states, Mask) const { return {states, states, {}}; }
  };
  Parameters parameters(Seed{1});
  const Attention attention(parameters.root(), Forgetful(), normalise_named("softmax"), {});
  const Memory memory = attention.prepare(constant(ones({1, 3, 2})), Mask::lengths(tensor({2}, DType::i32)));
  AttentionState state;
  const Attended seen = attention(constant(ones({1, 1, 2})), memory, state, Want::weights);
  CHECK(doubles(seen.weights.value()) == std::vector<double>{0.5, 0.5, 0});
}

TEST_CASE("attention: the gradient of a score reaches every state that is allowed, and no other") {
  const Mask mask = Mask::lengths(tensor({6, 3}, DType::i32));
  for (const std::string& name : all_attentions()) {
    // weights of 0 pass nothing on
    if (name == "none" || name.find("sparsemax") != name.npos || name.find("entmax") != name.npos || name.find("top") != name.npos)
      continue;
    CAPTURE(name);
    ScoreOptions options = options_for(name);
    options.window = 10;
    const Built built(name, options);
    const bool by_content = name != "mean" && name != "location" && name != "local-p-location" && !name.starts_with("gaussian");
    for (bool through_values : {true, false}) {
      if (!through_values && !by_content) continue;
      const Variable states = variable(normal(Key(1), {2, 6, options.memory_width}, 0, 1, f64)),
                     queries = constant(normal(Key(2), {2, 3, 3}, 0, 1, f64));
      Tape tape(evaluating);
      Memory memory = built.attention.prepare(states, mask);
      if (!through_values) memory.values = constant(states.value().clone());
      tape.backward(sum(square(contexts(built.attention, queries, memory))));
      for (Index b = 0; b < 2; ++b)
        for (Index s = 0; s < 6; ++s) {
          double most = 0;
          for (double g : doubles(states.grad()[b][s])) most = std::max(most, std::abs(g));
          // far from its windows little is seen
          if (s < (b == 0 ? 6 : 3)) CHECK(most > (name.starts_with("gaussian") ? 0 : 1e-9));
          else CHECK(most == 0);
        }
    }
  }
}

TEST_CASE("attention: padding, the batch, and one step at a time change no bit; hypotheses of a beam stand at one step") {
  for (const std::string& name : all_attentions()) {
    CAPTURE(name);
    for (DType dtype : {DType::f32, f64}) {
      Parameters parameters(Seed{5}, dtype);
      const Attention attention = make_attention(name, parameters.root() / "a", options_for(name));
      const Index M = options_for(name).memory_width;
      const Tensor states = normal(Key(1), {3, 19, M}, 0, 1, dtype), queries = normal(Key(2), {3, 4, 3}, 0, 1, dtype);
      fill_(states(1, Slice{5, 19}), 0);
      const Memory memory = attention.prepare(constant(states), Mask::lengths(tensor({19, 5, 11}, DType::i32)));
      const Memory alone = attention.prepare(constant(states(Slice{1, 2}, Slice{0, 5})), Mask::lengths(tensor({5}, DType::i32)));
      const auto padded = steps(attention, constant(queries), memory), one = steps(attention, constant(queries(Slice{1, 2})), alone);
      for (std::size_t t = 0; t < 4; ++t) {
        CHECK(equal_bits(padded[t].weights.value()(Slice{1, 2}, all, Slice{0, 5}), one[t].weights.value()));
        CHECK(equal_bits(padded[t].weights.value()(1, all, Slice{5, 19}), zeros({1, 14}, dtype)));
        CHECK(equal_bits(padded[t].context.value()[1], one[t].context.value()[0]));
      }
      if (attention.looks_back()) {
        CHECK_THROWS_AS(attention(constant(queries), memory), Error);
      } else {
        const Attended whole = attention(constant(queries), memory, Want::weights);
        for (Index t = 0; t < 4; ++t) {
          CHECK(equal_bits(whole.weights.value()(all, Slice{t, t + 1}), padded[std::size_t(t)].weights.value()));
          CHECK(equal_bits(whole.context.value()(all, Slice{t, t + 1}), padded[std::size_t(t)].context.value()));
        }
      }
      // two steps of four hypotheses; between them the hypotheses change places
      AttentionState beam{.advance = 0};
      const Variable same = constant(concat(std::vector<Tensor>(4, queries(all, Slice{0, 1})), 1)),
                     next = constant(concat(std::vector<Tensor>(4, queries(all, Slice{1, 2})), 1));
      attention(same, memory, beam);
      const std::vector<Index> order{1, 0, 2, 3, 4, 4, 5, 5, 11, 10, 9, 8};
      beam.reorder(order, 4);
      CHECK(beam.position == 1);
      const Attended second = attention(next, memory, beam, Want::weights);
      for (Index k = 0; k < 4; ++k) {
        CHECK(equal_bits(second.weights.value()(all, Slice{k, k + 1}), padded[1].weights.value()));
        CHECK(equal_bits(second.context.value()(all, Slice{k, k + 1}), padded[1].context.value()));
      }
    }
  }
}

TEST_CASE("attention: sources of length 0 and of nothing but padding give zeros and zero gradient") {
  for (const std::string& name : all_attentions()) {
    CAPTURE(name);
    const Built built(name, options_for(name));
    for (Index S : {0, 4}) {
      const Variable states = variable(normal(Key(1), {2, S, options_for(name).memory_width}, 0, 1, f64)),
                     queries = variable(normal(Key(2), {2, 3, 3}, 0, 1, f64));
      Tape tape(evaluating);
      const Variable c = contexts(built.attention, queries, built.attention.prepare(states, Mask::lengths(tensor({0, 0}, DType::i32))));
      CHECK(equal_bits(c.value(), zeros(c.shape(), f64)));
      if (!c.wants_gradient()) continue;
      tape.backward(sum(c));
      for (const Variable& x : {states, queries})
        for (double g : doubles(x.grad())) CHECK(g == 0);
    }
  }
}

TEST_CASE("local attention: window 0, beyond the sentence, clamped") {
  const Variable states = constant(normal(Key(1), {2, 5, 3}, 0, 1, f64)), queries = constant(normal(Key(2), {2, 6, 3}, 0, 1, f64));
  const Mask mask = Mask::lengths(tensor({5, 2}, DType::i32));
  const auto weights = [&](const char* name, ScoreOptions options) {
    const Built built(name, options);
    return built.attention(queries, built.attention.prepare(states, mask), Want::weights);
  };
  const Tensor zero = weights("local-m", {.query_width = 3, .memory_width = 3, .window = 0}).weights.value();
  const Tensor one = weights("local-m", {.query_width = 3, .memory_width = 3, .window = 1}).weights.value();
  const Attended clamped = weights("local-m", {.query_width = 3, .memory_width = 3, .window = 0, .clamp_position = true});
  for (Index b = 0; b < 2; ++b)
    for (Index t = 0; t < 6; ++t)
      for (Index s = 0; s < 5; ++s) {
        const Index length = b == 0 ? 5 : 2;
        CHECK(zero(b, t, s).item() == double(s == t && s < length));                       // beyond the sentence: a row of zeros
        CHECK((one(b, t, s).item() > 0) == (std::abs(s - t) <= 1 && s < length));
        CHECK(clamped.weights.value()(b, t, s).item() == double(s == std::min(t, length - 1)));
      }
  CHECK(clamped.position(1, 5).item() == 1);
  // local-p with window 0: the nearest position alone, undamped
  const Attended nearest = weights("local-p", {.query_width = 3, .memory_width = 3, .window = 0});
  for (Index b = 0; b < 2; ++b)
    for (Index t = 0; t < 6; ++t)
      for (Index s = 0; s < 5; ++s)
        CHECK(nearest.weights.value()(b, t, s).item() == double(s == std::max<Index>(0, std::lround(nearest.position(b, t).item()))));
  CHECK_THROWS_AS(weights("local-p", {.query_width = 3, .memory_width = 3, .window = -1}), Error);
}

TEST_CASE("local-p: S is the mask's length; what an explicit mask excludes counts") {
  const Variable states = constant(normal(Key(1), {1, 6, 3}, 0, 1, f64)), queries = constant(normal(Key(2), {1, 4, 3}, 0, 1, f64));
  const Built built("local-p", {.query_width = 3, .memory_width = 3});
  const auto position = [&](const Mask& mask) {
    return built.attention(queries, built.attention.prepare(states, mask), Want::weights).position;
  };
  const Mask first = Mask::allowed(tensor({1, 1, 1, 0, 0, 0}, DType::u8)), three = Mask::lengths(tensor({3}, DType::i32));
  CHECK(equal_bits(position(first), position({})));
  CHECK(equal_bits(position(first & three), position(three)));
  CHECK(worst_absolute(2 * (position(three) + 1.0), position(first) + 1.0) < 1e-12);          // p + 1 = S σ(..)
}

TEST_CASE("attention: β of cosine is not negative, location knows at least one position") {
  for (const double beta : {-1.0, -0.001, double(NAN), double(INFINITY)})
    CHECK_THROWS_WITH_AS(Built("cosine", {.query_width = 3, .memory_width = 3, .sharpness = beta}),
                         doctest::Contains("in a: cosine: sharpness must be finite and not negative"), Error);
  for (const Index longest : {0, -1})
    CHECK_THROWS_WITH_AS(Built("location", {.query_width = 3, .memory_width = 3, .longest = longest}),
                         ("in a: location: longest must be at least 1: " + std::to_string(longest)).c_str(), Error);
}

TEST_CASE("attention: weights carry their gradient where they are asked for: coverage loss, guided alignment") {
  // See et al. 2017, Eq. 12-13: Σ_t Σ_s min(α_ts, Σ_{t' < t} α_t's);  Chen et al. 2016: -Σ_t Σ_s A_ts ln α_ts
  const Tensor links = softmax(normal(Key(5), {2, 4, 5}, 0, 1, f64));
  for (const std::string& name : all_attentions()) {
    if (name == "none" || name == "mean") continue;
    CAPTURE(name);
    const Built built(name, options_for(name));
    std::vector<Tensor> at{normal(Key(1), {2, 5, options_for(name).memory_width}, 0, 1, f64), normal(Key(2), {2, 4, 3}, 0, 1, f64)};
    const auto losses = [&](std::span<const Variable> x) {
      const Memory memory = built.attention.prepare(x[0], Mask::lengths(tensor({5, 3}, DType::i32)));
      std::vector<Variable> alphas;
      for (const Attended& step : steps(built.attention, x[1], memory)) alphas.push_back(step.weights);
      const Variable alpha = concat(alphas, 1);                                                      // [B, T, S]
      const Variable covered = sum(minimum(alpha, cumsum(alpha, 1) - alpha));
      return covered - sum(constant(links) * log(alpha + 0.01));
    };
    const GradientReport report = check_gradient(losses, at);
    CHECK_MESSAGE(report.holds(1e-6), report.worst);
    CHECK_FALSE(built.attention(constant(at[1](all, Slice{0, 1})), built.attention.prepare(constant(at[0]), {})).weights.defined());
  }
}

TEST_CASE("location: positions beyond the longest known sentence get the weight 0") {
  const Built built("location", {.query_width = 3, .memory_width = 4, .longest = 3});
  const Variable states = constant(normal(Key(1), {1, 5, 4}, 0, 1, f64)), query = constant(normal(Key(2), {1, 2, 3}, 0, 1, f64));
  const Tensor long_weights = built.attention(query, built.attention.prepare(states, {}), Want::weights).weights.value();
  const Tensor fit = built.attention(query, built.attention.prepare(slice(states, 1, 0, 3), {}), Want::weights).weights.value();
  CHECK(equal_bits(long_weights(all, all, Slice{0, 3}), fit));
  CHECK(equal_bits(long_weights(all, all, Slice{3, 5}), zeros({1, 2, 2}, f64)));
  const Built local("local-m-location", {.query_width = 3, .memory_width = 4, .longest = 1, .window = 0});
  // step 1 sees position 1 only, which is unknown
  const Tensor none = local.attention(query, local.attention.prepare(states, {}), Want::weights).weights.value();
  CHECK(worst_absolute(none, std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}) == 0);
}

TEST_CASE("location: truncate_after_softmax cuts a softmax over all positions there are") {
  const Built cut("location", {.query_width = 3, .memory_width = 4, .longest = 7, .truncate_after_softmax = true});
  const Variable states = constant(normal(Key(1), {2, 5, 4}, 0, 1, f64)), query = constant(normal(Key(2), {2, 2, 3}, 0, 1, f64));
  const auto weights = [&](const Variable& of, const Mask& mask) {
    return cut.attention(query, cut.attention.prepare(of, mask), Want::weights).weights.value();
  };
  // [2, 2, 7]
  const Tensor whole = softmax(matmul(query, constant(transpose(cut["proj.weight"])))).value(),
               found = weights(states, Mask::lengths(tensor({5, 2}, DType::i32)));
  CHECK(worst_absolute(found[0], doubles(whole(0, all, Slice{0, 5}))) < 1e-15);
  CHECK(worst_absolute(found(1, all, Slice{0, 2}), doubles(whole(1, all, Slice{0, 2}))) < 1e-15);
  CHECK(equal_bits(found(1, all, Slice{2, 5}), zeros({2, 3}, f64)));
  const Tensor beyond = weights(constant(ones({2, 9, 4}, f64)), {});
  CHECK(worst_absolute(beyond(all, all, Slice{0, 7}), doubles(whole)) < 1e-15);
  CHECK(equal_bits(beyond(all, all, Slice{7, 9}), zeros({2, 2, 2}, f64)));
}

TEST_CASE("exp and choose take a row of scores alone") {
  CHECK(worst_absolute(normalise_named("exp")(constant(zeros({3})), {}).value(), std::vector<double>(3, 1)) < 1e-6);
  CHECK(worst_absolute(choose(constant(tensor({0, 2, 1})), {}).weights, std::vector<double>{0, 1, 0}) == 0);
}

TEST_CASE("hard: one position a row, drawn by softmax where the tape trains; straight-through and REINFORCE gradients") {
  const Tensor e = tensor({{{0, ln3, 0.1, 50}}, {{1, 1, 0, 0}}}, f64);
  const Mask mask = Mask::lengths(tensor({3, 2}, DType::i32));
  CHECK(worst_absolute(hard(constant(e), mask).value(), std::vector<double>{0, 1, 0, 0, 1, 0, 0, 0}) == 0);
  const Tensor wide = expand(tensor({{{0, ln3}}}, f64), {1, 20000, 2}).contiguous();
  double drawn = 0;
  {
    Tape tape(Key{7});
    const Tensor one = hard(constant(wide), {}).value();
    for (Index t = 0; t < 20000; ++t) {
      CHECK(one(0, t, 0).item() + one(0, t, 1).item() == 1);
      drawn += one(0, t, 1).item();
    }
  }
  CHECK(std::abs(drawn / 20000 - 0.75) < 4 * std::sqrt(0.75 * 0.25 / 20000));              // four deviations
  {
    Tape tape(Key{7});   // the same words once more
    const Variable scores = variable(wide), one = recompute([](const Variable& x) { return hard(x, {}); }, scores);
    Tape again(Key{7});
    CHECK(worst_absolute(one.value(), hard(constant(wide), {}).value()) == 0);
  }
  // straight-through: the gradient of softmax
  const Tensor dy = normal(Key(4), e.shape(), 0, 1, f64);
  const auto gradient = [&](auto f) {
    const Variable x = variable(e);
    Tape tape(evaluating);
    const Variable y = f(x);
    tape.backward({&y, 1}, {&dy, 1});
    return x.grad();
  };
  CHECK(equal_bits(gradient([&](const Variable& x) { return hard(x, mask); }),
                   gradient([&](const Variable& x) { return softmax(x, -1, mask); })));
  // d log p(choice) and d entropy; the choice of the likeliest does not move
  CHECK(check_gradient([&](std::span<const Variable> x) { return choose(x[0], mask).log_probability; },
                       {add(e, normal(Key(5), e.shape(), 0, 0.1, f64))})
            .holds(1e-8));
  CHECK(check_gradient([&](std::span<const Variable> x) { return choose(x[0], mask).entropy; }, {e}).holds(1e-8));
  {
    const DetectAnomaly detect;
    CHECK_NOTHROW(choose(constant(e), mask));
  }
  const Choice choice = choose(constant(e), mask);
  CHECK(choice.log_probability.value()(1, 0).item() == doctest::Approx(-ln2).epsilon(1e-15));
  CHECK(choice.entropy.value()(1, 0).item() == doctest::Approx(ln2).epsilon(1e-15));
  CHECK(choose(constant(e), Mask::lengths(tensor({0, 0}, DType::i32))).log_probability.value()(0, 0).item() == 0);
  // REINFORCE: the mean of R_a ∂log p_a over draws is the gradient of the mean reward, p_j (R_j - Σ p R)
  const Index draws = 20000;
  const Variable three = variable(tensor({{{0, ln2, ln3}}}, f64));                        // p = (1, 2, 3) / 6
  const Tensor reward = tensor({3, -1, 2}, f64);
  Tape tape(Key{8});
  const Choice drawn_of_three = choose(three + constant(zeros({1, draws, 3}, f64)), {});
  const Variable rewards = sum(constant(drawn_of_three.weights) * constant(reward), -1);
  tape.backward(sum(drawn_of_three.log_probability * rewards) * (1.0 / double(draws)));
  const double p[] = {1.0 / 6, 1.0 / 3, 0.5}, r[] = {3, -1, 2}, mean = p[0] * r[0] + p[1] * r[1] + p[2] * r[2];
  for (Index j = 0; j < 3; ++j) {
    double square = 0;                                                                    // E (R_a (1[a = j] - p_j))²
    for (Index a = 0; a < 3; ++a) square += p[a] * std::pow(r[a] * (double(a == j) - p[j]), 2);
    const double exact = p[j] * (r[j] - mean);
    CHECK(std::abs(three.grad()(0, 0, j).item() - exact) < 4 * std::sqrt((square - exact * exact) / double(draws)));   // four deviations
  }
}

namespace {

struct Nearness {                                                                       // e_ts = -‖q_t - h_s‖²
  Nearness(Scope, const ScoreOptions&) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return -sum(heed::square(unsqueeze(query, 2) - unsqueeze(memory.keys, 1)), -1);
  }
};
struct Flat {                                                                           // forgets an axis
  Flat(Scope, const ScoreOptions&) {}
  Variable operator()(const Variable& query, const Memory&, const AttentionState&) const { return sum(query, -1); }
};

}  // namespace

TEST_CASE("top-k: softmax over the k largest that are allowed, of equal ones the first; gradients through them alone") {
  const double none = -std::numeric_limits<double>::infinity();
  // [2, 3, 5]
  const Tensor e =
      tensor({{{3, 9, 1, 9, 2}, {0, 0, 0, 0, 0}, {none, 5, none, 4, none}}, {{7, 1, 2, 8, 9}, {1, 2, 3, 4, 5}, {2, 2, 1, 2, 2}}}, f64);
  const Mask mask = Mask::lengths(tensor({5, 3}, DType::i32));
  const double b = 1 / (1 + std::exp(-1.0)), c = 1 / (1 + std::exp(-5.0));
  CHECK(worst_absolute(top_k(constant(e), 2, mask).value(),
                       std::vector<double>{0, .5, 0,     .5, 0, .5, .5,    0, 0, 0, 0,  b,  0, 1 - b, 0,
                                           c, 0,  1 - c, 0,  0, 0,  1 - b, b, 0, 0, .5, .5, 0, 0,     0}) < 1e-15);
  const double total = 2 + std::exp(-6.0);
  CHECK(worst_absolute(top_k(constant(e), 3, {}).value()(0, 0), std::vector<double>{std::exp(-6.0) / total, 1 / total, 0, 1 / total, 0}) <
        1e-15);
  for (const Index k : {5, 6, 1000}) CHECK(equal_bits(top_k(constant(e), k, mask).value(), softmax(e, -1, mask)));
  CHECK(equal_bits(top_k(constant(e), 3, Mask::lengths(tensor({0, 3}, DType::i32))).value()(0), zeros({3, 5}, f64)));
  const Tensor x = normal(Key(4), {2, 3, 5}, 0, 1, f64), upstream = normal(Key(5), {2, 3, 5}, 0, 1, f64);
  CHECK(check_gradient([&](std::span<const Variable> v) { return top_k(v[0], 2, mask); }, {x}).holds(1e-8));
  Tape tape;
  const Variable scores = variable(x), p = top_k(scores, 2, mask);
  tape.backward(sum(p * constant(upstream)));
  for (Index i = 0; i < 30; ++i) CHECK((scores.grad().data<double>()[i] != 0) == (p.value().data<double>()[i] > 0));
  CHECK_THROWS_WITH_AS(top_k(constant(e), 0, {}), "top_k: k must be at least 1: 0", Error);
}

TEST_CASE("attention by name: what is unknown lists what is known; a user's score is known by its name while the guard lives") {
  Parameters parameters(Seed{1});
  const ScoreOptions options{.query_width = 3, .memory_width = 3};
  const auto make = [&](std::string_view name) {
    return message_of([&] { make_attention(name, parameters.root() / std::string(name), options); });
  };
  const std::string unknown = make("nearness");
  CHECK(unknown.find("unknown name \"nearness\"; one of none, mean, additive,") != unknown.npos);
  for (const std::string& name : attention_names()) CHECK(unknown.find(name) != unknown.npos);
  CHECK(message_of([&] { make_score("dott", parameters.root(), options); }).find("scaled-dot, general") != std::string::npos);
  CHECK(message_of([&] { normalise_named("max"); }).find("softmax, exp, sparsemax, entmax, hard, learned-entmax, top-K") !=
        std::string::npos);
  for (const std::string wrong :
       {"", "local-m-", "local-x", "local-m-local-p", "dot-", "-dot", "general-sparsemaxx", "scaled", "local-mdot", "-hard", "-top-3", "local-m--hard", "dot-top", "dot-top-",
        "dot-top-0", "dot-top--1", "dot-top-2x", "top-99999999999999999999", "dottop-2"}) {
    CAPTURE(wrong);
    CHECK(message_of([&] { check_attention_name(wrong); }) != "");
  }
  for (const char* right : {"local_p", "scaled_dot", "local-m-general-scaled", "local_p_dot_sparsemax", "hard", "sparsemax", "local-m-hard",
                            "learned-entmax", "dot_learned_entmax", "top-3", "dot_top_12", "local-p-top-1"})
    check_attention_name(right);
  CHECK(score_of("local_p_scaled_dot_hard") == "scaled-dot");
  CHECK(score_of("general-scaled") == "general-scaled");
  CHECK(score_of("general-scaled-top-5") == "general-scaled");
  CHECK(score_of("local-p-entmax") == "general");
  CHECK(window_of("local_p_entmax") == "local-p");
  CHECK(window_of("location-entmax") == "");
  {
    const ExtraScores extra({named_score<Nearness>("nearness"), named_score<Flat>("flat")});
    CHECK(attention_names().size() == 18);
    CHECK(make("nearness") == "");
    check_attention_name("local-p-nearness-entmax");
    const Attention flat = make_attention("flat", parameters.root() / "flat", options);
    const Variable x = constant(zeros({1, 2, 3}));
    CHECK(message_of([&] { flat(x, flat.prepare(x, {})); }) ==
          "in flat: attention: the score has another shape than [B, T, S]: [1, 2], expected [1, 2, 2]");
    CHECK_THROWS_AS(ExtraScores({named_score<Nearness>("scaled_dot")}), Error);
    CHECK_THROWS_AS(ExtraScores({named_score<Nearness>("x"), named_score<Nearness>("x")}), Error);
    CHECK_THROWS_AS(ExtraScores({named_score<Nearness>("flat")}), Error);
    for (const char* window : {"local-m", "local_p", "local-p-mine"}) CHECK_THROWS_AS(ExtraScores({named_score<Nearness>(window)}), Error);
    CHECK_THROWS_AS(ExtraScores({named_score<Nearness>("")}), Error);
    CHECK_THROWS_AS(ExtraScores({NamedScore{"none-made", {}}}), Error);
    for (const char* other : {"auto", "hard", "dot-hard", "dot_top_3", "general-softmax", "x-learned-entmax", "-x", "x-"})
      CHECK_THROWS_AS(ExtraScores({named_score<Nearness>(other)}), Error);
    const ExtraScores underscored({named_score<Nearness>("my_near")});
    for (const char* name : {"my_near", "my-near", "local_m_my_near-hard"}) CHECK(make(name) == "");
    auto first = std::make_unique<ExtraScores>(std::vector{named_score<Nearness>("one")}),
         second = std::make_unique<ExtraScores>(std::vector{named_score<Nearness>("two")});
    first.reset();   // they end in any order
    CHECK(make("two") == "");
  }
  CHECK(make("nearness") == unknown);
  const Built near = [] {
    const ExtraScores extra({named_score<Nearness>("nearness")});
    return Built("nearness", {.query_width = 3, .memory_width = 3});
  }();
  const auto f = [&](std::span<const Variable> x) { return near.attention(x[0], near.attention.prepare(x[1], {})).context; };
  CHECK(check_gradient(f, {normal(Key(1), {2, 3, 3}, 0, 1, f64), normal(Key(2), {2, 4, 3}, 0, 1, f64)}).holds(1e-8));
  CHECK(message_of([&] { make_score("dot", parameters.root() / "unequal", {.query_width = 3, .memory_width = 4}); }) ==
        "in unequal: dot: query and memory need the same width: query 3, memory 4; general has no such need");
}

TEST_CASE("cosine: a learned sharpness, vectors of zeros") {
  const Built built("cosine", {.query_width = 3, .memory_width = 3, .sharpness = 0});
  const Variable query = constant(normal(Key(1), {1, 2, 3}, 0, 1, f64));
  const auto f = [&](std::span<const Variable> x) { return built.attention(x[0], built.attention.prepare(x[1], {})).context; };
  CHECK(check_gradient(f, {query.value(), normal(Key(2), {1, 4, 3}, 0, 1, f64)}).holds(1e-8));
  const Tensor weights =
      built.attention(query, built.attention.prepare(constant(zeros({1, 4, 3}, f64)), {}), Want::weights).weights.value();
  for (double a : doubles(weights)) CHECK(a == 0.25);
  // β = ln(1 + e^b) = ln 4, cos = (1, 0): e = (ln 4, 0)
  const Built four("cosine", {.query_width = 2, .memory_width = 2, .sharpness = 0},
                   {{"sharpness.weight", {{0, 0}}}, {"sharpness.bias", {ln3}}});
  const Variable east = constant(tensor({{{3, 0}}}, f64)), both = constant(tensor({{{5, 0}, {0, 2}}}, f64));
  CHECK(worst_absolute(four.attention(east, four.attention.prepare(both, {}), Want::weights).weights.value(),
                       std::vector<double>{0.8, 0.2}) < 1e-15);
}

TEST_CASE("attention: queries in pieces stand where they stand in one piece") {
  const Variable states = constant(normal(Key(1), {2, 8, 3}, 0, 1, f64)), queries = constant(normal(Key(2), {2, 6, 3}, 0, 1, f64));
  for (const bool clamp : {false, true}) {
    const Built built("local-m", {.query_width = 3, .memory_width = 3, .window = 1, .clamp_position = clamp});
    const Memory memory = built.attention.prepare(states, Mask::lengths(tensor({8, 4}, DType::i32)));
    const Tensor whole = built.attention(queries, memory, Want::weights).weights.value();
    AttentionState state;
    for (const auto& [first, last] : {std::pair(0, 3), {3, 5}, {5, 6}})
      CHECK(equal_bits(built.attention(slice(queries, 1, first, last), memory, state, Want::weights).weights.value(),
                       whole(all, Slice{first, last})));
    CHECK(state.position == 6);
  }
}

TEST_CASE("attention: options of a score reach its parameters") {
  for (const char* name : {"additive", "concat", "additive-normed", "coverage", "location-aware"})
    for (const bool bias : {false, true}) {
      const Built built(name, {.query_width = 3, .memory_width = 3, .bias = bias});
      CHECK_MESSAGE((built.parameters.find("a.key_proj.bias") != nullptr) == bias, name);
    }
  const auto starts = [](const char* name, std::vector<std::string> paths) {
    const Built built(name, {.query_width = 3, .memory_width = 3, .init = constant_init(0.25), .v_init = constant_init(0.5)});
    for (const std::string& path : paths)
      for (const double w : doubles(built[path])) CHECK_MESSAGE(w == (path.ends_with("v") ? 0.5 : 0.25), name << " " << path);
  };
  starts("additive", {"query_proj.weight", "key_proj.weight", "v"});
  starts("general", {"key_proj.weight"});
  starts("location", {"proj.weight"});
  starts("local-p-dot", {"position_proj.weight", "position_v"});
}
