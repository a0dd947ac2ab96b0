// SPDX-License-Identifier: Apache-2.0
// Weights packed once for all products of a longer piece of work, such as the decoding of many words.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <shared_mutex>
#include <tuple>

#include "tensor/list.h"
#include "tensor/low_precision.h"
#include "tensor/tensor.h"

namespace heed {

// What linear() reads in place of a weight: nothing, panels of weightᵀ, or the weight in fewer bits. It stays as long as the weight is
// held and not written.
struct PackedWeight {
  const std::byte* panels = nullptr;
  const LowPrecisionWeight* low_precision = nullptr;
};

// Packed forms of the weights that linear() meets. They belong to whoever does the work. In float32 they are made when a weight is met
// again, and leave the bits of every product alone; in fewer bits at the first meeting (f32 weights only), for inference: derivatives do
// not know of them. A weight that was written since is packed anew, one that nobody else holds any more is forgotten.
class PackedWeights {
 public:
  explicit PackedWeights(Precision precision = Precision::float32) : precision_(precision) {}

  // While it lives, linear() on this thread looks here, and so does every search() that begins on it. Several threads may share one.
  class [[nodiscard]] Use {
   public:
    explicit Use(PackedWeights& weights);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    PackedWeights* previous_;
  };
  static PackedWeights* current();   // what this thread uses, or nullptr
  Precision precision() const { return precision_; }

  PackedWeight operator()(const Tensor& weight);   // weight [out, in], f32 or f64

 private:
  template <class K, class T> using Map = std::map<K, T, std::less<K>, TensorMemory<std::pair<const K, T>>>;
  struct Entry {
    Tensor weight;
    std::uint64_t version;
    Storage panels;
    std::unique_ptr<const LowPrecisionWeight> low_precision;
    PackedWeight packed() const { return {panels.data(), low_precision.get()}; }
  };
  void forget_unused();
  Precision precision_;
  std::shared_mutex mutex_;
  Map<std::tuple<const void*, Index, Index, Index, Index>, Entry> entries_;   // by place, sizes and strides
};

}  // namespace heed
