// SPDX-License-Identifier: Apache-2.0
#include "attention/normalise.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/record.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/index.h"
#include "tensor/ops/sort.h"
#include "tensor/ops/softmax.h"

namespace heed {
namespace {

struct Named {
  std::string_view name, formula;
  Variable (*f)(const Variable& scores, const Mask& mask);
};
constexpr Named kNamed[] = {
    {"softmax", "α = softmax(e) over the words that may be seen", [](const Variable& e, const Mask& mask) { return softmax(e, -1, mask); }},
    {"exp", "α = exp(e) of the words that may be seen, 0 of others",
     [](const Variable& e, const Mask& mask) { return exp(masked_fill(e, logical_not(mask.dense(e.shape())), -HUGE_VAL)); }},
    {"sparsemax", "α = max(e - τ, 0) over the words that may be seen, τ so that Σ α = 1",
     [](const Variable& e, const Mask& mask) { return sparsemax(e, mask); }},
    {"entmax", "α = max(e/2 - τ, 0)² over the words that may be seen, τ so that Σ α = 1",
     [](const Variable& e, const Mask& mask) { return entmax(e, mask); }},
    {"hard", "α = 1 at one word that may be seen, chosen by softmax(e)", hard},
};
constexpr std::string_view kLearned = "learned-entmax";
constexpr std::string_view kLearnedFormula =
    "α = max((a - 1) e - τ, 0)^(1/(a - 1)) over the words that may be seen, τ so that Σ α = 1, a = 1 + σ(w)";
constexpr std::string_view kTop = "top-", kTopFormula = "α = softmax(e) over the k largest e of the words that may be seen";

// 8 of "top-8"
std::optional<Index> top_of(std::string_view name) {
  Index k = 0;
  if (!name.starts_with(kTop)) return {};
  const auto [end, wrong] = std::from_chars(name.data() + kTop.size(), name.data() + name.size(), k);
  return wrong == std::errc() && end == name.data() + name.size() && k >= 1 ? std::optional(k) : std::nullopt;
}

// One position a row with p > 0: drawn where there is a key, else the likeliest; one-hot, zeros for a row of zeros.
template <class T> void pick_one(const Tensor& p, std::optional<Key> key, const Tensor& out) {
  const T* from = p.data<T>();
  T* to = out.mutable_data<T>();
  const Index S = p.size(-1), rows = S ? p.numel() / S : 0;
  for (Index row = 0; row < rows; ++row, from += S, to += S) {
    Index chosen = std::max_element(from, from + S) - from;
    if (!(from[chosen] > 0)) continue;
    if (key) {
      double total = 0, below = 0;
      for (Index s = 0; s < S; ++s) total += double(from[s]);
      const double u = Random(*key / row).uniform() * total;
      for (Index s = 0; s < S; ++s)
        if (from[s] > 0 && (chosen = s, below += double(from[s])) > u) break;
    }
    to[chosen] = 1;
  }
}

Tensor one_of(const Tensor& p) {
  const Tensor out = zeros(p.shape(), p.dtype());
  const std::optional<Key> key = dropout_key(0.5);   // of any p: drawn where dropout would act
  visit_float(p.dtype(), "hard", [&]<class T>() { pick_one<T>(p, key, out); });
  return out;
}

}  // namespace

Variable Normalise::operator()(const Variable& scores, const Mask& mask) const {
  check<Error>(bool(f), "normalise: a default constructed one computes nothing; normalise_named(\"softmax\")");
  return f(scores, mask);
}

Normalise normalise_named(std::string_view name) {
  for (const Named& one : kNamed)
    if (one.name == name) return {one.f, one.formula, one.name == "softmax"};
  check<Error>(name != kLearned, "normalise: learned-entmax has a parameter; make_normalise(name, scope, heads) makes it");
  const std::optional<Index> k = top_of(name);
  check<Error>(k.has_value(), "normalise: unknown name {}; one of {}", quote(name), normalise_choices());
  return {[k = *k](const Variable& e, const Mask& mask) { return top_k(e, k, mask); }, kTopFormula};
}

std::vector<std::string_view> normalise_names() {
  std::vector<std::string_view> names;
  for (const Named& one : kNamed) names.push_back(one.name);
  names.push_back(kLearned);
  return names;
}

Normalise make_normalise(std::string_view name, Scope scope, Index heads) {
  const Inside inside(scope.path());
  if (name != kLearned) return normalise_named(name);
  const auto w = std::make_shared<const Parameter>(scope.parameter("entmax_order", heads ? Shape{heads} : Shape{}, constant_init(0)));
  return {[w](const Variable& e, const Mask& mask) {
    const Variable a = sigmoid(*w) + 1;
    return alpha_entmax(e, a.rank() ? unsqueeze(a, -1) : a, mask);                     // [H, 1] or []
  }, kLearnedFormula};
}

std::string normalise_choices() { return fmt::format("{}, top-K", fmt::join(normalise_names(), ", ")); }

bool sums_to_one(std::string_view name) { return name != "exp"; }

std::string_view normalise_in(std::string_view name) {
  const auto ends = [&](std::string_view one) { return name == one || (name.ends_with(one) && name[name.size() - one.size() - 1] == '-'); };
  if (ends(kLearned)) return kLearned;
  for (const Named& one : kNamed)
    if (ends(one.name)) return one.name;
  const std::size_t at = name.rfind(kTop);
  return at != name.npos && (at == 0 || name[at - 1] == '-') && top_of(name.substr(at)) ? name.substr(at) : std::string_view();
}

Variable top_k(const Variable& scores, Index k, const Mask& mask) {
  check<Error>(k >= 1, "top_k: k must be at least 1: {}", k);
  const Tensor& e = scores.value();
  if (e.rank() == 0 || k >= e.size(-1)) return softmax(scores, -1, mask);
  if (e.rank() == 1) return reshape(top_k(unsqueeze(scores, 0), k, mask), e.shape());
  const Tensor forbidden = logical_not(mask.dense(e.shape()));
  const Tensor largest = topk(masked_fill(e, forbidden, -std::numeric_limits<double>::infinity()), k).indices;   // [.., k]
  const Tensor kept = scatter_add(zeros(e.shape(), DType::u8), -1, largest, ones(largest.shape(), DType::u8));
  return softmax(scores, -1, mask & Mask::allowed(kept));
}

Variable hard(const Variable& scores, const Mask& mask) {
  const Tensor p = softmax(scores.value(), -1, mask);
  return record("hard", one_of(p), {scores}, [de = scores.slot(), p = saved(p)](const Tensor& dy) {
    de.gradient([&](Into into) { softmax_grad(p, dy, -1, into); });
  });
}

Choice choose(const Variable& scores, const Mask& mask) {
  const Tensor forbidden = logical_not(mask.dense(scores.shape()));
  // no -∞ on the way
  const Variable p = softmax(scores, -1, mask), log_p = masked_fill(log_softmax(masked_fill(scores, forbidden, -1e30), -1), forbidden, 0);
  const Tensor weights = one_of(p.value());
  return {weights, sum(log_p * constant(weights), -1), -sum(p * log_p, -1)};
}

}  // namespace heed
