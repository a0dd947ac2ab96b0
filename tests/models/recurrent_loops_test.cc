// SPDX-License-Identifier: Apache-2.0
// Bahdanau's, Cho's and Luong's models against plain loops over one sentence in f64, step by step as the papers print them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/recurrent.h"
#include "models/run_config.h"
#include "tests/models/pairs.h"

using namespace heed;
using namespace heed::test;

namespace {

using Vector = std::vector<double>;

// The parameters of a model by their paths.
struct Loops {
  const Parameters& parameters;

  Vector row(const std::string& path, Index i) const { return parameters.find(path)->variable.value()[i].to_vector<double>(); }
  Vector vector(const std::string& path) const { return parameters.find(path)->variable.value().to_vector<double>(); }
  Vector times(const std::string& path, const Vector& x) const {                      // W x
    const Tensor& w = parameters.find(path)->variable.value();
    Vector y(std::size_t(w.size(0)));
    for (Index i = 0; i < w.size(0); ++i)
      for (Index j = 0; j < w.size(1); ++j) y[std::size_t(i)] += w(i, j).item() * x[std::size_t(j)];
    return y;
  }
};

Vector operator+(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Vector joined(Vector a, const Vector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Vector tanh_of(Vector a) {
  for (double& x : a) x = std::tanh(x);
  return a;
}
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// r, z = σ(W x + b + U h);  g = tanh(W_g x + b_g + U_g (r h));  h' = (1 - z) h + z g, Cho's h' = z h + (1 - z) g
template <bool kCho = false>
Vector gru(const Loops& p, const std::string& scope, const std::string& ending, const Vector& x, const Vector& h) {
  const std::size_t n = h.size();
  const Vector a = p.times(scope + "weight_ih" + ending, x) + p.vector(scope + "bias_ih" + ending),
               u = p.times(scope + "weight_hh" + ending, h);
  Vector reset(n), next(n);
  for (std::size_t i = 0; i < n; ++i) reset[i] = sigmoid_of(a[i] + u[i]) * h[i];
  const Vector ug = p.times(scope + "weight_hh" + ending, reset);
  for (std::size_t i = 0; i < n; ++i) {
    const double z = sigmoid_of(a[n + i] + u[n + i]), g = std::tanh(a[2 * n + i] + ug[2 * n + i]);
    next[i] = kCho ? z * h[i] + (1 - z) * g : (1 - z) * h[i] + z * g;
  }
  return next;
}

// r after the product: a of the input, u of the state
Vector reset_after(const Vector& a, const Vector& u, const Vector& h) {
  const std::size_t n = h.size();
  Vector next(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double z = sigmoid_of(a[n + i] + u[n + i]), g = std::tanh(a[2 * n + i] + sigmoid_of(a[i] + u[i]) * u[2 * n + i]);
    next[i] = (1 - z) * g + z * h[i];
  }
  return next;
}

// PyTorch's form
Vector gru_cudnn(const Loops& p, const std::string& scope, const std::string& ending, const Vector& x, const Vector& h) {
  return reset_after(p.times(scope + "weight_ih" + ending, x) + p.vector(scope + "bias_ih" + ending),
                     p.times(scope + "weight_hh" + ending, h) + p.vector(scope + "bias_hh" + ending), h);
}

void lstm(const Loops& p, const std::string& scope, const std::string& ending, const Vector& x, Vector& h, Vector& c) {
  const std::size_t n = h.size();
  const Vector a = p.times(scope + "weight_ih" + ending, x) + p.vector(scope + "bias_ih" + ending) +
                   p.times(scope + "weight_hh" + ending, h) + p.vector(scope + "bias_hh" + ending);
  for (std::size_t i = 0; i < n; ++i) {
    c[i] = sigmoid_of(a[n + i]) * c[i] + sigmoid_of(a[i]) * std::tanh(a[2 * n + i]);
    h[i] = sigmoid_of(a[3 * n + i]) * std::tanh(c[i]);
  }
}

// Σ_j α_j h_j with α = softmax(e)
Vector context_of(const Vector& e, const std::vector<Vector>& memory) {
  double total = 0;
  for (double x : e) total += std::exp(x);
  Vector c(memory[0].size());
  for (std::size_t j = 0; j < e.size(); ++j)
    for (std::size_t i = 0; i < c.size(); ++i) c[i] += std::exp(e[j]) / total * memory[j][i];
  return c;
}

// e_j = vᵀ tanh(W q + U h_j)
Vector additive_context(const Loops& p, const Vector& q, const std::vector<Vector>& memory) {
  Vector e;
  for (const Vector& h : memory)
    e.push_back(dot(p.vector("attention.v"), tanh_of(p.times("attention.query_proj.weight", q) + p.times("attention.key_proj.weight", h))));
  return context_of(e, memory);
}

// U_o s + V_o E y + C_o c + b
Vector readout(const Loops& p, const Vector& s, const Vector& y, const Vector& c) {
  return p.times("readout.state.weight", s) + p.vector("readout.state.bias") + p.times("readout.embed.weight", y) +
         p.times("readout.context.weight", c);
}

Vector maxout(const Vector& pairs) {
  Vector out;
  for (std::size_t k = 0; k < pairs.size(); k += 2) out.push_back(std::max(pairs[k], pairs[k + 1]));
  return out;
}

constexpr std::size_t kWidth = 6;
const std::vector<std::int32_t> kSource{4, 9, 5, kEnd}, kTarget{7, 8, 12, 5, kEnd}, kOther{5, 5, 6, 7, 8, 9, kEnd};

// h_j = [fwd_j; bwd_j] of the source's words, and bwd_0
std::pair<std::vector<Vector>, Vector> read_both_ways(const Loops& p, decltype(gru_cudnn)& cell) {
  std::vector<Vector> memory(kSource.size(), Vector(2 * kWidth));
  Vector forwards(kWidth), backwards(kWidth);
  for (std::size_t j = 0; j < kSource.size(); ++j) {
    const std::size_t k = kSource.size() - 1 - j;
    forwards = cell(p, "encoder.", "_l0", p.row("source_embedding.weight", kSource[j]), forwards);
    backwards = cell(p, "encoder.", "_l0_reverse", p.row("source_embedding.weight", kSource[k]), backwards);
    std::copy(forwards.begin(), forwards.end(), memory[j].begin());
    std::copy(backwards.begin(), backwards.end(), memory[k].begin() + kWidth);
  }
  return {memory, backwards};
}

void check_features(const Tensor& features, const std::vector<Vector>& expected) {
  for (std::size_t t = 0; t < expected.size(); ++t) {
    const Vector y = features(0, Index(t)).to_vector<double>();
    REQUIRE(y.size() == expected[t].size());
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y[i] - expected[t][i]) < 1e-12);
  }
}

}  // namespace

