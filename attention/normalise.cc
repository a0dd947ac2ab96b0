// SPDX-License-Identifier: Apache-2.0
#include "attention/normalise.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/record.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/softmax.h"

namespace heed {
namespace {

struct Named {
  std::string_view name, formula;
  Variable (*f)(const Variable& scores, const Mask& mask);
};
constexpr Named kNamed[] = {
    {"softmax", "α = softmax(e) over the words that may be seen", [](const Variable& e, const Mask& mask) { return softmax(e, -1, mask); }},
    {"sparsemax", "α = max(e - τ, 0) over the words that may be seen, τ so that Σ α = 1", [](const Variable& e, const Mask& mask) { return sparsemax(e, mask); }},
    {"entmax", "α = max(e/2 - τ, 0)² over the words that may be seen, τ so that Σ α = 1", [](const Variable& e, const Mask& mask) { return entmax(e, mask); }},
    {"hard", "α = 1 at one word that may be seen, chosen by softmax(e)", hard},
};

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
  const std::optional<Key> key = dropout_key(0.5);
  visit_float(p.dtype(), "hard", [&]<class T>() { pick_one<T>(p, key, out); });
  return out;
}

}  // namespace

Normalise normalise_named(std::string_view name) {
  for (const Named& one : kNamed)
    if (one.name == name) return {one.f, one.formula, one.name};
  fail<Error>("normalise: unknown name {}; one of {}", quote(name), fmt::join(normalise_names(), ", "));
}

std::vector<std::string_view> normalise_names() {
  std::vector<std::string_view> names;
  for (const Named& one : kNamed) names.push_back(one.name);
  return names;
}

Variable hard(const Variable& scores, const Mask& mask) {
  const Tensor p = softmax(scores.value(), -1, mask);
  return record("hard", one_of(p), {scores}, [de = scores.slot(), p = saved(p)](const Tensor& dy) {
    de.gradient([&](Into into) { softmax_grad(p, dy, -1, into); });
  });
}

Choice choose(const Variable& scores, const Mask& mask) {
  const Tensor forbidden = logical_not(mask.dense(scores.shape()));
  const Variable p = softmax(scores, -1, mask), log_p = masked_fill(log_softmax(masked_fill(scores, forbidden, -1e30), -1), forbidden, 0);   // no -∞ on the way
  const Tensor weights = one_of(p.value());
  return {weights, sum(log_p * constant(weights), -1), -sum(p * log_p, -1)};
}

}  // namespace heed
