// SPDX-License-Identifier: Apache-2.0
#include "attention/talking_heads.h"

#include "autograd/ops.h"
#include "nn/init.h"

namespace heed {
namespace {

// y_a = Σ_b mix_ab x_b
Variable mixed(const Parameter& mix, const Variable& x) {
  const Variable heads = reshape(x, {x.size(0), x.size(1), x.size(2) * x.size(3)});   // [B, H, T S]
  return reshape(matmul(mix, heads), x.shape());
}

}  // namespace

TalkingHeads::TalkingHeads(Scope scope, Index heads)
    : logit_mix(scope.parameter("logit_mix", {heads, heads}, identity_init())),
      weight_mix(scope.parameter("weight_mix", {heads, heads}, identity_init())) {
  for (const Parameter* mix : {&logit_mix, &weight_mix}) mix->data().multiplied = false;   // once for all words
}

Variable TalkingHeads::scores(const Variable& e) const { return mixed(logit_mix, e); }
Variable TalkingHeads::weights(const Variable& p) const { return mixed(weight_mix, p); }

}  // namespace heed
