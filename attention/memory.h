// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autograd/variable.h"
#include "tensor/mask.h"

namespace heed {

// What queries look at, prepared once per sentence.
struct Memory {
  Variable keys;      // what is scored   [B, S, ·], per head [B, H, S, d/H]
  Variable values;    // what is summed   the same
  Mask mask;          // the positions that exist
  Variable sums = {};   // of linear attention, what takes the place of both   [B, H, dk, dv + 1]
};

enum class Want { context, weights };

// What an attention gives back. Beside the context, what was asked for with Want::weights.
struct Attended {
  Variable context;         // Σ_s α_ts value_s   [B, T, d]
  Variable weights = {};    // α, of local-p α f [B, T, S], per head [B, H, T, S]
  Variable scores = {};     // e [B, T, S], anything where masked; of the attentions in attend.h
  Tensor position = {};     // p, where a local attention looks, from 0   [B, T], f64
};

}  // namespace heed
