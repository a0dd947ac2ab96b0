// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed.h"

#include "tensor/gemm.h"

namespace heed {
namespace {
thread_local PackedWeights* current = nullptr;
}

PackedWeights::Use::Use(PackedWeights& weights) : previous_(current) { current = &weights; }
PackedWeights::Use::~Use() { current = previous_; }

Storage PackedWeights::panels(const Tensor& weight) {
  return visit_float(weight.dtype(), "packed weights", [&]<class T>() -> Storage {
    const T* w = weight.data<T>();
    const Index n = weight.size(0), k = weight.size(1), b_column = weight.strides()[0], b_k = weight.strides()[1];
    const std::lock_guard lock(mutex_);
    const auto [at, first] = entries_.try_emplace({w, n, k, b_column, b_k}, Entry{weight, weight.version(), {}});
    Entry& entry = at->second;
    if (first) {
      std::erase_if(entries_, [](const auto& item) { return item.second.weight.storage().is_unique(); });
    } else if (entry.version != weight.version()) {
      entry = {weight, weight.version(), {}};
    } else if (!entry.panels) {
      entry.panels = pack(k, n, w, b_k, b_column);
    }
    return entry.panels;
  });
}

Storage packed_panels(const Tensor& weight) { return current ? current->panels(weight) : Storage(); }

}  // namespace heed
