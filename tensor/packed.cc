// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed.h"

#include "tensor/gemm.h"

namespace heed {
namespace {
thread_local PackedWeights* used = nullptr;
}

PackedWeights::Use::Use(PackedWeights& weights) : previous_(used) { used = &weights; }
PackedWeights::Use::~Use() { used = previous_; }

PackedWeights* PackedWeights::current() { return used; }

PackedWeight PackedWeights::operator()(const Tensor& weight) {
  return visit_float(weight.dtype(), "packed weights", [&]<class T>() -> PackedWeight {
    const T* w = weight.data<T>();
    const Index n = weight.size(0), k = weight.size(1), b_column = weight.strides()[0], b_k = weight.strides()[1];
    const std::lock_guard lock(mutex_);
    const auto [at, first] = entries_.try_emplace({w, n, k, b_column, b_k}, Entry{weight, weight.version(), {}});
    Entry& entry = at->second;
    if (first) std::erase_if(entries_, [](const auto& item) { return item.second.weight.storage().is_unique(); });
    const bool written = entry.version != weight.version();
    if (written) entry = {weight, weight.version(), {}};
    if (precision_ != Precision::float32) {
      if (!entry.packed.low_precision) entry.packed.low_precision = std::make_shared<const LowPrecisionWeight>(weight, precision_);
    } else if (!first && !written && !entry.packed.panels) {
      entry.packed.panels = pack(k, n, w, b_k, b_column);
    }
    return entry.packed;
  });
}

}  // namespace heed