TEST_CASE("Bahdanau's model: plain loops, the readout of s_t and of s_{t-1}") {
  for (const char* readout_state : {"current", "previous"}) {
    RunConfig config = default_config("gru");
    config.width = kWidth;
    config.readout_state = readout_state;
    Parameters parameters(Seed{4}, DType::f64);
    const auto model = make_model(config, parameters.root(), kVocabulary, kVocabulary);
    const Loops p{parameters};
    const auto [memory, backwards] = read_both_ways(p, gru<>);
    std::vector<Vector> features;
    Vector s = tanh_of(p.times("init.weight", backwards));
    for (std::size_t t = 0; t < kTarget.size(); ++t) {
      const Vector y = p.row("target_embedding.weight", t == 0 ? kStart : kTarget[t - 1]), c = additive_context(p, s, memory), before = s;
      s = gru<>(p, "decoder.", "", joined(y, c), s);
      features.push_back(maxout(readout(p, std::string_view(readout_state) == "current" ? s : before, y, c)));
    }
    check_features(model->features(batch_of({kSource, kOther}, {kTarget, kOther})).value(), features);
  }
}

TEST_CASE("a conditional decoder: plain loops: s' of the word, a look from s', s of the context") {
  RunConfig config = default_config("gru");
  config.width = kWidth;
  config.decoder = "conditional";
  Parameters parameters(Seed{4}, DType::f64);
  const auto model = make_model(config, parameters.root(), kVocabulary, kVocabulary);
  const Loops p{parameters};
  const std::vector<Vector> memory = read_both_ways(p, gru_cudnn).first;
  std::vector<Vector> features;
  Vector mean(2 * kWidth);
  for (const Vector& h : memory)
    for (std::size_t i = 0; i < h.size(); ++i) mean[i] += h[i] / double(memory.size());
  Vector s = tanh_of(p.times("init.weight", mean));
  for (std::size_t t = 0; t < kTarget.size(); ++t) {
    const Vector y = p.row("target_embedding.weight", t == 0 ? kStart : kTarget[t - 1]), between = gru_cudnn(p, "decoder.cell1.", "", y, s),
                 c = additive_context(p, between, memory);
    s = gru_cudnn(p, "decoder.cell2.", "", c, between);
    features.push_back(tanh_of(readout(p, s, y, c)));
  }
  check_features(model->features(batch_of({kSource, kOther}, {kTarget, kOther})).value(), features);
}

