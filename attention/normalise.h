// SPDX-License-Identifier: Apache-2.0
// How scores e [B, T, S] become weights α [B, T, S]: each row over the allowed positions, zeros where nothing is allowed.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/variable.h"
#include "nn/scope.h"
#include "tensor/mask.h"

namespace heed {

struct Normalise {
  std::function<Variable(const Variable& scores, const Mask& mask)> f;
  std::string_view formula = "α = normalise(e) over the words that may be seen";       // what explanations print; outlives this
  bool is_softmax = false;                                                             // what fused kernels compute
  Variable operator()(const Variable& scores, const Mask& mask) const;                 // Error without f
};

// softmax: exp(e) / Σ exp(e);  exp: exp(e);  sparsemax: Martins and Astudillo 2016;  entmax: α = 1.5, Peters et al. 2019;
// top-8: top_k of 8;  hard: below
Normalise normalise_named(std::string_view name);        // Error lists the names, and where a name needs make_normalise
// The same, and learned-entmax: alpha_entmax with α = 1 + σ(w), w [H] one a head, or [] for scores without heads (0), at first 0
// Parameters of that one: `entmax_order` w                                           Correia et al. 2019, arXiv 1909.00015, 3.1
Normalise make_normalise(std::string_view name, Scope scope, Index heads = 0);
std::vector<std::string_view> normalise_names();         // those without a number
std::string normalise_choices();                         // those and top-K, for a help or a message
bool sums_to_one(std::string_view name);                 // the weights of a row: of all but exp
// The normaliser that `name` ends with, after a hyphen or as the whole: dot-top-8 -> top-8, dot -> "".
std::string_view normalise_in(std::string_view name);

// softmax over the k largest scores of a row that are allowed, of equal ones those of lower positions; the others get no weight and no
// gradient. Error: k < 1                                                                    Zhao et al. 2019, arXiv 1912.11637, 2
Variable top_k(const Variable& scores, Index k, const Mask& mask);

// One position of each row: drawn from softmax(e) where the tape trains, the likeliest otherwise (equal scores: the first). Gradient
// of softmax(e), as if the choice had been the weights (straight-through, Bengio et al. 2013, arXiv 1308.3432, 4).
Variable hard(const Variable& scores, const Mask& mask);

// The same choice for REINFORCE (Williams 1992; Xu et al. 2015, arXiv 1502.03044, 4.1), without straight-through: the loss
//   -(R_t - b) log_probability_t - λ entropy_t     R the reward, a constant
// carries the gradient.
struct Choice {
  Tensor weights;              // one-hot [B, T, S]
  Variable log_probability;    // log softmax(e) at the choice [B, T], 0 where nothing is allowed
  Variable entropy;            // -Σ p log p   [B, T]
};
Choice choose(const Variable& scores, const Mask& mask);

}  // namespace heed
