// SPDX-License-Identifier: Apache-2.0
// Weights packed once for all products of a longer piece of work, such as the decoding of many words.
#pragma once
#include <map>
#include <mutex>
#include <tuple>

#include "tensor/tensor.h"

namespace heed {

// Panels of the weights that linear() meets, made when one is met again. They belong to whoever does the work, and leave the bits
// of every product alone. A weight that was written since is packed anew, one that nobody else holds any more is forgotten.
class PackedWeights {
 public:
  // While it lives, linear() on this thread looks here. Several threads may share one.
  class [[nodiscard]] Use {
   public:
    explicit Use(PackedWeights& weights);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    PackedWeights* previous_;
  };

  // Panels of weightᵀ, weight [out, in] f32 or f64; none at the first meeting.
  Storage panels(const Tensor& weight);

 private:
  struct Entry {
    Tensor weight;
    std::uint64_t version;
    Storage panels;
  };
  std::mutex mutex_;
  std::map<std::tuple<const void*, Index, Index, Index, Index>, Entry> entries_;   // by place, sizes and strides
};

// Panels of weightᵀ where this thread uses PackedWeights, else none.
Storage packed_panels(const Tensor& weight);

}  // namespace heed
