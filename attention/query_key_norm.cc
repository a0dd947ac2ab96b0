// SPDX-License-Identifier: Apache-2.0
#include "attention/query_key_norm.h"

#include <cmath>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/format.h"

namespace heed {
namespace {

constexpr std::string_view kNames[] = {"none", "l2", "rms", "layer"};
constexpr double kLeast = 1e-24;                   // of the mean square of a vector that gets a length

}  // namespace

std::vector<std::string_view> query_key_names() { return {std::begin(kNames), std::end(kNames)}; }

QueryKey query_key_named(std::string_view name) {
  return QueryKey(place_of("query-key norm", kNames, name));
}

QueryKeyNorm::QueryKeyNorm(Scope scope, Options options) : options_(options) {
  const Inside inside(scope.path());
  const double root = std::sqrt(double(options.head_width)), L = double(options.length);
  if (kind() == QueryKey::l2) {
    check<Error>(options.length >= 2, "query-key norm: length must be at least 2: {}", options.length);
    g = scope.parameter("g", {}, constant_init(std::log2(L * L - L)));
  }
  if (kind() != QueryKey::rms && kind() != QueryKey::layer) return;
  const Shape shape{options.head_width};
  q_weight = (scope / "q_norm").parameter("weight", shape, constant_init(options.scale != 0 ? 1 / (options.scale * root) : 1));
  k_weight = (scope / "k_norm").parameter("weight", shape, constant_init(1));
  if (kind() != QueryKey::layer || !options.bias) return;
  q_bias = (scope / "q_norm").parameter("bias", shape, constant_init(0));
  k_bias = (scope / "k_norm").parameter("bias", shape, constant_init(0));
}

// factor x/‖x‖, since ‖x‖ = √(dk mean x²)
Variable QueryKeyNorm::unit(const Variable& x, const Variable& factor) const {
  return rms_norm(x, expand(factor * (1 / std::sqrt(double(options_.head_width))), {options_.head_width}), kLeast);
}

Variable QueryKeyNorm::queries(const Variable& q) const {
  if (kind() == QueryKey::l2) return unit(q, g);
  if (kind() == QueryKey::rms) return rms_norm(q, q_weight, kEps);
  return kind() == QueryKey::layer ? layer_norm(q, q_weight, q_bias, kEps) : q;
}

Variable QueryKeyNorm::keys(const Variable& k) const {
  if (kind() == QueryKey::l2) return unit(k, constant(ones({}, k.value().dtype())));
  if (kind() == QueryKey::rms) return rms_norm(k, k_weight, kEps);
  return kind() == QueryKey::layer ? layer_norm(k, k_weight, k_bias, kEps) : k;
}

std::string_view QueryKeyNorm::formula(bool of_queries) const {
  if (kind() == QueryKey::l2) return of_queries ? ", as g q/‖q‖" : ", as k_j/‖k_j‖";
  if (kind() == QueryKey::rms) return of_queries ? ", as γ ⊙ q/√(mean q² + ε)" : ", as γ ⊙ k_j/√(mean k_j² + ε)";
  if (plain()) return "";
  if (q_bias.defined()) return of_queries ? ", as γ ⊙ (q - μ)/√(var + ε) + β" : ", as γ ⊙ (k_j - μ)/√(var + ε) + β";
  return of_queries ? ", as γ ⊙ (q - μ)/√(var + ε)" : ", as γ ⊙ (k_j - μ)/√(var + ε)";
}

}  // namespace heed
