// SPDX-License-Identifier: Apache-2.0
// Random features (FAVOR+; Choromanski et al. 2021, "Rethinking attention with Performers", arXiv 2009.14794, 2.3 and 2.4), of which linear
// attention makes an estimate of softmax attention:
//   φ(x) = exp(-‖x‖²/2) [exp(w_1·x) .. exp(w_m·x)],  x = √scale q or √scale k,  w_i ~ N(0, I):  E φ(q)·φ(k) / m = exp(scale q·k)
// What is common to all features of a query, or of all keys, cancels in the weights: 1/√m, and the largest exponent, taken off so that no
// exp overflows. 1e-6 is added to each feature, 1e-30 where nothing is taken off. The w_i are no parameters but a function of the options;
// they stay the same for a model's life, since a model that was trained with some does worse with others.
#pragma once
#include <cstdint>
#include <string>

#include "autograd/variable.h"
#include "tensor/mask.h"

namespace heed {

class RandomFeatures {
 public:
  struct Options {
    Index number;                  // m: dk ln dk are about enough
    Index head_width;              // dk
    double scale = 0;              // of q·k; 0: 1/√dk
    bool orthogonal = true;        // dk of the w_i at a time are orthogonal, with the lengths of independent ones: less error (2.4)
    std::int64_t draw = 0;         // of the w_i
    DType dtype = DType::f32;
  };
  explicit RandomFeatures(const Options& options);   // Error: number or head_width below 1, scale below 0

  Variable queries(const Variable& q) const;                    // [.., T, dk] -> [.., T, m]
  // [B, H, S, dk] -> [B, H, S, m], 0 beyond the mask's lengths. Exponents less the largest of all keys of a head; under a mask of more than
  // lengths as they are, since no word may tell of one that is not seen.
  Variable keys(const Variable& k, const Mask& mask) const;
  static constexpr double kLeast = 1e-30;                       // denominators of linear attention, which some are near
  const Tensor& directions() const { return directions_; }      // √scale w  [m, dk]
  Index number() const { return options_.number; }
  std::string formula(bool of_queries, bool causal) const;      // for a Trace, ", as ..."

 private:
  Options options_;
  Tensor directions_;
};

}  // namespace heed