TEST_CASE("Cho's model as it is printed: plain loops, c and s_0 once a sentence, r over U s + C c") {
  RunConfig config = default_config("gru");
  config.width = kWidth;
  config.decoder = "cho-exact";
  Parameters parameters(Seed{4}, DType::f64);
  const auto model = make_model(config, parameters.root(), kVocabulary, kVocabulary);
  const Loops p{parameters};
  Vector h(kWidth);
  for (const std::int32_t word : kSource) h = gru<true>(p, "encoder.", "_l0", p.row("source_embedding.weight", word), h);
  const Vector c = tanh_of(p.times("context_proj.weight", h)), none(kWidth);
  Vector s = tanh_of(p.times("init.weight", c));
  std::vector<Vector> features;
  for (std::size_t t = 0; t < kTarget.size(); ++t) {
    const Vector y = p.row("target_embedding.weight", t == 0 ? kStart : kTarget[t - 1]);
    const Vector a = p.times("decoder.weight_ih", joined(y, none)) + p.vector("decoder.bias_ih");                             // W E y + b
    // U s + C c + b
    const Vector u = p.times("decoder.weight_hh", s) + p.times("decoder.weight_ih", joined(none, c)) + p.vector("decoder.bias_hh");
    s = reset_after(a, u, s);
    features.push_back(maxout(readout(p, s, y, c)));
  }
  check_features(model->features(batch_of({kSource, kOther}, {kTarget, kOther})).value(), features);
}

TEST_CASE("Luong's model: plain loops, with input feeding and without") {
  for (const bool feeding : {false, true}) {
    RunConfig config = default_config("lstm");
    config.width = kWidth;
    config.layers = 2;
    config.input_feeding = feeding;
    config.reverse_source = true;
    Parameters parameters(Seed{4}, DType::f64);
    const auto model = make_model(config, parameters.root(), kVocabulary, kVocabulary);
    const Loops p{parameters};
    std::vector<Vector> memory(kSource.size()), features, h(2, Vector(kWidth)), c = h;
    for (std::size_t j = kSource.size(); j-- > 0;) {
      lstm(p, "encoder.", "_l0", p.row("source_embedding.weight", kSource[j]), h[0], c[0]);
      lstm(p, "encoder.", "_l1", h[0], h[1], c[1]);
      memory[j] = h[1];
    }
    Vector attentional(kWidth);
    for (std::size_t t = 0; t < kTarget.size(); ++t) {
      const Vector y = p.row("target_embedding.weight", t == 0 ? kStart : kTarget[t - 1]);
      lstm(p, "decoder.", "_l0", feeding ? joined(y, attentional) : y, h[0], c[0]);
      lstm(p, "decoder.", "_l1", h[0], h[1], c[1]);
      Vector e;
      for (const Vector& state : memory) e.push_back(dot(h[1], p.times("attention.key_proj.weight", state)));
      attentional = tanh_of(p.times("attn_out.weight", joined(context_of(e, memory), h[1])));
      features.push_back(attentional);
    }
    check_features(model->features(batch_of({kSource, kOther}, {kTarget, kOther})).value(), features);
  }
}
