// SPDX-License-Identifier: Apache-2.0
// Queries and keys of a head made alike in length before they meet, over dk, the same for all heads: no score grows with them.
//   l2      g q/‖q‖ · k/‖k‖, g learned, instead of 1/√dk                              Henry et al. 2020, arXiv 2010.04245, 3
//   rms     γ ⊙ q/√(mean q² + eps), the same of k with a γ of its own, then 1/√dk     as Gemma 3, arXiv 2503.19786, 2
//   layer   γ ⊙ (q - μ)/√(var + eps) + β, the same of k                               Dehghani et al. 2023, arXiv 2302.05442, 2
#pragma once
#include <string_view>
#include <vector>

#include "nn/scope.h"

namespace heed {

enum class QueryKey { none, l2, rms, layer };
QueryKey query_key_named(std::string_view name);       // none, l2, rms, layer. Error lists the names
std::vector<std::string_view> query_key_names();

class QueryKeyNorm {
 public:
  struct Options {
    QueryKey kind = QueryKey::none;
    Index head_width;                              // dk
    double scale = 0;                              // of q·k, 0: 1/√dk. γ of the queries starts at 1/(scale √dk)
    Index length = 50;                             // l2: L, the words of a long sentence: g starts at log2(L² - L)
    bool bias = true;                              // layer: β
  };
  QueryKeyNorm() = default;                        // none: nothing happens
  // l2: `g` [];  rms, layer: `q_norm.weight`, `k_norm.weight` [dk];  layer: `q_norm.bias`, `k_norm.bias` [dk]. Error: length < 2
  QueryKeyNorm(Scope scope, Options options);

  QueryKey kind() const { return options_.kind; }
  bool plain() const { return kind() == QueryKey::none; }
  Variable queries(const Variable& q) const;       // [.., dk] -> [.., dk]
  Variable keys(const Variable& k) const;
  std::string_view formula(bool of_queries) const; // for a Trace, ", ..." or nothing

  Parameter g, q_weight, q_bias, k_weight, k_bias;

 private:
  static constexpr double kEps = 1e-5;             // rms, layer
  Variable unit(const Variable& x, const Variable& factor) const;
  Options options_{.head_width = 1};
};

}  // namespace heed
