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
};

enum class Want { context, weights };

// What an attention gives back.
struct Attended {
  Variable context;   // Σ_s α_ts value_s   [B, T, d]
  Tensor weights;     // α [B, T, S], per head [B, H, T, S]; defined when Want::weights was asked for
};

}  // namespace heed
